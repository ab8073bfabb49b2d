"""The official SDK's client against the bridge, in each of its modes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp_stage import BRIDGE, Stage

pytestmark = pytest.mark.process

MODES = pytest.mark.parametrize("mode", ["auto", "legacy", "2026-07-28"])


@pytest.fixture
def stage(short_tmp: Path) -> Iterator[Stage]:
    stage = Stage(short_tmp)
    stage.listen()
    yield stage
    stage.close()


def client(stage: Stage, mode: Any, **environ: str) -> Client:
    env = {"HOME": str(stage.folder), "RECALLD_RUNTIME": str(stage.folder), **environ}
    return Client(StdioServerParameters(command=BRIDGE[0], args=BRIDGE[1:], env=env), mode=mode)


@MODES
async def test_a_session(stage: Stage, mode: str) -> None:
    """Lists, a call whose result is checked against its output schema, resources and their templates."""
    stage.server(ready=True)
    async with client(stage, mode) as session:
        tools = (await session.list_tools()).tools
        assert len(tools) == 8
        answered = await session.call_tool("recall", {"query": "ninja"})
        assert answered.structured_content["hits"][0]["path"] == "tools/build.md"
        refused = await session.call_tool("recall", {"question": "ninja"})
        assert refused.is_error
        templates = (await session.list_resource_templates()).resource_templates
        assert templates[0].uri_template == "recalld://note/{path}"
        note = await session.read_resource("recalld://note/tools/build.md")
        assert note.contents[0].text.startswith("# Build")


@MODES
async def test_the_daemon_is_replaced(stage: Stage, mode: str) -> None:
    """A session goes on over a daemon that is killed, and over one that is away longer than the grace."""
    first = stage.server(ready=True)
    async with client(stage, mode, RECALLD_GRACE_MS="300") as session:
        await session.list_tools()
        await until_served_by(session, first.pid)
        first.kill()
        first.wait()
        away = await session.call_tool("recall", {"query": "b"})
        assert away.structured_content["degraded"] == ["query"]
        assert not away.is_error
        second = stage.server()
        await until_served_by(session, second.pid)


async def until_served_by(session: Client, pid: int) -> None:
    """Ask until this process answers; the test's own timeout ends it."""
    note = ""
    while note != f"pid {pid}":
        note = (await session.call_tool("recall", {"query": "c"})).structured_content.get("note", "")


def mapped_by(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads what a process has mapped")
@MODES
async def test_a_session_imports_no_web(stage: Stage, mode: str) -> None:
    """What serves lines over a socket holds neither the SDK's HTTP side nor its cryptography, however it was asked."""
    stage.server(ready=True)
    async with client(stage, mode) as session:
        await session.list_tools()
        await session.call_tool("recall", {"query": "ninja"})
        await session.call_tool("recall", {"question": "ninja"})
        await session.read_resource("recalld://note/tools/build.md")
        mapped = mapped_by(stage.servers[-1].pid)
    assert "pydantic_core" in mapped
    assert "cryptography" not in mapped
    assert "_rust_notify" not in mapped  # of watchfiles, by way of the SDK's web server


def test_the_sdk_is_whole_for_who_comes_later() -> None:
    program = """
import sys
from recalld.actors.query.mcp import sdk
server = sdk.import_server()
assert "mcp" not in sys.modules and "uvicorn" not in sys.modules and "sse_starlette" not in sys.modules
import mcp, mcp.server, sse_starlette
from mcp.client import Client
assert mcp.ClientSession and mcp.server.MCPServer and sse_starlette.EventSourceResponse
assert mcp.MCPError is server.MCPError and mcp.server.CacheHint is server.CacheHint
assert sdk.import_server() is server
"""
    subprocess.run([sys.executable, "-P", "-c", program], check=True, timeout=60)


def test_an_sdk_that_needs_what_was_left_out_is_imported_whole() -> None:
    """A later SDK may use at its import what this one only names."""
    program = """
import sys
from recalld.actors.query.mcp import sdk
sdk.ABSENT = (*sdk.ABSENT, "mcp_types")
server = sdk.import_server()
assert server.McpServer and server.__name__ == "recalld.actors.query.mcp.server"
import mcp
assert mcp.MCPError is server.MCPError and sys.modules["sse_starlette"].EventSourceResponse
"""
    found = subprocess.run(
        [sys.executable, "-P", "-c", program], timeout=60, capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr
    assert "imported whole" in found.stderr
