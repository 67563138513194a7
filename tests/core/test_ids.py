"""Identifiers are unique, sort by the time they were made, and can stand anywhere."""

from __future__ import annotations

import multiprocessing
import os
import re
import threading
import time

import pytest

from spar.ids import new_id


def test_ids_begin_with_the_wall_clock_and_sort_in_the_order_in_which_they_were_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = [new_id() for _ in range(200_000)]  # more than the counter counts
    assert abs(int(ids[-1][:16], 16) / 1e9 - time.time()) < 60
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    ids.append(new_id())

    assert all(re.fullmatch("[0-9a-f]{26}", item) for item in ids)
    assert ids == sorted(ids)
    assert len(set(ids)) == len(ids)


def test_threads_never_make_the_same_id() -> None:
    made: list[list[str]] = [[] for _ in range(8)]
    barrier = threading.Barrier(8)

    def make(own: list[str]) -> None:
        barrier.wait()
        own.extend(new_id() for _ in range(5_000))

    threads = [threading.Thread(target=make, args=(own,)) for own in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    every = [item for own in made for item in own]
    assert len(set(every)) == len(every)
    assert all(own == sorted(own) for own in made)


@pytest.mark.process
def test_processes_have_tails_of_their_own() -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, new_id().encode())
        os._exit(0)
    os.waitpid(child, 0)
    forked = os.read(reader, 26).decode()
    os.close(reader)
    os.close(writer)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        spawned = pool.apply(new_id)

    assert len({new_id()[-6:], forked[-6:], spawned[-6:]}) == 3
