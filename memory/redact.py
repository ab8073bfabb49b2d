"""
Secrets out of text: every kind of credential becomes ``[redacted:kind]`` before anything is cut or rests on a disk.

Pure; the hook client imports it under ``python -I -S``. What secrets look like is in ``secret_kinds``; patterns are
compiled when a text first calls for them, so that looking at a clean text costs a few substring searches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from . import rules as engine
from . import secret_kinds as kinds

MARKER = b"[redacted:"
MARKER_MAX = 32
"""Longer than any marker."""
MIN_BLOB = 256
"""A base64 run of this length is a file, not a key."""
MIN_WORD = 60
"""The shortest line of wrapped base64."""


class BadPattern(ValueError):
    """Raised when a pattern of the user's is not a regular expression; the text names the pattern and the place."""


def redact(text: str, extra: Sequence[re.Pattern[str]] = (), allow: Sequence[str] = ()) -> tuple[str, dict[str, int]]:
    """
    ``text`` with secrets replaced, and how many of each kind. Idempotent.

    ``extra`` are the user's own patterns (``compile_extra``), kind ``custom``; ``allow`` are exact strings that stay. What
    stands between ``<private>`` and ``</private>`` goes, also when one of the two is missing.
    """
    rules = _suspects(text)
    if not rules and not extra:
        return text, {}
    counts: dict[str, int] = {}
    # What one rule leaves may be what another looks for, so go on until nothing changes.
    for _ in range(8):
        before = text
        for pattern in extra:
            text = engine.apply(text, "custom", pattern.finditer(text), engine.whole, allow, counts)
        for rule in rules:
            text = rule(text, allow, counts)
        if text == before:
            break
        rules = _suspects(text)
    engine.forget()
    return text, counts


def is_clean(text: str) -> bool:
    """
    Whether neither ``redact`` without patterns of the user's nor ``drop_blobs`` would change ``text``, nor any whole lines
    of it. False for some texts that they would not change either.
    """
    return not _has_run(text, _BLOBS, _BLOB_RUN) and not _suspects(text)


def compile_extra(patterns: Sequence[str]) -> tuple[re.Pattern[str], ...]:
    """The user's patterns, compiled. Raises BadPattern naming the first that is wrong or matches the empty text."""
    compiled = []
    for number, pattern in enumerate(patterns, 1):
        try:
            one = re.compile(pattern)
        except re.error as error:
            where = "" if error.pos is None else f" at character {error.pos + 1}"
            raise BadPattern(f"redaction pattern {number} ({pattern!r}) is not valid: {error.msg}{where}") from None
        if one.search(""):
            raise BadPattern(
                f"redaction pattern {number} ({pattern!r}) matches the empty text and would remove everything"
            )
        compiled.append(one)
    return tuple(compiled)


def drop_blobs(text: str) -> tuple[str, int]:
    """``text`` with base64 files (images in tool output) replaced by ``[blob: N chars]``, and how many there were."""
    if len(text) < MIN_BLOB or not _has_run(text, _BLOBS, _BLOB_RUN):
        return text, 0
    count = 0

    def name(match: re.Match[str]) -> str:
        nonlocal count
        run = match.group()
        if len(set(run[:512])) < 12:  # a ruler of zeros is not a file
            return run
        count += 1
        return f"[blob: {len(run)} chars]"

    return engine.compiled(_BLOB).sub(name, text), count


_BLOB = r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{256,}|(?:[A-Za-z0-9+/]{60,76}(?:\r?\n|\\n)){4,}[A-Za-z0-9+/]*)={0,2}"


# --- blocks: state machines over their delimiters ------------------------------------------------------------------------


def _private_tags(text: str, allow: Sequence[str], counts: dict[str, int]) -> str:
    spans: list[tuple[int, int]] = []
    opened = -1
    for tag in engine.compiled(r"(?i)<(/?)private>").finditer(text):
        if not tag[1]:
            opened = tag.start() if opened < 0 else opened
        elif opened >= 0 or not spans:
            spans.append((max(opened, 0), tag.end()))  # without an opening tag the text was cut: all before it goes
            opened = -1
    if opened >= 0:
        spans.append((opened, len(text)))
    return engine.replace_spans(text, spans, "private", counts)


def _pem(text: str, allow: Sequence[str], counts: dict[str, int]) -> str:
    spans: list[tuple[int, int]] = []
    opened: re.Match[str] | None = None
    done = 0
    for line in engine.compiled(r"-----(BEGIN|END) [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----").finditer(text):
        if line[1] == "BEGIN":
            if opened:
                spans.append((opened.start(), _key_lines(text, opened.end(), line.start())))
            opened = line
        else:
            spans.append((opened.start() if opened else _key_lines_before(text, line.start(), done), line.end()))
            done, opened = line.end(), None
    if opened:
        spans.append((opened.start(), _key_lines(text, opened.end(), len(text))))
    return engine.replace_spans(text, spans, "pem", counts)


