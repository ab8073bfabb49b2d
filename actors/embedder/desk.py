"""Which model answers now: loading, switching in the background, and saying what is wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread
import msgspec

from ...models import registry
from ...models.registry import NONE, ModelProblem
from ...protocol.envelope import Unavailable
from ...protocol.messages.embed import ModelInfo
from .. import heap
from .session import CrossEncoder, Embedding, load

log = logging.getLogger("recalld.embedder")

Load = Callable[[str, Path, int], Embedding | None]


def load_by_name(name: str, folder: Path, batch: int) -> Embedding | None:
    """
    Find, verify and load a model; None for "none". Blocks. Raises ModelProblem.

    Trigger: the packaged model cannot be prepared, or the prepared one does not load or fails its test.
    Why: a read-only data folder, or a processor for which the runtime lacks the quantised kernels.
    Outcome: the shipped file itself is used, slower and larger.
    """
    model = registry.find(name, folder)
    if model is None:
        return None
    spec = msgspec.structs.replace(model.spec, sha256=registry.verify(model))
    model = msgspec.structs.replace(model, spec=spec)
    try:
        prepared = registry.prepare(model, folder)
        found = load(prepared, batch)
    except ModelProblem as problem:
        if not model.packaged:
            raise
        log.warning("the packaged model is used as it was shipped: %s", problem)
        found = load(model, batch)
    heap.trim()
    return found


def _quicken(embedding: Embedding) -> None:
    embedding.quicken()
    heap.trim()


def _reranker(folder: str) -> CrossEncoder:
    return CrossEncoder(Path(folder).expanduser())


class Desk:
    """
    Holds the model that answers. While another one loads, the old one goes on; one that cannot be loaded changes nothing
    but ``problem``. All methods are for the event loop.
    """

    def __init__(self, folder: Path, batch: int = 8, loader: Load = load_by_name) -> None:
        self._folder = folder
        self._loader = loader
        self._batch = batch
        self._wanted: str | None = None
        self._asked = anyio.Event()
        self._settled = anyio.Event()
        self._questioned = anyio.Event()
        self.embedding: Embedding | None = None
        self.identity = ""
        """SHA-256 of the model that answers, '' for none."""
        self.changed = anyio.Event()
        """Set, and replaced by a new one, whenever another model (or none) answers."""
        self.problem = ""
        self.reranker: CrossEncoder | None = None
        self.reranker_folder = ""
        self.reranker_problem = ""

    @property
    def name(self) -> str:
        """The model that answers; while there is none yet, the one that was asked for."""
        return self.embedding.model.name if self.embedding is not None else self._wanted or NONE

    def want(self, name: str) -> None:
        """Have ``name`` loaded, the latest wish first. Raises ModelProblem when there is no such model."""
        registry.find(name, self._folder)
        self.insist(name)

    def insist(self, name: str) -> None:
        """As ``want``, but a name that doesn't exist becomes the desk's problem."""
        self._wanted = name
        if self._settled.is_set():
            self._settled = anyio.Event()
        self._asked.set()

    async def run(self) -> None:
        """Load what is wanted, until cancelled."""
        while True:
            await self._asked.wait()
            self._asked = anyio.Event()
            name = self._wanted or NONE
            try:
                found = await anyio.to_thread.run_sync(
                    partial(self._loader, name, self._folder, self._batch), abandon_on_cancel=True
                )
            except ModelProblem as problem:
                self._fail(name, str(problem))
            except (OSError, MemoryError, RuntimeError) as error:
                self._fail(name, f"model '{name}' cannot be loaded: {error}")
            else:
                self._take(found)
            if not self._asked.is_set():
                self._settled.set()

    def _fail(self, name: str, problem: str) -> None:
        log.error("model '%s' is set aside: %s", name, problem)
        self.problem = problem

    def _take(self, found: Embedding | None) -> None:
        self.problem = ""
        self.embedding = found
        self.identity = found.model.spec.sha256 if found is not None else ""
        self.changed.set()
        self.changed = anyio.Event()
        log.info("model %s answers", self.name)

    def questioned(self) -> None:
        """A question was embedded: see ``quicken``."""
        self._questioned.set()

    async def quicken(self, idle: Callable[[], bool]) -> None:
        """
        Until cancelled: once a question came while ``idle`` says so, exchange the model's session for a quick one.

        A first load is done on one thread for each call: those that a session has for itself do not step aside for questions.
        """
        while True:
            await self._questioned.wait()
            self._questioned = anyio.Event()
            changed, embedding = self.changed, self.embedding
            if embedding is None or not idle():
                continue
            try:
                await anyio.to_thread.run_sync(partial(_quicken, embedding), abandon_on_cancel=True)
            except Exception as error:  # of the runtime, whatever it is: questions are answered as before
                log.warning("the model stays on one thread: %s", error)
            await changed.wait()

    async def settled(self) -> None:
        """Return when nothing is being loaded."""
        await self._settled.wait()

    async def answering(self) -> Embedding:
        """The model, waiting for the first one to load. Raises Unavailable when there is none to wait for."""
        if self.embedding is None and self._wanted is not None:
            await self.settled()
        if self.embedding is None:
            raise Unavailable(
                self.problem or "no embedding model: embedder.model is 'none' (`recalld model use minilm`)"
            )
        return self.embedding

    async def rerank_with(self, folder: str) -> None:
        """Load the cross-encoder in ``folder``; '' = none. One that can't be loaded is a problem, not an error."""
        self.reranker_problem = ""
        if not folder:
            self.reranker, self.reranker_folder = None, ""
            return
        try:
            self.reranker = await anyio.to_thread.run_sync(_reranker, folder, abandon_on_cancel=True)
            self.reranker_folder = folder
        except ModelProblem as problem:
            log.error("%s", problem)
            self.reranker_problem = str(problem)

    def describe(self) -> ModelInfo:
        embedding = self.embedding
        return ModelInfo(
            name=self.name,
            sha256=self.identity,
            dim=embedding.dim if embedding is not None else 0,
            max_tokens=embedding.model.spec.max_tokens if embedding is not None else 0,
            loaded=embedding is not None,
            problem=self.problem,
            reranker=self.reranker_folder,
            reranker_sha256=self.reranker.sha256 if self.reranker is not None else "",
            reranker_problem=self.reranker_problem,
        )
