"""Processes that die and stores that fail between a question and its end: nothing runs twice, nothing is lost."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from datetime import timedelta
from itertools import groupby
from typing import Any

import pytest

from acting import Executor
from spar.bus.bus import Events
from spar.errors import TransientError
from spar.events import ApprovalResolved
from spar.hooks import Decision, HookContext, Hooks
from spar.ports.any_part import has
from spar.ports.phases import OptionalActor
from spar.ports.rows import InMemory
from spar.protocols import Context, Host, RunContext
from spar.protocols.tools import tool
from spar.records.approvals import Approval, DecidedError
from spar.testing import VirtualClock
from spar.threads import SLICE
from spar.types import Action, ActionResult, Call, CallResult
from tests.acting.approval_tools import World, answer, cycle, desk_of, executor, faults, on_hand, pending, statuses
from tests.acting.run.test_journal import Told
from tests.waiting import until


class Died(BaseException):
    """The process is gone."""


class Mortal(InMemory):
    """A store whose process dies at the `dies_at`-th change, before or after it is on disk."""

    def __init__(self) -> None:
        super().__init__()
        self.changes, self.dies_at, self.is_after, self.is_dead = 0, 0, False, False

    async def keep(self, kind: str, id: str, value: Any, *, expect: int | None = None) -> int:
        return await self._change(super().keep(kind, id, value, expect=expect))

    async def drop(self, kind: str, id: str) -> bool:
        return await self._change(super().drop(kind, id))

    async def _change(self, work: Any) -> Any:
        self.changes += 1
        is_last = self.changes == self.dies_at
        if self.is_dead or (is_last and not self.is_after):
            work.close()
            self.is_dead = True
            raise Died
        found = await work
        if is_last:
            self.is_dead = True
            raise Died
        return found

    async def load(self, key: str) -> Any: ...
    async def save(self, key: str, value: Any) -> None: ...


class Failing(Mortal):
    """A store that fails once at the `dies_at`-th change, before or after it is on disk."""

    async def _change(self, work: Any) -> Any:
        try:
            return await super()._change(work)
        except Died:
            self.is_dead = False
            raise TransientError("the disk is busy") from None


CALLS = (
    Call("act", {"what": "a"}, id="a", output_path="†state.a"),
    Call("act", {"what": "b"}, id="b", output_path="†state.b"),
    Call("plain", {"what": "†state.a || †state.b"}, id="either"),
    Call("plain", {"what": ["†state.b.did"]}, id="then"),
)


async def lived(
    clock: VirtualClock, store: Mortal, world: World, results: list[ActionResult], *, is_first: bool
) -> None:
    """One process: it plans (if it is the first), answers what waits, and goes on until nothing is left."""
    async with executor(world, clock, store=store, hold=0.0) as made:  # type: ignore[arg-type]
        if is_first:
            results.append(await made.act(Action(CALLS), cycle(clock)))
        for _ in range(6):
            for row in await desk_of(made).list():
                with suppress(DecidedError, TransientError):  # its call has ended meanwhile; or the person tries again
                    await answer(made, row)
                if (found := made.resumable("main")) is not None:
                    results.append(await made.act(found, cycle(clock)))
            if (found := made.resumable("main")) is not None:
                results.append(await made.act(found, cycle(clock)))
        assert made.resumable("main") is None, "it would go on in every cycle to come"
        for row in await desk_of(made).list(None):
            assert row.status not in ("pending", "approved"), f"{row.status}: nobody will ever use it"


@pytest.mark.parametrize("is_after", [False, True])
async def test_a_process_that_dies_at_any_change_of_the_store_runs_nothing_twice_and_loses_nothing(
    clock: VirtualClock, is_after: bool
) -> None:
    whole = Mortal()
    await lived(clock, whole, World(), [], is_first=True)
    assert whole.changes > 10
    for at in range(1, whole.changes + 1):
        world, results, store = World(), list[ActionResult](), Mortal()
        store.dies_at, store.is_after = at, is_after
        try:
            await lived(clock, store, world, results, is_first=True)
        except Died:
            store.is_dead = False
        await lived(clock, store, world, results, is_first=False)

        done = [str(what) for what in world.done]
        assert len(done) == len(set(done)), (at, done)
        assert sum(what.startswith("{") for what in done) <= 1, (at, done)  # what reads either of two
        told = {status for result in results for status in statuses(result)}
        rows = await store.records("approval")
        for name in ("a", "b"):
            mine = [row.value["status"] for row in rows if row.value["call"]["params"]["what"] == name]
            # Run, told as unclear, void (the cycle that asked broke off), or not asked about before the end.
            assert name in done or "in_doubt" in told or set(mine) <= {"void"}, (at, name, done, told, mine)
        assert await store.records("parked") == [], at


@pytest.mark.parametrize("is_after", [False, True])
async def test_a_store_that_fails_once_at_any_change_leaves_nothing_to_run_twice(
    clock: VirtualClock, is_after: bool
) -> None:
    for at in range(1, 16):
        world, results, store = World(), list[ActionResult](), Failing()
        store.dies_at, store.is_after = at, is_after
        for is_first in (True, False):
            try:
                await lived(clock, store, world, results, is_first=is_first)
            except TransientError:
                continue
        done = [str(what) for what in world.done]
        assert len(done) == len(set(done)), (at, done)


# -- what ends without its approval


async def parked_and_approved(made: Executor, clock: VirtualClock, *calls: Call, trust: Any = None) -> Any:
    await made.act(Action(calls or (Call("act", {"what": 1}, id="a"),), trust=trust), cycle(clock))
    (asked,) = await pending(made)
    await answer(made, asked)
    return asked


async def test_a_parked_call_whose_approval_is_lost_is_denied_and_its_record_dropped(clock: VirtualClock) -> None:
    world = World()
    store: Any = Mortal()
    async with executor(world, clock, store=store, hold=0.0) as made:
        asked = await parked_and_approved(made, clock, Call("act", {"what": 1}, id="a", output_path="†state.a"),
                                          Call("plain", {"what": "†state.a"}, id="b"))  # fmt: skip
    await store.drop("approval", asked.id)
    async with executor(world, clock, store=store) as made:
        result = await made.act(on_hand(made), cycle(clock))
        assert statuses(result) == ["denied denied", "skipped dep_failed"]
        assert made.resumable("main") is None
    assert await store.records("parked") == []
    assert world.done == []


async def test_who_looks_before_the_store_is_attached_does_not_make_approvals_forgettable(clock: VirtualClock) -> None:
    world = World()
    store: Any = Mortal()
    made = executor(world, clock, hold=0.0)
    assert await desk_of(made).list(None) == []
    made.attach(Host("main", clock, Events("main", clock=clock), None, lambda: None, store, None, lambda session: None))
    async with made:
        asked = await parked_and_approved(made, clock)
    assert [row.id for row in await store.records("approval")] == [asked.id]


async def test_a_parked_call_whose_tool_is_gone_ends_once_and_its_approval_is_void(clock: VirtualClock) -> None:
    world, store, heard = World(), Mortal(), Events("main", clock=clock)
    async with executor(world, clock, store=store, hold=0.0) as made:  # type: ignore[arg-type]
        asked = await parked_and_approved(made, clock)
    told: list[tuple[str, str]] = []
    heard.subscribe(ApprovalResolved, lambda event: told.append((event.decision, event.reason)))
    other = executor(world, clock, store=store, tools=world.tools()[1:], events=heard)  # type: ignore[arg-type]
    async with other as made:
        result = await made.act(on_hand(made), cycle(clock))
        assert (statuses(result), faults(result)) == (["failed"], ["unknown_tool"])
        assert made.resumable("main") is None
        assert (await desk_of(made).get(asked.id)).status == "void"
    await asyncio.sleep(0)
    assert told == [("void", "its call ended without it")]
    assert (await store.records("parked"), world.done) == ([], [])


async def test_a_parked_call_that_a_hook_denies_ends_once(clock: VirtualClock) -> None:
    world, hooks = World(), Hooks()
    made = Executor(world.tools(), clock=clock, hooks=hooks, settings={"approval": {"hold": 0.0}})
    await parked_and_approved(made, clock)

    async def against(ctx: HookContext) -> Decision:
        return Decision.deny("not now")

    hooks.add("before_call", against)
    assert statuses(await made.act(on_hand(made), cycle(clock))) == ["denied denied"]
    assert made.resumable("main") is None
    assert [row.status for row in await desk_of(made).list(None)] == ["void"]


async def test_an_approval_that_nobody_uses_expires_and_what_waits_for_it_ends(clock: VirtualClock) -> None:
    woken = list[str]()
    made = executor(World(), clock, hold=0.0, expires=60.0, resumed=woken)
    asked = await parked_and_approved(made, clock)
    await clock.sleep(61.0)
    await until(lambda: len(woken) == 2)
    assert (await desk_of(made).get(asked.id)).status == "expired"
    assert statuses(await made.act(on_hand(made), cycle(clock))) == ["denied expired"]
    assert made.resumable("main") is None


# -- a question ends with its call


class Held(Mortal):
    """A store that takes a row when it is let, also one for which nobody waits any more."""

    def __init__(self) -> None:
        super().__init__()
        self.may_take, self.held = asyncio.Event(), list[str]()
        self.says = True  # whether it says that it has taken a row

    async def keep(self, kind: str, id: str, value: Any, *, expect: int | None = None) -> int:
        return await asyncio.shield(asyncio.ensure_future(self._take(kind, id, value, expect)))

    async def _take(self, kind: str, id: str, value: Any, expect: int | None) -> int:
        self.held.append(id)
        says = self.says
        await self.may_take.wait()
        version = await super().keep(kind, id, value, expect=expect)
        if not says:
            raise TransientError("the store did not answer")
        return version


async def left_over(made: Executor, store: Mortal) -> list[str]:
    """How the questions have ended once nothing is open, in the store and in memory."""
    await asyncio.sleep(0.001)  # all that does not wait for a clock
    rows = [row.value["status"] for row in await store.records("approval")]
    assert not {"pending", "approved"}.intersection(rows)
    assert (await desk_of(made).list(), made.waiting_runs()) == ([], set())
    assert [row.status for row in await desk_of(made).list(None)] == rows
    return rows


@pytest.mark.parametrize("says", [True, False], ids=["the store says so", "it does not"])
@pytest.mark.parametrize("taken", ["before", "after"])
@pytest.mark.parametrize("way", ["steered", "cancelled"])
async def test_a_question_ends_with_its_call_also_while_it_is_being_written(
    clock: VirtualClock, way: str, taken: str, says: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world, store, events, told = World(), Held(), Events("main", clock=clock), list[str]()
    events.subscribe(ApprovalResolved, lambda event: told.append(event.decision))
    store.says = says
    made = executor(world, clock, store=store, events=events)  # type: ignore[arg-type]
    context = Context("main", "c1", "main", run=RunContext("r1", "goal"))
    acting = asyncio.ensure_future(made.act(Action((Call("act", {"what": 1}, id="a"),)), context))
    await until(lambda: store.held)

    def end() -> None:
        made.steer("r1") if way == "steered" else acting.cancel()

    if taken == "before":
        store.may_take.set()  # the row is taken in the same turn of the loop in which its call ends
        end()
    else:
        end()
        await asyncio.wait([acting])
        assert await desk_of(made).list() == []
        store.may_take.set()
    await asyncio.wait([acting])
    store.says = True

    ended = await left_over(made, store)
    assert (ended, told, world.done) == ((["void"], ["void"], []) if says else ([], [], []))
    # The same call of a later cycle has a question of its own.
    again = asyncio.ensure_future(made.act(Action((Call("act", {"what": 1}, id="b"),)), cycle(clock)))
    (asked,) = await pending(made)
    await answer(made, asked)
    assert statuses(await again) == ["ok"]
    gc.collect()
    assert caplog.messages == []


async def test_a_question_whose_end_the_store_did_not_take_takes_no_answer_and_ends_later(clock: VirtualClock) -> None:
    world, store = World(), Mortal()
    made = executor(world, clock, store=store)  # type: ignore[arg-type]
    context = Context("main", "c1", "main", run=RunContext("r1", "goal"))
    acting = asyncio.ensure_future(made.act(Action((Call("act", {"what": 1}),)), context))
    (asked,) = await pending(made)
    keep, store.keep = store.keep, Failing.keep.__get__(Lost())  # type: ignore[method-assign]
    made.steer("r1")
    assert statuses(await acting) == ["skipped steered"]

    assert await desk_of(made).list() == []
    with pytest.raises(DecidedError, match="not started because of a new message"):
        await answer(made, asked)
    store.keep = keep  # type: ignore[method-assign]
    await clock.sleep(11.0)
    assert await left_over(made, store) == ["void"]


class Stopping(Mortal):
    """A store that stops at a change until it may go on, and makes it also when nobody waits any more."""

    def __init__(self) -> None:
        super().__init__()
        self.stops_at, self.may_go_on, self.is_stopped = "", asyncio.Event(), asyncio.Event()

    async def keep(self, kind: str, id: str, value: Any, *, expect: int | None = None) -> int:
        return await self._later(f"keep {kind}", super().keep(kind, id, value, expect=expect))

    async def drop(self, kind: str, id: str) -> bool:
        return await self._later(f"drop {kind}", super().drop(kind, id))

    async def _later(self, what: str, work: Any) -> Any:
        async def change() -> Any:
            if what == self.stops_at:
                self.is_stopped.set()
                await self.may_go_on.wait()
            return await work

        return await asyncio.shield(asyncio.ensure_future(change()))


async def cut_while(store: Stopping, stops_at: str, acting: Any) -> None:
    """Cancel a cycle while the store holds back a change; then let the store go on."""
    store.stops_at, task = stops_at, asyncio.ensure_future(acting)
    await store.is_stopped.wait()
    task.cancel()
    await asyncio.sleep(0.01)
    store.may_go_on.set()
    await asyncio.wait([task])
    assert task.cancelled()


@pytest.mark.parametrize("stops_at", ["keep parked", "drop parked"])
async def test_a_cycle_that_is_cut_off_while_it_parks_its_calls_parks_them_once(
    clock: VirtualClock, stops_at: str
) -> None:
    world, store, told = World(), Stopping(), Told()
    made = Executor(world.tools(), journal=told, settings={"approval": {"hold": 0.0}})
    made.attach(Host("main", clock, Events("main", clock=clock), None, lambda: None, store))  # type: ignore[arg-type]
    async with made:
        await parked_and_approved(made, clock)
        calls = (*on_hand(made).calls, Call("act", {"what": 2}, id="b"))  # the record of the first is dropped
        told.facts.clear()
        await cut_while(store, stops_at, made.act(Action(calls), cycle(clock)))

        (asked,) = await pending(made)
        (record,) = await store.records("parked")
        assert list(record.value["waits"].values()) == [asked.id]
        assert (world.done, told.facts.count(("ended", "b", "skipped"))) == ([1], 1)


async def test_calls_that_an_earlier_process_parked_stay_in_its_record_also_if_their_cycle_is_cut_off_again(
    clock: VirtualClock,
) -> None:
    world, store, calls = World(), Stopping(), (Call("act", {"what": 1}, id="a"), Call("act", {"what": 2}, id="b"))
    context = Context("main", "c1", "main")
    async with executor(world, clock, store=store, hold=0.0) as made:  # type: ignore[arg-type]
        (parked,) = (await made.act(Action(calls[:1]), context)).results
    made = executor(world, clock, store=store, hold=0.0)  # type: ignore[arg-type]
    made.attach(Host("main", clock, Events("main", clock=clock), None, lambda: None, store, journal=OpenCycles()))  # type: ignore[arg-type]
    async with made:
        known = Context("main", "c1", "main", known=(parked,))
        await cut_while(store, "keep parked", made.act(Action(calls), known))

    records = [row.value["calls"] for row in await store.records("parked")]
    assert sorted(call["what"] for calls in records for call in calls) == [1, 2]


class Lost(Failing):
    """A store that takes nothing."""

    async def _change(self, work: Any) -> Any:
        work.close()
        raise TransientError("the disk is busy")


class OpenCycles(Told):
    """A journal of a process that died in a cycle."""

    cycles: frozenset[str] = frozenset({"c1"})

    def is_open(self, work: str) -> bool:
        return work in self.cycles


async def died_asking(world: World, clock: VirtualClock, call: Call) -> tuple[Mortal, Approval]:
    """What a process leaves on disk that died while it asked about a call in cycle c1, and the question."""
    store, left = Mortal(), Mortal()
    made = executor(world, clock, store=store)  # type: ignore[arg-type]
    acting = asyncio.ensure_future(made.act(Action((call,)), Context("main", "c1", "main")))
    (asked,) = await pending(made)
    left._rows = dict(store._rows)
    acting.cancel()
    await asyncio.wait([acting])
    await desk_of(made).close()
    return left, asked


@pytest.mark.parametrize("ended", [("skipped", "steered"), ("denied", "denied"), ("failed", "")])
async def test_a_question_that_a_crash_left_behind_its_call_is_closed_when_the_cycle_goes_on(
    clock: VirtualClock, ended: tuple[Any, str]
) -> None:
    world, call = World(), Call("act", {"what": 1}, id="a")
    store, asked = await died_asking(world, clock, call)
    events, told = Events("main", clock=clock), list[str]()
    events.subscribe(ApprovalResolved, lambda event: told.append(event.decision))
    made = executor(world, clock, store=store, events=events)  # type: ignore[arg-type]
    made.attach(Host("main", clock, events, None, lambda: None, store, journal=OpenCycles()))  # type: ignore[arg-type]
    async with made:
        assert [row.id for row in await desk_of(made).list()] == [asked.id]  # its cycle may still ask
        known = (CallResult(call, ended[0], ended[1]),)
        result = await made.act(Action((call,)), Context("main", "c1", "main", known=known))
        assert statuses(result) == [" ".join(ended).strip()]
        assert (await left_over(made, store), told, world.done) == (["void"], ["void"], [])


async def test_a_question_of_a_cycle_that_does_not_go_on_after_a_crash_is_closed(clock: VirtualClock) -> None:
    world, journal = World(), OpenCycles()
    store, _ = await died_asking(world, clock, Call("act", {"what": 1}))
    made = executor(world, clock, store=store)  # type: ignore[arg-type]
    host = Host("main", clock, Events("main", clock=clock), None, lambda: None, store, journal=journal)  # type: ignore[arg-type]
    made.attach(host)
    async with made:
        journal.cycles = frozenset()  # the recovery has closed it: it had been cut off too often
        assert has(made, OptionalActor.abandon, OptionalActor.close_questions, OptionalActor.waiting_runs)
        await made.close_questions()
        assert await left_over(made, store) == ["void"]


# -- stores


class Slow(Mortal):
    """A store that keeps some rows without ever saying so."""

    kinds: frozenset[str] = frozenset()

    async def keep(self, kind: str, id: str, value: Any, *, expect: int | None = None) -> int:
        found = await super().keep(kind, id, value, expect=expect)
        if kind in self.kinds:
            raise TransientError("the store did not answer")
        return found


async def test_an_answer_that_the_store_took_without_saying_so_is_not_lost(clock: VirtualClock) -> None:
    world, store, woken = World(), Slow(), list[str]()
    made = executor(world, clock, store=store, hold=0.0, resumed=woken)  # type: ignore[arg-type]
    await made.act(Action((Call("act", {"what": 1}),)), cycle(clock))
    (asked,) = await pending(made)
    store.kinds = frozenset({"approval"})
    with pytest.raises(TransientError):
        await answer(made, asked)
    store.kinds = frozenset()
    assert woken == []
    with pytest.raises(DecidedError):
        await answer(made, asked)
    assert woken == ["main"]
    assert statuses(await made.act(on_hand(made), cycle(clock))) == ["ok"]


async def test_what_was_told_as_denied_because_it_could_not_be_kept_does_not_run_later(clock: VirtualClock) -> None:
    world, store, woken = World(), Slow(), list[str]()
    made = executor(world, clock, store=store, hold=1.0, resumed=woken)  # type: ignore[arg-type]
    running = asyncio.ensure_future(made.act(Action((Call("act", {"what": 1}),)), cycle(clock)))
    (asked,) = await pending(made)
    store.dies_at = 0
    store.kinds = frozenset({"approval"})  # it cannot be parked, nor made void
    assert statuses(await running) == ["denied denied"]
    store.kinds = frozenset()
    with suppress(DecidedError):
        await answer(made, asked)
    with suppress(DecidedError):
        await answer(made, asked)
    assert (made.resumable("main"), await store.records("parked")) == (None, [])
    assert world.done == []


async def test_others_have_their_turn_while_many_parked_calls_are_denied(clock: VirtualClock) -> None:
    class Full(Mortal):
        async def keep(self, kind: str, id: str, value: Any, *, expect: int | None = None) -> int:
            if kind == "parked":
                raise ValueError("it is too large")
            return await super().keep(kind, id, value, expect=expect)

    async def others() -> None:
        while True:
            told.facts.append(("turn",))
            await asyncio.sleep(0)

    told = Told()
    made = Executor(World().tools(), journal=told, settings={"approval": {"hold": 0.0}})
    made.attach(Host("main", clock, Events("main", clock=clock), None, lambda: None, Full()))  # type: ignore[arg-type]
    calls = (Call("act", {"what": 1}, id="a"), *[Call("plain", {"what": n}, after=("a",)) for n in range(10 * SLICE)])
    async with made:
        turns = asyncio.ensure_future(others())
        result = await made.act(Action(calls), cycle(clock))
        turns.cancel()

    assert statuses(result) == ["denied denied"] * len(calls)
    ends = [fact[-1] for fact in told.facts]
    assert ends.count("denied") == len(calls)
    assert max(len(list(run)) for end, run in groupby(ends) if end == "denied") == SLICE


async def test_many_questions_to_a_store_that_hangs_are_all_denied_together(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    import spar.ports.rows as rows

    class Hanging(Mortal):
        async def keep(self, kind: str, id: str, value: Any, *, expect: int | None = None) -> int:
            await asyncio.Event().wait()
            raise AssertionError

    monkeypatch.setattr(rows, "WITHIN", 0.05)
    made = executor(World(), clock, store=Hanging(), max_pending=100)  # type: ignore[arg-type]
    began = asyncio.get_running_loop().time()
    result = await made.run([Call("act", {"what": number}) for number in range(40)])

    assert statuses(result) == ["denied denied"] * 40
    assert asyncio.get_running_loop().time() - began < 1.0


async def test_of_thousands_of_sessions_so_many_questions_wait_in_all(clock: VirtualClock) -> None:
    made = executor(World(), clock, hold=0.0, max_pending=2)
    results = [await made.act(Action((Call("act", {"what": n}),)), cycle(clock, f"s{n}")) for n in range(30)]

    assert sum(statuses(result) == ["skipped parked"] for result in results) == 20
    refused = results[-1].results[0].fault
    assert "20 calls wait for an approval already" in refused.message


# -- clocks


async def test_a_wall_clock_that_was_set_back_gives_no_question_more_time(clock: VirtualClock) -> None:
    store = Mortal()
    async with executor(World(), clock, store=store, hold=0.0, expires=60.0) as made:  # type: ignore[arg-type]
        await made.act(Action((Call("act", {"what": 1}),)), cycle(clock))
        (asked,) = await pending(made)
    (row,) = await store.records("approval")
    later = {**row.value, "expires_at": asked.expires_at + timedelta(days=365)}
    await store.keep("approval", row.id, later)
    async with executor(World(), clock, store=store, expires=60.0) as made:  # type: ignore[arg-type]
        assert len(await pending(made)) == 1
        await clock.sleep(61.0)
        await asyncio.sleep(0.01)
        assert [each.status for each in await desk_of(made).list(None)] == ["expired"]


# -- what binds a call


async def test_a_grant_lets_no_call_choose_who_carries_it_out(clock: VirtualClock) -> None:
    schema = {"type": "object", "properties": {"_tool": {"const": "send"}, "to": {"type": "string"}}}
    done: list[str] = []

    async def mail(call: Call, schema: Any, context: Any) -> str:
        done.append("mail")
        return "sent"

    async def post(call: Call, schema: Any, context: Any) -> str:
        done.append("post")
        return "sent"

    made = Executor([schema], activities={"send": mail, "post": post}, clock=clock, settings={
        "approval": {"hold": 0.0, "rules": [{"tool": "send", "decision": "ask"}]}})  # fmt: skip
    call = Call("send", {"to": "x"}, output_path="†state.sent")
    await made.act(Action((call,)), cycle(clock))
    (asked,) = await pending(made)
    await answer(made, asked, grant_for=600.0)
    await made.act(on_hand(made), cycle(clock))
    assert statuses(await made.act(Action((call,)), cycle(clock))) == ["ok"]
    by_post = Call("send", {"to": "x"}, output_path="†state.sent", meta={"_activity": "post"})
    assert faults(await made.act(Action((by_post,)), cycle(clock))) == ["bad_call"]
    assert done == ["mail", "mail"]


async def test_another_tool_of_the_same_name_and_schema_is_not_what_was_approved(clock: VirtualClock) -> None:
    world, store = World(), Mortal()
    async with executor(world, clock, store=store, hold=0.0) as made:  # type: ignore[arg-type]
        await parked_and_approved(made, clock)

    @tool(name="act", approval="ask")
    async def quite_another(what: Any = None) -> Any:
        world.done.append("another")
        return what

    async with executor(world, clock, store=store, tools=[quite_another]) as made:  # type: ignore[arg-type]
        assert faults(await made.act(on_hand(made), cycle(clock))) == ["drift"]
    assert world.done == []
