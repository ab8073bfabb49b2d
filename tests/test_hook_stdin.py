"""How a host hands its payload over to the hook client: late, in pieces, half, not at all; by real pipes."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recalld.clients.hooking import client

from .test_hook import LIMIT_S, PROGRAM, PROMPT, PYTHON, SECRET, Stand

LATE_S = 0.8
"""Longer than everything that the client does for a payload that is there."""
PATIENCE = "5"
"""Deadlines that are long to a crowded machine, and short to ``LATE_S`` where they count from the process's start."""


class Pipe:
    """The client as a host starts it, with stdin in our hands."""

    def __init__(self, stand: Stand, *words: str) -> None:
        self.process = subprocess.Popen(
            [PYTHON, "-I", "-S", str(PROGRAM), *(words or ("claude",))], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, env=stand.environ, cwd=stand.home,
        )  # fmt: skip

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()

    def be_late(self) -> None:
        """Until the client waits for us, and has done so for longer than it may take for all the rest."""
        begun = time.monotonic()
        while time.monotonic() - begun < LATE_S or self.state() != "S":
            assert self.state() != "Z", "the client did not wait"
            time.sleep(0.01)

    def state(self) -> str:
        return Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def end(self) -> None:
        """It exits 0 without a word, whether or not stdin is closed."""
        assert self.process.wait(LIMIT_S) == 0
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            assert stream.read() == b""
            stream.close()
        self.close()


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    made = Stand(tmp_path)
    made.environ["RECALLD_TEST_PATIENCE"] = PATIENCE
    yield made
    for listener in made.listeners.values():
        listener.close()


def dead(stand: Stand) -> list[tuple[dict[str, Any], str]]:
    """Dead letters with their reasons; nothing else may lie in the spool."""
    assert stand.spooled() == []
    folder = stand.data / "spool" / "dead"
    found = []
    for path in sorted(folder.glob("*.json")):
        for each in (path, folder, folder.parent):
            assert each.stat().st_mode & 0o077 == 0
        found.append((json.loads(path.read_bytes()), path.with_name(path.name + ".reason").read_text()))
    return found


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="looks at the process in /proc")
def test_a_late_host(stand: Stand) -> None:
    """A payload that comes long after the process has started is told to the daemon as if it had been there."""
    heard = stand.listen("events", b'{"ok":true}\n')
    pipe = Pipe(stand)
    pipe.be_late()
    pipe.write(json.dumps(PROMPT).encode())
    pipe.close()
    pipe.end()
    (line,) = heard.lines
    assert json.loads(line)["payload"] == PROMPT
    assert dead(stand) == []


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="looks at the process in /proc")
def test_a_late_host_in_pieces(stand: Stand) -> None:
    """Half of it at once and half of it late, cut within a character; a brace at the cut does not end it."""
    heard = stand.listen("events", b'{"ok":true}\n')
    payload = {**PROMPT, "deep": {"a": {}}, "text": "é" * 10}
    raw = json.dumps(payload, ensure_ascii=False).encode()
    cuts = [0, raw.index(b"}") + 1, raw.index("é".encode()) + 1, len(raw)]
    pipe = Pipe(stand)
    for start, stop in itertools.pairwise(cuts):
        pipe.be_late()
        pipe.write(raw[start:stop])
    pipe.end()
    (line,) = heard.lines
    assert json.loads(line)["payload"] == payload


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="looks at the process in /proc")
def test_the_daemons_clock_starts_with_the_payload(stand: Stand) -> None:
    """A late payload leaves the daemon its whole time: one that is silent is waited for, and only then is it spooled."""
    heard = stand.listen("events", None)
    pipe = Pipe(stand)
    pipe.be_late()
    pipe.write(json.dumps(PROMPT).encode())
    pipe.close()
    pipe.end()
    (wire,) = stand.spooled(1)
    assert SECRET not in json.dumps(wire)
    assert len(heard.lines) == 1


def test_stdin_that_is_left_open(stand: Stand) -> None:
    """A payload that is whole is taken at once, though the host does not close stdin."""
    stand.environ["RECALLD_TEST_PATIENCE"] = "50"  # waiting for the end would outlast the test
    heard = stand.listen("events", b'{"ok":true}\n')
    pipe = Pipe(stand)
    pipe.write(json.dumps(PROMPT, indent=2).encode() + b"\n")
    pipe.end()
    (line,) = heard.lines
    assert json.loads(line)["payload"] == PROMPT


def test_nothing_ever_comes(stand: Stand) -> None:
    """The client goes in the end, and what it was called for can be seen."""
    stand.hurry()
    Pipe(stand, "claude", "Stop").end()
    ((wire, reason),) = dead(stand)
    assert (wire["host"], wire["event"], wire["payload"]) == ("claude", "Stop", "")
    assert "0 bytes and no end" in reason


def test_a_person_tries_it(stand: Stand) -> None:
    """At a terminal nothing comes by itself, and nothing is lost."""
    stand.hurry()
    ours, theirs = os.openpty()
    command = [PYTHON, "-I", "-S", str(PROGRAM), "claude"]
    done = subprocess.run(command, stdin=theirs, env=stand.environ, cwd=stand.home, timeout=LIMIT_S, check=False)
    assert done.returncode == 0
    assert dead(stand) == []
    os.close(ours)
    os.close(theirs)


