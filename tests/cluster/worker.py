"""A process with an agent that works on a database, or stands by until it may, or works beside others of its kind:
`python -m tests.cluster.worker`.

It says on standard output what it has been promised: a line `standing by`, `working`, then `accepted ID` and `done ID`,
or `failed ID` for a run that ended with an error. Each message leads to one call that must not be repeated, which notes
its effect in a ledger.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from acting import Executor
from memory.postgres.cluster.decisions import PARTITIONS
from memory.postgres.store import PostgresMemory
from spar import Agent, failpoints
from spar.errors import SparError, TransientError
from spar.protocols import Context
from spar.protocols.tools import tool
from spar.types import Action, Call, Perception
from tests.faults.ledger import Ledger

LANES, SESSIONS = 4, 24
BUDGET = {"budgets": {"hour": {"effects": 10_000_000}}}


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def stop_at(point: str) -> None:
    """Let this process stop itself (SIGSTOP) when it gets to a failpoint next."""

    def reached(name: str) -> None:
        if name == point:
            failpoints.armed.clear()
            say("stopping")
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # by `os.kill` this thread ran on for a moment

    failpoints.armed.append(reached)


async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
    run = context.run
    if run is None:
        return None
    if run.number > 1:
        return Action(output="paid")
    return Action((Call("pay", {"id": run.goal}, id="pay"),), goal=run.goal)


async def main(url: str, name: str, ledger: str, point: str = "", mode: str = "standby", rest: str = "0") -> None:
    effects = Ledger(Path(ledger))

    @tool(effect="once")
    def pay(id: str) -> str:
        effects.write(id=id)
        return "paid"

    async def status(agent: Agent, run_id: str) -> str:
        try:
            return (await agent.wait(run_id, 1)).status
        except TransientError:  # the run is another node's, and the database cannot be read now
            return "timeout"

    async def work(agent: Agent, lane: int) -> None:
        number, session = 0, f"s{(int(name[1:]) * LANES + lane) % SESSIONS}"
        while not stopping.is_set():  # a cancelled submission may be on disk, and waits for the look of each minute
            id = f"{name}-{lane}-{number}"
            try:
                receipt = await agent.submit(id, session=session, idempotency_key=id)
            except SparError:  # refused for now, or for ever
                if memory.snapshot()["is_fenced"]:
                    return
                await asyncio.sleep(0.01)
                continue
            say(f"accepted {id}")
            while (end := await status(agent, receipt.run_id)) == "timeout":
                if stopping.is_set() or memory.snapshot()["is_fenced"]:
                    return
            say(f"{'done' if end == 'ok' else 'failed'} {id}")
            number += 1
            await asyncio.sleep(random.uniform(0, 2 * float(rest)))

    memory = PostgresMemory(url, standby=mode == "standby", nodes=mode == "nodes")
    agent = Agent(plan=plan, act=Executor([pay]), memory=memory, settings=BUDGET, loop_interval="off")
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, stop_at, point)
    say("standing by")
    async with agent:
        say("working")
        lanes = [asyncio.create_task(work(agent, lane)) for lane in range(LANES)]
        await asyncio.wait(lanes, return_when=asyncio.FIRST_COMPLETED)
        is_asked = stopping.is_set()  # else it is fenced
        stopping.set()
        await asyncio.gather(*lanes)
        while (
            is_asked
            and memory.nodes is None
            and any(each.has_work or each.cycle for each in agent.sessions.by_key.values())
        ):
            await asyncio.sleep(0.01)
        # Of several that work the others go on with its sessions, and the last one with all that is left.
        while memory.nodes is not None and sum(node.is_alive for node in await memory.nodes.rows()) <= 1:
            is_owner = memory.nodes.snapshot()["partitions"] == PARTITIONS
            if is_owner and not await memory.journal.views.items("main"):
                break
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except SparError as error:
        say(f"ended {error}")
        os._exit(70)
