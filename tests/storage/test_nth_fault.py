"""Whatever a store asks of its disk, it may be refused: it survives that at any point, and says what was wrong."""

from __future__ import annotations

import pytest

from tests.storage.sweeps import FAULTS, sweep


@pytest.mark.parametrize("name", FAULTS)
async def test_any_operation_of_the_disk_may_fail(name: str) -> None:
    step = {"write": 13, "read": 4}.get(FAULTS[name][0], 3 if FAULTS[name][0] == "sync" else 1)

    tally = await sweep(name, step=step)

    assert tally.is_whole, str(tally)
