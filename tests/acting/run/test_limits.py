"""What a call passes before it starts: how many at once, what excludes what, how often."""

import asyncio
from collections.abc import Callable
from math import inf
from typing import Any, ClassVar

import pytest

from acting import Executor
from acting.tooling.limits import Rate
from spar.errors import ConfigError, TransientError
from spar.hooks import HookContext, Hooks
from spar.protocols import Host
from spar.protocols.tools import tool
from spar.testing import RecordingEvents, VirtualClock
from spar.types import Call
from tests.waiting import until

SECONDS = 1e-3  # what a virtual clock may be off


class Timeline:
    """Tools that say when they began, under a virtual clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.starts: list[tuple[Any, float]] = []
        self.running: set[Any] = set()
        self.together: set[frozenset[Any]] = set()

    async def work(self, name: Any, seconds: float = 1.0) -> None:
        self.starts.append((name, round(self.clock.elapsed, 3)))
        self.running.add(name)
        self.together.add(frozenset(self.running))
        try:
            await self.clock.sleep(seconds)
        finally:
            self.running.discard(name)


@pytest.fixture
def line(clock: VirtualClock) -> Timeline:
    return Timeline(clock)


async def test_a_tool_is_started_no_more_often_than_its_rate_says_in_all_runs(
    clock: VirtualClock, line: Timeline
) -> None:
    @tool(effect="read", rate="3/min")
    async def knock(n: int) -> None:
        await line.work(n, 0.0)

    executor = Executor([knock], clock=clock)
    for numbers in (range(5), [5], [6], [7]):
        assert (await executor.run([Call("knock", {"n": n}) for n in numbers])).status == "ok"

    assert [round(at) for _, at in line.starts] == [0, 0, 0, 60, 60, 60, 120, 120]
    assert [n for n, _ in line.starts] == list(range(8))


async def test_calls_that_share_a_resource_never_overlap_whatever_tool_they_are_of(
    clock: VirtualClock, line: Timeline
) -> None:
    @tool(effect="read", resources=("printer",))
    async def print_page(n: int) -> None:
        await line.work(f"p{n}")

    @tool(effect="read", resources=("paper", "printer"))
    async def refill() -> None:
        await line.work("refill")

    @tool(effect="read")
    async def other() -> None:
        await line.work("other")

    executor = Executor([print_page, refill, other], clock=clock)
    result = await executor.run(
        [Call("print_page", {"n": 1}), Call("refill"), Call("print_page", {"n": 2}), Call("other")]
    )
    assert clock.elapsed == pytest.approx(3.0, abs=SECONDS)

    assert result.status == "ok"
    assert not any({"p1", "refill"} <= group or {"p1", "p2"} <= group or {"p2", "refill"} <= group
                   for group in line.together)  # fmt: skip
    assert dict(line.starts)["other"] == 0.0


async def test_what_a_call_excludes_may_depend_on_its_parameters(clock: VirtualClock, line: Timeline) -> None:
    class Drawer:
        name, effect, timeout = "drawer", "read", 60.0
        schema: ClassVar[dict[str, Any]] = {"properties": {"_tool": {"const": "drawer"}, "label": {"type": "string"}}}

        def resources_of(self, params: Any) -> tuple[str, ...]:
            if params["label"] == "broken":
                raise RuntimeError("cannot tell")
            return (f"drawer:{params['label']}",)

        async def __call__(self, label: str) -> None:
            await line.work(label)

    executor = Executor([Drawer()], clock=clock)
    await executor.run([Call("drawer", {"label": each}) for each in ("a", "b", "a")])
    assert clock.elapsed == pytest.approx(2.0, abs=SECONDS)
    before = clock.elapsed
    await executor.run([Call("drawer", {"label": "broken"}) for _ in range(2)])
    assert clock.elapsed - before == pytest.approx(2.0, abs=SECONDS)  # it cannot tell: one after the other

    assert frozenset({"a", "b"}) in line.together


async def test_resources_taken_in_any_order_lead_to_no_deadlock(clock: VirtualClock, line: Timeline) -> None:
    names = ("a", "b", "c", "d")

    class Taker:
        name, effect, timeout, concurrency = "taker", "read", 60.0, 3
        schema: ClassVar[dict[str, Any]] = {
            "properties": {"_tool": {"const": "taker"}, "of": {"type": "array"}, "n": {"type": "integer"}}
        }

        def resources_of(self, params: Any) -> tuple[str, ...]:
            return tuple(params["of"])

        async def __call__(self, of: list[str], n: int) -> None:
            await line.work(n, 0.01)

    calls = [Call("taker", {"of": [names[(i * k) % 4] for k in (3, 2, 1)][:: 1 if i % 2 else -1], "n": i})
             for i in range(60)]  # fmt: skip
    result = await Executor([Taker()], clock=clock).run(calls)

    assert result.status == "ok"
    assert len(line.starts) == 60


async def test_a_call_that_waits_at_a_gate_is_cut_with_its_run_and_lets_the_next_one_through(
    clock: VirtualClock, line: Timeline
) -> None:
    @tool(effect="read", resources=("door",))
    async def enter(n: int) -> None:
        await line.work(n, 5.0)

    executor = Executor([enter], clock=clock)
    first = asyncio.create_task(executor.run([Call("enter", {"n": 1})]))
    await clock.sleep(0.1)
    second = asyncio.create_task(executor.run([Call("enter", {"n": 2})]))
    third = asyncio.create_task(executor.run([Call("enter", {"n": 3})]))
    await clock.sleep(0.1)
    second.cancel()
    await asyncio.gather(first, second, third, return_exceptions=True)

    assert [n for n, _ in line.starts] == [1, 3]
    assert second.cancelled()


async def test_a_detached_call_passes_the_same_gates(clock: VirtualClock, line: Timeline) -> None:
    @tool(effect="read", resources=("door",), rate="1/s")
    async def enter(n: int) -> None:
        await line.work(n, 3.0)

    async with Executor([enter], clock=clock, settings={"drain": 60.0}) as executor:
        await executor.run([Call("enter", {"n": n}, meta={"_detach": True}) for n in range(2)])
        result = await executor.run([Call("enter", {"n": 9})])

    assert result.status == "ok"
    assert {n for n, _ in line.starts} == {0, 1, 9}
    assert all(len(group) == 1 for group in line.together)


async def test_a_detached_call_that_gets_no_resource_does_not_start_and_the_next_one_asks_again() -> None:
    asked, begun = list[str](), list[int]()

    async def acquire(resource: str) -> Callable[[], None]:
        asked.append(resource)
        if len(asked) == 1:
            raise TransientError("the database does not answer")
        return lambda: asked.append("back")

    @tool(resources=("printer",), detach=True)
    async def print_page(page: int) -> None:
        begun.append(page)

    executor, clock = Executor([print_page]), VirtualClock()
    executor.attach(Host("main", clock, RecordingEvents("main"), Hooks(), lambda: None, acquire=acquire))
    await executor.run([Call("print_page", {"page": page}) for page in (1, 2)])
    await until(lambda: executor.snapshot()["detached"] == 0)
    later = await executor.run([])

    assert (begun, asked) == ([2], ["printer", "printer", "back"])
    assert [error["call"]["page"] for error in later.errors] == [1]
    assert "does not answer" in later.errors[0]["error"]["message"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("rate", ["5", "0/s", "5/week", "-1/s", "1.5/s", "1/s ", 5, None]),
        ("resources", ["door", ("",), (1,), ["door"]]),
    ],
)
def test_a_rate_that_makes_no_sense_and_resources_that_are_no_names_are_refused(name: str, values: list[Any]) -> None:
    async def knock() -> None: ...

    for value in values:
        with pytest.raises(ConfigError, match=f"tool 'knock': {name} is"):
            Executor([tool(**{name: value})(knock)])


async def test_a_rate_counts_only_starts_that_were_wanted(clock: VirtualClock) -> None:
    rate, started = Rate("2/s", clock), []
    assert rate.take("first", lambda who: True)
    assert rate.take("first", lambda who: True)
    for who in ("gone", "a", "b", "c"):
        assert not rate.take(who, lambda who: who != "gone" and not started.append(who))
    await clock.sleep(1.01)
    assert started == ["a", "b"]
    await clock.sleep(1.0)
    assert started == ["a", "b", "c"]


async def test_what_a_call_excludes_goes_on_while_a_hook_looks_at_its_result(clock: VirtualClock) -> None:
    line, looks, hooks = Timeline(clock), list[str](), Hooks()

    async def look(context: HookContext) -> None:
        looks.append(context.value.call.id)
        if context.value.call.id == "first":
            await clock.sleep(100)

    @tool(effect="read", resources=("door",), concurrency=1)
    async def enter(who: str) -> None:
        await line.work(who)

    hooks.add("after_call", look, timeout=inf)
    executor = Executor([enter], clock=clock, hooks=hooks)
    first = asyncio.ensure_future(executor.run([Call("enter", {"who": "a"}, id="first")]))
    await clock.sleep(0.5)
    await executor.run([Call("enter", {"who": "b"}, id="second")])
    assert clock.elapsed == pytest.approx(2.0, abs=SECONDS)
    assert (looks, first.done()) == (["first", "second"], False)
    await first
