"""A call is proposed, held, attempted, ended: all that may hold it, and all that may become of it then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from acting import Executor
from acting.graph.nodes import ATTEMPT, ENDED, HELD, MOVES, PROPOSED
from spar.hooks import HookContext, Hooks
from spar.protocols import Context, RunContext
from spar.protocols.tools import tool
from spar.testing import VirtualClock
from spar.types import Action, ActionResult, Call, Verdict
from tests.acting.approval_tools import answer, desk_of, pending, statuses
from tests.acting.run.test_journal import Told
from tests.waiting import until


class World:
    """An executor whose call `held` waits for `gate`, in the way that a test chooses."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock, self.gate = clock, asyncio.Event()
        self.begun: list[str] = []
        self.settings: dict[str, Any] = {"grace": 0.1}
        self.hooks, self.journal = Hooks(), Told()
        self.confirm: Any = None
        self.given: dict[str, Any] = {}
        self.calls = [Call("work", {"name": "first"}, id="first", output_path="†state.first")]

    async def work(self, name: str) -> str:
        self.begun.append(name)
        if name != "held":
            await self.gate.wait()
        return name

    def executor(self) -> Executor:
        terms: dict[str, Any] = {"effect": "read"}

        @tool(**terms)
        async def work(name: str) -> str:
            return await self.work(name)

        @tool(effect="read", concurrency=1)
        async def narrow(name: str) -> str:
            return await self.work(name)

        @tool(effect="read", resources=("door",))
        async def enter(name: str) -> str:
            return await self.work(name)

        @tool(effect="read", rate="1/min")
        async def seldom(name: str) -> str:
            return await self.work(name)

        @tool(effect="read", order="plan")
        async def line(name: str) -> str:
            return await self.work(name)

        @tool(effect="once", approval="ask")
        async def ask(name: str) -> str:
            return await self.work(name)

        @tool(effect="once")
        async def pay(name: str) -> str:
            return await self.work(name)

        made = Executor([work, narrow, enter, seldom, line, ask, pay], clock=self.clock, settings=self.settings,
                        hooks=self.hooks, **self.given)  # fmt: skip
        made.confirm = self.confirm
        return made


def a_value(world: World) -> Call:
    return Call("work", {"name": "†state.first"}, id="held")


def another_call(world: World) -> Call:
    return Call("work", {"name": "held"}, id="held", after=("first",))


def of_tool(name: str) -> Callable[[World], Call]:
    """The first call is one of the same tool, which holds the second."""

    def prepare(world: World) -> Call:
        world.calls = [Call(name, {"name": "first"}, id="first")]
        return Call(name, {"name": "held"}, id="held")

    return prepare


def a_worker(world: World) -> Call:
    world.settings["max_parallel"] = 1
    return Call("work", {"name": "held"}, id="held")


def a_hook(world: World) -> Call:
    async def hook(context: HookContext) -> None:
        if context.value.id == "held":
            await world.gate.wait()

    world.hooks.add("before_call", hook)
    return Call("work", {"name": "held"}, id="held")


def the_program(world: World) -> Call:
    async def confirm(call: Call) -> Verdict:
        await world.gate.wait()
        return Verdict.approve()

    world.confirm = confirm
    return Call("ask", {"name": "held"}, id="held")


def people(world: World) -> Call:
    world.settings["approval"] = {"hold": 3600.0}
    return Call("ask", {"name": "held"}, id="held")


def the_disk(world: World) -> Call:
    world.given["journal"] = world.journal
    world.journal.is_let.clear()
    return Call("pay", {"name": "held"}, id="held")


#: All that may hold a call.
HOLDS = {
    "a value": a_value,
    "another call": another_call,
    "the order": of_tool("line"),
    "a slot": of_tool("narrow"),
    "a resource": of_tool("enter"),
    "the rate": of_tool("seldom"),
    "a worker": a_worker,
    "a hook": a_hook,
    "the program": the_program,
    "people": people,
    "the disk": the_disk,
}
#: What happens then, and how the held call ends.
ENDS = {"free": "ok", "steered": "skipped steered", "cancelled": "cancelled", "given up": "cancelled"}


@pytest.mark.parametrize(("hold", "event"), list(product(HOLDS, ENDS)))
async def test_a_held_call_ends_by_what_happens_to_it(hold: str, event: str, clock: VirtualClock) -> None:
    world = World(clock)
    call = HOLDS[hold](world)
    made = world.executor()
    context = Context("main", "c1", "s", run=RunContext("r1", "goal"))
    acting = asyncio.create_task(made.act(Action((*world.calls, call), id="a"), context))
    await until(lambda: "first" in world.begun)
    asked = await pending(made) if hold == "people" else []
    if hold == "the disk":
        await until(lambda: bool(world.journal.waits))
    (batch,) = made._batches
    (step,) = [each for each in batch.steps if each.id == "held"]
    assert step.state == (PROPOSED if hold in ("a value", "another call") else HELD)
    assert world.begun == ["first"]

    interrupted: ActionResult | None = None
    if event == "steered":
        made.steer("r1")
    elif event == "cancelled":
        acting.cancel()
        await asyncio.wait([acting])
        interrupted = made.interrupted("a")
    elif event == "given up":
        interrupted = made.interrupted("a")
        acting.cancel()
    if event == "free" and hold == "people":
        await answer(made, *asked)
    world.journal.is_let.set()
    world.gate.set()
    await asyncio.wait([acting])
    result = interrupted or acting.result()

    expected = "skipped parked" if hold == "people" and event == "cancelled" else ENDS[event]
    assert statuses(result)[-1] == expected
    assert world.begun.count("held") == (event == "free" and hold != "a value")
    assert step.state == ENDED
    assert not step.holds
    if hold == "people" and event == "steered":
        assert [(row.status, row.is_parked) for row in await desk_of(made).list(None)] == [("void", False)]


def test_the_table_names_each_state_and_leads_to_an_end_only() -> None:
    states = (PROPOSED, HELD, ATTEMPT, ENDED)

    assert all(set(moves) <= set(states[:-1]) and set(moves.values()) <= set(states) for moves in MOVES.values())
    assert all(after >= before for moves in MOVES.values() for before, after in moves.items())
    assert all(set(MOVES[event]) == set(states[:-1]) for event in ("stopped", "cut off"))
