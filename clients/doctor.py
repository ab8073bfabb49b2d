"""
What may be wrong with an installation, found by looking: each check gives findings with what to do about them.

Checks look and change nothing; `fix` of a finding is something that cannot lose anything.
"""

from __future__ import annotations

import os
import shutil
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from ..protocol import config as configuration
from ..protocol.client import ask_sync
from ..protocol.config import Config, ConfigError
from ..protocol.envelope import ProtocolError
from ..protocol.messages import AnyReply
from ..protocol.messages.common import Message
from ..protocol.messages.control import GetStatus, RestartActor, Status
from ..protocol.messages.embed import DescribeModel, Embed, Embeddings, ModelInfo
from ..protocol.messages.index import Maintain, Maintained
from ..protocol.messages.recall import DescribeIndex, IndexReport
from ..protocol.runtime import MAX_SOCKET_PATH_BYTES, SOCKETS, Paths
from .problems import problem_of

MIN_FREE_BYTES = 500_000_000
OLD_SPOOL_S = 600.0
CHECK_MS = 120_000
CALL_MS = 10_000
SHOWN = 20

Level = Literal["ok", "warn", "fail"]

PARAPHRASES = ("The deployment failed because the disk was full.", "There was no space left, so the release broke.")
NOISE = "Her grandmother's recipe for plum dumplings."


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the report. ``do`` says what to do; ``fix`` does it when that is safe."""

    level: Level
    name: str
    text: str
    do: str = ""
    fix: Callable[[], object] | None = None


class Patient:
    """What the checks look at: the folders, the configuration, the daemon if it runs."""

    def __init__(self, paths: Paths, home: Path) -> None:
        self.paths = paths
        self.home = home
        self.config: Config | None = None
        self.status: Status | None = None

    def ask(self, actor: str, message: Message, budget_ms: int = CALL_MS) -> AnyReply:
        return ask_sync(self.paths.socket(actor), message, budget_ms=budget_ms, role="doctor")


def examine(patient: Patient) -> Iterator[Finding]:
    """All findings, in the order in which one would look. A check that breaks is a finding itself."""
    for check in CHECKS:
        try:
            yield from check(patient)
        except Exception as error:
            name = check.__name__.removeprefix("_")
            yield Finding(level="warn", name=name, text=f"could not be checked: {type(error).__name__}: {error}")


def _python(_: Patient) -> Iterator[Finding]:
    version = ".".join(str(part) for part in sys.version_info[:3])
    if not os.path.isfile(sys.executable):
        text = f"the interpreter {sys.executable} is gone"
        yield Finding(
            level="fail", name="python", text=text, do="install recalld again, then `recalld install` for each agent"
        )
        return
    yield Finding(level="ok", name="python", text=f"{version} at {sys.executable}")
    try:
        import pysqlite3  # type: ignore[import-untyped]  # ships no types

        yield Finding(level="ok", name="sqlite", text=f"{pysqlite3.sqlite_version}")
    except ImportError:
        import sqlite3

        enough = sqlite3.sqlite_version_info >= (3, 43, 0)
        yield Finding(
            level="warn" if enough else "fail",
            name="sqlite",
            text=f"Python's own SQLite {sqlite3.sqlite_version} is used",
            do="" if enough else "pip install pysqlite3",
        )


def _folders(patient: Patient) -> Iterator[Finding]:
    paths = patient.paths
    if not paths.data.is_dir():
        yield Finding(
            level="warn", name="data folder", text=f"{paths.data} is not there yet", do="start with `recalld up FOLDER`"
        )
        return
    for folder in (paths.data, paths.runtime):
        yield from _private(folder)
    free = shutil.disk_usage(paths.data).free
    level: Level = "ok" if free >= MIN_FREE_BYTES else "fail"
    do = "" if level == "ok" else "make room: below this, events wait in the spool and pages are not written"
    yield Finding(level=level, name="disk space", text=f"{free / 1e9:.1f} GB free at {paths.data}", do=do)
    longest = max(len(os.fsencode(paths.socket(name))) for name in SOCKETS)
    if longest > MAX_SOCKET_PATH_BYTES:
        yield Finding(level="fail", name="sockets", text=f"a path of {longest} bytes", do="use a shorter --runtime")


def _private(folder: Path) -> Iterator[Finding]:
    if not folder.exists():
        return
    info = folder.stat()
    if info.st_uid != os.getuid():
        text = f"{folder} belongs to uid {info.st_uid}"
        yield Finding(level="fail", name="permissions", text=text, do="chown it to yourself, or use another folder")
    elif stat.S_IMODE(info.st_mode) & 0o077:
        yield Finding(
            level="warn",
            name="permissions",
            text=f"{folder} is open to others",
            do=f"chmod 700 {folder} (--fix does it)",
            fix=lambda: folder.chmod(0o700),
        )
    elif not os.access(folder, os.W_OK):
        yield Finding(
            level="fail", name="permissions", text=f"{folder} cannot be written", do="check its mode and mount"
        )
    else:
        yield Finding(level="ok", name="permissions", text=f"{folder} is private and writable")


def _configuration(patient: Patient) -> Iterator[Finding]:
    try:
        patient.config = configuration.load(patient.paths.config)
    except ConfigError as error:
        yield Finding(
            level="fail", name="configuration", text=str(error), do="correct that line; docs/configuration.md"
        )
        return
    yield Finding(level="ok", name="configuration", text=f"{patient.paths.config} is understood")


def _daemon(patient: Patient) -> Iterator[Finding]:
    try:
        reply = patient.ask("control", GetStatus())
    except ProtocolError as error:
        yield Finding(
            level="fail",
            name="daemon",
            text=f"does not run ({error.text})",
            do="`recalld up`, or `recalld service install`",
        )
        return
    assert isinstance(reply, Status)
    patient.status = reply
    for name, actor in reply.actors.items():
        if actor.state == "RUNNING":
            restarts = f", restarted {actor.restarts} times ({actor.last_exit})" if actor.restarts else ""
            yield Finding(level="ok", name=name, text=f"runs as {actor.pid}{restarts}")
            if (problem := problem_of(name, actor)) is not None:
                # What was logged may be over in a moment; what an actor says of itself is so until it says otherwise.
                level: Level = "ok" if problem.age_s else "warn"
                do = f"see `recalld logs {name}`" if problem.is_current else ""
                yield Finding(level=level, name=name, text=f"last error{problem.when}: {problem.text}", do=do)
        else:
            reason = actor.vitals.facts.get("last_error") or actor.why or actor.last_exit
            yield Finding(
                level="fail",
                name=name,
                text=f"{actor.state}: {reason}",
                do=f"see `recalld logs {name}`; `recalld restart {name}` tries again (--fix does it)",
                fix=lambda name=name: patient.ask("control", RestartActor(name=name)),  # type: ignore[misc]  # default binds
            )
    for name in SOCKETS:
        path = patient.paths.socket(name)
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            yield Finding(
                level="warn", name="sockets", text=f"{path} is open to others", do=f"chmod 600 {path} (--fix does it)",
                fix=lambda path=path: path.chmod(0o600),  # type: ignore[misc]  # default binds
            )  # fmt: skip


def _model(patient: Patient) -> Iterator[Finding]:
    if patient.status is None or patient.status.actors["embedder"].state != "RUNNING":
        return
    if patient.config is not None and patient.config.embedder.model == "none":
        yield Finding(level="warn", name="model", text="none is configured: recall works without vectors")
        return
    info = patient.ask("embedder", DescribeModel(), CHECK_MS)
    assert isinstance(info, ModelInfo)
    if info.problem:
        yield Finding(level="fail", name="model", text=info.problem, do="`recalld model list` shows what there is")
        return
    reply = patient.ask("embedder", Embed(texts=(*PARAPHRASES, NOISE)), CHECK_MS)
    assert isinstance(reply, Embeddings)
    same, other = similarities(reply)
    text = f"{info.name} ({info.sha256[:12]}, {info.dim} dimensions)"
    if same > other:
        yield Finding(
            level="ok", name="model", text=f"{text}: a paraphrase ({same:.2f}) is closer than noise ({other:.2f})"
        )
    else:
        yield Finding(
            level="fail", name="model", text=f"{text}: noise ({other:.2f}) is closer than a paraphrase ({same:.2f})",
            do="the model or its pooling is wrong: `recalld model use minilm`",
        )  # fmt: skip


def similarities(reply: Embeddings) -> tuple[float, float]:
    """Cosines of the first text to the second and to the third."""
    numbers = struct.unpack(f"<{3 * reply.dim}f", reply.vectors)
    rows = [numbers[start : start + reply.dim] for start in range(0, 3 * reply.dim, reply.dim)]
    same, other = (sum(a * b for a, b in zip(rows[0], row, strict=True)) for row in rows[1:])
    return same, other


def _vaults(patient: Patient) -> Iterator[Finding]:
    if patient.config is None:
        return
    if not patient.config.vaults:
        yield Finding(level="warn", name="vaults", text="no folder is watched", do="`recalld add FOLDER`")
    for vault in patient.config.vaults:
        root = os.path.expanduser(vault.path)
        if not os.path.isdir(root):
            do = "mount it again, or `recalld remove` it; its notes are kept until then"
            yield Finding(level="fail", name="vault", text=f"{root} is not there", do=do)
        elif not os.access(root, os.R_OK | os.X_OK):
            yield Finding(level="fail", name="vault", text=f"{root} cannot be read", do="check its permissions")
        else:
            yield Finding(level="ok", name="vault", text=f"{root} is readable")


def _index(patient: Patient) -> Iterator[Finding]:
    if patient.status is None:
        return
    writer = patient.status.actors["writer"].vitals
    if suspended := writer.facts.get("suspended"):
        yield Finding(level="warn", name="index", text=suspended, do="nothing is removed meanwhile; check the folder")
    if problem := writer.facts.get("history_problem"):
        do = "`git fsck` there tells more; `history.git = false` leaves the past of notes to what recalld saw itself"
        yield Finding(level="warn", name="history", text=problem, do=do)
    report = patient.ask("query", DescribeIndex(), CHECK_MS)
    assert isinstance(report, IndexReport)
    yield Finding(
        level="ok", name="index", text=f"{report.notes} notes, {report.chunks} passages, {report.vectors} vectors"
    )
    for path, problem in report.problems[:SHOWN]:
        yield Finding(level="warn", name="note", text=f"{path}: {problem}", do="it is indexed as far as it can be read")
    if len(report.problems) > SHOWN:
        yield Finding(level="warn", name="note", text=f"and {len(report.problems) - SHOWN} more notes with problems")
    checked = patient.ask("writer", Maintain(what="check"), CHECK_MS)
    assert isinstance(checked, Maintained)
    bad = {name: value for name, value in checked.report.items() if value != "ok"}
    if bad:
        text = ", ".join(f"{name}: {value}" for name, value in bad.items())
        yield Finding(level="fail", name="database", text=text, do="`recalld reindex` rebuilds it from your files")
    else:
        yield Finding(level="ok", name="database", text="integrity checks passed")
    last_ms = writer.figures.get("last_write_ms", 0)
    if last_ms:
        ago = max(0.0, time.time() - last_ms / 1000)
        yield Finding(level="ok", name="last write", text=f"{ago:.0f} s ago")


def _wiki(patient: Patient) -> Iterator[Finding]:
    facts = patient.status.actors["writer"].vitals.facts if patient.status else {}
    if problem := facts.get("wiki"):
        do = "the pages are as they were; `recalld logs writer` tells more"
        yield Finding(level="warn", name="wiki", text=problem, do=do)
    if problem := facts.get("wiki_packing"):
        text, _, do = problem.partition("; ")
        yield Finding(level="warn", name="wiki", text=text, do=do)


def _spool(patient: Patient) -> Iterator[Finding]:
    waiting = [path for path in patient.paths.spool.glob("*.json") if path.is_file()]
    held = [path.name for path in waiting if not os.access(path, os.R_OK)]
    told = patient.status.actors["writer"].vitals.facts.get("spool_held", "") if patient.status else ""
    if held or told:
        text, _, do = told.partition("; ")
        text = text or f"{', '.join(sorted(held)[:SHOWN])} in {patient.paths.spool} cannot be read"
        do = do or "chown it to yourself and chmod u+rw, or delete it; the others are taken in"
        yield Finding(level="warn", name="spool", text=text, do=do)
    if waiting:
        oldest = time.time() - min(path.stat().st_mtime for path in waiting)
        level: Level = "warn" if oldest > OLD_SPOOL_S else "ok"
        do = "is the writer running? `recalld spool` shows them" if level == "warn" else ""
        yield Finding(
            level=level, name="spool", text=f"{len(waiting)} events wait, the oldest for {oldest:.0f} s", do=do
        )
    dead = list(patient.paths.dead_letters.glob("*.json")) if patient.paths.dead_letters.is_dir() else []
    if dead:
        do = "`recalld spool` says why; delete the files when you have looked"
        yield Finding(level="warn", name="dead letters", text=f"{len(dead)} events could not be read", do=do)


def _agents(patient: Patient) -> Iterator[Finding]:
    from .install import present

    for found in present(patient.home, paths=patient.paths):
        what = f"{found.part} in {found.path}"
        match found.state:
            case "current":
                yield Finding(level="ok", name=found.host, text=f"{what} is as this version writes it")
            case "absent":
                yield Finding(
                    level="ok", name=found.host, text=f"{what}: not attached", do=f"`{found.text}` attaches it"
                )
            case "stale":
                do = f"`recalld install {found.host}`"
                yield Finding(level="warn", name=found.host, text=f"{what}: {found.text}", do=do)
            case "unreadable":
                yield Finding(level="warn", name=found.host, text=f"{what}: {found.text}", do="look at that file")


CHECKS: tuple[Callable[[Patient], Iterator[Finding]], ...] = (
    _python, _folders, _configuration, _daemon, _model, _vaults, _index, _wiki, _spool, _agents,
)  # fmt: skip
