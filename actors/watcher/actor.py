"""The watcher process: one ``VaultWatch`` per configured folder, and one for the wiki once it exists."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable

import anyio
from anyio.abc import TaskGroup

from ...protocol.config import Config
from ...protocol.envelope import ProtocolError
from ...protocol.messages.control import QueueStat, Vitals
from ...protocol.messages.index import AwaitIndex, CloseVault, IndexBirth, Vault
from ...protocol.runtime import Paths
from .. import heap
from ..base import Env
from .index import Writer
from .vault import MAX_DIRTY, VaultWatch

WIKI_CHECK_S = 2.0
"""Between looks for the wiki's folder, which the writer makes when the first page is written."""
CLOSE_BUDGET_MS = 30_000
CLOSE_RETRY_S = 2.0
FOLLOW_BUDGET_MS = 15_000

log = logging.getLogger("recalld.watcher")


class Watcher:
    """See ``actors.base.Actor``."""

    def __init__(self, env: Env, writer: Writer | None = None, backend: str = "") -> None:
        """``writer`` and ``backend`` are for tests: whom to ask, and which source of file events to use."""
        self._env = env
        self._config = env.config
        self._paths = env.paths
        self._writer: Writer = writer or env.peer("writer")
        self._backend = backend
        self._running: dict[str, tuple[VaultWatch, anyio.CancelScope]] = {}
        self._group: TaskGroup | None = None
        self._paused = False
        self._sweeps_before = 0

    async def run(self, ready: Callable[[], None]) -> None:
        heap.collect_seldom()
        async with anyio.create_task_group() as group:
            self._group = group
            self._apply(wanted_vaults(self._config, self._paths), forget=False)
            group.start_soon(self._follow_index)
            ready()
            while not self._paths.wiki.is_dir():  # noqa: ASYNC110 -- nobody can tell us: the writer makes it, in another process
                await anyio.sleep(WIKI_CHECK_S)
            self._apply(wanted_vaults(self._config, self._paths), forget=False)
            await anyio.sleep_forever()

    async def configure(self, config: Config) -> None:
        """
        Take up a changed configuration: vaults that are new, vaults that are gone, other settings for all.

        Each vault is swept, changed or not: whoever saved the configuration can wait for ``all_swept_ms`` to pass that
        moment, and knows then that the index has seen every file.
        """
        settings_changed = config.watcher != self._config.watcher
        self._config = config
        if settings_changed:
            self._apply({}, forget=False)
        self._apply(wanted_vaults(config, self._paths), forget=True)
        for watch, _ in self._running.values():
            watch.sweep_now()

    async def pause(self, paused: bool) -> None:
        self._paused = paused
        for watch, _ in self._running.values():
            watch.pause(paused)

    def vitals(self) -> Vitals:
        watches = [watch for watch, _ in self._running.values()]
        return Vitals(
            queues={
                f"hints:{watch.vault.name}": QueueStat(
                    depth=watch.dirty, peak=watch.dirty_peak, limit=MAX_DIRTY, policy="shed"
                )
                for watch in watches
            },
            figures={
                "vaults": float(len(watches)),
                "files": float(sum(watch.files for watch in watches)),
                "all_swept_ms": float(min((watch.swept_ms for watch in watches), default=time.time_ns() // 1_000_000)),
                "sweeps_total": float(self._sweeps_before + sum(watch.sweeps for watch in watches)),
                "last_sweep_ms": max((watch.last_sweep_ms for watch in watches), default=0.0),
                "notes_read_total": float(sum(watch.notes_read for watch in watches)),
                "events_total": float(sum(watch.events for watch in watches)),
                "unreadable": float(sum(len(watch.unreadable) for watch in watches)),
            },
            facts=facts_of(watches),
        )

    def _apply(self, wanted: dict[str, Vault], *, forget: bool) -> None:
        """Start what is wanted and does not run, stop what runs and is not wanted."""
        if self._group is None:
            return
        for root in self._running.keys() - wanted.keys():
            watch, scope = self._running.pop(root)
            scope.cancel()
            self._sweeps_before += watch.sweeps
            if forget:
                self._group.start_soon(self._close, root)
        for root in wanted.keys() - self._running.keys():
            watch = VaultWatch(wanted[root], self._config.watcher, self._writer, self._backend, self._env.tell)
            watch.pause(self._paused)
            scope = anyio.CancelScope()
            self._running[root] = watch, scope
            self._group.start_soon(self._run_one, watch, scope)

    async def _run_one(self, watch: VaultWatch, scope: anyio.CancelScope) -> None:
        with scope:
            log.info("watching %s", watch.vault.root)
            await watch.run()

    async def _follow_index(self) -> None:
        """Sweep at once when another index has taken the place of the one that was filled, instead of at the next turn."""
        birth = 0
        while True:
            try:
                answer = await self._writer.ask(AwaitIndex(birth=birth), budget_ms=FOLLOW_BUDGET_MS)
            except ProtocolError:
                await anyio.sleep(CLOSE_RETRY_S / 4)
                continue
            assert isinstance(answer, IndexBirth)
            if birth and answer.birth != birth:
                for watch, _ in self._running.values():
                    watch.index_replaced()
            birth = answer.birth
            self._forget_others(answer.vaults)

    def _forget_others(self, held: tuple[str, ...]) -> None:
        """Close what the index holds and nobody watches: folders that were removed while no daemon ran."""
        wanted = wanted_vaults(self._config, self._paths)
        for root in held:
            if root not in wanted and self._group is not None:
                self._group.start_soon(self._close, root)

    async def _close(self, root: str) -> None:
        """Have the writer forget a vault; repeated until it answers or the vault is wanted again."""
        while root not in self._running:
            try:
                await self._writer.ask(CloseVault(root=root), budget_ms=CLOSE_BUDGET_MS)
                return
            except ProtocolError as error:
                log.warning("%s is not forgotten yet: %s", root, error)
                await anyio.sleep(CLOSE_RETRY_S)


def wanted_vaults(config: Config, paths: Paths) -> dict[str, Vault]:
    """The folders to watch by real path, each once and under a name of its own: as configured, and the wiki if it is there."""
    wanted: dict[str, Vault] = {}
    names = {"wiki"}
    for entry in config.vaults:
        root = os.path.realpath(os.path.expanduser(entry.path))
        if root in wanted:
            continue
        folder, name = os.path.split(root)
        name = entry.name or name or root
        if name in names:
            name = f"{os.path.basename(folder)}/{name}"
        names.add(name)
        wanted[root] = Vault(root=root, name=name)
    if paths.wiki.is_dir():
        root = os.path.realpath(paths.wiki)
        wanted[root] = Vault(root=root, name="wiki", kind="wiki")
    return wanted


def facts_of(watches: list[VaultWatch]) -> dict[str, str]:
    """How each vault is watched and what is wrong with it, for a person."""
    facts = {"watch_mode": "; ".join(f"{watch.vault.name}: {watch.mode}" for watch in watches) or "no vaults"}
    for watch in watches:
        problems = [watch.suspended, watch.watch_problem]
        if watch.waiting_for_writer:
            problems.append(f"waiting for the writer: {watch.waiting_for_writer}")
        if watch.unreadable:
            path, why = next(iter(watch.unreadable.items()))
            more = f" and {len(watch.unreadable) - 1} more" if len(watch.unreadable) > 1 else ""
            problems.append(f"not read: {path} ({why}){more}")
        text = "; ".join(problem for problem in problems if problem)
        if text:
            facts[f"vault:{watch.vault.name}"] = text
    return facts
