"""From the socket to journal, index, page and handoff; and what a crash between any two of them leaves."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from recalld.actors.writer import finisher as finisher_module
from recalld.actors.writer import reception
from recalld.actors.writer import spool as spool_module
from recalld.actors.writer.records import captured
from recalld.memory.capture import events, ledger
from recalld.protocol.config import Capture
from recalld.protocol.messages import capture as messages
from recalld.protocol.messages.capture import EndSession, ImportEvents, Place, PurgeSession, SessionEvents, SessionList

from .capturing import FIRST_MS, edited, ended, prompt, ran, running, started, wire


async def test_handlers_are_the_members_of_the_union(short_tmp: Path) -> None:
    """Every CaptureRequest has a handler, and nothing else has."""
    async with running(short_tmp) as rig:
        assert set(rig.ingest.handlers) == set(messages.CaptureRequest.__args__)


async def test_an_acknowledged_event_is_in_the_journal_and_soon_in_the_index(short_tmp: Path) -> None:
    """The acknowledgement carries the seq of a durable record; the row follows."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        [answer] = await rig.send(ran("s1", root, "make test"))
        assert answer["ok"]
        assert [seq for seq, _ in rig.ingest.journal.read()] == [answer["seq"]]
        await rig.ingest.settle()
        assert rig.rows("SELECT seq, session, project, kind FROM events") == [
            (answer["seq"], "s1", "acme-widgets", "post-tool-use")
        ]
        page = await rig.ingest.desk.list_events(SessionEvents(query="make"))
        assert page.items == () or page.items[0].command == "make test"


async def test_a_caller_reads_what_it_sent(short_tmp: Path) -> None:
    """Acknowledged, then asked for at once: it is there, though the index takes entries in batches."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        for number in range(10):
            await rig.send(prompt(f"session-{number}", root, f"Request {number}", FIRST_MS + number * 10_000))
            listed = await rig.ingest.desk.list_sessions(SessionList())
            assert len(listed.items) == number + 1


async def test_one_event_through_two_configurations_is_stored_once(short_tmp: Path) -> None:
    """A call id tells them apart; without one, place, kind and text within two seconds do."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        first, again, other = await rig.send(
            prompt("s1", root, "Fix the gear"),
            prompt("s1", root, "Fix the gear", FIRST_MS + 900),
            prompt("s1", root, "Fix the axle"),
        )
        assert (first["ok"], again["duplicate"], other["ok"]) == (True, True, True)
        await rig.ingest.settle()
        assert len(rig.rows("SELECT * FROM events")) == 2


async def test_bad_lines_are_answered_and_do_not_end_the_connection(short_tmp: Path) -> None:
    """What is no hook line gets an error on its own line; the next one is taken."""
    async with running(short_tmp) as rig:
        bad, noise, good = await rig.send(
            b"{nope\n",
            wire({"session_id": "s", "hook_event_name": "MessageDisplay"}),
            prompt("s1", rig.checkout(), "Hi there"),
        )
        assert bad["error"] == "invalid"
        assert noise["stored"] is False
        assert good["seq"]


async def test_pipelined_lines_are_acknowledged_in_order(short_tmp: Path) -> None:
    """A client may send many lines at once; a duplicate's quick answer does not overtake a slow one."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        lines = [
            prompt("s1", root, f"Request number {number // 2}", FIRST_MS + number // 2 * 5000) for number in range(200)
        ]
        reader, writer = await asyncio.open_unix_connection(str(rig.paths.socket("events")))
        writer.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        answers = [json.loads(await reader.readline()) for _ in lines]
        writer.close()
        await writer.wait_closed()
        assert [bool(answer.get("duplicate")) for answer in answers] == [False, True] * 100
        seqs = [answer["seq"] for answer in answers[::2]]
        assert seqs == sorted(seqs)


async def test_beyond_its_limit_the_door_says_overloaded(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1024 in flight, then a retry hint; nothing that was refused is stored, what was accepted is."""
    monkeypatch.setattr(reception, "IN_FLIGHT", 0)
    async with running(short_tmp) as rig:
        [answer] = await rig.send(prompt("s1", rig.checkout(), "Fix the gear"))
        assert answer["error"] == "overloaded"
        assert answer["retry_after_ms"] > 0
        assert list(rig.ingest.journal.read()) == []


