"""What may be given as a phase: objects, functions, async, blocking, streams; and what is refused by its name."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from spar import Action, ActionResult, Agent, Call, Context, ContractError, Perception, Reflection
from spar.clock import SystemClock
from spar.loop.setup import Module, takes_context
from spar.testing import VirtualClock
from spar.types import PHASES, Phase

GO = [Perception("go")]
NOTE = Action(calls=[Call("note")])


class ObjectWithMethods:
    async def sense(self) -> list[Perception]:
        return GO

    async def plan(self, perceptions: Sequence[Perception]) -> Action:
        return NOTE

    async def act(self, action: Action) -> ActionResult:
        return ActionResult(action)

    async def reflect(self, result: ActionResult) -> Reflection:
        return Reflection(result=result, score=0.5)


async def async_plan(perceptions: Sequence[Perception]) -> Action:
    return NOTE


def blocking_plan(perceptions: Sequence[Perception]) -> Action:
    assert threading.current_thread() is not threading.main_thread()
    return NOTE


class AsyncCallable:
    async def __call__(self, perceptions: Sequence[Perception]) -> Action:
        return NOTE


class BlockingCallable:
    def __call__(self, perceptions: Sequence[Perception]) -> Action:
        return NOTE


class WithBlockingMethod:
    def plan(self, perceptions: Sequence[Perception]) -> Action:
        assert threading.current_thread() is not threading.main_thread()
        return NOTE


async def with_prefix(prefix: str, perceptions: Sequence[Perception]) -> Action:
    return NOTE


async def stream_plan(perceptions: Sequence[Perception]) -> AsyncIterator[Call]:
    for call in NOTE.calls:
        yield call


SHAPES = {
    "object": ObjectWithMethods(),
    "async function": async_plan,
    "blocking function": blocking_plan,
    "async callable": AsyncCallable(),
    "blocking callable": BlockingCallable(),
    "blocking method": WithBlockingMethod(),
    "partial": functools.partial(with_prefix, "prefix"),
    "partial of blocking": functools.partial(lambda prefix, perceptions: NOTE, "prefix"),
    "lambda that returns a coroutine": lambda perceptions: async_plan(perceptions),
    "bound method": ObjectWithMethods().plan,
    "async generator": stream_plan,
    "static method": type("Static", (), {"plan": staticmethod(async_plan)})(),
}


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_planner_of_any_shape_plans(shape: str) -> None:
    action = await Agent(plan=SHAPES[shape]).step_plan(GO)

    assert action.calls == NOTE.calls
    assert action.perceptions == tuple(GO)


async def test_a_blocking_module_does_not_block_the_event_loop() -> None:
    gate = threading.Event()

    def sense() -> list[Perception]:
        assert gate.wait(60.0)
        return GO

    step = asyncio.create_task(Agent(sense=sense).step_sense())
    await asyncio.sleep(0.01)
    assert not step.done()

    gate.set()

    assert await step == GO


# -- the second parameter ----------------------------------------------------------------------------------


class Shapes:
    async def without(self, perceptions: Any) -> None: ...
    async def anything(self, perceptions: Any, whatever: Any) -> None: ...
    async def named(self, perceptions: Any, context: Any = None) -> None: ...
    async def short(self, perceptions: Any, ctx: Any = None) -> None: ...
    async def annotated(self, perceptions: Any, where: Context | None = None) -> None: ...
    async def own_default(self, perceptions: Any, verbose: bool = False) -> None: ...
    async def own_keyword(self, perceptions: Any, *, verbose: bool = False) -> None: ...
    async def variadic(self, *perceptions: Any) -> None: ...


@pytest.mark.parametrize(
    ("name", "wants"),
    [
        ("without", False), ("anything", True), ("named", True), ("short", True), ("annotated", True),
        ("own_default", False), ("own_keyword", False), ("variadic", False),
    ],
)  # fmt: skip
def test_a_context_is_given_only_where_it_is_asked_for(name: str, wants: bool) -> None:
    function = getattr(Shapes(), name)

    assert takes_context(function, 1) is wants
    assert Module("plan", function, SystemClock()).wants_context is wants


# -- refused at construction -------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("junk", ["text", 7, object(), [print]])
def test_what_is_no_module_is_refused_by_its_phase(phase: Phase, junk: Any) -> None:
    with pytest.raises(ContractError, match=f"{phase}= must be a function or an object with a method '{phase}'"):
        Agent(**{phase: junk})


def test_a_list_of_tools_in_place_of_an_actor_and_a_class_in_place_of_an_object_are_refused() -> None:
    with pytest.raises(ContractError, match=r"found \[.*\]; give a list of tools as tools=$"):
        Agent(act=[print])
    with pytest.raises(ContractError, match=r"plan= must be an object, found the class ObjectWithMethods"):
        Agent(plan=ObjectWithMethods)


async def takes_nothing() -> None: ...
async def takes_three(perceptions: Any, context: Any, more: Any) -> None: ...
async def takes_keyword(perceptions: Any, *, needed: Any) -> None: ...


@pytest.mark.parametrize("function", [takes_nothing, takes_three, takes_keyword])
def test_a_function_that_could_never_be_called_is_refused_by_its_name(function: Any) -> None:
    with pytest.raises(ContractError, match=f"plan of {function.__name__} is called with"):
        Agent(plan=function)


# -- told by the module's name -----------------------------------------------------------------------------


class Junk:
    """Returns what it is given to return, whatever it is."""

    def __init__(self, product: Any) -> None:
        self.product = product

    async def sense(self) -> Any:
        return self.product

    async def plan(self, perceptions: Any) -> Any:
        return self.product

    async def act(self, action: Any) -> Any:
        return self.product

    async def reflect(self, result: Any) -> Any:
        return self.product


def junk(kind: type, **fields: Any) -> Any:
    return kind(**fields)


@pytest.mark.parametrize(
    "product", [[Call("a"), Call("b")], (Call("a"), {"_tool": "b"}), [{"_tool": "a"}, {"_tool": "b"}]]
)
async def test_a_planner_may_return_the_list_of_calls_alone(product: Any) -> None:
    action = await Agent(plan=Junk(product)).step_plan(GO)

    assert [call.tool for call in action.calls] == ["a", "b"]
    assert action.perceptions == tuple(GO)
    assert await Agent(plan=Junk([])).step_plan(GO) is None
    with pytest.raises(ValueError, match="'_tool' is missing"):
        await Agent(plan=Junk([{"_toll": "a"}])).step_plan(GO)


async def test_a_run_goes_on_with_the_calls_that_a_planner_lists(clock: VirtualClock) -> None:
    lists = iter([[Call("note")], []])

    async def plan(perceptions: Any) -> Any:
        return next(lists)

    agent = Agent(plan=plan, act=ObjectWithMethods(), loop_interval="off", clock=clock)
    async with agent:
        receipt = await agent.submit("go")
        status = await agent.wait(receipt.run_id, 60)

    assert (status.status, next(lists, "asked twice")) == ("ok", "asked twice")


async def test_a_name_is_found_for_everything() -> None:
    class Odd:
        async def __call__(self, perceptions: Any) -> None: ...

    names = {name: Module("plan", part, SystemClock()).name for name, part in {**SHAPES, "odd": Odd()}.items()}

    assert names["object"] == "ObjectWithMethods"
    assert names["async function"] == "async_plan"
    assert names["partial"] == "with_prefix"
    assert names["bound method"] == "ObjectWithMethods.plan"
    assert names["odd"].endswith("Odd")
