"""The bridge and the service manager: an installed service is asked for, once, without waiting; nothing else is."""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Bridge, Daemon, alive, until
from recalld.clients import service
from recalld.clients.bridge.service import EVERY_S, LABEL, UNIT, Starter
from recalld.protocol.runtime import Paths

SYSTEMCTL = """#!/bin/sh
echo "$@" >> {log}
exec {then}
"""


class Home:
    """A home folder with recalld's unit, and a ``systemctl`` in PATH that writes down what it is asked."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.folder = folder
        self.log = folder / "asked"
        self.environ = {**os.environ, "HOME": str(folder), "PATH": f"{folder}/bin:{os.environ['PATH']}"}
        self.environ.pop("XDG_CONFIG_HOME", None)
        (folder / "bin").mkdir()
        self.systemctl("true")
        for file in service.render("systemd", sys.executable, Paths(data, folder / "run"), folder):
            file.path.parent.mkdir(parents=True, exist_ok=True)
            file.path.write_text(file.text)

    def systemctl(self, then: str) -> None:
        program = self.folder / "bin" / "systemctl"
        program.write_text(SYSTEMCTL.format(log=self.log, then=then))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def asked(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


@pytest.fixture(autouse=True)
def _systemd(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if sys.platform == "darwin":
        pytest.skip("a Mac has launchd")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    before = signal.getsignal(signal.SIGCHLD)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.process
def test_an_installed_service_is_started_and_serves(short_tmp: Path) -> None:
    """A bridge that finds no daemon asks systemd for ours; its first call gets a real answer."""
    daemon = Daemon(short_tmp, {"RECALLD_EMBEDDER__MODEL": "none", "RECALLD_GRACE_MS": "25000"})
    daemon.write("a.md", "The build uses ninja.\n")
    daemon.paths.data.mkdir(mode=0o700)
    daemon.paths.config.write_text(f'[[vaults]]\npath = "{daemon.vault}"\nname = "vault"\n')
    (short_tmp / "home").mkdir()
    home = Home(short_tmp / "home", daemon.paths.data)
    home.systemctl(f"setsid {sys.executable} -P -m recalld.supervisor")
    daemon.environ |= {"HOME": str(home.folder), "PATH": home.environ["PATH"]}
    daemon.environ.pop("XDG_CONFIG_HOME", None)
    bridge = Bridge(daemon)
    try:
        assert "query" not in bridge.recall("ninja")["structuredContent"].get("degraded", [])
        assert home.asked() == [f"--user --no-block start {UNIT}"]
        status = daemon.status()
        assert status.pid != os.getpid()
    finally:
        bridge.close()
        told = daemon.try_status()
        if told is not None:
            os.kill(told.pid, 15)
            until("the daemon has ended", lambda: not alive(told.pid))


def test_at_most_once_a_minute(tmp_path: Path) -> None:
    """However often the daemon is found away."""
    home = Home(tmp_path, tmp_path / "data")
    starter = Starter(home.environ, str(tmp_path / "data"))
    for now in (5.0, 5.5, 5.0 + EVERY_S - 1):
        starter(now)
    until("systemctl is asked", home.asked)
    starter(5.0 + EVERY_S)
    until("systemctl is asked again", lambda: len(home.asked()) == 2)
    assert home.asked() == [f"--user --no-block start {UNIT}"] * 2


def test_a_manager_that_hangs_holds_nobody_up(tmp_path: Path) -> None:
    """The call returns although systemctl does not, and leaves no zombie."""
    home = Home(tmp_path, tmp_path / "data")
    home.systemctl("sleep 30")
    Starter(home.environ, str(tmp_path / "data"))(0.0)
    pid = until("systemctl hangs", lambda: next((pid for pid in children() if b"sleep" in command_line(pid)), None))
    os.kill(pid, 9)
    until("the child is cleared away", lambda: not os.path.exists(f"/proc/{pid}"))


def children() -> list[int]:
    return [int(word) for word in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()]


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("data", ["notes", 'my "notes" $HOME 100% \\ of it', "näme; x"])
def test_the_unit_is_recognised(tmp_path: Path, data: str) -> None:
    """Whatever the folder is called, the unit that `recalld service install` wrote for it is ours, and no other."""
    home = Home(tmp_path, tmp_path / data)
    assert Starter(home.environ, str(tmp_path / data))._command() == [
        "systemctl",
        "--user",
        "--no-block",
        "start",
        UNIT,
    ]
    assert Starter(home.environ, str(tmp_path / "other"))._command() == []


def test_nothing_is_started_that_is_not_installed(tmp_path: Path) -> None:
    """Without a unit there is nothing to ask for."""
    home = Home(tmp_path, tmp_path / "data")
    (tmp_path / ".config" / "systemd" / "user" / UNIT).unlink()
    assert Starter(home.environ, str(tmp_path / "data"))._command() == []


def test_a_system_without_systemctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit that came with a copied home folder, on a system without systemd: nothing happens."""
    home = Home(tmp_path, tmp_path / "data")
    monkeypatch.setattr("recalld.clients.bridge.service.MORE_PATH", str(tmp_path))
    home.environ["PATH"] = str(tmp_path)
    (tmp_path / "bin" / "systemctl").unlink()
    starter = Starter({**home.environ}, str(tmp_path / "data"))
    starter(0.0)
    assert home.asked() == []


def test_names_are_those_of_the_service() -> None:
    """The bridge imports nothing of ours, so that it repeats two names."""
    assert service.LABEL == LABEL
    assert UNIT in service.SYSTEMD_FILES
