"""
`make pythons`: the package on every supported interpreter of this machine other than the one that runs this.

Each gets an environment of its own from the lock, in ``.pythons/``, compiles and imports every module, and runs the tests
that start no processes and no model; the rest runs on the first interpreter.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SUPPORTED = ((3, 11), (3, 12), (3, 13), (3, 14))
PURE = "not process and not model and not slow and not agents"


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


def check(python: str, folder: Path) -> bool:
    """One interpreter; what fails is printed."""
    own = folder / "bin" / "python"
    pip = [str(own), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    commands = [
        [python, "-m", "venv", "--clear", str(folder)],
        [*pip, "--require-hashes", "-r", "requirements-dev.lock"],
        [*pip, "--no-deps", "--no-build-isolation", "-e", "."],
        [str(own), "-W", "error", "deploy/release/imports.py"],
        [str(own), "-m", "pytest", "-q", "-m", PURE, "-n", "2", "-p", "no:randomly", "--hypothesis-seed=0"],
    ]
    # The package's bytecode must not land beside the source of the other interpreters' runs, where tests look.
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return all(subprocess.run(command, cwd=ROOT, env=environ, check=False).returncode == 0 for command in commands)


def main() -> int:
    interpreters = found()
    here = sys.version_info[:2]
    failed = []
    for version in SUPPORTED:
        name = ".".join(map(str, version))
        if version == here:
            print(f"Python {name}: this one, on which everything runs", flush=True)
        elif version not in interpreters:
            print(f"Python {name}: not on this machine", flush=True)
        else:
            print(f"Python {name}: {interpreters[version]}", flush=True)
            if not check(interpreters[version], ROOT / ".pythons" / name):
                failed.append(name)
    print(f"failed on {', '.join(failed)}" if failed else "every interpreter of this machine passes")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
