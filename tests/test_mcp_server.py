"""``mcp.sock`` in this process: roles, both eras on the wire, what is refused, and how failures become answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp_stand import StandFacts, Table
from recalld.actors.query.mcp import desk as desks
from recalld.actors.query.mcp.session import Sessions
from recalld.protocol.messages import capture, recall
from recalld.protocol.sockets import bind

HELLO = {"recalld": 1, "role": "mcp", "key": "k1", "cwd": "/home/dev/widgets", "host": "", "session": "s1"}
INITIALIZE = {
    "jsonrpc": "2.0", "id": 0, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "codex-mcp-client", "version": "1"}},
}  # fmt: skip
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "claude-code", "version": "1"},
}


class Line:
    """A raw client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, message: dict[str, Any] | bytes) -> None:
        self.writer.write(message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n")

    async def read(self) -> dict[str, Any]:
        line = await asyncio.wait_for(self.reader.readline(), 20)
        assert line, "the server closed the connection"
        message: dict[str, Any] = json.loads(line)
        return await self.read() if message.get("recalld") == "loading" else message

    async def call(self, tool: str, request_id: int | str = 1, **arguments: Any) -> dict[str, Any]:
        """A modern tool call's result."""
        self.send(modern("tools/call", request_id, name=tool, arguments=arguments))
        answer = await self.read()
        assert answer["id"] == request_id
        result: dict[str, Any] = answer["result"]
        return result


def modern(method: str, request_id: int | str = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": {**params, "_meta": META}}


class Stand:
    def __init__(self, folder: Path, **config: Any) -> None:
        self.path = folder / "mcp.sock"
        self.table = Table()
        self.facts = StandFacts(**config)
        self.sessions = Sessions(self.table, self.facts)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Stand]:
        listener = bind(self.path)
        task = asyncio.create_task(self.sessions.serve(listener))
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])
            listener.close()

    @asynccontextmanager
    async def line(self, first: dict[str, Any] | bytes) -> AsyncIterator[Line]:
        reader, writer = await asyncio.open_unix_connection(self.path, limit=1 << 24)
        line = Line(reader, writer)
        line.send(first)
        try:
            yield line
        finally:
            writer.close()

    @asynccontextmanager
    async def mcp(self, **hello: Any) -> AsyncIterator[Line]:
        async with self.line(HELLO | hello) as line:
            assert (await line.read())["recalld"] == 1
            yield line


@pytest.fixture
async def stand(short_tmp: Path) -> AsyncIterator[Stand]:
    async with Stand(short_tmp).running() as stand:
        yield stand


async def test_the_daemon_names_its_manifest(stand: Stand) -> None:
    """The first line from here tells the bridge which lists, which toolset and which budget it deals with."""
    async with stand.line(HELLO) as line:
        hello = await line.read()
    packaged = json.loads((Path(desks.__file__).parents[3] / "clients" / "manifest.json").read_text())
    assert hello["manifest"] == packaged["hash"]
    assert (hello["toolset"], hello["budget_ms"]) == ("default", 5000)


async def test_a_probe_is_answered_beside_a_call(stand: Stand) -> None:
    """A bridge that doubts us gets a sign of life while a call runs."""
    async with stand.mcp() as line:
        await line.call("recall", query="warm")
        line.send(modern("tools/call", 2, name="recall", arguments={"query": "sleep 20"}))
        line.send({"recalld": "probe"})
        assert await line.read() == {"recalld": "alive"}


@pytest.mark.parametrize(
    "first", [b"GET / HTTP/1.1\r\n", {"recalld": 2, "role": "mcp"}, {"recalld": 1, "role": "x"}, b"[]\n"]
)
async def test_a_stranger_is_closed(stand: Stand, first: dict[str, Any] | bytes) -> None:
    """A first line that names no role of ours ends the connection."""
    async with stand.line(first) as line:
        assert await asyncio.wait_for(line.reader.read(), 20) == b""


async def test_a_hook_gets_its_briefing(stand: Stand) -> None:
    """Role hook: one request, one reply, then the end; the place in the request wins over the first line's."""
    request = {"op": "brief", "cwd": "/home/dev/gears", "host": "codex", "session": "s9", "max_chars": 900}
    async with stand.line({"recalld": 1, "role": "hook", "cwd": "/"}) as line:
        line.send(request)
        reply = await line.read()
        assert await line.reader.read() == b""
    assert reply["text"] == "Briefing for /home/dev/gears"
    assert (reply["handoff"], reply["project"]["found_by"]) == ("h1", "git")
    place = capture.Place(cwd="/home/dev/gears", host="codex", session="s9")
    assert stand.table.asked == [capture.Brief(place=place, max_chars=900)]


