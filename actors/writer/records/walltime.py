"""What the index knows of the wall clock: the newest time in it, and where the clock stood when it was steady."""

from __future__ import annotations

from ...sqlite import sqlite3

STEADY_KEY = "clock_steady_ms"


def newest_ms(conn: sqlite3.Connection) -> int:
    """The latest time at which anything is known to have happened; 0 when nothing has."""
    looks = ("SELECT max(swept_ms) FROM vaults", "SELECT max(last_ms) FROM sessions")
    return max(int(conn.execute(look).fetchone()[0] or 0) for look in looks)


def steady_ms(conn: sqlite3.Connection) -> int:
    """What the wall clock showed when it was last known to be steady; 0 when it never was, or the index is a new one."""
    row = conn.execute("SELECT value FROM meta WHERE key = ?", (STEADY_KEY,)).fetchone()
    return int(row[0]) if row else 0


def note_steady(conn: sqlite3.Connection, wall_ms: int) -> None:
    """The clock is known to be steady, and shows ``wall_ms``."""
    conn.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (STEADY_KEY, wall_ms))
