"""memory/recall/passages.py: the sentence that answers."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ranking import TODAY, Similar, card, itself, words, world
from recalld.memory.recall.params import Params
from recalld.memory.recall.passages import QUOTE_CHARS, STEM_ENDING, Judge, Passage, PassageText, present
from recalld.memory.recall.query import analyse
from recalld.memory.recall.rank import Candidate, Ranking
from recalld.memory.recall.tokens import sentences, stem
from recalld.memory.recall.types import Evidence

NOTES = world(card(1, "Granite team", kind="team"), card(2, "Greta", kind="person"), card(3, "Mosscache", kind="tool"))
TEXT = (
    "The Granite team is based in [[ketterby|Ketterby]].\nThe Granite team is headed by [[greta|Greta]]. It was formed in 2010.\n"
    "\nIt maintains [[mosscache|Mosscache]] because nobody else would."
)


def passage_of(question: str, text: str = TEXT, **candidate: object) -> Passage:
    asked = analyse(question, NOTES, TODAY)
    evidence = Evidence(text=words(asked, {}), vector=None, note_of_chunk=itself)
    ranking = _ranking(Candidate(note_id=1, score=1.0, **candidate))  # type: ignore[arg-type]
    texts = {1: [PassageText(chunk_id=9, text=text, line_from=5, line_to=5 + text.count("\n"))]}
    return present(asked, ranking, texts, evidence, Params(), k=5, catalog=NOTES)[0].passage


def _ranking(*candidates: Candidate) -> Ranking:
    return Ranking(candidates=candidates, confidence=1.0, known=True, intent="question")


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("Who heads the team?", "headed by"),
        ("Where is it based?", "Ketterby"),
        ("When was it formed?", "2010"),
        ("Why does it maintain that?", "because"),
        ("Which tool does it maintain?", "Mosscache"),
    ],
)
def test_the_sentence_fits_the_question(question: str, answer: str) -> None:
    """A date where a date is asked for, a place, a reason, a name, a link to the kind."""
    assert answer in passage_of(question).sentence


def test_everything_shown_is_verbatim_and_says_its_lines() -> None:
    """The sentence and the quote are slices of the passage; the lines count in the file."""
    found = passage_of("Who heads the team?")
    assert found.quote in TEXT
    assert found.sentence in found.quote
    assert found.lines == (5, 8)
    assert found.sentence_lines == (6, 6)


@given(st.lists(st.text(alphabet="ab c.\n", max_size=300), max_size=4))
def test_quotes_are_short_and_verbatim(parts: list[str]) -> None:
    """Of any text: at most 240 characters, a slice of it."""
    text = ". ".join(parts)
    found = passage_of("what?", text)
    assert len(found.quote) <= QUOTE_CHARS
    assert found.quote in text
    assert found.sentence in text


def test_similarity_chooses_between_sentences() -> None:
    """The sentence nearest to the question, where words and kinds do not tell."""
    asked = analyse("x", NOTES, TODAY)
    text = "Aaaaaaaaa. Bbbbbbbbb. Ccccccccc."
    spans = [(0, 10), (11, 21), (22, 32)]

    class Near(Similar):
        def sentences(self, note_id: int) -> list[tuple[int, int, int, float]]:
            return [(9, *span, value) for span, value in zip(spans, (0.1, 0.6, 0.2), strict=True)]

    evidence = Evidence(text=None, vector=Near({1: 0.5}), note_of_chunk=itself)
    texts = {1: [PassageText(chunk_id=9, text=text, line_from=1, line_to=1)]}
    (shown,) = present(asked, _ranking(Candidate(note_id=1, score=1.0)), texts, evidence, Params(), k=5)
    assert shown.passage.sentence == "Bbbbbbbbb."


WORDS = """
    team Team moves moved replaced now mo[[x|ve]]s te**am**s _team_ 止损 café # team's a-team 12 no. x. [[team]] [[a team]] [[te]]
    [[am]] ![[team]] [[../team.md#team]] [team](team) ~~te~~ ==am== ~~team~~ **team** [[te](am) ]] te am
""".split()
PARTS = st.tuples(
    st.sampled_from([*WORDS, "y" * 590]), st.sampled_from((" ", ". ", "\n\n", "\n- ", "", "。", ", ", ")", "!"))
)


@given(
    st.lists(PARTS).map(lambda parts: "".join(word + end for word, end in parts))
    | st.text(alphabet="[]~=*_!#()|. \nteamé", max_size=60),
    st.sampled_from(("which team moves now?", "止损 café", "relational teams 12", "te am team teteam amte", "?")),
)
@settings(max_examples=400)
def test_words_are_those_of_each_sentence(text: str, question: str) -> None:
    """Looked for in the passage as a whole, they are what reading it sentence by sentence finds."""
    asked = analyse(question, NOTES, TODAY)
    judge = Judge(asked, Evidence(text=None, vector=None, note_of_chunk=itself), Params(), NOTES, linked=False)
    spans = sentences(text)
    each = {index: judge.words_in(text[slice(*span)]) for index, span in enumerate(spans)}
    assert judge.words(text, spans) == {index: words for index, words in each.items() if words}


ENDINGS = """
    s es ed ing y ies ied ly bly bility bilities logy logies ation ational ization ence ency ances er able ment ive ivity e
""".split()


@given(st.text(alphabet="abceilnostuvyz", min_size=1, max_size=8), st.sampled_from(ENDINGS))
@settings(max_examples=400)
def test_a_stem_is_its_word_but_for_the_last_letter(begin: str, end: str) -> None:
    """Words that begin otherwise are not stemmed to see whether they are the question's."""
    whole = stem(begin + end)
    assert (begin + end).startswith(whole[: len(whole) - STEM_ENDING])


def test_near_duplicates_become_one_hit() -> None:
    """A copy is listed with the first; a note that was replaced by its twin is not a copy."""
    asked = analyse("x", NOTES, TODAY)
    body = " ".join(f"word{n}" for n in range(60))
    texts = {n: [PassageText(chunk_id=n, text=body + " end" * (n == 2), line_from=1, line_to=1)] for n in (1, 2, 3)}
    ranking = _ranking(
        Candidate(note_id=1, score=3.0),
        Candidate(note_id=2, score=2.0),
        Candidate(note_id=3, score=1.0, superseded_by=1),
    )
    evidence = Evidence(text=None, vector=None, note_of_chunk=itself)
    shown = present(asked, ranking, texts, evidence, Params(), k=5)
    assert [(hit.candidate.note_id, hit.candidate.also) for hit in shown] == [(1, (2,)), (3, ())]
    apart = msgspec.structs.replace(Params(), near_duplicate=1.0)
    assert len(present(asked, ranking, texts, evidence, apart, k=5)) == 3


def test_a_note_that_vanished_is_left_out() -> None:
    """Its text is gone between ranking and reading."""
    asked = analyse("x", NOTES, TODAY)
    evidence = Evidence(text=None, vector=None, note_of_chunk=itself)
    assert present(asked, _ranking(Candidate(note_id=1, score=1.0)), {}, evidence, Params(), k=5) == ()