async def test_a_session_becomes_a_page_and_a_handoff(short_tmp: Path) -> None:
    """The whole walk: prompt, command, edit, end; the page is in git, the handoff is open."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        await rig.send(
            started("s1", root), prompt("s1", root, "Why does the gear slip?", FIRST_MS + 1000),
            ran("s1", root, "make test", "1 failed: gear", FIRST_MS + 2000, failed=True),
            edited("s1", root, "gear.py", FIRST_MS + 3000),
            ran("s1", root, "make test", "ok", FIRST_MS + 4000), ended("s1", root, FIRST_MS + 5000),
        )  # fmt: skip
        await rig.ingest.settle()
        [(path, text)] = rig.pages().items()
        assert path == "acme-widgets/sessions/2026-11-30-why-does-the-gear-slip-s1.md"
        assert "gear.py" in text
        assert rig.git("log", "--format=%an|%s") == f"recalld|session {path}\n"
        assert rig.git("status", "--porcelain") == ""
        [(state,)] = rig.rows("SELECT state FROM handoffs")
        assert state == "open"
        [(page,)] = rig.rows("SELECT page FROM sessions")
        assert page == path
        assert rig.rows("SELECT path FROM notes WHERE valid_to IS NULL") == [(path,)]


async def test_an_empty_session_leaves_no_page_and_no_handoff(short_tmp: Path) -> None:
    """Open and close: nothing is written."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        await rig.send(started("s1", root), ended("s1", root, FIRST_MS + 1000))
        await rig.ingest.settle()
        assert rig.pages() == {}
        assert rig.rows("SELECT * FROM handoffs") == []


async def test_a_resumed_session_rewrites_its_page(short_tmp: Path) -> None:
    """The same file, with everything; one open handoff, that of the second end."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        await rig.send(prompt("s1", root, "Fix the gear"), ended("s1", root, FIRST_MS + 1000))
        await rig.ingest.settle()
        before = set(rig.pages())
        await rig.send(
            started("s1", root, FIRST_MS + 9000, "resume"),
            prompt("s1", root, "And the axle", FIRST_MS + 10_000),
            ended("s1", root, FIRST_MS + 11_000),
        )
        await rig.ingest.settle()
        [(path, text)] = rig.pages().items()
        assert {path} == before
        assert "And the axle" in text
        assert sorted(state for (state,) in rig.rows("SELECT state FROM handoffs")) == ["expired", "open"]


async def test_a_persons_edit_of_a_page_is_kept(short_tmp: Path) -> None:
    """They changed the page; the session ends again; their words stand, and are theirs in history."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        await rig.send(prompt("s1", root, "Fix the gear"), ended("s1", root, FIRST_MS + 1000))
        await rig.ingest.settle()
        [path] = rig.pages()
        (rig.paths.wiki / path).write_text("# Mine\n\nThe gear was made of cheese.\n")
        await rig.send(prompt("s1", root, "And the axle", FIRST_MS + 10_000), ended("s1", root, FIRST_MS + 11_000))
        await rig.ingest.settle()
        await rig.ingest.wiki.sweep()
        assert rig.pages() == {path: "# Mine\n\nThe gear was made of cheese.\n"}
        assert "recalld" not in rig.git("log", "-1", "--format=%an")


async def test_idle_sessions_are_ended(short_tmp: Path) -> None:
    """No end ever came: after idle_end_min it is written, with the time of the last event."""
    async with running(short_tmp) as rig:
        await rig.send(prompt("s1", rig.checkout(), "Fix the gear"))
        await rig.ingest.settle()
        await rig.ingest.ends.end_overdue(rig.env.config.capture)
        await rig.ingest.settle()
        assert rig.rows("SELECT ended_ms FROM sessions") == [(FIRST_MS,)]
        assert len(rig.pages()) == 1


