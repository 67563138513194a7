"""A year of a memory in virtual time: its file stays within its limit, and what must be kept is there at the end.

A day brings cycles and experiences, each of other words. Of the agent only the memory is here: its timers would ring
millions of times in a year.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from memory import Memory
from memory.care.integrity import verify
from memory.retention import NEWEST
from spar import facts
from spar.protocols import Host
from spar.records.journal import Closing
from spar.testing import VirtualClock
from spar.types import CycleRecord, Experience

DAYS, CYCLES_OF_A_DAY, DAY = 400, 6, 86_400.0
#: Bytes of the file; what a year brings is several times as much.
LIMIT = 6 << 20
LESSON = "never merge the index while it is read"


def words(number: int, count: int = 250) -> str:
    return " ".join(f"w{(number * 31 + place) % 9973}" for place in range(count))


def opened(folder: Path, clock: VirtualClock) -> Memory:
    memory = Memory.open(f"sqlite:///{folder}/memory.db", durability="off", ballast=0, max_bytes=LIMIT)
    memory.attach(Host("main", clock, events=None, hooks=None, wake=lambda: None))  # type: ignore[arg-type]
    return memory


async def tended(memory: Memory) -> int:
    """Do what the writer's thread does in its rests, which virtual time has none of; return the bytes of the file."""
    file: Any = memory._file
    while await file.commit(memory._tend):
        pass

    def size(connection: Any) -> int:
        return int(connection.execute("PRAGMA page_count").get) * int(connection.execute("PRAGMA page_size").get)

    return int(await file.read(size))


def lived(memory: Memory, clock: VirtualClock, day: int) -> None:
    """Have the cycles of a day."""
    for number in range(day * CYCLES_OF_A_DAY, (day + 1) * CYCLES_OF_A_DAY):
        experience = Experience(words(number), id=f"e{number}", at=clock.now(), success=True, trust="trusted")
        record = CycleRecord(f"c{number}", "main", "main", clock.now(), 0.1, "acted")
        memory.journal.append(facts.CycleOpened(session="main", cycle=f"c{number}"), "main")

        memory.journal.append(
            facts.CycleWritten(session="main", cycle=f"c{number}", closing=Closing("acted", record, (experience,))),
            "main",
        )


async def test_the_file_keeps_its_limit_for_a_year_and_what_must_be_kept(clock: VirtualClock, tmp_path: Path) -> None:
    sizes = []
    async with opened(tmp_path, clock) as memory:
        for day in range(DAYS):
            lived(memory, clock, day)
            if day == 100:  # once, and never again
                rare = Experience("the index is slow", id="rare", at=clock.now(), success=False, lesson=LESSON,
                                  trust="trusted")  # fmt: skip
                await memory.store(rare)
            await clock.advance(DAY)
            sizes.append(await tended(memory))
        counts = await memory.counts()
    brought = DAYS * CYCLES_OF_A_DAY
    assert max(sizes) <= LIMIT
    assert (tmp_path / "memory.db").stat().st_size <= LIMIT
    assert max(sizes[:60]) < LIMIT // 3, "it is the year that fills it"
    assert NEWEST <= counts["experiences"] < brought - 365  # more than age alone takes
    assert NEWEST <= counts["cycles"] < brought

    async with opened(tmp_path, clock) as memory:
        [found] = await memory.recall("the index is slow", 1)
        newest = {each.id for each in await memory.recall("", 50)}
        first = await memory.detail("e0")
    assert found.lesson == LESSON, "a rare failure that teaches something, ten months old"
    assert {f"e{brought - number}" for number in range(1, 50)} <= newest
    assert first is None, "older than a year"
    assert verify(str(tmp_path / "memory.db")).is_whole
