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