async def test_end_session_by_hand(short_tmp: Path) -> None:
    """`session end` writes the page; ending twice is one end."""
    async with running(short_tmp) as rig:
        await rig.send(prompt("session-one", rig.checkout(), "Fix the gear"))
        await rig.ingest.settle()
        await rig.ingest.desk.end(EndSession(session="session-one"))
        await rig.ingest.desk.end(EndSession(session="session-one"))
        await rig.ingest.settle()
        assert len(rig.pages()) == 1
        listed = await rig.ingest.desk.list_sessions(SessionList())
        assert [(each.id, each.title, each.page != "") for each in listed.items] == [
            ("session-one", "Fix the gear", True)
        ]


async def test_a_restart_finds_everything_again(short_tmp: Path) -> None:
    """Index and journal agree after a stop; nothing is applied twice."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        await rig.send(prompt("s1", root, "Fix the gear"), ran("s1", root, "make"))
        await rig.ingest.settle()
        before = rig.rows("SELECT * FROM sessions")
    async with running(short_tmp) as rig:
        assert rig.rows("SELECT * FROM sessions") == before
        [again] = await rig.send(ran("s1", root, "make again", at_ms=FIRST_MS + 1))
        await rig.ingest.settle()
        assert rig.rows("SELECT events FROM sessions") == [(3,)]
        assert again["seq"] == 3


async def test_a_lost_index_is_rebuilt_and_compares_equal(short_tmp: Path) -> None:
    """Sessions, events and handoffs out of the journal alone are those that were there."""
    tables = ("events", "sessions", "handoffs", "offers", "projects")
    async with running(short_tmp) as rig:
        root = rig.checkout()
        await rig.send(
            prompt("s1", root, "Fix the gear"), ran("s1", root, "make"), ended("s1", root, FIRST_MS + 1000),
            started("s2", root, FIRST_MS + 2000), prompt("s2", root, "Go on with it", FIRST_MS + 3000),
        )  # fmt: skip
        await rig.ingest.settle()
        before = {table: rig.rows(f"SELECT * FROM {table}") for table in tables}
        found = rig.rows("SELECT count(*) FROM event_fts WHERE event_fts MATCH 'gear'")
    for file in rig.paths.data.glob("recalld.sqlite*"):
        file.unlink()
    async with running(short_tmp) as rig:
        await rig.ingest.settle()
        assert {table: rig.rows(f"SELECT * FROM {table}") for table in tables} == before
        assert rig.rows("SELECT count(*) FROM event_fts WHERE event_fts MATCH 'gear'") == found


@pytest.mark.parametrize("step", ["journal", "apply", "page", "finished"])
async def test_a_crash_between_any_two_steps_heals(short_tmp: Path, step: str) -> None:
    """Cut off after the journal, the index, the page or before the handoff: the next start ends with all of them, once."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        if step == "page":
            rig.ingest.index.put = _dies  # type: ignore[method-assign]
        if step == "finished":
            put = rig.ingest.recorder.put

            async def not_finished(entry: ledger.Entry) -> object:
                return await (_dies() if isinstance(entry, ledger.Finished) else put(entry))

            rig.ingest.recorder.put = not_finished  # type: ignore[method-assign, assignment]
        if step == "apply":
            rig.ingest.finisher.due = lambda work: None  # type: ignore[method-assign]
        await rig.send(prompt("s1", root, "Fix the gear"), ran("s1", root, "make"), ended("s1", root, FIRST_MS + 1000))
        await rig.ingest.recorder.settle()
        if step in ("page", "finished"):
            await rig.ingest.finisher.settle()
    if step == "journal":
        for file in rig.paths.data.glob("recalld.sqlite*"):
            file.unlink()
    async with running(short_tmp) as rig:
        await rig.ingest.settle()
        assert len(rig.pages()) == 1
        assert [state for (state,) in rig.rows("SELECT state FROM handoffs")] == ["open"]
        assert rig.rows("SELECT count(*) FROM events") == [(3,)]
        assert rig.git("status", "--porcelain") == ""
        assert rig.git("log", "--format=%an").split() == ["recalld"]


