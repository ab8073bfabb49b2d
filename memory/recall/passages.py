"""
The passage that answers, and the sentence in it.

``present`` is the second half of ranking: it gets the texts of the first candidates, folds near-duplicates into one hit,
and chooses in each note the sentence that answers, verbatim, with its lines.
"""

from __future__ import annotations

import operator
import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from .duplicates import Body
from .entities import name_key
from .params import Params
from .query import Question
from .rank import Candidate, Ranking
from .readable import readable
from .tokens import MAX_SENTENCE_CHARS, bare, fold, sentences, words_of
from .tokens import stem as stem_of
from .types import Catalog, Evidence

QUOTE_CHARS = 240
"""Longest quote: a whole note is not a citation."""
LOOKED_INTO = 3
"""Passages of a note that are read sentence by sentence."""

_TARGET = re.compile(r"\[\[([^\[\]|#\n]{1,300})[^\[\]|\n]{0,300}(?:\|([^\[\]\n]{0,300}))?\]\]")
STEM_ENDING = 1
"""Letters at the end of a stem that the word need not have: "happi" of "happy", "agenc" and "possibl" of "possibility"."""
_NOW_STEMS = frozenset(("replac", "now", "current", "move", "supersed"))
UNKNOWN_COSINE = 0.3
"""A sentence without a vector: what an ordinary sentence of the right note has."""
_NOT_ASCII = re.compile(r"[\x80-\U0010ffff]")
_NOT_PLAIN = re.compile(
    r"\[(?<!\[\[)"  # the first bracket of a link tells of both
    r"(?:(?<=[A-Za-z0-9!]\[)|(?!\[[\w -]{1,300}\]\](?:[\s.,;:?)]|\Z)))"
)
"""A link, but one to a plain name that stands alone: it shows other words than stand there, or joins them."""
_JOINING = re.compile(r"[~=]{4}")
"""Two words may stand beside it that are one where ``readable`` takes the marks away; it does so with no other marks."""
_DATE = re.compile(
    r"\b\d{4}-\d{2}-\d{2}\b|\b(?:19|20)\d{2}\b|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)\w*\b"
    r"|\b(?:yesterday|today|tomorrow|last|next) ?\w*|\d+月|\d+日|\d+年|\d+월|\d+일"
)
_NUMBER = re.compile(r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|dozen|hundred|thousand|million)\b")
_CAPITAL = re.compile(r"(?<=[\w,;:*\[|(] )[\[*|]*[A-ZÀ-ÖØ-ÞЀ-Я]\w+|\[\[")
_PLACE = re.compile(r"\b(?:in|at|to|from|near|on)\s+(?:the\s+)?[\[*]*[A-Z]\w+")
_REASON = re.compile(r"\b(?:because|since|so that|due to|therefore|reason|in order to|caused?|weil|denn|porque)\b")


class PassageText(msgspec.Struct, frozen=True, gc=False):
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
    judges: dict[bool, Judge] = {}

    def judge(linked: bool) -> Judge:
        if linked not in judges:
            judges[linked] = Judge(question, evidence, params, catalog, linked=linked)
        return judges[linked]

    kept: list[tuple[Candidate, Body]] = []
    also: dict[int, list[int]] = {}
    for candidate in ranking.candidates:
        passages = texts.get(candidate.note_id)
        if not passages:
            continue
        body = Body("\n".join(passage.text for passage in passages))
        least = params.near_duplicate
        twin = next((first for first, seen in kept if seen.like(body, least) >= least), None)
        if twin is not None and not _replaced(candidate, twin):
            also.setdefault(twin.note_id, []).append(candidate.note_id)
        elif len(kept) < k:
            kept.append((candidate, body))
    return tuple(
        Presented(
            candidate=msgspec.structs.replace(candidate, also=tuple(also.get(candidate.note_id, ()))),
            passage=choose(judge(bool(candidate.link_path)), candidate, texts[candidate.note_id], evidence),
        )
        for candidate, _ in kept
    )


def choose(judge: Judge, candidate: Candidate, passages: Sequence[PassageText], evidence: Evidence) -> Passage:
    """The best sentence of one note and the passage that it stands in."""
    cosines = _cosines(candidate.note_id, evidence)
    passages = _promising(passages, cosines, evidence)
    best: tuple[float, PassageText, int, list[tuple[int, int]], list[float]] | None = None
    for passage in passages:
        text = passage.text
        spans = [span for span in sentences(text) if text[span[0]] != "#" or not _is_heading(text[slice(*span)])]
        scores = judge.scores(text, spans, map(cosines.get(passage.chunk_id, {}).get, spans))
        if scores and (best is None or max(scores) > best[0]):
            best = (max(scores), passage, scores.index(max(scores)), spans, scores)
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
    passages: Sequence[PassageText], cosines: Mapping[int, Mapping[tuple[int, int], float]], evidence: Evidence
) -> Sequence[PassageText]:
    """The passages of a long note whose sentences are worth reading: those with the question's words or meaning."""
    if len(passages) <= LOOKED_INTO:
        return passages
    nearest = {chunk: max(known.values()) for chunk, known in cosines.items()}
    sums = evidence.text.sums if evidence.text is not None else {}
    words = {p.chunk_id: sums.get(p.chunk_id, 0.0) for p in passages}
    most = max(words.values()) or 1.0
    worth = {p.chunk_id: nearest.get(p.chunk_id, 0.0) + 0.5 * words[p.chunk_id] / most for p in passages}
    return sorted(passages, key=lambda p: (-worth[p.chunk_id], p.line_from))[:LOOKED_INTO]


