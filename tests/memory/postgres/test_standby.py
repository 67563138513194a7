"""A memory that stands by takes over as soon as no other process uses its database."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from queue import SimpleQueue
from typing import Any

import pytest

from memory.postgres import opening
from memory.postgres.store import PostgresMemory
from spar import facts
from spar.records.journal import Item
from spar.types import Perception

#: A process that accepts one piece of work, says so, and lives on.
LIVES = """
import asyncio, sys
from memory.postgres.store import PostgresMemory
from spar import facts
from spar.records.journal import Item
from spar.types import Perception

async def main():
    async with PostgresMemory(sys.argv[1]) as memory:
        item = Item("1", Perception("x"), key="1")
        await memory.journal.commit(facts.WorkAccepted(session="main", item=item), "main")
        print("accepted", flush=True)
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture
def reasons(monkeypatch: pytest.MonkeyPatch) -> SimpleQueue[str]:
    """Return the reasons for which memories stand by, as they come."""
    told = SimpleQueue[str]()

    class Log:
        def info(self, message: str, /, **values: Any) -> None:
            told.put(values["reason"])

    monkeypatch.setattr(opening, "log", Log())
    return told


async def next_of(reasons: SimpleQueue[str]) -> str:
    return await asyncio.to_thread(reasons.get, timeout=60)


async def entered(memory: PostgresMemory) -> PostgresMemory:
    await memory.__aenter__()
    return memory


async def test_it_takes_over_from_a_process_that_is_killed_with_all_that_was_accepted(
    url: str, reasons: SimpleQueue[str]
) -> None:
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", LIVES, url, stdout=subprocess.PIPE)
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"accepted\n"
        standing = asyncio.create_task(entered(PostgresMemory(url, standby=True)))
        assert f"'spar {socket.gethostname()[:30]} {process.pid}'" in await next_of(reasons)
        assert not standing.done()
    finally:
        process.send_signal(signal.SIGKILL)
        await process.wait()
    memory = await standing
    try:
        assert [item.id for item in await memory.journal.views.items("main")] == ["1"]
        assert reasons.empty()
    finally:
        await memory.__aexit__()


async def test_one_of_several_takes_over_and_the_others_go_on_standing_by(url: str, reasons: SimpleQueue[str]) -> None:
    first = await entered(PostgresMemory(url))
    standing = [asyncio.create_task(entered(PostgresMemory(url, standby=True))) for _ in range(3)]
    for _ in standing:
        await next_of(reasons)
    for left in (3, 2, 1):
        await first.__aexit__()
        done, waiting = await asyncio.wait(standing, return_when=asyncio.FIRST_COMPLETED)
        assert (len(done), len(waiting)) == (1, left - 1)
        first, standing = await done.pop(), list(waiting)
        item = Item(str(left), Perception("x"), key=str(left))
        await first.journal.commit(facts.WorkAccepted(session="main", item=item), "main")
    assert len(await first.journal.views.items("main")) == 3
    await first.__aexit__()


async def test_who_is_asked_to_end_while_it_stands_by_ends_and_takes_nothing(
    url: str, reasons: SimpleQueue[str]
) -> None:
    async with PostgresMemory(url) as memory:
        standing = asyncio.create_task(entered(PostgresMemory(url, standby=True)))
        await next_of(reasons)
        standing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await standing
        await memory.save("key", 1)
    async with PostgresMemory(url) as memory:
        assert await memory.load("key") == 1


async def test_it_waits_for_a_server_that_cannot_be_reached(reasons: SimpleQueue[str]) -> None:
    away = "postgresql://spar@/postgres?host=/nowhere"
    standing = asyncio.create_task(entered(PostgresMemory(away, standby=True)))
    assert "cannot be reached" in await next_of(reasons)
    standing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await standing
