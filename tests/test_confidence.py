"""memory/recall/confidence.py: knowing that the notes do not know."""

from __future__ import annotations

import msgspec
import pytest
from ranking import TODAY, Similar, card, itself, ranked, words, world
from recalld.memory.recall import confidence
from recalld.memory.recall.confidence import Features, default_model, estimate
from recalld.memory.recall.params import Model, Params
from recalld.memory.recall.query import analyse
from recalld.memory.recall.rank import Ranking, rank
from recalld.memory.recall.types import Evidence

NOTES = world(card(1, "Greta Lindqvist", kind="person"), card(2, "Granite team"), card(3, "Quillmark"), links=[(1, 2)])


def ask(
    text: str, where: dict[str, list[int]], cosines: dict[int, list[float]], residue: dict[int, list[float]]
) -> Ranking:
    question = analyse(text, NOTES, TODAY)
    assert question.probes
    evidence = Evidence(
        text=words(question, where), vector=Similar(cosines), note_of_chunk=itself,
        probes=(Similar(residue),),
    )  # fmt: skip
    return rank(question, evidence, NOTES, Params(), k=5)


NAMED = {"greta": [1], "lindqvist": [1]}


def test_a_known_fact_of_a_known_person_is_known() -> None:
    """The note says it, in the question's words, in one sentence that stands out."""
    found = ask(
        "Which tool does Greta Lindqvist prefer?", {**NAMED, "tool": [1], "prefer": [1]},
        {1: [0.8, 0.5, 0.5], 2: [0.2], 3: [0.3]}, {1: [0.5, 0.1, 0.1], 2: [0.1], 3: [0.3]},
    )  # fmt: skip
    assert found.known
    assert found.confidence > 0.8


def test_an_unwritten_fact_of_a_known_person_is_not_known() -> None:
    """The person is found, nothing in the note is about what is asked."""
    found = ask(
        "What is Greta Lindqvist's phone extension?", NAMED,
        {1: [0.6, 0.55, 0.55], 2: [0.2], 3: [0.1]}, {1: [0.12, 0.1, 0.1], 2: [0.1], 3: [0.2]},
    )  # fmt: skip
    assert not found.known
    assert found.candidates[0].note_id == 1


def test_a_person_that_occurs_nowhere_is_not_known() -> None:
    """However well the rest of the question matches."""
    found = ranked("Where does Kasimir Ibarrondo work?", NOTES, {"work": [1, 2]}, {1: 0.7, 2: 0.5})
    assert not found.known
    assert found.features is not None
    assert found.features.unknown == 1.0


def test_names_whose_words_stand_apart_are_unknown() -> None:
    """Two people who share no name with each other are not a third."""
    question = analyse("Where does Bastian Halloran work?", NOTES, TODAY)
    text = words(question, {"bastian": [1], "halloran": [2], "“bastian halloran”": []})
    assert confidence.is_unknown(question.names[0], text)
    together = words(question, {"bastian": [1], "halloran": [1], "“bastian halloran”": [1]})
    assert not confidence.is_unknown(question.names[0], together)


def test_an_unknown_name_in_passing_does_not_decide() -> None:
    """A long question is about more than the one capitalised word in it."""
    aside = "Which project helps accountants get out of Excel when matching bills with late payments?"
    found = ranked(aside, NOTES, {}, {3: 0.5, 1: 0.1, 2: 0.1})
    assert found.features is not None
    assert found.features.unknown == 0.0
    assert found.known


def test_an_answer_in_other_words_is_known() -> None:
    """No word in common, but one note means it."""
    assert ranked("condense hazard walkthroughs done every seven days", NOTES, {}, {3: 0.5, 1: 0.05, 2: 0.05}).known


def test_unrelated_notes_are_not_an_answer() -> None:
    """No word in common, and nothing means it."""
    assert not ranked("condense hazard walkthroughs done every seven days", NOTES, {}, {3: 0.1, 1: 0.08, 2: 0.05}).known


def test_the_threshold_is_a_parameter() -> None:
    """At 0 everything is known, at 1 nothing."""
    for threshold, known in ((0.0, True), (1.0, False)):
        params = msgspec.structs.replace(Params(), know_threshold=threshold)
        assert ranked("condense hazard walkthroughs", NOTES, {}, {3: 0.3}, params=params).known is known


def test_the_model_uses_features_that_exist() -> None:
    """Weights of the packaged model name features."""
    model = default_model()
    for weights in (model.named, model.unnamed):
        assert set(weights) - {"bias"} <= set(Features.__struct_fields__)
    assert model.provenance


@pytest.mark.parametrize("weight", [-1e6, 0.0, 1e6])
def test_confidence_is_a_probability(weight: float) -> None:
    """Whatever the weights."""
    model = Model(named={}, unnamed={"bias": weight})
    assert 0.0 <= estimate(Features(), model) <= 1.0


def test_without_vectors_words_decide() -> None:
    """A daemon whose embedder is down does not deny what it finds, and still knows an unknown name."""
    assert ranked("gearbox lubricant viscosity", NOTES, {"gearbox": [2], "lubricant": [2]}, None).known
    assert not ranked("gearbox lubricant viscosity", NOTES, {"viscosity": [2]}, None).known
    assert not ranked("Where does Kasimir Ibarrondo work?", NOTES, {"work": [1]}, None).known
