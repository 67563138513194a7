"""What a message costs when there are many sessions and each gets one, over the cost when there are ten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.harness import Batch, Effort, compare
from benchmarks.model_run import AT_ONCE
from benchmarks.table import Line, compared
from spar import Action, Agent, Perception

FEW, MANY, QUICK = 10, 10_000, 200
#: Messages that come in one turn of the loop.
TOGETHER = 100


async def measure(effort: Effort) -> list[Line]:
    many = QUICK if effort.is_quick else MANY
    async with greeted(FEW) as few, greeted(many) as crowd:
        measured, limit = await compare({"many": crowd}, few, effort.at_most(5))
    title = f"message, {many:,} sessions"
    return [compared(None, title, measured["many"], f"{FEW} sessions", limit, is_limit=True, owed=1.3, moonshot=1.1)]


@asynccontextmanager
async def greeted(sessions: int) -> AsyncIterator[Batch]:
    """A message to each session of an agent that has so many, all before the first is answered; a unit is a message."""

    async def greet(agent: Agent) -> None:
        receipts = []
        for number in range(sessions):
            receipts.append(await agent.submit("hello", session=f"s{number}"))
            if number % TOGETHER == TOGETHER - 1:  # without a journal nothing makes who submits wait
                await asyncio.sleep(0)
        for receipt in receipts:
            await agent.wait(receipt.run_id, 300)

    async with Agent(plan=answer, loop_interval="off", settings=AT_ONCE) as agent:

        async def batch(messages: int) -> int:
            rounds = max(1, messages // sessions)
            for _ in range(rounds):
                await greet(agent)
            return rounds * sessions

        yield batch


async def answer(perceptions: list[Perception]) -> Action:
    return Action(output="a")
