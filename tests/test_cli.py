"""The command as a stranger meets it: exit codes, closed and full outputs, folders that cannot be used."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import tomlkit
from click.testing import CliRunner, Result
from recalld.clients.cli.main import recalld
from recalld.protocol import config
from recalld.protocol.config import ConfigError

COMMAND = [sys.executable, "-P", "-m", "recalld.clients.cli"]


def run(data: Path, *words: str, **more: object) -> subprocess.CompletedProcess[bytes]:
    """The real program, without a daemon."""
    keep = {name: os.environ[name] for name in ("PATH", "HOME", "PYTHONPATH") if name in os.environ}
    command = [*COMMAND, "--data", os.fspath(data), *words]
    return subprocess.run(command, capture_output=True, timeout=60, check=False, **{"env": keep, **more})  # type: ignore[call-overload,no-any-return]


def invoke(data: Path, *words: str) -> Result:
    """The command in this process."""
    return CliRunner().invoke(recalld, ["--data", str(data), "--runtime", str(data / "run"), *words])


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    return folder


@pytest.mark.parametrize(
    ("words", "code"), [(["status"], 3), (["status", "--json"], 3), (["doctor"], 2), (["list"], 0)]
)
def test_the_exit_code_says_what_the_help_promises(short_tmp: Path, words: list[str], code: int) -> None:
    """A script can tell from the code alone whether the daemon runs and all is well."""
    assert run(short_tmp / "d", *words).returncode == code


@pytest.mark.parametrize("words", [["status", "--json"], ["list", "--json"], ["doctor"], ["ask", "x"]])
def test_closed_standard_streams_are_no_trouble(short_tmp: Path, words: list[str]) -> None:
    """Whoever starts the command with descriptors closed gets the same exit code, and no traceback."""
    here = run(short_tmp / "d", *words)
    shell = f'exec "$@" 2>"{short_tmp}/err" >&- <&-'
    there = subprocess.run(
        ["/bin/sh", "-c", shell, "sh", *COMMAND, "--data", str(short_tmp / "d"), *words], check=False, timeout=60
    )
    assert there.returncode == here.returncode
    assert "Traceback" not in (short_tmp / "err").read_text()


def test_a_reader_that_has_seen_enough_is_no_failure(short_tmp: Path) -> None:
    """`recalld … | head` ends with 0 and without a word."""
    (short_tmp / "logs").mkdir()
    (short_tmp / "logs" / "writer.jsonl").write_text('{"at": 1, "level": "info", "actor": "writer", "text": "x"}\n' * 9)
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, "--data", str(short_tmp), "logs"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_folder_that_cannot_be_written_is_said_in_one_line(short_tmp: Path, notes: Path) -> None:
    """The system's words, and no traceback."""
    (short_tmp / "file").write_text("")
    for data in (short_tmp / "file", short_tmp / "file" / "d"):
        done = run(data, "add", str(notes))
        assert done.returncode in (1, 2)
        assert len(done.stderr.splitlines()) == 1, done.stderr


