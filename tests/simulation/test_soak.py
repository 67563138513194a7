"""Many cycles leave no trace behind; `make soak` makes a million of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.service import folder
from tests.simulation.soak import Sample, Soaked, slope, soak

#: As many cycles as fit into the gate, and by how much (bytes) memory may grow in their second half: not what leaks
#: slowly (that takes a million), but what keeps something of each cycle.
CYCLES, GROWTH = 3_000, 3 << 20


@pytest.fixture
def path() -> Iterator[Path]:
    with folder() as found:
        yield found


async def test_thousands_of_cycles_leave_no_task_thread_or_file_behind_and_hardly_any_memory(path: Path) -> None:
    soaked = await soak(CYCLES, path)
    half = [each for each in soaked.samples if each.cycles >= CYCLES / 2]
    assert (soaked.lost, soaked.open_runs) == (0, 0)
    for name in ("files", "threads", "tasks", "children"):
        values = {getattr(each, name) for each in half}
        assert max(values) - min(values) <= 3, (name, values)
    assert half[-1].memory - half[0].memory <= GROWTH


def test_what_grows_has_a_slope_and_what_wavers_has_none() -> None:
    assert slope([(0, 5), (1, 7), (2, 9)]) == 2.0
    assert slope([(0, 5), (1, 6), (2, 5), (3, 6), (4, 5)]) == 0.0
    leaking = Soaked(10_000, 1.0, tuple(Sample(k * 100, k * 2048, 7, 3, 4, 0, 0) for k in range(101)), 0, 0)
    assert leaking.slope("memory") == pytest.approx(20.0)
    assert leaking.slope("tasks") == 0.0
