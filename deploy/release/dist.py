"""
`make dist`: sdist and wheel, the same bytes each time from the same commit.

Both are built from a copy of the tracked files, so that neither leftovers of earlier builds nor the modes and times of this
checkout get in. Times in the archives are those of the commit, or ``SOURCE_DATE_EPOCH``.
"""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
EARLIEST = 315532800
"""1980-01-01: zip archives, and so wheels, know no earlier time."""


def tracked(root: Path) -> list[Path]:
    """Files of the project, relative to ``root``. Without git (an unpacked sdist) whatever is no leftover."""
    if (root / ".git").exists():
        told = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, check=True).stdout
        return [Path(os.fsdecode(name)) for name in told.split(b"\0") if name and (root / os.fsdecode(name)).is_file()]
    found = (path.relative_to(root) for path in root.rglob("*") if path.is_file())
    leftovers = {"build", "dist", "__pycache__", ".venv"}
    return [path for path in found if not leftovers & set(path.parts) and ".egg-info" not in str(path)]


def epoch(root: Path) -> int:
    """Seconds since 1970 for every time in the archives."""
    told = os.environ.get("SOURCE_DATE_EPOCH", "")
    if not told.isdecimal() and (root / ".git").exists():
        told = subprocess.run(
            ["git", "log", "-1", "--format=%ct"], cwd=root, capture_output=True, text=True, check=True
        ).stdout.strip()
    return max(EARLIEST, int(told or 0))


def copy(root: Path, target: Path) -> None:
    """The tracked files, with one mode for all."""
    for path in tracked(root):
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(root / path, target / path)
        os.chmod(target / path, 0o755 if os.access(root / path, os.X_OK) else 0o644)
    for folder in [target, *(path for path in target.rglob("*") if path.is_dir())]:
        os.chmod(folder, 0o755)


def normalise(sdist: Path, when: int) -> None:
    """Rewrite an sdist with sorted entries, one time, no user and plain modes: setuptools writes those of this machine."""
    plain = io.BytesIO()
    with (
        tarfile.open(sdist) as before,
        tarfile.open(fileobj=plain, mode="w", format=tarfile.PAX_FORMAT) as after,
    ):
        for member in sorted(before.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = when, 0, 0, "", ""
            member.pax_headers = {}
            after.addfile(member, before.extractfile(member) if member.isfile() else None)
    with open(sdist, "wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=when) as packed:
        packed.write(plain.getvalue())


def build(root: Path, target: Path) -> list[Path]:
    """Build both into ``target``; the files. The wheel is built from the sdist, as an installer without wheels would."""
    when = epoch(root)
    with tempfile.TemporaryDirectory(prefix="recalld-dist-") as scratch:
        source, out = Path(scratch) / "source", Path(scratch) / "out"
        copy(root, source)
        subprocess.run(
            [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)],
            env={**os.environ, "SOURCE_DATE_EPOCH": str(when), "PYTHONHASHSEED": "0"},
            stdout=subprocess.DEVNULL,
            check=True,
            umask=0o022,
        )
        target.mkdir(parents=True, exist_ok=True)
        for file in out.glob("*.tar.gz"):
            normalise(file, when)
        return [Path(shutil.move(file, target / file.name)) for file in sorted(out.iterdir())]


if __name__ == "__main__":
    for made in build(ROOT, Path(sys.argv[1])):
        print(f"{made} ({made.stat().st_size:,} bytes)")
