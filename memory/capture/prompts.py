"""
What a person typed, told apart from what a harness puts in their mouth. By shape, not by a list of one vendor's tags.
"""

from __future__ import annotations

import re

MAX_TITLE_CHARS = 72
ACKNOWLEDGEMENT_CHARS = 20

TAGGED = re.compile(r"\A\s*<([a-zA-Z][\w:.-]*)(\s[^<>]*)?>.*?(?:</\1\s*>|\Z)", re.DOTALL)
"""A block that opens the prompt: <ide_context>…</ide_context>, <task-notification>…; unclosed ones take all."""
MARKDOWN_CONTEXT = re.compile(
    r"\A\s*#+ (?:context from my ide|files mentioned|open tabs|environment|active file)\b", re.IGNORECASE
)
REQUEST_HEADING = re.compile(r"^#+ my request[^\n]*\n", re.IGNORECASE | re.MULTILINE)
"""Codex in an IDE puts the request below a heading of its own."""
SHELL_ECHO = re.compile(r"\A\s*(?:[\w.-]+@[\w.-]+:[^\n]*[$#%] |\$ |❯ |➜  ?\S+ |PS [A-Z]:\\[^\n>]*> )")
SLASH = re.compile(r"\A\s*/[a-z][\w:-]*\s*\Z")
"""A bare command of the harness (/clear, /compact): nothing was asked. With arguments it is a request."""
NOTICES = re.compile(
    r"\A\s*(?:\[request interrupted|caveat: the messages below|this session is being continued from|\[image[^\]]*\]\s*\Z)",
    re.IGNORECASE,
)
MODEL = re.compile(
    r"\A(?:claude|gpt|gemini|o\d|codex|llama|mistral|grok|qwen|deepseek)[-\w.]*\d[\w.\-:]*\Z", re.IGNORECASE
)
ACKNOWLEDGEMENTS = frozenset(
    "ok okay k kk yes y yep yeah yup sure no n nope thanks thank you thx ty great good nice cool perfect done got it go on"
    " continue go ahead please proceed next lgtm right correct fine alright sounds good looks good that works awesome"
    " ja nein danke weiter gut oui non merci sí si gracias sim não obrigado obrigada valeu"
    " はい いいえ ありがとう 了解 続けて 好 好的 谢谢 继续 是 네 예 응 아니요 감사합니다 고마워 계속 좋아".split()
)
QUESTION = ("?", "？", "؟", ";")


def request_of(text: str) -> str:
    """
    The person's own words in a prompt; '' when there are none (scaffolding, a bare slash command, a model's name).

    >>> request_of("<ide_opened_file>a.py</ide_opened_file>\\nWhy does it fail?")
    'Why does it fail?'
    """
    heading = REQUEST_HEADING.search(text)
    if heading:
        text = text[heading.end() :]
    elif MARKDOWN_CONTEXT.match(text):
        return ""
    while (block := TAGGED.match(text)) is not None:
        text = text[block.end() :]
    text = text.strip()
    if not text or SHELL_ECHO.match(text) or SLASH.match(text) or NOTICES.match(text) or MODEL.match(text):
        return ""
    return text


def title_of(request: str) -> str:
    """One line that names a request: its first sentence or line, cut on a word; '' for ''."""
    line = next((line.strip(" #>*-\t") for line in request.splitlines() if line.strip(" #>*-\t`")), "")
    line = " ".join(line.split())
    if len(line) <= MAX_TITLE_CHARS:
        return line
    sentence = re.match(r".{12,}?[.!?。！？](?=\s|$)", line)
    if sentence and len(sentence[0]) <= MAX_TITLE_CHARS:
        return sentence[0]
    head = line[: MAX_TITLE_CHARS - 1]
    cut = head.rsplit(" ", 1)[0] if " " in head[MAX_TITLE_CHARS // 2 :] else head
    return cut.rstrip(" ,;:-") + "…"


def is_acknowledgement(request: str) -> bool:
    """Whether a request only says yes, thanks or go on: nothing that the next agent could take up."""
    text = request.strip().lower().rstrip(".!。！ ~")
    if len(text) > ACKNOWLEDGEMENT_CHARS:
        return False
    words = re.findall(r"[^\W_]+", text)
    return not words or text in ACKNOWLEDGEMENTS or all(word in ACKNOWLEDGEMENTS for word in words)


def is_question(request: str) -> bool:
    """Whether a request ends in a question mark of any script."""
    return request.rstrip(" \n\t\"'”)").endswith(QUESTION)
