"""
What the disk says about a folder: markers above it, its git checkout, branch and commit. Reads small files; runs nothing.

Shared by the writer and the hook client, which runs under ``python -I -S``: imports ``os`` alone, and ``tomllib`` only when
there is a marker to read.
"""

from __future__ import annotations

import os

MARKER = ".recalld.toml"
MAX_MARKER_BYTES = 64 * 1024
MAX_REFS_BYTES = 1024 * 1024
"""Of packed-refs; a larger file is not looked through for the commit."""
MAX_DEPTH = 64


class Facts:
    """One look at a folder. Paths are absolute; '' where there is none."""

    __slots__ = ("branch", "cwd", "git_dir", "git_root", "head", "home", "main_root", "markers")

    def __init__(self, cwd: str, home: str) -> None:
        self.cwd = cwd
        self.home = home
        self.markers: tuple[str, ...] = ()
        """Marker files here and above that count, nearest first."""
        self.git_root = ""
        """Top of the checkout: of a worktree its own, of a submodule its own."""
        self.main_root = ""
        """Top of the main checkout: all worktrees of a repository share it."""
        self.git_dir = ""
        self.branch = ""
        self.head = ""


def look(cwd: str, home: str) -> Facts:
    """
    The facts about ``cwd``. Markers count up to ``home``, outside of it up to the checkout's top (without a checkout: only in
    ``cwd``), and only when they are ours or root's. Never raises on unreadable folders: what cannot be read is not there.
    """
    facts = Facts(cwd, home)
    if not cwd.startswith("/"):
        return facts
    folder = os.path.normpath(cwd)
    inside = folder == home or folder.startswith(home.rstrip("/") + "/")
    markers: list[str] = []
    outside: list[str] = []
    for _ in range(MAX_DEPTH):
        marker = f"{folder.rstrip('/')}/{MARKER}"
        if _ours(marker):
            (markers if inside or folder == os.path.normpath(cwd) or not facts.git_root else outside).append(marker)
        if not facts.git_root:
            _git(facts, folder)
            if facts.git_root and not inside:
                break
        if folder in (home, "/"):
            break
        folder = os.path.dirname(folder)
    if not inside and not facts.git_root:
        markers = [marker for marker in markers if os.path.dirname(marker) == os.path.normpath(cwd)]
    facts.markers = tuple(markers)
    return facts


def _ours(path: str) -> bool:
    try:
        info = os.stat(path)
    except (OSError, ValueError):
        return False
    return info.st_uid in (os.getuid(), 0)


def _git(facts: Facts, folder: str) -> None:
    dot = f"{folder.rstrip('/')}/.git"
    if os.path.isdir(dot):
        if not os.path.exists(dot + "/HEAD"):
            return
        facts.git_root = facts.main_root = folder
        facts.git_dir = dot
        return
    text = read_text(dot, 4096)
    if not text.startswith("gitdir:"):
        return
    git_dir = os.path.normpath(os.path.join(folder, text[7:].strip()))
    facts.git_root, facts.git_dir = folder, git_dir
    common = read_text(git_dir + "/commondir", 4096).strip()
    if not common:  # a submodule: a project of its own
        facts.main_root = folder
        return
    common = os.path.normpath(os.path.join(git_dir, common))
    # A worktree of a bare repository has no main checkout: the repository itself stands for it.
    facts.main_root = os.path.dirname(common) if os.path.basename(common) == ".git" else common


def read_head(facts: Facts) -> None:
    """Fill in branch and commit, where they can be read."""
    if not facts.git_dir:
        return
    head = read_text(facts.git_dir + "/HEAD", 4096).strip()
    if not head.startswith("ref: "):
        facts.head = head[:64]
        return
    ref = head[5:]
    facts.branch = ref.removeprefix("refs/heads/")
    common = read_text(facts.git_dir + "/commondir", 4096).strip()
    shared = os.path.normpath(os.path.join(facts.git_dir, common)) if common else facts.git_dir
    facts.head = read_text(f"{facts.git_dir}/{ref}", 128).strip() or read_text(f"{shared}/{ref}", 128).strip()
    if not facts.head:
        for line in read_text(shared + "/packed-refs", MAX_REFS_BYTES).splitlines():
            if line.endswith(" " + ref):
                facts.head = line.split(" ", 1)[0]


def read_text(path: str, limit: int) -> str:
    """A small file's text; '' when it cannot be read or has more than ``limit`` bytes. Waits for nothing."""
    try:
        # Not blocking: a named pipe in the file's place must not hold us up.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        raw = os.read(handle, limit + 1)
    except OSError:
        return ""
    finally:
        os.close(handle)
    return raw.decode("utf-8", "replace") if len(raw) <= limit else ""


def read_marker(path: str) -> object:
    """The parsed marker, or text that says why it cannot be parsed. Absent and empty files are an empty table."""
    try:
        if os.stat(path).st_size > MAX_MARKER_BYTES:
            return f"is larger than {MAX_MARKER_BYTES} bytes"
    except OSError:
        return {}
    text = read_text(path, MAX_MARKER_BYTES)
    if not text.strip():
        return {} if os.access(path, os.R_OK) else "cannot be read"
    import tomllib

    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return str(error)
