"""`recalld eval rerank` with a real daemon and a cross-encoder that knows two words."""

from __future__ import annotations

import itertools
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from harness import Daemon, running, until
from recalld.memory.recall.gold import Gold
from recalld.protocol.messages.control import Reload

from .crossencoder import write_cross_encoder

pytestmark = [pytest.mark.process, pytest.mark.slow]

SUBJECTS = tuple(f"{first}{vowel}ngo" for first, vowel in itertools.product("bdfgkl", "aeio"))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """Two notes on each subject: the words of a question favour the first, the cross-encoder the second. No vectors."""
    one = np.ones(4, np.float32)
    folder = write_cross_encoder(tmp_path / "cross", {"zorp": one, "quux": one})
    config = f'[embedder]\nmodel = "none"\nreranker = "{folder}"\n[recall.ranking]\nrerank_weight = 0.8\n'
    with running(config) as made:
        for subject in SUBJECTS:
            made.write(f"{subject}-first.md", f"# {subject.title()}\n\n{subject} {subject} as told at noon.\n")
            made.write(f"{subject}-second.md", f"# Elsewhere\n\nThe quux of {subject} is told in the evening.\n")
        made.settle()
        yield made


def gold(folder: Path, right: str) -> str:
    """Questions that the ``right`` note of each subject answers."""
    path = folder / f"{right}.jsonl"
    with path.open("w") as out:
        for subject in SUBJECTS:
            question = Gold(id=subject, cls="body", question=f"zorp of {subject}", support=(f"{subject}-{right}",))
            out.write(json.dumps({name: getattr(question, name) for name in question.__struct_fields__}) + "\n")
    return str(path)


def first(daemon: Daemon) -> str:
    return daemon.recall(f"zorp of {SUBJECTS[0]}").hits[0].path.removeprefix(f"{SUBJECTS[0]}-").removesuffix(".md")


def test_it_is_used_where_it_wins(daemon: Daemon, tmp_path: Path) -> None:
    """Off before it was measured and when it lost, on when it won, taken up by the running daemon; told when it is away."""
    assert first(daemon) == "first"

    lost = json.loads(daemon.cli("eval", "rerank", gold(tmp_path, "first"), "--json").stdout)
    assert (lost["won"], lost["on"], lost["questions"]) == (False, False, len(SUBJECTS))
    assert lost["interval"][1] < 0
    assert first(daemon) == "first"

    said = daemon.cli("eval", "rerank", gold(tmp_path, "second")).stdout
    assert "The reranker is on now" in said
    verdict = json.loads((daemon.paths.data / "reranker.json").read_bytes())
    assert verdict["won"]
    assert len(verdict["sha256"]) == 64
    assert (verdict["weight"], verdict["depth"], verdict["late"]) == (0.8, 20, 0)
    until("the verdict is taken up", lambda: first(daemon) == "second")

    shown = daemon.cli("ask", f"zorp of {SUBJECTS[0]}", "--explain").stdout
    assert "reranker: rank 1, score 4.000, weight 0.80  before: rank 2" in shown

    embedder = daemon.pids()["embedder"]
    os.kill(embedder, signal.SIGSTOP)
    try:
        answer = daemon.recall(f"zorp of {SUBJECTS[0]}")
        assert "reranker" in answer.degraded
        assert answer.hits[0].path.endswith("first.md")
    finally:
        os.kill(embedder, signal.SIGCONT)

    (daemon.paths.data / "reranker.json").unlink()
    daemon.ask("control", Reload())
    until("without a verdict it is off", lambda: first(daemon) == "first")
    assert "reranker" not in daemon.recall(f"zorp of {SUBJECTS[0]}").degraded


def test_without_a_reranker_there_is_nothing_to_measure(tmp_path: Path) -> None:
    """None configured: told what to set. One that cannot be loaded: told why."""
    questions = gold(tmp_path, "first")
    with running('[embedder]\nmodel = "none"\n') as daemon:
        refused = daemon.cli("eval", "rerank", questions, check=False)
        assert refused.returncode != 0
        assert "[embedder]" in refused.stderr
        text = daemon.paths.config.read_text()
        daemon.paths.config.write_text(text.replace("[embedder]", f'[embedder]\nreranker = "{tmp_path}/none"'))
        refused = daemon.cli("eval", "rerank", questions, check=False)
        assert refused.returncode != 0
        assert f"{tmp_path}/none cannot be loaded" in refused.stderr
        assert not (daemon.paths.data / "reranker.json").exists()
        one = np.ones(4, np.float32)
        write_cross_encoder(tmp_path / "none", {"zorp": one})
        # What is missing is put in place: the next try loads it, without a restart.
        assert "off now" in daemon.cli("eval", "rerank", questions).stdout
