"""Two runs of three cycles each: a graph of twelve calls that read one another, a plan that is streamed, an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from typing import Any

from spar import Agent
from spar.failpoints import crashpoint
from spar.protocols import Context
from spar.types import Action, Call, Perception
from tests.faults.workloads.life import MOST_TOKENS, Workload, agent, live, submit
from tests.faults.world import Effect, Want, World

EVENTS = ("g1", "g2")

#: Step, effect, what it reads of.
GRAPH: tuple[tuple[str, Effect, tuple[str, ...]], ...] = (
    ("r1", "read", ()),
    ("r2", "read", ()),
    ("i1", "idempotent", ("r1",)),
    ("i2", "idempotent", ("r2",)),
    ("o1", "once", ("i1",)),
    ("o2", "once", ("i2",)),
    ("o3", "once", ()),
    ("i3", "idempotent", ("o1", "o2")),
    ("o4", "once", ("o3",)),
    ("r3", "read", ("o4",)),
    ("o5", "once", ("r3", "i3")),
    ("i4", "idempotent", ("o5",)),
)
STREAM: tuple[tuple[str, Effect, tuple[str, ...]], ...] = (
    ("s1", "once", ("i4",)),
    ("s2", "idempotent", ()),
    ("s3", "once", ("s1", "s2")),
    ("s4", "read", ("s3",)),
)
_TOKENS = 60  # what the provider counts for a plan
_TOOLS = {"read": "look", "idempotent": "tally", "once": "pay"}


def _call(event: str, step: str, effect: str, reads: Sequence[str]) -> Call:
    given: Any = [f"†state.{other}" for other in reads]
    return Call(
        _TOOLS[effect],
        {"event": event, "step": step, "given": given},
        id=f"{event}-{step}",
        output_path=f"†state.{step}",
    )


class Planner:
    """Plans what it sees no result of yet, as somebody does who is asked again: the graph, the stream, the answer.

    Each plan has a price, as a model's has.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.budgets: Any = None

    async def plan(self, perceptions: Sequence[Perception], context: Context) -> Any:
        run = context.run
        if run is None:
            return None
        self._world.bills.write(told="asked", tokens=MOST_TOKENS)
        with await self.budgets.reserve({"tokens": MOST_TOKENS}, cycle_id=context.cycle_id, what="model") as reserved:
            self._world.bills.write(told="billed", tokens=_TOKENS)
            crashpoint("plan.after_llm")
            reserved.settle({"tokens": _TOKENS})
        known = {each.call.id for result in run.results for each in result.results}
        if left := _not_in(known, run.goal, GRAPH):
            return Action(left, goal=run.goal)
        if left := _not_in(known, run.goal, STREAM):
            return self._streamed(left)
        return Action(output=f"done with {run.goal}")

    async def _streamed(self, calls: Sequence[Call]) -> AsyncIterator[Call]:
        for call in calls:
            yield call
            await asyncio.sleep(0.002)


def _not_in(
    known: Collection[str], event: str, steps: Sequence[tuple[str, Effect, tuple[str, ...]]]
) -> tuple[Call, ...]:
    return tuple(call for call in (_call(event, *each) for each in steps) if call.id not in known)


async def main(world: World) -> None:
    planner = Planner(world)
    made = agent(world, plan=planner)
    planner.budgets = made.budgets

    async def feed(made: Agent) -> None:
        await submit(world, made, EVENTS, ("main", "side"))

    await live(world, made, feed)


WORKLOAD = Workload(
    "graph",
    main,
    tuple(Want(event, step, effect, after=reads) for event in EVENTS for step, effect, reads in (*GRAPH, *STREAM)),
)
