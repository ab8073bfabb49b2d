"""Session pages as text, and pages that agents write: bounded, redacted, compared before they are replaced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recalld.memory.capture import digest, pages, sessions
from recalld.memory.capture.events import Event
from recalld.memory.capture.sessions import Session
from recalld.memory.notes.parse import parse
from recalld.protocol.envelope import Conflict, Invalid
from recalld.protocol.messages.capture import DeletePage, PageLog, Place, ReadPage, WritePage

from .capturing import FIRST_MS, edited, ended, prompt, ran, running

T = FIRST_MS


def told(*happened: dict[str, Any]) -> tuple[Session, digest.Digest]:
    """A session and its digest from short descriptions of events."""
    session = None
    made = []
    for seq, fields in enumerate(happened, 1):
        event = Event(
            **{
                "id": str(seq),
                "host": "claude",
                "session": "sess-00000001",
                "at_ms": T + seq * 60_000,
                "cwd": "/w",
                "project": "w",
                **fields,
            }
        )
        made.append(event)
        session, _ = sessions.apply(session, event, seq)
    assert session is not None
    return session, digest.digest(made)


def shell(command: str, output: str = "ok", outcome: str = "success", **more: Any) -> dict[str, Any]:
    return {
        "kind": "post-tool-use",
        "tool": "Bash",
        "family": "shell",
        "command": command,
        "output_head": output,
        "outcome": outcome,
        "call_id": command + output,
        **more,
    }


def test_a_failure_and_what_followed_it() -> None:
    """Failed, changed a file, worked: the page tells the story and calls it solved."""
    session, made = told(
        {"kind": "user-prompt", "text": "Fix the gear"}, shell("make test", "2 failed: test_gear", "error"),
        {"kind": "post-tool-use", "tool": "Edit", "family": "file", "paths": ("gear.py",), "wrote": True, "outcome": "success"},
        shell("make test", "43 passed"),
    )  # fmt: skip
    page = pages.render(session, made)
    assert "`make test` failed: `2 failed: test_gear`\n  - then changed gear.py\n  - then `make test` went well" in page
    assert "1 failure (solved)" in page
    assert "not seen to work" not in page


def test_decisions_that_were_stated() -> None:
    """Sentences that decide, from prompts and summaries; questions are none."""
    session, made = told(
        {"kind": "user-prompt", "text": "From now on we use ninja instead of make. Should we use bazel?"},
        {"kind": "post-compaction", "text": "Decided to drop Python 3.10. Tests run."},
    )
    page = pages.render(session, made)
    assert "- From now on we use ninja instead of make." in page
    assert "- Decided to drop Python 3.10." in page
    assert "- Should" not in page


def test_a_page_reads_as_a_note() -> None:
    """The notes' own parser finds kind, session, project, date and links."""
    session, made = told({"kind": "user-prompt", "text": "Compare with [[Use ninja]]: yes", "branch": "topic"})
    text = pages.render(session, made, links=["Use ninja"])
    note, chunks = parse("w/sessions/x.md", text.encode())
    assert (note.kind, note.session_id, note.project, note.date, note.problem) == (
        "session",
        "sess-00000001",
        "w",
        "2026-11-30",
        "",
    )
    assert {link.target for link in note.links} == {"Use ninja"}
    assert chunks
    assert yaml.safe_load(text.split("---")[1])["branch"] == "topic"


def test_paths_are_stable_and_speak() -> None:
    """Date, words of the title, end of the id; any script; nothing that a file system refuses."""
    session, _ = told({"kind": "user-prompt", "text": "왜 기어 테스트가 실패해? / Why: <it>|fails"})
    assert pages.path_of(session) == "sessions/2026-11-30-왜-기어-테스트가-실패해-why-it-fails-00000001.md"


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None, max_examples=8)
@given(st.integers(1, 150), st.text(max_size=3000), st.text(max_size=300))
def test_a_page_is_bounded_whatever_happened(number: int, text: str, word: str) -> None:
    """Hundreds of prompts, commands and failures of any length: the page stays below its bound, and is the same twice."""
    happened: list[dict[str, Any]] = []
    for each in range(number):
        happened += [
            {"kind": "user-prompt", "text": f"{each} {text}"}, shell(f"{word}{each}", text, "error" if each % 3 else "success"),
            {"kind": "post-tool-use", "tool": "Edit", "family": "file", "paths": (f"{word}/{each}",), "wrote": True},
        ]  # fmt: skip
    session, made = told(*happened)
    page = pages.render(session, made)
    assert len(page) <= pages.MAX_PAGE_CHARS
    assert page == pages.render(session, made)
    assert parse("x.md", page.encode("utf-8", "replace"))[0].problem == ""