async def _dies(*arguments: object) -> object:
    raise RuntimeError("cut off here")


async def test_spooled_events_are_taken_in_once_and_in_order(short_tmp: Path) -> None:
    """Files that were left while nobody ran; also twice, also one that was delivered by socket."""
    spool = short_tmp / "d" / "spool"
    spool.mkdir(parents=True)
    root = short_tmp / "acme-widgets"
    lines = [
        prompt("s1", root, "Fix the gear"),
        ran("s1", root, "make", at_ms=FIRST_MS + 1000),
        ended("s1", root, FIRST_MS + 2000),
    ]
    for number, line in enumerate(lines):
        (spool / f"{FIRST_MS + number}-1-{number}.json").write_text(json.dumps(line))
    (spool / f"{FIRST_MS}-1-99.json").write_text(json.dumps(lines[1]))
    (spool / "1-1-1.json").write_text("{not json")
    async with running(short_tmp) as rig:
        rig.checkout()
        await rig.ingest.spool.drain()
        await rig.ingest.settle()
        assert rig.rows("SELECT kind FROM events ORDER BY seq")[0] == ("user-prompt",)
        assert len(rig.rows("SELECT * FROM events")) == 3
        assert list(spool.glob("*.json")) == []
        assert (spool / "dead" / "1-1-1.json").exists()
        assert "hook client" in (spool / "dead" / "1-1-1.json.reason").read_text()
        figures = rig.ingest.figures()
        assert (figures["spool_waiting"], figures["dead_letters"]) == (0, 1)


@pytest.mark.parametrize("fault", ["deep", "ours"])
async def test_a_line_that_cannot_be_read_is_one_dead_letter(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fault: str
) -> None:
    """
    One that is nested too deep, and one that this program itself stumbles over: refused at the socket, set aside from the
    spool, and what comes behind it is taken in. Nothing that is written about it quotes it.
    """
    accept = events.accept

    def stumble(line: events.Wire, *more: Any) -> events.Event | events.Dropped:
        if "odd" in line.payload:
            raise ValueError(f"no such thing: {line.payload['odd']}")
        return accept(line, *more)

    monkeypatch.setattr(events, "accept", stumble)
    async with running(short_tmp) as rig:
        root = rig.checkout()
        good = prompt("s1", root, "Fix the gear")
        if fault == "ours":
            bad = json.dumps(wire({"odd": "hunter22"})).encode()
        else:
            bad = json.dumps(wire({"odd": 0})).replace("0}", "[" * 5000 + "]" * 5000 + "}").encode()
        refused, taken = await rig.send(bad + b"\n", good)
        assert (refused["error"], taken["ok"]) == ("invalid", True)
        later = ran("s1", root, "make", at_ms=FIRST_MS + 1000)
        rig.paths.spool.mkdir(exist_ok=True)
        (rig.paths.spool / "1-1-1.json").write_bytes(bad)
        (rig.paths.spool / "2-1-1.json").write_text(json.dumps(later))
        await rig.ingest.spool.drain()
        await rig.ingest.settle()
        assert len(rig.rows("SELECT seq FROM events")) == 2
        reason = (rig.paths.spool / "dead" / "1-1-1.json.reason").read_text()
        assert "Error" in reason
        assert "hunter22" not in reason + caplog.text + refused["text"]
        imported = await rig.ingest.handlers[ImportEvents](ImportEvents(lines=(bad.decode(),)))
        assert imported == messages.Imported(stored=0, duplicates=0, refused=1)


