"""The embedder: batches, lanes, the desk that changes models, and indexing against a writer that is a script."""

from __future__ import annotations

import shutil
import socket
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import msgspec
import numpy as np
import pytest
from embedding import chunk, fake_embedding
from recalld.actors.base import Env
from recalld.actors.embedder import actor as actor_module
from recalld.actors.embedder import bulk as bulk_module
from recalld.actors.embedder.actor import Embedder
from recalld.actors.embedder.bulk import Bulk
from recalld.actors.embedder.desk import Desk, load_by_name
from recalld.actors.embedder.lanes import MAX_QUERIES, BulkLane, Gate, QueryLane, Rate
from recalld.models import registry
from recalld.models.registry import ModelProblem
from recalld.protocol.client import Peer
from recalld.protocol.config import Config
from recalld.protocol.config import Embedder as Settings
from recalld.protocol.envelope import Conflict, Invalid, Overloaded, Unavailable
from recalld.protocol.messages import EmbedRequest, decode_writer
from recalld.protocol.messages.common import Message, Ok
from recalld.protocol.messages.embed import DescribeModel, Embed, Embeddings, LoadModel, ModelInfo, Rerank, Scores
from recalld.protocol.messages.index import (
    ClaimChunks,
    Claimed,
    FailChunks,
    Indexed,
    ModelInUse,
    PendingChunk,
    StoreVectors,
    UseModel,
)
from recalld.protocol.runtime import Paths
from recalld.protocol.server import Server


class ScriptedWriter:
    """Answers as the writer does: chunks are claimed once, stored or failed; ``down`` refuses everything."""

    def __init__(self, chunks: list[PendingChunk]) -> None:
        self.queue = list(chunks)
        self.stored: dict[bytes, tuple[Any, ...]] = {}
        self.stored_for: list[int] = []
        self.failed: dict[bytes, str] = {}
        self.models: list[UseModel] = []
        self.claims: list[ClaimChunks] = []
        self.down = False
        self.known = True
        self.changed = anyio.Event()

    def handlers(self) -> dict[type[Message], Any]:
        return dict.fromkeys((UseModel, ClaimChunks, StoreVectors, FailChunks), self.ask)

    async def ask(self, body: Message, *, budget_ms: int = 0) -> Any:
        if self.down:
            raise Unavailable("the writer is away")
        match body:
            case UseModel():
                self.models.append(body)
                reply: Message = ModelInUse(model_id=len(self.models), pending=len(self.queue))
            case ClaimChunks():
                if not self.known:
                    self.known = True
                    raise Conflict("model 1 is not in use")
                self.claims.append(body)
                while not self.queue:
                    await self.next_change()
                    if self.down:
                        raise Unavailable("the writer went away")
                taken, self.queue = self.queue[: body.limit], self.queue[body.limit :]
                return Claimed(chunks=tuple(taken))
            case StoreVectors():
                self.stored |= {one.hash: one.vectors for one in body.chunks}
                self.stored_for.append(body.model_id)
                reply = Indexed(revision=1)
            case FailChunks():
                self.failed |= dict.fromkeys(body.hashes, body.error)
                reply = Ok()
            case _:
                raise AssertionError(body)
        self.note()
        return reply

    def note(self) -> None:
        self.changed.set()
        self.changed = anyio.Event()

    async def next_change(self) -> None:
        await self.changed.wait()

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(20):
            while not condition():
                with anyio.move_on_after(0.05):
                    await self.changed.wait()


class FixedDesk(Desk):
    """A desk at which ``embedding`` answers."""

    def __init__(self, embedding: Any) -> None:
        super().__init__(Path("/nonexistent"))
        self._take(embedding)


@asynccontextmanager
async def indexing(
    writer: ScriptedWriter, desk: Desk, gate: Gate | None = None, threads: int = 1, **settings: Any
) -> AsyncIterator[Bulk]:
    bulk = Bulk(writer, desk, gate or Gate(), Settings(**settings), threads)
    async with anyio.create_task_group() as group:
        group.start_soon(bulk.run)
        yield bulk
        group.cancel_scope.cancel()


