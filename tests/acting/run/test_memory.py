"""What a run of calls leaves in memory."""

from __future__ import annotations

import gc
from collections.abc import Callable

import pytest

from acting import Executor
from spar import Call


def independent(count: int) -> list[Call]:
    return [Call("work", {"number": at}, output_path=f"†state.a.v{at}") for at in range(count)]


def one_after_another(count: int) -> list[Call]:
    return [Call("work", {"number": at}, id=f"c{at}", after=(f"c{at - 1}",) if at else ()) for at in range(count)]


def by_reference(count: int) -> list[Call]:
    first = Call("work", {"number": 0}, output_path="†state.v0")
    return [
        first,
        *[Call("work", {"number": f"†state.v{at - 1}"}, output_path=f"†state.v{at}") for at in range(1, count)],
    ]


def backwards(count: int) -> list[Call]:
    return by_reference(count)[::-1]


def with_alternatives(count: int) -> list[Call]:
    reads = [Call("work", {"number": "†state.v1 || †state.none || †state.v0"}) for _ in range(count)]
    return [*by_reference(2), *reads]


@pytest.mark.parametrize("calls", [independent, one_after_another, by_reference, backwards, with_alternatives])
async def test_a_run_that_has_ended_leaves_nothing_to_the_garbage_collector(calls: Callable[[int], list[Call]]) -> None:
    async def work(number: int) -> int:
        return number

    async def left_by(count: int) -> int:
        gc.collect()
        gc.disable()
        try:
            assert (await executor.run(calls(count))).status == "ok"
            return gc.collect()
        finally:
            gc.enable()

    executor = Executor([work])
    await left_by(10)
    assert await left_by(200) <= await left_by(10) + 10
