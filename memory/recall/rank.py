"""
The order of notes for one question, and why.

``rank`` is pure: the same question, evidence and catalog give the same ranking. The steps are the modules beside this one:
lexical and dense scores, names, weights (fusion), votes along links (graph), then standing and time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from . import authority, confidence, dense, fusion, graph, lexical, supersession
from .confidence import Features
from .dates import parse_day
from .entities import entity_scores
from .graph import Vote
from .params import Params
from .query import Question
from .types import NOBODY, Catalog, Evidence, NoteCard

SPARE = 5
"""Candidates beyond ``k`` that a ranking holds, to fill up when near-duplicates are folded."""
JUDGED = 10
"""Notes that confidence is told of at least."""


class StreamVote(msgspec.Struct, frozen=True, kw_only=True):
    """What one stream said of a note. ``score`` is 0…1 in each stream; ``rank`` is among all that the stream found."""

    rank: int
    score: float
    weight: float
    detail: str = ""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One note in the order, with the place in it that matched best (``chunk_id`` 0: unknown)."""

    note_id: int
    score: float
    chunk_id: int = 0
    char_from: int = 0
    char_to: int = 0
    """Slice of the passage's text: the nearest sentence; (0, 0) when there are no sentence vectors."""
    streams: dict[str, StreamVote] = {}
    factors: dict[str, float] = {}
    """'fused' before the multipliers, then authority, superseded, recency, period as far as they are not 1."""
    link_path: tuple[int, ...] = ()
    """Notes from the seed to this one, when a link brought it."""
    superseded_by: int = 0
    also: tuple[int, ...] = ()
    why: str = ""


class Ranking(msgspec.Struct, frozen=True, kw_only=True):
    candidates: tuple[Candidate, ...]
    confidence: float
    known: bool
    intent: str
    features: Features | None = None


def rank(
    question: Question,
    evidence: Evidence,
    catalog: Catalog,
    params: Params,
    *,
    k: int,
    allowed: Collection[int] | None = None,
    streams: Collection[str] = ("text", "entity", "graph", "vector"),
    words: lexical.Lexical | None = None,
) -> Ranking:
    """
    The best ``k`` (and SPARE more) of the notes in ``allowed`` (None = all), and how sure it is that they answer.

    Links may lead through notes that are not allowed; those are not candidates themselves. ``words`` is what ``lexical.read``
    makes of the evidence, where that was done before: a note may have gone since.
    """
    if words is None and evidence.text is not None:
        words = lexical.read(question, evidence.text, evidence.note_of_chunk, catalog, params)
    named = (
        entity_scores(question.names, catalog.cards, limit=int(10 * params.entity_limit)) if "entity" in streams else {}
    )
    pool = int(params.pool)
    by_words = words.order if words else []
    candidates = dict.fromkeys(evidence.vector.top(pool) if evidence.vector else ())
    candidates.update(dict.fromkeys(by_words[:pool]))
    candidates.update(dict.fromkeys(fusion.order(named)[:pool]))
    candidates = {note: None for note in candidates if note in catalog.cards}
    similar = dense.read(evidence, candidates, params)
    weight = fusion.weights(question, words.gate if words else 0.0, has_vectors=bool(similar.score), params=params)
    text_scores = words.score if words else {}
    base = fusion.fuse(weight, _only(text_scores, candidates), named, similar.score)
    _kinds_asked_for(base, question, catalog, params)
    votes: dict[int, Vote] = {}
    if "graph" in streams and params.graph_weight:
        votes = _votes(question, evidence, catalog, params, base, weight, similar, text_scores)
    fused = dict(base)
    for note, vote in votes.items():
        fused[note] = max(fused.get(note, 0.0), vote.score * params.graph_weight)
    newer = supersession.replaced_by_sibling(catalog.cards[note] for note in fused)
    factors = _factors(question, fused, catalog, newer, params)
    final = {note: score * _product(known) if (known := factors[note]) else score for note, score in fused.items()}
    ordered = fusion.order(final)
    if question.time != "history" and _replacements_first(ordered, final, fused, catalog, params):
        ordered = fusion.order(final)
    shown = [note for note in ordered if allowed is None or note in allowed][: max(k + SPARE, JUDGED)]
    similar.look_up(shown)
    facts = confidence.features(question, shown, final, words, similar, evidence, catalog)
    sure = confidence.estimate(facts, params.model or confidence.default_model())
    book = _Book(question, catalog, words, named, similar, votes, base, weight, by_words, frozenset(shown))
    return Ranking(
        candidates=tuple(
            book.entry(note, final[note], fused[note], factors.get(note, {}), newer) for note in shown[: k + SPARE]
        ),
        confidence=sure if shown else 0.0,
        known=bool(shown) and sure >= params.know_threshold,
        intent=_intent_line(question),
        features=facts,
    )