# Lanes


async def test_a_question_is_answered_while_bulk_work_is_stuck() -> None:
    """Bulk work that does not end keeps no question waiting."""
    release = threading.Event()
    bulk, queries = BulkLane(1), QueryLane(Gate())
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(bulk.run, release.wait)
            with anyio.fail_after(10):
                assert await queries.run(lambda: "answer") == "answer"
            release.set()
    finally:
        release.set()
        bulk.close()
        queries.close()


async def test_bulk_starts_no_batch_while_a_question_is_in_flight() -> None:
    """Between batches, bulk work steps aside until the question is answered."""
    gate = Gate()
    queries = QueryLane(gate)
    inside, release, passed = threading.Event(), threading.Event(), threading.Event()

    def question() -> None:
        inside.set()
        release.wait(10)

    def bulk() -> None:
        gate.step_aside()
        passed.set()

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(queries.run, question)
            await anyio.to_thread.run_sync(inside.wait)
            thread = threading.Thread(target=bulk)
            thread.start()
            assert not passed.wait(0.05)
            release.set()
            await anyio.to_thread.run_sync(thread.join)
            assert passed.is_set()
    finally:
        release.set()
        queries.close()


async def test_too_many_questions_are_refused_at_once() -> None:
    """The query lane is bounded: the next question is told to come again, and the count says so."""
    release = threading.Event()
    queries = QueryLane(Gate())
    try:
        async with anyio.create_task_group() as group:
            for _ in range(MAX_QUERIES):
                group.start_soon(queries.run, release.wait)
            await anyio.wait_all_tasks_blocked()
            with pytest.raises(Overloaded):
                await queries.run(lambda: None)
            stat = queries.stat()
            assert (stat.depth, stat.refused) == (MAX_QUERIES, 1)
            release.set()
    finally:
        release.set()
        queries.close()


def test_the_rate_counts_working_time_and_fades() -> None:
    """Chunks per second while there was work; zero once nothing has ended within the window."""
    rate = Rate()
    rate.add(30, 100.0, 101.0)
    rate.add(30, 101.0, 102.0)
    assert rate.per_s(102.0) == 30.0
    assert rate.per_s(120.0) == 0.0


# Indexing


async def test_chunks_are_claimed_embedded_and_stored() -> None:
    """Every pending chunk ends up with its vectors, under the number that the writer gave to the model."""
    writer = ScriptedWriter([chunk(n, "One sentence. And another one.") for n in range(30)])
    async with indexing(writer, FixedDesk(fake_embedding())) as bulk:
        await writer.until(lambda: len(writer.stored) == 30)
        assert bulk.vectors_total == 90
    assert {len(vectors) for vectors in writer.stored.values()} == {3}
    assert writer.models[0].sha256 == "sha-fake"
    assert set(writer.stored_for) == {1}


async def test_a_poison_chunk_is_reported_and_the_rest_is_stored() -> None:
    """The chunk that the model fails on is failed by its hash; its neighbours are stored."""
    writer = ScriptedWriter([chunk(1), chunk(2, "this is poisonous stuff"), chunk(3)])
    async with indexing(writer, FixedDesk(fake_embedding())) as bulk:
        await writer.until(lambda: len(writer.stored) == 2 and len(writer.failed) == 1)
        assert bulk.failed_total == 1
    assert "poison" in writer.failed[bytes([2]) * 16]