def _cosines(note: int, evidence: Evidence) -> dict[int, dict[tuple[int, int], float]]:
    """Chunk -> slice of its text -> cosine of that sentence to the question, 0 at least."""
    found: dict[int, dict[tuple[int, int], float]] = {}
    if evidence.vector is not None:
        for chunk, start, end, cosine in evidence.vector.sentences(note):
            known = found.get(chunk)
            if known is None:
                known = found[chunk] = {}
            span = (start, end)
            least = known.get(span, 0.0)
            known[span] = least if least > cosine else cosine
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


class Judge:
    """Scores the sentences of notes: of those that a link brought (``linked``), or of others."""

    def __init__(
        self, question: Question, evidence: Evidence, params: Params, catalog: Catalog | None, *, linked: bool
    ) -> None:
        self.question, self.params, self.catalog = question, params, catalog
        self.cosine = params.sentence_linked_cosine if linked else params.sentence_cosine
        self.weights = _term_weights(
            question, evidence, params.sentence_names_linked if linked else params.sentence_names
        )
        self.total = sum(self.weights.values()) or 1.0
        # A stem's first two letters are its word's (not of "eyed", and few others): only what may match is stemmed.
        self.stems = {*self.weights, *(_NOW_STEMS if question.time == "current" else ())}
        self.heads = {stem[:2] for stem in self.stems}
        self.starts = tuple({stem[: max(2, len(stem) - STEM_ENDING)] for stem in self.stems})
        self.blank_starts = tuple(" " + start for start in self.starts if start.isascii())

    def scores(self, text: str, spans: Sequence[tuple[int, int]], cosines: Iterable[float | None]) -> list[float]:
        """One score for each sentence; ``cosines`` are theirs, None where one is not known."""
        question = self.question
        scores = [self.cosine * (cosine if cosine is not None else UNKNOWN_COSINE) for cosine in cosines]
        found = self.words(text, spans)
        for index, words in found.items():
            said = sum([weight for stem, weight in self.weights.items() if stem in words])
            scores[index] += self.params.sentence_words * said / self.total
        if question.wants or question.time == "when":
            for index, (start, end) in enumerate(spans):
                scores[index] += self.params.sentence_type * _fits(question, readable(text[start:end]))
        if question.kinds and self.catalog is not None:
            for index, (start, end) in enumerate(spans):
                if self._links_to_kind(text[start:end]):
                    scores[index] += self.params.sentence_kind
        if question.time == "current":
            for index, words in found.items():
                if words & _NOW_STEMS:
                    scores[index] += 0.05
        return scores

    def words(self, text: str, spans: Sequence[tuple[int, int]]) -> dict[int, set[str]]:
        """The question's stems, of the sentences that have any."""
        begins, ends = [start for start, _ in spans], [end for _, end in spans]
        if MAX_SENTENCE_CHARS in map(operator.sub, ends, begins):
            # It may have been cut inside a word.
            apart = set(range(len(spans)))
        else:
            apart = _with_markup(text, begins, ends)
        found: dict[int, set[str]] = {}
        for index in apart:
            if words := self.words_in(text[begins[index] : ends[index]]):
                found[index] = words
        if len(apart) == len(spans):
            return found
        plain = bare(text)
        for start in self.blank_starts:
            at = plain.find(start)
            while at >= 0:
                end = plain.find(" ", at + 1)
                word = plain[at + 1 : end]
                if word[:2] in self.heads and (stem := stem_of(word)) in self.stems:
                    index = bisect_right(begins, at) - 1
                    if index >= 0 and at < ends[index] and index not in apart:
                        found.setdefault(index, set()).add(stem)
                at = plain.find(start, end)
        return found

    def words_in(self, sentence: str) -> set[str]:
        """The question's stems among its words."""
        folded = fold(readable(sentence))
        heads, starts = self.heads, self.starts
        for start in starts:
            if start in folded:
                break
        else:
            # Most sentences: what a word begins with stands nowhere in them.
            return set()
        words = [word for word in words_of(folded) if word[:2] in heads and word.startswith(starts)]
        return {stem for stem in map(stem_of, words) if stem in self.stems}

    def _links_to_kind(self, sentence: str) -> bool:
        """Whether it links to a note of the kind that the question asks for and does not name."""
        assert self.catalog is not None
        for match in _TARGET.finditer(sentence):
            for key in (name_key(match[1].rpartition("/")[2]), name_key(match[2] or "")):
                for note in self.catalog.titles.get(key, ()):
                    if self.catalog.cards[note].kind in self.question.kinds and key not in name_key(self.question.text):
                        return True
        return False


def _with_markup(text: str, begins: Sequence[int], ends: Sequence[int]) -> set[int]:
    """The sentences whose words may not be those of ``bare``: they hold what ``readable`` or ``fold`` may change."""
    found: set[int] = set()
    for pattern, may_be_there in (
        (_NOT_ASCII, not text.isascii()),
        (_NOT_PLAIN, "[" in text),
        (_JOINING, "~~" in text or "==" in text),
    ):
        match = pattern.search(text) if may_be_there else None
        while match is not None:
            index = bisect_right(begins, match.start()) - 1
            if index >= 0 and match.start() < ends[index]:
                found.add(index)
            if index + 1 == len(begins):
                break
            match = pattern.search(text, begins[index + 1])
    return found


def _fits(question: Question, readable: str) -> float:
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


def _replaced(candidate: Candidate, twin: Candidate) -> bool:
    return candidate.superseded_by == twin.note_id or twin.superseded_by == candidate.note_id
