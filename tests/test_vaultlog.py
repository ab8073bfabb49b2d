"""Reading the versions of notes from git, and the process that does."""

from __future__ import annotations

import io
import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from recalld.actors.writer.wiki import gitreader, vaultlog
from recalld.actors.writer.wiki.vaultlog import Ignored, Limits, Unusable, Vault
from recalld.protocol.framing import HEADER_BYTES, pack_bytes

from .gitvault import GitVault, ms

NOW = ms("2026-01-01")


@pytest.fixture
def vault(tmp_path: Path) -> GitVault:
    return GitVault(tmp_path / "notes")


def log_of(vault: GitVault, known: str = "", ignore: tuple[str, ...] = (), **limits: int) -> vaultlog.VaultLog:
    return Vault(str(vault.root)).log(Limits(**limits), NOW, Ignored(str(vault.root), ignore), known)


def times(vault: GitVault, *arguments: str, **limits: int) -> dict[str, list[tuple[int, int | None]]]:
    return {path: [one[1:3] for one in found] for path, found in log_of(vault, *arguments, **limits).versions.items()}


JAN, FEB, MAR, APR = (f"2025-0{month}-10" for month in range(1, 5))


def test_each_version_stands_from_its_commit_to_the_next(vault: GitVault) -> None:
    """Edits, deletions and returns, by commit time; what no commit touched goes on standing."""
    vault.commit(JAN, {"a.md": "one", "sub/b.md": "still", "c.md": "gone"})
    vault.commit(FEB, {"a.md": "two", "c.md": None})
    vault.commit(MAR, {"c.md": "back"})
    assert times(vault) == {
        "a.md": [(ms(JAN), ms(FEB)), (ms(FEB), None)],
        "sub/b.md": [(ms(JAN), None)],
        "c.md": [(ms(JAN), ms(FEB)), (ms(MAR), None)],
    }


def test_only_notes_that_are_looked_at(vault: GitVault) -> None:
    """No other files, no links, nothing that the configuration or an ignore file in the folder now leaves out."""
    vault.commit(JAN, {"a.md": "one", "b.txt": "no", ".obsidian/c.md": "no", "private/d.md": "no", "e.md": "no"})
    os.symlink("a.md", vault.root / "link.md")
    vault.commit(FEB, {"private/.recalldignore": "d.md\n", ".gitignore": "e.md\n"})
    assert set(log_of(vault, ignore=(".*/",)).versions) == {"a.md"}


def test_a_folder_inside_a_repository(tmp_path: Path) -> None:
    """Paths are relative to the vault; commits that do not touch it say nothing."""
    vault = GitVault(tmp_path / "notes")
    inner = GitVault(vault.root / "docs" / "notes", vault.repository)
    vault.commit(JAN, {"readme.md": "outside"})
    inner.commit(FEB, {"a.md": "one"})
    vault.commit(MAR, {"readme.md": "more"})
    assert times(inner) == {"a.md": [(ms(FEB), None)]}


def test_repositories_inside_a_vault(tmp_path: Path) -> None:
    """Each folder that is a repository has its own history, with paths as the vault has them; ignored ones have none."""
    root = tmp_path / "vault"
    for name in ("work", "home/diary", "node_modules/package"):
        GitVault(root / name).commit(JAN, {"a.md": name})
    assert set(vaultlog.repositories(str(root), ("node_modules/",))) == {"", "work", "home/diary"}
    found = Vault(str(root), "home/diary").log(Limits(), NOW, Ignored(str(root), ()))
    assert list(found.versions) == ["home/diary/a.md"]
    assert vaultlog.tip(str(root)) == ""


def test_a_rename_says_where_to(vault: GitVault) -> None:
    """A note that leaves one path and arrives at another in one commit is followed."""
    vault.commit(JAN, {"old.md": "the text"})
    vault.commit(FEB, {"old.md": None, "new.md": "the text"})
    found = log_of(vault).versions
    assert [one.moved for one in found["old.md"]] == ["new.md"]
    assert [(one.from_ms, one.came) for one in found["new.md"]] == [(ms(FEB), True)]


