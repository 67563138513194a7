"""The cycle made durable by other means: LangGraph with its SQLite saver, DBOS.

Both can go on after a crash, as spar can. What is on disk when differs: LangGraph `exit` writes at the end of each
invocation, `async` is a step behind; DBOS writes the output of each step before the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from benchmarks.harness import Batch
from benchmarks.peers import PHASES, act, four_nodes, plan, reflect, sense

EXIT, SELF_LOOP = "LangGraph, WAL + NORMAL, exit", "LangGraph, WAL + NORMAL, self-loop, async"
SHIPPED, SYNC = "LangGraph as shipped", "LangGraph, WAL + FULL, sync"
DBOS = "DBOS, one workflow looping"


async def langgraph(folder: str, stack: AsyncExitStack) -> dict[str, Batch]:
    """At its best, in two forms; as it is without a word (WAL + FULL, an invocation a cycle, `async`); and `sync`."""
    import aiosqlite
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    numbers = iter(range(1_000_000))

    async def graph(synchronous: str, *, leads_back: bool) -> Any:
        connection = await stack.enter_async_context(aiosqlite.connect(f"{folder}/graph-{next(numbers)}.db"))
        saver = AsyncSqliteSaver(connection)
        await saver.setup()
        await connection.execute(f"PRAGMA synchronous = {synchronous}")
        return four_nodes(leads_back=leads_back, checkpointer=saver)

    def thread() -> dict[str, Any]:
        return {"configurable": {"thread_id": str(next(numbers))}}

    def per_cycle(once: Any, durability: str) -> Batch:
        async def batch(cycles: int) -> None:
            where = thread()
            for _ in range(cycles):
                await once.ainvoke({"left": 1}, where, durability=durability)

        return batch

    ever = await graph("NORMAL", leads_back=True)

    async def self_loop(cycles: int) -> None:
        where = {"recursion_limit": 5 * cycles + 10, **thread()}
        await ever.ainvoke({"left": cycles}, where, durability="async")

    return {
        EXIT: per_cycle(await graph("NORMAL", leads_back=False), "exit"),
        SELF_LOOP: self_loop,
        SHIPPED: per_cycle(await graph("FULL", leads_back=False), "async"),
        SYNC: per_cycle(await graph("FULL", leads_back=False), "sync"),
    }


async def dbos(folder: str, stack: AsyncExitStack) -> dict[str, Batch]:
    """Its own defaults, a SQLite file as its system database."""
    from dbos import DBOS as Dbos

    Dbos(
        config={
            "name": "bench",
            "system_database_url": f"sqlite:///{folder}/dbos.sqlite",
            "log_level": "ERROR",
            "run_admin_server": False,
        }
    )
    stack.push_async_callback(asyncio.to_thread, Dbos.destroy)
    steps = [Dbos.step(name=name)(phase) for name, phase in zip(PHASES, (sense, plan, act, reflect), strict=True)]

    @Dbos.workflow()
    async def looping(cycles: int) -> None:
        for _ in range(cycles):
            value = await steps[0]()
            for step in steps[1:]:
                value = await step(value)

    Dbos.launch()

    async def batch(cycles: int) -> None:
        await looping(cycles)

    return {DBOS: batch}


Source = Callable[[str, AsyncExitStack], Awaitable[dict[str, Batch]]]

#: What makes the contenders of a library, and what they are called.
SOURCES: tuple[tuple[Source, tuple[str, ...]], ...] = ((langgraph, (EXIT, SELF_LOOP, SHIPPED, SYNC)), (dbos, (DBOS,)))


@asynccontextmanager
async def installed(folder: str) -> AsyncIterator[tuple[dict[str, Batch], dict[str, str]]]:
    """The peers that can run, their files in this folder, and why the others cannot."""
    batches: dict[str, Batch] = {}
    reasons: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        for source, contenders in SOURCES:
            try:
                batches |= await source(folder, stack)
            except ImportError as error:
                reasons |= dict.fromkeys(contenders, f"not installed ({error.name})")
        yield batches, reasons
