"""The lock, the licences of what it names, and sdist and wheel as strangers get and install them."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKS = {"requirements.lock": (), "requirements-dev.lock": ("dev",)}

FREE = re.compile(
    r"\b(MIT(-0)?|0?BSD|Apache|PSFL?|Python Software Foundation|MPL|Mozilla Public|ISC|Zlib|CC0|linking exception)\b",
    re.I,
)
"""What may be shipped beside MIT code. Copyleft only where linking is excepted (pygit2)."""
BINDING = re.compile(r"\b[AL]?GPL", re.I)


def load(name: str) -> ModuleType:
    """A program of deploy/release, which is no part of the package."""
    spec = importlib.util.spec_from_file_location(f"release_{name}", ROOT / "deploy" / "release" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(lock: str) -> dict[str, list[tuple[Requirement, int]]]:
    """What a lock pins: by name, each requirement (one per marker) and how many hashes it has."""
    pins: dict[str, list[tuple[Requirement, int]]] = {}
    text = (ROOT / lock).read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            words, *hashes = line.split("--hash=")
            requirement = Requirement(words.strip())
            assert all(re.fullmatch(r"sha256:[0-9a-f]{64}\s*", each) for each in hashes), line[:60]
            pins.setdefault(normal(requirement.name), []).append((requirement, len(hashes)))
    return pins


# -- the lock ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lock", LOCKS)
def test_the_lock_satisfies_the_project(lock: str) -> None:
    """Every dependency is pinned to a version that pyproject.toml allows; else `make lock` was forgotten."""
    pins = locked(lock)
    wanted = [
        *PROJECT["dependencies"],
        *(line for extra in LOCKS[lock] for line in PROJECT["optional-dependencies"][extra]),
    ]
    for line in wanted:
        requirement = Requirement(line)
        assert normal(requirement.name) in pins, f"{line}: run `make lock`"
        for pinned, _ in pins[normal(requirement.name)]:
            (pin,) = pinned.specifier
            assert pin.operator == "=="
            assert requirement.specifier.contains(pin.version), f"{line} and {pinned}: run `make lock`"


@pytest.mark.parametrize("lock", LOCKS)
def test_every_pin_has_hashes_and_no_host(lock: str) -> None:
    """A file from anywhere is the file that was locked; where it comes from is the installer's business."""
    assert all(hashes for pins in locked(lock).values() for _, hashes in pins)
    assert "://" not in (ROOT / lock).read_text(encoding="utf-8")


def test_tests_run_on_what_users_get() -> None:
    """The lock of the tests holds the lock of the users, version for version."""
    users, ours = locked("requirements.lock"), locked("requirements-dev.lock")
    for name, pins in users.items():
        assert {str(pin.specifier) for pin, _ in pins} == {str(pin.specifier) for pin, _ in ours[name]}, name


@pytest.mark.parametrize("name", sorted(locked("requirements-dev.lock")))
def test_licences(name: str) -> None:
    """Each dependency is under a licence that lets anybody use recalld under MIT."""
    try:
        package = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("belongs to another platform or interpreter")
    told = licence(package)
    assert FREE.search(told), told
    assert not BINDING.search(told) or "linking exception" in told, told


def licence(package: importlib.metadata.Distribution) -> str:
    """What a package says of its licence: its metadata, else the first lines of its licence file."""
    metadata = package.metadata
    classifiers = [line for line in metadata.get_all("Classifier") or () if line.startswith("License ::")]
    stated = metadata.get("License-Expression") or " ".join(classifiers) or (metadata.get("License") or "")[:200]
    if stated:
        return stated
    for file in package.files or ():
        if "licen" in file.name.lower():
            text = Path(str(package.locate_file(file))).read_text(encoding="utf-8", errors="replace")[:600]
            return "Zlib" if "This software is provided 'as-is'" in text or "as-is" in text else text
    return ""


def test_findings_of_the_audit_are_told() -> None:
    """A known vulnerability is a line; a package that was not looked up does not count as looked up."""
    audit = load("audit")
    report = {
        "dependencies": [
            {"name": "a", "version": "1", "vulns": [{"id": "PYSEC-1", "fix_versions": ["2"]}]},
            {"name": "b", "version": "1", "vulns": []},
            {"name": "c", "skip_reason": "not found"},
        ]
    }
    assert audit.findings(report) == (["a 1: PYSEC-1, fixed in 2"], 2)