def test_a_mode_is_not_a_version(vault: GitVault) -> None:
    """A file made executable says the same."""
    vault.commit(JAN, {"a.md": "one"})
    (vault.root / "a.md").chmod(0o755)
    vault.commit(FEB, {})
    assert times(vault) == {"a.md": [(ms(JAN), None)]}


def test_what_was_merged_stands_from_the_merge_on(vault: GitVault) -> None:
    """A branch is not what lay in the folder."""
    vault.commit(JAN, {"a.md": "one"})
    vault.git("checkout", "-q", "-b", "draft")
    vault.commit(FEB, {"b.md": "draft"})
    vault.git("checkout", "-q", "main")
    vault.git("merge", "-q", "--no-ff", "-m", "merge", "draft", when=APR)
    assert times(vault)["b.md"] == [(ms(APR), None)]


def test_a_clock_that_was_wrong(vault: GitVault) -> None:
    """Commits from the future or out of order never make a version that ends before it began."""
    vault.commit("2025-05-01", {"a.md": "one"})
    vault.commit("2025-03-01", {"a.md": "two"})
    vault.commit("2099-01-01", {"a.md": "three"})
    assert times(vault) == {"a.md": [(ms("2025-03-01"), NOW), (NOW, None)]}


def test_bounds(vault: GitVault) -> None:
    """By number of commits, and by time: the last commit that is looked at is where everything in it begins."""
    for month in (JAN, FEB, MAR, APR):
        vault.commit(month, {"a.md": month})
    assert times(vault, commits=2) == {"a.md": [(ms(MAR), ms(APR)), (ms(APR), None)]}
    assert [since for since, _ in times(vault, since_ms=ms("2025-03-01"))["a.md"]] == [ms(FEB), ms(MAR), ms(APR)]


def test_only_what_is_new(vault: GitVault) -> None:
    """After a known commit, also on another branch; from the beginning when that is not there any more."""
    vault.commit(JAN, {"a.md": "one", "b.md": "still"})
    known = vault.commit(FEB, {"a.md": "two"})
    vault.commit(MAR, {"a.md": "three"})
    assert times(vault, known) == {"a.md": [(ms(FEB), ms(MAR)), (ms(MAR), None)]}
    assert set(times(vault, "0" * 40)) == {"a.md", "b.md"}
    main = vault.git("rev-parse", "HEAD")
    vault.git("checkout", "-q", "-b", "other", known)
    vault.commit(APR, {"c.md": "new"})
    assert times(vault, main) == {"c.md": [(ms(APR), None)]}


def test_a_shallow_clone(vault: GitVault, tmp_path: Path) -> None:
    """What is not there is not known; what is there stood since the oldest commit that is."""
    vault.commit(JAN, {"a.md": "one"})
    vault.commit(FEB, {"b.md": "two"})
    vault.git("clone", "-q", "--depth", "1", f"file://{vault.root}", str(tmp_path / "clone"))
    assert times(GitVault(tmp_path / "clone")) == {"a.md": [(ms(FEB), None)], "b.md": [(ms(FEB), None)]}


def test_no_repository(tmp_path: Path) -> None:
    """No repository, and one without a commit, have no tip."""
    assert vaultlog.tip(str(tmp_path)) == ""
    vault = GitVault(tmp_path / "fresh")
    assert vaultlog.tip(str(vault.root)) == ""
    assert log_of(vault).versions == {}


def test_a_damaged_repository_says_so(vault: GitVault) -> None:
    """Objects that are not there any more are a reason, not a crash."""
    vault.commit(JAN, {"a.md": "one"})
    vault.commit(FEB, {"a.md": "two"})
    for folder in (vault.root / ".git" / "objects").iterdir():
        for file in folder.iterdir():
            file.chmod(0o600)
            file.write_bytes(b"\0" * 10)
    with pytest.raises(Unusable, match="cannot be read"):
        log_of(vault)
    (vault.root / ".git" / "config").write_text("[core\n")
    with pytest.raises(Unusable, match="cannot be read"):
        vaultlog.tip(str(vault.root))


def test_nothing_is_written(vault: GitVault) -> None:
    """Reading a history leaves every file of the repository as it was."""
    vault.commit(JAN, {"a.md": "one"})
    before = state_of(vault.root)
    log_of(vault)
    vaultlog.tip(str(vault.root))
    assert state_of(vault.root) == before


