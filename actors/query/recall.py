"""
From a question to an answer, in steps: prepare, gather, order, compose. Each step is a plain function; ``actor`` and
``offline`` put them on threads and connections.
"""

from __future__ import annotations

import datetime
import itertools
import operator
import os
import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from ...memory.capture.events import Event
from ...memory.recall import lexical
from ...memory.recall.lexical import Lexical
from ...memory.recall.params import Params, changed
from ...memory.recall.passages import Passage, present
from ...memory.recall.query import Question, analyse
from ...memory.recall.rank import Candidate, Ranking, rank
from ...memory.recall.types import Evidence, NoteCard, TextEvidence
from ...protocol.envelope import Invalid
from ...protocol.messages.recall import Answer, Hit, RawEvent, Recall, Stream, StreamScore, Superseded
from ...protocol.render import instant
from ..sqlite import sqlite3
from .catalog import View
from .filters import Place, allowed, instant_ms
from .quantised import Floats
from .similar import Similarities
from .streams import events, fulltext, notes, vectors

RAW_EVENTS = 5
EVENT_CHARS = 400
QUERY_CHARS = 8000
"""A longer question is cut: its first words decide, and a model reads about a thousand characters."""
K_MAX = 100
TWINS = 4
"""Candidates beyond ``k`` that are read, to take the places of near-duplicates."""
PASSAGES_READ = 12
"""Of one note: more than most notes have; a note of a thousand passages is not read whole for one answer."""

decode_event = msgspec.msgpack.Decoder(Event).decode


class Asked(NamedTuple):
    """One question, ready for the streams."""

    recall: Recall
    view: View
    question: Question
    allowed: set[int] | None
    streams: tuple[Stream, ...]
    place: Place
    params: Params
    depth: int = 0
    """Hits that are looked at beyond ``k``, for a reranker to choose from."""

    @property
    def texts(self) -> tuple[str, ...]:
        """What is embedded: the question, then its probes."""
        return (self.question.text, *self.question.probes)

    @property
    def k(self) -> int:
        return max(1, min(self.recall.k, K_MAX))

    @property
    def width(self) -> int:
        """Hits that are made."""
        return max(self.k, self.depth)


class Words(NamedTuple):
    """What full text found, and what that says of notes."""

    text: TextEvidence
    by_note: Lexical


class Found(NamedTuple):
    """A hit and what it was made of."""

    hit: Hit
    candidate: Candidate
    passage: Passage


def prepare(
    view: View, recall: Recall, streams: Sequence[Stream], place: Place, params: Params, today: datetime.date
) -> Asked:
    """Take the question apart and find out which notes may answer. Raises Invalid."""
    text = question_of(recall)
    with view.lock:
        question = analyse(text, view.notes, today)
        notes_allowed = allowed(
            view.cards, view.vaults, recall.filters, scope=recall.scope, cwd=recall.cwd, place=place
        )
        if not recall.filters.expired:
            at_ms = int(time.time() * 1000) if view.past_ms is None else view.past_ms
            notes_allowed = view.holding(notes_allowed, at_ms)
    try:
        params = changed(params, recall.ranking)
    except msgspec.ValidationError as error:
        raise Invalid(f"ranking: {error}") from None
    if view.matrix is None:
        streams = [stream for stream in streams if stream != "vector"]
    return Asked(recall, view, question, notes_allowed, tuple(streams), place, params)


def question_of(recall: Recall) -> str:
    """The question as it is looked for and embedded."""
    return " ".join(recall.query.split())[:QUERY_CHARS]


def as_of_ms(recall: Recall) -> int | None:
    """The time that is asked about; None = now. Raises Invalid."""
    return instant_ms(recall.as_of) if recall.as_of else None


def too_early(view: View) -> str:
    """What to say when no note stood at the time that is asked about."""
    if not view.earliest_ms:
        return "The index does not reach back to that time: it is empty."
    if view.past_ms is not None and view.past_ms >= view.earliest_ms:
        return "No note stood at that time."
    return f"The index does not reach back to that time: its oldest versions are of {instant(view.earliest_ms)}."


