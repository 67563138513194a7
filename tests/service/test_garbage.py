"""Looks at all objects wait for a quiet moment, and free what cycles of references keep."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from spar.service.garbage import DUE, FROZEN_FOR, OVERDUE, Collections


class Node:
    """An object that keeps itself alive."""

    def __init__(self) -> None:
        self.itself = self


class Work:
    """Work that is done meanwhile: how much so far, None while some is under way."""

    def __init__(self) -> None:
        self.done: int | None = 0

    def __call__(self) -> int | None:
        return self.done


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def collections(work: Work) -> Iterator[Collections]:
    collections = Collections(work)
    collections.begin()
    collections.look()
    yield collections
    collections.end()
    gc.unfreeze()


def grow_old(node: Node) -> weakref.ref[Node]:
    """Let an object become so old that only a look at all objects finds it."""
    for _ in range(DUE):
        gc.collect(1)
    return weakref.ref(node)


def test_garbage_is_collected_at_a_quiet_moment_only(collections: Collections, work: Work) -> None:
    lost = grow_old(Node())
    kept = Node()

    for done in (None, 1, 2, None, 2):  # under way, then done; a look between two pieces of work finds it unquiet, too
        work.done = done
        assert not collections.look()
        assert lost() is not None

    assert collections.look()
    assert lost() is None
    assert kept.itself is kept


def test_nothing_is_done_before_it_is_due(collections: Collections) -> None:
    assert not collections.look()


def test_what_lives_on_is_not_looked_at_again(collections: Collections) -> None:
    node = Node()
    before = gc.get_freeze_count()
    grow_old(node)

    assert collections.look()

    assert gc.get_freeze_count() > before
    assert not any(each is node for each in gc.get_objects())


def test_what_was_set_apart_and_is_garbage_by_now_is_found_in_the_end(collections: Collections) -> None:
    node = Node()
    lost = grow_old(node)
    assert collections.look()
    del node

    for _ in range(FROZEN_FOR):
        for _ in range(DUE):
            gc.collect(1)
        assert collections.look()

    assert lost() is None


def test_a_process_that_is_never_quiet_has_the_interpreter_collect(collections: Collections) -> None:
    assert gc.get_threshold()[2] == OVERDUE

    collections.end()

    assert gc.get_threshold()[2] == DUE