async def test_write_read_compare_delete(short_tmp: Path) -> None:
    """Created, read back, refused on a stale hash, replaced on the right one, removed; all of it in the page's log."""
    async with running(short_tmp) as rig:
        place = Place(cwd=str(rig.checkout()))
        on = rig.ingest.handlers
        first = await on[WritePage](
            WritePage(
                path="use-ninja",
                kind="decision",
                body="We use ninja.",
                title="Use ninja",
                place=place,
                tags=("build",),
                relations={"fixes": ("slow-build",)},
            )
        )
        assert (first.path, first.created, first.project.name) == ("decisions/use-ninja.md", True, "acme-widgets")
        read = await on[ReadPage](ReadPage(path="decisions/use-ninja", place=place))
        assert read.hash == first.hash
        matter = yaml.safe_load(read.text.split("---")[1])
        assert matter == {
            "title": "Use ninja",
            "kind": "decision",
            "tags": ["build"],
            "fixes": ["slow-build"],
            "project": "acme-widgets",
        }
        with pytest.raises(Conflict):
            await on[WritePage](WritePage(path=first.path, body="x", place=place, create_only=True))
        with pytest.raises(Conflict):
            await on[WritePage](WritePage(path=first.path, body="x", place=place, expect_hash="0" * 32))
        second = await on[WritePage](
            WritePage(path=first.path, body="We use ninja, always.", place=place, expect_hash=first.hash)
        )
        assert not second.created
        gone = await on[DeletePage](DeletePage(path=first.path, place=place))
        again = await on[DeletePage](DeletePage(path=first.path, place=place))
        assert (gone.existed, again.existed) == (True, False)
        log = await on[PageLog](PageLog(path=first.path, place=place))
        assert len(log.versions) >= 2
        assert (await on[ReadPage](ReadPage(path=first.path, place=place))).not_found


async def test_a_page_is_read_by_the_path_that_recall_gives(short_tmp: Path) -> None:
    """With its project's folder in front, also from another project, also for pages of everywhere."""
    async with running(short_tmp) as rig:
        place, other = Place(cwd=str(rig.checkout())), Place(cwd=str(rig.checkout("other")))
        on = rig.ingest.handlers
        await on[WritePage](WritePage(path="acme-widgets/notes/gear", body="It slips.", place=place))
        await on[WritePage](WritePage(path="rules/tone", body="Be brief.", place=place, scope="global"))
        for asking in (place, other):
            found = await on[ReadPage](ReadPage(path="acme-widgets/notes/gear.md", place=asking))
            assert (found.path, found.project.name, found.not_found) == ("notes/gear.md", "acme-widgets", False)
            everywhere = await on[ReadPage](ReadPage(path="_global/rules/tone.md", place=asking))
            assert "Be brief." in everywhere.text


async def test_a_person_is_not_overwritten_unread(short_tmp: Path) -> None:
    """A blind write over a hand edit is a conflict that says how to go on."""
    async with running(short_tmp) as rig:
        place = Place(cwd=str(rig.checkout()))
        write = rig.ingest.handlers[WritePage]
        await write(WritePage(path="notes/gear", body="ours", place=place))
        (rig.paths.wiki / "acme-widgets/notes/gear.md").write_text("theirs\n")
        with pytest.raises(Conflict, match="edited by a person"):
            await write(WritePage(path="notes/gear", body="ours again", place=place))


async def test_a_twin_is_named_instead_of_written(short_tmp: Path) -> None:
    """The same title under another path is most likely the same page."""
    async with running(short_tmp) as rig:
        place = Place(cwd=str(rig.checkout()))
        write = rig.ingest.handlers[WritePage]
        await write(WritePage(path="decisions/use-ninja", title="Use Ninja", body="We use ninja.", place=place))
        twin = await write(WritePage(path="notes/ninja-again", title="use  ninja", body="We use ninja.", place=place))
        assert twin.twin == "decisions/use-ninja.md"
        assert len(rig.pages()) == 1


