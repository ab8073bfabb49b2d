"""
`make types`: mypy --strict over the package and the tests.

The repository root is the package, which mypy only resolves under the package's own name: a link of that name is made in a
temporary folder for the time of the run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "recalld").symlink_to(ROOT)
        packages = ["protocol", "actors", "memory", "clients", "supervisor"]
        command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
        command += ["--explicit-package-bases", "--cache-dir", str(ROOT / ".mypy_cache")]
        for package in packages:
            command += ["-p", f"recalld.{package}"]
        return subprocess.run(command, cwd=folder, env={**os.environ, "MYPYPATH": folder}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