def _key_lines(text: str, at: int, limit: int) -> int:
    """Where the key that begins at ``at`` ends when its last line was cut off: after the last base64 line, or header."""
    line = engine.compiled(r"(?:\s|\\[nr])*(?:[A-Za-z-]{4,20}: [^\n\\]{1,200}|\[blob: \d+ chars\]|[A-Za-z0-9+/=]+)")
    while True:
        found = line.match(text, at, limit)
        if not found:
            return at
        size = len(found.group().strip())
        if size < 16 and found.end() < limit and text[found.end() : found.end() + 1] not in "\r\n\\":
            return at
        at = found.end()


def _key_lines_before(text: str, at: int, limit: int) -> int:
    """Where a key begins whose first line was cut off, when its last line begins at ``at``."""
    base64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
    first = True
    while at > limit:
        run = at
        while run > limit and text[run - 1] in " \t\r\n\\":
            run -= 1
        start = run
        while start > limit and text[start - 1] in base64:
            start -= 1
        if start == run or (run - start < 16 and not first and start > limit):
            return at
        at, first = start, False
    return at


# --- the look at a text that decides which rules run -----------------------------------------------------------------------

# The three characters before a "_" or "-" of a maker's token, where at least BEHIND of a token's characters follow it.
_ENDS: dict[str, str] = {
    "ghp_": "github", "gho_": "github", "ghu_": "github", "ghs_": "github", "ghr_": "github", "pat_": "github provider",
    "npm_": "npm", "org_": "huggingface", "gsk_": "provider", "_v1_": "provider", "pca_": "provider", "ppa_": "provider",
    "pss_": "provider", "api_": "provider", "ntn_": "provider", "ret_": "provider", "igd_": "provider", "tkn_": "provider",
    "uth_": "provider", "sbp_": "provider", "ems_": "provider", "oat_": "provider", "_pw_": "provider",
    "pat-": "gitlab", "oas-": "gitlab", "ldt-": "gitlab", "lrt-": "gitlab", "cbt-": "gitlab", "ptt-": "gitlab",
    "lft-": "gitlab", "imt-": "gitlab", "ent-": "gitlab", "oat-": "gitlab", "fct-": "gitlab", "ypi-": "pypi",
    "pit-": "gohighlevel", "oxa-": "slack", "oxb-": "slack", "oxe-": "slack", "oxo-": "slack", "oxp-": "slack",
    "oxr-": "slack", "oxs-": "slack", "app-": "slack", "spx-": "google", "ess-": "openai", "xai-": "provider",
    "plx-": "provider", "key-": "provider", "mak-": "provider", "rak-": "provider",
}  # fmt: skip
_SHORT_ENDS = {"hf_": "huggingface", "r8_": "provider", "sk-": "openai"}
_LONG_ENDS = {"ive_": "k_live_", "est_": "k_test_"}
"""Of Stripe's: three characters would be those of half of all test names."""
_CAPITALS = (("AIza", "google"), ("EAA", "meta"), ("ATATT", "provider"), ("AKIA", "aws"), ("ASIA", "aws"), ("ABIA", "aws"),
             ("ACCA", "aws"))  # fmt: skip

# Looks that one quick search answers: a pattern that begins with one character is looked for at the speed of that
# character's frequency, while each further substring search would read the whole text once more.
_P = r"p(?:ass(?!ed)|wd|rivate)"
"""pass, pwd, private. "41 passed" is what most test runs print, and no rule's match can begin there."""
_C = r"c(?:ret|redential|onnection|ookie)"
_K = r"k(?:ey|en|s[./])"
"""key, token, hooks."""
_B = r"b(?:earer|asic)"
_KEY_FILES = r"\.(?:ssh|aws|kube|gnupg|azure|config)[/\\]"
_KEY_NAMES = r"_(?:rsa|dsa|ecdsa|ed25519)"
_DOTTED = r"\.(?:atl|(?<=(?:sg|v[sbr]|dp|29)\.))"
_UPPER = r"A(?:A|Iza|TATT|KIA|SIA|BIA|CCA)"
_BOT = r":(?<=[0-9]{8}:)[a-z0-9_-]{32}"
BEHIND = 8
"""Characters that every token has behind the mark of ``_ENDS``; Stripe's have no more."""
_MARKED = r"(?s)%s(?=[a-z0-9_.-]{" + str(BEHIND) + r"})(?<=(....))"

