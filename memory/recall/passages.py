"""
The passage that answers, and the sentence in it.

``present`` is the second half of ranking: it gets the texts of the first candidates, folds near-duplicates into one hit,
and chooses in each note the sentence that answers, verbatim, with its lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import msgspec

from .entities import name_key
from .params import Params
from .query import Question
from .rank import Candidate, Ranking
from .readable import readable
from .tokens import fold, sentences, words_of
from .tokens import stem as stem_of
from .types import Catalog, Evidence

QUOTE_CHARS = 240
"""Longest quote: a whole note is not a citation."""
LOOKED_INTO = 3
"""Passages of a note that are read sentence by sentence."""
SHINGLE = 5
"""Words per shingle when texts are compared."""
LENGTHS_ALIKE = 0.8
MANY_LINES = 8
MIN_SHINGLES = 8
"""Shorter texts are near-duplicates only when they are equal."""

_TARGET = re.compile(r"\[\[([^\[\]|#\n]{1,300})[^\[\]|\n]{0,300}(?:\|([^\[\]\n]{0,300}))?\]\]")
STEM_ENDING = 2
"""Letters at the end of a stem that the word need not have: porter changes one ("e", "i", "ble" for "bility")."""
_NOW_STEMS = frozenset(("replac", "now", "current", "move", "supersed"))
UNKNOWN_COSINE = 0.3
"""A sentence without a vector: what an ordinary sentence of the right note has."""
_DATE = re.compile(
    r"\b\d{4}-\d{2}-\d{2}\b|\b(?:19|20)\d{2}\b|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)\w*\b"
    r"|\b(?:yesterday|today|tomorrow|last|next) ?\w*|\d+月|\d+日|\d+年|\d+월|\d+일"
)
_NUMBER = re.compile(r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|dozen|hundred|thousand|million)\b")
_CAPITAL = re.compile(r"(?<=[\w,;:*\[|(] )[\[*|]*[A-ZÀ-ÖØ-ÞЀ-Я]\w+|\[\[")
_PLACE = re.compile(r"\b(?:in|at|to|from|near|on)\s+(?:the\s+)?[\[*]*[A-Z]\w+")
_REASON = re.compile(r"\b(?:because|since|so that|due to|therefore|reason|in order to|caused?|weil|denn|porque)\b")


class PassageText(msgspec.Struct, frozen=True, kw_only=True):
    """One passage of a note as it stands in the file."""

    chunk_id: int
    text: str
    line_from: int
    line_to: int
    context: str = ""


class Passage(msgspec.Struct, frozen=True, kw_only=True):
    """The place that answers. ``sentence`` and ``quote`` are slices of the passage's text."""

    chunk_id: int
    text: str
    lines: tuple[int, int]
    context: str = ""
    sentence: str = ""
    sentence_lines: tuple[int, int] = (0, 0)
    quote: str = ""
    """The sentence with as much of its surroundings as fits into QUOTE_CHARS."""
    score: float = 0.0


class Presented(msgspec.Struct, frozen=True, kw_only=True):
    candidate: Candidate
    passage: Passage


def present(
    question: Question,
    ranking: Ranking,
    texts: Mapping[int, Sequence[PassageText]],
    evidence: Evidence,
    params: Params,
    *,
    k: int,
    catalog: Catalog | None = None,
) -> tuple[Presented, ...]:
    """
    The first ``k`` hits with their passages. ``texts`` maps note ids to all passages of that note; candidates without texts
    (removed since) are left out, near-duplicates are listed in ``also`` of the first of them.
    """
    kept: list[tuple[Candidate, _Body]] = []
    also: dict[int, list[int]] = {}
    for candidate in ranking.candidates:
        passages = texts.get(candidate.note_id)
        if not passages:
            continue
        body = _Body("\n".join(passage.text for passage in passages))
        least = params.near_duplicate
        twin = next((first for first, seen in kept if seen.like(body, least) >= least), None)
        if twin is not None and not _replaced(candidate, twin):
            also.setdefault(twin.note_id, []).append(candidate.note_id)
        elif len(kept) < k:
            kept.append((candidate, body))
    return tuple(
        Presented(
            candidate=msgspec.structs.replace(candidate, also=tuple(also.get(candidate.note_id, ()))),
            passage=choose(question, candidate, texts[candidate.note_id], evidence, params, catalog),
        )
        for candidate, _ in kept
    )


