"""actors/query/matrix.py: exact search over quantised vectors, at three grains, while rows come and go."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recalld.actors.query import matrix as module
from recalld.actors.query import similar
from recalld.actors.query.chunks import ChunkTable
from recalld.actors.query.matrix import MEAN_FEW, Matrix
from recalld.actors.query.quantised import BLOCK_ROWS, Quantised, floats, ranges
from recalld.actors.query.streams.vectors import SentenceRow

DIM = 48


def unit(rng, rows):
    made = rng.standard_normal((rows, DIM)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def raw(vector):
    return np.asarray(vector).astype("<f2").tobytes()


def key(number):
    return number.to_bytes(16, "little")


class World:
    """Notes with random chunks and sentences, and the same by plain numpy."""

    def __init__(self, notes=40, seed=1):
        rng = np.random.default_rng(seed)
        self.query = unit(rng, 1)[0]
        self.chunks = {}
        self.sentences = {}
        number = 0
        for note in range(1, notes + 1):
            for _ in range(int(rng.integers(1, 5))):
                number += 1
                self.chunks[number] = (note, unit(rng, 1)[0])
                self.sentences[number] = unit(rng, int(rng.integers(0, 4)))

    def rows(self, chunks=None):
        chosen = self.chunks if chunks is None else {chunk: self.chunks[chunk] for chunk in chunks}
        return [(chunk, note, key(chunk)) for chunk, (note, _) in chosen.items()]

    def vectors(self):
        return [(key(chunk), raw(vector)) for chunk, (_, vector) in self.chunks.items()]

    def sentence_rows(self, hashes):
        found = []
        for value in sorted(hashes):
            chunk = int.from_bytes(value, "little")
            found += [SentenceRow(value, i * 10, i * 10 + 9, raw(v)) for i, v in enumerate(self.sentences[chunk])]
        return found

    def expected(self, note):
        """(note cosine, best chunk cosine, best sentence cosine or the chunk's)."""
        chunks = [chunk for chunk, (owner, _) in self.chunks.items() if owner == note]
        vectors = np.stack([self.chunks[chunk][1] for chunk in chunks])
        mean = vectors.sum(axis=0)
        cosines = vectors @ self.query
        near = [chunk for chunk, cosine in zip(chunks, cosines, strict=True) if cosine >= cosines.max() - similar.NEAR]
        # A passage without sentence vectors is one sentence.
        best = max(max(self.sentences[c] @ self.query, default=self.chunks[c][1] @ self.query) for c in near)
        return mean @ self.query / np.linalg.norm(mean), cosines.max(), best


def built(world, *, sentences=True):
    table = ChunkTable()
    table.replace((), world.rows())
    matrix = Matrix(7, DIM, table)
    matrix.put(world.vectors())
    matrix.publish()
    if sentences:
        hashes = matrix.unfetched(10_000)
        matrix.put_sentences(hashes, world.sentence_rows(hashes))
    return matrix


def search(matrix, world, **more):
    return matrix.search(world.query[None, :], lambda hashes: world.sentence_rows(hashes), **more)[0]


def test_every_finite_half_is_widened_exactly():
    """Shifted bits are the numbers that numpy makes of them, signs of zeros and subnormal ones included."""
    halves = np.arange(1 << 16, dtype="<u2").view("<f2")
    finite = halves[np.isfinite(halves)]
    (widened,) = floats([finite.tobytes()], len(finite))
    assert widened.dtype == np.float32
    np.testing.assert_array_equal(widened.view(np.int32), finite.astype(np.float32).view(np.int32))


@pytest.mark.parametrize("held", [True, False], ids=["sentences in memory", "sentences fetched"])
def test_similarities_are_those_of_the_float_vectors(held):
    """Note mean, best chunk and best sentence agree with plain float32 arithmetic within the quantisation error."""
    world = World(notes=similar.FETCHED)
    found = search(built(world, sentences=held), world)
    for note in {note for note, _ in world.chunks.values()}:
        match = found.get(note)
        want = world.expected(note)
        assert (match.note_cos, match.chunk_cos, match.sentence_cos) == pytest.approx(want, abs=0.01)
        assert world.chunks[match.chunk_id][0] == note


@pytest.mark.parametrize("held", [True, False], ids=["sentences in memory", "sentences fetched"])
def test_the_question_without_what_all_passages_share(held):
    """``bare_cos`` is the best sentence's cosine to the question less a share of the passages' mean vector; only the first
    question has it, and only where a share is asked for. Few passages have less of a mean."""
    world = World(notes=similar.FETCHED)
    matrix = built(world, sentences=held)
    vectors = np.stack([vector for _, vector in world.chunks.values()])
    bare = world.query - 0.8 * vectors.sum(axis=0) / (len(vectors) + MEAN_FEW)
    bare /= np.linalg.norm(bare)
    found, probe = matrix.search(
        np.stack([world.query, world.query]), lambda hashes: world.sentence_rows(hashes), common=0.8
    )
    for note in {note for note, _ in world.chunks.values()}:
        chunks = [chunk for chunk, (owner, _) in world.chunks.items() if owner == note]
        cosines = {chunk: world.chunks[chunk][1] @ world.query for chunk in chunks}
        near = [chunk for chunk in chunks if cosines[chunk] >= max(cosines.values()) - similar.NEAR]
        want = max(max(world.sentences[c] @ bare, default=world.chunks[c][1] @ bare) for c in near)
        assert found.get(note).bare_cos == pytest.approx(want, abs=0.01)
        assert found.get(note).sentence_cos == pytest.approx(world.expected(note)[2], abs=0.01)
        assert probe.get(note).bare_cos is None
    assert search(matrix, world).get(note).bare_cos is None


def test_top_is_ordered_by_the_mean_of_note_and_sentence():
    """``top`` gives the notes whose mean of note and best sentence cosine is largest, best first."""
    world = World(notes=60)
    found = search(built(world), world)
    want = {note: sum(world.expected(note)[::2]) / 2 for note, _ in world.chunks.values()}
    got = found.top(10)
    assert [want[note] for note in got] == pytest.approx(sorted(want.values(), reverse=True)[:10], abs=0.01)


def test_a_match_names_the_slice_of_its_sentence():
    """Where a sentence is best, chunk and slice are that sentence's."""
    world = World()
    found = search(built(world), world)
    for note in found.top(5):
        match = found.get(note)
        if match.char_to:
            sentence = world.sentences[match.sentence_chunk_id][match.char_from // 10]
            assert float(sentence @ world.query) == pytest.approx(match.sentence_cos, abs=0.01)


def test_notes_with_the_same_text_come_by_id():
    """Which of a thousand equal notes are on top does not hang on how they are picked out."""
    world = World(notes=1)
    table = ChunkTable()
    table.replace((), [(note, note, key(1)) for note in range(1, 1001)])
    matrix = Matrix(7, DIM, table)
    matrix.put([(key(1), raw(world.chunks[1][1]))])
    matrix.publish()
    assert search(matrix, world).top(50) == list(range(1, 51))


def test_the_nearest_sentence_is_that_of_its_note_whenever_it_was_compared(monkeypatch):
    """Notes that are compared at first, together later and one by one have the same slices and cosines."""
    world = World(seed=3)
    notes = sorted({note for note, _ in world.chunks.values()})
    want = search(built(world), world)
    monkeypatch.setattr(similar, "RESCORED", 8)
    found = search(built(world), world)
    found.grains(notes[5:20])
    found.grains(notes[10:30])
    for note in notes:
        got, expected = found.get(note), want.get(note)
        assert (got.sentence_chunk_id, got.char_from, got.char_to) == (
            expected.sentence_chunk_id,
            expected.char_from,
            expected.char_to,
        )
        assert got.sentence_cos == pytest.approx(expected.sentence_cos, abs=1e-6)


def test_all_sentences_of_a_note_are_listed_in_order():
    """``sentences`` gives every sentence of a note with its chunk, slice and cosine."""
    world = World()
    note, chunks = 3, [chunk for chunk, (owner, _) in world.chunks.items() if owner == 3]
    found = search(built(world), world).sentences(note)
    assert [(chunk, start) for chunk, start, _, _ in found] == [
        (chunk, i * 10) for chunk in chunks for i in range(len(world.sentences[chunk]))
    ]
    assert [value for *_, value in found] == pytest.approx(
        [float(v @ world.query) for chunk in chunks for v in world.sentences[chunk]], abs=0.01
    )


def test_notes_that_may_not_answer_are_not_on_top():
    """``allowed`` limits what is proposed; a note outside of it can still be asked for."""
    world = World()
    found = search(built(world), world, allowed={4, 9})
    assert set(found.top(50)) == {4, 9}
    assert found.get(1) is not None


def test_a_note_without_vectors_has_no_match():
    """Before its vectors arrive a note is unknown to the stream, and an unknown id is no error."""
    world = World(notes=3)
    table = ChunkTable()
    table.replace((), world.rows())
    matrix = Matrix(7, DIM, table)
    matrix.publish()
    assert search(matrix, world).top(5) == []
    assert search(matrix, world).get(1) is None
    assert len(matrix.missing()) == len(world.chunks)
    matrix.put(world.vectors()[:1])
    matrix.publish()
    assert search(matrix, world).top(5) == [1]
    assert search(matrix, world).get(99) is None


def test_chunks_with_the_same_text_share_one_vector():
    """Two notes that hold one passage are both found by its one vector; one that goes leaves it to the other."""
    world = World(notes=1)
    vector = world.chunks[1][1]
    table = ChunkTable()
    table.replace((), [(1, 1, key(1)), (2, 2, key(1))])
    matrix = Matrix(7, DIM, table)
    matrix.put([(key(1), raw(vector))])
    matrix.publish()
    assert sorted(search(matrix, world).top(5)) == [1, 2]
    table.replace([1], [])
    matrix.publish()
    assert search(matrix, world).top(5) == [2]
    assert len(matrix.rows.scale) >= 1
    assert len(table.hashes) == 1


def test_what_does_not_fit_is_fetched_for_each_question(monkeypatch):
    """With no room for all sentences the answers are the same: the rest is read when it is wanted."""
    monkeypatch.setattr(module, "SENTENCE_ROWS", 12)
    world = World()
    matrix = built(world)
    assert matrix.full
    assert matrix.unfetched(10) == []
    assert matrix.sentence_count <= 12
    found = search(matrix, world)
    for note in found.top(10):
        assert found.get(note).sentence_cos == pytest.approx(world.expected(note)[2], abs=0.01)


def test_sentences_that_do_not_all_fit_are_not_held(monkeypatch):
    """Judged by the first passages: a large vault's would take their room and spare a question next to nothing."""
    monkeypatch.setattr(module, "SENTENCE_ROWS", 60)
    monkeypatch.setattr(module, "JUDGED", 8)
    world = World(seed=5)
    assert sum(map(len, world.sentences.values())) > 100
    matrix = built(world, sentences=False)
    while hashes := matrix.unfetched(4):
        matrix.put_sentences(hashes, world.sentence_rows(hashes))
    assert matrix.full
    assert matrix.sentence_count < 40
    found = search(matrix, world)
    for note in found.top(10):
        assert found.get(note).sentence_cos == pytest.approx(world.expected(note)[2], abs=0.01)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_order_of_changes_ends_like_a_fresh_load(data):
    """Adding, replacing and dropping notes in any order leaves what loading the result at once would."""
    world = World(notes=8, seed=data.draw(st.integers(0, 3)))
    table = ChunkTable()
    matrix = Matrix(7, DIM, table)
    present = {}
    by_note = {}
    for chunk, (note, _) in world.chunks.items():
        by_note.setdefault(note, []).append(chunk)
    for _ in range(data.draw(st.integers(1, 12))):
        note = data.draw(st.sampled_from(sorted(by_note)))
        if data.draw(st.booleans()):
            present[note] = data.draw(st.lists(st.sampled_from(by_note[note]), unique=True))
        else:
            present.pop(note, None)
        table.replace([note], world.rows(present.get(note, [])))
        matrix.put(world.vectors())
        matrix.publish({note})
    fresh_table = ChunkTable()
    kept = [chunk for chunks in present.values() for chunk in chunks]
    fresh_table.load([(chunk, world.chunks[chunk][0]) for chunk in kept], [(c, key(c)) for c in kept], set(by_note))
    fresh = Matrix(7, DIM, fresh_table)
    fresh.put(world.vectors())
    fresh.publish()
    assert len(table) == len(fresh_table) == len(kept)
    assert matrix.layout.note_ids.tolist() == fresh.layout.note_ids.tolist()
    assert matrix.layout.chunks.tolist() == fresh.layout.chunks.tolist()
    assert matrix.layout.norms == pytest.approx(fresh.layout.norms, abs=1e-3)
    assert all(table.note_of(chunk) == (world.chunks[chunk][0] if chunk in kept else 0) for chunk in world.chunks)


def test_chunks_that_nobody_holds_have_no_note():
    """Removed ones, and those that were added after the table was read, however many there are."""
    table = ChunkTable()
    table.replace((), [(chunk, 1 + chunk // 4, key(chunk)) for chunk in range(1, 1024)], [(9, 70), (1023, 30)])
    table.replace([2], ())
    ids = np.array([9, 4, 1023, 1024, 10**9])
    assert table.notes_of(ids).tolist() == [3, 0, 256, 0, 0]
    assert table.lengths.take(ids, mode="clip").tolist() == [70, 0, 30, 0, 0]


@pytest.mark.parametrize("embedded", [0, 1, 100])
def test_texts_that_wait_for_their_vector_are_no_waste(embedded):
    """While a large vault is embedded, most texts have no vector for minutes: that is no reason to load all of it anew."""
    table = ChunkTable()
    table.replace((), [(chunk, 1 + chunk // 4, key(chunk)) for chunk in range(1, 6001)])
    matrix = Matrix(7, DIM, table)
    matrix.put([(key(chunk), raw(np.ones(DIM) / DIM**0.5)) for chunk in range(1, embedded + 1)])
    matrix.publish()
    assert not matrix.wasteful()


def test_texts_that_no_note_holds_any_more_are_waste():
    table = ChunkTable()
    rows = [(chunk, 1 + chunk // 4, key(chunk)) for chunk in range(1, 6001)]
    table.replace((), rows)
    matrix = Matrix(7, DIM, table)
    matrix.put([(key(chunk), raw(np.ones(DIM) / DIM**0.5)) for chunk, _, _ in rows])
    matrix.publish()
    assert not matrix.wasteful()
    table.replace({note for _, note, _ in rows[:5600]}, ())
    matrix.publish()
    assert matrix.wasteful()


def test_texts_that_are_replaced_again_and_again_do_not_pile_up():
    """A small vault of notes that an agent keeps rewriting: what is kept of old texts is bounded by what is live."""
    table = ChunkTable()
    matrix = Matrix(7, DIM, table)
    most = 0
    for chunk in range(1, 2001):
        table.replace([1], [(chunk, 1, key(chunk))])
        matrix.put([(key(chunk), raw(np.ones(DIM) / DIM**0.5))])
        matrix.publish({1})
        if matrix.wasteful():
            break
        most = chunk
    assert most <= 600


def test_ranges_are_joined():
    """``ranges`` lists the numbers of several ranges and where each begins."""
    rows, bounds = ranges(np.array([5, 0, 9]), np.array([7, 1, 12]))
    assert rows.tolist() == [5, 6, 0, 9, 10, 11]
    assert bounds.tolist() == [0, 2, 3]


def test_ten_thousand_notes_fit_in_the_budget():
    """20,000 chunks with as many sentences as are kept take at most 60 MB; names and links take 40 beside them."""
    dim = 384
    table = ChunkTable()
    table.replace((), [(n, n // 2 + 1, key(n)) for n in range(1, 20_001)])
    matrix = Matrix(7, dim, table)
    vector = raw(np.full(dim, dim**-0.5, np.float32))
    matrix.put([(key(n), vector) for n in range(1, 20_001)])
    matrix.publish()
    while hashes := matrix.unfetched(4000):
        matrix.put_sentences(hashes, [SentenceRow(h, i, i + 1, vector) for h in sorted(hashes) for i in range(5)])
    assert matrix.sentence_count == 100_000
    assert matrix.nbytes() < 60e6


def test_blocks_are_compared_on_two_threads_as_on_one():
    """Whoever takes which block, also while others compare: the numbers are those of one block after the other."""
    random = np.random.default_rng(4)
    rows, many = Quantised(32, 5000), random.integers(0, 5000, 2600)
    rows.put(np.arange(5000), random.standard_normal((5000, 32)).astype(np.float32))
    queries = random.standard_normal((2, 32)).astype(np.float32)

    def by_hand(chosen):
        parts = [chosen[at : at + BLOCK_ROWS] for at in range(0, len(chosen), BLOCK_ROWS)]
        dots = [[rows.data[part].astype(np.float32) @ query for part in parts] for query in queries]
        return np.array([np.concatenate(line) for line in dots]) * rows.scale[chosen]

    whole, some = by_hand(np.arange(5000)), by_hand(many)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: (rows.dot(queries, 5000), rows.dot_rows(queries, many)), range(40)))
    assert all(np.array_equal(one, whole) and np.array_equal(other, some) for one, other in found)