def state_of(root: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (p.stat().st_mtime_ns, p.stat().st_size) for p in root.rglob("*")}


def test_line_ends_that_git_changes(vault: GitVault) -> None:
    """A file with CRLF in the folder is the blob with LF."""
    vault.commit(JAN, {"a.md": "one\ntwo\n"})
    stood = log_of(vault).versions["a.md"][0]
    here = Vault(str(vault.root))
    assert here.same(stood.blob, vaultlog.digest_of(b"one\r\ntwo\r\n"))
    assert here.same(stood.blob, vaultlog.digest_of(b"one\ntwo\n"))
    assert not here.same(stood.blob, vaultlog.digest_of(b"one\n"))


# -- the process


def replies(*requests: gitreader.Request) -> Iterator[gitreader.Reply]:
    sent = b"".join(pack_bytes(msgspec.msgpack.encode(request)) for request in requests)
    received = io.BytesIO()
    gitreader.serve(io.BytesIO(sent), received)
    received.seek(0)
    while header := received.read(HEADER_BYTES):
        yield gitreader.decode_reply(received.read(int.from_bytes(header, "big")))


def start(vault: GitVault, room: int = 32, max_bytes: int = 1000) -> gitreader.Start:
    return gitreader.start_of(str(vault.root), "", "", Limits(), room, (), max_bytes, None)


def test_a_reading_in_full(vault: GitVault) -> None:
    """Opened, asked what comes next, told what is there: the steps say what to change, with the texts parsed."""
    tip = vault.commit(JAN, {"a.md": "# One\n\nfirst"})
    tip = vault.commit(FEB, {"a.md": "# One\n\nsecond"})
    rows = gitreader.Rows({"a.md": ((vaultlog.digest_of(b"# One\n\nsecond"), NOW, None, False),)})
    opened, look, steps, end = replies(start(vault), gitreader.More(), rows, gitreader.More())
    assert opened == gitreader.Opened(tip, 1, 2)
    assert look == gitreader.Look(("a.md",))
    assert isinstance(steps, gitreader.Steps)
    begin, insert = steps.steps
    assert begin == gitreader.Step("a.md", ((NOW, None),), begin=(NOW, ms(FEB)))
    assert insert.expect == ((ms(FEB), None),)
    assert insert.insert is not None
    assert (insert.insert.from_ms, insert.insert.to_ms) == (ms(JAN), ms(FEB))
    assert insert.insert.chunks[0].text == "# One\n\nfirst"
    assert end == gitreader.Look(())


def test_many_texts_come_in_small_batches(vault: GitVault) -> None:
    """No transaction takes more than some passages; the last batch says that it is."""
    days = [f"2025-01-{day:02d}" for day in range(1, 30)]
    for day in days:
        vault.commit(day, {"a.md": "".join(f"# Part {n}\n\n{day} {'word ' * 40}\n\n" for n in range(5))})
    *batches, last = list(replies(start(vault, max_bytes=100_000), gitreader.More(), gitreader.Rows({})))[2:]
    assert len(batches) > 2
    assert all(not batch.last and len(batch.steps) < gitreader.BATCH_CHUNKS for batch in batches)
    assert last.last
    begun = [step.insert.from_ms for step in itertools.chain(*(batch.steps for batch in (*batches, last)))]
    assert begun == [ms(day) for day in reversed(days)]


def test_versions_that_are_too_large_are_left_out(vault: GitVault) -> None:
    """As the watcher leaves out such files."""
    vault.commit(JAN, {"a.md": "x" * 2000})
    vault.commit(FEB, {"a.md": "short"})
    (steps,) = list(replies(start(vault), gitreader.More(), gitreader.Rows({})))[2:]
    assert [step.insert.from_ms for step in steps.steps] == [ms(FEB)]


def test_a_repository_that_fails_is_an_answer(tmp_path: Path) -> None:
    """The writer is told why."""
    (failed,) = replies(gitreader.start_of(str(tmp_path), "", "", Limits(), 1, (), 1, None))
    assert failed == gitreader.Failed("it is in no git repository")