def choose(
    question: Question,
    candidate: Candidate,
    passages: Sequence[PassageText],
    evidence: Evidence,
    params: Params,
    catalog: Catalog | None = None,
) -> Passage:
    """The best sentence of one note and the passage that it stands in."""
    cosines = _cosines(question, candidate.note_id, evidence)
    linked = bool(candidate.link_path)
    names = params.sentence_names_linked if linked else params.sentence_names
    judge = _Judge(
        question,
        _term_weights(question, evidence, names),
        params.sentence_linked_cosine if linked else params.sentence_cosine,
        params,
        catalog,
    )
    passages = _promising(passages, cosines, evidence)
    best: tuple[float, PassageText, int, list[tuple[int, int]], list[float]] | None = None
    for passage in passages:
        pieces = [(span, passage.text[slice(*span)]) for span in sentences(passage.text)]
        pieces = [(span, piece) for span, piece in pieces if not _is_heading(piece)]
        spans = [span for span, _ in pieces]
        scores = [judge.score(piece, cosines.get((passage.chunk_id, *span))) for span, piece in pieces]
        for index, score in enumerate(scores):
            if best is None or score > best[0]:
                best = (score, passage, index, spans, scores)
    if best is None:
        passage = passages[0]
        return Passage(
            chunk_id=passage.chunk_id,
            text=passage.text,
            lines=(passage.line_from, passage.line_to),
            context=passage.context,
        )
    score, passage, index, spans, scores = best
    start, end = spans[index]
    first, last = _widen(spans, scores, index)
    return Passage(
        chunk_id=passage.chunk_id,
        text=passage.text,
        lines=(passage.line_from, passage.line_to),
        context=passage.context,
        sentence=passage.text[start:end],
        sentence_lines=(
            passage.line_from + passage.text.count("\n", 0, start),
            passage.line_from + passage.text.count("\n", 0, end),
        ),
        quote=passage.text[first:last][:QUOTE_CHARS],
        score=score,
    )


def _promising(
    passages: Sequence[PassageText], cosines: Mapping[tuple[int, int, int], float], evidence: Evidence
) -> Sequence[PassageText]:
    """The passages of a long note whose sentences are worth reading: those with the question's words or meaning."""
    if len(passages) <= LOOKED_INTO:
        return passages
    nearest: dict[int, float] = {}
    for (chunk, _, _), cosine in cosines.items():
        nearest[chunk] = max(cosine, nearest.get(chunk, 0.0))
    matches = evidence.text.scores.values() if evidence.text is not None else ()
    words = {p.chunk_id: sum(found.get(p.chunk_id, 0.0) for found in matches) for p in passages}
    most = max(words.values()) or 1.0
    worth = {p.chunk_id: nearest.get(p.chunk_id, 0.0) + 0.5 * words[p.chunk_id] / most for p in passages}
    return sorted(passages, key=lambda p: (-worth[p.chunk_id], p.line_from))[:LOOKED_INTO]


def _cosines(question: Question, note: int, evidence: Evidence) -> dict[tuple[int, int, int], float]:
    found: dict[tuple[int, int, int], float] = {}
    for vector in (evidence.vector,):
        if vector is not None:
            for chunk, start, end, cosine in vector.sentences(note):
                found[chunk, start, end] = max(cosine, found.get((chunk, start, end), 0.0))
    return found


def _term_weights(question: Question, evidence: Evidence, names: float) -> dict[str, float]:
    """Stem -> weight of the question's words; rarer ones weigh more, words inside names less: they pick the note."""
    weights: dict[str, float] = {}
    text = evidence.text
    for term in question.terms:
        if term.kind != "word":
            continue
        df = text.df.get(term.text, 0) if text else 0
        total = text.chunks_total if text else 0
        rarity = 1.0 - min(1.0, df / total) ** 0.5 if total else 1.0
        weights[term.stem] = rarity * (names if term.stem in question.name_stems else 1.0)
    return weights


class _Judge:
    """Scores the sentences of one note."""

    def __init__(
        self, question: Question, weights: Mapping[str, float], cosine: float, params: Params, catalog: Catalog | None
    ) -> None:
        self.question, self.weights, self.cosine, self.params, self.catalog = question, weights, cosine, params, catalog
        self.total = sum(weights.values()) or 1.0
        # Stemming costs 15 us a word, changes its last letters and never the first two: only what may match is stemmed.
        stems = (*weights, *(_NOW_STEMS if question.time == "current" else ()))
        self.heads = {stem[:2] for stem in stems}
        self.starts = tuple({stem[: max(2, len(stem) - STEM_ENDING)] for stem in stems})

    def score(self, sentence: str, cosine: float | None) -> float:
        shown = readable(sentence)
        words = self._words_in(fold(shown))
        score = self.cosine * (cosine if cosine is not None else UNKNOWN_COSINE)
        if words:
            said = sum(weight for stem, weight in self.weights.items() if stem in words)
            score += self.params.sentence_words * said / self.total
        if self.question.wants or self.question.time == "when":
            score += self.params.sentence_type * _fits(self.question, sentence, shown)
        if self.question.kinds and self.catalog is not None and self._links_to_kind(sentence):
            score += self.params.sentence_kind
        if self.question.time == "current" and words & _NOW_STEMS:
            score += 0.05
        return score

    def _words_in(self, folded: str) -> set[str]:
        """Stems of the words that may be the question's."""
        heads, starts = self.heads, self.starts
        for start in starts:
            if start in folded:
                break
        else:
            # Most sentences: what a word begins with stands nowhere in them.
            return set()
        return {stem_of(word) for word in words_of(folded) if word[:2] in heads and word.startswith(starts)}

    def _links_to_kind(self, sentence: str) -> bool:
        """Whether it links to a note of the kind that the question asks for and does not name."""
        assert self.catalog is not None
        for match in _TARGET.finditer(sentence):
            for key in (name_key(match[1].rpartition("/")[2]), name_key(match[2] or "")):
                for note in self.catalog.titles.get(key, ()):
                    if self.catalog.cards[note].kind in self.question.kinds and key not in name_key(self.question.text):
                        return True
        return False


