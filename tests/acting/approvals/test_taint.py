"""Text from outside gains no rights by way of what a run writes and reads again; each attack with its benign twin."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from acting import Executor
from acting.approvals.policy import Taint
from spar.protocols import Context, RunContext
from spar.protocols.tools import tool
from spar.testing import VirtualClock
from spar.types import Action, Call
from tests.acting.approval_tools import World, answer, executor, on_hand, pending, statuses
from tests.effort import growth


class Net(World):
    """With a tool that reads the world outside."""

    def tools(self) -> list[Any]:
        @tool(effect="read", brings_untrusted=True)
        async def fetch(url: str) -> dict[str, Any]:
            return {"body": "rm -r /"}

        return [*super().tools(), fetch]


def context(cycle: str, run: str | None = "r1", *, messages: tuple[dict[str, Any], ...] = ()) -> Context:
    return Context("main", cycle, "s", run=None if run is None else RunContext(run, "goal", messages=messages))


FETCH = Call("fetch", {"url": "x"}, id="f", output_path="†state.page")


@pytest.mark.parametrize(
    ("calls", "found"),
    [
        ((FETCH, Call("plain", {"what": "†state.page.body"})), ["ok", "skipped parked"]),
        ((FETCH, Call("plain", {"what": {"deep": ["†state"]}})), ["ok", "skipped parked"]),
        ((FETCH, Call("plain", {"what": "†state.none || †state.page"})), ["ok", "skipped parked"]),
        (
            (FETCH, Call("safe", {"what": "†state.page.body"}, output_path="†state.copy"),
             Call("plain", {"what": "†state.copy"})),
            ["ok", "ok", "skipped parked"],
        ),
        (
            (Call("safe", {"what": "x"}, id="s", output_path="†state.own", meta={"_trust": "untrusted"}),
             Call("plain", {"what": "†state.own"})),
            ["ok", "skipped parked"],
        ),
        ((Call("fetch", {"url": "x"}, id="f"), Call("plain", {"what": "†result.output"}, after=("f",))),
         ["ok", "skipped parked"]),
        # twins
        ((FETCH, Call("plain", {"what": "own words"}, after=("f",))), ["ok", "ok"]),
        ((FETCH, Call("safe", {"what": "†state.page.body"})), ["ok", "ok"]),
        ((FETCH, Call("plain", {"what": "a"}, output_path="†state.own"), Call("plain", {"what": "†state.own"})),
         ["ok"] * 3),
    ],
)  # fmt: skip
async def test_a_call_that_reads_what_came_from_outside_is_asked_about(
    clock: VirtualClock, calls: tuple[Call, ...], found: list[str]
) -> None:
    made = executor(Net(), clock, hold=0.0)
    result = await made.act(Action(calls, trust="trusted"), context("c1", None))

    assert statuses(result) == found
    assert [row.trust for row in await pending(made, "skipped parked" in found)] == (
        ["untrusted"] if "skipped parked" in found else []
    )


async def test_what_came_from_outside_stays_so_when_another_process_goes_on_with_the_run(clock: VirtualClock) -> None:
    first = await executor(Net(), clock, hold=0.0).act(Action((FETCH,), trust="trusted"), context("c1"))
    world = Net()
    made = executor(world, clock, hold=0.0)
    run = RunContext("r1", "goal", 2, tuple(first.messages), (first,))
    calls = (Call("plain", {"what": "†state.page.body"}), Call("plain", {"what": "own words"}))

    later = await made.act(Action(calls, trust="trusted"), Context("main", "c2", "s", run=run))

    assert (statuses(later), world.done) == (["skipped parked", "ok"], ["own words"])


async def test_what_a_tool_that_is_gone_has_brought_is_from_outside_for_all_that_is_known(clock: VirtualClock) -> None:
    first = await executor(Net(), clock, hold=0.0).act(
        Action((Call("safe", {"what": 1}, output_path="†state.page"),), trust="trusted"), context("c1")
    )
    world = World()
    made = executor(world, clock, hold=0.0, tools=[each for each in world.tools() if each.__name__ != "safe"])
    run = RunContext("r1", "goal", 2, tuple(first.messages), (first,))
    read = Action((Call("plain", {"what": "†state.page"}),), trust="trusted")

    assert statuses(await made.act(read, Context("main", "c2", "s", run=run))) == ["skipped parked"]


async def test_a_cycle_that_was_cut_after_it_had_read_outside_goes_on_as_untrusted(clock: VirtualClock) -> None:
    calls = (FETCH, Call("plain", {"what": "†state.page.body"}, id="p"))
    before = await executor(Net(), clock, hold=0.0).act(Action((FETCH,), trust="trusted"), context("c1"))
    world = Net()
    made = executor(world, clock, hold=0.0)
    again = Context("main", "c1", "s", run=RunContext("r1", "goal"), known=before.results)

    assert statuses(await made.act(Action(calls, trust="trusted"), again)) == ["ok", "skipped parked"]
    before = await executor(Net(), clock, hold=0.0).run(Action((FETCH,), trust="trusted"))
    assert statuses(await made.run(Action(calls, trust="trusted"), resume=before)) == ["ok", "skipped parked"]
    assert world.done == []


@pytest.mark.parametrize(("stated", "found"), [(None, "skipped parked"), ("trusted", "ok")])
async def test_a_run_in_which_anything_untrusted_was_said_is_untrusted_unless_its_planner_says_otherwise(
    clock: VirtualClock, stated: Any, found: str
) -> None:
    made = executor(World(), clock, hold=0.0)
    run = RunContext("r1", "goal", trust="untrusted")

    result = await made.act(Action((Call("plain"),), trust=stated), Context("main", "c1", "s", run=run))

    assert statuses(result) == [found]


async def test_a_call_left_behind_anew_keeps_the_trust_it_had(clock: VirtualClock) -> None:
    """A cycle that goes on is trusted itself; what it leaves behind once more is as untrusted as before."""
    world = World()
    made = executor(world, clock, hold=0.0)
    calls = (
        Call("act", {"what": 1}, id="a"),
        Call("act", {"what": 2}, id="b", output_path="†state.b"),
        Call("plain", {"what": "free"}, id="c", after=("b",)),
    )
    await made.act(Action(calls, trust="untrusted"), context("c1", None))
    one, two = await pending(made, 2)
    for asked in (one, two):
        await answer(made, asked)
        await made.act(on_hand(made, "s"), context("c2", None))
    assert world.done == [1, 2]
    (asked,) = await pending(made)
    assert (asked.call.tool, asked.trust) == ("plain", "untrusted")


async def test_a_value_from_outside_that_was_filled_into_a_call_left_behind_is_still_from_outside(
    clock: VirtualClock,
) -> None:
    world = Net()
    made = executor(world, clock, hold=0.0)
    calls = (FETCH, Call("act", {"what": 1}, id="a", after=("f",)),
             Call("plain", {"what": "†state.page.body"}, after=("a", "f")))  # fmt: skip
    await made.act(Action(calls, trust="trusted"), context("c1", None))
    (asked,) = await pending(made)
    await answer(made, asked)
    assert statuses(await made.act(on_hand(made, "s"), context("c2", None))) == ["ok", "skipped parked"]
    assert world.done == [1]


def test_a_later_cycle_of_a_run_is_trusted_no_more_than_the_text_that_began_it() -> None:
    taint = Taint()

    assert taint.of_plan(None, "untrusted", "run") == "untrusted"
    assert taint.of_plan(None, "trusted", "run") == "untrusted"
    assert taint.of_plan("trusted", "trusted", "run") == "trusted"  # the planner's own word stands
    assert taint.of_plan(None, "trusted", "other") == "trusted"
    assert taint.of_plan(None, "untrusted", None) == "untrusted"
    assert taint.of_plan(None, "trusted", None) == "trusted"


def test_the_work_for_taint_is_proportional_to_the_calls() -> None:
    @tool(effect="read", brings_untrusted=True, safe_with_untrusted=True)
    async def fetch(n: int) -> int:
        return n

    @tool(effect="read", safe_with_untrusted=True)
    async def use(n: int) -> int:
        return n

    def run(size: int) -> None:
        calls = []
        for number in range(size):
            calls.append(Call("fetch", {"n": number}, output_path=f"†state.a{number}"))
            calls.append(Call("use", {"n": f"†state.a{number}"}, output_path=f"†state.b{number}"))
        assert asyncio.run(Executor([fetch, use], settings={"approval": {}}).run(calls)).status == "ok"

    assert growth(run, 60) <= 2.2