@pytest.mark.parametrize("request_line", [b'{"op":"dance"}\n', b"not json\n", b"\n"])
async def test_a_hook_request_that_cannot_be(stand: Stand, request_line: bytes) -> None:
    """A bad request is answered with an error in words."""
    async with stand.line({"recalld": 1, "role": "hook"}) as line:
        line.send(request_line)
        assert "error" in await line.read()


async def test_the_handshake_era(stand: Stand) -> None:
    """initialize, lists and a call of 2025: no fields of the later era on the wire; ids keep their type."""
    async with stand.mcp() as line:
        line.send(INITIALIZE)
        opened = (await line.read())["result"]
        assert (opened["protocolVersion"], opened["serverInfo"]["name"]) == ("2025-06-18", "recalld")
        assert opened["capabilities"]["tools"] == {"listChanged": True}
        line.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        line.send({"jsonrpc": "2.0", "id": "7", "method": "tools/list"})
        listed = await line.read()
        assert listed["id"] == "7"
        assert "ttlMs" not in listed["result"]
        call = {"name": "recall", "arguments": {"query": "q"}}
        line.send({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call})
        answer = await line.read()
        assert answer["id"] == 7
        assert "resultType" not in answer["result"]


async def test_the_stateless_era(stand: Stand) -> None:
    """2026-07-28: server/discover, lists that may be kept, complete results that name the server."""
    async with stand.mcp() as line:
        line.send(modern("server/discover"))
        found = (await line.read())["result"]
        assert found["supportedVersions"] == ["2026-07-28"]
        assert len(found["instructions"].encode()) < 2048
        line.send(modern("tools/list"))
        assert (await line.read())["result"]["ttlMs"] > 0
        result = await line.call("recall", query="q")
        assert result["resultType"] == "complete"
        assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "recalld"


async def test_bad_lines_do_not_end_a_session(stand: Stand) -> None:
    """Parse errors, batches and non-messages are answered, and the next request is served."""
    async with stand.mcp() as line:
        line.send(b"{oops\n")
        assert (await line.read())["error"]["code"] == -32700
        line.send(b"[" * 100_000 + b"\n")
        assert (await line.read())["error"]["code"] == -32700
        line.send(b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]\n')
        assert (await line.read())["error"]["code"] == -32600
        line.send(b'{"id":5,"method":17}\n')
        refused = await line.read()
        assert (refused["id"], refused["error"]["code"]) == (5, -32600)
        assert (await line.call("recall", query="q"))["structuredContent"]["hits"]


async def test_half_a_character_is_no_reason_to_lose_a_question(stand: Stand) -> None:
    """A lone surrogate in a query, and one in a file's text, pass in both directions."""
    async with stand.mcp() as line:
        text = json.dumps(modern("tools/call", 1, name="recall", arguments={"query": "surrogate X"}))
        line.send(text.replace("X", "\\ud83d").encode() + b"\n")
        result = (await line.read())["result"]
        assert result["structuredContent"]["hits"][0]["passage"] == "bad \udcff byte"


async def test_an_unknown_tool(stand: Stand) -> None:
    """A protocol error, as the specification wants, that says which tools there are."""
    async with stand.mcp() as line:
        line.send(modern("tools/call", 1, name="remember", arguments={}))
        error = (await line.read())["error"]
        assert error["code"] == -32602
        assert "recall" in error["message"]


async def test_wrong_arguments_are_a_result(stand: Stand) -> None:
    """The model reads what was wrong and what is allowed; nothing was asked of anybody."""
    async with stand.mcp() as line:
        result = await line.call("recall", query="q", limit=3)
        assert result["isError"] is True
        assert "unknown argument 'limit'" in result["content"][0]["text"]
        assert "query, k" in result["structuredContent"]["error"]["text"]
        assert stand.table.asked == []


@pytest.mark.parametrize("query", ["late", "busy now"])
async def test_recall_degrades(stand: Stand, query: str) -> None:
    """A recall that cannot be answered in time has no hits, says so, and is no error."""
    async with stand.mcp() as line:
        result = await line.call("recall", query=query)
        assert result["isError"] is False
        assert result["structuredContent"]["degraded"] == ["query"]


async def test_a_bug_is_never_an_empty_result(stand: Stand, caplog: pytest.LogCaptureFixture) -> None:
    """An unforeseen failure is an error for the model and a traceback in the log."""
    async with stand.mcp() as line:
        result = await line.call("recall", query="crash")
    assert result["isError"] is True
    assert "hits" not in result["structuredContent"]
    assert "a bug" in caplog.text


async def test_a_conflict(stand: Stand) -> None:
    """Compare-and-write that does not hold: the model is told, and a retry is not suggested."""
    async with stand.mcp() as line:
        result = await line.call("write_page", path="taken", body="b", expect_hash="x")
        assert result["structuredContent"]["error"]["code"] == "conflict"
        assert result["structuredContent"]["error"]["retryable"] is False