def _votes(
    question: Question,
    evidence: Evidence,
    catalog: Catalog,
    params: Params,
    base: dict[int, float],
    weight: fusion.Weights,
    similar: dense.Dense,
    text_scores: Mapping[int, float],
) -> dict[int, Vote]:
    """Votes, after the neighbours of the seeds have been scored like any other candidate."""

    def look_around(notes: Collection[int]) -> dict[int, graph.Neighbours]:
        near = {note: graph.neighbours(note, catalog, params) for note in notes}
        fresh = {note for found in near.values() for note in found if note not in base}
        more = dense.read(evidence, fresh, params)
        similar.score.update(more.score)
        similar.cosine.update(more.cosine)
        added = fusion.fuse(weight, _only(text_scores, fresh), {}, more.score)
        _kinds_asked_for(added, question, catalog, params)
        base.update(added)
        return near

    seeds = fusion.order(base)[: int(params.graph_seeds)]
    near = look_around(seeds)
    votes = graph.votes(question, {seed: base[seed] for seed in seeds}, base, catalog, params, near)
    carriers = graph.carriers(votes, seeds, params)
    return graph.second(question, votes, base, catalog, params, look_around(carriers)) if carriers else votes


def _path(note: int, vote: Vote) -> tuple[int, ...]:
    return (vote.seed, vote.via, note) if vote.via else (vote.seed, note)


def _kinds_asked_for(scores: dict[int, float], question: Question, catalog: Catalog, params: Params) -> None:
    """ "Which *project* …": notes of that kind first, as far as it is their only difference."""
    if question.kinds:
        for note in scores:
            if catalog.cards[note].kind in question.kinds:
                scores[note] *= 1.0 + params.kind_weight


def _only(scores: Mapping[int, float], notes: Collection[int]) -> dict[int, float]:
    return {note: scores[note] for note in notes if note in scores}


def _factors(
    question: Question, notes: Iterable[int], catalog: Catalog, newer: Mapping[int, int], params: Params
) -> dict[int, dict[str, float]]:
    """Of each note, the multipliers that are not 1."""
    sessions, current = question.intent == "sessions", question.time == "current"
    recent = question.time == "recent" or sessions
    dated = recent or bool(question.periods)
    replaced = params.history_factor if question.time == "history" else params.superseded_factor
    found: dict[int, dict[str, float]] = {}
    for note in notes:
        card = catalog.cards[note]
        own: dict[str, float] = {}
        if not sessions:
            standing = catalog.standing(note)
            if standing != 1.0:
                own["authority"] = standing**params.authority_strength
        elif authority.is_session(card):
            own["sessions"] = 1.25
        if card.feedback is not NOBODY:
            own["feedback"] = authority.feedback(card.feedback)
        if supersession.is_superseded(card, catalog):
            own["superseded"] = replaced
        elif current and note in newer:
            own["older"] = params.superseded_factor
        if dated:
            own |= _of_time(question, card, recent, params)
        found[note] = {name: value for name, value in own.items() if value != 1.0} if own else own
    return found


def _of_time(question: Question, card: NoteCard, recent: bool, params: Params) -> dict[str, float]:
    """The multipliers of a question about a time, or about what is recent."""
    found: dict[str, float] = {}
    day = parse_day(card.date)
    if day is not None and question.periods:
        away = min(period.distance(day) for period in question.periods)
        found["period"] = 1.0 + params.period_weight * 2.0 ** (-away / 7.0)
    if recent:
        known = parse_day(card.updated) or day
        if known is not None:
            age = max(0, (question.today - known).days)
            found["recency"] = 1.0 + params.recency_weight * 2.0 ** (-age / params.recency_days)
    return found


def _product(factors: Mapping[str, float]) -> float:
    total = 1.0
    for value in factors.values():
        total *= value
    return total


def _replacements_first(
    ordered: Sequence[int], final: dict[int, float], fused: dict[int, float], catalog: Catalog, params: Params
) -> bool:
    """
    A note that is replaced never stands above its replacement; the replacement comes in with it. ``ordered``: ``final``, best
    first. Returns whether a score changed.
    """
    changed = False
    for note in ordered[:20]:
        current = supersession.current_of(note, catalog)
        if current == note:
            continue
        wanted = fused[note] * (1.0 + params.current_margin)
        if final.get(current, 0.0) < final[note] * (1.0 + params.current_margin):
            final[current] = max(final.get(current, 0.0), wanted * 0.9, final[note] * (1.0 + params.current_margin))
            fused.setdefault(current, fused[note])
            changed = True
    return changed


def _intent_line(question: Question) -> str:
    return ", ".join(filter(None, (question.intent, question.time, question.wants and f"wants {question.wants}")))


