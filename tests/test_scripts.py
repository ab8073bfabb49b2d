"""What scripts and pipes rely on: JSON keys, exit codes, short plain output, and commands that only look."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from capturing import FIRST_MS, ended, prompt, ran
from harness import Daemon, talk

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-P", "-m", "recalld.clients.cli"]
ESCAPE = re.compile(r"\x1b\[")
COLOUR = re.compile(r"\x1b\[[0-9;]*3[0-9][0-9;]*m|\x1b\[(?:1;)?3[1-7]m")

ACTOR_KEYS = {
    "pid",
    "state",
    "generation",
    "restarts",
    "uptime_s",
    "lag_ms",
    "rss_bytes",
    "beat_age_ms",
    "last_exit",
    "why",
}
SHAPES: dict[str, tuple[list[str], set[str]]] = {
    "ask": (["ask", "which tool builds", "--json"], {"hits", "degraded", "took_ms", "confidence", "note"}),
    "status": (
        ["status", "--json"],
        {
            "running",
            "version",
            "pid",
            "uptime_s",
            "data",
            "runtime",
            "actors",
            "index",
            "queues",
            "degraded",
            "last_error",
        },
    ),
    "list": (["list", "--json"], {"vaults"}),
    "doctor": (["doctor", "--json"], {"findings", "worst"}),
    "index": (["index", "--text-only", "--json"], {"notes", "chunks", "vectors", "pending_vectors", "revision"}),
    "spool": (["spool", "--json"], {"waiting", "refused"}),
    "service": (["service", "status", "--json"], {"manager", "files", "state"}),
    "brief": (["brief", "--json"], {"text"}),
    "compact": (["compact", "--json"], set()),
}
"""For each command that prints one object: how it is called, and keys that stay."""
ROWS: dict[str, tuple[list[str], set[str]]] = {
    "session": (["session", "list", "--json"], {"id", "host", "project", "cwd"}),
    "handoff": (["handoff", "list", "--json"], {"id", "project", "summary"}),
    "events": (["events", "--json"], {"kind", "session", "project"}),
}


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    folder = Path(tempfile.mkdtemp(prefix="r-", dir="/tmp"))
    made = Daemon(folder, {"RECALLD_EMBEDDER__MODEL": "none", "HOME": str(folder / "home")})
    try:
        yield filled(made)
    finally:
        made.close()
        shutil.rmtree(folder, ignore_errors=True)


def filled(daemon: Daemon) -> Daemon:
    """Running, with a note, a finished session, an open handoff and a page."""
    (daemon.folder / "home").mkdir()
    root = repository(daemon)
    daemon.write("build.md", "# Build\n\nThe build uses ninja.\n")
    daemon.start()
    talk(
        daemon,
        prompt("session-one", root, "Why does the gear slip?"),
        ran("session-one", root, "make test", at_ms=FIRST_MS + 1000),
        ended("session-one", root, FIRST_MS + 2000),
    )
    daemon.cli("handoff", "new", "Look at the axle next", cwd=root)
    write = [*COMMAND, "page", "write", "decisions/axle.md", "--project", "acme"]
    subprocess.run(write, env=daemon.environ, cwd=root, input="The axle is steel.\n", text=True, check=True)
    daemon.settle()
    return daemon


def repository(daemon: Daemon) -> Path:
    root = daemon.folder / "acme"
    (root / ".git").mkdir(parents=True, exist_ok=True)
    (root / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    return root


def told(daemon: Daemon, *words: str) -> Any:
    return json.loads(daemon.cli(*words, check=False, cwd=repository(daemon)).stdout)


# -- JSON -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHAPES)
def test_objects_have_their_keys(daemon: Daemon, name: str) -> None:
    """One JSON object on one line of stdout, with the keys that scripts know."""
    words, keys = SHAPES[name]
    out = daemon.cli(*words, check=False, cwd=repository(daemon)).stdout
    assert out.count("\n") == 1
    assert keys <= json.loads(out).keys()


@pytest.mark.parametrize("name", ROWS)
def test_rows_have_their_keys(daemon: Daemon, name: str) -> None:
    """Lists are a JSON list, or a line for each."""
    words, keys = ROWS[name]
    out = daemon.cli(*words, cwd=repository(daemon)).stdout
    rows = json.loads(out) if out.startswith("[") else [json.loads(line) for line in out.splitlines()]
    rows = next(iter(rows[0].values())) if len(rows) == 1 and isinstance(next(iter(rows[0].values())), list) else rows
    assert rows
    assert all(keys <= row.keys() for row in rows), rows[0].keys()


def test_the_keys_of_hits_and_actors(daemon: Daemon) -> None:
    """The parts that scripts pick out of ask and status."""
    (hit, *_) = told(daemon, "ask", "which tool builds ninja", "--json")["hits"]
    assert {"path", "title", "score", "lines", "passage", "streams", "vault", "file"} <= hit.keys()
    assert (hit["path"], hit["lines"]) == ("build.md", [1, 3])
    status = told(daemon, "status", "--json")
    assert set(status["actors"]) == {"writer", "query", "embedder", "watcher"}
    assert all(actor.keys() >= ACTOR_KEYS for actor in status["actors"].values())
    assert {"notes", "chunks", "vectors", "pending_vectors", "oldest_pending_ms"} <= status["index"].keys()
    assert status["index"]["notes"] >= 1


def test_metrics_are_for_prometheus(daemon: Daemon) -> None:
    """Each sample has its type, and the daemon counts as up."""
    lines = daemon.cli("metrics").stdout.splitlines()
    assert "recalld_up 1" in lines
    typed = {line.split()[2] for line in lines if line.startswith("# TYPE")}
    samples = {re.split(r"[ {]", line)[0] for line in lines if not line.startswith("#")}
    assert samples <= typed


# -- pipes and terminals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words", [["status"], ["list"], ["ask", "which tool builds"], ["doctor"], ["index", "--text-only"]]
)
def test_a_pipe_gets_short_plain_text(daemon: Daemon, words: list[str]) -> None:
    """No colour, no cursor movement, no progress bar, and lines as long as they are."""
    done = daemon.cli(*words, check=False)
    assert not ESCAPE.search(done.stdout + done.stderr)
    assert "\r" not in done.stdout + done.stderr
    assert len(done.stdout.splitlines()) <= 40


def on_a_terminal(daemon: Daemon, *words: str, **environ: str) -> str:
    """What a command prints where stdout and stderr are a terminal of 80 columns."""
    leader, follower = pty.openpty()
    kept = {key: value for key, value in daemon.environ.items() if key not in ("NO_COLOR", "FORCE_COLOR")}
    process = subprocess.Popen(
        [*COMMAND, *words], env={**kept, "TERM": "xterm", "COLUMNS": "80", **environ}, stdout=follower, stderr=follower
    )
    os.close(follower)
    data = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # Linux says so when the last writer has gone
            break
        if not piece:
            break
        data += piece
    os.close(leader)
    process.wait(30)
    return data.decode(errors="replace")


def test_colour_is_for_terminals_that_want_it(daemon: Daemon) -> None:
    """A terminal gets colour; with NO_COLOR none of it."""
    assert COLOUR.search(on_a_terminal(daemon, "status"))
    assert not COLOUR.search(on_a_terminal(daemon, "status", NO_COLOR="1"))


# -- commands that only look ------------------------------------------------------------------------------------------

LOOKING = [
    ["status"], ["status", "--json"], ["list"], ["list", "--json"], ["ask", "anything"], ["ask", "anything", "--json"],
    ["doctor"], ["doctor", "--json"], ["logs"], ["metrics"], ["spool"], ["session", "list"], ["handoff", "list"],
    ["events"], ["brief"], ["page", "read", "x.md"], ["service", "status"], ["model", "list"], ["graph", "--out", "-"],
    ["completion", "bash"], ["install"], ["export", "out"], ["stop"], ["pause"],
]  # fmt: skip


@pytest.mark.parametrize("words", LOOKING, ids=" ".join)
def test_looking_creates_nothing(short_tmp: Path, words: list[str]) -> None:
    """On a machine where recalld never ran, a command that only looks leaves no folder and no file."""
    for name in ("home", "here", "run"):
        (short_tmp / name).mkdir(mode=0o700)
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(short_tmp / "home"),
        "RECALLD_DATA": str(short_tmp / "data"),
        "XDG_RUNTIME_DIR": str(short_tmp / "run"),
    }
    done = subprocess.run(
        [*COMMAND, *words], env=environ, cwd=short_tmp / "here", capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in short_tmp.rglob("*")) == ["here", "home", "run"]


NEEDING = [
    ["session", "list"], ["handoff", "list"], ["events"], ["brief"], ["page", "read", "x.md"], ["pause"], ["resume"],
    ["restart", "query"], ["graph", "--out", "g.html"],
]  # fmt: skip


@pytest.mark.parametrize("words", NEEDING, ids=" ".join)
def test_commands_that_need_the_daemon_say_how_to_start_it(short_tmp: Path, words: list[str]) -> None:
    """One line on stderr, exit code 1, nothing on stdout."""
    daemon = Daemon(short_tmp, {"HOME": str(short_tmp)})
    done = daemon.cli(*words, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("recalld: the daemon does not run: start it with `recalld up`")
    assert done.stderr.count("\n") == 1


def test_an_installed_service_is_named(short_tmp: Path) -> None:
    """Whoever installed the service is told how to start that one."""
    if sys.platform == "darwin" or shutil.which("systemctl") is None:
        pytest.skip("this system has no systemd")
    daemon = Daemon(short_tmp, {"HOME": str(short_tmp), "XDG_CONFIG_HOME": str(short_tmp / "config")})
    daemon.cli("service", "install", "--no-start")
    assert "systemctl --user start recalld.service" in daemon.cli("pause", check=False).stderr


@pytest.mark.parametrize(
    ("text", "line"), [("[recall]\nk = 5\nk = 6\n", 3), ("[recall]\n\nk = 'five'\n", 3), ("[recall]\nkk = 5\n", 2)]
)
def test_a_bad_configuration_is_named_with_file_and_line(short_tmp: Path, text: str, line: int) -> None:
    """Before anything starts, with exit code 2."""
    daemon = Daemon(short_tmp)
    daemon.paths.data.mkdir(mode=0o700)
    daemon.paths.config.write_text(text)
    for words in (["list"], ["ask", "anything"], ["up"]):
        done = daemon.cli(*words, check=False)
        assert done.returncode == 2
        assert str(daemon.paths.config) in done.stderr
        assert re.search(rf"(:|line ){line}\b", done.stderr), done.stderr
