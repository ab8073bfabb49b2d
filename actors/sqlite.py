"""
The one SQLite of a process.

``pysqlite3`` carries a current SQLite; the one inside a Python build may lack contentless-delete FTS5 tables (< 3.43) and
the fix of the WAL-reset corruption (< 3.51.3). Never both in one process on one file: POSIX locks would be dropped
(sqlite.org/howtocorrupt.html).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
else:
    try:
        from pysqlite3 import dbapi2 as sqlite3
    except ImportError:
        import sqlite3

MINIMUM = (3, 43, 0)

__all__ = ["MINIMUM", "sqlite3", "version_problem"]


def version_problem() -> str:
    """'' when this SQLite can hold the index, else a sentence that says what to do."""
    if sqlite3.sqlite_version_info >= MINIMUM:
        return ""
    needed = ".".join(str(part) for part in MINIMUM)
    return f"SQLite {sqlite3.sqlite_version} is too old (needs {needed}): pip install pysqlite3"
