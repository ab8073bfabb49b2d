"""
A part of the fault matrix (``bench/faults.py``), in short: no recall fails, no acknowledged event is lost or stored twice,
every edit is found, and no process is left over or missing.
"""

from __future__ import annotations

import faults
import pytest

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(240)]

SECONDS = {"kill_each": 16.0, "disk_full": 6.0, "read_only_data": 6.0, "clock_ten_years": 22.0, "clock_swings": 14.0}


@pytest.mark.parametrize(
    "fault",
    [
        "kill_each",
        "database_deleted",
        "journal_torn",
        "wiki_damaged",
        "vault_away",
        "disk_full",
        "read_only_data",
        "suspended",
        "clock_ten_years",
        "clock_swings",
    ],
)
def test_nothing_is_lost_and_recall_goes_on(fault: str) -> None:
    """Under the load of four MCP clients, edits and hook events."""
    found = faults.row(fault, SECONDS.get(fault, 4.0))
    if "skipped" in found:
        pytest.skip(found["skipped"])
    assert found["recalls"]["asked"] > 0
    assert found["recalls"]["failed"] == 0, found["recalls"]["failures"]
    assert found["events"]["acknowledged"] > 0
    assert (found["events"]["lost"], found["events"]["doubled"]) == (0, 0), found["events"]["which"]
    assert found["edits"]["missing"] == 0
    assert found["notes"]["indexed"] == found["notes"]["files"]
    assert found["wrong"] == []
    assert found["leaks"]["processes"] == 0
    assert all(growth < 32 for growth in found["leaks"]["descriptors"].values()), found["leaks"]
