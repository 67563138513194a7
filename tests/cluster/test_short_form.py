"""The counts of the table's short form, in the gate: thirty kills, forty stops, a hundred lost answers, ten restarts.

`tests.faults.test_accept` has the failpoints, `test_upgrades` an exchange of nodes; figures need a machine where
nothing else runs (`make cluster`).
"""

from __future__ import annotations

import os
import sys

import pytest
from msgspec.structs import replace

from tests.cluster.table import SHORT, table, written
from tests.servers.postgresql import programs

pytestmark = pytest.mark.process


def test_nothing_is_lost_doubled_silent_or_stale(capfd: pytest.CaptureFixture[str]) -> None:
    if programs() is None and not os.environ.get("CI"):
        pytest.skip("no server of PostgreSQL is installed: apt install postgresql")
    lines = table(replace(SHORT, sweep=None, upgrades=0), 1, lambda line: None, is_alone=False)
    with capfd.disabled():
        sys.stdout.write(f"\n{written(lines)}\n")
    assert not [line for line in lines if line.is_wrong]
