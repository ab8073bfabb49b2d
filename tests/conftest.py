"""Fixtures that any test may want. A fact about one actor belongs into that actor's test file."""

from __future__ import annotations

import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_configure() -> None:
    """A test run in the background of a shell, or under nohup, ignores these signals, and so would all that it starts."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


@pytest.fixture
def short_tmp() -> Iterator[Path]:
    """A private folder with a short path: socket paths end at 103 bytes, and pytest's own folders are long."""
    folder = Path(tempfile.mkdtemp(prefix="r-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
