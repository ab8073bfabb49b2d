"""The documentation is executable: what can be derived is, and what is claimed is checked."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from recalld.clients.cli.main import COMMANDS, SECTIONS, recalld

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


RENDER = """
import json, runpy
pages = runpy.run_path("docs/build.py")["PAGES"]
print(json.dumps({name: render() for name, render in pages.items()}))
"""


def test_derived_pages_are_up_to_date() -> None:
    """`python docs/build.py` changes nothing."""
    # A process of its own: click keeps a command's help option from its first use, which in other tests lacks our root.
    told = subprocess.run(
        [sys.executable, "-P", "-c", RENDER], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name, text in json.loads(told).items():
        assert (ROOT / "docs" / name).read_text(encoding="utf-8") == text, f"run: python docs/build.py ({name})"


def test_every_command_stands_in_exactly_one_section() -> None:
    """A stranger who reads --help sees every command once."""
    listed = [name for _, names in SECTIONS for name in names]
    assert len(listed) == len(set(listed))
    assert set(COMMANDS) <= set(listed)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str) -> None:
    """--help of each command has a sentence, and every option a meaning."""
    result = CliRunner().invoke(recalld, [name, "--help"])
    assert result.exit_code == 0, result.output
    command = recalld.get_command(None, name)  # type: ignore[arg-type]  # our group does not use it
    assert command is not None
    assert command.help
    for parameter in command.params:
        assert isinstance(parameter, click.Argument) or parameter.help, f"{name} {parameter.name}"  # type: ignore[attr-defined]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    """No page points at a file that is not there."""
    for target in re.findall(r"\]\((?!https?:|mailto:|#)([^)#]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} -> {target}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_named_in_the_documentation_exist(page: Path) -> None:
    """`recalld something` in a page is a command that there is."""
    for name in re.findall(r"`recalld\s([a-z]+)(?= |`|\n)", page.read_text(encoding="utf-8")):
        assert name in COMMANDS, f"{page.name}: recalld {name}"


def test_the_map_names_every_room_and_no_other() -> None:
    """ARCHITECTURE.md's code map and the tree are the same."""
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^\| `((?:actors|memory|protocol|clients|models)/[\w/]*)`", text, re.M))
    rooms = {
        f"{path.parent.relative_to(ROOT)}/"
        for top in ("actors", "memory", "protocol", "clients", "models")
        for path in (ROOT / top).rglob("__init__.py")
    }
    assert rooms == named
