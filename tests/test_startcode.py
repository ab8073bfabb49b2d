"""actors/startcode.py: code that only starting needed is no longer mapped, and what is needed comes back."""

import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, hashlib, json, re, ssl
import numpy, onnxruntime
from recalld.actors import startcode

def mapped():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssFile"))

def work():
    rows = numpy.arange(12.0).reshape(3, 4)
    try:
        onnxruntime.InferenceSession(b"no model")
    except Exception as error:
        refused = type(error).__name__
    return (rows @ rows.T).tolist(), hashlib.sha256(b"a").hexdigest(), re.sub("a+", "b", "caat"), refused

first = work()
before = mapped()
startcode.SETTLED_S = (0.0,)

async def settle():
    startcode.drop_later()
    await asyncio.sleep(0)
    while mapped() > before - 8_000:
        await asyncio.sleep(0.001)

asyncio.run(asyncio.wait_for(settle(), 20))
assert work() == first
assert mapped() < before - 5_000, (before, mapped())
startcode.drop()
assert work() == first
print("ok")
"""


CHANGED = """
import ctypes, mmap, sys, tempfile
from recalld.actors import startcode

file = tempfile.TemporaryFile()
file.write(b"a" * 8192)
file.flush()
page = mmap.mmap(file.fileno(), 8192, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)
page[4096] = ord("b")
where = ctypes.addressof(ctypes.c_char.from_buffer(page))
libc = ctypes.CDLL(None)
assert libc.mprotect(ctypes.c_void_p(where), 8192, mmap.PROT_READ | mmap.PROT_EXEC) == 0
assert any(line.startswith(f"{where:x}-") and " r-xp " in line for line in open("/proc/self/maps"))
startcode.drop()
assert ctypes.string_at(where + 4096, 1) == b"b"
print("ok")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what is mapped")
def test_code_that_is_not_what_its_file_has_stays():
    """A debugger's breakpoints, and code that the loader has relocated, are nowhere else."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", CHANGED], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "ok\n", done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what is mapped")
def test_what_starting_needed_is_let_go_and_what_is_needed_comes_back():
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "ok\n", done.stderr