def gather_text(
    conn: sqlite3.Connection, asked: Asked, frequencies: fulltext.Frequencies, params: fulltext.TextParams
) -> Words:
    """Full-text matches in the notes that may answer, read by notes: what of ranking needs no vectors is done here."""
    view = asked.view
    text = fulltext.find(
        conn,
        asked.question.terms,
        params,
        frequencies,
        revision=notes.revision(conn),
        chunks_total=len(view.chunks),
        lengths=view.chunks.lengths,
        allowed=_chunk_filter(asked),
        past=view.past_ms is not None,
    )
    with view.lock:
        return Words(text, lexical.read(asked.question, text, view.chunks.notes_of, view.notes, asked.params))


def gather_vectors(conn: sqlite3.Connection, asked: Asked, queries: Floats) -> tuple[Similarities, ...]:
    """Similarities of every note to each row of ``queries``."""
    matrix = asked.view.matrix
    if matrix is None:
        return ()
    model_id = matrix.model_id
    known: dict[bytes, list[vectors.SentenceRow]] = {}

    def fetch(hashes: list[bytes]) -> list[vectors.SentenceRow]:
        # Question and probes mostly want the same notes.
        absent = [key for key in hashes if key not in known]
        for key, rows in itertools.groupby(vectors.sentences(conn, model_id, absent), key=operator.attrgetter("hash")):
            known[key] = list(rows)
        return [row for key in hashes for row in known.get(key, ())]

    common = asked.params.dense_common
    return matrix.search(np.ascontiguousarray(queries, np.float32), fetch, asked.allowed, common)


def weigh(asked: Asked, words: Words | None, similar: Sequence[Similarities]) -> tuple[Evidence, Ranking]:
    """What the streams found, put together and ranked."""
    view = asked.view
    evidence = Evidence(
        text=words.text if words is not None else None,
        vector=similar[0] if similar else None,
        note_of_chunk=view.chunks.notes_of,
        probes=tuple(similar[1:]),
    )
    with view.lock:
        ranking = rank(
            asked.question,
            evidence,
            view.notes,
            asked.params,
            k=asked.width,
            allowed=asked.allowed,
            streams=asked.streams,
            words=words.by_note if words is not None else None,
        )
    return evidence, ranking


def compose(conn: sqlite3.Connection, asked: Asked, evidence: Evidence, ranking: Ranking) -> tuple[Hit, ...]:
    """The hits with their passages, verbatim; near-duplicates folded into one hit."""
    return tuple(one.hit for one in find(conn, asked, evidence, ranking))


def find(conn: sqlite3.Connection, asked: Asked, evidence: Evidence, ranking: Ranking) -> tuple[Found, ...]:
    """As ``compose``, ``asked.width`` of them, each with what it was made of."""
    view = asked.view
    first = [c for c in ranking.candidates if c.note_id in view.cards][: asked.width + TWINS]
    wanted = {c.note_id: _passages_to_read(view, c, evidence) for c in first}
    read = notes.passages(conn, itertools.chain.from_iterable(wanted.values()))
    texts = {note: [read[chunk] for chunk in chunks if chunk in read] for note, chunks in wanted.items()}
    shown = present(asked.question, ranking, texts, evidence, asked.params, k=asked.width, catalog=view.notes)
    return tuple(Found(_hit(asked, one.candidate, one.passage), one.candidate, one.passage) for one in shown)


def _passages_to_read(view: View, candidate: Candidate, evidence: Evidence) -> list[int]:
    """The passages of a note among which the answer is looked for: all, or in a long note those that matched and the head."""
    chunks = view.chunks.chunks_of(candidate.note_id)
    if len(chunks) <= PASSAGES_READ:
        return list(chunks)
    sums = evidence.text.sums if evidence.text is not None else {}
    matched = sorted((chunk for chunk in chunks if chunk in sums), key=lambda chunk: -sums[chunk])
    chosen = dict.fromkeys((candidate.chunk_id, *matched[:PASSAGES_READ], *chunks[:PASSAGES_READ]))
    held = set(chunks)
    return sorted(chunk for chunk in list(chosen)[:PASSAGES_READ] if chunk in held)


