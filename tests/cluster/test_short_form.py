"""The short form of the table, in the gate: crashes, thirty kills, forty stops, a hundred lost answers, restarts."""

from __future__ import annotations

import os
import sys

import pytest

from tests.cluster.table import SHORT, table, written
from tests.servers.postgresql import programs

pytestmark = pytest.mark.process


def test_nothing_is_lost_doubled_silent_or_stale(capfd: pytest.CaptureFixture[str]) -> None:
    if programs() is None and not os.environ.get("CI"):
        pytest.skip("no server of PostgreSQL is installed: apt install postgresql")
    lines = table(SHORT, 1, lambda line: None)
    with capfd.disabled():  # the figures are those of busy cores
        sys.stdout.write(f"\n{written(lines)}\n")
    assert not [line for line in lines if line.is_wrong]
