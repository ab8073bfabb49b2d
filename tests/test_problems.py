"""What a person is told of problems: the newest one, whether it is of now, and that a log follows its configuration."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import Daemon, running, until
from recalld.clients import doctor
from recalld.clients.cli.status import report
from recalld.clients.doctor import Patient
from recalld.clients.problems import WELL_S, newest, standing
from recalld.clients.tui import panels
from recalld.protocol.messages.control import ActorStatus, Reload, RestartActor, State, Status, Vitals
from recalld.protocol.runtime import Paths

QUIET = "[embedder]\nmodel = 'none'\n"


def status(*told: tuple[str, str, float, State], last_error: str = "", age_s: float = 0.0) -> Status:
    """Processes by name, what they told, how long ago, and their state."""
    actors = {
        name: ActorStatus(
            pid=1, state=state, generation=1, restarts=0, last_error_age_s=ago,
            vitals=Vitals(facts={"last_error": text} if text else {}),
        )
        for name, text, ago, state in (("writer", "", 0.0, "RUNNING"), ("query", "", 0.0, "RUNNING"), *told)
    }  # fmt: skip
    return Status(
        version="1",
        pid=1,
        uptime_s=1,
        data="",
        runtime="",
        actors=actors,
        last_error=last_error,
        last_error_age_s=age_s,
    )


@pytest.mark.parametrize(
    ("found", "actor", "current"),
    [
        (status(), None, None),
        (status(("query", "old", 9000.0, "RUNNING"), ("watcher", "new", 3.0, "RUNNING")), "watcher", True),
        (status(("query", "logged", 3.0, "RUNNING"), ("writer", "the disk is full", 0.0, "RUNNING")), "writer", True),
        (status(("query", "old", WELL_S, "RUNNING")), "query", False),
        (status(("query", "cannot start", 9000.0, "COOLING"), last_error="x", age_s=900.0), "query", True),
        (status(last_error="query: RUNNING -> BACKOFF", age_s=WELL_S + 1), "supervisor", False),
    ],
)
def test_the_newest_problem_and_whether_it_is_of_now(found: Status, actor: str | None, current: bool | None) -> None:
    """What is so now comes first; what was logged is over after a while, but not of a process that does not run."""
    problem = newest(found)
    assert (problem and problem.actor, problem and problem.is_current) == (actor, current)


def test_what_stands_until_somebody_acts_is_shown_whatever_was_logged_since() -> None:
    """It is logged once; status and the status screen say it for as long as it is so."""
    found = status()
    found.actors["writer"].vitals.facts["spool_held"] = "a.json stays: delete it"
    assert standing(found) == ["a.json stays: delete it"]
    assert "a.json stays: delete it" in panels.advice(found)


def test_doctor_tells_what_is_wrong_with_the_wiki(tmp_path: Path) -> None:
    """Its repository, and its packing with what to do."""
    patient = Patient(Paths(tmp_path, tmp_path), tmp_path)
    assert list(doctor._wiki(patient)) == []
    patient.status = status()
    facts = patient.status.actors["writer"].vitals.facts
    facts |= {"wiki": "it was set aside", "wiki_packing": "damaged objects: ab/cd; put them back"}
    aside, packing = doctor._wiki(patient)
    assert (aside.level, aside.text) == ("warn", "it was set aside")
    assert (packing.text, packing.do) == ("damaged objects: ab/cd", "put them back")
    assert doctor._wiki in doctor.CHECKS


def test_scripts_and_screens_tell_old_from_current() -> None:
    """``last_error`` is of now; what is over stands apart, with its age."""
    now, past = status(("query", "bad", 60.0, "RUNNING")), status(("query", "bad", 7200.0, "RUNNING"))
    assert (report(now)["last_error"], report(now)["past_error"]) == ("bad", None)
    assert report(past)["last_error"] == ""
    assert (report(past)["past_error"]["age_s"], report(past)["actors"]["query"]["last_error_age_s"]) == (
        7200.0,
        7200.0,
    )
    assert panels.advice(now) == ["query, 1 min ago: bad"]
    assert panels.past_problem(now) == []
    assert panels.advice(past) == []
    assert panels.past_problem(past) == ["last error, query, 2 h ago, over since: bad"]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with running("[log]\nlevel = 'error'\n" + QUIET) as one:
        yield one


def told(daemon: Daemon, name: str) -> list[str]:
    """What a process has logged as worth knowing and no more."""
    lines = (daemon.paths.logs / f"{name}.jsonl").read_text().splitlines()
    return [line["text"] for line in map(json.loads, lines) if line["level"] == "info"]


@pytest.mark.process
def test_a_changed_log_level_is_taken_up(daemon: Daemon) -> None:
    """By running actors and by the supervisor, without a restart of either."""
    pids = daemon.pids()
    assert told(daemon, "watcher") == told(daemon, "supervisor") == []
    text = daemon.paths.config.read_text()
    daemon.paths.config.write_text(text.replace("'error'", "'info'") + "\n[watcher]\nsweep_s = 7.0\n")
    daemon.ask("control", Reload())
    until("the watcher logs by the new level", lambda: any("watching" in line for line in told(daemon, "watcher")))
    assert daemon.pids() == pids
    daemon.ask("control", RestartActor(name="embedder"))
    until("the supervisor too", lambda: any("embedder: " in line for line in told(daemon, "supervisor")))
    daemon.paths.config.write_text(text)


@pytest.mark.process
def test_what_was_logged_ages(daemon: Daemon) -> None:
    """Status says how long ago it was; a configuration that cannot be read is such a problem, of supervisor and actors."""
    until("all run", lambda: all(actor.state == "RUNNING" for actor in daemon.status().actors.values()))
    text = daemon.paths.config.read_text()
    daemon.paths.config.write_text(text + "\n[wathcer]\n")
    assert daemon.process is not None
    daemon.process.send_signal(signal.SIGHUP)
    old = until("it ages", lambda: (a := daemon.status().actors["writer"]).last_error_age_s > 0.5 and a)
    assert "wathcer" in old.vitals.facts["last_error"]
    until("and on", lambda: daemon.status().actors["writer"].last_error_age_s > old.last_error_age_s)
    found = until("the supervisor's too", lambda: (s := daemon.status()).last_error_age_s > 0.5 and s)
    assert "wathcer" in found.last_error
    assert "s ago:" in daemon.cli("status", check=False).stdout
    daemon.paths.config.write_text(text)
    findings = daemon.cli("doctor", check=False).stdout
    assert "last error, " in findings
    assert "wathcer" in findings
