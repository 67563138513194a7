"""A full disk: what was accepted is kept and told, there is room for what makes room, and it goes on by itself."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
import pytest

from memory import Memory
from memory.sqlite.disk_reserve import LEAST, DiskReserve
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
        await house.writer.submit(put(0, 10))
        assert house.writer.is_writable
        disk.capacity = used(tmp_path) + 100_000

        await house.writer.submit(put(1, 200_000))  # does not fit, but for the ballast

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


# -- room for the day on which the disk is full: how much, when it is given up, when it is taken again


class Room:
    """A disk that says how much room it has."""

    def __init__(self) -> None:
        self.free = 1_000 * MIB

    def __call__(self, path: str) -> int:
        return self.free


@pytest.fixture
def disk() -> Room:
    return Room()


@pytest.mark.parametrize(("free", "held"), [(10_000, 4 * MIB), (100, 2 * MIB), (10, 3 * LEAST), (3, 0)])
def test_it_takes_what_is_asked_for_but_never_much_of_what_is_left(
    tmp_path: Path, disk: Room, free: int, held: int
) -> None:
    disk.free = free * MIB
    kept = DiskReserve(str(tmp_path / "memory.db"), 4 * MIB, free=disk)

    assert kept.hold()
    assert kept.held == held
    assert kept.held == sum(path.stat().st_blocks * 512 for path in tmp_path.iterdir())


def test_it_outlives_its_process_and_is_not_made_twice(tmp_path: Path, disk: Room) -> None:
    DiskReserve(str(tmp_path / "memory.db"), 4 * MIB, free=disk).hold()
    before = (tmp_path / "memory.db.ballast").stat()

    again = DiskReserve(str(tmp_path / "memory.db"), 4 * MIB, free=disk)

    assert again.held == 4 * MIB
    assert again.hold()
    assert (tmp_path / "memory.db.ballast").stat().st_mtime_ns == before.st_mtime_ns


def test_what_was_given_up_is_taken_again_only_when_there_is_plenty(tmp_path: Path, disk: Room) -> None:
    kept = DiskReserve(str(tmp_path / "memory.db"), 4 * MIB, free=disk)
    kept.hold()

    assert kept.give_up() == 4 * MIB
    assert kept.is_given_up
    assert list(tmp_path.iterdir()) == []
    assert kept.give_up() == 0

    disk.free = 2 * MIB
    assert not kept.hold()
    assert kept.is_given_up
    disk.free = 1_000 * MIB
    assert kept.hold()
    assert not kept.is_given_up
    assert kept.held == 4 * MIB


def test_without_a_size_there_is_none_and_an_old_one_goes(tmp_path: Path, disk: Room) -> None:
    DiskReserve(str(tmp_path / "memory.db"), 4 * MIB, free=disk).hold()

    assert DiskReserve(str(tmp_path / "memory.db"), 0, free=disk).hold()
    assert list(tmp_path.iterdir()) == []


def test_where_it_cannot_be_made_nothing_is_left_and_nothing_raised(tmp_path: Path, disk: Room) -> None:
    kept = DiskReserve(str(tmp_path / "missing" / "memory.db"), 4 * MIB, free=disk)

    assert not kept.hold()
    assert kept.held == 0


@pytest.mark.parametrize(
    ("error", "free", "full"),
    [
        (apsw.FullError("database or disk is full"), 1, True),
        (OSError(errno.ENOSPC, "no room"), 1, True),
        (OSError(errno.EDQUOT, "quota"), 1, True),
        (OSError(errno.EACCES, "no"), 1, False),
        (apsw.IOError("disk I/O error"), 1, False),
        (apsw.IOError("disk I/O error"), 0, True),
        (apsw.BusyError("locked"), 0, False),
    ],
)
def test_an_error_means_a_full_disk_or_not(disk: Room, error: Exception, free: int, full: bool) -> None:
    disk.free = free * MIB

    assert DiskReserve("memory.db", free=disk).is_full(error) is full
