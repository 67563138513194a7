"""A full disk: what was accepted is kept and told, there is room for what makes room, and it goes on by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from memory import Memory
from memory.sqlite.disk_reserve import DiskReserve
from spar.errors import TransientError
from spar.types import Experience
from tests.memory.sqlite.test_writer import Power, until
from tests.storage.disk import Disk

if TYPE_CHECKING:
    from apsw import Connection

MIB = 1 << 20


def used(folder: Path) -> int:
    return sum(each.stat().st_size for each in folder.iterdir() if not each.name.endswith("-shm"))


def put(number: int, size: int) -> Callable[[Connection], object]:
    return lambda connection: connection.execute("INSERT INTO piece VALUES (?, ?)", (number, "x" * size))


async def test_the_ballast_makes_room_and_intake_learns_at_once_that_there_is_none(tmp_path: Path) -> None:
    path, disk = str(tmp_path / "memory.db"), Disk(tmp_path)
    kept = DiskReserve(path, MIB, free=lambda _: 0 if disk.capacity else 1_000 * MIB)
    assert kept.hold()
    with disk.in_use():
        house = Power(tmp_path / "memory.db", ballast=kept)
        await house.writer.commit(put(0, 10))
        assert house.writer.is_writable
        disk.capacity = used(tmp_path) + 100_000

        await house.writer.commit(put(1, 200_000))  # does not fit, but for the ballast

        assert not house.writer.is_writable, "although this was kept: there is no room for more"
        assert house.writer.snapshot()["is_full"]
        assert house.writer.snapshot()["ballast_bytes"] == 0
        await until(lambda: bool(house.told))
        assert [fault and fault.kind for fault in house.told] == ["full"]

        disk.capacity = used(tmp_path) + 100_000  # and now there is no room at all
        late = house.writer.submit(put(2, 200_000))
        await until(lambda: house.writer.is_failing)
        assert not late.done()
        assert house.count() == 2, "it can be read meanwhile"

        disk.capacity = None
        await late
        await until(lambda: house.writer.is_writable)
        await until(lambda: house.told[-1] is None)
        assert house.count() == 3
        assert house.told.count(None) == 1, "that all is well is told when there is room again, not before"
        assert house.writer.snapshot()["ballast_bytes"] == MIB
        await house.writer.close(20.0)


async def test_a_start_on_a_full_disk_gives_up_the_ballast(tmp_path: Path) -> None:
    async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as memory:
        await memory.store(Experience("before"))
    path = str(tmp_path / "memory.db")
    assert DiskReserve(path, MIB).hold()
    disk = Disk(tmp_path)
    disk.capacity = used(tmp_path)
    with disk.in_use():
        async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as memory:
            assert [found.situation for found in await memory.recall()] == ["before"]
            assert not memory.snapshot()["is_writable"]
    assert disk.fired


async def test_without_a_ballast_what_was_accepted_is_kept_and_tried_again(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with disk.in_use():
        async with Memory.open(f"sqlite:///{tmp_path}/memory.db") as memory:
            await memory.keep("row", "a", 1)
            disk.capacity = 0
            await memory.store(Experience("accepted"))
            with pytest.raises(TransientError, match="full"):
                await memory.flush(within=0.2)
            disk.capacity = None
            await memory.flush()
            assert len(await memory.recall()) == 1
