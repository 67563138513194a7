from __future__ import annotations

import os
from pathlib import Path

import pytest

from spar.fs.lock import FileLock, LockHeldError, holder


def test_a_lock_has_one_holder_who_is_named(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    first, second = FileLock(path), FileLock(path)
    assert holder(path) is None

    first.acquire()
    with pytest.raises(LockHeldError) as refused:
        second.acquire()
    assert (refused.value.pid, holder(path)) == (os.getpid(), os.getpid())

    first.release()
    assert holder(path) is None
    second.acquire()
    assert holder(path) == os.getpid()


def test_whoever_only_asks_takes_the_lock_from_nobody(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = FileLock(path)
    lock.acquire()
    lock.release()
    lock.release()
    assert holder(path) is None
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_says_nothing_of_its_holder_is_held_by_an_unknown_one(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    lock = FileLock(path)
    lock.acquire()
    path.write_text("?")
    assert holder(path) == 0
    lock.release()
