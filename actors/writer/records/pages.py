"""What the wiki's pages look like from the index: which are pinned, which changed, which one has nearly the same name."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ....memory.notes import expiry
from ....memory.recall.tokens import fold
from ....protocol.messages.common import ParsedNote
from ...sqlite import sqlite3
from . import notes

MAX_LOOKUPS = 24
"""Mentions of a session that are looked up: one full-text query each."""
MATCHES_LOOKED_AT = 8

_note = msgspec.msgpack.Decoder(ParsedNote).decode


class PageRow(msgspec.Struct, frozen=True):
    """A page of the wiki as the index has it. ``path`` is relative to the wiki's root."""

    path: str
    title: str
    kind: str
    pinned: bool
    expires: str
    summary: str
    changed_ms: int


def pages_of(conn: sqlite3.Connection, wiki_root: str, folder: str) -> list[PageRow]:
    """Every current page of a project but its sessions, by path. Two index ranges: sessions are not even looked at."""
    row = conn.execute("SELECT id FROM vaults WHERE root = ?", (wiki_root,)).fetchone()
    if row is None:
        return []
    query = (
        "SELECT path, title, kind, parsed, valid_from FROM notes"
        " WHERE vault_id = ? AND valid_to IS NULL AND path >= ? AND path < ? ORDER BY path"
    )
    found: list[PageRow] = []
    for low, high in ((f"{folder}/", f"{folder}/sessions/"), (f"{folder}/sessions0", f"{folder}0")):
        for path, title, kind, parsed, since in conn.execute(query, (row[0], low, high)):
            note = _note(parsed)
            found.append(PageRow(path, title, kind, note.pinned, note.expires, note.summary, since))
    return found


def expired(conn: sqlite3.Connection, wiki_root: str, now_ms: int) -> list[tuple[str, str, str]]:
    """(path, hash, what it states) of the wiki's pages that are over. Pages that state nothing are not decoded."""
    query = (
        "SELECT n.path, n.hash, n.parsed FROM vaults v JOIN notes n ON n.vault_id = v.id"
        " WHERE v.root = ? AND n.valid_to IS NULL AND length(n.hash) > 0 AND instr(n.parsed, CAST('expires' AS BLOB)) > 0"
    )
    found = [(path, hashed.hex(), _note(parsed).expires) for path, hashed, parsed in conn.execute(query, (wiki_root,))]
    return [each for each in found if expiry.is_past(each[2], now_ms)]


def twin_of(conn: sqlite3.Connection, wiki_root: str, folder: str, path: str, title: str) -> str:
    """
    The path of another page of the project whose folded title, or file name, is that of the page to be written; '' = none.

    Sessions are not twins of anything.
    """
    wanted = {_folded(title), _stem(path)} - {""}
    for page in pages_of(conn, wiki_root, folder):
        if page.path != path and page.kind != "session" and {_folded(page.title), _stem(page.path)} & wanted:
            return page.path
    return ""


def mentioned(conn: sqlite3.Connection, targets: Sequence[str]) -> list[str]:
    """Wikilink targets for those of ``targets`` (as written: titles, paths) that are notes, in order, each once."""
    found: dict[str, None] = {}
    query = (
        "SELECT n.path, n.title FROM chunk_fts JOIN chunks c ON c.id = chunk_fts.rowid JOIN notes n ON n.id = c.note_id"
        " WHERE chunk_fts MATCH ? AND n.valid_to IS NULL AND n.kind <> 'session' LIMIT ?"
    )
    for target in list(targets)[:MAX_LOOKUPS]:
        name = target.removesuffix(".md").rsplit("/", 1)[-1]
        phrase = name.replace('"', " ").strip()
        if not phrase:
            continue
        for path, title in conn.execute(query, (f'title : "{phrase}"', MATCHES_LOOKED_AT)):
            if _folded(title) == _folded(name) or _stem(path) == _folded(name):
                found[path.removesuffix(".md").rsplit("/", 1)[-1]] = None
                break
    return list(found)


def forget(conn: sqlite3.Connection, wiki_root: str, paths: Sequence[str], session: str) -> int:
    """
    Empty every version, past ones too, of these pages and of any page of ``session``; how many there were. Their paths
    go as well: a session page's name is made of its first prompt.
    """
    row = conn.execute("SELECT id FROM vaults WHERE root = ?", (wiki_root,)).fetchone()
    if row is None:
        return 0
    found = conn.execute("SELECT id, path, parsed FROM notes WHERE vault_id = ? AND kind = 'session'", (row[0],))
    ids = [key for key, path, parsed in found if path in paths or _note(parsed).session_id == session]
    notes.empty(conn, ids)
    conn.executemany("UPDATE notes SET path = ? WHERE id = ?", [(f"/{key}", key) for key in ids])
    return len(ids)


def _folded(name: str) -> str:
    """A name with case, accents and separators out of the way."""
    return " ".join(fold(name).replace("-", " ").replace("_", " ").split())


def _stem(path: str) -> str:
    return _folded(path.rsplit("/", 1)[-1].removesuffix(".md"))
