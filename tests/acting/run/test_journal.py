"""What an executor writes down of its calls, and how it goes on with what another process wrote."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from acting import Executor, ToolContext
from memory import Memory
from memory.sqlite import database
from spar import facts
from spar.clock import SystemClock
from spar.errors import SparError
from spar.facts import Fact
from spar.protocols.tools import tool
from spar.types import Action, ActionResult, Call, CallResult, Message
from tests.journal.left import tell
from tests.waiting import cancelled, until


class Told:
    """A journal that only listens; `safe` waits until it is let."""

    epoch = 7

    def __init__(self) -> None:
        self.facts: list[tuple[Any, ...]] = []
        self.is_let = asyncio.Event()
        self.is_let.set()
        self.waits = 0

    def append(self, fact: Fact) -> None:
        match fact:
            case facts.Planned():
                self.facts.append(("acting", fact.cycle, [call.id for call in fact.action.calls]))
            case facts.CallsPlanned():
                self.facts += [("planned", call.id) for call in fact.calls]
            case facts.AttemptStarted():
                self.facts.append(("started", fact.call, fact.attempt, fact.effect, fact.allowed, fact.values))
            case facts.CallEnded():
                self.facts.append(("ended", fact.result.call.id, fact.result.status))
            case facts.CallDetached():
                self.facts.append(("detached", fact.action.calls[0].id, fact.effect))
            case facts.CallAttached():
                self.facts.append(("attached", fact.call))

    def next_fence(self, above: int = 0) -> int:
        return above + 1

    def is_open(self, work: str) -> bool:
        return False

    async def safe(self) -> None:
        self.waits += 1
        await self.is_let.wait()


@tool(effect="once")
async def pay(amount: int) -> int:
    return amount * 2


@tool(effect="read")
async def look(at: int) -> int:
    return at + 1


CHAIN = (
    Call("look", {"at": 1}, id="a", output_path="†state.a"),
    Call("pay", {"amount": "†state.a"}, id="b", output_path="†state.b"),
)


async def test_what_is_planned_started_and_ended_is_told_in_this_order_and_with_the_values() -> None:
    told = Told()

    result = await Executor([pay, look], journal=told).run(Action(CHAIN, id="x"))

    assert result.status == "ok"
    assert told.facts == [
        ("acting", "x", ["a", "b"]),
        ("started", "a", 1, "read", "auto", None),
        ("ended", "a", "ok"),
        ("started", "b", 1, "once", "auto", {"amount": 2}),
        ("ended", "b", "ok"),
    ]


async def test_a_call_with_an_effect_starts_only_when_that_it_does_is_safe_and_others_go_on_meanwhile() -> None:
    told, done = Told(), list[str]()

    @tool(effect="once")
    async def once(name: str) -> None:
        done.append(name)

    @tool(effect="read")
    async def read(name: str) -> None:
        done.append(name)

    told.is_let.clear()
    running = asyncio.ensure_future(
        Executor([once, read], journal=told).run(
            [Call(kind, {"name": f"{kind} {n}"}) for n in range(5) for kind in ("once", "read")]
        )
    )
    for turn in range(2_000):  # the first run of a process makes in a thread what checks its calls
        await asyncio.sleep(0 if turn < 20 or len(done) == 5 else 0.005)
    assert sorted(done) == [f"read {n}" for n in range(5)]

    told.is_let.set()
    assert (await running).status == "ok"
    assert sorted(done)[:5] == [f"once {n}" for n in range(5)]


async def test_calls_that_cannot_be_written_down_do_not_start_none_of_those_that_wait_for_one_flush() -> None:
    class Closed(Told):
        async def safe(self) -> None:
            await asyncio.sleep(0)
            raise SparError("the memory is closed")

    done = list[int]()

    @tool(effect="once")
    async def once(at: int) -> None:
        done.append(at)

    calls = [Call("look", {"at": 1}), *(Call("once", {"at": at}) for at in range(4))]
    result = await Executor([once, look], journal=Closed()).run(calls)

    assert done == []
    assert [each.status for each in result.results] == ["ok"] + ["failed"] * 4
    assert {each.attempts for each in result.results[1:]} == {0}
    why = "it could not be written down that it starts: the memory is closed"
    assert [(each.fault.kind, each.fault.message) for each in result.results[1:]] == [("io", why)] * 4


async def test_a_run_that_is_cancelled_before_its_start_was_safe_says_that_it_did_not_happen() -> None:
    told = Told()
    told.is_let.clear()
    executor = Executor([pay], journal=told)
    action = Action((Call("pay", {"amount": 1}, id="b"),))
    running = asyncio.ensure_future(executor.run(action))
    await until(lambda: told.waits)  # the first run of a process makes in a thread what checks its calls
    await cancelled(running)

    assert told.facts[-1] == ("ended", "b", "cancelled")


async def test_retries_are_told_with_their_number() -> None:
    told, tries = Told(), list[int]()

    @tool(effect="idempotent", retries=2)
    async def flaky() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("not yet")

    class Fast(SystemClock):
        async def sleep(self, seconds: float) -> None:
            await asyncio.sleep(0)

    await Executor([flaky], journal=told, clock=Fast()).run([Call("flaky", id="f")])

    assert [fact[2] for fact in told.facts if fact[0] == "started"] == [1, 2, 3]


async def test_a_detached_call_is_told_to_go_on_and_to_have_come_to_its_end() -> None:
    told = Told()
    async with Executor([pay], journal=told) as executor:
        await executor.run([Call("pay", {"amount": 1}, id="b", meta={"_detach": True})])

    assert [fact[0] for fact in told.facts[-5:]] == ["planned", "started", "detached", "ended", "attached"]


async def test_a_fence_is_higher_for_each_call_of_all_executors_and_processes_on_one_journal(tmp_path: Path) -> None:
    fences: list[int] = []

    @tool(effect="read")
    async def fenced(context: ToolContext) -> None:
        fences.append(context.fence)

    for _ in range(3):
        async with Memory.open(f"sqlite:///{tmp_path / 'm.db'}") as memory:
            executors = [Executor([fenced], journal=memory.journal) for _ in range(2)]
            for executor in executors * 2:
                await executor.run([Call("fenced"), Call("fenced")])

    assert fences == sorted(set(fences))
    assert len(fences) == 24
    assert fences[-1] < 2**53  # up to where every reader of JSON tells neighbours apart


@pytest.mark.parametrize("epoch", [1, 5, 2046, 2047, 5000])
async def test_a_fence_is_higher_than_those_of_a_file_of_before_and_stays_in_64_bits(
    tmp_path: Path, epoch: int
) -> None:
    path = f"{tmp_path / 'm.db'}"
    prepared = database.prepare(path, "off")
    prepared.connection.execute("UPDATE state SET value = ? WHERE key = 'epoch'", (str(epoch),))
    prepared.connection.execute("DELETE FROM state WHERE key = 'fence'")
    prepared.connection.close()
    last = (epoch << 52) + 1_000_000  # as they were given then
    for _ in range(3):
        async with Memory.open(f"sqlite:///{path}") as memory:
            fence = memory.journal.next_fence()
            assert fence < 2**63
            assert fence > last or last >= 2**63
            last = fence + 1000


async def test_an_executor_of_its_own_goes_on_with_what_an_earlier_process_had_done(tmp_path: Path) -> None:
    action = Action(
        (
            *CHAIN,
            Call("say", {"text": "†state.b"}, id="c"),
            Call("look", {"at": "†said.text"}, id="d", output_path="†state.d"),
        ),
        id="mine",
    )
    made: list[str] = []

    @tool(effect="idempotent")
    async def say(text: int) -> Message:
        made.append("say")
        return Message("said", {"text": text})

    @tool(effect="read")
    async def look_again(at: int) -> int:
        return at

    async with Memory.open(f"sqlite:///{tmp_path / 'm.db'}") as memory:
        journal = memory.journal
        whole = await Executor([pay, look, say]).run(action)
        journal.append(facts.Planned(session="main", cycle="mine", action=action))
        for result in whole.results[:3]:
            output = Message("said", {"text": 4}) if result.call.id == "c" else result.output
            tell(journal, facts.AttemptStarted, cycle="mine", call=result.call.id, attempt=1, effect="once")
            ended = CallResult(result.call, "ok", output=output, attempts=1)
            tell(journal, facts.CallEnded, cycle="mine", result=ended)
        await journal.safe()
        assert await journal.views.interrupted("other") is None
    made.clear()
    async with Memory.open(f"sqlite:///{tmp_path / 'm.db'}") as memory:
        known = await memory.journal.views.interrupted("mine")
        assert known.action is not None
        result = await Executor([pay, look, say], journal=memory.journal).run(known.action, resume=known)

    assert made == []
    assert result.state == whole.state == {"a": 2, "b": 4, "d": 5}
    assert [each.status for each in result.results] == ["ok"] * 4
    assert _plain(result.messages) == _plain(whole.messages)


async def test_a_large_result_is_whole_for_the_process_that_goes_on(tmp_path: Path) -> None:
    deep: Any = {"é": "x" * 9_000_000}
    for _ in range(100):
        deep = [deep]
    calls = (Call("give", id="a", output_path="†state.a"), Call("take", {"value": "†state.a"}, id="b"))
    action, given = Action(calls, id="mine"), list[Any]()

    @tool(effect="read")
    async def give() -> Any:
        return deep

    @tool(effect="read")
    async def take(value: Any) -> None:
        given.append(value)

    async with Memory.open(f"sqlite:///{tmp_path / 'm.db'}") as memory:
        memory.journal.append(facts.Planned(session="main", cycle="mine", action=action))
        await Executor([give], journal=memory.journal).run(Action(calls[:1], id="mine"))
        await memory.journal.safe()
    async with Memory.open(f"sqlite:///{tmp_path / 'm.db'}") as memory:
        known = await memory.journal.views.interrupted("mine")
        assert known is not None
        await Executor([give, take]).run(action, resume=known)

    assert given == [deep]


def _plain(messages: ActionResult | Any) -> list[dict[str, Any]]:
    return [{key: value for key, value in message.items() if key != "_date"} for message in messages]


async def test_calls_that_are_ready_together_wait_for_one_flush() -> None:
    told = Told()

    result = await Executor([pay], journal=told).run([Call("pay", {"amount": at}) for at in range(50)])

    assert [each.output for each in result.results] == [2 * at for at in range(50)]
    assert told.waits == 1
    assert [fact[0] for fact in told.facts if fact[0] != "planned"] == ["acting", *["started"] * 50, *["ended"] * 50]


async def test_no_more_calls_are_told_to_start_than_may_run_at_once() -> None:
    told, most = Told(), 0

    @tool(effect="once")
    async def slow(at: int) -> None:
        nonlocal most
        kinds = [fact[0] for fact in told.facts]
        most = max(most, kinds.count("started") - kinds.count("ended"))
        await asyncio.sleep(0)

    executor = Executor([slow], journal=told, settings={"max_parallel": 8})
    result = await executor.run([Call("slow", {"at": at}) for at in range(40)])

    assert result.status == "ok"
    assert 1 < most <= 8


async def test_no_more_of_those_that_arrive_during_a_flush_are_told_to_start_than_may_run_at_once() -> None:
    told = Told()

    @tool(effect="once")
    async def once(at: int) -> None:
        await asyncio.sleep(0)

    async def stream() -> AsyncIterator[Call]:
        for at in range(40):
            yield Call("once", {"at": at})
            await asyncio.sleep(0)

    told.is_let.clear()
    executor = Executor([once], journal=told, settings={"max_parallel": 8})
    running = asyncio.ensure_future(executor.run(stream()))
    await until(lambda: told.waits)  # the first run of a process makes in a thread what checks its calls
    for _ in range(100):
        await asyncio.sleep(0)
    assert 1 <= [fact[0] for fact in told.facts].count("started") <= 8
    told.is_let.set()
    assert (await running).status == "ok"
    assert [fact[0] for fact in told.facts].count("started") == 40
