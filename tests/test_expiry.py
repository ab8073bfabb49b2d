"""Notes that stop holding: what frontmatter says, who still sees them, and what becomes of pages of the wiki."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recalld.actors.query import documents
from recalld.memory.notes import expiry
from recalld.memory.notes.parse import parse
from recalld.protocol.envelope import Invalid
from recalld.protocol.messages.capture import Brief, PageLog, Place, ReadPage, WritePage
from recalld.protocol.messages.recall import Filters, Neighbours, NoteText, ReadNote, Recent, Related

from .asking import desk
from .capturing import FIRST_MS, ended, prompt, running
from .indexing import Index


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("2026-03-01", "2026-03-01"),
        ("2030/1/2", "2030-01-02"),
        ("2026-03-01T18:00Z", "2026-03-01T18:00:00Z"),
        ("2026-03-01 18:00:30+02:00", "2026-03-01T16:00:30Z"),
        ("2026-03-01t18:00", "2026-03-01T18:00:00Z"),
        ("2026-02-30", ""),
        ("2026-03-01T25:00", ""),
        ("0001-01-01T00:00+05:00", ""),
        ("soon", ""),
        ("", ""),
    ],
)
def test_one_form(text: str, known: str) -> None:
    """A date or an instant in UTC; anything else states nothing."""
    assert expiry.stated(text) == known
    assert expiry.stated(known) == known


def test_a_date_holds_until_its_day_has_ended() -> None:
    """The whole day counts, in UTC; an instant is over when it has come."""
    midnight = int(datetime.datetime(2026, 3, 2, tzinfo=datetime.UTC).timestamp() * 1000)
    assert not expiry.is_past("2026-03-01", midnight - 1)
    assert expiry.is_past("2026-03-01", midnight)
    assert not expiry.is_past("2026-03-02T00:00:00Z", midnight - 1)
    assert expiry.is_past("2026-03-02T00:00:00Z", midnight)
    assert not expiry.is_past("", midnight)
    assert not expiry.is_past("9999-12-31", midnight)


@given(st.text(max_size=40))
def test_anything_may_stand_there(text: str) -> None:
    """No text in frontmatter stops a note from being read."""
    assert isinstance(expiry.is_past(text, FIRST_MS), bool)


@pytest.mark.parametrize("field", ["expires", "expires_at", "expires-at"])
def test_either_name_is_understood(field: str) -> None:
    note, _ = parse("n.md", f"---\n{field}: 2026-03-01T18:00:00Z\n---\nText.\n".encode())
    assert note.expires == "2026-03-01T18:00:00Z"


FILES = {
    "over.md": "---\ntitle: Kite permit\nexpires: 2020-01-01\npinned: true\n---\nThe kite permit is 17.\n",
    "holds.md": "---\ntitle: Kite shop\nexpires: 2999-01-01\n---\nThe kite shop opens at nine, see [[over]].\n",
    "plain.md": "# Kite club\n\nThe kite club meets on Mondays, see [[over]].\n",
}


async def test_a_note_that_is_over_is_not_found(tmp_path: Path) -> None:
    """Not by any stream, not as a neighbour, not as recent, pinned or not; by its name it is read, and its file stays."""
    index = Index(tmp_path)
    index.write_all(FILES)
    index.embed()
    async with desk(index) as asked:
        for streams in (("text",), ("vector",), ("entity", "text", "graph", "vector")):
            found = await asked.paths("kite permit", streams=streams, k=5)
            assert set(found) == {"holds.md", "plain.md"}, streams
        assert await asked.paths("kite permit", as_of="2019-06-01") == []
        assert "over.md" in await asked.paths("kite permit", k=5, filters=Filters(expired=True))
        view = asked.live.view
        near = documents.related(view, Related(ref="plain.md"))
        assert isinstance(near, Neighbours)
        assert [item.path for item in near.items] == ["holds.md"]
        assert {item.path for item in documents.recent(view, Recent()).items} == {"holds.md", "plain.md"}
        read = documents.read_note(index.conn, view, ReadNote(ref="over.md"))
        assert isinstance(read, NoteText)
        assert "17" in read.text
        assert (index.vault / "over.md").exists()
        index.write("over.md", "# Kite permit\n\nThe kite permit is 18.\n")
        assert "over.md" in await asked.paths("kite permit", k=5)
    index.close()


async def test_the_past_knows_what_held_then(tmp_path: Path) -> None:
    """as_of asks with the clock of that time: what has expired since was still there."""
    index = Index(tmp_path)
    index.now_ms = 1_577_836_800_000  # 2020-01-01
    index.write("over.md", "---\nexpires: 2020-03-01\n---\nThe kite permit is 17.\n")
    index.embed()
    async with desk(index) as asked:
        assert await asked.paths("kite permit") == []
        assert await asked.paths("kite permit", as_of="2020-02-01") == ["over.md"]
        assert await asked.paths("kite permit", as_of="2020-04-01") == []
    index.close()


async def test_pages_that_are_over_leave_the_wiki_and_stay_in_git(short_tmp: Path) -> None:
    """Removed with a message that says why, pinned or not; the last version is one `page log` away. Others stay."""
    async with running(short_tmp) as rig:
        place = Place(cwd=str(rig.checkout()))
        write = rig.ingest.handlers[WritePage]
        await write(WritePage(path="notes/over", body="Old gear.", place=place, pinned=True, expires="2020-01-01"))
        await write(WritePage(path="notes/instant", body="Older gear.", place=place, expires="2020-01-01T10:00+02:00"))
        await write(WritePage(path="notes/holds", body="New gear.", place=place, expires="2999-01-01"))
        await write(WritePage(path="notes/expires", body="A page that expires: never.", place=place))
        assert await rig.ingest.pages.expire(FIRST_MS) == 2
        assert await rig.ingest.pages.expire(FIRST_MS) == 0
        await rig.ingest.settle()
        assert set(rig.pages()) == {"acme-widgets/notes/holds.md", "acme-widgets/notes/expires.md"}
        log = await rig.ingest.handlers[PageLog](PageLog(path="notes/over", place=place))
        assert len(log.versions) == 2
        assert "it expired (2020-01-01)" in rig.git("log", "-3")
        assert "Old gear." in rig.git("log", "-p", "--", "acme-widgets/notes/over.md")
        current = rig.rows("SELECT path FROM notes WHERE valid_to IS NULL ORDER BY path")
        assert [path for (path,) in current] == ["acme-widgets/notes/expires.md", "acme-widgets/notes/holds.md"]


async def test_a_page_that_was_prolonged_stays(short_tmp: Path) -> None:
    """A person who moves the date while nobody looks keeps the page: the file counts, not what the index knows of it."""
    async with running(short_tmp) as rig:
        place = Place(cwd=str(rig.checkout()))
        await rig.ingest.handlers[WritePage](WritePage(path="notes/a", body="Gear.", place=place, expires="2020-01-01"))
        file = rig.paths.wiki / "acme-widgets/notes/a.md"
        file.write_text(file.read_text().replace("2020-01-01", "2999-01-01"))
        assert await rig.ingest.pages.expire(FIRST_MS) == 0
        assert file.exists()


async def test_a_date_that_is_none_is_refused(short_tmp: Path) -> None:
    """A page would otherwise stay for ever although its writer meant it to go."""
    async with running(short_tmp) as rig:
        place = Place(cwd=str(rig.checkout()))
        with pytest.raises(Invalid, match="'next week' is no ISO date"):
            await rig.ingest.handlers[WritePage](WritePage(path="notes/a", body="x", place=place, expires="next week"))
        found = await rig.ingest.handlers[ReadPage](ReadPage(path="notes/a", place=place))
        assert found.not_found


async def test_a_briefing_leaves_out_what_is_over(short_tmp: Path) -> None:
    """Neither as a rule nor as news, in the minute before the page is removed too."""
    async with running(short_tmp) as rig:
        root = str(rig.checkout())
        place = Place(cwd=root, host="claude", session="next")
        await rig.send(prompt("one", root, "Fix the gear"), ended("one", root, FIRST_MS + 1000))
        for path in ("rules/over", "notes/over"):
            await rig.ingest.handlers[WritePage](
                WritePage(path=path, body="Old gear.", place=place, expires="2020-01-01")
            )
        await rig.ingest.settle()
        told = await rig.ingest.handlers[Brief](Brief(place=place))
        assert "Fix the gear" in told.text
        assert "over" not in told.text
