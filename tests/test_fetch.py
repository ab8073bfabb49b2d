"""Downloading models from a local HTTP server that breaks off, refuses, and lies."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from recalld.models import fetch, registry
from recalld.models.registry import ModelProblem, Spec


class Shop:
    """What the server has, what it was asked for, and where it breaks off."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.break_after: list[int] = []
        """For the next requests: bytes after which the connection is closed."""
        self.fail: list[int] = []
        """Status codes for the next requests."""
        self.ranges = True
        self.url = ""


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_GET(self) -> None:
            wanted = self.headers.get("Range", "")
            shop.asked.append((self.path, wanted))
            if shop.fail:
                self.send_error(shop.fail.pop(0))
                return
            if self.path == "/elsewhere":
                self.send_response(302)
                self.send_header("Location", "ftp://localhost/x.zip")
                self.end_headers()
                return
            content = shop.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and shop.ranges else 0
            if start and start >= len(content):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            end = start + shop.break_after.pop(0) if shop.break_after else len(content)
            self.wfile.write(content[start:end])

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    shop.url = f"http://127.0.0.1:{server.server_port}"
    yield shop
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "PAUSE_S", 0.0)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)


def zipped(files: dict[str, bytes]) -> bytes:
    pack = io.BytesIO()
    with zipfile.ZipFile(pack, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return pack.getvalue()


def tarred(files: dict[str, bytes]) -> bytes:
    pack = io.BytesIO()
    with tarfile.open(fileobj=pack, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return pack.getvalue()


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


FILES = {
    "m/onnx/model.onnx": b"graph" * 1000,
    "m/tokenizer.json": b"{}",
    "m/onnx/weights.bin": b"w" * 5000,
    "m/x.py": b"bad",
}


@pytest.mark.parametrize(("name", "pack"), [("/m.zip", zipped), ("/m.tar.gz", tarred)])
def test_an_archive_becomes_a_model_folder(shop: Shop, tmp_path: Path, name: str, pack: Any) -> None:
    """Model, weights and tokenizer are taken from wherever they lie in the archive, pinned, and nothing else is."""
    shop.files[name] = content = pack(FILES)
    seen: list[tuple[int, int]] = []
    spec = fetch.fetch(shop.url + name, sha(content), Spec(name="new"), tmp_path, progress=lambda *at: seen.append(at))
    folder = tmp_path / "new"
    assert sorted(path.name for path in folder.iterdir()) == [
        "model.json",
        "model.onnx",
        "tokenizer.json",
        "weights.bin",
    ]
    assert spec.sha256 == sha(FILES["m/onnx/model.onnx"])
    assert spec.files == {"tokenizer.json": sha(b"{}"), "weights.bin": sha(b"w" * 5000)}
    assert seen[-1] == (len(content), len(content))
    found = registry.find("new", tmp_path)
    assert found is not None
    assert registry.verify(found) == spec.sha256
    assert list((tmp_path / fetch.DOWNLOADS).iterdir()) == []


def test_an_interrupted_download_goes_on(shop: Shop, tmp_path: Path) -> None:
    """A connection that breaks off is taken up where it ended, as a range request."""
    shop.files["/m.zip"] = content = zipped(FILES)
    shop.break_after = [100, 300]
    fetch.fetch(f"{shop.url}/m.zip", sha(content), Spec(name="new"), tmp_path)
    assert [wanted for _, wanted in shop.asked] == ["", "bytes=100-", "bytes=400-"]


def test_a_later_call_goes_on_too(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What one command left is used by the next."""
    shop.files["/m.zip"] = content = zipped(FILES)
    monkeypatch.setattr(fetch, "ATTEMPTS", 1)
    shop.break_after = [100]
    with pytest.raises(ModelProblem, match="the same command goes on"):
        fetch.fetch(f"{shop.url}/m.zip", sha(content), Spec(name="new"), tmp_path)
    fetch.fetch(f"{shop.url}/m.zip", sha(content), Spec(name="new"), tmp_path)
    assert shop.asked[-1][1] == "bytes=100-"


def test_a_server_without_ranges_starts_over(shop: Shop, tmp_path: Path) -> None:
    """Where the server ignores ranges, the file is read from the start again, not appended twice."""
    shop.files["/m.zip"] = content = zipped(FILES)
    shop.ranges = False
    shop.break_after = [100]
    fetch.fetch(f"{shop.url}/m.zip", sha(content), Spec(name="new"), tmp_path)
    assert (tmp_path / "new" / "model.onnx").is_file()


def test_another_file_than_meant_is_deleted(shop: Shop, tmp_path: Path) -> None:
    """A wrong digest names both, and leaves neither model nor download."""
    shop.files["/m.zip"] = zipped(FILES)
    with pytest.raises(ModelProblem, match="not the file that was meant"):
        fetch.fetch(f"{shop.url}/m.zip", "0" * 64, Spec(name="new"), tmp_path)
    assert not (tmp_path / "new").exists()
    assert list((tmp_path / fetch.DOWNLOADS).iterdir()) == []


def test_a_failed_fetch_leaves_the_old_model(shop: Shop, tmp_path: Path) -> None:
    """A model is replaced at once or not at all."""
    shop.files["/m.zip"] = good = zipped(FILES)
    fetch.fetch(f"{shop.url}/m.zip", sha(good), Spec(name="new"), tmp_path)
    shop.files["/n.zip"] = bad = zipped({"readme": b"no model here"})
    with pytest.raises(ModelProblem, match=r"no model\.onnx"):
        fetch.fetch(f"{shop.url}/n.zip", sha(bad), Spec(name="new"), tmp_path)
    found = registry.find("new", tmp_path)
    assert found is not None
    registry.verify(found)
    assert sorted(path.name for path in tmp_path.iterdir()) == [fetch.DOWNLOADS, "new"]


def test_a_lone_onnx_file_needs_a_tokenizer(shop: Shop, tmp_path: Path) -> None:
    """A .onnx file is a model once a tokenizer is named, as a file or as an address."""
    shop.files["/e5.onnx"] = b"graph"
    shop.files["/tokenizer.json"] = b"{}"
    with pytest.raises(ModelProblem, match="--tokenizer"):
        fetch.fetch(f"{shop.url}/e5.onnx", sha(b"graph"), Spec(name="e5"), tmp_path)
    own = tmp_path / "vocab.txt"
    own.write_text("a")
    fetch.fetch(f"{shop.url}/e5.onnx", sha(b"graph"), Spec(name="e5"), tmp_path / "m", tokenizer=str(own))
    spec = fetch.fetch(
        f"{shop.url}/e5.onnx", sha(b"graph"), Spec(name="e6"), tmp_path / "m", tokenizer=f"{shop.url}/tokenizer.json"
    )
    assert spec.files == {"tokenizer.json": sha(b"{}")}


def test_paths_in_an_archive_lead_nowhere_else(shop: Shop, tmp_path: Path) -> None:
    """A member that climbs out of its archive is put into the model's folder or ignored."""
    files = {"../../model.onnx": b"x", "../../tokenizer.json": b"{}", "/etc/vocab.txt": b"a"}
    shop.files["/m.zip"] = content = zipped(files)
    fetch.fetch(f"{shop.url}/m.zip", sha(content), Spec(name="new"), tmp_path / "models")
    assert [path.name for path in tmp_path.iterdir()] == ["models"]


def test_a_server_in_trouble_is_asked_again_and_a_refusal_is_final(shop: Shop, tmp_path: Path) -> None:
    """5xx is tried again; 404 is told at once."""
    shop.files["/m.zip"] = content = zipped(FILES)
    shop.fail = [503, 500]
    fetch.fetch(f"{shop.url}/m.zip", sha(content), Spec(name="new"), tmp_path)
    assert len(shop.asked) == 3
    with pytest.raises(ModelProblem, match="404"):
        fetch.fetch(f"{shop.url}/none.zip", "0" * 64, Spec(name="other"), tmp_path)
    assert len(shop.asked) == 4


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/m.zip", "m.zip"])
def test_only_web_addresses_are_fetched(tmp_path: Path, url: str) -> None:
    """No other scheme is followed."""
    with pytest.raises(ModelProblem, match="only http and https"):
        fetch.fetch(url, "0" * 64, Spec(name="new"), tmp_path)


def test_a_redirection_to_another_scheme_is_not_followed(shop: Shop, tmp_path: Path) -> None:
    """A server cannot send the download to a file or to FTP."""
    with pytest.raises(ModelProblem, match="leads to ftp"):
        fetch.fetch(f"{shop.url}/elsewhere", "0" * 64, Spec(name="new"), tmp_path)


@pytest.mark.parametrize(("sha256", "name"), [("abc", "new"), ("0" * 64, "../up"), ("0" * 64, "")])
def test_digest_and_name_are_checked_before_anything_is_asked(tmp_path: Path, sha256: str, name: str) -> None:
    """A digest that is none, or a name that is a path, is refused at once."""
    with pytest.raises(ModelProblem):
        fetch.fetch("http://127.0.0.1:1/m.zip", sha256, Spec(name=name), tmp_path)
    assert list(tmp_path.iterdir()) == []
