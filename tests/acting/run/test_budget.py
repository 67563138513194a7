"""When what a call uses is written down."""

from __future__ import annotations

from typing import Any

import pytest

from acting import Executor
from acting.run.budget import Spending
from spar import tool
from spar.budgets.budgets import Budgets
from spar.facts import BudgetUsed
from spar.testing import RecordingEvents, VirtualClock
from spar.types import Call


class Journal:
    """Keeps the order of what it is told, and is asked to be safe at "safe"."""

    epoch = 1

    def __init__(self) -> None:
        self.order: list[str] = []

    def append(self, fact: Any) -> None:
        self.order += [type(fact).__name__] * (len(fact.spends) if isinstance(fact, BudgetUsed) else 1)

    async def safe(self) -> None:
        self.order.append("safe")

    def next_fence(self, above: int = 0) -> int:
        return above + 1

    def is_open(self, work: str) -> bool:
        return False


def spending_of(clock: VirtualClock, journal: Any) -> Spending:
    budgets = Budgets({("hour", "effects"): 9}, clock, RecordingEvents())
    budgets.open(journal)
    return Spending(budgets)


@pytest.mark.parametrize("is_detached", [False, True])
async def test_what_a_call_uses_is_written_with_its_start_before_it_can_have_an_effect(
    clock: VirtualClock, is_detached: bool
) -> None:
    journal = Journal()

    @tool(effect="once")
    def tell() -> None:
        journal.order.append("effect")

    executor = Executor([tell], clock=clock, journal=journal)
    executor._runtime.spending = spending_of(clock, journal)

    async with executor:
        await executor.run([Call("tell", meta={"_detach": True} if is_detached else {})])
        while "effect" not in journal.order:
            await clock.sleep(0.01)

    order = [each for each in journal.order if each in ("BudgetUsed", "AttemptStarted", "safe", "effect")]
    assert order == ["BudgetUsed", "AttemptStarted", "safe", "effect"]


async def test_a_call_that_waits_for_a_worker_has_used_nothing_yet(clock: VirtualClock) -> None:
    journal, used = Journal(), list[int]()

    @tool(effect="once")
    async def tell() -> None:
        used.append(journal.order.count("BudgetUsed"))
        await clock.sleep(1)

    executor = Executor([tell], clock=clock, settings={"max_parallel": 2})
    executor._runtime.spending = spending_of(clock, journal)

    await executor.run([Call("tell") for _ in range(4)])

    assert used == [2, 2, 3, 4]  # those that run and no other