class _Book:
    """What the explanation of one ranking needs."""

    def __init__(
        self,
        question: Question,
        catalog: Catalog,
        words: lexical.Lexical | None,
        named: Mapping[int, float],
        similar: dense.Dense,
        votes: Mapping[int, Vote],
        base: Mapping[int, float],
        weight: fusion.Weights,
        by_words: Sequence[int],
        shown: Collection[int],
    ) -> None:
        self.question, self.catalog, self.words, self.named = question, catalog, words, named
        self.similar, self.votes, self.base, self.weight = similar, votes, base, weight
        scores = words.score if words is not None else {}
        voted = {note: vote.score for note, vote in votes.items()}
        self.text_ranks = fusion.ranks(by_words, scores.keys() & shown)
        self.entity_ranks = fusion.ranks(fusion.order(named), named.keys() & shown)
        self.vector_ranks = fusion.ranks(fusion.order(similar.score), similar.score.keys() & shown)
        self.graph_ranks = fusion.ranks(fusion.order(voted), voted.keys() & shown)

    def entry(
        self, note: int, score: float, fused: float, factors: dict[str, float], newer: Mapping[int, int]
    ) -> Candidate:
        card = self.catalog.cards[note]
        vote = self.votes.get(note)
        brought = vote is not None and vote.score > self.base.get(note, 0.0)
        chunk, span = self._place(note)
        current = supersession.current_of(note, self.catalog)
        replaced_by = current if current != note else newer.get(note, 0)
        streams = self._streams(note)
        return Candidate(
            note_id=note,
            score=score,
            chunk_id=chunk,
            char_from=span[0],
            char_to=span[1],
            streams=streams,
            factors={"fused": round(fused, 4), **{name: round(value, 4) for name, value in factors.items()}},
            link_path=_path(note, vote) if vote is not None and brought else (),
            superseded_by=replaced_by,
            why=self._why(card, streams, vote if brought else None, factors, replaced_by),
        )

    def _place(self, note: int) -> tuple[int, tuple[int, int]]:
        match = self.similar.match(note)
        if match is not None:
            return match.sentence_chunk_id or match.chunk_id, (match.char_from, match.char_to)
        if self.words is not None and note in self.words.score:
            return self.words.chunk(note), (0, 0)
        return 0, (0, 0)

    def _streams(self, note: int) -> dict[str, StreamVote]:
        found: dict[str, StreamVote] = {}
        if self.words is not None and note in self.words.score:
            found["text"] = StreamVote(
                rank=self.text_ranks[note],
                score=round(self.words.score[note], 4),
                weight=round(self.weight.text, 3),
                detail=", ".join(self.words.matched(note)[:6]),
            )
        if note in self.named:
            said = [name.text for name in self.question.names if note in name.notes]
            found["entity"] = StreamVote(
                rank=self.entity_ranks[note],
                score=round(self.named[note], 4),
                weight=round(self.weight.entity, 3),
                detail=", ".join(said),
            )
        match = self.similar.match(note)
        if match is not None:
            found["vector"] = StreamVote(
                rank=self.vector_ranks[note],
                score=round(self.similar.cosine[note], 4),
                weight=round(self.weight.vector, 3),
                detail=f"note {match.note_cos:.2f}, sentence {match.sentence_cos:.2f}",
            )
        vote = self.votes.get(note)
        if vote is not None:
            found["graph"] = StreamVote(
                rank=self.graph_ranks[note], score=round(vote.score, 4), weight=1.0, detail=self._link(note, vote)
            )
        return found

    def _link(self, note: int, vote: Vote) -> str:
        seed = self.catalog.cards[vote.via or vote.seed].title
        here = self.catalog.cards[note].title
        return f"{seed} -{vote.kind}-> {here}" if vote.forward else f"{here} -{vote.kind}-> {seed}"

    def _why(
        self,
        card: NoteCard,
        streams: Mapping[str, StreamVote],
        vote: Vote | None,
        factors: Mapping[str, float],
        replaced_by: int,
    ) -> str:
        parts = []
        if vote is not None:
            other = self.catalog.cards[vote.via or vote.seed].title
            parts.append(f"linked from “{other}”" if vote.forward else f"links to “{other}”")
        if "entity" in streams:
            parts.append(f"named: {streams['entity'].detail}")
        if "text" in streams and streams["text"].weight > 0:
            parts.append(f"words: {streams['text'].detail}")
        if "vector" in streams:
            parts.append(f"meaning: {streams['vector'].score:.2f}")
        if replaced_by:
            parts.append(f"superseded by “{self.catalog.cards[replaced_by].title}”")
        if card.feedback.stale or card.feedback.wrong:
            parts.append(f"said to be {'wrong' if card.feedback.wrong else 'stale'}")
        if "period" in factors and card.date:
            parts.append(f"dated {card.date}")
        return "; ".join(parts)
