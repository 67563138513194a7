"""Cycles a second of 64 sessions, each flushed, on a server and in a file by turns; what one takes of the server."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path
from statistics import median

import psycopg
from msgspec import Struct

from benchmarks.counted import counted
from benchmarks.journalled import Journalled
from memory import Memory
from memory.postgres.store import PostgresMemory
from tests.servers.postgresql import PostgresServer

SESSIONS = 64
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


async def rate(memory: Memory, turns: int) -> tuple[float, int]:
    """Return the seconds and the number of flushed cycles of agents on one memory, each with so many turns."""
    async with memory, counted(SESSIONS, listeners=False, memory=memory, loop_interval=0) as agents:
        together = Journalled(agents, memory).together(turns)
        began = time.perf_counter()
        number = await together(0)
        return time.perf_counter() - began, number


def measure(server: PostgresServer, turns: int, rounds: int) -> Speed:
    """Measure by turns. The file is on the same disk as the server."""
    ratios, rates = [], []
    cycles, ticks, log = 0, 0, 0
    for number in range(turns + 1):
        with tempfile.TemporaryDirectory(dir=server.folder.parent) as folder:
            in_file = asyncio.run(rate(Memory.open(f"sqlite:///{folder}/memory.db", ballast=0), rounds))
        url = server.database()
        before = _ticks(server), _log(server)
        on_server = asyncio.run(rate(PostgresMemory(url), rounds))
        after = _ticks(server), _log(server)
        server.drop(url)
        if number:  # the first turn warms both up
            ratios.append(in_file[0] / on_server[0])
            rates.append(on_server[1] / on_server[0])
            cycles, ticks, log = cycles + on_server[1], ticks + after[0] - before[0], log + after[1] - before[1]
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
