"""A list of cycles tells what each was about, without reading it whole."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memory import Memory
from spar.types import Action, CycleRecord, Fault, Perception


@pytest.mark.parametrize(
    ("goal", "faults", "about"),
    [
        ("file it", (), "file it"),
        ("", (), "the printer is broken"),
        ("file it", (Fault("io", "disk gone"),), "disk gone"),
    ],
    ids=["its goal", "what was perceived", "what failed"],
)
async def test_a_listed_cycle_says_what_it_was_about(goal: str, faults: tuple[Fault, ...], about: str) -> None:
    perceived, action = (Perception("the printer\nis   broken"),), Action(goal=goal)
    record = CycleRecord("c1", "main", "main", datetime.now(UTC), 0.1, "acted", perceived, action, faults=faults)
    async with Memory("sqlite://:memory:") as memory:
        await memory.record(record)
        await memory.flush()
        listed = await memory.cycles()

    assert [cycle["about"] for cycle in listed] == [about]


async def test_whole_cycles_are_read_after_before_and_since_one_the_oldest_first() -> None:
    at = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]
    async with Memory("sqlite://:memory:") as memory:
        for number in (2, 0, 1):
            await memory.record(CycleRecord(f"c{number}", "main", "main", at[number], 0.1, "acted"))
        await memory.flush()
        reads = [await memory.cycle_records(9), await memory.cycle_records(1, after="c0"),
                 await memory.cycle_records(1, before="c2"), await memory.cycle_records(9, since=at[1])]  # fmt: skip
        with pytest.raises(LookupError):
            await memory.cycle_records(9, after="c9")

    ids = [[cycle.cycle_id for cycle in cycles] for cycles in reads]
    assert ids == [["c0", "c1", "c2"], ["c1"], ["c1"], ["c1", "c2"]]
