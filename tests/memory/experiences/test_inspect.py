"""One experience in full, why a decision was made, and how much of all is of use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from memory import Memory
from spar.types import Action, Credit, CycleRecord, Experience, Learnt

NOW = datetime.now(UTC) - timedelta(days=1)


def made(number: int, **more: object) -> Experience:
    fields = {"key": "alert", "run_id": f"r{number}", "origin": f"c{number}", "at": NOW + timedelta(minutes=number)}
    return Experience("nginx is down", id=f"e{number}", **{**fields, **more})  # type: ignore[arg-type]


async def test_an_experience_shows_the_best_and_the_last_example_and_where_all_came_from(memory: Memory) -> None:
    await memory.store(made(0, score=1.0, answer="quick"))
    await memory.store(made(1, score=0.5, answer="slow"))
    by_first, by_other = await memory.detail("e0"), await memory.detail("e1")
    assert await memory.detail("nobody") is None

    assert by_first == by_other
    assert by_first is not None and by_first.last is not None  # noqa: PT018
    assert (by_first.experience.answer, by_first.last.answer) == ("quick", "slow")
    assert [(each.id, each.run_id, each.cycle_id) for each in by_first.sources] == [
        ("e0", "r0", "c0"),
        ("e1", "r1", "c1"),
    ]


async def test_a_beginning_of_an_id_does_if_it_is_unique(memory: Memory) -> None:
    await memory.store(Experience("a", id="abc1"))
    await memory.store(Experience("b", id="abd1"))

    found = await memory.detail("abc")
    assert found.experience.situation == "a"
    with pytest.raises(LookupError, match="several experiences begin with 'ab'"):
        await memory.detail("ab")
    assert await memory.detail("") is None


async def test_why_names_the_decisions_of_a_cycle_and_the_experiences_that_they_went_by(memory: Memory) -> None:
    learnt = Learnt("b worked in this situation", "call", ("e0", "gone"), instead_of="a", is_used=False)
    await memory.store(made(0))
    await memory.record(CycleRecord("c", "main", "main", NOW, 0.1, "acted", action=Action((), learnt=(learnt,))))
    await memory.record(CycleRecord("d", "main", "main", NOW, 0.1, "acted", action=Action(())))
    found, none, unknown = await memory.why("c"), await memory.why("d"), await memory.why("x")

    assert [(each["why"], each["instead_of"], each["is_used"]) for each in found] == [(learnt.why, "a", False)]
    kept, gone = found[0]["cases"]
    assert (kept["experience"].situation, gone) == ("nginx is down", {"id": "gone", "experience": None})
    assert (none, unknown) == ([], None)


async def test_figures_count_what_is_merged_used_useless_and_of_strangers(memory: Memory) -> None:
    assert (await memory.figures())["rows"] == 0
    for number in range(3):
        await memory.store(made(number))
    await memory.store(Experience("junk"))
    await memory.store(Experience("mine", trust="trusted", success=False, lesson="look twice", id="m"))
    await memory.apply([Credit("m", has_helped=False)] * 3)
    found = await memory.figures()

    counts = {
        name: found[name] for name in ("rows", "made", "merged", "used", "untrusted", "failed", "retired", "idle")
    }
    assert counts == {
        "rows": 3, "made": 5, "merged": 1, "used": 1, "untrusted": 2, "failed": 1, "retired": 1, "idle": 2
    }  # fmt: skip
