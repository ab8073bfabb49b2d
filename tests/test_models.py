"""Models as files: registry, digests, the ONNX writer, the prepared form of the packaged model."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
from recalld.actors.embedder import session
from recalld.models import encoder, onnxfile, registry
from recalld.models.registry import MINILM, Model, ModelProblem, Spec

GOLDEN = Path(__file__).parent / "golden" / "minilm.json"


class Golden(msgspec.Struct):
    text: str
    float16: str


class GoldenFile(msgspec.Struct):
    model: str
    vectors: list[Golden]


def golden() -> GoldenFile:
    return msgspec.json.decode(GOLDEN.read_bytes(), type=GoldenFile)


def least_cosine(embedding: session.Embedding) -> float:
    """Of the golden texts, to the vectors of the shipped graph."""
    known = golden().vectors
    stored = np.stack([np.frombuffer(base64.b64decode(item.float16), "<f2") for item in known]).astype(np.float32)
    stored /= np.linalg.norm(stored, axis=1, keepdims=True)
    return float((embedding.embed([item.text for item in known]).vectors * stored).sum(axis=1).min())


def tiny_encoder(dim: int = 32, layers: int = 1) -> encoder.Encoder:
    """Random weights in the shape of a BERT with a vocabulary of 40 words."""
    random = np.random.default_rng(7)

    def linear(inputs: int, outputs: int) -> encoder.Int8:
        return encoder.int8_columns(random.normal(0, 0.2, (inputs, outputs)).astype(np.float32))

    def norm() -> tuple[onnxfile.Array, onnxfile.Array]:
        return np.ones(dim, np.float32), np.zeros(dim, np.float32)

    def zeros(size: int) -> onnxfile.Array:
        return np.zeros(size, np.float32)

    layer = encoder.Layer(
        qkv=linear(dim, dim * 3), qkv_bias=zeros(dim * 3), out=linear(dim, dim), out_bias=zeros(dim), out_norm=norm(),
        up=linear(dim, dim * 4), up_bias=zeros(dim * 4), down=linear(dim * 4, dim), down_bias=zeros(dim),
        down_norm=norm(),
    )  # fmt: skip
    words = encoder.int8_rows(random.normal(0, 1, (40, dim)).astype(np.float32))
    positions = random.normal(0, 0.1, (64, dim)).astype(np.float32)
    return encoder.Encoder(words=words, positions=positions, norm=norm(), layers=(layer,) * layers, heads=2)


def tiny_vocabulary() -> bytes:
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "aeiou")]
    return "\n".join(words).encode()


@pytest.fixture(scope="session")
def prepared_models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A models folder in which the packaged model has been prepared."""
    folder = tmp_path_factory.mktemp("models")
    model = registry.find("minilm", folder)
    assert model is not None
    registry.prepare(model, folder)
    return folder


def own_folder(models: Path, name: str = "own") -> Path:
    """A small model folder made by ``registry.install``."""
    registry.install(tiny_encoder(), models / name, Spec(name=name, max_tokens=32), tiny_vocabulary(), "vocab.txt")
    return models / name


def test_the_packaged_model_is_found_and_is_the_pinned_one(tmp_path: Path) -> None:
    """A fresh install has a model: its digest is the pinned one, and finding it imports and creates nothing."""
    model = registry.find("minilm", tmp_path / "models")
    assert model is not None
    assert registry.verify(model) == registry.PACKAGED_SHA256
    assert not (tmp_path / "models").exists()


def test_none_is_no_model(tmp_path: Path) -> None:
    """The name "none" means to work without a model."""
    assert registry.find("none", tmp_path) is None


@pytest.mark.parametrize("name", ["", "../minilm", "a/b", ".prepared", "x" * 65, "no such"])
def test_a_name_never_leaves_the_models_folder(tmp_path: Path, name: str) -> None:
    """Names with separators or leading dots are refused."""
    with pytest.raises(ModelProblem):
        registry.find(name, tmp_path)


def test_an_unknown_name_says_where_to_look(tmp_path: Path) -> None:
    """The error names the folder and the command that lists models."""
    with pytest.raises(ModelProblem, match="recalld model list"):
        registry.find("bge", tmp_path)


def test_a_folder_without_tokenizer_is_incomplete(tmp_path: Path) -> None:
    """The error names the missing file."""
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "model.onnx").write_bytes(b"x")
    with pytest.raises(ModelProblem, match=r"tokenizer\.json"):
        registry.find("half", tmp_path)
    assert [(one.name, bool(one.problem)) for one in registry.installed(tmp_path)] == [
        ("minilm", False),
        ("half", True),
    ]


def test_a_broken_model_json_is_named(tmp_path: Path) -> None:
    """The error names the file and what is wrong in it."""
    folder = own_folder(tmp_path)
    (folder / "model.json").write_text('{"name": "own", "pooling": "best"}')
    with pytest.raises(ModelProblem, match=r"model\.json.*pooling"):
        registry.find("own", tmp_path)


