"""Another process takes over from one that is killed, and what would be wrong after that is found."""

from __future__ import annotations

import random
from pathlib import Path

import psycopg
import pytest
from msgspec.structs import replace

from tests.cluster.takeover import Cluster, Counts, killed
from tests.faults.ledger import Ledger

pytestmark = pytest.mark.process


def test_one_that_is_killed_is_replaced_and_the_judge_is_not_blind(url: str, tmp_path: Path) -> None:
    with Cluster(url, tmp_path) as cluster:
        counts = killed(cluster, 1, random.Random(1))

        assert counts.is_clean
        assert (counts.tried, counts.taken_over, len(counts.seconds)) == (1, 1, 1)
        assert counts.accepted > 0
        ledger = Ledger(cluster.ledger)
        ledger.write(**ledger.read()[0])
        with psycopg.connect(cluster.url, autocommit=True) as connection:
            connection.execute("DELETE FROM item WHERE key = (SELECT min(key) FROM item)")
            connection.execute("DELETE FROM fact WHERE seq = (SELECT min(seq) FROM fact WHERE kind = 'ended')")
        again = cluster.judge(Counts())
        assert (again.lost > 0, again.doubled, again.silent) == (True, 1, 1)
        assert replace(again, lost=0, doubled=0, silent=0).is_clean
