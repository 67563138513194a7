"""A cycle that was killed in its act goes on in the next process: shown once before its price is measured.

    python -m benchmarks.resumed FOLDER

turns cycles with a journal in that folder until one hangs in its act, says so, and waits to be killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

from benchmarks.counted import PERCEPTIONS, REFLECTION
from benchmarks.journalled import folder
from memory import Memory
from spar import Action, ActionResult, Agent, Call

NAME, HANGS_IN, WITHIN = "killed", 5, 30.0


class Hands:
    """Acts without a trace; hangs in one of its cycles, once what was told is written, if `hangs_in` says so."""

    effect = "read"

    def __init__(self, memory: Memory, hangs_in: int = 0) -> None:
        self._memory, self._hangs_in = memory, hangs_in
        self.goals: list[str] = []
        self.has_acted = asyncio.Event()

    async def act(self, action: Action) -> ActionResult:
        self.goals.append(action.goal)
        if len(self.goals) == self._hangs_in:
            await self._memory.journal.safe()
            print("hangs", flush=True)
            await asyncio.Event().wait()
        self.has_acted.set()
        return ActionResult(action)


def agent_of(memory: Memory, hands: Hands, goal: str) -> Agent:
    turned = 0

    async def sense() -> Any:
        return PERCEPTIONS

    async def plan(perceptions: Any) -> Action:
        nonlocal turned
        turned += 1
        return Action((Call("look"),), goal=f"{goal} {turned}", perceptions=tuple(perceptions))

    async def reflect(result: object) -> Any:
        return REFLECTION

    settings = {"agent": {"phases": {"act": {"timeout": 2 * WITHIN}}}}
    return Agent(
        name=NAME, sense=sense, plan=plan, act=hands, reflect=reflect, memory=memory, loop_interval=0, settings=settings
    )


def memory_in(place: str) -> Memory:
    return Memory.open(f"sqlite:///{place}/memory.db", durability="process")


async def must_be_gone_on_with() -> None:
    """Kill a process in the act of its fifth cycle and go on with that. Raises: RuntimeError when that is not so."""
    with folder() as place:
        await killed(place)
        async with asyncio.timeout(WITHIN), memory_in(place) as memory:
            ended = await memory.cycles()
            [cut] = await memory.journal.views.unfinished(NAME)
            hands = Hands(memory)
            async with agent_of(memory, hands, "after"):
                await hands.has_acted.wait()
            whole = await memory.cycle(cut.cycle_id)
    if len(ended) != HANGS_IN - 1 or hands.goals[0] != f"before {HANGS_IN}" or whole is None:
        raise RuntimeError(
            f"of {HANGS_IN} cycles, the last killed in its act, {len(ended)} were on the tape; "
            f"the next process acted on {hands.goals[:2]} and the tape has {whole} for what was killed"
        )


async def killed(place: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.resumed", place, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(WITHIN):
            if await process.stdout.readline() != b"hangs\n":
                raise RuntimeError("the process that was to be killed ended by itself")
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def main(place: str) -> None:
    async with memory_in(place) as memory, agent_of(memory, Hands(memory, HANGS_IN), "before"):
        await asyncio.sleep(WITHIN)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
