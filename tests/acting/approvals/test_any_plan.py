"""Any plan with questions makes the same calls, with the same values, as the same plan of which nobody is asked."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from acting import Executor
from spar.clock import Clock, SystemClock
from spar.ports.rows import InMemory
from spar.protocols.tools import tool
from spar.types import Action, ActionResult, Call
from tests.acting.approval_tools import World, answer, cycle, desk_of, executor, statuses

PLANS = 20
BELOW = ("", ".did", ".list", ".list.1.x", ".odd")
Made = list[tuple[str, Any]]


class Unhurried(InMemory):
    """A store that makes its changes some turns later, also those that nobody waits for any more."""

    async def keep(self, kind: str, id: str, value: Any, *, expect: int | None = None) -> int:
        found: int = await self._later(super().keep(kind, id, value, expect=expect))
        return found

    async def drop(self, kind: str, id: str) -> bool:
        return bool(await self._later(super().drop(kind, id)))

    async def _later(self, work: Any) -> Any:
        async def change() -> Any:
            for _ in range(5):
                await asyncio.sleep(0)
            return await work

        return await asyncio.shield(asyncio.ensure_future(change()))

    async def load(self, key: str) -> Any: ...
    async def save(self, key: str, value: Any) -> None: ...


def tools(made: Made, *, is_asked: bool) -> list[Any]:
    async def did(name: str, what: Any) -> Any:
        made.append((name, what))
        await asyncio.sleep(0)
        return {"did": name, "list": [1, {"x": name}], "odd": "†state.no"}

    @tool(approval="ask" if is_asked else "auto")
    async def act(name: str, what: Any = None) -> Any:
        return await did(name, what)

    @tool
    async def plain(name: str, what: Any = None) -> Any:
        return await did(name, what)

    return [act, plain]


def drawn(random: Random) -> tuple[Call, ...]:
    """A plan whose calls read values of earlier ones, or run after them."""
    calls: list[Call] = []
    for number in range(random.randint(2, 8)):
        instance = random.choice([None, None, "i"])
        readable = [call for call in calls if call.instance in (None, instance)]
        read = random.sample(readable, random.randint(0, min(3, len(readable))))
        paths = [f"{call.output_path}{random.choice(BELOW)}" for call in read]
        what = random.choice([paths, {"of": paths, "text": "††x"}, *paths[:1]]) if paths else random.choice([1, "††x"])
        after = tuple(call.id for call in random.sample(calls, random.random() < 0.3 and len(calls) > 0))
        calls.append(Call(random.choice(["act", "plain"]), {"name": f"n{number}", "what": what}, id=f"c{number}",
                          output_path=f"†state.v{number}", after=after, instance=instance))  # fmt: skip
    return tuple(calls)


def process(store: Unhurried, made: Made, clock: Clock) -> Executor:
    asking = tools(made, is_asked=True)
    return executor(World(), clock, store=store, tools=asking, hold=0.0, max_pending=50)  # type: ignore[arg-type]


async def acted(made: Executor, action: Action, clock: Clock, turns: int | None) -> ActionResult | None:
    """The result of a cycle; None for one that is cut off after so many turns."""
    acting = asyncio.ensure_future(made.act(action, cycle(clock)))
    if turns is not None:
        for _ in range(turns):
            await asyncio.sleep(0)
        acting.cancel()
    await asyncio.wait([acting])
    return None if acting.cancelled() else acting.result()


@pytest.mark.parametrize("is_cut", [False, True], ids=["whole cycles", "cycles are cut off"])
async def test_any_plan_makes_its_calls_once_whoever_is_asked_and_whenever_they_answer(is_cut: bool) -> None:
    clock, count = SystemClock(), 0
    for seed in range(PLANS):
        random, store = Random(seed), Unhurried()
        plan, expected, made = drawn(random), Made(), Made()
        await Executor(tools(expected, is_asked=False), clock=clock).act(Action(plan), cycle(clock))
        results, action, is_over = list[ActionResult](), Action(plan), False
        while not is_over:  # a process, until the next one starts
            async with process(store, made, clock) as one:
                while not is_over and (action.calls or random.random() < 0.8):
                    cut = random.randint(5, 80) if is_cut and random.random() < 0.7 else None
                    if action.calls and (result := await acted(one, action, clock, cut)) is not None:
                        results.append(result)
                    asked = list(await desk_of(one).list())
                    for row in random.sample(asked, random.randint(0, len(asked))):
                        await answer(one, row)
                    action = one.resumable("main") or Action()
                    is_over = not (asked or action.calls)

        async with process(store, made, clock):  # closes the questions whose ends were not written any more
            pass
        names = [name for name, _ in made]
        count += len(await store.records("approval"))
        assert len(names) == len(set(names)), (seed, plan)
        if not is_cut:
            assert sorted(made, key=str) == sorted(expected, key=str), (seed, plan)
        assert not [status for result in results for status in statuses(result) if "in_doubt" in status], (seed, plan)
        assert await store.records("parked") == [], (seed, plan)
        left = {row.value["status"] for row in await store.records("approval")}
        assert left.isdisjoint({"pending", "approved"}), (seed, plan)
    assert count > PLANS
