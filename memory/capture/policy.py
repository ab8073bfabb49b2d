"""
What a folder's ``.recalld.toml`` lets us capture, and the decision for one event.

Imports nothing but built-in names: the hook client decides with it before anything leaves its process, and the writer
decides again. Matching is lexical: no symlink is followed, no variable expanded. A marker can only narrow what is
captured; nothing in it runs or widens anything.
"""

from __future__ import annotations

MARKER = ".recalld.toml"
MAX_MARKER_BYTES = 64 * 1024
MAX_PATTERNS = 128
MAX_PATTERN_CHARS = 1024
MAX_STEPS = 1_000_000
"""Character comparisons for one event; past it the policy counts as unreadable."""

KEEP, METADATA, DROP = "keep", "metadata", "drop"


class Policy:
    """
    A marker's content. ``error`` names what is wrong with it: then nothing of a file tool but its metadata is kept.

    ``root`` is the marker's folder ('' = there is none). Patterns are absolute, lexically normalised.
    """

    __slots__ = ("briefing", "briefing_chars", "capture", "error", "ignore", "project", "root")

    def __init__(
        self, root: str = "", *, project: str = "", capture: bool = True, ignore: tuple[str, ...] = (),
        briefing: bool = True, briefing_chars: int = -1, error: str = "",
    ) -> None:  # fmt: skip
        self.root = root
        self.project = project
        self.capture = capture
        self.ignore = ignore
        self.briefing = briefing
        self.briefing_chars = briefing_chars
        """-1 = as configured."""
        self.error = error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Policy) and all(getattr(self, f) == getattr(other, f) for f in self.__slots__)

    __hash__ = None  # type: ignore[assignment]


def read(raw: object, root: str, home: str) -> Policy:
    """
    The policy in a parsed marker that lies in ``root``. Never raises: what is wrong is in ``error``.

    Keys: ``project = "name"``, ``[capture] enabled = false``, ``ignore_paths = ["secrets/**"]``; ``[briefing] enabled``,
    ``max_chars``. Unknown keys are an error, since a misspelt exclusion would exclude nothing.
    """
    if isinstance(raw, str):
        return Policy(root, error=raw)  # why it could not be parsed
    if not isinstance(raw, dict):
        return Policy(root, error="is not a table")
    project, capture, briefing = raw.get("project", ""), raw.get("capture", {}), raw.get("briefing", {})
    for table, known in ((raw, ("project", "capture", "briefing")), (capture, ("enabled", "ignore_paths")),
                         (briefing, ("enabled", "max_chars"))):  # fmt: skip
        if not isinstance(table, dict):
            return Policy(root, error="[capture] and [briefing] are tables")
        for key in table:
            if key not in known:
                return Policy(root, error=f"unknown key '{key}'")
    if not valid_name(project) and project != "":
        return Policy(
            root, error="project must be 1 to 64 letters, digits, '.', '_' or '-', and start with a letter or digit"
        )
    enabled, shown, chars = capture.get("enabled", True), briefing.get("enabled", True), briefing.get("max_chars", -1)
    if not isinstance(enabled, bool) or not isinstance(shown, bool):
        return Policy(root, project=project, error="enabled is true or false")
    if isinstance(chars, bool) or not isinstance(chars, int) or not -1 <= chars <= 10_000:
        return Policy(root, project=project, capture=enabled, error="briefing.max_chars is a number from 0 to 10000")
    patterns = capture.get("ignore_paths", [])
    wrong = _wrong_patterns(patterns)
    if wrong:
        return Policy(root, project=project, capture=enabled, briefing=shown, briefing_chars=chars, error=wrong)
    ignore = tuple(normal(pattern, root, home) for pattern in patterns)
    return Policy(root, project=project, capture=enabled, ignore=ignore, briefing=shown, briefing_chars=chars)


def valid_name(name: object) -> bool:
    """Whether ``name`` can be a project's: it becomes a folder's name, so no separators, no leading dot or underscore."""
    return (
        isinstance(name, str)
        and 0 < len(name) <= 64
        and name[0].isalnum()
        and all(char.isalnum() or char in "._-" for char in name)
    )


def _wrong_patterns(patterns: object) -> str:
    if not isinstance(patterns, list) or len(patterns) > MAX_PATTERNS:
        return f"capture.ignore_paths is a list of at most {MAX_PATTERNS} patterns"
    for pattern in patterns:
        if not isinstance(pattern, str) or not pattern or len(pattern) > MAX_PATTERN_CHARS:
            return f"capture.ignore_paths: a pattern is text of at most {MAX_PATTERN_CHARS} characters"
        if any(char in pattern for char in "[]{}!\\\0\n") or ".." in pattern.split("/"):
            return f"capture.ignore_paths: {pattern!r}: only *, ** and ? are special, and '..' is not allowed"
    return ""


