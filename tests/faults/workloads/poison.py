"""Work that kills whoever takes it: a message or a file at which the planner dies, a call in which the tool does."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Literal

from acting import ToolContext
from perception.sense import Sense
from perception.sensors.directory import DirectorySensor
from planning.rules.planner import RulesPlanner
from spar import Agent
from spar.failpoints import KILLED
from spar.protocols import Context, SensorSpec
from spar.protocols.tools import tool
from spar.types import Action, Perception
from tests.faults.workloads.life import Workload, agent, drop, live, submit
from tests.faults.workloads.rules import RULES, wants_of
from tests.faults.world import World

MESSAGES, FILES, POISON = ("m1", "m2", "m3"), ("f1", "f2"), "x"
By = Literal["message", "file", "tool"]


def die(world: World) -> None:
    world.marks.write(told="dying", event=POISON)
    os._exit(KILLED)


class Dying(RulesPlanner):
    """Plans by rules, and dies of one perception."""

    def __init__(self, world: World, rules: Sequence[dict[str, Any]]) -> None:
        super().__init__(rules)
        self._world = world

    async def plan(self, perceptions: Sequence[Perception], context: Context | None = None) -> Action | None:
        if any(perception.content == POISON for perception in perceptions):
            die(self._world)
        return await super().plan(perceptions, context)


async def main(world: World, *, by: By) -> None:
    inbox: Any = DirectorySensor(str(world.inbox), home=world.home, settle=0.0)
    planner = RulesPlanner(RULES) if by == "tool" else Dying(world, RULES)
    made = agent(
        world, sense=Sense([SensorSpec("inbox", inbox)]), plan=planner, tools=_tools(world) if by == "tool" else None
    )

    async def feed(made: Agent) -> None:
        if by == "file":
            drop(world, (*FILES[:1], POISON, *FILES[1:]))
            await submit(world, made, MESSAGES)
        else:
            drop(world, FILES)
            # An action that was begun on several things at once shares its fate: a call that kills is by itself.
            where = "poisoned" if by == "tool" else "main"
            await submit(world, made, (*MESSAGES[:1], POISON, *MESSAGES[1:]), ("main", where, "main", "side"))

    await live(world, made, feed)


def _tools(world: World) -> list[Any]:
    @tool(effect="read")
    async def look(event: str, step: str, context: ToolContext, given: Any = None) -> dict[str, str]:
        if event == POISON:
            die(world)
        return world.happen("read", event, step, context)

    return [look, *world.tools()[1:]]


_BY: tuple[By, ...] = ("message", "file", "tool")


def _main(by: By) -> Callable[[World], Coroutine[Any, Any, None]]:
    return partial(main, by=by)


WORKLOADS = tuple(
    Workload(
        f"poison {by}",
        _main(by),
        tuple(want for event in (*MESSAGES, *FILES) for want in wants_of(event)),
        excused=frozenset({POISON}),
    )
    for by in _BY
)
