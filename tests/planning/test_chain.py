from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from planning import Chain, RulesPlanner
from spar.errors import ConfigError, ContractError, PermanentError, TransientError
from spar.protocols import Context, Lent, ModelQuestion
from spar.types import Action, Call, Perception

ALONE = Context(agent="a", cycle_id="c")


async def rules(perceptions: Sequence[Perception]) -> Action:
    return Action(output="by rules", reason="rule 'r' matched")


async def idle(perceptions: Sequence[Perception]) -> None:
    return None


async def down(perceptions: Sequence[Perception], context: Context) -> Action:
    raise TransientError("the provider is down")


async def test_the_first_that_decides_decides() -> None:
    action = await Chain([idle, rules, down]).plan([], ALONE)

    assert (action.output, action.degraded) == ("by rules", False)


async def test_a_planner_that_raises_hands_over_and_the_action_says_so() -> None:
    action = await Chain([down, rules]).plan([], ALONE)

    assert action.degraded
    assert action.reason == "degraded: down failed: the provider is down; rule 'r' matched"


async def test_an_error_is_not_nothing_to_do() -> None:
    async def worse(perceptions: Sequence[Perception]) -> None:
        raise PermanentError("worse")

    with pytest.raises(TransientError, match="provider is down") as caught:
        await Chain([down, idle, worse]).plan([], ALONE)

    assert caught.value.__notes__ == ["and the next planner: worse"]


async def test_a_degraded_chain_leaves_the_first_planner_out_until_it_is_restored() -> None:
    asked = []

    async def model(perceptions: Sequence[Perception]) -> Action:
        asked.append(1)
        return Action(output="by model")

    chain = Chain([model, rules])
    chain.degrade("budget spent")
    degraded = await chain.plan([], ALONE)
    told = chain.snapshot()["degraded"]
    chain.restore()
    restored = await chain.plan([], ALONE)

    assert (degraded.output, degraded.degraded, told) == ("by rules", True, "budget spent")
    assert (restored.output, restored.degraded, len(asked)) == ("by model", False, 1)


async def test_a_degraded_chain_of_nothing_to_do_has_nothing_to_do_and_a_single_planner_goes_on() -> None:
    chain, single = Chain([down, idle]), Chain([rules])
    chain.degrade("stuck")
    single.degrade("stuck")

    assert await chain.plan([], ALONE) is None
    assert (await single.plan([], ALONE)).degraded  # type: ignore[union-attr]


async def test_a_remark_is_kept_when_nobody_decides() -> None:
    broken = RulesPlanner([{"name": "r", "answer": "{slots.x}"}])

    remark = await Chain([broken, idle]).plan([Perception()], ALONE)
    decided = await Chain([broken, rules]).plan([Perception()], ALONE)

    assert "not used" in remark.reason
    assert (decided.output, decided.degraded) == ("by rules", False)


async def test_planners_may_be_written_in_any_way() -> None:
    threads = []

    class Plain:
        def plan(self, perceptions: Sequence[Perception]) -> Action:
            threads.append(threading.current_thread())
            return Action(output=1)

    class Callable_:
        async def __call__(self, perceptions: Sequence[Perception], context: Context) -> Action:
            return Action(output=context.agent)

    outputs = []
    for planner in (Plain(), Callable_(), lambda perceptions, context: Action(output=context.cycle_id), rules):
        action = await Chain([planner]).plan([], ALONE)
        assert isinstance(action, Action)
        outputs.append(action.output)

    assert outputs == [1, "a", "c", "by rules"]
    assert threads[0] is not threading.main_thread()


async def test_a_stream_is_handed_through_once_it_has_begun() -> None:
    closed = []

    async def stream(perceptions: Sequence[Perception]) -> AsyncIterator[Call]:
        try:
            yield Call("a")
            yield Call("b")
        finally:
            closed.append(1)

    plan = await Chain([stream, rules]).plan([], ALONE)

    assert isinstance(plan, AsyncIterator)
    assert [call.tool async for call in plan] == ["a", "b"]
    assert closed == [1]


async def test_a_stream_that_breaks_before_its_first_call_hands_over() -> None:
    async def broken(perceptions: Sequence[Perception]) -> AsyncIterator[Call]:
        raise TransientError("no")
        yield Call("never")

    async def empty(perceptions: Sequence[Perception]) -> AsyncIterator[Call]:
        return
        yield Call("never")

    action = await Chain([empty, broken, rules]).plan([], ALONE)

    assert action.degraded


async def test_junk_is_a_broken_contract() -> None:
    async def junk(perceptions: Sequence[Perception]) -> Any:
        return "plan"

    with pytest.raises(ContractError, match="junk must return an Action"):
        await Chain([junk]).plan([], ALONE)


async def test_planners_are_opened_and_closed_with_the_chain() -> None:
    told: list[str] = []

    class Module:
        def __init__(self, name: str) -> None:
            self.name = name

        async def plan(self, perceptions: Sequence[Perception]) -> None:
            return None

        def attach(self, host: Any) -> None:
            told.append(f"attach {self.name}")

        async def __aenter__(self) -> None:
            if self.name == "bad":
                raise PermanentError("bad")
            told.append(f"open {self.name}")

        async def __aexit__(self, *error: object) -> None:
            told.append(f"close {self.name}")

    chain = Chain([Module("a"), idle, Module("b")])
    chain.attach(None)  # type: ignore[arg-type]
    async with chain:
        told.append("in use")
    with pytest.raises(PermanentError):
        await Chain([Module("c"), Module("bad")]).__aenter__()

    assert told == ["attach a", "attach b", "open a", "open b", "in use", "close b", "close a", "open c", "close c"]


def test_a_chain_of_nobody_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one"):
        Chain([])


async def test_it_lends_the_model_of_its_planners_until_it_does_without() -> None:
    asked = []

    async def answer(question: ModelQuestion) -> str:
        asked.append(question)
        return "because"

    class Lending:
        async def plan(self, perceptions: Sequence[Perception]) -> None: ...

        def lends(self) -> Lent:
            return Lent(ask=answer)

    question = ModelQuestion("why?", (), {}, 100, "reflect", "c")
    chain = Chain([Lending(), RulesPlanner()])
    ask = chain.lends().ask
    assert ask is not None
    assert await ask(question) == "because"

    chain.degrade("the budget is used up")
    with pytest.raises(TransientError, match="the budget is used up"):
        await ask(question)
    chain.restore()
    await ask(question)

    assert asked == [question] * 2
    assert Chain([RulesPlanner()]).lends().ask is None
