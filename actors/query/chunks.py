"""Which note holds which chunk, and which distinct text a chunk is: arrays by chunk id, which is a dense row number."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np

from .quantised import Ints

SLOT_NONE = -1


class ChunkTable:
    """
    chunk -> note, and chunk -> slot (one per distinct text). Arrays by chunk id: ids are dense row numbers.

    The last place of each stays empty: what lies beyond is looked up there.
    """

    def __init__(self) -> None:
        self._note = np.zeros(1024, np.int64)
        self._slot = np.full(1024, SLOT_NONE, np.int32)
        self.lengths = np.zeros(1024, np.int32)
        """Tokens by chunk id, as full text counts them; 0 where none is held, as in the last place."""
        self._by_note: dict[int, tuple[int, ...]] = {}
        self.slots: dict[bytes, int] = {}
        self.hashes: list[bytes] = []
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def note_of(self, chunk: int) -> int:
        """The current note that holds ``chunk``; 0 when none does."""
        return int(self._note[chunk]) if 0 <= chunk < len(self._note) else 0

    def notes_of(self, chunks: Ints) -> Ints:
        """Of each of ``chunks``, the current note that holds it; 0 where none does."""
        return self._note.take(chunks, mode="clip")

    def chunks_of(self, note: int) -> tuple[int, ...]:
        return self._by_note.get(note, ())

    def load(
        self,
        owners: Iterable[tuple[int, int]],
        hashes: Iterable[tuple[int, bytes]],
        current: set[int],
        lengths: Iterable[tuple[int, int]] = (),
    ) -> None:
        """Take in all chunks of the notes in ``current``."""
        pairs = np.fromiter(itertools.chain.from_iterable(owners), np.int64).reshape(-1, 2)
        pairs = pairs[np.isin(pairs[:, 1], np.fromiter(current, np.int64, len(current)))]
        if not len(pairs):
            return
        self._reserve(int(pairs[:, 0].max()))
        self._note[pairs[:, 0]] = pairs[:, 1]
        self.count = len(pairs)
        order = np.lexsort((pairs[:, 0], pairs[:, 1]))
        ids, starts = np.unique(pairs[order, 1], return_index=True)
        bounds = [*starts.tolist(), len(pairs)]
        chunk_ids = pairs[order, 0].tolist()
        self._by_note = {note: tuple(chunk_ids[bounds[i] : bounds[i + 1]]) for i, note in enumerate(ids.tolist())}
        for chunk, key in hashes:
            if chunk < len(self._note) and self._note[chunk]:
                self._slot[chunk] = self._slot_for(key)
        self._measure(lengths)

    def replace(
        self, notes: Iterable[int], rows: Iterable[tuple[int, int, bytes]], lengths: Iterable[tuple[int, int]] = ()
    ) -> None:
        """``notes`` now have exactly the chunks in ``rows``: none for those that are no longer current."""
        for note in notes:
            for chunk in self._by_note.pop(note, ()):
                if self._note[chunk] == note:
                    self._note[chunk] = 0
                    self._slot[chunk] = SLOT_NONE
                    self.lengths[chunk] = 0
                    self.count -= 1
        gathered: dict[int, list[int]] = {}
        for chunk, note, key in rows:
            self._reserve(chunk)
            self.count += 0 if self._note[chunk] else 1
            self._note[chunk] = note
            self._slot[chunk] = self._slot_for(key)
            gathered.setdefault(note, []).append(chunk)
        self._by_note |= {note: tuple(sorted(chunks)) for note, chunks in gathered.items()}
        self._measure(lengths)

    def live(self) -> tuple[Ints, Ints, Ints]:
        """(chunk, note, slot) of every chunk, sorted by note, then chunk."""
        chunks = np.flatnonzero(self._note)
        notes = self._note[chunks]
        order = np.argsort(notes, kind="stable")
        return chunks[order], notes[order], self._slot[chunks[order]].astype(np.int64)

    def _measure(self, lengths: Iterable[tuple[int, int]]) -> None:
        for chunk, tokens in lengths:
            if chunk < len(self._note) and self._note[chunk]:
                self.lengths[chunk] = tokens

    def _slot_for(self, key: bytes) -> int:
        slot = self.slots.get(key)
        if slot is None:
            slot = self.slots[key] = len(self.hashes)
            self.hashes.append(key)
        return slot

    def _reserve(self, chunk: int) -> None:
        if chunk >= len(self._note) - 1:
            more = max(chunk + 2, len(self._note) * 3 // 2) - len(self._note)
            self._note = np.concatenate((self._note, np.zeros(more, np.int64)))
            self._slot = np.concatenate((self._slot, np.full(more, SLOT_NONE, np.int32)))
            self.lengths = np.concatenate((self.lengths, np.zeros(more, np.int32)))
