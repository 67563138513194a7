"""What a tool's effect permits: retries, and what is said of a call that was cut off."""

import asyncio
from typing import Any, ClassVar

import pytest

from acting import Executor, ToolContext
from acting.run.order import Spending
from spar.budgets.budgets import Budgets
from spar.errors import InDoubtError, TransientError
from spar.facts import BudgetUsed
from spar.protocols.tools import tool
from spar.testing import RecordingEvents, VirtualClock
from spar.types import Call


class Web:
    """Reads or posts, as its parameters say."""

    name, effect, timeout, retries = "web", "once", 60.0, 2
    schema: ClassVar[dict[str, Any]] = {"properties": {"_tool": {"const": "web"}, "method": {"type": "string"}}}

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.hangs = asyncio.Event()

    def effect_of(self, params: Any) -> Any:
        return {"get": "read", "put": "idempotent", "bad": 5}.get(params["method"], self.effect)

    async def __call__(self, method: str) -> None:
        self.asked.append(method)
        if method.startswith("hang"):
            await self.hangs.wait()
        raise TransientError("busy")


async def test_the_effect_of_a_call_may_depend_on_its_parameters(clock: VirtualClock) -> None:
    web = Web()
    methods = ["get", "put", "post", "bad"]
    result = await Executor([web], clock=clock).run([Call("web", {"method": each}, id=each) for each in methods])

    assert [result.result(each).attempts for each in methods] == [3, 3, 1, 1]


async def test_a_reference_counts_by_what_stands_there(clock: VirtualClock) -> None:
    calls = [Call("web", {"method": f"†state.{each}"}, id=each) for each in ("get", "post")]
    result = await Executor([Web()], clock=clock).run(calls, state={"get": "get", "post": "post"})

    assert [result.result(each).attempts for each in ("get", "post")] == [3, 1]


async def test_a_tool_may_say_itself_that_nobody_can_tell() -> None:
    @tool(effect="once", retries=3)
    async def send() -> None:
        raise InDoubtError("the connection broke after the request had gone out")

    @tool(effect="read")
    async def look() -> str:
        return "here"

    result = await Executor([send, look]).run([Call("send", id="s"), Call("look", after=("s",)), Call("look")])

    assert [each.status for each in result.results] == ["in_doubt", "skipped", "ok"]
    assert result.result("s").attempts == 1
    assert "gone out" in result.errors[0]["error"]["message"]
    assert result.status == "partial"


async def test_every_attempt_has_the_same_key_and_a_higher_fence(clock: VirtualClock) -> None:
    seen: list[ToolContext] = []

    @tool(effect="idempotent", retries=2)
    async def put(context: ToolContext) -> None:
        seen.append(context)
        if len(seen) < 3:
            raise TransientError("busy")

    executor = Executor([put], clock=clock)
    await executor.run([Call("put", id="p")])
    await executor.run([Call("put", id="p")])

    keys = [each.idempotency_key for each in seen]
    assert len(set(keys[:3])) == 1
    assert keys[3] != keys[0]
    fences = [each.fence for each in seen]
    assert fences == sorted(set(fences))
    assert seen[0].tool["properties"]["_tool"]["const"] == "put"
    assert [each.attempt for each in seen] == [1, 2, 3, 1]


# -- when what a call uses is written down


class Journal:
    """Keeps the order of what it is told, and is asked to be safe at "safe"."""

    epoch = 1

    def __init__(self) -> None:
        self.order: list[str] = []

    def append(self, fact: Any) -> None:
        self.order += [type(fact).__name__] * (len(fact.spends) if isinstance(fact, BudgetUsed) else 1)

    async def safe(self) -> None:
        self.order.append("safe")

    def next_fence(self, above: int = 0) -> int:
        return above + 1

    def is_open(self, work: str) -> bool:
        return False


def spending_of(clock: VirtualClock, journal: Any) -> Spending:
    budgets = Budgets({("hour", "effects"): 9}, clock, RecordingEvents())
    budgets.open(journal)
    return Spending(budgets)


@pytest.mark.parametrize("is_detached", [False, True])
async def test_what_a_call_uses_is_written_with_its_start_before_it_can_have_an_effect(
    clock: VirtualClock, is_detached: bool
) -> None:
    journal = Journal()

    @tool(effect="once")
    def tell() -> None:
        journal.order.append("effect")

    executor = Executor([tell], clock=clock, journal=journal)
    executor._runtime.spending = spending_of(clock, journal)

    async with executor:
        await executor.run([Call("tell", meta={"_detach": True} if is_detached else {})])
        while "effect" not in journal.order:
            await clock.sleep(0.01)

    order = [each for each in journal.order if each in ("BudgetUsed", "AttemptStarted", "safe", "effect")]
    assert order == ["BudgetUsed", "AttemptStarted", "safe", "effect"]


async def test_a_call_that_waits_for_a_worker_has_used_nothing_yet(clock: VirtualClock) -> None:
    journal, used = Journal(), list[int]()

    @tool(effect="once")
    async def tell() -> None:
        used.append(journal.order.count("BudgetUsed"))
        await clock.sleep(1)

    executor = Executor([tell], clock=clock, settings={"max_parallel": 2})
    executor._runtime.spending = spending_of(clock, journal)

    await executor.run([Call("tell") for _ in range(4)])

    assert used == [2, 2, 3, 4]  # those that run and no other