@pytest.mark.parametrize("file", ["model.onnx", "weights.bin", "vocab.txt"])
def test_a_changed_file_is_refused(tmp_path: Path, file: str) -> None:
    """Every file of a model is pinned: one changed byte is found, and named."""
    folder = own_folder(tmp_path)
    content = bytearray((folder / file).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / file).write_bytes(content)
    model = registry.find("own", tmp_path)
    assert model is not None
    with pytest.raises(ModelProblem, match=f"{file} is not the file it should be"):
        registry.verify(model)


def test_a_model_without_pinned_digest_gets_the_one_it_has(tmp_path: Path) -> None:
    """A hand-made folder without model.json works: its identity is the digest of its model.onnx."""
    folder = own_folder(tmp_path)
    (folder / "model.json").unlink()
    model = registry.find("own", tmp_path)
    assert model is not None
    assert registry.verify(model) == registry.sha256_of(folder / "model.onnx")


def test_the_graph_digest_names_the_weights(tmp_path: Path) -> None:
    """Two models with other weights differ in model.onnx too, though the weights lie in a file beside it."""
    spec = Spec(name="x")
    one = registry.install(tiny_encoder(), tmp_path / "one", spec, tiny_vocabulary(), "vocab.txt")
    weaker = msgspec.structs.replace(tiny_encoder(), positions=np.zeros((64, 32), np.float32))
    two = registry.install(weaker, tmp_path / "two", spec, tiny_vocabulary(), "vocab.txt")
    assert one.sha256 != two.sha256
    assert registry.install(tiny_encoder(), tmp_path / "three", spec, b"", "vocab.txt").sha256 == one.sha256


def test_preparing_is_done_once_and_survives_damage(tmp_path: Path) -> None:
    """A prepared model is used as it lies; a damaged one is made again."""
    model = registry.find("minilm", tmp_path)
    assert model is not None
    first = registry.prepare(model, tmp_path)
    stamp = first.onnx.stat().st_mtime_ns
    assert registry.prepare(model, tmp_path).onnx.stat().st_mtime_ns == stamp
    first.onnx.write_bytes(b"damaged")
    again = registry.prepare(model, tmp_path)
    assert again.onnx.stat().st_size > 1000
    assert again.spec.sha256 == MINILM.sha256


def test_preparing_in_a_folder_that_cannot_be_written_is_a_problem(tmp_path: Path) -> None:
    """The error says what could not be written, so that the caller can use the shipped file."""
    model = registry.find("minilm", tmp_path)
    assert model is not None
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelProblem, match="cannot be prepared"):
        registry.prepare(model, tmp_path / "file")


def test_other_bytes_are_not_read_as_a_model() -> None:
    """Bytes that are not protobuf are a BadModelFile, not a crash."""
    for content in (b"\xff" * 40, b"\x3a\x7f", b"\x0b"):
        with pytest.raises(onnxfile.BadModelFile):
            onnxfile.read_tensors(content)


@pytest.mark.model
def test_the_prepared_model_gives_the_shipped_vectors(prepared_models: Path) -> None:
    """Prepared for less memory, the packaged model's vectors stay within cosine 0.999 of the shipped graph's."""
    model = registry.find("minilm", prepared_models)
    assert model is not None
    assert golden().model == MINILM.sha256
    assert least_cosine(session.load(registry.prepare(model, prepared_models))) >= 0.999


@pytest.mark.model
def test_the_shipped_graph_gives_the_golden_vectors(tmp_path: Path) -> None:
    """The shipped file, loaded as it is, gives the stored vectors: tokenizer, pooling and norm are right."""
    model = registry.find("minilm", tmp_path)
    assert model is not None
    assert least_cosine(session.load(model)) >= 0.9999


@pytest.mark.model
def test_a_tokenizer_json_and_a_vocabulary_give_the_same_vectors(prepared_models: Path, tmp_path: Path) -> None:
    """A folder with tokenizer.json that pads to a fixed width embeds as one with vocab.txt does."""
    from tokenizers import BertWordPieceTokenizer

    model = registry.find("minilm", prepared_models)
    assert model is not None
    ready = registry.prepare(model, prepared_models)
    padded = BertWordPieceTokenizer(str(registry.VOCABULARY), lowercase=True)
    padded.enable_padding(length=128)
    padded.save(str(tmp_path / "tokenizer.json"))
    shutil.copy(ready.onnx, tmp_path)
    shutil.copy(ready.onnx.parent / onnxfile.WEIGHTS, tmp_path)
    other = Model(spec=ready.spec, onnx=tmp_path / "model.onnx", tokenizer=tmp_path / "tokenizer.json")
    assert least_cosine(session.load(other)) >= 0.999
