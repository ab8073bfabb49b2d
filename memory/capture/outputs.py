"""What a tool answered, out of the many shapes in which hosts send it."""

from __future__ import annotations

from typing import Any

import msgspec

LARGEST_CODE = 0xFFFF_FFFF
"""Of a process on any system."""
_SELDOM = frozenset("success resultType result_type error exitCode exit_code exit code".split())
"""Fields of a response that most have none of: one look at the keys spares eight."""


def output_of(response: object) -> tuple[str, int | None, bool | None]:
    """
    The text that a tool answered, its exit code, and whether it failed (None = it does not say).

    Takes strings, content blocks, and the objects of Claude Code (stdout, stderr), Gemini (llmContent), Copilot
    (textResultForLlm, resultType), Cursor (exitCode) and OpenCode (output, exit).
    """
    if response is None:
        return "", None, None
    if isinstance(response, str):
        return response, None, None
    if isinstance(response, list):
        return flatten(response), None, None
    if not isinstance(response, dict):
        return str(response), None, None
    failed: bool | None = None
    for key in ("is_error", "isError", "interrupted"):
        if isinstance(response.get(key), bool):
            failed = bool(failed) or response[key]
    code = None
    if not _SELDOM.isdisjoint(response):
        code, failed = _told(response, failed)
    parts = [response[k] for k in ("stdout", "stderr") if isinstance(response.get(k), str) and response[k]]
    if not parts:
        keys = ("output", "llmContent", "textResultForLlm", "text_result_for_llm", "content", "text", "result", "error")
        parts = [flatten(response[key]) for key in keys if response.get(key)][:1]
    empty = "stdout" in response or "output" in response
    return "\n".join(parts) or ("" if empty else dump(response)), None if isinstance(code, bool) else code, failed


def _told(response: dict[str, Any], failed: bool | None) -> tuple[int | None, bool | None]:
    """The exit code, and whether it failed, by the fields that some hosts have for it."""
    if isinstance(response.get("success"), bool):
        failed = bool(failed) or not response["success"]
    result_type = response.get("resultType") or response.get("result_type")
    if isinstance(result_type, str):
        failed = bool(failed) or result_type not in ("success", "ok")
    if response.get("error"):
        failed = True
    codes = (response.get(key) for key in ("exitCode", "exit_code", "exit", "code"))
    return next((code for code in codes if isinstance(code, int) and abs(code) <= LARGEST_CODE), None), failed


def flatten(value: object) -> str:
    """Text out of a string or of content blocks; images and other blocks only leave a word."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(part for part in (flatten(item) for item in value) if part)
    if isinstance(value, dict):
        if isinstance(value.get("text"), str):
            return str(value["text"])
        if value.get("type") in ("image", "audio", "file", "input_image") or "data" in value:
            return f"[{value.get('type') or 'blob'}]"
        if "content" in value:
            return flatten(value["content"])
    return "" if value is None else dump(value)


def exit_code(output: str) -> int | None:
    """The code in ``Exit code: 2`` or ``Process exited with code 2``, as Codex and Gemini write it near an output's ends."""
    for part in (output[:400], output[-200:]):
        low = part.lower()
        if "exit" not in low:
            continue
        for mark in ("exit code", "exited with code"):
            at = low.find(mark)
            if at >= 0:
                digits = low[at + len(mark) : at + len(mark) + 8].lstrip(": ").split(None, 1)
                number = digits[0].rstrip(".,;)") if digits else ""
                if number.isascii() and number.removeprefix("-").isdigit():
                    return int(number)
    return None


def opened(value: object) -> object:
    """A JSON object that a host sent as a string, else the value itself."""
    if isinstance(value, str) and value[:1] in "{[" and value:
        try:
            return msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError):
            return value
    return value


def dump(value: object) -> str:
    try:
        return msgspec.json.encode(value).decode()
    except (TypeError, ValueError, OverflowError):
        return str(value)
