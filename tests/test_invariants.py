"""What ARCHITECTURE.md promises of the code, read off the code."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("protocol", "actors", "memory", "clients", "models")
SOURCES = [*(path for top in PACKAGES for path in sorted((ROOT / top).rglob("*.py"))), ROOT / "supervisor.py"]
MAX_LINES, MAX_TEST_LINES = 440, 620
LONGER: dict[str, int] = {}
"""Files that may be longer, each with its limit; a reason stands at the top of the file."""

OWNERS = {
    "onnxruntime": "actors/embedder/",
    "pygit2": "actors/writer/wiki/",
    "mcp": "actors/query/mcp/",
    "textual": "clients/tui/",
    "watchfiles": "actors/watcher/",
    "aiosqlite": "actors/query/",
}
IMPURE = {
    "anyio",
    "asyncio",
    "sqlite3",
    "time",
    "random",
    "os",
    "socket",
    "subprocess",
    "threading",
    "secrets",
    "pysqlite3",
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """(level, dotted name) of every import, at any depth of the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.level, node.module or ""
            if node.level and not node.module:
                yield from ((node.level, alias.name) for alias in node.names)


def absolute(path: Path) -> set[str]:
    """Top-level rooms of the project that a file imports, as dotted paths from the root."""
    found = set()
    for level, module in imports(path):
        if level:
            base = path.relative_to(ROOT).parts[:-level]
            found.add(".".join((*base, *module.split("."))).rstrip("."))
        elif module.startswith("recalld."):
            found.add(module.removeprefix("recalld."))
    return found


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_rooms_import_only_what_they_may(path: Path) -> None:
    """protocol nothing; memory protocol alone; an actor no other actor; clients no actor (but the offline answer)."""
    room, *rest = path.relative_to(ROOT).parts
    used = absolute(path)
    if room == "protocol":
        assert {u for u in used if not u.startswith("protocol")} == set()
    if room == "memory":
        assert {u for u in used if not u.startswith(("memory", "protocol.messages"))} == set()
    if room == "actors" and len(rest) > 1:
        own = f"actors.{rest[0]}"
        others = {
            u for u in used if re.match(r"actors\.(watcher|embedder|writer|query)\b", u) and not u.startswith(own)
        }
        assert others == set()
    if room == "clients":
        assert {u for u in used if u.startswith("actors")} <= {"actors.query.offline"}


@pytest.mark.parametrize("path", [p for p in SOURCES if name_of(p).startswith("memory/")], ids=name_of)
def test_pure_modules_import_nothing_impure(path: Path) -> None:
    """No I/O, no clock, no randomness in the domain."""
    assert {module.split(".")[0] for level, module in imports(path) if not level} & IMPURE == set()


@pytest.mark.parametrize(("library", "owner"), OWNERS.items())
def test_heavy_libraries_have_one_owner(library: str, owner: str) -> None:
    """Each is imported in one place, so that it can be replaced there."""
    importers = {
        name_of(path)
        for path in SOURCES
        if any(not level and module.split(".")[0] == library for level, module in imports(path))
    }
    assert importers
    assert all(name.startswith(owner) for name in importers), importers


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_no_dangerous_calls(path: Path) -> None:
    """No eval, no pickle, no shell anywhere."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in {"eval", "exec", "os.system", "os.popen", "__import__"}, (
                f"line {node.lineno}: {called}"
            )
            for keyword in node.keywords:
                shell = keyword.arg == "shell" and getattr(keyword.value, "value", None) is True
                assert not shell, f"line {node.lineno}: shell=True"
    assert {"pickle", "shelve", "marshal"} & {module.split(".")[0] for _, module in imports(path)} == set()


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_no_unbounded_queue_and_no_wait_for(path: Path) -> None:
    """Every queue names its bound; asyncio.wait_for swallows cancellation on Python 3.11 and is not used."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called != "asyncio.wait_for", f"line {node.lineno}"
            if called.endswith(("asyncio.Queue", "queue.Queue", "create_memory_object_stream")):
                assert node.args or node.keywords, f"line {node.lineno}: a queue without a bound"
            assert not called.endswith("SimpleQueue"), f"line {node.lineno}: a queue without a bound"


@pytest.mark.parametrize("path", [*SOURCES, *sorted((ROOT / "tests").glob("*.py"))], ids=name_of)
def test_a_file_fits_in_a_head(path: Path) -> None:
    """About 400 lines of source, 600 of tests."""
    limit = MAX_TEST_LINES if path.parent.name == "tests" else MAX_LINES
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= LONGER.get(name_of(path), limit)


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_every_module_says_what_it_is(path: Path) -> None:
    """A module without a docstring is a room without a sign."""
    text = path.read_text(encoding="utf-8")
    assert not text.strip() or ast.get_docstring(ast.parse(text)) or path.name == "__main__.py"


def test_every_package_is_declared() -> None:
    """A sub-package missing from pyproject.toml works in a checkout and is absent from the wheel."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    there = {"recalld", "recalld.deploy"}
    for top in PACKAGES:
        for init in (ROOT / top).rglob("__init__.py"):
            there.add(".".join(("recalld", *init.parent.relative_to(ROOT).parts)))
    assert there == set(declared)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_wheel_has_everything(tmp_path: Path) -> None:
    """Built as users get it, the wheel has every module and data file of the checkout, and no test or benchmark."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*build, "--wheel-dir", str(tmp_path), str(ROOT)], check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    modules = {f"recalld/{name_of(path)}" for path in SOURCES}
    assert modules <= names
    assert {"recalld/clients/manifest.json", "recalld/clients/graph.html", "recalld/deploy/recalld.service.in"} <= names
    assert not any(name.startswith(("recalld/tests", "recalld/bench", "tests", "bench")) for name in names)
