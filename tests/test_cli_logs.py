"""Logs and metrics as a person and a collector see them."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from recalld.actors.logs import JsonLines, LastProblem, configure
from recalld.clients.cli.completion import completion
from recalld.clients.cli.logs import Tail, exposition
from recalld.clients.cli.main import recalld
from recalld.protocol.config import Log
from recalld.protocol.messages.control import ActorStatus, QueueStat, Status, Vitals


def line(at: float, actor: str, text: str, level: str = "info", **more: str) -> str:
    return json.dumps({"at": at, "level": level, "actor": actor, "text": text, **more}) + "\n"


def test_logs_are_merged_in_time_and_made_safe(tmp_path: Path) -> None:
    """Lines of all processes in order; half-written ones are skipped; escapes are shown, not obeyed."""
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "writer.jsonl").write_text(line(2, "writer", "second \x1b[31m") + '{"at": 3, "te')
    (folder / "query.jsonl").write_text(line(1, "query", "first") + line(3, "query", "third", "error", trace="t1"))
    result = CliRunner().invoke(recalld, ["--data", str(tmp_path), "logs"])
    assert re.findall(r": (\w+)", result.output) == ["first", "second", "third"]
    assert "\x1b" not in result.output
    only = CliRunner().invoke(recalld, ["--data", str(tmp_path), "logs", "--trace", "t1"])
    assert len(only.output.splitlines()) == 1
    worse = CliRunner().invoke(recalld, ["--data", str(tmp_path), "logs", "--level", "warning"])
    assert len(worse.output.splitlines()) == 1


def test_following_survives_rotation(tmp_path: Path) -> None:
    """What is appended is seen once, also when the file was replaced by a new one."""
    path = tmp_path / "writer.jsonl"
    path.write_text(line(1, "writer", "old"))
    tail = Tail(path)
    assert list(tail.new()) == []
    with path.open("a") as log:
        log.write(line(2, "writer", "new"))
    assert [entry["text"] for entry in tail.new()] == ["new"]
    path.rename(tmp_path / "writer.jsonl.1")
    path.write_text(line(3, "writer", "newer"))
    assert [entry["text"] for entry in tail.new()] == ["newer"]


def test_a_line_that_is_being_written_is_seen_once_and_whole(tmp_path: Path) -> None:
    """Following starts where the history ended, and waits for the end of a line."""
    path = tmp_path / "writer.jsonl"
    path.write_text(line(1, "writer", "old"))
    tail = Tail(path)
    late = line(2, "writer", "late")
    with path.open("a") as log:
        log.write(late + line(3, "writer", "torn")[:20])
    assert [entry["text"] for entry in tail.history()] == ["old", "late"]
    assert list(tail.new()) == []
    with path.open("a") as log:
        log.write(line(3, "writer", "torn")[20:])
    assert [entry["text"] for entry in tail.new()] == ["torn"]


def test_log_files_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that logs without end fills three files of the configured size, and no more."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        problem = configure("writer", tmp_path, Log(max_mb=1))
        log = logging.getLogger("recalld.test")
        for _ in range(400):
            log.info("x" * 10_000)
        log.warning("something is wrong")
        assert problem.text == "something is wrong"
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3_100_000
    finally:
        for handler in root.handlers:
            handler.close()
        root.handlers[:], root.level = before


def test_a_log_line_is_one_line(tmp_path: Path) -> None:
    """Newlines in a message or a traceback stay inside the JSON."""
    record = logging.LogRecord("n", logging.ERROR, "f", 1, "two\nlines", None, None)
    assert len(JsonLines("x").format(record).splitlines()) == 1


def test_metrics_follow_the_text_format() -> None:
    """Each sample line has a name, perhaps labels, and a number; each metric is described once."""
    vitals = Vitals(queues={'od"d': QueueStat(depth=1, peak=2, limit=3, policy="wait")}, figures={"events_total": 7})
    actor = ActorStatus(pid=1, state="RUNNING", generation=2, restarts=1, vitals=vitals)
    status = Status(version="1", pid=1, uptime_s=2, data="", runtime="", actors={"writer": actor, "query": actor})
    text = exposition(status)
    samples = [entry for entry in text.splitlines() if not entry.startswith("#")]
    assert all(
        re.fullmatch(r'[a-z_]+(\{[a-z]+="(?:[^"\\]|\\.)*"(,[a-z]+="(?:[^"\\]|\\.)*")*\})? [0-9.e+-]+', s)
        for s in samples
    )
    helps = re.findall(r"^# HELP (\S+)", text, re.M)
    assert len(helps) == len(set(helps))
    assert "recalld_writer_events_total 7" in text
    assert "recalld_up 0" in exposition(None)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell: str) -> None:
    """Each shell gets a script that calls the command."""
    result = CliRunner().invoke(recalld, ["completion", shell])
    assert result.exit_code == 0
    assert "_RECALLD_COMPLETE" in result.output
    assert completion.name == "completion"


def test_a_line_with_a_strange_file_name_is_kept() -> None:
    """A name that is not UTF-8 is shown by its bytes; it costs neither the line nor what status tells."""
    record = logging.LogRecord("recalld", logging.WARNING, "", 0, "cannot read caf\udce9.md", (), None)
    assert json.loads(JsonLines("watcher").format(record))["text"] == "cannot read caf\\udce9.md"
    problem = LastProblem()
    problem.emit(record)
    assert problem.text.encode()
