"""Make so many idle agents (or parked tasks) and print the bytes of memory that the process holds then.

    python -m benchmarks.idle agent 1000

An idle agent runs with `loop_interval="off"`, was woken once to turn a whole cycle, and waits to be pushed. A "scraped"
one has also been asked for its statistics. A "task" is what the wait alone needs: an anyio task that waits for an
event.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import sys
from typing import Any

import anyio
import psutil

from benchmarks import peers
from benchmarks.counted import PERCEPTIONS, REFLECTION, act, plan
from spar import Agent


async def agents(number: int, *, scraped: bool) -> Any:
    turned, all_turned = 0, asyncio.Event()

    async def sense() -> Any:
        return PERCEPTIONS

    async def reflect(result: object) -> Any:
        nonlocal turned
        turned += 1
        if turned == number:
            all_turned.set()
        return REFLECTION

    crowd = [Agent(sense=sense, plan=plan, act=act, reflect=reflect, loop_interval="off") for _ in range(number)]
    for agent in crowd:
        await agent.start()
        agent.wake()
    await all_turned.wait()
    if scraped:
        for agent in crowd:
            agent.account.fold()
    return crowd


async def tasks(number: int, group: anyio.abc.TaskGroup) -> Any:
    async def live(event: anyio.Event) -> None:
        await peers.raw(1)
        await event.wait()

    events = [anyio.Event() for _ in range(number)]
    for event in events:
        group.start_soon(live, event)
    for _ in range(5):
        await asyncio.sleep(0)
    return events


async def main(kind: str, number: int) -> None:
    async with anyio.create_task_group() as group:
        crowd = await (tasks(number, group) if kind == "task" else agents(number, scraped=kind == "scraped"))
        await asyncio.sleep(0.05)
        gc.collect()
        print(psutil.Process().memory_info().rss, flush=True)
        assert crowd
        os._exit(0)  # stopping thousands is not what is measured


logging.disable(logging.CRITICAL)
asyncio.run(main(sys.argv[1], int(sys.argv[2])))
