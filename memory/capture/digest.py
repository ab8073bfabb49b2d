"""What a session's events come to: the facts that its page and its handoff are made of, bounded whatever its length."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from . import prompts
from .events import Event

FIRST, LAST = 8, 24
"""Of a long list the beginning says what was wanted and the end where it stands."""
MAX_FILES = 60
MAX_FAILURES = 12
MAX_DECISIONS = 12
MAX_MENTIONS = 64
LINE_CHARS = 240
STEP_CHARS = 160
ECHO_MS = 2000
MAX_STEPS = 4
"""What followed a failure."""
REQUEST_CHARS = 1500

FAILED_OUTPUT = re.compile(
    r"(?im)(?:\b[1-9]\d* (?:failed|failures?|errors?)\b|\bFAILED\b|\bBUILD FAILED\b|^Traceback \(most recent call last\)|"
    r"^error(?:\[\w+\])?:|\bcommand not found\b|\bfatal:)"
)
"""What a failing command prints when the host does not tell its exit code."""
TELLING_LINE = re.compile(
    r"(?i)\b(?:\w*error|\w*exception|failed|failure|fatal|panic\w*|cannot|denied|not found|undefined)\b"
)
ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\))")
"""Colours and titles for a terminal."""
DECISION = re.compile(
    r"(?i)(?:^|\b)(?:decision|decided|we decide|let'?s (?:use|go|keep|stick|not|switch)|going with"
    r"|we(?:'ll| will) (?:use|keep|go|not)|from now on|instead of|rather than|(?:should|must) (?:always|never)"
    r"|always use|never use|we (?:use|prefer|agreed)|settled on|the rule is|entschieden|decidimos|決定|결정|确定)"
    r"(?:\b|(?<=[^\x00-\x7f]))"
)
SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n+")
WIKILINK = re.compile(r"\[\[([^\[\]|#\n]{1,200})")
NOTE_PATH = re.compile(r"(?<![\w/.-])((?:[\w.-]+/)*[\w.-]+\.md)\b")


class Command(msgspec.Struct, kw_only=True):
    """One shell command, consecutive equal runs taken together."""

    line: str
    failed: bool
    exit_code: int | None = None
    telling: str = ""
    """The line of its output that says most."""
    runs: int = 1


class Failure(msgspec.Struct, kw_only=True):
    what: str
    telling: str
    followed: list[str]
    """What was done after it, in order, at most four steps."""
    solved: bool = False
    """The same command went well later."""


class Digest(msgspec.Struct, kw_only=True):
    """Everything a page or handoff says of a session."""

    requests: list[str]
    requests_left_out: int = 0
    """How many stand between the first and the last ones that are kept."""
    written: list[str]
    read: list[str]
    files_left_out: int = 0
    commands: list[Command]
    commands_left_out: int = 0
    failures: list[Failure]
    decisions: list[str]
    summaries: list[str]
    """Compaction summaries, the last two."""
    conclusion: str = ""
    """The agent's last word, where it is captured."""
    tools: list[tuple[str, int]]
    """Completed calls by tool, busiest first."""
    subagents: list[tuple[str, int]]
    mentions: list[str]
    """Notes and pages that were named: wikilink targets and paths of markdown files."""
    redacted: int = 0
    last_was_write: bool = False


