"""Texts into batches, chunks into pieces, vectors into messages; a bad text costs no other."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from embedding import POISON, chunk, fake_embedding
from hypothesis import given
from hypothesis import strategies as st
from recalld.actors.embedder import session
from recalld.actors.embedder.passages import MAX_SENTENCES, packed, pieces

# Batches


@given(st.lists(st.integers(1, 600), max_size=80), st.integers(1, 16), st.integers(64, 2048))
def test_batches_hold_every_text_once_within_bounds(lengths: list[int], size: int, tokens: int) -> None:
    """Every text is in exactly one batch; a batch keeps both bounds unless it is a single long text."""
    groups = session.batches(lengths, size, tokens)
    assert sorted(index for group in groups for index in group) == list(range(len(lengths)))
    for group in groups:
        assert len(group) <= size
        assert len(group) == 1 or len(group) * max(lengths[index] for index in group) <= tokens


@pytest.mark.parametrize("position", [0, 3, 7])
def test_a_poisonous_text_costs_no_other(position: int) -> None:
    """A batch that fails is halved until the bad text is alone; the others keep their vectors."""
    texts = [f"word number {n}" for n in range(8)]
    texts[position] = "poisonous"
    done = fake_embedding().embed(texts)
    assert list(done.errors) == [position]
    assert "poison" in done.errors[position]
    norms = np.linalg.norm(done.vectors, axis=1)
    assert [round(float(norm), 3) for norm in np.delete(norms, position)] == [1.0] * 7


def test_a_vector_that_is_not_finite_is_an_error() -> None:
    """A model that returns NaN for a text fails on that text alone."""

    def run(feeds: dict[str, Any]) -> Any:
        found = np.ones((len(feeds["input_ids"]), 4), np.float32)
        found[(feeds["input_ids"] == POISON).any(axis=1)] = np.nan
        return found

    assert list(fake_embedding(run=run).embed(["fine", "poisonous", "fine"]).errors) == [1]


def test_prefixes_follow_the_use() -> None:
    """Questions and passages get their own prefix where the model wants one."""
    seen: list[int] = []

    def run(feeds: dict[str, Any]) -> Any:
        seen.append(int(feeds["attention_mask"].sum()))
        return np.ones((len(feeds["input_ids"]), 4), np.float32)

    embedding = fake_embedding(run=run)
    spec = msgspec.structs.replace(embedding.model.spec, query_prefix="q u e r y ", passage_prefix="p ")
    embedding.model = msgspec.structs.replace(embedding.model, spec=spec)
    seen.clear()
    embedding.embed(["one"], query=True)
    embedding.embed(["one"])
    assert seen == [8, 4]


# Passages


def test_a_chunk_gives_itself_and_its_sentences() -> None:
    """Ordinal 0 is the chunk, the others are slices of its text below its context; one sentence needs no second vector."""
    text = "First we met. Then we talked."
    found = pieces([chunk(1, text), chunk(2, "Only one sentence.")], with_sentences=True)
    assert [(one.chunk, one.ordinal, one.text) for one in found] == [
        (0, 0, f"Title 1\n{text}"),
        (0, 1, "Title 1\nFirst we met."),
        (0, 2, "Title 1\nThen we talked."),
        (1, 0, "Title 2\nOnly one sentence."),
    ]
    assert len(pieces([chunk(1, text)], with_sentences=False)) == 1


@given(st.integers(1, 60))
def test_many_sentences_are_joined_not_dropped(count: int) -> None:
    """However many sentences a chunk has, at most MAX_SENTENCES vectors cover all of them, in order."""
    text = " ".join(f"Sentence number {n} ends here." for n in range(count))
    found = pieces([chunk(1, text)], with_sentences=True)[1:]
    assert len(found) == (min(count, MAX_SENTENCES) if count > 1 else 0)
    covered = " ".join(text[one.char_from : one.char_to] for one in found)
    assert covered == (text if count > 1 else "")


def test_a_chunk_is_stored_whole_or_not_at_all() -> None:
    """One failed sentence fails its chunk, and no other; vectors are float16, little-endian."""
    chunks = [chunk(1, "Good one. Good two."), chunk(2, "Fine.")]
    found = pieces(chunks, with_sentences=True)
    vectors = np.full((len(found), 4), 0.5, np.float32)
    stored, failed = packed(chunks, found, vectors, {1: "bad"})
    assert failed == {chunks[0].hash: "bad"}
    assert [(one.hash, len(one.vectors)) for one in stored] == [(chunks[1].hash, 1)]
    assert stored[0].vectors[0].values == np.full(4, 0.5, "<f2").tobytes()
