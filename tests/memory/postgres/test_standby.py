"""A memory that stands by takes over as soon as no other process uses its database."""

from __future__ import annotations

import asyncio

import pytest

from memory.postgres.store import PostgresMemory
from spar import facts
from spar.records.journal import Item
from spar.types import Fault, Perception

Reasons = asyncio.Queue[Fault | None]


@pytest.fixture
def reasons() -> Reasons:
    """Return the reasons for which memories stand by, as they come."""
    return asyncio.Queue()


async def next_of(reasons: Reasons) -> str:
    fault = await reasons.get()
    assert fault.kind == "standby"
    return fault.message


async def stands(url: str, reasons: Reasons) -> PostgresMemory:
    memory = PostgresMemory(url, standby=True)
    memory.on_fault = reasons.put_nowait
    return await entered(memory)


async def entered(memory: PostgresMemory) -> PostgresMemory:
    await memory.__aenter__()
    return memory


async def test_one_of_several_takes_over_and_the_others_go_on_standing_by(url: str, reasons: Reasons) -> None:
    first = await entered(PostgresMemory(url))
    standing = [asyncio.create_task(stands(url, reasons)) for _ in range(3)]
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


async def test_who_is_asked_to_end_while_it_stands_by_ends_and_takes_nothing(url: str, reasons: Reasons) -> None:
    async with PostgresMemory(url) as memory:
        standing = asyncio.create_task(stands(url, reasons))
        await next_of(reasons)
        standing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await standing
        await memory.save("key", 1)
    async with PostgresMemory(url) as memory:
        assert await memory.load("key") == 1


async def test_it_waits_for_a_server_that_only_reads_until_it_is_the_primary(url: str, reasons: Reasons) -> None:
    only_reads = url.replace("options=", "options=-cdefault_transaction_read_only%3Don%20")
    standing = asyncio.create_task(stands(only_reads, reasons))
    assert "is a standby that only reads: let memory.url name the primary" in await next_of(reasons)
    standing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await standing


async def test_it_waits_for_a_server_that_cannot_be_reached(reasons: Reasons) -> None:
    away = "postgresql://spar@/postgres?host=/nowhere"
    standing = asyncio.create_task(stands(away, reasons))
    assert "cannot be reached" in await next_of(reasons)
    standing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await standing