_RUN_CHARS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-=~+%"
_TOKEN_RUN = b"x" * 15
"""What every maker's token has in it but those that may hold a slash; the shortest is ``xoxb-`` and ten characters."""
_RUNS = bytes(120 if code in _RUN_CHARS else 32 for code in range(256))
_BASE64 = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_BLOB_RUN = b"x" * MIN_WORD
_BLOBS = bytes(120 if code in _BASE64 else 32 for code in range(256))


def _has_run(text: str, table: bytes, run: bytes) -> bool:
    """Whether as many characters as ``run`` has, all of them of ``table``, follow each other in ``text``."""
    return len(text) >= len(run) and run in text.encode("utf-8", "surrogatepass").translate(table)


class _Looks:
    """The searches of ``_suspects``, compiled when the first text comes."""

    def __init__(self) -> None:
        self.p, self.c, self.k, self.b, self.upper, self.dotted, self.bot, self.key_files, self.key_names = (
            re.compile(source).search for source in (_P, _C, _K, _B, _UPPER, _DOTTED, _BOT, _KEY_FILES, _KEY_NAMES)
        )
        self.marks = {mark: re.compile(_MARKED % mark).findall for mark in "_-"}


_looks: _Looks | None = None


def _makers(text: str, low: str, looks: _Looks) -> set[str]:
    """Whose tokens may be in a text that has a run of a token's length."""
    makers: set[str] = set()
    for mark, marked in looks.marks.items():
        if mark not in low:
            continue
        for end in set(marked("   " + low)):
            if end in _ENDS:
                makers.update(_ENDS[end].split())
            elif end[1:] in _SHORT_ENDS:
                makers.add(_SHORT_ENDS[end[1:]])
            elif end in _LONG_ENDS and _LONG_ENDS[end] in low:
                makers.add("stripe")
    if looks.upper(text):
        makers.update(name for literal, name in _CAPITALS if literal in text)
    if "J" in text and "eyJ" in text:
        makers.add("jwt")
    if "//" in text and "1//" in text:
        makers.add("google")
    if "dapi" in text:
        makers.add("provider")
    if looks.dotted(low):
        makers.update(("sendgrid", "google", "provider"))
    if "~" in low and ("7q~" in low or "8q~" in low):
        makers.add("entra")
    if ":" in low and looks.bot(low):
        makers.add("telegram")
    return makers


def _suspects(text: str) -> list[engine.Rule]:
    """The rules that could find something, most specific first. This is what a clean text costs."""
    global _looks
    looks = _looks = _looks or _Looks()
    low = text.lower()
    makers = _makers(text, low, looks) if _has_run(text, _RUNS, _TOKEN_RUN) else set()
    if "_" in low:
        if "hsec_" in low:
            makers.add("stripe")
        if "sntr" in low:
            makers.add("provider")
    paths = (("/" in low or "\\" in low) and looks.key_files(low)) or ("id_" in low and looks.key_names(low))
    p, c, k = looks.p(low), looks.c(low), looks.k(low)
    if k and "hooks" in low:
        makers.add("webhook")
    if "=" in low and "sig=" in low:
        makers.add("azure")
    rules: list[engine.Rule] = []
    if p and "private" in low:
        rules += (_private_tags, _pem)
    cores: list[str] = []
    if p or c or k:
        named = low.replace("passed", "\n") if "passed" in low else low
        cores = [core for core in kinds.CORES if core in named]
        if "accountkey" in low or "accesskey" in low or "dsecret" in low:
            makers.add("azure")
    if makers:
        rules += [rule for name, rule in kinds.MAKER_RULES.items() if name in makers]
    if "@" in low and "://" in low:
        rules += (kinds.DB_URL, kinds.URL)
    if "authorization" in low:
        rules.append(kinds.HEADERS)
    if looks.b(low):
        if "bearer" in low:
            rules.append(kinds.BEARER)
        if "basic" in low:
            rules.append(kinds.BASIC)
    if c and "cookie" in low:
        rules.append(kinds.COOKIE)
    if cores:
        rules += (kinds.ENV_KEY, kinds.ASSIGNMENT, kinds.FLAGS, kinds.NETRC, kinds.TOLD, kinds.NEAR)
    if "-" in low and (" -" in low or "\n-" in low or "\t-" in low):
        if (":" in low or "%" in low) and ("curl" in low or "http" in low or "wget" in low or "smbclient" in low):
            rules.append(kinds.USERS)
        if " -p" in low or " -a" in low:
            rules.append(kinds.SHORT_FLAGS)
    if paths:
        rules.append(kinds.KEY_PATHS)
    return rules
