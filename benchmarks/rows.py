"""The least that making a cycle durable can cost: four rows of 110 bytes in SQLite, by the driver that spar uses.

On the loop's own thread, with a commit for each cycle; or handed to a thread that commits whatever has queued, while
each of many tasks waits for its commit.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import apsw

from benchmarks.harness import Batch
from benchmarks.peers import PHASES, act, plan, reflect, sense

Synchronous = Literal["NORMAL", "FULL"]
Row = tuple[int, str, str]

BODY = '{"phase":"plan","status":"ok","state":{"n":1,"goal":"keep the room at 21 C"},"duration":0.000012,"calls":[]}'
INSERT = "INSERT INTO row (cycle, phase, body) VALUES (?, ?, ?)"


@contextmanager
def database(path: str, synchronous: Synchronous) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    connection.execute("CREATE TABLE IF NOT EXISTS row (seq INTEGER PRIMARY KEY, cycle INTEGER, phase TEXT, body TEXT)")
    try:
        yield connection
    finally:
        connection.close()


def rows_of(cycle: int) -> list[Row]:
    return [(cycle, phase, BODY) for phase in PHASES]


async def phases() -> None:
    await reflect(await act(await plan(await sense())))


def committed_each(connection: apsw.Connection) -> Batch:
    """Each cycle commits on the loop's thread: nothing is handed over, and everybody waits for the disk."""

    async def batch(cycles: int) -> None:
        execute = connection.execute
        for cycle in range(cycles):
            await phases()
            execute("BEGIN")
            for row in rows_of(cycle):
                execute(INSERT, row)
            execute("COMMIT")
            await asyncio.sleep(0)

    return batch


class Group:
    """A thread that commits whatever has queued in one transaction, then tells all who wait."""

    def __init__(self, path: str, synchronous: Synchronous) -> None:
        self._path, self._synchronous = path, synchronous
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[tuple[list[Row], asyncio.Future[None]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    async def commit(self, rows: list[Row]) -> None:
        future = self._loop.create_future()
        self._queue.put((rows, future))
        await future

    async def close(self) -> None:
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join, 10)

    def _run(self) -> None:
        with database(self._path, self._synchronous) as connection:
            while (first := self._queue.get()) is not None:
                group = [first]
                while not self._queue.empty() and (more := self._queue.get()) is not None:
                    group.append(more)
                connection.execute("BEGIN")
                for rows, _ in group:
                    connection.executemany(INSERT, rows)
                connection.execute("COMMIT")
                self._loop.call_soon_threadsafe(_tell, [future for _, future in group])

    def together(self, tasks: int, turns: int) -> Batch:
        """So many tasks that wait for the commit of each of their cycles; a unit is one cycle of one of them."""

        async def turn() -> None:
            for cycle in range(turns):
                await phases()
                await self.commit(rows_of(cycle))

        async def batch(_: int) -> int:
            await asyncio.gather(*(turn() for _ in range(tasks)))
            return tasks * turns

        return batch


def _tell(futures: list[Any]) -> None:
    for future in futures:
        if not future.done():
            future.set_result(None)
