"""An agent that turns exactly n cycles.

Its sense counts down and asks for a pause in the last cycle, which then ends as every other; so the number is exact,
and what is charged to spar beside its cycles is the counting (some 50 ns each) and one resume and pause per batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from spar import Action, ActionResult, Agent, Perception, PhaseCompleted, PhaseStarted, Reflection

PERCEPTION = Perception("the room is at 19 C")
PERCEPTIONS = [PERCEPTION]
ACTION = Action(goal="keep the room at 21 C", perceptions=(PERCEPTION,))
RESULT = ActionResult(ACTION)
REFLECTION = Reflection(result=RESULT)


async def plan(perceptions: object) -> Action:
    return ACTION


async def act(action: object) -> ActionResult:
    return RESULT


async def reflect(result: object) -> Reflection:
    return REFLECTION


class Looking:
    """An actor that says that it changes nothing, so that nobody must know on disk that it is about to act."""

    effect = "read"

    async def act(self, action: object) -> ActionResult:
        return RESULT


class Counted:
    """The agent as its users have it: deadlines and statistics as configured by default.

    With `listeners`, one plain function receives the eight events of its phases. With a `memory` it keeps a journal.
    """

    def __init__(self, name: str = "agent", *, listeners: bool, memory: Any = None, loop_interval: float = 0) -> None:
        self._left = 0
        self._reached = asyncio.Event()
        self.heard = self.turned = 0
        self.agent = Agent(
            sense=self._sense,
            plan=plan,
            act=act if memory is None else Looking(),
            reflect=reflect,
            name=name,
            loop_interval=loop_interval,
            memory=memory,
        )
        if listeners:
            for kind in (PhaseStarted, PhaseCompleted):
                self.agent.events.subscribe(kind, self._hear)

    async def _sense(self) -> list[Perception]:
        self._left -= 1
        if not self._left:
            self.agent.request_pause()
            self._reached.set()
        return PERCEPTIONS

    def _hear(self, event: object) -> None:
        self.heard += 1

    async def begin(self, cycles: int) -> None:
        """Set off for so many cycles."""
        self._left = cycles
        self.turned += cycles
        self._reached.clear()
        await (self.agent.start() if self.agent.state == "created" else self.agent.resume())

    async def end(self) -> None:
        """Return when they have been turned."""
        await self._reached.wait()
        await self.agent.pause()

    async def batch(self, cycles: int) -> None:
        await self.begin(cycles)
        await self.end()


@asynccontextmanager
async def counted(
    number: int = 1, *, listeners: bool, memory: Any = None, loop_interval: float = 0
) -> AsyncIterator[list[Counted]]:
    """So many agents, stopped at the end."""
    agents = [
        Counted(f"agent-{place}", listeners=listeners, memory=memory, loop_interval=loop_interval)
        for place in range(number)
    ]
    try:
        yield agents
    finally:
        for one in agents:
            await one.agent.stop()
