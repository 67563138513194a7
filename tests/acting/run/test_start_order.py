"""Calls on one resource start in the order of the plan; so do all that change something, where that is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from acting import Executor
from spar.errors import ConfigError
from spar.protocols import Context, RunContext
from spar.protocols.tools import tool
from spar.testing import VirtualClock
from spar.types import Action, Call
from tests.effort import growth


def by_path(params: Any) -> tuple[str, ...]:
    return (params["path"],)


class Line:
    """Tools that say in which order they began and which of them ran together."""

    def __init__(self, **terms: Any) -> None:
        self.began: list[Any] = []
        self.running: set[Any] = set()
        self.met: set[tuple[Any, Any]] = set()

        @tool(effect="idempotent", resources=by_path, **terms)
        async def put(name: str, path: str, content: Any = None) -> str:
            return await self.work(name)

        @tool(effect="read")
        async def find(name: str, found: str = "x") -> str:
            await self.work(name)
            return found

        self.tools = [put, find]

    async def work(self, name: Any) -> Any:
        self.began.append(name)
        self.met |= {(other, name) for other in self.running}
        self.running.add(name)
        await asyncio.sleep(0.002)
        self.running.discard(name)
        return name


def put(name: str, path: str = "x", **more: Any) -> Call:
    params = {"name": name, "path": path, **({"content": more.pop("content")} if "content" in more else {})}
    return Call("put", params, id=name, **more)


async def test_blocking_calls_of_several_tools_on_one_resource_start_in_the_order_of_the_plan() -> None:
    order: list[str] = []

    @tool(resources=("dir",))
    def rm(i: int) -> int:
        order.append(f"rm{i}")
        return i

    @tool(resources=("dir",))
    def ls() -> int:
        order.append("ls")
        return 0

    await Executor([rm, ls]).run([*(Call("rm", {"i": i}) for i in range(20)), Call("ls")])

    assert order == [*(f"rm{i}" for i in range(20)), "ls"]


async def test_a_call_that_still_waits_for_a_value_keeps_its_place_at_its_resource() -> None:
    line = Line()
    calls = [Call("find", {"name": "first"}, output_path="†state.a"),
             put("early", content="†state.a"), put("late"), put("other", path="y")]  # fmt: skip
    await Executor(line.tools).run(calls)

    assert line.began.index("early") < line.began.index("late")
    assert line.began.index("other") < line.began.index("early")


async def test_a_call_whose_resource_is_not_known_yet_is_overtaken_by_none_that_has_one() -> None:
    line = Line()
    calls = [Call("find", {"name": "first", "found": "y"}, output_path="†state.path"),
             put("early", path="†state.path"), put("late", path="y"), put("third", path="z"),
             Call("find", {"name": "free"})]  # fmt: skip
    await Executor(line.tools).run(calls)

    assert line.began[:2] == ["first", "free"]
    assert line.began.index("early") < line.began.index("late")


@pytest.mark.parametrize("is_stream", [False, True])
async def test_a_call_that_waits_for_a_later_one_on_its_resource_lets_it_pass(is_stream: bool) -> None:
    line = Line()
    calls = [put("a", content="†state.b"), put("c", content="†state.a.x || †state.b"),
             put("b", output_path="†state.b")]  # fmt: skip

    async def stream() -> AsyncIterator[Call]:
        for call in calls:
            yield call
        while is_stream and "b" not in line.began:  # the stream goes on once it is there
            await asyncio.sleep(0.001)

    result = await asyncio.wait_for(Executor(line.tools).run(stream() if is_stream else calls), 10)

    assert result.status == "ok"
    assert sorted(line.began) == ["a", "b", "c"]
    assert line.began[0] == "b"


async def test_a_failed_a_skipped_and_a_parked_call_hold_nobody_up() -> None:
    line = Line(approval="ask")
    bad = put("bad", content="†none.here")
    made = Executor(line.tools, settings={"approval": {"hold": 0.0}})
    result = await made.run([bad, put("asked"), put("after", after=("bad",)), Call("find", {"name": "free"})])

    found = {each.call.id: each.reason or each.status for each in result.results}
    assert (found["bad"], found["asked"], found["after"]) == ("failed", "parked", "dep_failed")
    assert line.began == ["free"]


async def test_only_reading_calls_run_beside_others_where_an_action_is_carried_out_in_the_order_of_the_plan() -> None:
    line = Line()
    names = [f"p{n}" for n in range(6)]
    calls = [put(name, path=name) for name in names]
    reads = [Call("find", {"name": f"f{n}"}) for n in range(3)]
    await Executor(line.tools, settings={"order": "plan"}).run([*calls[:3], *reads, *calls[3:]])

    assert [name for name in line.began if name in names] == names
    assert not [pair for pair in line.met if set(pair) <= set(names)]
    assert line.began[:4] == ["p0", "f0", "f1", "f2"]


async def test_the_calls_of_a_tool_may_be_carried_out_in_the_order_of_the_plan() -> None:
    line = Line(order="plan")
    names = [f"p{n}" for n in range(5)]
    calls = [Call("find", {"name": "first"}, output_path="†state.a"), put("p0", path="0", content="†state.a"),
             *(put(name, path=name) for name in names[1:])]  # fmt: skip
    await Executor(line.tools).run(calls)

    assert line.began == ["first", *names]
    assert line.met == set()


async def test_a_retry_takes_the_rate_like_a_first_attempt(clock: VirtualClock) -> None:
    starts: list[float] = []

    @tool(effect="read", rate="1/min", retries=3)
    async def api() -> int:
        starts.append(clock.elapsed)
        raise TimeoutError("busy")

    result = await Executor([api], clock=clock).run([Call("api"), Call("api")])

    assert [each.attempts for each in result.results] == [4, 4]
    assert [round(at) for at in starts] == [60 * n for n in range(8)]


def test_an_order_that_there_is_not_is_refused() -> None:
    @tool(order="sideways")  # type: ignore[call-overload]
    async def odd() -> None: ...

    with pytest.raises(ConfigError, match="order is 'sideways', expected parallel or plan"):
        Executor([odd])
    with pytest.raises(ConfigError, match="order is 'sideways', expected 'parallel' or 'plan'"):
        Executor([], settings={"order": "sideways"})


@given(
    st.lists(st.tuples(st.sampled_from("xyz"), st.none() | st.integers(0, 9), st.booleans()), min_size=1, max_size=10),
    st.sampled_from(["parallel", "plan"]),
)
def test_whatever_a_plan_looks_like_it_comes_to_its_end_and_independent_calls_keep_their_order(
    plan: list[tuple[str, int | None, bool]], order: str
) -> None:
    line = Line()
    calls = []
    for number, (path, source, is_path) in enumerate(plan):
        content = None if source is None or source >= len(plan) else f"†state.v{source}"
        given_path = content if is_path and content else path
        calls.append(put(f"c{number}", path=given_path, content=content, output_path=f"†state.v{number}"))

    async def run() -> Any:
        made = Executor(line.tools, settings={"order": order})
        return await asyncio.wait_for(made.run(Action(tuple(calls))), 2)

    result = asyncio.run(run())

    assert len(result.results) == len(plan)
    free = {f"c{n}" for n, (_, source, _) in enumerate(plan) if source is None or source >= len(plan)}
    if len(free) == len(plan):
        for path in "xyz" if order == "parallel" else ["xyz"]:
            mine = [f"c{n}" for n, (each, _, _) in enumerate(plan) if each in path]
            assert [name for name in line.began if name in mine] == mine


def test_the_work_for_the_order_is_proportional_to_the_calls() -> None:
    @tool(effect="idempotent", resources=by_path)
    async def take(path: str, content: Any = None) -> str:
        return "y"

    def run(size: int) -> None:
        calls = [Call("take", {"path": "x", "content": f"†state.v{size - 1}"}, output_path="†state.first")]
        calls += [Call("take", {"path": "x"}, output_path=f"†state.v{n}") for n in range(size)]
        assert asyncio.run(Executor([take]).run(calls)).status == "ok"

    assert growth(run, 150) <= 2.2


@pytest.mark.parametrize("by", ["messages", "results"])
async def test_a_call_may_run_after_one_of_an_earlier_tick_of_its_run(by: str) -> None:
    line = Line()

    @tool(effect="read")
    async def fail() -> None:
        raise RuntimeError("no")

    made = Executor([*line.tools, fail])
    first = await made.run([Call("find", {"name": "well"}, id="1.1"), Call("fail", id="1.2")])
    calls = [Call("find", {"name": after}, after=(after,)) for after in ("1.1", "1.2", "1.3")]
    if by == "messages":
        second = await made.run(calls, context=first.messages)
    else:
        run = RunContext("r", "goal", results=(first,))
        second = await made.act(Action(tuple(calls)), Context("main", "c2", "s", run=run))

    kinds = [each.fault.kind if each.fault else "" for each in second.results]
    assert sorted(kinds) == ["", "bad_reference", "dep_failed"]
    assert line.began == ["well", "1.1"]
