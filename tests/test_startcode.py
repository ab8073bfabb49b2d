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


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says what is mapped")
def test_what_starting_needed_is_let_go_and_what_is_needed_comes_back():
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "ok\n", done.stderr
