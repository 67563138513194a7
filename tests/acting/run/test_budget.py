"""What calls take of the budgets: reserved when nothing else is against them, used at their start, else given back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from acting import Executor
from acting.calls import Scope
from acting.run.call.call_state import Step
from acting.run.shared.budget import Spending
from acting.tooling.registry import Catalog
from spar import tool
from spar.budgets.budgets import Budgets
from spar.events import BudgetExceeded
from spar.facts import BudgetUsed
from spar.records.journal import Spend
from spar.testing import RecordingEvents, VirtualClock
from spar.types import Call

SCOPE = Scope("action", "cycle")
HOUR = "hour:2026-01-01T00"


@tool(effect="read")
def look(x: int = 0) -> str:
    return "seen"


@tool(effect="once")
def send(x: int = 0) -> str:
    return "sent"


class Either:
    """A tool whose parameters say what it does."""

    name, timeout = "either", 1.0
    schema: Mapping[str, Any] = {"type": "object", "properties": {"_tool": {"const": "either"}, "write": {}}}
    effect = "once"

    def effect_of(self, params: Mapping[str, Any]) -> str:
        return "once" if params.get("write") else "read"

    async def __call__(self, **params: Any) -> None: ...


CATALOG = Catalog([look, send, Either()])


def ready(name: str, scope: Scope = SCOPE, **params: Any) -> Step:
    """Return a call that is ready."""
    call, entry = Call(name, params), CATALOG.get(name)
    assert entry is not None
    return Step(call.id, call=call, params=params, scope=scope, entry=entry)


class Told:
    def __init__(self) -> None:
        self.spends: list[Spend] = []

    def append(self, fact: BudgetUsed) -> None:
        self.spends += fact.spends

    async def safe(self) -> None: ...


class Case:
    def __init__(self, limits: Any, clock: VirtualClock) -> None:
        self.events, self.journal = RecordingEvents(), Told()
        self.budgets = Budgets(limits, clock, self.events)
        self.budgets.open(self.journal)
        self.spending = Spending(self.budgets)

    def used(self, budget: str) -> int:
        return next(each["used"] for each in self.budgets.snapshot() if each["budget"] == budget)


async def test_a_call_is_reserved_while_it_waits_and_kept_when_it_starts(clock: VirtualClock) -> None:
    case = Case({("hour", "effects"): 2, ("cycle", "calls"): 9}, clock)
    payer = ready("send")

    assert not case.spending.reserve(payer)
    assert (case.used("hour.effects"), case.journal.spends) == (1, [])
    case.spending.take(payer)

    assert case.journal.spends == [Spend(HOUR, "effects", 1)]
    case.spending.release(payer)  # its end: it did start
    assert (case.used("hour.effects"), case.used("cycle.calls")) == (1, 1)


async def test_a_call_that_never_starts_is_given_back_once(clock: VirtualClock) -> None:
    case = Case({("hour", "calls"): 2}, clock)
    payer = ready("look")

    assert not case.spending.reserve(payer)
    assert not case.spending.reserve(payer)
    case.spending.release(payer)
    case.spending.release(payer)

    assert (case.used("hour.calls"), case.journal.spends) == (0, [])


async def test_the_last_call_runs_and_what_is_against_the_next_names_the_limit(clock: VirtualClock) -> None:
    case = Case({("cycle", "calls"): 2}, clock)
    payers = [ready("look") for _ in range(3)]

    why = [case.spending.reserve(payer) for payer in payers]

    assert why == ["", "", "budget cycle.calls does not allow 1 more: 2 of 2 used until the next cycle"]
    assert [(e.budget, e.what, e.cycle_id) for e in case.events.of(BudgetExceeded)] == [
        ("cycle.calls", "look", "cycle")
    ]
    assert not case.spending.reserve(ready("look", Scope("another")))


async def test_what_people_approve_starts_and_counts_whatever_is_left(clock: VirtualClock) -> None:
    case = Case({("hour", "effects"): 0}, clock)
    payer = ready("send")

    assert case.spending.reserve(payer)
    case.spending.take(payer)

    assert case.used("hour.effects") == 1
    assert case.journal.spends == [Spend(HOUR, "effects", 1)]


async def test_a_call_is_an_effect_by_what_it_is_given(clock: VirtualClock) -> None:
    case = Case({("hour", "effects"): 1}, clock)

    assert not case.spending.reserve(ready("either", write=True))
    assert case.spending.reserve(ready("either", write=True))
    assert not case.spending.reserve(ready("either", write=False))
    assert not case.spending.reserve(ready("look"))


async def test_a_call_in_the_place_of_another_one_takes_what_it_takes_itself(clock: VirtualClock) -> None:
    case = Case({("hour", "effects"): 5, ("hour", "calls"): 5}, clock)
    payer = ready("look")
    case.spending.reserve(payer)

    other = ready("send")
    payer.entry, payer.params = other.entry, other.params
    payer.call = Call("send", meta={"_original": {"_tool": "look"}})
    case.spending.take(payer)

    assert (case.used("hour.effects"), case.used("hour.calls")) == (1, 1)


async def test_each_further_attempt_takes_one_more_as_long_as_there_is_one(clock: VirtualClock) -> None:
    case = Case({("hour", "calls"): 3}, clock)
    payer = ready("look")
    case.spending.reserve(payer)
    case.spending.take(payer)

    again = [case.spending.again(payer) for _ in range(3)]

    assert again == [True, True, False]
    assert case.journal.spends == [Spend(HOUR, "calls", 1)] * 3
    assert len(case.events.of(BudgetExceeded)) == 1


@pytest.mark.parametrize("limits", [{}, {("hour", "tokens"): 1}])
async def test_without_limits_for_calls_nothing_is_counted(limits: Any, clock: VirtualClock) -> None:
    case = Case(limits, clock)
    payers = [ready("send") for _ in range(1_000)]

    for payer in payers:
        assert not case.spending.reserve(payer)
        assert not case.spending.reserve(payer)
        case.spending.take(payer)
        assert case.spending.again(payer)

    assert case.journal.spends == case.events.seen == []
    assert not any(payer.reservation for payer in payers)


async def test_limits_that_come_with_a_new_configuration_count_from_then_on(clock: VirtualClock) -> None:
    case = Case({}, clock)
    waiting = ready("send")
    case.spending.reserve(waiting)

    case.budgets.apply({("hour", "calls"): 2})
    case.spending.take(waiting)

    assert [case.spending.reserve(ready("look")) == "" for _ in range(2)] == [True, False]


async def test_the_result_of_a_refused_call_says_that_it_was_the_budget(clock: VirtualClock) -> None:
    executor = Executor([send], clock=clock)
    executor._runtime.spending = Case({("hour", "effects"): 1}, clock).spending

    sent, refused = (await executor.run([Call("send"), Call("send")])).results

    assert (sent.status, refused.status, refused.reason) == ("ok", "denied", "budget")
    assert refused.fault is not None
    assert (refused.fault.kind, refused.fault.retryable) == ("budget", False)
    assert refused.fault.message.startswith("budget hour.effects does not allow 1 more")


class Ordered(Told):
    """A journal that keeps the order of what it is told, and is asked to be safe at "safe"."""

    epoch = 1

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []

    def append(self, fact: Any) -> None:
        if isinstance(fact, BudgetUsed):
            super().append(fact)
        self.order.append(type(fact).__name__)

    async def safe(self) -> None:
        self.order.append("safe")

    def next_fence(self, above: int = 0) -> int:
        return above + 1

    def is_open(self, work: str) -> bool:
        return False


@pytest.mark.parametrize("is_detached", [False, True])
async def test_what_a_call_uses_is_written_with_its_start_before_it_can_have_an_effect(
    clock: VirtualClock, is_detached: bool
) -> None:
    journal = Ordered()

    @tool(effect="once")
    def tell() -> None:
        journal.order.append("effect")

    executor = Executor([tell], clock=clock, journal=journal)
    budgets = Budgets({("hour", "effects"): 9}, clock, RecordingEvents())
    budgets.open(journal)
    executor._runtime.spending = Spending(budgets)

    async with executor:
        await executor.run([Call("tell", meta={"_detach": True} if is_detached else {})])
        while "effect" not in journal.order:
            await clock.sleep(0.01)

    order = [each for each in journal.order if each in ("BudgetUsed", "AttemptStarted", "safe", "effect")]
    assert order == ["BudgetUsed", "AttemptStarted", "safe", "effect"]


async def test_a_call_that_waits_for_a_worker_has_used_nothing_yet(clock: VirtualClock) -> None:
    case, used = Case({("hour", "effects"): 9}, clock), list[int]()

    @tool(effect="once")
    async def tell() -> None:
        used.append(len(case.journal.spends))
        await clock.sleep(1)

    executor = Executor([tell], clock=clock, settings={"max_parallel": 2})
    executor._runtime.spending = case.spending

    await executor.run([Call("tell") for _ in range(4)])

    assert used == [2, 2, 3, 4]  # those that run and no other