async def test_half_an_emoji_is_no_reason_to_lose_an_event(short_tmp: Path) -> None:
    """JavaScript cuts texts within a pair of surrogates and writes the half as an escape, which is no character."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        texts = {
            "cut \ud83d": "cut \ufffd",
            "\udc40 \ud83d\ud83d\udc40": "\ufffd \ufffd\U0001f440",
            "\\ud83d \ud83d": "\\ud83d \ufffd",
        }
        halves = [json.dumps(prompt(f"s{number}", root, text)).encode() for number, text in enumerate(texts)]
        [answer] = await rig.send(halves[0] + b"\n")
        assert answer["ok"]
        rig.paths.spool.mkdir(exist_ok=True)
        for number, line in enumerate(halves[1:]):
            (rig.paths.spool / f"{number}-1-1.json").write_bytes(line)
        await rig.ingest.spool.drain()
        await rig.ingest.settle()
        stored = [ledger.decode(record).event.text for _, record in rig.ingest.journal.read()]
        assert stored == list(texts.values())


async def test_what_cannot_be_done_in_the_spool_holds_up_nothing_else(
    short_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    Neither an unfinished file that cannot get its name, nor one that is larger than any event, nor a folder that cannot be
    listed ends the writer; what can be taken in is.
    """
    monkeypatch.setattr(spool_module, "SETTLE_S", -1.0)
    monkeypatch.setattr(spool_module, "MAX_FILE_BYTES", 4096)
    async with running(short_tmp) as rig:
        line = json.dumps(prompt("s1", rig.checkout(), "Fix the gear"))
        spool = rig.paths.spool
        (spool / "1-1-1.json").mkdir(parents=True)
        (spool / "1-1-1.json.tmp").write_text(line)
        (spool / "2-1-1.json.tmp").write_text(line)
        (spool / "3-1-1.json.tmp").write_text(line + " " * 4096)
        for _ in range(2):
            await rig.ingest.spool.drain()
        await rig.ingest.settle()
        assert rig.rows("SELECT session FROM events") == [("s1",)]
        assert sorted(path.name for path in spool.iterdir()) == ["1-1-1.json", "1-1-1.json.tmp", "dead"]
        assert (spool / "dead" / "3-1-1.json").exists()
        scan = os.scandir

        def refuse(path: Any) -> Any:
            if Path(path) == spool:
                raise PermissionError(13, "Permission denied", str(path))
            return scan(path)

        with monkeypatch.context() as patch:
            patch.setattr(os, "scandir", refuse)
            assert await rig.ingest.spool.drain() == 0
            assert "Permission denied" in rig.ingest.facts()["spool"]
        await rig.ingest.spool.drain()
        assert "spool" not in rig.ingest.facts()


async def test_imported_events_are_counted(short_tmp: Path) -> None:
    """A second import of the same lines stores nothing."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        lines = (json.dumps(prompt("s1", root, "Fix the gear")), json.dumps(ran("s1", root, "make")), "nope")
        first = await rig.ingest.handlers[ImportEvents](ImportEvents(lines=lines))
        await rig.ingest.settle()
        again = await rig.ingest.handlers[ImportEvents](ImportEvents(lines=lines))
        assert (first.stored, first.duplicates, first.refused) == (2, 0, 1)
        assert (again.stored, again.duplicates, again.refused) == (0, 2, 1)


async def test_a_purged_session_is_nowhere(short_tmp: Path) -> None:
    """
    Not in journal, database, wiki, git objects or what was left half written; the neighbour stays; a rebuild does not bring
    it back.
    """
    word = "xylophonist"
    async with running(short_tmp) as rig:
        root = rig.checkout()
        await rig.send(
            prompt("session-a", root, f"Fix the {word} gear"), ran("session-a", root, f"make {word}"),
            ended("session-a", root, FIRST_MS + 1000),
            prompt("session-b", root, "Fix the axle", FIRST_MS + 5000), ended("session-b", root, FIRST_MS + 6000),
        )  # fmt: skip
        await rig.ingest.settle()
        rig.paths.spool.mkdir(exist_ok=True)
        unfinished = rig.paths.spool / "1-1-1.json.tmp"
        unfinished.write_text(json.dumps(prompt("session-a", root, f"Fix the {word} gear")))
        # Of a process that was killed while it packed.
        (rig.paths.wiki / ".git" / "objects" / "pack" / "pack_git2_a1b2c3").write_bytes(word.encode())
        report = (await rig.ingest.desk.purge(PurgeSession(session="session-a"))).report
        assert report["journal"].startswith("5 ") or report["journal"].startswith("4 ")
        await rig.ingest.settle()
        assert len(rig.pages()) == 1
        assert rig.git("fsck", "--full") == ""
        assert rig.git("status", "--porcelain") == ""
    found = [path for path in rig.paths.data.rglob("*") if path.is_file() and word.encode() in _unpacked(path)]
    assert found == []
    for file in rig.paths.data.glob("recalld.sqlite*"):
        file.unlink()
    async with running(short_tmp) as rig:
        await rig.ingest.settle()
        assert rig.rows("SELECT id FROM sessions") == [("session-b",)]


def _unpacked(path: Path) -> bytes:
    import zlib

    data = path.read_bytes()
    if ".git" in path.parts and "objects" in path.parts and len(path.parent.name) == 2:
        return zlib.decompress(data)
    return data


async def test_a_full_folder_is_followed_by_one_per_month(short_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commits write a folder's tree anew: no folder of sessions grows without bound; a resumed session keeps its place."""
    monkeypatch.setattr(finisher_module, "FOLDER_LIMIT", 2)
    async with running(short_tmp) as rig:
        root = rig.checkout()
        for number in range(4):
            at_ms = FIRST_MS + number * 10_000
            await rig.send(
                prompt(f"sess-{number:08}", root, f"Request {number}", at_ms),
                ended(f"sess-{number:08}", root, at_ms + 1000),
            )
            await rig.ingest.settle()
        again = FIRST_MS + 90_000
        await rig.send(prompt("sess-00000003", root, "More", again), ended("sess-00000003", root, again + 1000))
        await rig.ingest.settle()
        folders = [path.rsplit("/", 1)[0].partition("/")[2] for path in rig.pages()]
        assert sorted(folders) == ["sessions", "sessions", "sessions/2026-11", "sessions/2026-11"]