# -- sdist and wheel --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return load("dist").build(ROOT, tmp_path_factory.mktemp("dist"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_builds_are_reproducible(built: list[Path], tmp_path: Path) -> None:
    """The same tree gives the same bytes, whatever the time and the umask are."""
    before = os.umask(0o077)
    try:
        again = load("dist").build(ROOT, tmp_path)
    finally:
        os.umask(before)
    assert [path.suffix for path in built] == [".whl", ".gz"]
    for one, other in zip(built, again, strict=True):
        assert hashlib.sha256(one.read_bytes()).digest() == hashlib.sha256(other.read_bytes()).digest(), one.name


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_metadata(built: list[Path]) -> None:
    """What an index shows: versions, licence, commands, the readme; the sdist has what building and testing need."""
    wheel, sdist = built
    with zipfile.ZipFile(wheel) as archive:
        texts = {Path(name).name: archive.read(name).decode() for name in archive.namelist() if ".dist-info/" in name}
    metadata = texts["METADATA"]
    for line in ("Requires-Python: >=3.11", "License-Expression: MIT", f"Version: {PROJECT['version']}"):
        assert f"\n{line}\n" in metadata
    for minor in (11, 12, 13, 14):
        assert f"\nClassifier: Programming Language :: Python :: 3.{minor}\n" in metadata
    assert "# recalld" in metadata
    assert {"recalld", "recalld-mcp", "recalld-hook"} <= set(
        re.findall(r"^([\w-]+) =", texts["entry_points.txt"], re.M)
    )
    assert "Root-Is-Purelib: true" in texts["WHEEL"]
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "LICENSE",
        "Makefile",
        "requirements.lock",
        "tests/harness.py",
        "deploy/demo/run.py",
        "docs/faq.md",
    } <= names


class Installer:
    """uv and pipx of the test environment, with folders of their own and the locked versions."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        self.folder, self.wheel = folder, wheel
        self.constraints = folder / "constraints.txt"
        pins = [str(pin) for pinned in locked("requirements.lock").values() for pin, _ in pinned]
        self.constraints.write_text("\n".join(pins) + "\n")  # without hashes: the wheel itself has none in the lock
        self.bin = folder / "bin"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("RECALLD_", "UV_TOOL"))}
        self.environ = {
            **kept,
            "UV_TOOL_DIR": str(folder / "tools"),
            "UV_TOOL_BIN_DIR": str(self.bin),
            "PIPX_HOME": str(folder / "pipx"),
            "PIPX_BIN_DIR": str(self.bin),
            "RECALLD_DATA": str(folder / "data"),
            "RECALLD_RUNTIME": str(folder / "run"),
        }

    def run(self, *command: str, code: int = 0) -> str:
        """Run it; both streams. Skips where no package index can be reached."""
        done = subprocess.run(
            command,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=280,
        )
        if done.returncode and re.search(
            r"error sending request|Failed to fetch|NewConnectionError|resolve", done.stdout
        ):
            pytest.skip("no package index can be reached")
        assert done.returncode == code, done.stdout
        return done.stdout

    def check(self, python: Path) -> None:
        """What was installed works: every module, the commands, and a status that creates nothing."""
        modules = self.run(str(python), "-P", "-W", "error", str(ROOT / "deploy" / "release" / "imports.py"))
        assert int(modules.split()[0]) > 150
        assert "recalld ask" in self.run(str(self.bin / "recalld"), "--help")
        assert "does not run" in self.run(str(self.bin / "recalld"), "status", code=3)
        assert "speaks MCP" in self.run(str(self.bin / "recalld-mcp"), "--help", code=2)
        assert not (self.folder / "data").exists()


@pytest.fixture
def installer(built: list[Path], tmp_path: Path) -> Installer:
    return Installer(tmp_path, built[0])


def tool(name: str) -> str:
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        pytest.skip(f"{name} is not installed beside this interpreter")
    return str(path)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_uv_tool_install(installer: Installer) -> None:
    """`uv tool install` of the wheel gives the commands, in an environment of their own."""
    chosen = ["--python", sys.executable, "--constraints", str(installer.constraints)]
    installer.run(tool("uv"), "tool", "install", *chosen, str(installer.wheel))
    installer.check(installer.folder / "tools" / "recalld" / "bin" / "python")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_uvx(installer: Installer) -> None:
    """`uvx` runs it without installing anything."""
    chosen = ["--python", sys.executable, "--constraints", str(installer.constraints)]
    assert "recalld, version" in installer.run(
        tool("uv"), "tool", "run", *chosen, "--from", str(installer.wheel), "recalld", "--version"
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pipx_install(installer: Installer) -> None:
    """`pipx install` of the wheel gives the same."""
    pip: list[Any] = [
        "--backend",
        "pip",
        "--pip-args",
        f"-c {installer.constraints} --no-compile",
        "--python",
        sys.executable,
    ]
    installer.run(tool("pipx"), "install", *pip, str(installer.wheel))
    installer.check(installer.folder / "pipx" / "venvs" / "recalld" / "bin" / "python")
