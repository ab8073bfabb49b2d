"""
The page of a session: what was asked, done, broken and decided, for a person and for the index.

Everything quoted in it is what somebody typed or a tool printed: it stands in quotes and code spans, never as structure.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import yaml

try:
    from yaml import CSafeDumper as _Dumper
except ImportError:  # PyYAML built without libyaml: slower, otherwise the same for ASCII
    from yaml import SafeDumper as _Dumper  # type: ignore[assignment]

from .digest import Digest, quoted, shorten
from .sessions import Session

SLUG_CHARS = 48
PROMPT_CHARS = 600
SUMMARY_CHARS = 2000
CONCLUSION_CHARS = 1200
CONTROLS = dict.fromkeys((*range(9), *range(11, 32), 127))
"""Control characters but tab and newline: no markdown, and a terminal would obey them."""
MAX_PAGE_CHARS = 72_000
"""No list in a page is open-ended; this is what all bounds together come to, and it is tested."""


def path_of(session: Session) -> str:
    """
    Where a session's page stands below its project: ``sessions/<date>-<slug>-<id>.md``.

    ``id`` is the end of the session's id: ids that begin with a time differ there.
    """
    letters = re.sub(r"[^0-9A-Za-z]", "", session.id)[-8:].lower() or "session"
    return f"sessions/{date_of(session.started_ms)}-{slug_of(session.title)}-{letters}.md"


def slug_of(title: str) -> str:
    """Words of ``title`` in lower case joined by '-', any script, at most SLUG_CHARS; 'session' when there are none."""
    words = re.findall(r"[^\W_]+", unicodedata.normalize("NFC", title).lower())
    slug = ""
    for word in words:
        if slug and len(slug) + 1 + len(word) > SLUG_CHARS:
            break
        slug = f"{slug}-{word}" if slug else word[:SLUG_CHARS]
    return slug or "session"


def render(session: Session, digest: Digest, links: Sequence[str] = ()) -> str:
    """
    The markdown of a session's page. Depends on its arguments alone: rendering again gives the same bytes.

    ``links``: wikilink targets of notes and pages that exist and were mentioned.
    """
    title = session.title or f"Session {session.id[:8]}"
    sections = [
        f"# {_escape(title)}",
        _escape(summary_of(session, digest)),
        _prompts(digest),
        _outcome(digest),
        _decisions(digest),
        _failures(digest),
        _files(digest),
        _commands(digest),
        _summaries(digest),
        _related(links),
        _footer(session, digest),
    ]
    body = "\n\n".join(section for section in sections if section)
    return f"{_frontmatter(session, digest, title)}\n{body.translate(CONTROLS)}\n"


def summary_of(session: Session, digest: Digest) -> str:
    """One line: how much was done with what, how it went, how long it took."""
    calls = sum(count for _, count in digest.tools)
    parts = [_plural(session.prompts, "prompt")]
    if calls:
        names = [name for name, _ in digest.tools[:3]]
        more = len(digest.tools) - len(names)
        across = _and(names) if not more else f"{', '.join(names)} and {more} more"
        parts.append(f"{_plural(calls, 'tool call')} across {across}")
    if digest.written:
        parts.append(f"{_plural(len(digest.written), 'file')} changed")
    if digest.failures:
        open_ones = sum(not failure.solved for failure in digest.failures)
        parts.append(
            f"{_plural(len(digest.failures), 'failure')}" + (f" ({open_ones} open)" if open_ones else " (solved)")
        )
    took = duration(session.last_ms - session.started_ms)
    return ", ".join(parts) + (f", over {took}" if took else "") + "."


def duration(ms: int) -> str:
    """``ms`` for a person: '18m', '2h 5m'; '' below a second."""
    seconds = ms // 1000
    if seconds < 1:
        return ""
    if seconds < 60:
        return f"{seconds}s"
    minutes = seconds // 60
    return f"{minutes}m" if minutes < 60 else f"{minutes // 60}h {minutes % 60}m".removesuffix(" 0m")


def date_of(ms: int) -> str:
    """The UTC date of a time, YYYY-MM-DD."""
    return _at(ms).strftime("%Y-%m-%d")


def instant_of(ms: int) -> str:
    """A time as ISO 8601 in UTC, to the second."""
    return _at(ms).strftime("%Y-%m-%dT%H:%M:%SZ")


def _at(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def frontmatter(fields: dict[str, Any]) -> str:
    """YAML frontmatter with its fences; empty values are left out."""
    kept = {key: value for key, value in fields.items() if value not in ("", None, [], {}, ())}
    if kept and all(isinstance(value, str) and value.isascii() and key.isascii() for key, value in kept.items()):
        # libyaml writes these as the other one does, eight times as fast; beyond ASCII it would escape emoji.
        return f"---\n{yaml.dump(kept, Dumper=_Dumper, sort_keys=False, width=10_000, default_flow_style=False)}---\n"
    lines = [
        yaml.safe_dump({key: value}, allow_unicode=True, width=10_000, default_flow_style=False)
        if not isinstance(value, list | tuple)
        else f"{key}: {yaml.safe_dump(list(value), allow_unicode=True, width=10_000, default_flow_style=True)}"
        for key, value in kept.items()
    ]
    return f"---\n{''.join(lines)}---\n"


def _frontmatter(session: Session, digest: Digest, title: str) -> str:
    return frontmatter(
        {
            "title": title,
            "kind": "session",
            "date": date_of(session.started_ms),
            "summary": summary_of(session, digest),
            "session_id": session.id,
            "agent": session.host,
            "project": session.project,
            "branch": session.branch,
            "commit": session.head,
            "started": instant_of(session.started_ms),
            "ended": instant_of(session.last_ms),
        }
    )


def _prompts(digest: Digest) -> str:
    lines = ["## Prompts", ""]
    gap = len(digest.requests) - 24 if digest.requests_left_out else -1
    for number, request in enumerate(digest.requests):
        if number == gap:
            lines += [f"*… {digest.requests_left_out} more …*", ""]
        lines += [_quote(shorten(request, PROMPT_CHARS)), ""]
    return "\n".join(lines).rstrip() if digest.requests else ""


def _outcome(digest: Digest) -> str:
    return f"## Outcome\n\n{_quote(shorten(digest.conclusion, CONCLUSION_CHARS))}" if digest.conclusion else ""


def _decisions(digest: Digest) -> str:
    return _list("## Decisions", [_escape(text) for text in digest.decisions])


def _failures(digest: Digest) -> str:
    items = []
    for failure in digest.failures:
        telling = f": {quoted(failure.telling)}" if failure.telling else ""
        state = "" if failure.solved else " **(not seen to work afterwards)**"
        items.append(f"{quoted(failure.what or 'a tool call')} failed{telling}{state}")
        items += [f"  - then {step}" for step in failure.followed]
    return _list("## Failures", items)


def _files(digest: Digest) -> str:
    items = [f"{quoted(path)} changed" for path in digest.written] + [quoted(path) for path in digest.read]
    if digest.files_left_out:
        items.append(f"… and {digest.files_left_out} more")
    return _list("## Files", items)


def _commands(digest: Digest) -> str:
    items = []
    gap = len(digest.commands) - 24 if digest.commands_left_out else -1
    for number, command in enumerate(digest.commands):
        if number == gap:
            items.append(f"… {digest.commands_left_out} more …")
        code = "" if command.exit_code in (None, 0) else f" (exit {command.exit_code})"
        times = f" ×{command.runs}" if command.runs > 1 else ""
        items.append(f"{quoted(command.line)}{times}: {'failed' if command.failed else 'ok'}{code}")
    return _list("## Commands", items)


def _summaries(digest: Digest) -> str:
    if not digest.summaries:
        return ""
    return "## Summary by the agent\n\n" + "\n\n".join(
        _quote(shorten(text, SUMMARY_CHARS)) for text in digest.summaries
    )


def _related(links: Sequence[str]) -> str:
    return _list("## Related", [f"[[{link}]]" for link in links])


def _footer(session: Session, digest: Digest) -> str:
    facts = [
        f"{session.host} session {quoted(session.id)}",
        f"{instant_of(session.started_ms)} to {instant_of(session.last_ms)}",
    ]
    if digest.subagents:
        facts.append(
            f"subagents: {', '.join(f'{name} ×{count}' if count > 1 else name for name, count in digest.subagents)}"
        )
    if digest.redacted:
        facts.append(f"{_plural(digest.redacted, 'secret')} removed")
    return f"*{'; '.join(facts)}.*"


def _list(heading: str, items: Sequence[str]) -> str:
    lines = [item if item.startswith("  - ") else f"- {item}" for item in items]
    return "\n".join([heading, "", *lines]) if items else ""


def _quote(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines())


def _escape(text: str) -> str:
    """Text on one line that markdown does not take for structure."""
    return re.sub(r"^([#>*+=-]|\d+[.)])", r"\\\1", " ".join(text.split()).replace("<", "&lt;"))


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _and(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""