class _Fold:
    """Collects; every list has a bound."""

    def __init__(self) -> None:
        self.first: list[str] = []
        self.last: list[str] = []
        self.requests = 0
        self.files: dict[str, bool] = {}
        self.files_left_out = 0
        self.first_commands: list[Command] = []
        self.last_commands: list[Command] = []
        self.commands = 0
        self.failures: list[Failure] = []
        self.decisions: dict[str, None] = {}
        self.summaries: list[str] = []
        self.conclusion = ""
        self.tools: Counter[str] = Counter()
        self.subagents: Counter[str] = Counter()
        self.mentions: dict[str, None] = {}
        self.redacted = 0
        self.last_was_write = False
        self.last_shell: Event | None = None

    def add(self, event: Event) -> None:
        self.redacted += sum(event.redacted.values())
        match event.kind:
            case "user-prompt" if not event.agent_id:
                self.request(event.text)
            case "post-tool-use":
                self.tool(event)
            case "post-compaction":
                if event.text:
                    self.summaries = [*self.summaries[-1:], event.text]
                    self.look_for_decisions(event.text)
            case "stop":
                self.conclude(event)
            case "subagent-start":
                self.subagents[event.agent_type or "agent"] += 1
            case _:
                pass

    def request(self, text: str) -> None:
        request = prompts.request_of(text)
        if not request:
            return
        self.requests += 1
        kept = shorten(request, REQUEST_CHARS)
        if len(self.first) < FIRST:
            self.first.append(kept)
        else:
            self.last = [*self.last[-(LAST - 1) :], kept]
        self.last_was_write = False
        self.look_for_decisions(request)
        self.mention(request)

    def conclude(self, event: Event) -> None:
        self.last_was_write = False
        if event.assistant and not event.agent_id:
            self.conclusion = event.assistant
            self.look_for_decisions(event.assistant)
            self.mention(event.assistant)

    def echo(self, event: Event) -> bool:
        """
        Whether an event only repeats the one before: hosts with a hook per tool call and one per shell command report
        each command twice, once with the call's id and once without.
        """
        last, self.last_shell = self.last_shell, event
        return (
            last is not None
            and last.command == event.command
            and abs(last.at_ms - event.at_ms) <= ECHO_MS
            and bool(last.call_id) != bool(event.call_id)
        )

    def tool(self, event: Event) -> None:
        if event.command and self.echo(event):
            return
        if event.tool:
            self.tools[event.tool] += 1
        if event.metadata_only:
            return
        for whole in event.paths if event.family == "file" or event.wrote else ():
            path = shorten(whole, LINE_CHARS)
            if path in self.files:
                self.files[path] = self.files[path] or event.wrote
            elif len(self.files) < MAX_FILES or (event.wrote and self.drop_a_read()):
                self.files[path] = event.wrote
            else:
                self.files_left_out += 1
            if path.endswith(".md"):
                self.remember_mention(path)
        self.last_was_write = event.wrote
        bad = failed(event)
        line = one_line(event.command) if event.family == "shell" else ""
        if line:
            self.command(event, line, bad)
        what = line or " ".join(part for part in (event.tool, *event.paths[:2]) if part)
        self.follow(what, line, event, bad)
        known = next((each for each in self.failures if not each.solved and each.what == what), None) if bad else None
        if known is not None:
            known.telling = telling_line(event) or known.telling
            known.followed = [*known.followed[: MAX_STEPS - 1], "it failed again"]
            return
        if bad and len(self.failures) >= MAX_FAILURES:
            # Solved ones make room first: what is still broken matters more.
            self.failures.remove(next((each for each in self.failures if each.solved), self.failures[0]))
        if bad:
            self.failures.append(Failure(what=what, telling=telling_line(event), followed=[]))

    def drop_a_read(self) -> bool:
        for path, wrote in self.files.items():
            if not wrote:
                del self.files[path]
                self.files_left_out += 1
                return True
        return False

    def command(self, event: Event, line: str, bad: bool) -> None:
        recent = (self.last_commands or self.first_commands)[-1:]
        if recent and recent[0].line == line and recent[0].failed == bad:
            recent[0].runs += 1
            return
        self.commands += 1
        made = Command(line=line, failed=bad, exit_code=event.exit_code, telling=telling_line(event) if bad else "")
        if len(self.first_commands) < FIRST:
            self.first_commands.append(made)
        else:
            self.last_commands = [*self.last_commands[-(LAST - 1) :], made]

    def follow(self, what: str, line: str, event: Event, bad: bool) -> None:
        for failure in self.failures:
            if failure.solved:
                continue
            same = bool(line) and failure.what == line
            if same and not bad:
                failure.solved = True
                failure.followed.append(f"{quoted(line)} went well")
            elif len(failure.followed) < MAX_STEPS and (event.wrote or line) and not same:
                step = f"changed {', '.join(event.paths[:3])}" if event.wrote and event.paths else f"ran {quoted(what)}"
                step = shorten(step, STEP_CHARS)
                if step not in failure.followed:
                    failure.followed.append(step)

    def look_for_decisions(self, text: str) -> None:
        for sentence in SENTENCE.split(text[:20_000]):
            found = " ".join(sentence.strip(" -*>#\t").split())
            if 12 <= len(found) <= 400 and not found.endswith("?") and DECISION.search(found):
                self.decisions.pop(found, None)
                self.decisions[found] = None
                if len(self.decisions) > MAX_DECISIONS:
                    del self.decisions[next(iter(self.decisions))]

    def mention(self, text: str) -> None:
        for match in (*WIKILINK.finditer(text), *NOTE_PATH.finditer(text)):
            self.remember_mention(match[1].strip())

    def remember_mention(self, target: str) -> None:
        if len(self.mentions) < MAX_MENTIONS:
            self.mentions[target] = None