def raw_events(conn: sqlite3.Connection, asked: Asked) -> tuple[RawEvent, ...]:
    """Captured events that match, for a question that the notes do not answer."""
    project = asked.place.project if asked.recall.scope == "project" else ""
    rows = events.find(conn, asked.question.terms, RAW_EVENTS, project=project, until_ms=asked.view.past_ms)
    found = []
    for row in rows:
        text = event_text(decode_event(row.event))
        at = datetime.datetime.fromtimestamp(row.at_ms / 1000, datetime.UTC).isoformat(timespec="seconds")
        found.append(RawEvent(session=row.session, kind=row.kind, at=at, text=text[:EVENT_CHARS], host=row.host))
    return tuple(found)


def event_text(event: Event) -> str:
    """What an event says, on as few lines as it needs."""
    parts = (event.tool, event.command, " ".join(event.paths), event.text, event.output_head, event.output_tail)
    return "\n".join(part for part in parts if part)


def finish(asked: Asked, ranking: Ranking, hits: tuple[Hit, ...], degraded: Sequence[str], **more: object) -> Answer:
    """The answer as far as the notes go; the caller knows the rest."""
    return Answer(
        hits=hits,
        degraded=tuple(dict.fromkeys(degraded)),
        confidence=round(ranking.confidence, 4),
        known=ranking.known,
        intent=ranking.intent,
        revision=asked.view.revision,
        project=asked.place.project,
        project_from=asked.place.found_by,
        features=msgspec.structs.asdict(ranking.features) if asked.recall.explain and ranking.features else {},
        **more,  # type: ignore[arg-type]
    )


def _chunk_filter(asked: Asked) -> fulltext.Filter | None:
    notes_of, notes_allowed = asked.view.chunks.notes_of, asked.allowed
    if asked.view.past_ms is not None and notes_allowed is None:
        return lambda chunks: notes_of(chunks) != 0
    if notes_allowed is None:
        return None
    return lambda chunks: np.fromiter(map(notes_allowed.__contains__, notes_of(chunks).tolist()), bool, len(chunks))


def _hit(asked: Asked, candidate: Candidate, passage: Passage) -> Hit:
    view = asked.view
    card = view.cards[candidate.note_id]
    vault = view.vaults.get(card.vault_id)
    alone = asked.recall.sentence_only and bool(passage.sentence)
    return Hit(
        path=card.path,
        title=card.title,
        score=round(candidate.score, 4),
        lines=passage.sentence_lines if alone else passage.lines,
        passage=passage.sentence if alone else passage.text,
        streams={
            name: StreamScore(rank=vote.rank, score=vote.score, weight=vote.weight, detail=vote.detail)
            for name, vote in candidate.streams.items()
        },
        vault=vault.name if vault else "",
        file=os.path.join(vault.root, card.path) if vault else "",
        heading=passage.context,
        sentence=passage.sentence,
        quote=passage.quote,
        date=card.date,
        kind=card.kind,
        tags=card.tags,
        project=card.project,
        superseded_by=superseded(view.cards.get(candidate.superseded_by)),
        why=candidate.why,
        also=tuple(view.cards[note].path for note in candidate.also if note in view.cards),
        factors=candidate.factors if asked.recall.explain else {},
        valid=_valid(view, candidate.note_id),
    )


def _valid(view: View, note_id: int) -> tuple[str, str]:
    """Since when and until when a past version stood; nothing for a question about now."""
    since, until = view.stood.get(note_id, (None, None))
    return ("" if since is None else instant(since), "" if until is None else instant(until))


def superseded(card: NoteCard | None) -> Superseded | None:
    return Superseded(path=card.path, title=card.title) if card is not None else None
