"""Service definitions: rendered, checked by the system's own tools, and started through their sockets."""

from __future__ import annotations

import os
import plistlib
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from harness import running, until
from recalld.clients import service
from recalld.protocol.client import ask_sync
from recalld.protocol.messages.control import GetStatus, Status
from recalld.protocol.runtime import Paths

PLIST_KEYS = {
    "Label", "ProgramArguments", "EnvironmentVariables", "RunAtLoad", "KeepAlive", "ThrottleInterval", "ProcessType",
    "ExitTimeOut", "Umask", "StandardErrorPath", "Sockets", "SoftResourceLimits",
}  # fmt: skip
"""Keys of launchd.plist(5) that we use, with the meaning that manual gives them."""


def rendered(kind: str, data: Path, tmp_path: Path) -> list[service.Rendered]:
    return service.render(kind, sys.executable, Paths(data, tmp_path / "run"), tmp_path)


@pytest.mark.parametrize("data", ["data", "my notes $HOME 100%"])
def test_systemd_accepts_the_units(tmp_path: Path, data: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """systemd-analyze finds nothing to say, and rates the exposure below 50 of 100."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not on this machine")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / "run").mkdir(mode=0o700)
    environ = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path / "run"), "HOME": str(tmp_path)}
    files = rendered("systemd", tmp_path / data, tmp_path)
    for file in files:
        file.path.parent.mkdir(parents=True, exist_ok=True)
        file.path.write_text(file.text)
    names = [str(file.path) for file in files]
    verify = ["systemd-analyze", "verify", "--user", "--man=no", "--recursive-errors=no", *names]
    done = subprocess.run(verify, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    security = ["systemd-analyze", "security", "--offline=true", "--threshold=50", "--no-pager", names[0]]
    done = subprocess.run(security, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-400:]


@pytest.mark.parametrize("data", ["data", "my <notes> & more"])
def test_the_plist_is_well_formed_and_uses_known_keys(tmp_path: Path, data: str) -> None:
    """It parses, says what to run, and has no key that launchd does not know."""
    (file,) = rendered("launchd", tmp_path / data, tmp_path)
    plist = plistlib.loads(file.text.encode())
    assert set(plist) <= PLIST_KEYS
    assert str(tmp_path / data) in plist["ProgramArguments"]
    assert sys.executable == plist["ProgramArguments"][0]
    assert {"control", "events", "query", "mcp"} == set(plist["Sockets"])
    assert plist["Umask"] == 0o77
    assert all(entry["SockPathMode"] == 0o600 for entry in plist["Sockets"].values())


def test_install_and_uninstall_write_and_remove_their_files_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A foreign unit beside ours stays."""
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(service, "_run", lambda *_: None)
    paths = Paths(tmp_path / "data", tmp_path / "run")
    written = service.install("systemd", paths, tmp_path)
    foreign = written[0].parent / "other.service"
    foreign.write_text("[Unit]\n")
    assert written == service.installed("systemd", paths, tmp_path)
    assert written == service.uninstall("systemd", paths, tmp_path)
    assert [foreign] == list(foreign.parent.iterdir())


def test_the_units_use_the_sockets_that_clients_look_for(tmp_path: Path) -> None:
    """Another data folder has another runtime folder; the service listens there, and not where nobody asks."""
    paths = Paths(tmp_path / "data", Path("/run/user/1/recalld-0a%b c"))
    texts = {file.path.name: file.text for file in service.render("systemd", sys.executable, paths, tmp_path)}
    assert '--runtime "/run/user/1/recalld-0a%%b c"' in texts["recalld.service"]
    assert "ListenStream=/run/user/1/recalld-0a%%b c/query.sock\n" in texts["recalld.socket"]


def test_a_service_manager_that_refuses_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither files that start something at the next login, nor files that cannot be removed."""

    def refuse(*_: str) -> None:
        raise service.ServiceError("no bus")

    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(service, "_run", refuse)
    paths = Paths(tmp_path / "data", tmp_path / "run")
    with pytest.raises(service.ServiceError):
        service.install("systemd", paths, tmp_path)
    assert service.installed("systemd", paths, tmp_path) == []
    service.install("systemd", paths, tmp_path, start=False)
    with pytest.raises(service.ServiceError):
        service.uninstall("systemd", paths, tmp_path)
    assert service.installed("systemd", paths, tmp_path) == []


@pytest.mark.process
def test_the_first_client_starts_the_daemon_through_its_socket() -> None:
    """With socket activation, a call that comes before the daemon waits and is answered; the socket outlives it."""
    if shutil.which("systemd-socket-activate") is None:
        pytest.skip("systemd is not on this machine")
    with running(start=False) as daemon:
        daemon.paths.runtime.mkdir(mode=0o700)
        daemon.paths.data.mkdir(mode=0o700)
        daemon.paths.config.write_text("[embedder]\nmodel = 'none'\n")
        control = daemon.paths.socket("control")
        activate = [
            "systemd-socket-activate", "-l", str(control), "-E", f"RECALLD_DATA={daemon.paths.data}",
            "-E", f"RECALLD_RUNTIME={daemon.paths.runtime}", sys.executable, "-P", "-m", "recalld.supervisor",
        ]  # fmt: skip
        daemon.process = subprocess.Popen(activate, env=daemon.environ, stderr=subprocess.DEVNULL)
        until("the service manager listens", control.exists)
        status = ask_sync(control, GetStatus(), budget_ms=30_000)
        assert isinstance(status, Status)
        assert daemon.stop() == 0
        assert control.exists()


def test_without_a_service_manager_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A daemon in a terminal does not need one, and an address that is not there is no error."""
    from recalld.actors.sdnotify import ServiceManager, inherited_sockets

    monkeypatch.setenv("NOTIFY_SOCKET", "/nowhere/at/all")
    monkeypatch.setenv("LISTEN_PID", "1")
    monkeypatch.setenv("LISTEN_FDS", "3")
    manager = ServiceManager()
    manager.ready("fine")
    manager.stopping()
    assert manager.watchdog_s == 0.0
    assert inherited_sockets() == {}
    assert "LISTEN_FDS" not in os.environ


def test_an_abstract_notify_address_is_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    """Service managers may use Linux's abstract names."""
    if sys.platform != "linux":
        pytest.skip("abstract sockets are a Linux thing")
    from recalld.actors.sdnotify import ServiceManager

    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0recalld-test-{os.getpid()}")
        manager.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", f"@recalld-test-{os.getpid()}")
        ServiceManager().status("hello")
        assert manager.recv(100) == b"STATUS=hello"
