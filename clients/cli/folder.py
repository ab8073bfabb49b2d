"""A folder of notes read without a daemon: parsed, with its links resolved."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from ...memory.notes.ignore import FILES, Rules
from ...memory.notes.parse import is_note, parse
from ...memory.notes.resolve import Ambiguous, Missing, Resolved, Resolver
from ...memory.recall.catalog import Notes
from ...memory.recall.types import Edge, NoteCard
from ...protocol.config import Config
from ...protocol.messages.common import Chunk
from .context import Failed


class Folder(msgspec.Struct, kw_only=True):
    """What a folder holds. Ids are numbers of this reading only."""

    notes: Notes
    chunks: dict[int, tuple[Chunk, ...]]
    unresolved: list[tuple[str, str]]
    """(path, target) of links to no note; links to files that are no notes are not counted."""
    ambiguous: list[tuple[str, str]]


def read_folder(root: str, config: Config) -> Folder:
    """Read every note below ``root`` that the daemon would watch. Raises Failed when there is none."""
    if not os.path.isdir(root):
        raise Failed(f"{root} is not a folder", 2)
    cards: dict[int, NoteCard] = {}
    chunks: dict[int, tuple[Chunk, ...]] = {}
    for path in _paths(Path(root), config):
        try:
            raw = (Path(root) / path).read_bytes()
        except OSError:
            continue
        note, found = parse(path, raw)
        known = {field: getattr(note, field) for field in note.__struct_fields__ if field in NoteCard.__struct_fields__}
        number = len(cards) + 1
        cards[number] = NoteCard(id=number, vault_id=1, path=path, **known)
        chunks[number] = found
    if not cards:
        raise Failed(f"there are no notes in {root}", 2)
    return _linked(cards, chunks)


def _linked(cards: dict[int, NoteCard], chunks: dict[int, tuple[Chunk, ...]]) -> Folder:
    resolver = Resolver(cards.values())
    edges: list[Edge] = []
    unresolved: dict[tuple[str, str], None] = {}
    ambiguous: dict[tuple[str, str], None] = {}
    for card in cards.values():
        for link in card.links:
            match resolver.resolve(1, card.path, link):
                case Resolved(id=target):
                    edges.append(Edge(card.id, target, link.kind))
                case Ambiguous():
                    ambiguous[card.path, link.target] = None
                case Missing():
                    suffix = os.path.splitext(link.target)[1].lower()
                    if suffix in ("", ".md", ".markdown") or " " in suffix:
                        unresolved[card.path, link.target] = None
    return Folder(
        notes=Notes(cards.values(), edges), chunks=chunks, unresolved=list(unresolved), ambiguous=list(ambiguous)
    )


def _paths(root: Path, config: Config) -> list[str]:
    found: list[str] = []

    def walk(folder: str, rules: Rules) -> None:
        with os.scandir(root / folder) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        for name in FILES:
            if any(entry.name == name and entry.is_file() for entry in listed):
                lines = (root / folder / name).read_text(encoding="utf-8", errors="replace").splitlines()
                rules = rules.with_folder(folder, lines)
        for entry in listed:
            path = f"{folder}/{entry.name}" if folder else entry.name
            is_folder = entry.is_dir(follow_symlinks=False)
            if rules.ignores(path, folder=is_folder):
                continue
            if is_folder:
                walk(path, rules)
            elif is_note(entry.name) and entry.is_file():
                found.append(path)

    walk("", Rules(config.watcher.ignore))
    return found
