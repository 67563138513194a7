"""Cycles a second of 64 sessions, each flushed, on a server and in a file by turns; what one takes of the server."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import psycopg
from msgspec import Struct

from benchmarks.counted import counted
from benchmarks.harness import as_served
from benchmarks.journalled import Journalled
from memory import Memory
from memory.postgres.store import PostgresMemory
from tests.servers.postgresql import PostgresServer

SESSIONS = 64
#: Cycles of each before it is measured: the agents start, and the server prepares the statements.
FIRST = 5
_TICK = os.sysconf("SC_CLK_TCK")


class Speed(Struct, frozen=True):
    """`ratios` of the cycles a second on the server to those in the file, one for each turn; of the server the
    `cycles` a second, and its microseconds of processor and bytes of log for each."""

    ratios: list[float]
    cycles: float
    micros: float
    log: float

    @property
    def ratio(self) -> float:
        return median(self.ratios)


class Used(Struct, frozen=True):
    """Seconds, ticks of the server's processor and bytes of its log up to some moment, or between two."""

    seconds: float
    ticks: int = 0
    log: int = 0


async def rate(memory: Memory, turns: int, used: Callable[[], Used]) -> tuple[Used, int]:
    """Return what the flushed cycles of agents on one memory have used, each with so many turns, and their number; the
    threads of the process take turns as those of a service."""
    with as_served():
        return await _rate(memory, turns, used)


async def _rate(memory: Memory, turns: int, used: Callable[[], Used]) -> tuple[Used, int]:
    async with memory, counted(SESSIONS, listeners=False, memory=memory, loop_interval=0) as agents:
        journalled = Journalled(agents, memory)
        await journalled.together(FIRST)(0)
        together = journalled.together(turns)
        before = used()
        number = await together(0)
        after = used()
        return Used(after.seconds - before.seconds, after.ticks - before.ticks, after.log - before.log), number


def measure(server: PostgresServer, turns: int, rounds: int) -> Speed:
    """Measure by turns. The file is on the same disk as the server."""

    def used() -> Used:
        log = _log(server)  # by a connection of its own, whose process is not counted
        return Used(time.perf_counter(), _ticks(server), log)

    ratios, rates = [], []
    cycles, ticks, log = 0, 0, 0
    for number in range(turns + 1):
        with tempfile.TemporaryDirectory(dir=server.folder.parent) as folder:
            memory = Memory.open(f"sqlite:///{folder}/memory.db", ballast=0)
            in_file, _ = asyncio.run(rate(memory, rounds, lambda: Used(time.perf_counter())))
        url = server.database()
        on_server, done = asyncio.run(rate(PostgresMemory(url), rounds, used))
        server.drop(url)
        if number:  # the first turn warms both up
            ratios.append(in_file.seconds / on_server.seconds)
            rates.append(done / on_server.seconds)
            cycles, ticks, log = cycles + done, ticks + on_server.ticks, log + on_server.log
    return Speed(ratios, median(rates), ticks / _TICK * 1e6 / cycles, log / cycles)


def _log(server: PostgresServer) -> int:
    with psycopg.connect(server.url(), autocommit=True) as connection:
        row = connection.execute("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')").fetchone()
    assert row is not None
    return int(row[0])


def _ticks(server: PostgresServer) -> int:
    """Return what all processes of the server have used, also those that have ended."""
    main = int((server.folder / "data" / "postmaster.pid").read_text().splitlines()[0])
    used = sum(_fields(main)[11:15])
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                fields = _fields(int(path.name))
            except OSError:
                continue
            used += sum(fields[11:13]) if fields[1] == main else 0
    return used


def _fields(pid: int) -> list[int]:
    """Return the fields of proc(5) behind the state: the parent, …, utime, stime, cutime, cstime."""
    text = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [0, *map(int, text[1:15])]
