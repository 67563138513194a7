"""Many cycles leave no trace behind; `make soak` makes a million of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.care.integrity import verify
from memory.retention import NEWEST
from spar import facts
from spar.protocols import Host
from spar.records.journal import Closing
from spar.testing import VirtualClock
from spar.types import CycleRecord, Experience
from tests.journal.left import tell
from tests.simulation.service import folder
from tests.simulation.soak import Sample, Soaked, slope, soak

#: As many cycles as fit into the gate, and by how much (bytes) memory may grow in their second half: not what leaks
#: slowly (that takes a million), but what keeps something of each cycle.
CYCLES, GROWTH = 1_500, 3 << 19


@pytest.fixture
def path() -> Iterator[Path]:
    with folder() as found:
        yield found


async def test_thousands_of_cycles_leave_no_task_thread_or_file_behind_and_hardly_any_memory(path: Path) -> None:
    soaked = await soak(CYCLES, path)
    half = [each for each in soaked.samples if each.cycles >= CYCLES / 2]
    assert (soaked.lost, soaked.open_runs) == (0, 0)
    for name in ("files", "threads", "tasks", "children"):
        values = {getattr(each, name) for each in half}
        assert max(values) - min(values) <= 3, (name, values)
    assert half[-1].memory - half[0].memory <= GROWTH


def test_what_grows_has_a_slope_and_what_wavers_has_none() -> None:
    assert slope([(0, 5), (1, 7), (2, 9)]) == 2.0
    assert slope([(0, 5), (1, 6), (2, 5), (3, 6), (4, 5)]) == 0.0
    leaking = Soaked(10_000, 1.0, tuple(Sample(k * 100, k * 2048, 7, 3, 4, 0, 0) for k in range(101)), 0, 0)
    assert leaking.slope("memory") == pytest.approx(20.0)
    assert leaking.slope("tasks") == 0.0


# -- a year of a memory in virtual time: its file stays within its limit, and what must be kept is there at the end


DAYS, CYCLES_OF_A_DAY, DAY = 400, 2, 86_400.0
#: Bytes of the file; what a year brings is several times as much.
LIMIT = 2 << 20
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

        tell(memory.journal, facts.CycleWritten, cycle=f"c{number}", closing=Closing("acted", record, (experience,)))


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
