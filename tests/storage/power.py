"""Power cuts: write through a disk that remembers, cut the power everywhere, open what is left, compare."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import apsw

from memory import Memory
from spar.errors import TransientError
from tests.storage.disk import Cutter, Disk, Op, empty
from tests.storage.rows import Broken, Truth, examine
from tests.storage.tally import Tally

LIVES = 3


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder in memory where there is one: what is flushed there is noted elsewhere, and thousands are opened."""
    shared = Path("/dev/shm")
    with TemporaryDirectory(prefix="spar-disk-", dir=shared if shared.is_dir() else None) as folder:
        yield Path(folder)


async def record(
    folder: Path, seed: int, durability: str, *, rows: int = 60, size: int = 600
) -> tuple[list[Op], Truth]:
    """A few lives of a store, and all that its disk was told meanwhile."""
    random, truth = Random(seed), Truth()
    disk = Disk(empty(folder))
    with disk.in_use():
        for _ in range(LIVES):
            async with Memory.open(f"sqlite:///{folder}/memory.db", durability=durability) as memory:
                await truth.write(memory, random, disk.acknowledge, rows=rows // LIVES, size=size)
    return disk.ops, truth


async def cuts(
    tally: Tally, ops: list[Op], truth: Truth, number: int, seed: int, folder: Path, *, again: float = 0.0
) -> None:
    """Cut the power at `number` points, and with the chance `again` a second time while the first is recovered from."""
    random, cutter = Random(seed), Cutter(ops, seed)
    for at in sorted(random.choices(range(1, len(ops) + 1), k=number)):
        cutter.go_to(at)
        cutter.cut(empty(folder))
        label = f"seed {seed}, cut at operation {at} of {len(ops)}"
        if random.random() < again:
            label += await _cut_again(folder, random)
        broken = await examine(folder, truth, cutter.acks)
        tally.add(broken, label)


async def _cut_again(folder: Path, random: Random) -> str:
    """Open what the first cut left, on a disk that remembers, and cut the power in the midst of that."""
    disk = Disk(folder)
    with disk.in_use():
        async with Memory.open(f"sqlite:///{folder}/memory.db"):
            pass
    at = random.randint(disk.begins_at, len(disk.ops))
    cutter = Cutter(disk.ops, random.randrange(1 << 30))
    cutter.go_to(at)
    cutter.cut(empty(folder))
    return f", again at {at - disk.begins_at} of {len(disk.ops) - disk.begins_at}"


async def power_cuts(number: int, *, durability: str = "power", seed: int = 0, recordings: int = 4) -> Tally:
    """Cut the power `number` times over several recordings; every fourth of these has a log of several megabytes."""
    tally = Tally(f"power cut, {durability!r}", is_owed=durability == "power")
    with scratch() as folder:
        for each in range(recordings):
            is_large = each % 4 == 3
            ops, truth = await record(
                folder / "live", seed + each, durability, rows=180 if is_large else 60, size=60_000 if is_large else 600
            )
            again = 0.2 if durability == "power" else 0.0
            await cuts(tally, ops, truth, number // recordings, seed + each, folder / "cut", again=again)
    return tally


class Failing:
    """Makes the n-th operation of one kind on one file fail, `times` in a row."""

    def __init__(self, kind: str, end: str, nth: int, times: int, error: type[apsw.Error]) -> None:
        self._kind, self._end, self._error = kind, end, error
        self._at = range(nth, nth + times)
        self._count = 0

    def __call__(self, kind: str, name: str) -> None:
        if kind == self._kind and name.endswith(self._end):
            self._count += 1
            if self._count in self._at:
                raise self._error(f"injected at {kind} {self._count} of {name}")


async def failed_flushes(number: int, *, seed: int = 0, cuts_each: int = 10) -> Tally:
    """A flush of the log or of the file fails, what it should have written is lost; the power is cut afterwards."""
    tally = Tally("failed flush, then a power cut")
    with scratch() as folder:
        for each in range(number):
            random, truth, live = Random(seed + each), Truth(), folder / "live"
            disk = Disk(empty(live))
            # Two of three meet the log, at a later flush each time, the third the file, when it is closed.
            end, nth = ("-wal", 1 + each // 3 % 12) if each % 3 else (".db", 1)
            with disk.in_use():
                try:
                    async with asyncio.timeout(20.0), Memory.open(f"sqlite:///{live}/memory.db") as memory:
                        disk.fails = Failing("sync", end, nth, random.choice([1, 2, 3]), apsw.IOError)
                        await truth.write(memory, random, disk.acknowledge, rows=30, size=600)
                except (TimeoutError, TransientError) as error:
                    tally.add(Broken(stuck=1, what=[str(error)]), f"seed {seed + each}, flush {nth} of {end}")
            if not disk.fired:
                tally.tried += cuts_each
                continue
            await cuts(tally, disk.ops, truth, cuts_each, seed + each, folder / "cut")
    return tally


def long(seed: int = 0) -> Iterator[Tally]:
    """The long form: 5,000 cuts, 100 failing flushes with ten cuts each, and what is not promised beside it."""
    yield asyncio.run(power_cuts(5_000, seed=seed, recordings=40))
    yield asyncio.run(failed_flushes(100, seed=seed))
    yield asyncio.run(power_cuts(500, durability="process", seed=seed))
