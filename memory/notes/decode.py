"""Bytes of a file to text, for every encoding that notes are found in; what is not text is said to be none."""

from __future__ import annotations

import codecs
import re

import msgspec

SAMPLE_BYTES = 65_536
"""Enough to tell text from other data."""
BINARY_CONTROLS = 0.02
"""Share of control characters above which bytes that are not UTF-8 are no text: random bytes have 0.1, Latin-1 has 0."""
VALID_BINARY_CONTROLS = 0.3
"""The same for bytes that are valid UTF-8 (a few NULs in a note are damage, many are another kind of file)."""

_CONTROLS = bytes((*range(9), *range(0x0E, 0x1B), *range(0x1C, 0x20), 0x7F))
_MULTIBYTE = re.compile(r"[\u0080-\ufffc\ufffe-\U0010ffff]")
_HIGH = re.compile(rb"[\xa8\xb8\xc0-\xff]")
_LETTERS = re.compile(rb"[A-Za-z\xa8\xb8\xc0-\xff]")
_CYRILLIC_SHARE = 0.5
"""No language written in Latin letters accents half of them; Cyrillic text in a one-byte encoding is all such bytes."""


class Decoded(msgspec.Struct, frozen=True):
    """Text with ``\\n`` line ends and without a byte order mark. ``binary``: there is no text to speak of."""

    text: str
    encoding: str = "utf-8"
    problem: str = ""
    binary: bool = False


def decode(raw: bytes) -> Decoded:
    """The text of ``raw``. Never raises; what could not be read is named in ``problem``."""
    encoding, text, problem = _by_mark(raw) or _by_content(raw)
    if text is None:
        return Decoded("", encoding, problem, binary=True)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    if "\0" in text:
        problem = problem or f"contains {text.count(chr(0))} NUL bytes"
        text = text.replace("\0", "\ufffd")
    return Decoded(text, encoding, problem)


def _by_mark(raw: bytes) -> tuple[str, str | None, str] | None:
    if raw.startswith(codecs.BOM_UTF8):
        return _with_losses(raw[3:], "utf-8")
    # UTF-32 first: its little-endian mark begins with that of UTF-16.
    for mark, encoding in (
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if raw.startswith(mark):
            return _with_losses(raw[len(mark) :], encoding)
    return None


def _by_content(raw: bytes) -> tuple[str, str | None, str]:
    sample = raw[:SAMPLE_BYTES]
    if b"\0" in sample and (encoding := _utf16_without_mark(sample)):
        return _with_losses(raw, encoding)
    controls = (len(sample) - len(sample.translate(None, _CONTROLS))) / (len(sample) or 1)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        pass
    else:
        if controls > VALID_BINARY_CONTROLS:
            return "binary", None, "not text: nothing of it is indexed"
        return "utf-8", text, ""
    if controls > BINARY_CONTROLS:
        return "binary", None, "not text: nothing of it is indexed"
    lossy = raw.decode(errors="replace")
    if len(_MULTIBYTE.findall(lossy)) > 3 * lossy.count("\ufffd"):
        return _with_losses(raw, "utf-8")
    encoding = "cp1252"
    if len(_HIGH.findall(sample)) > _CYRILLIC_SHARE * len(_LETTERS.findall(sample)):
        encoding = "cp1251"
    try:
        return encoding, raw.decode(encoding), ""
    except UnicodeDecodeError:
        return "latin-1", raw.decode("latin-1"), ""


def _utf16_without_mark(sample: bytes) -> str:
    """The byte order of UTF-16 text in a mostly Latin script, told by where its NULs are; '' when it is not that."""
    pairs = len(sample) // 2 or 1
    even, odd = sample[0::2].count(0) / pairs, sample[1::2].count(0) / pairs
    if odd > 0.3 and even < 0.1:
        return "utf-16-le"
    return "utf-16-be" if even > 0.3 and odd < 0.1 else ""


def _with_losses(raw: bytes, encoding: str) -> tuple[str, str, str]:
    try:
        return encoding, raw.decode(encoding), ""
    except UnicodeDecodeError as error:
        where = raw[: error.start].count(b"\n") + 1
        return encoding, raw.decode(encoding, "replace"), f"line {where}: bytes that are not {encoding} were replaced"
