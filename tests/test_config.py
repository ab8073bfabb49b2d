"""config.toml and RECALLD_*: every key settable, every mistake named with its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from recalld.protocol.config import Config, ConfigError, VaultConfig, load, parse


def test_no_file_is_a_valid_configuration_and_is_not_created(tmp_path: Path) -> None:
    """Reading creates nothing."""
    assert Config() == load(tmp_path / "config.toml", {})
    assert list(tmp_path.iterdir()) == []


def test_values_come_from_file_then_environment() -> None:
    """A variable wins over the file; sections are joined by two underscores."""
    text = '[embedder]\nmodel = "other"\nbatch = 4\n[[vaults]]\npath = "/notes"\n'
    config = parse(text, "c.toml", {"RECALLD_EMBEDDER__BATCH": "16", "RECALLD_WATCHER__MODE": "poll", "HOME": "/x"})
    assert (config.embedder.batch, config.embedder.model, config.watcher.mode) == (16, "other", "poll")
    assert (VaultConfig(path="/notes"),) == config.vaults


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[embedder]\n\nmodle = 'x'\n", "c.toml:3: unknown key 'embedder.modle'"),
        ("\n[embeder]\nmodel = 'x'\n", "c.toml:2: unknown key 'embeder'"),
        ("[recall]\nk = 'five'\n", "c.toml:2: recall.k: "),
        ("[recall]\nk = 0\n", "c.toml:2: recall.k: "),
        ("[watcher]\nmode = 'sometimes'\n", "c.toml:2: watcher.mode: "),
        ("[recall\n", "c.toml: "),
    ],
)
def test_a_mistake_in_the_file_is_named_with_its_line(text: str, place: str) -> None:
    """A person can go to the line that is wrong."""
    with pytest.raises(ConfigError) as caught:
        parse(text, "c.toml", {})
    assert str(caught.value).startswith(place)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("RECALLD_RECALL__KK", "1", "RECALLD_RECALL__KK: unknown key 'recall.kk'"),
        ("RECALLD_RECALL__K", "many", "RECALLD_RECALL__K: recall.k: "),
    ],
)
def test_a_mistake_in_the_environment_is_named(name: str, value: str, text: str) -> None:
    """So can one who set a variable."""
    with pytest.raises(ConfigError) as caught:
        parse("", "c.toml", {name: value})
    assert str(caught.value).startswith(text)
