"""
Recall without a daemon: the database, read-only, in this process. Full text, names and links; no vectors.

The one module of an actor that a client may import, when there is nobody to ask.
"""

from __future__ import annotations

import datetime
import time

from ...protocol.config import Config
from ...protocol.messages.recall import Answer, Recall
from ...protocol.runtime import Paths
from . import recall as steps
from .catalog import View
from .filters import place_of
from .live import load_notes, load_past_notes
from .ranking import ranking_params
from .reader import NoIndex, connect
from .streams import events, fulltext

NOTE = "The daemon is not running: answered from the database alone, without vectors. Start it with `recalld up`."


def answer_offline(paths: Paths, config: Config, recall: Recall) -> Answer:
    """
    The answer that the database alone gives; ``degraded`` says so. Creates and changes nothing.

    Raises Invalid for a filter or date that makes no sense. An index that cannot be read is an answer without hits.
    """
    started = time.perf_counter()
    degraded = ["daemon", *(["vector"] if "vector" in recall.streams else [])]
    try:
        # Without a WAL beside it nobody has written since the last clean stop, and nothing need be created to read it.
        wal = paths.database.with_name(paths.database.name + "-wal")
        conn = connect(paths.database, immutable=not wal.exists())
    except NoIndex as error:
        return Answer(hits=(), degraded=(*degraded, "index"), known=False, read_only=True, note=f"{error}. {NOTE}")
    try:
        conn.execute("BEGIN")
        view = View()
        when = steps.as_of_ms(recall)
        if when is None:
            load_notes(conn, view)
        else:
            load_past_notes(conn, view, when)
        place = place_of(recall.cwd, events.projects(conn))
        streams = [stream for stream in recall.streams if stream != "vector"]
        asked = steps.prepare(view, recall, streams, place, ranking_params(config, paths), datetime.date.today())
        frequencies, params = fulltext.Frequencies(), fulltext.TextParams()
        words = steps.gather_text(conn, asked, frequencies, params) if "text" in streams else None
        evidence, ranking = steps.weigh(asked, words, ())
        hits = steps.compose(conn, asked, evidence, ranking)
        raw = steps.raw_events(conn, asked) if not ranking.known and words is not None else ()
    finally:
        conn.close()
    took = round((time.perf_counter() - started) * 1000, 2)
    note = f"{steps.too_early(view)} {NOTE}" if when is not None and not view.cards else NOTE
    return steps.finish(
        asked, ranking, hits, degraded, raw_events=raw, took_ms=took, read_only=True, note=note, stale_for_ms=0
    )
