"""Room for the day on which the disk is full: how much, when it is given up, when it is taken again."""

from __future__ import annotations

import errno
from pathlib import Path

import apsw
import pytest

from memory.sqlite.disk_reserve import LEAST, DiskReserve

MIB = 1 << 20


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