def digest(events: Iterable[Event]) -> Digest:
    """The digest of a session's events, given in order. Memory is bounded: any number of events may come."""
    fold = _Fold()
    for event in events:
        fold.add(event)
    by_count = sorted(fold.tools.items(), key=lambda item: (-item[1], item[0]))
    return Digest(
        requests=fold.first + fold.last,
        requests_left_out=fold.requests - len(fold.first) - len(fold.last),
        written=[path for path, wrote in fold.files.items() if wrote],
        read=[path for path, wrote in fold.files.items() if not wrote],
        files_left_out=fold.files_left_out,
        commands=fold.first_commands + fold.last_commands,
        commands_left_out=fold.commands - len(fold.first_commands) - len(fold.last_commands),
        failures=fold.failures,
        decisions=list(fold.decisions),
        summaries=fold.summaries,
        conclusion=fold.conclusion,
        tools=by_count,
        subagents=sorted(fold.subagents.items(), key=lambda item: (-item[1], item[0])),
        mentions=list(fold.mentions),
        redacted=fold.redacted,
        last_was_write=fold.last_was_write,
    )


def failed(event: Event) -> bool:
    """Whether a tool call failed: as the host says, by exit code, or as a shell's output says where the host does not."""
    if event.outcome == "error" or (event.exit_code or 0) != 0:
        return True
    if event.family != "shell" or event.exit_code == 0:
        return False
    return bool(FAILED_OUTPUT.search(event.output_tail or event.output_head) or FAILED_OUTPUT.search(event.output_head))


def telling_line(event: Event) -> str:
    """The last line of output or error that names a failure; else the last one that is not blank."""
    text = ANSI.sub("", f"{event.text}\n{event.output_head}\n{event.output_tail}")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in reversed(lines):
        if TELLING_LINE.search(line):
            return shorten(line, LINE_CHARS)
    return shorten(lines[-1], LINE_CHARS) if lines else ""


def one_line(text: str) -> str:
    """``text`` on one line, at most LINE_CHARS."""
    return shorten(" ".join(text.split()), LINE_CHARS)


def shorten(text: str, limit: int) -> str:
    """``text`` cut to ``limit`` characters with a mark where it was cut."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "…"


def quoted(code: str) -> str:
    """``code`` as a markdown code span, whatever backticks it contains."""
    run = max((len(found) for found in re.findall(r"`+", code)), default=0)
    fence = "`" * (run + 1)
    pad = " " if code.startswith("`") or code.endswith("`") else ""
    return f"{fence}{pad}{code}{pad}{fence}"