async def test_the_writer_may_go_away_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexing waits for a writer that is away and goes on with the number it knows: no claim is lost to a restart."""
    monkeypatch.setattr(bulk_module, "BACKOFF_S", (0.001,))
    writer = ScriptedWriter([])
    async with indexing(writer, FixedDesk(fake_embedding())):
        await writer.until(lambda: len(writer.claims) == 1)
        writer.down = True
        writer.note()
        await anyio.wait_all_tasks_blocked()
        writer.down = False
        writer.queue = [chunk(1)]
        await writer.until(lambda: len(writer.stored) == 1)
    assert len(writer.models) == 1


async def test_a_writer_with_another_database_hears_of_the_model_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conflict over the model's number is answered with UseModel, and indexing goes on under the new number."""
    monkeypatch.setattr(bulk_module, "BACKOFF_S", (0.001,))
    writer = ScriptedWriter([chunk(1)])
    writer.known = False
    async with indexing(writer, FixedDesk(fake_embedding())):
        await writer.until(lambda: len(writer.stored) == 1)
    assert len(writer.models) == 2
    assert writer.stored_for == [2]


async def test_paused_indexing_claims_nothing() -> None:
    """While paused no new claim is made; resuming takes up what waits."""
    writer = ScriptedWriter([])
    async with indexing(writer, FixedDesk(fake_embedding())) as bulk:
        await writer.until(lambda: len(writer.claims) == 1)
        bulk.pause(True)
        writer.queue = [chunk(1)]
        writer.note()
        await writer.until(lambda: len(writer.stored) == 1)
        writer.queue = [chunk(2)]
        writer.note()
        await anyio.wait_all_tasks_blocked()
        assert len(writer.claims) == 1
        bulk.pause(False)
        await writer.until(lambda: len(writer.stored) == 2)


async def test_another_model_takes_over_indexing() -> None:
    """When another model answers, it is introduced to the writer and embeds from then on."""
    desk = FixedDesk(fake_embedding("old"))
    writer = ScriptedWriter([chunk(1)])
    async with indexing(writer, desk):
        await writer.until(lambda: len(writer.stored) == 1)
        desk._take(fake_embedding("new"))
        await writer.until(lambda: len(writer.models) == 2)
        writer.queue = [chunk(2)]
        writer.note()
        await writer.until(lambda: len(writer.stored) == 2)
    assert [one.name for one in writer.models] == ["old", "new"]
    assert writer.stored_for == [1, 2]


async def test_several_threads_share_the_work() -> None:
    """With more threads every chunk is still embedded exactly once."""
    writer = ScriptedWriter([chunk(n) for n in range(120)])
    async with indexing(writer, FixedDesk(fake_embedding()), threads=3) as bulk:
        await writer.until(lambda: len(writer.stored) == 120)
        assert bulk.vectors_total == 120


# The desk


@asynccontextmanager
async def at_desk(loader: Any) -> AsyncIterator[Desk]:
    desk = Desk(Path("/nonexistent"), loader=loader)
    async with anyio.create_task_group() as group:
        group.start_soon(desk.run)
        yield desk
        group.cancel_scope.cancel()


async def test_a_question_waits_for_the_first_model() -> None:
    """A question that comes before the model is loaded is answered when it is."""
    release = threading.Event()

    def loader(name: str, folder: Path, batch: int) -> Any:
        release.wait(10)
        return fake_embedding(name)

    async with at_desk(loader) as desk, anyio.create_task_group() as group:
        desk.insist("slow")

        async def question() -> None:
            assert (await desk.answering()).model.name == "slow"

        group.start_soon(question)
        await anyio.wait_all_tasks_blocked()
        assert not desk.describe().loaded
        release.set()


async def test_the_old_model_answers_while_another_loads_and_when_it_fails() -> None:
    """Switching interrupts nothing; a model that cannot be loaded leaves the old one and a problem."""
    release = threading.Event()

    def loader(name: str, folder: Path, batch: int) -> Any:
        if name == "bad":
            release.wait(10)
            raise ModelProblem("bad: SHA-256 differs")
        return fake_embedding(name)

    async with at_desk(loader) as desk:
        desk.insist("good")
        with anyio.fail_after(10):
            await desk.answering()
            desk.insist("bad")
            assert (await desk.answering()).model.name == "good"
            release.set()
            await desk.settled()
        assert (await desk.answering()).model.name == "good"
        assert "SHA-256" in desk.describe().problem