async def test_a_call_knows_where_it_comes_from(stand: Stand) -> None:
    """Place is the connection's; the host is what the MCP client calls itself; the key is bridge and request id."""
    async with stand.mcp() as line:
        await line.call("write_page", 41, path="a", body="b")
        await line.call("write_page", "41", path="a", body="b", project="gears")
    one, two = stand.table.asked
    assert isinstance(one, capture.WritePage)
    assert isinstance(two, capture.WritePage)
    assert one.place == capture.Place(cwd="/home/dev/widgets", host="claude", session="s1")
    assert two.place.project == "gears"
    assert (one.replay_key, two.replay_key) == ("k1:41", 'k1:"41"')


async def test_an_inherited_session_is_not_ours(stand: Stand) -> None:
    """Codex below Claude Code inherits its variables: the session seen there is Claude's."""
    async with stand.mcp(host="claude") as line:
        line.send(INITIALIZE)
        await line.read()
        call = {"name": "handoff_begin", "arguments": {"summary": "s"}}
        line.send({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})
        await line.read()
    begun = stand.table.asked[0]
    assert isinstance(begun, capture.HandoffBegin)
    assert (begun.place.host, begun.place.session) == ("codex", "")


async def test_a_write_from_nowhere_is_refused(stand: Stand) -> None:
    """A client that stands in no project is told what to do, and nothing is written."""
    async with stand.mcp(cwd="/") as line:
        result = await line.call("write_page", path="a", body="b")
        assert result["isError"] is True
        assert "project=<name>" in result["content"][0]["text"]
        assert (await line.call("write_page", path="a", body="b", project="w"))["isError"] is False
        assert (await line.call("write_page", path="a", body="b", scope="global"))["isError"] is False


async def test_cancelled_and_gone(stand: Stand) -> None:
    """A cancelled call, and one whose client went away, stop the work behind them."""
    async with stand.mcp() as line:
        await line.call("recall", query="warm")
        line.send(modern("tools/call", 2, name="recall", arguments={"query": "sleep 60"}))
        line.send(modern("tools/call", 3, name="recall", arguments={"query": "sleep 61"}))
        await _until(lambda: len(stand.table.asked) == 3)
        line.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 2, "_meta": META}})
        await _until(lambda: len(stand.table.cancelled) == 1)
    await _until(lambda: len(stand.table.cancelled) == 2)
    await _until(lambda: stand.sessions.open == 0)


async def test_calls_in_flight_are_bounded(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the bound a call is answered at once, and counted."""
    monkeypatch.setattr(desks, "MAX_CALLS", 1)
    async with stand.mcp() as line:
        line.send(modern("tools/call", 1, name="recall", arguments={"query": "sleep 60"}))
        await _until(lambda: len(stand.table.asked) == 1)
        result = await line.call("read_note", 2, path="a.md")
        assert result["structuredContent"]["error"]["retry_after_ms"] == 200
        assert stand.sessions.figures()["mcp_calls_refused"] == 1


async def test_a_budget_ends_here_too(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An actor that overlooks its budget does not make a client wait."""
    monkeypatch.setattr(desks, "MARGIN_MS", 1)
    async with Stand(short_tmp, budget_ms=50).running() as stand, stand.mcp() as line:
        result = await line.call("recall", query="sleep 60")
        assert result["structuredContent"]["degraded"] == ["query"]


async def test_resources(stand: Stand) -> None:
    """A note under either spelling of its path, the status, and errors that help."""
    async with stand.mcp() as line:
        for path in ("tools/build.md", "tools%2Fbuild.md"):
            line.send(modern("resources/read", uri=f"recalld://note/{path}?vault=notes"))
            content = (await line.read())["result"]["contents"][0]
            assert (content["mimeType"], content["text"]) == ("text/markdown", "# Build\nUse ninja.\n")
        assert stand.table.asked[-1] == recall.ReadNote(ref="tools/build.md", vault="notes", max_chars=200_000)
        line.send(modern("resources/read", uri="recalld://status"))
        status = json.loads((await line.read())["result"]["contents"][0]["text"])
        assert status["ok"] is True
        for uri in ("recalld://note/missing", "recalld://note/twice", "recalld://note/", "file:///etc/passwd"):
            line.send(modern("resources/read", uri=uri))
            assert (await line.read())["error"]["code"] == -32602


async def test_the_full_toolset(short_tmp: Path) -> None:
    """toolset = "full" lists every tool; the others are callable without being listed."""
    async with Stand(short_tmp, toolset="full").running() as stand, stand.mcp() as line:
        line.send(modern("tools/list"))
        names = [tool["name"] for tool in (await line.read())["result"]["tools"]]
        assert {"briefing", "delete_page", "session_events"} < set(names)


async def _until(condition: Any) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - what is waited for happens in the code under test, which has no event for it
            await asyncio.sleep(0.005)
