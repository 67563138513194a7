"""Looks at all objects wait for a quiet moment, and free what cycles of references keep."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from spar import Action, Agent, Perception
from spar.service.garbage import DUE, EVERY, FROZEN_FOR, OVERDUE, YOUNG, Collections, work_of
from spar.testing import VirtualClock


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


def test_young_objects_do_not_gather_while_old_ones_are_freed(collections: Collections) -> None:
    old: list[list[int]] = [[] for _ in range(10_000)]
    gc.collect()
    young = []
    while old:
        old.pop()
        young.append([0])
    assert len(gc.get_objects(0)) > len(young) // 2  # the collector of the interpreter was not called
    collections.look()
    assert len(gc.get_objects(0)) < 100


@pytest.mark.parametrize("is_replacing", [False, True])
def test_a_collection_of_the_middle_generation_looks_at_few_objects(
    collections: Collections, is_replacing: bool
) -> None:
    kept: list[list[int]] = [[] for _ in range(20 * YOUNG)]
    gc.collect()
    sizes = []

    def measure(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 1:
            sizes.append(len(gc.get_objects(0)) + len(gc.get_objects(1)))

    gc.callbacks.append(measure)
    try:
        for at in range(len(kept)):
            if is_replacing:
                kept[at] = [at]
                if at % YOUNG == 0:
                    collections.look()
            else:
                kept.append([at])
    finally:
        gc.callbacks.remove(measure)
    assert sizes
    assert max(sizes) < 5 * YOUNG < len(kept)


def test_a_full_collection_is_due_after_as_many_new_objects_as_the_interpreter_takes(collections: Collections) -> None:
    usual = 12 * YOUNG * 10  # 11 collections of young objects and one of the middle generation, ten times
    kept: list[list[int]] = [[] for _ in range(usual - 5 * YOUNG)]
    assert not collections.look()
    kept += [[] for _ in range(10 * YOUNG)]
    assert collections.look()
    assert len(kept) == usual + 5 * YOUNG


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


def test_a_process_that_is_never_quiet_has_the_interpreter_collect(work: Work) -> None:
    before = gc.get_threshold()
    collections = Collections(work)
    collections.begin()
    assert gc.get_threshold()[2] == OVERDUE

    collections.end()

    assert gc.get_threshold() == before
    gc.unfreeze()


async def test_cycles_that_have_nothing_to_do_leave_a_service_quiet() -> None:
    async def plan(noticed: list[Perception]) -> Action | None:
        return Action(output="done") if noticed else None

    clock = VirtualClock()
    async with Agent(plan=plan, loop_interval=EVERY, clock=clock) as agent:
        collections = Collections(lambda: work_of(agent))
        collections.begin()
        try:
            await clock.advance(EVERY)
            collections.look()
            lost = grow_old(Node())
            before = agent.stats.total_cycles
            await clock.advance(EVERY)
            assert agent.stats.total_cycles > before

            assert collections.look()

            assert lost() is None
            await agent.wait((await agent.submit("go")).run_id)
            grow_old(Node())
            assert not collections.look()
        finally:
            collections.end()
            gc.unfreeze()
