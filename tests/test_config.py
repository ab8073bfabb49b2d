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
        ("[[vaults]]\npath = '/a'\n[[vaults]]\npath = 3\n", "c.toml:4: vaults[1].path: "),
        ("[[vaults]]\npath = '/a'\n\n[[vaults]]\nname = 'b'\n", "c.toml:4: vaults[1]: "),
        ("[[vaults]]\npath = '/a'\n[[vaults]]\npath = 'notes'\n", "c.toml:4: vaults[1].path: "),
        ("[log]\n[recall] # how\nk = 0 # none\n", "c.toml:3: recall.k: "),
        ("\nrecall.k = 0\n", "c.toml:2: recall.k: "),
        ("\nrecall = {k = 0}\n", "c.toml:2: recall.k: "),
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
        ("RECALLD_VAULTS", "/notes", "RECALLD_VAULTS: vaults: "),
        ("RECALLD_RECALL", "1", "RECALLD_RECALL__K: recall is not a table"),
    ],
)
def test_a_mistake_in_the_environment_is_named(name: str, value: str, text: str) -> None:
    """So can one who set a variable."""
    with pytest.raises(ConfigError) as caught:
        parse("", "c.toml", {"RECALLD_RECALL__K": "3", name: value})
    assert str(caught.value).startswith(text)


def test_a_variable_holds_any_value() -> None:
    """Lists and tables are written as in TOML; what looks like a number is text where text belongs."""
    environ = {
        "RECALLD_VAULTS": "[{path = '/notes', name = 'n'}]",
        "RECALLD_CAPTURE__REDACT_PATTERNS": "['a+', 'b']",
        "RECALLD_EMBEDDER__MODEL": "2024",
        "RECALLD_EMBEDDER__RERANKER": "'/m'",
    }
    config = parse("", "c.toml", environ)
    assert config.vaults == (VaultConfig(path="/notes", name="n"),)
    assert config.capture.redact_patterns == ("a+", "b")
    assert (config.embedder.model, config.embedder.reranker) == ("2024", "/m")