def _fits(question: Question, sentence: str, readable: str) -> float:
    wants = "date" if question.time == "when" and not question.wants else question.wants
    match wants:
        case "date":
            return float(bool(_DATE.search(readable.lower())))
        case "number":
            return float(bool(_NUMBER.search(readable.lower())))
        case "person":
            return float(any(name_key(m[0]) not in question.text.lower() for m in _CAPITAL.finditer(readable)))
        case "place":
            return float(bool(_PLACE.search(readable)))
        case "reason":
            return float(bool(_REASON.search(readable.lower())))
        case _:
            return 0.0


def _widen(spans: Sequence[tuple[int, int]], scores: Sequence[float], index: int) -> tuple[int, int]:
    """Whole neighbouring sentences, the better side first, while they fit into QUOTE_CHARS."""
    low = high = index
    while True:
        options = []
        if low > 0 and spans[high][1] - spans[low - 1][0] <= QUOTE_CHARS:
            options.append((scores[low - 1], low - 1))
        if high + 1 < len(spans) and spans[high + 1][1] - spans[low][0] <= QUOTE_CHARS:
            options.append((scores[high + 1], high + 1))
        if not options:
            return spans[low][0], spans[high][1]
        _, chosen = max(options)
        low, high = min(low, chosen), max(high, chosen)


def _is_heading(text: str) -> bool:
    return text.lstrip().startswith("#") and "\n" not in text.strip() and text.lstrip().lstrip("#").startswith(" ")


class _Body:
    """The text of a note, for comparison: its shingles are made when a text of about the same length comes along."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = frozenset(text.splitlines())
        self._words: list[str] | None = None
        self._vocabulary: frozenset[str] = frozenset()
        self._shingles: set[tuple[str, ...]] | None = None

    def like(self, other: _Body, least: float) -> float:
        """
        Jaccard similarity of shingles, 0…1; 0 without looking for lengths that rule a likeness of 0.8 out, and for words that
        rule ``least`` out.
        """
        mine, theirs = len(self.text), len(other.text)
        if mine < LENGTHS_ALIKE * theirs or theirs < LENGTHS_ALIKE * mine:
            return 0.0
        # A copy with changes still has most of its lines; comparing those costs a tenth.
        many = len(self.lines) >= MANY_LINES <= len(other.lines)
        if many and len(self.lines & other.lines) * 2 < len(self.lines | other.lines):
            return 0.0
        if not self._may_be_like(other, least):
            return 0.0
        one, two = self.shingles(), other.shingles()
        if min(len(one), len(two)) < MIN_SHINGLES:
            return float(one == two)
        return len(one & two) / len(one | two)

    def shingles(self) -> set[tuple[str, ...]]:
        if self._shingles is None:
            words = self.words()
            self._shingles = set(zip(*(words[i:] for i in range(SHINGLE)), strict=False)) or {tuple(words)}
        return self._shingles

    def words(self) -> list[str]:
        if self._words is None:
            self._words = words_of(fold(self.text))
            self._vocabulary = frozenset(self._words)
        return self._words

    def _may_be_like(self, other: _Body, least: float) -> bool:
        """
        Whether the words allow a likeness of ``least``. A word that the other text has not begins a shingle that it has not,
        unless it is one of the last four; a likeness leaves only so many shingles to one of the two.
        """
        lengths = len(self.words()), len(other.words())
        if min(lengths) < MIN_SHINGLES + SHINGLE:
            return True
        # The shared words are few where texts differ: a third of the time of the difference itself.
        shared = len(self._vocabulary & other._vocabulary)
        alone = len(self._vocabulary) + len(other._vocabulary) - 2 * shared - 2 * (SHINGLE - 1)
        return alone * (1.0 + least) <= (1.0 - least) * sum(lengths)


def _replaced(candidate: Candidate, twin: Candidate) -> bool:
    return candidate.superseded_by == twin.note_id or twin.superseded_by == candidate.note_id
