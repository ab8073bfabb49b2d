"""
Downloads with a pinned digest: resumable, checked before anything is unpacked, and put in place at once or not at all.

Only http and https. Nothing that was downloaded is run, and of an archive only files of known names are taken.
"""

from __future__ import annotations

import http.client
import os
import re
import shutil
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import msgspec

from . import registry
from .onnxfile import WEIGHTS
from .registry import ModelProblem, Spec

Progress = Callable[[int, int], None]
"""Called with bytes that are there and bytes in all (0 = unknown)."""

PIECE_BYTES = 1 << 18
TIMEOUT_S = 30
ATTEMPTS = 5
PAUSE_S = 0.5
MAX_BYTES = 8 << 30
"""Of one file, downloaded or unpacked: larger than any model that a laptop runs."""
DOWNLOADS = ".downloads"
WANTED = ("model.onnx", "tokenizer.json", "vocab.txt", "model.json", WEIGHTS, "model.onnx_data", "model.onnx.data")
SHA256 = re.compile(r"[0-9a-f]{64}")


def fetch(
    url: str, sha256: str, spec: Spec, folder: Path, *, tokenizer: str = "", progress: Progress | None = None
) -> Spec:
    """
    Install the model at ``url`` as ``folder``/<spec.name> (``folder`` is <data>/models) and return its model.json.

    ``url`` is an archive (.zip, .whl, .tar, .tar.gz) that has model.onnx and a tokenizer somewhere inside, or a .onnx
    file; then ``tokenizer`` is the path or URL of its tokenizer.json or vocab.txt. A model.json in the archive is
    followed, ``spec``'s digests and name are not taken from it. ``sha256`` is that of the file at ``url``.
    Raises ModelProblem. An interrupted download goes on where it ended.
    """
    digest = sha256.lower().removeprefix("sha256:")
    if not SHA256.fullmatch(digest):
        raise ModelProblem(f"'{sha256}' is not a SHA-256: 64 hexadecimal digits")
    if not registry.NAME.fullmatch(spec.name):
        raise ModelProblem(f"'{spec.name}' is not a name for a model: letters, digits, '.', '_' and '-' only")
    downloads = folder / DOWNLOADS
    downloads.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        archive = download(url, digest, downloads / digest, progress)
        with tempfile.TemporaryDirectory(prefix=".new-", dir=folder, ignore_cleanup_errors=True) as temporary:
            staged = Path(temporary) / "model"
            staged.mkdir(mode=0o700)
            _unpack(archive, urlsplit(url).path, staged)
            _place_tokenizer(tokenizer, staged, Path(temporary))
            done = _describe(staged, spec)
            registry.replace_folder(staged, folder / spec.name)
        archive.unlink()
    except (OSError, http.client.HTTPException, zipfile.BadZipFile, tarfile.TarError) as error:
        raise ModelProblem(f"{url}: {error}") from None
    return done


def download(url: str, sha256: str, target: Path, progress: Progress | None = None) -> Path:
    """
    The file at ``url`` as ``target``, with that digest. Raises ModelProblem or OSError.

    Part of it waits in ``target``.part between attempts and between calls.
    """
    if urlsplit(url).scheme not in ("http", "https"):
        raise ModelProblem(f"{url}: only http and https addresses are fetched")
    if target.exists() and registry.sha256_of(target) == sha256:
        return target
    part = target.with_name(target.name + ".part")
    for attempt in range(1, ATTEMPTS + 1):
        try:
            _append(url, part, progress)
            break
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 416:  # all of it is there
                    break
                if error.code < 500 or attempt == ATTEMPTS:
                    raise ModelProblem(f"{url}: the server says {error.code} {error.reason}") from None
        except (OSError, http.client.HTTPException) as error:
            if attempt == ATTEMPTS:
                reason = getattr(error, "reason", error)
                raise ModelProblem(f"{url}: {reason}; what is there is kept, the same command goes on") from None
        time.sleep(PAUSE_S * attempt)
    actual = registry.sha256_of(part)
    if actual != sha256:
        part.unlink()
        raise ModelProblem(f"{url} is not the file that was meant: SHA-256 {actual}, expected {sha256}; it was deleted")
    os.replace(part, target)
    return target


