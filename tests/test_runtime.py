"""Where things are, and who may see them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from recalld.protocol.runtime import MAX_SOCKET_PATH_BYTES, SOCKETS, RuntimeFolderError, locate, make_private


def test_arguments_win_over_the_environment(tmp_path: Path) -> None:
    """--data and --runtime, then RECALLD_*, then the platform's folders."""
    env = {"HOME": str(tmp_path), "RECALLD_DATA": "/d", "RECALLD_RUNTIME": "/r"}
    assert (str(locate("/a", "/b", env).data), str(locate("/a", "/b", env).runtime)) == ("/a", "/b")
    assert (str(locate(None, None, env).data), str(locate(None, None, env).runtime)) == ("/d", "/r")


def test_another_data_folder_has_sockets_of_its_own(tmp_path: Path) -> None:
    """Two daemons with two data folders do not meet."""
    env = {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    assert locate(str(tmp_path / "a"), None, env).runtime != locate(str(tmp_path / "b"), None, env).runtime


def test_a_long_runtime_path_is_replaced_by_a_short_one(tmp_path: Path) -> None:
    """Every socket path fits the smallest limit of the systems we run on."""
    paths = locate(str(tmp_path), "/tmp/" + "x" * 200, {})
    assert all(len(os.fsencode(paths.socket(name))) <= MAX_SOCKET_PATH_BYTES for name in SOCKETS)
    assert str(os.getuid()) in str(paths.runtime)


def test_private_folders_are_made_and_tightened(tmp_path: Path) -> None:
    """0700 from the start, and again when somebody loosened it."""
    folder = tmp_path / "a" / "b"
    make_private(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o755)
    make_private(folder)
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    """Nothing is written through something that is not a folder of ours."""
    (tmp_path / "f").write_text("")
    with pytest.raises(RuntimeFolderError):
        make_private(tmp_path / "f")


def test_locating_creates_nothing(tmp_path: Path) -> None:
    """Read-only commands may ask where things are."""
    locate(str(tmp_path / "d"), str(tmp_path / "r"), {})
    assert list(tmp_path.iterdir()) == []
