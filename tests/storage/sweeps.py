"""The n-th thing that a store asks of its disk fails, for n = 1, 2, 3 … until a whole life passes without meeting it.

Whatever fails, and however often in a row: an opening may be refused, with a sentence, and succeeds the next time;
what is open goes on by itself once the disk does; nothing acknowledged is missing then or after the next opening, and
what is there was acknowledged, once. Source of the method: SQLite's out-of-memory and I/O error tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import apsw

from memory import Memory
from spar.errors import SparError
from tests.storage.disk import Disk, empty
from tests.storage.power import Failing, scratch
from tests.storage.rows import Ack, Truth, examine, found_in
from tests.storage.tally import Tally

#: What fails, and as what.
FAULTS: dict[str, tuple[str, type[apsw.Error]]] = {
    "write: full": ("write", apsw.FullError),
    "write: error": ("write", apsw.IOError),
    "flush: error": ("sync", apsw.IOError),
    "read: error": ("read", apsw.IOError),
    "truncate: error": ("truncate", apsw.IOError),
    "delete: error": ("delete", apsw.IOError),
}
MOST = 2_000  # of one kind in one life; there are some hundred


async def one(tally: Tally, folder: Path, name: str, nth: int, times: int) -> bool:
    """One life with one fault; False when it did not come to it."""
    kind, error = FAULTS[name]
    truth, acks, wrong = Truth(), list[Ack](), list[str]()
    refused, is_stuck = "", False
    disk = Disk(empty(folder))
    disk.fails = Failing(kind, "", nth, times, error)
    with disk.in_use():
        try:
            async with Memory.open(f"sqlite:///{folder}/memory.db") as memory:
                if not has_log(folder / "memory.db"):
                    wrong.append("it is open without a write-ahead log")
                async with asyncio.timeout(10.0):
                    await truth.write(memory, Random(7), acks.append, rows=12, size=600)
                    found = await _patiently(memory)
                broken = truth.compare(found, acks)
                wrong += broken.what
                wrong += [f"{id} is not the last that was acknowledged" for id, (version, _) in found.records.items()
                          if ("record", id, version) not in acks]  # fmt: skip
        except SparError as refusal:  # of an opening or a read, or a closing that did not take all
            refused = str(refusal)
            is_stuck = "before closing" in refused
        except TimeoutError:
            is_stuck = True
        except Exception as unexpected:
            wrong.append(f"{type(unexpected).__name__}: {unexpected}")
    if not disk.fired:
        return False
    broken = await examine(folder, truth, acks)
    broken.corrupt += bool(wrong)
    broken.stuck = is_stuck
    broken.what[:0] = wrong
    if refused:
        broken.what.append(f"refused: {refused}")
    tally.add(broken, f"{name}, {kind} {nth}, {times} in a row")
    return True


def has_log(path: Path) -> bool:
    """Whether a file says that it is written through a log: a change to that may fail in silence (file format, 1.3)."""
    return path.read_bytes()[18:20] == b"\2\2"


async def _patiently(memory: Memory) -> Any:
    """What is in the store; a read may be refused while the disk fails."""
    for _ in range(20):
        try:
            return await found_in(memory)
        except SparError:
            await asyncio.sleep(0.02)
    return await found_in(memory)


async def sweep(name: str, *, step: int = 1, times: int = 1, first: int = 1) -> Tally:
    """One class of faults at each `step`-th of its calls, until a life does not come to one."""
    tally = Tally(f"{name}, {times} in a row")
    with scratch() as folder:
        for nth in range(first, MOST, step):
            if not await one(tally, folder, name, nth, times):
                break
    return tally


def long() -> Iterator[Tally]:
    """The long form: every call, failing once and three times in a row."""
    return (asyncio.run(sweep(name, times=times)) for name in FAULTS for times in (1, 3))