class _WebOnly(urllib.request.HTTPRedirectHandler):
    """Follows no redirection to another scheme."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if urlsplit(newurl).scheme not in ("http", "https"):
            raise ModelProblem(f"{req.full_url} leads to {newurl}: only http and https addresses are fetched")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _append(url: str, part: Path, progress: Progress | None) -> None:
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "recalld", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.build_opener(_WebOnly).open(request, timeout=TIMEOUT_S) as reply:
        resumed = reply.status == 206
        have = have if resumed else 0
        left = int(reply.headers.get("Content-Length") or 0)
        total = have + left if left else 0
        if max(have, total) > MAX_BYTES:
            raise ModelProblem(f"{url} is larger than {MAX_BYTES >> 30} GB")
        with open(part, "ab" if resumed else "wb") as file:
            while piece := reply.read(PIECE_BYTES):
                file.write(piece)
                have += len(piece)
                if have > MAX_BYTES:
                    raise ModelProblem(f"{url} is larger than {MAX_BYTES >> 30} GB")
                if progress is not None:
                    progress(have, total)
            file.flush()
            os.fsync(file.fileno())
        if total and have < total:
            raise ConnectionError(f"the connection ended after {have} of {total} bytes")


@contextmanager
def _members(archive: Path, name: str) -> Iterator[list[tuple[str, int, Callable[[], IO[bytes] | None]]]]:
    """Path, size and opener of each plain file in the archive; of a lone .onnx file, itself."""
    if name.endswith((".zip", ".whl")):
        with zipfile.ZipFile(archive) as pack:
            yield [(i.filename, i.file_size, lambda i=i: pack.open(i)) for i in pack.infolist() if not i.is_dir()]  # type: ignore[misc]
    elif name.endswith((".tar", ".tar.gz", ".tgz")):
        with tarfile.open(archive) as tar:
            yield [(m.name, m.size, lambda m=m: tar.extractfile(m)) for m in tar.getmembers() if m.isfile()]  # type: ignore[misc]
    elif name.endswith(".onnx"):
        yield [("model.onnx", archive.stat().st_size, lambda: archive.open("rb"))]
    else:
        raise ModelProblem(f"{name}: neither an archive (.zip, .whl, .tar.gz) nor a .onnx file")


def _unpack(archive: Path, name: str, staged: Path) -> None:
    with _members(archive, name) as members:
        # Only the last part of a member's path is used: nothing can be written outside of the folder.
        found = [(Path(path).parent, Path(path).name, size, opener) for path, size, opener in members]
        homes = sorted(
            (parent for parent, file, _, _ in found if file == "model.onnx"), key=lambda home: len(home.parts)
        )
        if not homes:
            raise ModelProblem(f"{name} has no model.onnx in it")
        # The nearest copy of each file to the shallowest model.onnx: its own folder, else one above.
        for parent, file, size, opener in sorted(found, key=lambda one: -len(one[0].parts)):
            if file not in WANTED or not homes[0].is_relative_to(parent) or (staged / file).exists():
                continue
            if size > MAX_BYTES:
                raise ModelProblem(f"{file} in {name} is larger than {MAX_BYTES >> 30} GB")
            source = opener()
            if source is not None:
                with source, open(staged / file, "wb") as target:
                    shutil.copyfileobj(source, target, PIECE_BYTES)


def _place_tokenizer(tokenizer: str, staged: Path, temporary: Path) -> None:
    if tokenizer:
        name = "vocab.txt" if tokenizer.endswith(".txt") else "tokenizer.json"
        if "://" in tokenizer:
            part = temporary / "tokenizer.part"
            if urlsplit(tokenizer).scheme not in ("http", "https"):
                raise ModelProblem(f"{tokenizer}: only http and https addresses are fetched")
            _append(tokenizer, part, None)
            os.replace(part, staged / name)
        else:
            shutil.copyfile(Path(tokenizer).expanduser(), staged / name)
    if not any((staged / name).is_file() for name in ("tokenizer.json", "vocab.txt")):
        raise ModelProblem(
            "the model comes without a tokenizer: name one with --tokenizer (tokenizer.json or vocab.txt)"
        )


def _describe(staged: Path, spec: Spec) -> Spec:
    """model.json with every file's digest."""
    path = staged / "model.json"
    try:
        given = msgspec.json.decode(path.read_bytes(), type=Spec)
    except FileNotFoundError:
        given = spec
    except msgspec.MsgspecError as error:
        raise ModelProblem(f"the model.json that came with the model: {error}") from None
    digests = {
        file.name: registry.sha256_of(file)
        for file in sorted(staged.iterdir())
        if file.name not in ("model.json", "model.onnx")
    }
    done = msgspec.structs.replace(
        given, name=spec.name, sha256=registry.sha256_of(staged / "model.onnx"), files=digests
    )
    path.write_bytes(msgspec.json.format(msgspec.json.encode(done), indent=2))
    return done
