"""
A stand-in for the agents' models: on loopback, speaking both vendors' streaming APIs as far as their command lines need it.

It plays a model that runs the commands it was given, calls recalld's ``recall`` and then says what it got; every request
body is kept, since what is in it is what a model would have seen.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
DEFERRED = "mcp__recalld__recall"
SHELLS: dict[str, Callable[[str], Json]] = {
    "Bash": lambda command: {"command": command, "description": "a test"},
    "exec_command": lambda command: {"cmd": command},
}


class Model:
    """One model. ``query`` is what it asks recall; ``before_call`` runs before it answers with a call, given its number."""

    def __init__(self, query: str, before_call: Callable[[int], None] | None = None) -> None:
        self.query = query
        self.requests: list[Json] = []
        self.calls = self.searches = self.ran = 0
        self.wanted_calls = 1
        self.commands: list[str] = []
        """Run in the agent's shell, in order, before recall is called."""
        self.before_command: Callable[[int], None] | None = None
        self.before_call = before_call
        self._lock = threading.Lock()
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                path = self.path.partition("?")[0]
                if path.endswith("/messages"):
                    self.reply(model.messages(body), "text/event-stream" if body.get("stream") else "application/json")
                elif path.endswith("/responses"):
                    self.reply(model.responses(body), "text/event-stream")
                elif path.endswith("/count_tokens"):
                    self.reply(b'{"input_tokens": 10}', "application/json")
                else:
                    self.reply(b"{}", "application/json")

            def do_GET(self) -> None:
                self.reply(b'{"data": [], "models": []}', "application/json")

            def reply(self, data: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def seen(self) -> str:
        """Everything that a model was shown, as JSON text."""
        return json.dumps(self.requests, ensure_ascii=False)

    def _call(self, body: Json) -> tuple[Json, Json] | None:
        """The tool to call in answer to this request, and with what; None: say something instead."""
        with self._lock:
            self.requests.append(body)
            tools = flat(body.get("tools") or ())
            shell = next((tool for tool in tools if tool["name"] in SHELLS), None)
            if shell is not None and self.ran < len(self.commands):
                self.ran += 1
                if self.before_command is not None:
                    self.before_command(self.ran)
                return shell, SHELLS[shell["name"]](self.commands[self.ran - 1])
            found = next((tool for tool in tools if tool["name"].endswith("recall")), None)
            if found is None and DEFERRED in json.dumps(body) and self.searches <= self.calls < self.wanted_calls:
                # Claude Code names the tools of MCP servers and has them looked up before they are called.
                found = next((tool for tool in tools if tool["name"] == "ToolSearch"), None)
                if found is not None:
                    self.searches += 1
                    return found, {"query": f"select:{DEFERRED}", "max_results": 1}
                return None
            if self.calls >= self.wanted_calls or (found is None and not self.searches):
                return None
            self.calls += 1
            number = self.calls
        if self.before_call is not None:
            self.before_call(number)
        return found or {"name": DEFERRED}, {"query": self.query}

    # -- Anthropic's Messages API

    def messages(self, body: Json) -> bytes:
        chosen = self._call(body)
        head = {"id": "msg_1", "type": "message", "role": "assistant", "model": body.get("model", "m")}
        usage = {"input_tokens": 10, "output_tokens": 5}
        if chosen is not None:
            tool, arguments = chosen
            call = {"type": "tool_use", "id": f"toolu_{len(self.requests)}", "name": tool["name"], "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
            reason, whole = "tool_use", {**call, "input": arguments}
        else:
            call, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": "That is all."}
            reason, whole = "end_turn", {"type": "text", "text": "That is all."}
        if not body.get("stream"):
            return json.dumps(
                {**head, "content": [whole], "stop_reason": reason, "stop_sequence": None, "usage": usage}
            ).encode()
        return events(
            {
                "type": "message_start",
                "message": {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage},
            },
            {"type": "content_block_start", "index": 0, "content_block": call},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        )

    # -- OpenAI's Responses API

    def responses(self, body: Json) -> bytes:
        chosen = self._call(body)
        item: Json
        if chosen is not None:
            tool, arguments = chosen
            item = {
                "type": "function_call", "id": f"fc_{len(self.requests)}", "call_id": f"call_{len(self.requests)}",
                "name": tool["name"],
                "arguments": json.dumps(arguments),
            }  # fmt: skip
            if tool.get("namespace"):
                item["namespace"] = tool["namespace"]
        else:
            text = {"type": "output_text", "text": "That is all.", "annotations": []}
            item = {"type": "message", "id": "m_1", "role": "assistant", "content": [text]}
        number = len(self.requests)
        usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
        return events(
            {"type": "response.created", "response": {"id": f"resp_{number}"}},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
            {"type": "response.completed", "response": {"id": f"resp_{number}", "usage": usage}},
        )


def flat(tools: Any) -> list[Json]:
    """Tools by name, those within a namespace too."""
    found: list[Json] = []
    for tool in tools:
        if isinstance(tool.get("tools"), list):
            found += [{**inner, "namespace": tool.get("name", "")} for inner in flat(tool["tools"])]
        elif tool.get("name"):
            found.append(tool)
    return found


def events(*items: Json) -> bytes:
    return b"".join(f"event: {item['type']}\ndata: {json.dumps(item)}\n\n".encode() for item in items)
