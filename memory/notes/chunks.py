"""
A body to passages: verbatim lines under one heading path, about as long as the embedding model reads.

Every line that is not blank is in exactly one chunk, in order. Only a line that is too long by itself is cut inside, at
the end of a sentence or at white space where there is any; its pieces share the line's number.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence

from ...protocol.messages.common import Chunk
from ..recall.tokens import fold
from .structure import Heading

TARGET_TOKENS = 200
"""The packaged model reads 256 tokens; context takes some, and the estimate below is no tokenizer."""
SMALL_TOKENS = 40
"""A rest smaller than this joins the chunk before it."""
TOKENS_PER_WORD = 1.3
CHARS_PER_TOKEN = 5
"""Bounds the estimate from below for text with few blanks: identifiers, URLs, base64."""
SEPARATOR = " > "

_UNSPACED = re.compile("[\u0e00-\u0e7f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7ff\U00020000-\U0003ffff]")
_CUT = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])")


def split(
    lines: Sequence[str],
    words: Sequence[int],
    headings: Sequence[Heading],
    code_lines: Sequence[tuple[int, int]],
    title: str,
    first_line: int,
) -> list[Chunk]:
    """
    The chunks of a body.

    ``lines`` are the body's lines, the first of which is line ``first_line`` of the file, ``words`` how many words each has
    (``words_of``). ``title`` heads every context; '' when it comes from the file name, so that renaming a file keeps its
    chunks.
    """
    chunks: list[Chunk] = []
    for start, end, context in _sections(lines, words, headings, title):
        for line_from, line_to, text in _pieces(lines, words, start, end, code_lines):
            chunks.append(
                Chunk(
                    ordinal=len(chunks),
                    hash=chunk_hash(context, text),
                    context=context,
                    text=text,
                    line_from=first_line + line_from,
                    line_to=first_line + line_to,
                )
            )
    return chunks


def words_of(lines: Sequence[str]) -> list[int]:
    """How many words each line has; 0 where it is blank."""
    words = []
    for line in lines:
        if len(line) > 60 and line.isascii() and line.isprintable() and "  " not in line:
            # Plain prose: counting blanks takes a third of the time of splitting there.
            words.append(line.strip(" ").count(" ") + 1)
        else:
            words.append(len(line.split()))
    return words


def chunk_hash(context: str, text: str) -> bytes:
    return hashlib.blake2b(f"{context}\n{text}".encode("utf-8", "replace"), digest_size=16).digest()


def tokens_of(text: str, words: int | None = None) -> float:
    """About how many tokens ``text`` is to a word-piece model; ``words`` when they were counted before."""
    estimate = max((len(text.split()) if words is None else words) * TOKENS_PER_WORD, len(text) / CHARS_PER_TOKEN)
    return estimate if text.isascii() else max(estimate, float(len(_UNSPACED.findall(text))))


def _sections(
    lines: Sequence[str], words: Sequence[int], headings: Sequence[Heading], title: str
) -> Iterator[tuple[int, int, str]]:
    """``(first line, line after the last, context)`` per heading; one without text of its own goes with the next."""
    path: list[Heading] = []
    start = 0
    context = title
    before: Heading | None = None
    for heading in headings:
        previous_end = heading.line
        if _has_text(lines, words, start, previous_end, before):
            yield start, previous_end, context
            start = previous_end
        path = [each for each in path if each.level < heading.level]
        path.append(heading)
        context = _context(title, path)
        before = heading
    if start < len(lines):
        yield start, len(lines), context


def _has_text(lines: Sequence[str], words: Sequence[int], start: int, end: int, heading: Heading | None) -> bool:
    """Whether lines ``start`` to ``end`` hold more than headings: the last heading before ``end`` is the only one."""
    first = start
    if heading is not None and heading.line >= start:
        first = heading.line + 1
        if first < end and _underline(lines[first]) and not lines[heading.line].lstrip().startswith("#"):
            first += 1
    return any(words[first:end])


def _underline(line: str) -> bool:
    stripped = line.strip()
    return (bool(stripped) and not stripped.strip("=")) or (bool(stripped) and not stripped.strip("-"))


def _context(title: str, path: Sequence[Heading]) -> str:
    parts = [heading.text for heading in path if heading.text]
    if title and not (parts and (parts[0] == title or fold(parts[0]) == fold(title))):
        parts.insert(0, title)
    return SEPARATOR.join(parts)


def _pieces(
    lines: Sequence[str], words: Sequence[int], start: int, end: int, code_lines: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int, str]]:
    """``(first line, last line, text)`` of the chunks of one section."""
    while start < end and not words[start]:
        start += 1
    while end > start and not words[end - 1]:
        end -= 1
    if start == end:
        return
    whole = "\n".join(lines[start:end])
    if len(whole) <= TARGET_TOKENS * CHARS_PER_TOKEN and tokens_of(whole, sum(words[start:end])) <= TARGET_TOKENS:
        yield start, end - 1, whole
        return
    sizes = {at: tokens_of(lines[at], words[at]) for at in range(start, end)}
    for first, last in _packed(sizes, _blocks(words, start, end, code_lines)):
        text = "\n".join(lines[first : last + 1])
        if first == last and sizes[first] > TARGET_TOKENS * 1.5:
            for piece in cut_line(text):
                yield first, first, piece
        else:
            yield first, last, text


def _blocks(
    words: Sequence[int], start: int, end: int, code_lines: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    """Paragraphs, lists, tables and code blocks: ``(first line, last line)``."""
    code = {first: last for first, last in code_lines if start <= first < end}
    at = start
    while at < end:
        if not words[at]:
            at += 1
            continue
        first = at
        while at < end and (words[at] or at in code):
            at = max(at, min(code.get(at, at), end - 1)) + 1
        yield first, at - 1


def _packed(sizes: Mapping[int, float], blocks: Iterator[tuple[int, int]]) -> list[tuple[int, int]]:
    """Blocks gathered into spans of about the target; a block that is larger is cut between its lines."""
    spans: list[tuple[int, int, float]] = []
    joinable = False
    for first, last in blocks:
        size = sizes[first] if first == last else sum(sizes[at] for at in range(first, last + 1))
        if size > TARGET_TOKENS:
            spans.extend(_cut_block(sizes, first, last))
            joinable = spans[-1][2] <= SMALL_TOKENS
        elif joinable and spans[-1][2] + size <= TARGET_TOKENS:
            spans[-1] = (spans[-1][0], last, spans[-1][2] + size)
        else:
            spans.append((first, last, size))
            joinable = True
    if len(spans) > 1 and spans[-1][2] < SMALL_TOKENS and spans[-2][2] + spans[-1][2] <= TARGET_TOKENS * 1.2:
        first, last, _ = spans.pop()
        spans[-1] = (spans[-1][0], last, 0.0)
    return [(first, last) for first, last, _ in spans]


def _cut_block(sizes: Mapping[int, float], first: int, last: int) -> Iterator[tuple[int, int, float]]:
    start, size = first, 0.0
    for at in range(first, last + 1):
        own = sizes[at]
        if size + own > TARGET_TOKENS:
            # Empty lines before a long one are left out: with them it would not stand alone, to be cut.
            if size:
                yield start, at - 1, size
            start, size = at, 0.0
        size += own
    yield start, last, size


def cut_line(line: str) -> Iterator[str]:
    """A long line in pieces of about the target: whole sentences where they fit, else words, else characters."""
    start, at, size = 0, 0, 0.0
    for end in _cuts(line):
        own = tokens_of(line[at:end])
        if size and size + own > TARGET_TOKENS:
            yield line[start:at].strip()
            start, size = at, 0.0
        size += own
        at = end
    if line[start:].strip():
        yield line[start:].strip()


def _cuts(line: str) -> Iterator[int]:
    """Ends of parts that are no longer than the target each."""
    at = 0
    for match in _CUT.finditer(line):
        yield from _within(line, at, match.end())
        at = match.end()
    yield from _within(line, at, len(line))


def _within(line: str, start: int, end: int) -> Iterator[int]:
    # A target's worth of text: words of six characters with a blank, or single characters of an unspaced script.
    step = TARGET_TOKENS * CHARS_PER_TOKEN if line[start : start + 400].isascii() else TARGET_TOKENS
    while end - start > step:
        blank = line.rfind(" ", start + step // 2, start + step)
        start = blank + 1 if blank > 0 else start + step
        yield start
    if end > start:
        yield end
