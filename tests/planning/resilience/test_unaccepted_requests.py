"""Requests that a provider did not accept: nothing of them is spent, however they were asked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest

from planning import Requests
from planning.llm.planner import ModelPlanner
from planning.ports import Request
from planning.resilience.failover import Models
from planning.resilience.provider_errors import KINDS, TREATMENTS, FaultKind, provider_error
from spar.budgets.budgets import Budgets
from spar.errors import SparError
from spar.events import ModelAnswered
from spar.journal.in_memory import JournalInMemory
from spar.ports.budgets import Limits
from spar.protocols import CALLED_FOR, ModelQuestion
from spar.testing import Fail, RecordingEvents, ScriptedModel, VirtualClock
from spar.types import Call
from tests.planning.desk import Desk, context, planned

LIMITS: Limits = {("hour", "requests"): 100, ("hour", "tokens"): 100_000, ("hour", "money"): 100_000}
ADVISOR = {"id": "critic", "role": "objects", "schema": {"type": "string"}}


async def by_plan(planner: ModelPlanner) -> None:
    await planned(planner, [], context())


async def by_call(planner: ModelPlanner, name: str, **meta: Any) -> None:
    token = CALLED_FOR.set(("c1", "r"))
    try:
        params = {"advisor": "critic", "question": "?"} if name == "ConsultAdvisor" else {}
        await planner.activities[name](Call("think", params, meta=meta), {}, [])
    finally:
        CALLED_FOR.reset(token)


async def by_advisor(planner: ModelPlanner) -> None:
    planner.advise(Request(run_id="r", cycle_id="c1"))
    await by_call(planner, "ConsultAdvisor")


WAYS: dict[str, Callable[[ModelPlanner], Awaitable[Any]]] = {
    "plan": by_plan,
    "summary": lambda planner: planner.ask(Request(run_id="r", cycle_id="c1", texts=("sum up",))),
    "reflection": lambda planner: planner.answer(ModelQuestion("Why?", (), {"type": "string"}, 100, "reflect", "c1")),
    "delegate": lambda planner: by_call(planner, "_delegate", _delegate="anonymous"),
    "latent call": lambda planner: by_call(planner, "_latent"),
    "advisor": by_advisor,
}


class Priced(ScriptedModel):
    """A model that tells the most that a request can use."""

    async def most(self, request: Request) -> dict[str, int]:
        return {"requests": 1, "tokens": 5_000, "money": 1_000}


@pytest.mark.parametrize(
    ("way", "kind"),
    [*(("plan", kind) for kind in KINDS), *((way, kind) for way in WAYS for kind in ("overloaded", "truncated"))],
)
async def test_what_was_not_accepted_is_spent_nowhere(way: str, kind: FaultKind, clock: VirtualClock) -> None:
    budgets = Budgets(LIMITS, clock, RecordingEvents())
    budgets.open(JournalInMemory())
    fault, desk = Fail(provider_error(kind, "it")), Desk(clock)
    planner = ModelPlanner(Models([Priced([fault] * 9)], clock=clock, budgets=budgets), advisors=[ADVISOR])
    planner.attach(desk.host)

    with suppress(SparError):
        await WAYS[way](planner)

    spent = {row["budget"]: row["used"] for row in budgets.snapshot()}
    tokens = [event.input_tokens for event in desk.events.of(ModelAnswered)]
    assert tokens, "it was asked"
    if TREATMENTS[kind].is_free:
        assert (set(spent.values()), desk.used, tokens) == ({0}, [], [0] * len(tokens))
        assert (planner.record.counts["requests"], planner.record.counts["tokens"]) == (0, 0)
    else:
        assert all(spent.values())
        assert planner.record.counts["requests"] == 1
        assert planner.record.counts["tokens"] > 0


@pytest.mark.parametrize("kind", KINDS)
async def test_a_request_of_the_loop_that_was_not_accepted_is_none(kind: FaultKind) -> None:
    error = provider_error(kind, "it")

    with pytest.raises(SparError) as caught:
        await Requests(ScriptedModel([Fail(error)])).run()

    assert caught.value.so_far.requests == (0 if TREATMENTS[kind].is_free else 1)  # type: ignore[attr-defined]
