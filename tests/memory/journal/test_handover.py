"""Rows on their way to the writer: none is lost in silence, and the writer's thread encodes large results."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import pytest

from memory import Memory
from memory.engine import hash_chain
from memory.engine.writer import MAX_ITEMS
from memory.sqlite import database
from spar import facts
from spar.errors import FencedError, TransientError
from spar.records.journal import Closing, Item
from spar.types import Call, CallResult, CycleRecord, Perception, utcnow
from tests.journal.left import tell

CYCLES = [f"cycle{number}" for number in range(5)]


def close_cycles(memory: Memory) -> None:
    for id in CYCLES:
        tell(memory.journal, facts.CycleOpened, cycle=id)
        record = CycleRecord(id, "main", "main", utcnow(), 0.5, "acted")
        tell(memory.journal, facts.CycleWritten, cycle=id, closing=Closing("acted", record))


async def test_cycles_that_end_while_the_queue_is_full_are_written_before_the_closing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/memory.db"
    async with Memory.open(url) as memory:
        other = apsw.Connection(memory.path)
        other.execute("BEGIN IMMEDIATE")
        for _ in range(MAX_ITEMS):
            await memory.save("key", 1)
        close_cycles(memory)
        closing = asyncio.ensure_future(memory.close())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not closing.done()
        other.execute("ROLLBACK")
        other.close()
        await closing

    async with Memory.open(url) as memory:
        assert sorted(row["cycle_id"] for row in await memory.cycles()) == CYCLES


async def test_rows_for_which_the_writer_had_no_room_come_before_the_work_that_is_accepted_after_them(
    tmp_path: Path,
) -> None:
    async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as memory:
        other = apsw.Connection(memory.path)
        other.execute("BEGIN IMMEDIATE")
        for _ in range(MAX_ITEMS):
            await memory.save("key", 1)
        memory.journal.append(facts.RunAnswered(session="main", run="m0", answer=None))
        accepting = asyncio.ensure_future(
            memory.journal.commit(facts.WorkAccepted(session="main", item=Item("m1", Perception("hello"))), "main")
        )
        await asyncio.sleep(0)
        other.execute("ROLLBACK")
        await accepting
        assert list(other.execute("SELECT kind FROM fact ORDER BY seq")) == [("closed",), ("accepted",)]
        other.close()


async def test_cycles_that_cannot_be_written_any_more_are_counted_by_the_closing(tmp_path: Path) -> None:
    memory = Memory.open(f"sqlite:///{tmp_path}/memory.db")
    with pytest.raises(TransientError, match=r"2 accepted items could not be written .* taken over"):  # noqa: PT012
        async with memory:
            other = apsw.Connection(memory.path)  # as a process that knows no locks
            other.execute("UPDATE state SET value = '9' WHERE key = 'epoch'")
            other.close()
            with pytest.raises(FencedError):
                await memory.keep("row", "a", 1)
            close_cycles(memory)  # the writer accepts nothing any more


class Encoded:
    """Value that notes the threads in which it is encoded."""

    def __init__(self) -> None:
        self.threads: list[int] = []

    def __repr__(self) -> str:
        self.threads.append(threading.get_ident())
        return "a value"


@pytest.mark.parametrize(("count", "is_at_once"), [(10, True), (20_000, False)])
async def test_a_large_result_of_a_call_is_encoded_once_in_the_thread_that_writes_it(
    count: int, is_at_once: bool, tmp_path: Path
) -> None:
    value = Encoded()
    output = {"rows": ["x"] * count, "value": value}
    async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as memory:
        memory.journal.append(facts.CycleOpened(session="main", cycle="c1"), "main")

        tell(memory.journal, facts.CallEnded, cycle="c1", result=CallResult(Call("look", id="1"), "ok", output=output))
        assert bool(value.threads) is is_at_once
        await memory.journal.safe()
        connection = database.open_reader(memory.path)
        body = connection.execute("SELECT body FROM fact WHERE kind = 'ended'").get
        assert hash_chain.check(connection) is None
        connection.close()

    assert len(value.threads) == 1
    assert (value.threads[0] == threading.get_ident()) is is_at_once
    assert json.loads(str(body))["output"] == {"rows": ["x"] * count, "value": "a value"}


async def test_a_memory_that_is_read_in_another_thread_refuses_and_keeps_its_rows(tmp_path: Path) -> None:
    async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as memory:
        close_cycles(memory)
        for read in (memory.cycles, lambda: memory.journal.views.items("main"), lambda: memory.load("key")):
            with pytest.raises(RuntimeError, match="in the thread that opened it"):
                await asyncio.to_thread(lambda read=read: asyncio.run(as_coroutine(read)))
        assert sorted(row["cycle_id"] for row in await memory.cycles()) == CYCLES


async def as_coroutine(read: Callable[[], Awaitable[object]]) -> None:
    await read()