async def test_a_replayed_write_answers_as_the_first(short_tmp: Path) -> None:
    """A bridge that reconnected sends the call again: one page, one answer."""
    async with running(short_tmp) as rig:
        place = Place(cwd=str(rig.checkout()))
        message = WritePage(path="notes/gear", body="It slips.", place=place, create_only=True, replay_key="bridge-1")
        write = rig.ingest.handlers[WritePage]
        assert await write(message) == await write(message)


async def test_nothing_is_written_to_a_guessed_project(short_tmp: Path) -> None:
    """Home, / and scratch folders are nobody's project: name one."""
    async with running(short_tmp) as rig:
        write = rig.ingest.handlers[WritePage]
        with pytest.raises(Invalid, match="project"):
            await write(WritePage(path="notes/x", body="x", place=Place(cwd="/")))
        named = await write(WritePage(path="notes/x", body="x", place=Place(cwd="/", project="widgets")))
        assert (named.project.name, named.project.found_by) == ("widgets", "named")
        with pytest.raises(Invalid):
            await write(WritePage(path="../x", body="x", place=Place(project="widgets")))


async def test_a_session_page_links_what_it_mentions(short_tmp: Path) -> None:
    """Named notes that exist become links; others do not."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        await rig.ingest.handlers[WritePage](
            WritePage(path="decisions/use-ninja", title="Use ninja", body="We do.", place=Place(cwd=str(root)))
        )
        await rig.send(
            prompt("s1", root, "Is [[Use ninja]] still right? See also [[Nowhere]]."), ended("s1", root, FIRST_MS + 1)
        )
        await rig.ingest.settle()
        page = next(text for path, text in rig.pages().items() if "/sessions/" in path)
        assert "## Related\n\n- [[use-ninja]]" in page


SHAPES = {
    "github": "ghp_" + "a1B2c3D4e5" * 4, "openai": "sk-proj-" + "a1B2c3D4e5" * 4, "aws": "AKIA" + "ABCDEFGH12345678",
    "slack": "xoxb-123456789012-123456789012-" + "a1B2c3D4e5" * 2, "stripe": "sk_live_" + "a1B2c3D4e5" * 3,
    "gitlab": "glpat-" + "a1B2c3D4e5" * 2, "npm": "npm_" + "a1B2c3D4e5" * 4, "password": "hunter2-is-my-pass9",
}  # fmt: skip
IN_CONTEXT = {"password": 'curl -u admin:{} https://x; export DB_PASSWORD={}; {{"password": "{}"}}'}


async def test_no_secret_in_any_byte(short_tmp: Path) -> None:
    """Through prompt, command, output, path, page and handoff, also across every cut: no byte under the data folder has it."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        place = Place(cwd=str(root))
        for number, (name, secret) in enumerate(SHAPES.items()):
            text = (
                IN_CONTEXT.get(name, "the key is {} and no more")
                .replace("{}", secret)
                .replace("{{", "{")
                .replace("}}", "}")
            )
            session, at = f"session-{number}", FIRST_MS + number * 100_000
            await rig.send(
                prompt(session, root, f"Use it: {text}", at),
                ran(session, root, f"echo {text}", text, at + 1, "c1"),
                ran(session, root, "head", "x" * 1490 + " " + text + " " + "y" * 5000 + " " + text, at + 2),
                ran(session, root, "fail", "error: " + text, at + 3, failed=True),
                edited(session, root, "x.py", at + 4),
                ended(session, root, at + 5),
            )
            await rig.ingest.handlers[WritePage](
                WritePage(path=f"notes/n{number}", title=f"N {name}", body=text, place=place, tags=(text,))
            )
        await rig.ingest.settle()
    found = []
    for path in rig.paths.data.rglob("*"):
        if path.is_file():
            data = _unpacked(path)
            found += [(str(path), name) for name, secret in SHAPES.items() if secret.encode() in data]
    assert found == []


def _unpacked(path: Path) -> bytes:
    import zlib

    data = path.read_bytes()
    loose = "objects" in path.parts and len(path.parent.name) == 2
    return zlib.decompress(data) if loose else data