async def test_without_a_model_a_question_is_told_so() -> None:
    """With "none", and with a model that cannot be loaded, the answer says why and comes at once."""

    def loader(name: str, folder: Path, batch: int) -> Any:
        if name == "none":
            return None
        raise ModelProblem("there is no model 'lost'")

    async with at_desk(loader) as desk:
        for name, reason in (("none", "recalld model use"), ("lost", "no model 'lost'")):
            desk.insist(name)
            with anyio.fail_after(10), pytest.raises(Unavailable, match=reason):
                await desk.answering()


async def test_only_models_that_exist_can_be_wanted(tmp_path: Path) -> None:
    """Asking for an unknown model is refused and changes nothing."""
    desk = Desk(tmp_path)
    with pytest.raises(ModelProblem):
        desk.want("unknown")
    assert desk.name == "none"


def test_a_wrong_digest_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packaged file with one changed byte is refused with both digests in the error."""
    model = registry.find("minilm", tmp_path)
    assert model is not None
    package = tmp_path / "package"
    package.mkdir()
    content = bytearray(model.onnx.read_bytes())
    content[1000] ^= 1
    (package / "model.onnx").write_bytes(content)
    broken = msgspec.structs.replace(model, onnx=package / "model.onnx")
    monkeypatch.setattr(registry, "_packaged", lambda: broken)
    with pytest.raises(ModelProblem, match=registry.PACKAGED_SHA256):
        load_by_name("minilm", tmp_path, 8)


@pytest.mark.model
def test_without_a_writable_folder_the_shipped_file_is_used(tmp_path: Path) -> None:
    """The packaged model works also where its prepared form cannot be written."""
    (tmp_path / "file").write_text("")
    embedding = load_by_name("minilm", tmp_path / "file", 8)
    assert embedding is not None
    assert (embedding.dim, embedding.model.spec.pooling) == (384, "mean")


# The process


def test_every_message_has_a_handler(tmp_path: Path) -> None:
    """The embedder answers exactly the messages of its union."""
    with socket.socket(socket.AF_UNIX) as listener:
        env = Env("embedder", Config(), Paths(tmp_path, tmp_path), {"embedder": listener})
        assert set(Embedder(env).handlers()) == set(EmbedRequest.__args__)


@pytest.mark.parametrize(("wanted", "cores", "threads"), [(0, 1, 1), (0, 2, 1), (0, 4, 3), (0, 32, 4), (6, 2, 6)])
def test_bulk_threads(wanted: int, cores: int, threads: int) -> None:
    """All cores but one, at least one, at most four; a number in the configuration is taken as it is."""
    assert actor_module.bulk_threads(wanted, cores) == threads


def listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    listener.setblocking(False)
    return listener


@asynccontextmanager
async def running(folder: Path, writer: ScriptedWriter, **settings: Any) -> AsyncIterator[tuple[Peer, Embedder]]:
    """An embedder in this process, with a scripted writer at the other end of its socket."""
    paths = Paths(folder / "data", folder)
    listeners = {name: listen(paths.socket(name)) for name in ("embedder", "writer")}
    server = Server(listeners["writer"], decode_writer, writer.handlers(), name="writer")
    env = Env("embedder", Config(embedder=Settings(**settings)), paths, listeners)
    embedder = Embedder(env)
    peer = Peer(paths.socket("embedder"), "test")
    ready = anyio.Event()
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(server.run)
            group.start_soon(embedder.run, ready.set)
            with anyio.fail_after(10):
                await ready.wait()
            yield peer, embedder
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await peer.aclose()
            await env.aclose()
        for listener in listeners.values():
            listener.close()


@pytest.mark.model
async def test_questions_and_passages_meet(short_tmp: Path) -> None:
    """Over its socket, with the real model: passages are indexed, and a paraphrase is closest to the right one."""
    texts = ["The billing service uses PostgreSQL.", "Anna feeds the cat on Sundays.", "Rollbacks need two approvals."]
    writer = ScriptedWriter([chunk(n, text) for n, text in enumerate(texts)])
    async with running(short_tmp, writer) as (peer, embedder):
        await writer.until(lambda: len(writer.stored) == 3)
        reply = await peer.ask(Embed(texts=("which database holds the invoices?",)), budget_ms=20_000)
        assert isinstance(reply, Embeddings)
        query = np.frombuffer(reply.vectors, "<f4")
        stored = np.stack([np.frombuffer(writer.stored[bytes([n]) * 16][0].values, "<f2") for n in range(3)])
        assert int(np.argmax(stored @ query)) == 0
        assert (reply.dim, reply.sha256, reply.model_id) == (384, registry.PACKAGED_SHA256, 1)
        vitals = embedder.vitals()
        assert vitals.facts["model"] == "minilm"
        assert vitals.figures["vectors_total"] == 3
        with pytest.raises(Invalid):
            await peer.ask(Embed(texts=("x",) * 33), budget_ms=5_000)


@pytest.mark.model
async def test_the_model_can_be_changed_while_it_runs(short_tmp: Path) -> None:
    """LoadModel answers at once; the other model takes over, and the writer hears of it."""
    writer = ScriptedWriter([])
    models = short_tmp / "data" / "models"
    models.mkdir(parents=True)
    async with running(short_tmp, writer) as (peer, _):
        with anyio.fail_after(30):
            await writer.until(lambda: len(writer.models) == 1)
            prepared = next((models / registry.PREPARED).iterdir())
            shutil.copytree(prepared, models / "twin")
            assert isinstance(await peer.ask(LoadModel(name="twin"), budget_ms=5_000), Ok)
            await writer.until(lambda: len(writer.models) == 2)
            info = await peer.ask(DescribeModel(), budget_ms=5_000)
            assert isinstance(info, ModelInfo)
            assert (info.name, info.loaded, info.dim) == ("twin", True, 384)
            with pytest.raises(Invalid, match="no model 'unknown'"):
                await peer.ask(LoadModel(name="unknown"), budget_ms=5_000)


@pytest.mark.model
async def test_restarted_without_the_writer_it_still_answers_under_the_known_number(short_tmp: Path) -> None:
    """The number of the model outlives the process: with the writer away, answers fit the vectors that are loaded."""
    runs = [short_tmp / "1", short_tmp / "2"]
    writer = ScriptedWriter([])
    for folder in runs:
        folder.mkdir()
        (folder / "data").symlink_to(short_tmp)
        async with running(folder, writer) as (peer, _):
            if folder is runs[0]:
                await writer.until(lambda: len(writer.claims) == 1)
            reply = await peer.ask(Embed(texts=("hello",)), budget_ms=20_000)
            assert isinstance(reply, Embeddings)
            assert reply.model_id == 1
        writer.down = True


async def test_an_embedder_without_model_serves_and_says_so(short_tmp: Path) -> None:
    """With embedder.model = none the process is up, indexes nothing, and names the reason."""
    writer = ScriptedWriter([chunk(1)])
    async with running(short_tmp, writer, model="none") as (peer, embedder):
        with pytest.raises(Unavailable, match="none"):
            await peer.ask(Embed(texts=("hello",)), budget_ms=10_000)
        assert await peer.ask(Rerank(query="q", passages=("a",)), budget_ms=5_000) == Scores(values=())
        assert embedder.vitals().facts["model"] == "none"
    assert not writer.claims


async def test_a_missing_model_is_a_problem_not_a_crash(short_tmp: Path) -> None:
    """A configured model that is not there leaves the process up; status and questions name it."""
    async with running(short_tmp, ScriptedWriter([]), model="lost") as (peer, embedder):
        with pytest.raises(Unavailable, match="no model 'lost'"):
            await peer.ask(Embed(texts=("hello",)), budget_ms=10_000)
        facts = embedder.vitals().facts
        assert "no model 'lost'" in facts["problem"]
        assert "no model 'lost'" in facts["last_error"]
