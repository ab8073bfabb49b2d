"""
Every host's recorded payloads through the real door, compared byte for byte with page, handoff and briefing in golden/.

``RECALLD_TEST_GOLDEN=write pytest tests/test_capture_goldens.py`` writes them anew; the diff is then read by a person.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from recalld.protocol.messages.capture import Brief, EndSession, HandoffList, Place

from .capturing import FIRST_MS, Rig, running, wire

GOLDEN = Path(__file__).parent / "golden"
HOSTS = {
    "claude": "hooks.claude", "codex": "hooks.codex", "gemini": "hooks.gemini", "cursor": "hooks.cursor",
    "vscode": "hooks.vscode", "copilot": "hooks.copilot_cli", "opencode": "events.opencode",
}  # fmt: skip
COPILOT_EVENTS = ("sessionStart", "userPromptSubmitted", "postToolUse", "sessionEnd")
"""Its payloads carry no event name: the installed hook passes it on the command line."""


def payloads(host: str) -> list[dict[str, Any]]:
    text = (GOLDEN / "hooks" / f"{HOSTS[host]}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines() if line.strip()]


async def feed(rig: Rig, host: str) -> None:
    """All events of a host, a second apart; hosts that never send an end are ended by hand."""
    lines = []
    for number, payload in enumerate(payloads(host)):
        event = COPILOT_EVENTS[number] if host == "copilot" else ""
        lines.append(wire(payload, host, event, FIRST_MS + number * 1000))
    answers = await rig.send(*lines)
    assert all(answer.get("ok") for answer in answers), answers
    await rig.ingest.settle()
    await end_all(rig)


async def end_all(rig: Rig) -> None:
    """End by hand what its host does not end."""
    for (session,) in rig.rows("SELECT id FROM sessions WHERE ended_ms = 0"):
        await rig.ingest.desk.end(EndSession(session=session))
    await rig.ingest.settle()


def compare(name: str, found: str) -> None:
    file = GOLDEN / name
    if os.environ.get("RECALLD_TEST_GOLDEN") == "write":
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(found)
    assert found == file.read_text(), f"{name} differs: read the difference, then write it anew if it is right"


@pytest.mark.parametrize("host", HOSTS)
async def test_a_hosts_events_become_page_handoff_and_briefing(short_tmp: Path, host: str) -> None:
    """One session page, one automatic handoff, and what the next agent is told: as the golden files say."""
    async with running(short_tmp) as rig:
        await feed(rig, host)
        [(path, page)] = rig.pages().items()
        compare(f"{host}/page.md", f"{path}\n\n{page}")
        place = Place(cwd="/home/dev/acme-widgets", host="another", session="next")
        [handoff] = (await rig.ingest.desk.list_handoffs(HandoffList(place=place))).items
        # Times of arrival are the only thing that differs from run to run, where the end was asked for by hand.
        shown = msgspec.to_builtins(msgspec.structs.replace(handoff, at_ms=0))
        compare(f"{host}/handoff.json", json.dumps(shown, indent=2, ensure_ascii=False) + "\n")
        briefing = await rig.ingest.handlers[Brief](Brief(place=place))
        assert briefing.handoff == handoff.id
        compare(f"{host}/briefing.md", briefing.text + "\n")
        again = await rig.ingest.handlers[Brief](Brief(place=place))
        assert again.text == briefing.text


def timeless(page: str) -> str:
    """A page without dates and durations: through the real client events happen now."""
    page = re.sub(r"\d{4}-\d\d-\d\d(T[\d:]+Z)?", "DATE", page)
    return re.sub(r",? over [\dhms ]+\.", ".", page)


@pytest.mark.process
@pytest.mark.parametrize("host", HOSTS)
async def test_the_real_client_gives_the_same_page(short_tmp: Path, host: str) -> None:
    """The hook client as a host runs it, once per event: the golden page again, and nothing printed but what is due."""
    from recalld.clients import hook

    async with running(short_tmp) as rig:
        environ = {"HOME": "/home/dev", "RECALLD_DATA": str(rig.paths.data), "RECALLD_RUNTIME": str(rig.paths.runtime)}
        for number, payload in enumerate(payloads(host)):
            event = [COPILOT_EVENTS[number]] if host == "copilot" else []
            client = await asyncio.create_subprocess_exec(
                sys.executable, "-I", "-S", hook.__file__, host, *event, env=environ, cwd="/",
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            await client.communicate(json.dumps(payload).encode())
            assert client.returncode == 0
        await rig.ingest.spool.drain()  # on a busy machine the client may have given up waiting
        await rig.ingest.settle()
        await end_all(rig)
        [(path, page)] = rig.pages().items()
        assert timeless(f"{path}\n\n{page}") == timeless((GOLDEN / host / "page.md").read_text())


async def test_the_same_work_seen_by_all_hosts_is_one_project(short_tmp: Path) -> None:
    """Seven agents in one folder: seven sessions, one project, and nobody's email anywhere."""
    async with running(short_tmp) as rig:
        for host in HOSTS:
            await feed(rig, host)
        assert {project for (project,) in rig.rows("SELECT project FROM sessions")} == {"acme-widgets"}
        assert len(rig.rows("SELECT id FROM sessions")) == len(HOSTS)
        assert len(rig.pages()) == len(HOSTS)