def normal(path: str, base: str, home: str) -> str:
    """``path`` absolute and without '.' and '..', relative to ``base``, ``~`` expanded; lexically."""
    if path == "~" or path.startswith("~/"):
        path = home + path[1:]
    if not path.startswith("/"):
        path = f"{base}/{path}"
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


def decide(
    policy: Policy,
    mode: str,
    family: str,
    paths: list[str],
    words: list[str],
    cwd: str,
    home: str,
    extracted: bool = True,
) -> tuple[str, str]:
    """
    (``keep`` | ``metadata`` | ``drop``, why) for an event below ``policy``.

    ``mode`` is the configuration's ``capture.mode``; ``family``, ``paths`` and ``words`` (of a shell command) come from
    ``tools``; '' is the family of events that are no tool calls. ``extracted`` is false when a file tool's paths could not
    be told. Search tools are dropped below a policy with exclusions, because their output may show any file.
    """
    if mode == "off":
        return DROP, "capture is switched off in config.toml"
    if mode == "marked" and not policy.root:
        return DROP, f"capture is for marked folders only, and no {MARKER} is here or above"
    if not policy.capture:
        return DROP, f"{policy.root}/{MARKER} switches capture off"
    if policy.error:
        if family in ("file", "search", "shell"):
            return METADATA, f"{policy.root}/{MARKER} cannot be used: {policy.error}"
        return KEEP, f"{policy.root}/{MARKER} cannot be used, but this is no file tool"
    if not policy.ignore:
        return KEEP, "nothing excludes it"
    steps = [MAX_STEPS]
    try:
        if family == "file":
            hit = _hit(policy.ignore, [normal(path, cwd, home) for path in paths], steps)
            if hit:
                return DROP, f"{hit[1]} matches {hit[0]}"
            return (
                (KEEP, "no path of it is excluded") if paths and extracted else (METADATA, "its paths cannot be told")
            )
        if family == "search":
            return DROP, "a search may show excluded files"
        if family == "shell":
            hit = _hit(policy.ignore, [normal(word, cwd, home) for word in words if _like_path(word)], steps)
            if hit:
                return DROP, f"{hit[1]} matches {hit[0]}"
    except OverflowError:
        return METADATA, "too many patterns and paths to compare"
    return KEEP, "no path of it is excluded"


def _like_path(word: str) -> bool:
    return bool(word) and word[0] != "-" and "://" not in word and len(word) <= 4096


def _hit(patterns: tuple[str, ...], paths: list[str], steps: list[int]) -> tuple[str, str] | None:
    for path in paths:
        for pattern in patterns:
            if matches(pattern, path, steps) or ("*" in path and _reaches(path, pattern)):
                return pattern, path
    return None


def _reaches(glob: str, pattern: str) -> bool:
    """Whether a shell argument with a glob could name something below ``pattern``: their fixed beginnings agree."""
    fixed, other = glob.split("*")[0].split("?")[0], pattern.split("*")[0].split("?")[0]
    return fixed.startswith(other) or other.startswith(fixed)


def matches(pattern: str, path: str, steps: list[int] | None = None) -> bool:
    """
    Whether ``path``, or a folder above it, matches: ``*`` and ``?`` within one part, ``**`` across parts.

    Raises OverflowError when ``steps[0]`` comparisons are spent.
    """
    budget = steps if steps is not None else [MAX_STEPS]
    return _parts_match(pattern.split("/"), path.split("/"), budget)


def _parts_match(pattern: list[str], path: list[str], steps: list[int]) -> bool:
    # Rows of the usual table: which prefixes of the pattern have matched the parts so far.
    reached = {0}
    for part in path:
        while True:  # "**" may match nothing
            more = {at + 1 for at in reached if at < len(pattern) and pattern[at] == "**"} - reached
            if not more:
                break
            reached |= more
        if len(pattern) in reached:
            return True
        following: set[int] = set()
        for at in reached:
            if at < len(pattern):
                if pattern[at] == "**":
                    following.add(at)
                elif _one(pattern[at], part, steps):
                    following.add(at + 1)
        reached = following
        if not reached:
            return False
    return len(pattern) in reached or (pattern[-1] == "**" and len(pattern) - 1 in reached)


def _one(pattern: str, text: str, steps: list[int]) -> bool:
    """Wildcard match of one path part: the classic scan with one point to fall back to."""
    at = seen = 0
    star, mark = -1, 0
    while at < len(text):
        steps[0] -= 1
        if steps[0] < 0:
            raise OverflowError
        if seen < len(pattern) and pattern[seen] in ("?", text[at]) and pattern[seen] != "*":
            at, seen = at + 1, seen + 1
        elif seen < len(pattern) and pattern[seen] == "*":
            star, mark = seen, at
            seen += 1
        elif star >= 0:
            seen, mark = star + 1, mark + 1
            at = mark
        else:
            return False
    return all(char == "*" for char in pattern[seen:])