def test_half_of_it_comes(stand: Stand) -> None:
    """Half a payload is a dead letter: redacted, and without its end, where half a secret may stand."""
    stand.hurry()
    pipe = Pipe(stand)
    half = json.dumps({"prompt": f"use {SECRET} please", "more": "x" * 5000}).encode()[:-2] + SECRET[:12].encode()
    pipe.write(half)
    pipe.end()
    ((wire, reason),) = dead(stand)
    assert f"{len(half)} bytes and no end" in reason
    assert wire["payload"].startswith('{"prompt": "use [redacted:github] please"')
    assert SECRET[:12] not in json.dumps(wire)


def test_half_of_it_comes_escaped(stand: Stand) -> None:
    """Some encoders escape more than they need to: what is redacted in plain is redacted there too."""
    pipe = Pipe(stand)
    pipe.write(
        rb'{"a": "\u003cprivate\u003e the diary \u003c/private\u003e", "b": "https:\/\/joe:hunter22@host.x\/y",'
        rb' "c": "DB_PASSWORD\u003dhunter33", "d": "say \u0022hi\u0022\u005c", "e": "' + b"x" * 5000
    )  # fmt: skip
    pipe.close()
    pipe.end()
    ((wire, _),) = dead(stand)
    for secret in ("diary", "hunter22", "hunter33"):
        assert secret not in wire["payload"]
    assert r"say \u0022hi\u0022\u005c" in wire["payload"]


@pytest.mark.parametrize(
    "raw", [b"", b"  \n", b"{", b"[1]", b"\xff\xfe", b'{"a":1} {"b":2}', b'"text"', b'{"prompt": "hal']
)
def test_closed_early(stand: Stand, raw: bytes) -> None:
    """What is not one JSON object is a dead letter, without any waiting; nothing at all is nothing."""
    stand.environ["RECALLD_TEST_PATIENCE"] = "50"
    pipe = Pipe(stand)
    if raw:
        pipe.write(raw)
    pipe.close()
    pipe.end()
    found = dead(stand)
    assert len(found) == bool(raw.strip())
    for wire, reason in found:
        assert f"{len(raw)} bytes that are not a JSON object" in reason
        assert wire["payload"] in (raw.decode(errors="replace") if raw in (b"[1]", b'"text"') else "")


def test_nested_without_end(stand: Stand) -> None:
    """What no parser follows to its bottom is a dead letter, not a client that goes without a word."""
    pipe = Pipe(stand)
    pipe.write(b'{"tool_response":' + b"[" * 200_000 + b"]" * 200_000 + b"}")
    pipe.close()
    pipe.end()
    ((_, reason),) = dead(stand)
    assert "not a JSON object" in reason


@pytest.mark.parametrize("closed", [True, False])
def test_five_megabytes(stand: Stand, closed: bool) -> None:
    """A large payload, many times what a pipe holds, arrives whole, also where stdin is left open."""
    stand.environ["RECALLD_TEST_PATIENCE"] = "50"
    heard = stand.listen("events", b'{"ok":true}\n')
    payload = {**PROMPT, "tool_response": "{}" * 2_500_000}
    pipe = Pipe(stand)
    pipe.write(json.dumps(payload).encode())
    if closed:
        pipe.close()
    pipe.end()
    (line,) = heard.lines
    assert json.loads(line)["payload"] == payload


def test_more_than_the_daemon_takes(stand: Stand) -> None:
    """What no line can hold is given up, and says so."""
    pipe = Pipe(stand)
    with pytest.raises(BrokenPipeError):  # nobody reads the rest
        pipe.write(b'{"prompt":"' + b"x" * (client.MAX_BYTES + (1 << 20)))
    with contextlib.suppress(BrokenPipeError):
        pipe.close()
    assert pipe.process.wait(LIMIT_S) == 0
    ((wire, reason),) = dead(stand)
    assert "larger than" in reason
    assert wire["payload"] == ""
    for stream in (pipe.process.stdout, pipe.process.stderr):
        assert stream is not None
        stream.close()


@pytest.mark.parametrize(("policy", "kept"), [("", 1), ("[capture]\nenabled = false\n", 0)])
def test_half_of_it_below_a_marker(stand: Stand, policy: str, kept: int) -> None:
    """Which files half a payload speaks of cannot be asked: below a marker its text is not kept, and nothing where it forbids."""
    (stand.home / ".recalld.toml").write_text(policy)
    pipe = Pipe(stand)
    pipe.write(b'{"tool_name": "Read", "tool_input": {"file_path": "secret"}, "x": "' + b"y" * 9000)
    pipe.close()
    pipe.end()
    found = dead(stand)
    assert [wire["payload"] for wire, _ in found] == [""] * kept


def test_who_read_it_for_us_gave_up(stand: Stand) -> None:
    """The script before the client says so when it did not see the payload's end."""
    pipe = Pipe(stand, "--late", "claude")
    pipe.close()
    pipe.end()
    ((_, reason),) = dead(stand)
    assert "0 bytes and no end" in reason
