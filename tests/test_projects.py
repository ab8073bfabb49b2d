"""Which project a folder belongs to: decided from facts, which are read from real repositories."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from recalld.memory.capture import policy, projects
from recalld.memory.capture.policy import Policy
from recalld.protocol import place
from recalld.protocol.messages.capture import ProjectRef


def git(folder: Path, *words: str) -> None:
    env = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    config = (
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-c",
        "protocol.file.allow=always",
        "-c",
        "init.defaultBranch=main",
    )
    subprocess.run(["git", *config, *words], cwd=folder, env=env, check=True, capture_output=True)


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    (folder / "a").write_text("x")
    git(folder, "add", "a")
    git(folder, "commit", "-qm", "one")
    return folder


def found(cwd: Path | str, home: Path, session: ProjectRef | None = None) -> ProjectRef:
    facts = place.look(str(cwd), str(home))
    policies = [policy.read(place.read_marker(path), os.path.dirname(path), str(home)) for path in facts.markers]
    return projects.resolve(facts, next((each for each in policies if each.project), None), session)


def test_git_root_names_the_project(tmp_path: Path) -> None:
    """A folder deep in a checkout belongs to the checkout, with its branch and commit."""
    repo = repository(tmp_path / "code" / "acme")
    deep = repo / "src" / "x"
    deep.mkdir(parents=True)
    assert found(deep, tmp_path) == ProjectRef(name="acme", found_by="git", root=str(repo))
    facts = place.look(str(deep), str(tmp_path))
    place.read_head(facts)
    assert facts.branch == "main"
    loose = facts.head
    assert len(loose) == 40
    git(repo, "pack-refs", "--all")
    facts.head = ""
    place.read_head(facts)
    assert facts.head == loose


def test_worktrees_share_submodules_do_not(tmp_path: Path) -> None:
    """A worktree is the same project as its main checkout, a submodule one of its own."""
    repo, other = repository(tmp_path / "acme"), repository(tmp_path / "lib")
    git(repo, "worktree", "add", "-q", "-b", "fix", str(tmp_path / "wt" / "acme-fix"))
    git(repo, "submodule", "add", "-q", str(other), "vendor/lib2")
    worktree = found(tmp_path / "wt" / "acme-fix", tmp_path)
    assert (worktree.name, worktree.root) == ("acme", str(tmp_path / "wt" / "acme-fix"))
    facts = place.look(str(tmp_path / "wt" / "acme-fix"), str(tmp_path))
    place.read_head(facts)
    assert (facts.branch, len(facts.head)) == ("fix", 40)
    assert found(repo / "vendor" / "lib2", tmp_path).name == "lib2"


def test_marker_wins_and_is_transparent_without_a_name(tmp_path: Path) -> None:
    """The nearest marker that names a project names it; one that only excludes paths leaves the name to those above."""
    repo = repository(tmp_path / "acme")
    (repo / ".recalld.toml").write_text('project = "renamed"')
    inner = repo / "sub"
    inner.mkdir()
    (inner / ".recalld.toml").write_text('[capture]\nignore_paths = ["x/**"]')
    assert found(inner, tmp_path) == ProjectRef(name="renamed", found_by="marker", root=str(repo))
    assert place.look(str(inner), str(tmp_path)).markers == (f"{inner}/.recalld.toml", f"{repo}/.recalld.toml")


def test_home_and_root_swallow_nothing(tmp_path: Path) -> None:
    """A session in home, a dotfiles repository there, or a marker that names it, is nobody else's project."""
    repository(tmp_path / "h")
    home = tmp_path / "h"
    (home / ".recalld.toml").write_text('project = "everything"')
    repo = repository(home / "code" / "repo")
    assert found(repo, home).name == "repo"
    assert found(home / "code", home).name == "code"
    session = found(home, home)
    assert found(repo, home, session).name == "repo"
    assert found("/", home).guessed
    assert found("", home).guessed
    assert found("/tmp", home).guessed
    (home / ".recalld.toml").unlink()
    assert found(home, home) == ProjectRef(name="", found_by="none", guessed=True)


@pytest.mark.parametrize(
    ("cwd", "git_root", "expected"),
    [
        ("/w/app/src", "/w/app", "app"),
        ("/w/app/src", "", "app"),
        ("/tmp/scratch", "", "app"),
        ("/home/me", "", "app"),
        ("/w/other", "/w/other", "other"),
        ("/w/app-two", "/w/app-two", "app-two"),
        ("/w/app/vendor/lib", "/w/app/vendor/lib", "lib"),
    ],
)
def test_session_keeps_its_project(cwd: str, git_root: str, expected: str) -> None:
    """A session stays in its project when the shell wanders, and changes when it enters another checkout."""
    facts = place.Facts(cwd, "/home/me")
    facts.git_root = facts.main_root = git_root
    session = ProjectRef(name="app", found_by="git", root="/w/app")
    assert projects.resolve(facts, None, session).name == expected


def test_marker_outside_home_counts_up_to_the_checkout(tmp_path: Path) -> None:
    """Outside of home a marker above the checkout, which anybody may have put there, does not count."""
    home = tmp_path / "home"
    home.mkdir()
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / ".recalld.toml").write_text('project = "planted"')
    repo = repository(tmp_path / "x" / "repo")
    plain = tmp_path / "x" / "plain"
    plain.mkdir()
    assert place.look(str(repo), str(home)).markers == ()
    assert place.look(str(plain), str(home)).markers == ()
    assert place.look(str(tmp_path / "x"), str(home)).markers == (str(tmp_path / "x" / ".recalld.toml"),)


@pytest.mark.parametrize("text", ["project = ", "x" * 70_000, "a = 1\na = 2"])
def test_unreadable_marker_is_text(tmp_path: Path, text: str) -> None:
    """A marker that cannot be parsed, or is too large, says why instead of raising."""
    (tmp_path / ".recalld.toml").write_text(text)
    assert isinstance(place.read_marker(str(tmp_path / ".recalld.toml")), str)


def test_looking_waits_for_nothing(tmp_path: Path) -> None:
    """Pipes and loops in the place of git's files hold nobody up."""
    (tmp_path / "r" / ".git").mkdir(parents=True)
    os.mkfifo(tmp_path / "r" / ".git" / "HEAD")
    facts = place.look(str(tmp_path / "r"), str(tmp_path))
    place.read_head(facts)
    assert (facts.git_root, facts.branch) == (str(tmp_path / "r"), "")
    (tmp_path / "l").symlink_to(tmp_path / "l")
    assert place.look(str(tmp_path / "l"), str(tmp_path)).git_root == ""


@pytest.mark.parametrize(
    ("folder", "name"),
    [("/a/b", "b"), ("/a/repo.git", "repo"), ("/a/My Project!", "My-Project-"), ("/a/.dot", "dot"), ("/a/_x", "x"),
     ("/", "project"),
     ("/a/日本語", "日本語")],
)  # fmt: skip
def test_names(folder: str, name: str) -> None:
    """A folder's name becomes one that can be a wiki folder's."""
    assert projects.name_of(folder) == name
    assert policy.valid_name(name)


def test_policy_default_is_nothing() -> None:
    """Without a marker there is no policy."""
    assert Policy().root == ""