async def test_marked_mode_keeps_nothing_without_a_marker(short_tmp: Path) -> None:
    """capture = "marked": no .recalld.toml, no event."""
    async with running(short_tmp, Capture(mode="marked")) as rig:
        root = rig.checkout()
        [refused] = await rig.send(prompt("s1", root, "Fix the gear"))
        assert refused["stored"] is False
        other = rig.checkout("marked")
        (other / ".recalld.toml").write_text('project = "widgets"\n')
        [taken] = await rig.send(prompt("s2", other, "Fix the gear"))
        await rig.ingest.settle()
        assert taken["seq"]
        assert rig.rows("SELECT project FROM sessions") == [("widgets",)]


async def test_the_journal_is_what_the_index_knows(short_tmp: Path) -> None:
    """Each record decodes as an entry; applied_seq is the last of them."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        await rig.send(prompt("s1", root, "Fix the gear"), ended("s1", root, FIRST_MS + 1000))
        await rig.ingest.settle()
        entries = [(seq, ledger.decode(record)) for seq, record in rig.ingest.journal.read()]
        assert [type(entry) for _, entry in entries] == [ledger.Happened, ledger.Happened, ledger.Finished]
        assert await rig.db.read(captured.applied_seq) == entries[-1][0]
        again = msgspec.json.decode(ledger.encode(entries[0][1]), type=ledger.Entry)
        assert again == entries[0][1]


async def test_a_place_knows_its_project(short_tmp: Path) -> None:
    """Named, marker, git, session, folder; home and / are nobody's."""
    async with running(short_tmp) as rig:
        root = rig.checkout()
        (root / "sub").mkdir()
        assert (await rig.ingest.places.of(Place(cwd=str(root / "sub")))).found_by == "git"
        assert (await rig.ingest.places.of(Place(cwd="/", project="org/repo"))).name == "repo"
        nowhere = await rig.ingest.places.of(Place(cwd="/"))
        assert (nowhere.guessed, nowhere.name) == (True, "")
        await rig.send(prompt("s1", root, "Fix the gear"))
        await rig.ingest.settle()
        wandered = await rig.ingest.places.of(Place(cwd="/tmp", session="s1"))
        assert (wandered.name, wandered.found_by) == ("acme-widgets", "session")
