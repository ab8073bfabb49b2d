"""
`make pythons`: the package on every supported interpreter of this machine other than the one that runs this.

Each gets an environment of its own from the lock, in ``.pythons/``, imports every module, runs the tests of the pure rooms,
and the demo: a real daemon with the real model. The rest runs on the first interpreter.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SUPPORTED = ((3, 11), (3, 12), (3, 13), (3, 14))
EDITABLE = threading.Lock()
SHOWN = 4000
"""Characters of a failed step's output."""


def found() -> dict[tuple[int, int], str]:
    """Interpreters of the supported versions, by PATH and by where pyenv and uv keep theirs."""
    home = Path.home()
    kept = [Path(os.environ.get("PYENV_ROOT") or home / ".pyenv") / "versions", home / ".local/share/uv/python"]
    interpreters: dict[tuple[int, int], str] = {}
    for version in SUPPORTED:
        name = f"python{version[0]}.{version[1]}"
        candidates = [shutil.which(name), *(str(path) for folder in kept for path in folder.glob(f"*/bin/{name}"))]
        for candidate in candidates:
            if candidate and _version(candidate) == version:
                interpreters[version] = candidate
                break
    return interpreters


def _version(python: str) -> tuple[int, int] | None:
    """What the interpreter says of itself: a shim of pyenv has the name and may still refuse. None without venv, too."""
    asked = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
    try:
        told = subprocess.run([python, "-c", asked], capture_output=True, text=True, timeout=30, check=True).stdout
        major, minor = told.split()
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return int(major), int(minor)


def pure() -> list[str]:
    """Test files that touch nothing but the domain and the protocol, which start no processes and need no other room."""
    files = []
    stands = {path.stem for path in (ROOT / "tests").glob("*.py")}
    for path in sorted((ROOT / "tests").glob("test_*.py")):
        rooms = set(
            re.findall(r"^(?:from|import) (recalld\.\w+|[.\w]+)", path.read_text(encoding="utf-8"), re.MULTILINE)
        )
        ours = {room for room in rooms if room.startswith("recalld") or room.lstrip(".") in stands}
        if ours and ours <= {"recalld.memory", "recalld.protocol"}:
            files.append(str(path.relative_to(ROOT)))
    return files


def check(python: str, folder: Path) -> str:
    """One interpreter; the words of the step that failed, "" when all is well."""
    own = str(folder / "bin" / "python")
    pip = [own, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    steps = [
        [python, "-m", "venv", "--clear", str(folder)],
        [*pip, "--require-hashes", "-r", "requirements-dev.lock"],
        [*pip, "--no-deps", "--no-build-isolation", "-e", "."],
        [own, "-W", "error", "deploy/release/imports.py"],
        [own, "-m", "pytest", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "--hypothesis-seed=0", *pure()],
        [own, "-P", "deploy/demo/run.py"],
    ]
    for step in steps:
        # An editable install writes beside the source, which all interpreters share.
        with EDITABLE if "-e" in step else contextlib.nullcontext():
            done = subprocess.run(
                step, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
            )
        if done.returncode:
            return f"`{' '.join(step[:4])}` ended with {done.returncode}\n{done.stdout[-SHOWN:]}"
    return ""


def main() -> int:
    interpreters = found()
    here = sys.version_info[:2]
    others = {version: python for version, python in interpreters.items() if version != here}
    with ThreadPoolExecutor(max_workers=2) as pool:
        folders = {version: ROOT / ".pythons" / ".".join(map(str, version)) for version in others}
        results = dict(zip(others, pool.map(check, others.values(), folders.values()), strict=True))
    for version in SUPPORTED:
        name = "Python " + ".".join(map(str, version))
        if version == here:
            print(f"{name}: this one, on which everything runs")
        elif version not in results:
            print(f"{name}: not on this machine")
        else:
            print(f"{name}: {results[version] or 'imports, pure tests and demo pass'} ({others[version]})")
    return 1 if any(results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