def test_without_a_home_the_command_says_what_to_set(tmp_path: Path) -> None:
    """A container may have neither HOME nor an entry for its uid."""
    code = (
        "import os, pwd\n"
        "def nobody(uid): raise KeyError(uid)\n"
        "pwd.getpwuid = nobody\n"
        "os.environ.pop('HOME', None)\n"
        "from recalld.clients.cli.main import main\n"
        "main(['list'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)
    assert done.returncode == 1
    assert b"--data" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_bytes_that_are_no_text_are_asked_and_refused_without_a_traceback(short_tmp: Path) -> None:
    """A question in another encoding is asked as far as it can be read; a folder of such a name cannot be watched."""
    strange = os.fsencode(short_tmp) + b"/caf\xe9"
    os.mkdir(strange)
    for words in ([b"ask", b"caf\xe9"], [b"add", strange]):
        done = subprocess.run(
            [*COMMAND, "--data", short_tmp / "d", *words], capture_output=True, check=False, timeout=60
        )
        assert done.returncode == 1
        assert len(done.stderr.splitlines()) == 1, done.stderr
    assert not (short_tmp / "d").exists()


@pytest.mark.parametrize("project", [".", "..", "../..", "/etc"])
def test_what_is_purged_is_a_project_and_nothing_above_it(tmp_path: Path, project: str) -> None:
    """A path instead of a name deletes nothing."""
    result = invoke(tmp_path / "d", "purge", "--yes", "--project", project)
    assert "is not the name of a project" in str(result.exception)
    assert not (tmp_path / "d").exists()


def test_a_command_works_in_a_folder_that_was_removed(short_tmp: Path) -> None:
    """Where one stands matters for scopes alone."""
    gone = short_tmp / "gone"
    gone.mkdir()
    words = [*COMMAND, "--data", str(short_tmp / "d"), "ask", "x"]
    done = subprocess.run(
        ["/bin/sh", "-c", 'rmdir "$PWD"; exec "$@"', "sh", *words],
        cwd=gone,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert b"there is no index yet" in done.stderr


# -- config.toml ------------------------------------------------------------------------------------------------------


def test_a_configuration_that_is_not_text_is_named_with_its_line(tmp_path: Path) -> None:
    """Not a traceback of the decoder."""
    path = tmp_path / "config.toml"
    path.write_bytes(b"[recall]\nk = 3 # caf\xe9\n")
    with pytest.raises(ConfigError, match=r"config\.toml:2: .*UTF-8"):
        config.load(path, {})


def test_a_byte_order_mark_is_understood(tmp_path: Path) -> None:
    """Some editors write one."""
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xef\xbb\xbf[recall]\nk = 3\n")
    assert config.load(path, {}).recall.k == 3


def test_vaults_in_a_list_survive_another_one(tmp_path: Path, notes: Path) -> None:
    """`vaults = [{…}]` is valid TOML; adding a folder keeps what it names, and comments."""
    other = tmp_path / "other"
    other.mkdir()
    path = tmp_path / "d" / "config.toml"
    path.parent.mkdir()
    path.write_text(f"# mine\nvaults = [{{path = '{other}', name = 'o'}}]\n[recall]\nk = 3 # three\n")
    assert invoke(tmp_path / "d", "add", str(notes)).exit_code == 0
    loaded = config.load(path, {})
    assert [vault.path for vault in loaded.vaults] == [str(other), str(notes)]
    assert loaded.recall.k == 3
    assert "# three" in path.read_text()


def test_a_linked_configuration_stays_a_link(tmp_path: Path, notes: Path) -> None:
    """Who keeps it among dotfiles finds the change there."""
    (tmp_path / "d").mkdir()
    dotfile = tmp_path / "dotfile.toml"
    dotfile.write_text("")
    (tmp_path / "d" / "config.toml").symlink_to(dotfile)
    assert invoke(tmp_path / "d", "add", str(notes)).exit_code == 0
    assert (tmp_path / "d" / "config.toml").is_symlink()
    assert tomlkit.parse(dotfile.read_text())["vaults"][0]["path"] == str(notes)  # type: ignore[index]


def test_folders_added_at_once_are_all_there(tmp_path: Path) -> None:
    """Two commands that read the same file do not undo each other's change."""
    folders = [tmp_path / f"v{number}" for number in range(4)]
    for folder in folders:
        folder.mkdir()
    twice = [*folders, *folders]
    threads = [threading.Thread(target=run, args=(tmp_path / "d", "add", str(folder))) for folder in twice]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    listed = json.loads(run(tmp_path / "d", "list", "--json").stdout)["vaults"]
    assert sorted(row["path"] for row in listed) == sorted(str(folder) for folder in folders)


def test_folders_that_share_files_are_refused(tmp_path: Path, notes: Path) -> None:
    """Neither the root of everything, nor recalld's own folder, nor one inside another."""
    data = tmp_path / "d"
    (data / "wiki").mkdir(parents=True)
    (notes / "sub").mkdir()
    assert invoke(data, "add", str(notes)).exit_code == 0
    for folder in ("/", str(data / "wiki"), str(data), str(tmp_path), str(notes / "sub")):
        assert invoke(data, "add", folder).exit_code == 1, folder
    assert len(config.load(data / "config.toml", {}).vaults) == 1


def test_a_vault_is_removed_by_the_name_that_the_list_shows(tmp_path: Path, notes: Path) -> None:
    """Also when config.toml gives it none."""
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "config.toml").write_text(f"[[vaults]]\npath = '{notes}'\n")
    assert invoke(tmp_path / "d", "remove", "notes").exit_code == 0
    assert config.load(tmp_path / "d" / "config.toml", {}).vaults == ()


def test_a_change_that_a_variable_overrides_is_not_called_done(
    tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file has it, and the daemon would not see it."""
    monkeypatch.setenv("RECALLD_VAULTS", "[]")
    result = invoke(tmp_path / "d", "add", str(notes))
    assert result.exit_code == 1
    assert "RECALLD_VAULTS" in str(result.exception)


def test_asking_imports_neither_an_event_loop_nor_rich() -> None:
    """What ``recalld ask`` waits for before it can ask: each of these would cost it as much as its answer does."""
    code = "import sys, recalld.clients.cli.main, recalld.clients.cli.ask; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"asyncio", "anyio", "rich", "textual", "numpy", "logging"} & set(loaded)
