"""Drawn histories told through the journal leave the same rows in every store, for this process and for the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory import Memory
from memory.postgres.store import PostgresMemory
from tests.decisions.journalled import drawn, tell
from tests.memory.postgres.test_loss import whole

HISTORIES = 5


@pytest.mark.parametrize("seed", range(HISTORIES))
async def test_a_history_reads_the_same_from_a_file_and_from_a_server(seed: int, url: str, tmp_path: Path) -> None:
    groups = drawn(seed)
    in_file = await tell(lambda: Memory.open(f"sqlite:///{tmp_path}/memory.db", ballast=0), groups)
    on_server = await tell(lambda: PostgresMemory(url), groups)

    assert in_file == on_server
    assert in_file[0] == in_file[1]  # what the next process reads
    assert whole(url)[0] > 0
