"""The desk: durable questions, answers that count once, grants."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any, get_args

import pytest

from acting.approvals.decisions import KEPT, moved
from memory import Memory
from spar.bus.bus import Events
from spar.errors import TransientError
from spar.events import ApprovalExpired, ApprovalRequested, ApprovalResolved, CallCompleted, CallEvent, CallStarted
from spar.ports.rows import InMemory
from spar.protocols import Context
from spar.records.approvals import TRANSITIONS, Approval, ApprovalStatus, DecidedError, Decision
from spar.testing import VirtualClock
from spar.types import Action, Call
from tests.acting.approval_tools import World, answer, desk_of, executor, pending, remembering, statuses

STATUSES: tuple[ApprovalStatus, ...] = get_args(ApprovalStatus)


def row(status: ApprovalStatus, clock: VirtualClock) -> Approval:
    return Approval("a1", Call("act"), "d", clock.now(), clock.now(), status=status)


@pytest.mark.parametrize("old", STATUSES)
@pytest.mark.parametrize("new", STATUSES)
async def test_only_what_the_table_says_may_become_of_an_approval(
    old: ApprovalStatus, new: ApprovalStatus, clock: VirtualClock
) -> None:
    if new in TRANSITIONS[old]:
        assert moved(row(old, clock), new).status == new
    else:
        with pytest.raises(DecidedError, match=f"approval 'a1' is {old} and cannot become {new}"):
            moved(row(old, clock), new)


async def test_an_answer_in_time_lets_the_call_run_and_its_life_is_told_in_order(clock: VirtualClock) -> None:
    world, told, events = World(), [], Events("main", clock=clock)
    events.subscribe(CallEvent, told.append)
    made = executor(world, clock, events=events)
    running = asyncio.ensure_future(made.run([Call("act", {"what": 1}, id="x")]))
    (asked,) = await pending(made)

    assert (asked.call.params, asked.status, asked.effect, asked.why) == (
        {"what": 1}, "pending", "once", "tool 'act' is always asked about",
    )  # fmt: skip
    assert world.done == []
    await answer(made, asked, reason="fine")
    result = await running

    assert (statuses(result), world.done) == (["ok"], [1])
    kinds = [type(event) for event in told]
    assert kinds[1:] == [ApprovalRequested, ApprovalResolved, CallStarted, CallCompleted]
    assert told[1].call.meta["_approval"] == asked.id
    assert (told[2].decision, told[2].reason) == ("approve", "by alice: fine")
    assert (await desk_of(made).get(asked.id)).status == "used"


async def test_a_question_is_durable_before_anybody_hears_of_it(clock: VirtualClock, tmp_path: Path) -> None:
    async with remembering(tmp_path, clock) as memory:
        found: list[Any] = []

        class Listener:
            def publish(self, event: Any) -> None:
                if isinstance(event, ApprovalRequested):
                    reading = Memory.open(f"sqlite:///{tmp_path}/m.db", read_only=True)
                    found.append((reading, event.call.meta["_approval"]))

        made = executor(World(), clock, store=memory, events=Listener(), hold=1.0)
        async with made:
            await made.run([Call("act")])
        ((reading, id),) = found
        async with reading:
            assert [record.id for record in await reading.records("approval")] == [id]


async def test_a_denial_and_silence_deny(clock: VirtualClock) -> None:
    world, told, events = World(), [], Events("main", clock=clock)
    events.subscribe(ApprovalExpired, told.append)
    made = executor(world, clock, events=events, hold=100.0, expires=50.0)
    running = asyncio.ensure_future(made.run([Call("act", {"what": 1}), Call("act", {"what": 2})]))
    first, _ = await pending(made, 2)
    await answer(made, first, "deny", reason="not today")
    result = await running

    assert statuses(result) == ["denied denied", "denied expired"]
    assert result.results[0].fault.message == "not today"
    assert (world.done, len(told), clock.elapsed) == ([], 1, pytest.approx(50.0))
    assert [each.status for each in await desk_of(made).list(None)] in (["expired", "denied"], ["denied", "expired"])


async def test_an_edit_runs_what_it_says_as_data_and_keeps_what_was_asked(clock: VirtualClock) -> None:
    world = World()
    made = executor(world, clock)
    running = asyncio.ensure_future(
        made.run([Call("act", {"what": 1}, id="x", output_path="†state.y")], state={"z": 5})
    )
    (asked,) = await pending(made)
    decided = await answer(made, asked, "edit", params={"what": "†state.z"})
    result = await running

    assert world.done == ["†state.z"]
    assert result.state["y"] == {"did": "†state.z"}
    assert (decided.original, decided.call.params) == (asked.call, {"what": "†state.z"})
    assert decided.digest != asked.digest
    assert result.results[0].call.meta["_original"]["what"] == 1


@pytest.mark.parametrize(
    ("decision", "more", "sentence"),
    [
        ("edit", {"params": {"whatever": 1}}, "no parameter 'whatever'; known: what"),
        ("edit", {}, "'edit' needs 'params': what is to run"),
        ("edit", {"params": [1]}, "params must be an object (a dict with text as keys), found list"),
        ("edit", {"params": {"what": float("nan")}}, "nan and infinity cannot be written exactly"),
        ("approve", {"params": {}}, "'params' goes with 'edit' only, the decision is 'approve'"),
        ("deny", {"call": {}}, "'call' goes with 'replace' only, the decision is 'deny'"),
        ("replace", {"call": {"_tool": "none"}}, "no tool named 'none'"),
        ("replace", {"call": {"what": 1}}, "'_tool' is missing"),
        ("replace", {"call": {"_tool": "plain", "_after": ["a"]}}, "leave out '_after'"),
        ("replace", {"call": {"_tool": "plain", "_outputPath": "state"}}, "is not a reference"),
        ("maybe", {}, "the decision is 'maybe', expected approve"),
        ("deny", {"grant_for": 5.0}, "'grant_for' goes with 'approve' only"),
        ("approve", {"grant_for": 31 * 86_400.0}, "a grant lasts more than 0 and at most"),
        ("approve", {"grant_for": 0.0}, "a grant lasts more than 0 and at most"),
    ],
)
async def test_a_decision_that_cannot_be_carried_out_is_refused_and_decides_nothing(
    decision: Decision, more: dict[str, Any], sentence: str, clock: VirtualClock
) -> None:
    made = executor(World(), clock)
    running = asyncio.ensure_future(made.run([Call("act", {"what": 1})]))
    (asked,) = await pending(made)

    with pytest.raises(ValueError, match=r"(?s).*") as caught:
        await answer(made, asked, decision, **more)

    assert sentence in str(caught.value)
    assert (await desk_of(made).get(asked.id)) == asked
    assert list(await desk_of(made).grants()) == []
    await answer(made, asked, "deny")
    await running


async def test_approvals_go_by_the_beginning_of_their_id(clock: VirtualClock) -> None:
    made = executor(World(), clock)
    running = asyncio.ensure_future(made.run([Call("act", {"what": n}) for n in range(3)]))
    rows = await pending(made, 3)

    for each in rows:
        assert (await desk_of(made).get(each.id[:8])) == each
    for wrong in ("", "a", "zzz"):
        with pytest.raises(LookupError):
            await desk_of(made).get(wrong)
    for each in rows:
        await answer(made, each, "deny")
    await running


async def test_of_two_desks_on_one_store_only_one_decides_and_one_use_is_left(
    clock: VirtualClock, tmp_path: Path
) -> None:
    world = World()
    async with remembering(tmp_path, clock) as memory:
        one, other = executor(world, clock, store=memory), executor(world, clock, store=memory)
        running = asyncio.ensure_future(one.run([Call("act", {"what": 1})]))
        (asked,) = await pending(one)
        await desk_of(other).open()
        outcomes = await asyncio.gather(answer(one, asked), answer(other, asked, "deny"), return_exceptions=True)

        assert sum(isinstance(each, Approval) for each in outcomes) == 1
        assert sum(isinstance(each, DecidedError) for each in outcomes) == 1
        if isinstance(outcomes[1], Approval):
            running.cancel()
        else:
            assert statuses(await running) == ["ok"]


async def test_a_decision_after_the_expiry_changes_nothing(clock: VirtualClock) -> None:
    made = executor(World(), clock, hold=0.0, expires=60.0)
    assert statuses(await made.run([Call("act", {"what": 1})])) == ["skipped parked"]
    (asked,) = await pending(made)
    await asyncio.sleep(61.0)

    with pytest.raises(DecidedError, match="takes no decision any more: it is expired"):
        await answer(made, asked)


async def test_identical_calls_of_one_plan_are_answered_one_by_one(clock: VirtualClock) -> None:
    world = World()
    made = executor(world, clock)
    calls = [Call("act", {"what": 1}), Call("act", {"what": 1}), Call("act", {"what": 1})]
    running = asyncio.ensure_future(made.run(calls))
    asked = await pending(made, 3)
    decisions: tuple[Decision, ...] = ("approve", "deny", "approve")
    for row, decision in zip(asked, decisions, strict=True):
        await answer(made, row, decision)
    result = await running

    assert world.done == [1, 1]
    assert sorted(statuses(result)) == ["denied denied", "ok", "ok"]


async def test_questions_that_wait_are_bounded_by_run_and_the_rest_is_denied_with_the_reason(
    clock: VirtualClock,
) -> None:
    made = executor(World(), clock, hold=1.0, max_pending=3)
    result = await made.run([Call("act", {"what": n}) for n in range(20)])

    assert statuses(result).count("skipped parked") == 3
    refused = [each for each in result.results if each.status == "denied"]
    assert len(refused) == 17
    assert all(each.fault and "3 calls of session 'main' wait for an approval already" in each.fault.message
               for each in refused)  # fmt: skip


# -- grants


async def test_a_grant_lets_the_very_same_call_run_counted_until_it_ends(clock: VirtualClock) -> None:
    world, told, events = World(), [], Events("main", clock=clock)
    events.subscribe(ApprovalResolved, told.append)
    made = executor(world, clock, events=events)
    running = asyncio.ensure_future(made.run([Call("act", {"what": 1})]))
    (asked,) = await pending(made)
    decided = await answer(made, asked, grant_for=3600.0)
    await running
    (grant,) = await desk_of(made).grants()
    assert (grant.id, grant.tool, grant.params, grant.session) == (decided.grant, "act", {"what": 1}, "main")

    assert statuses(await made.run([Call("act", {"what": 1})])) == ["ok"]
    assert statuses(await made.run([Call("act", {"what": 1})])) == ["ok"]
    assert told[-1].decision == "approve"
    assert told[-1].reason.startswith(f"grant {grant.id} by alice until")
    assert told[-1].reason.endswith("use 2")
    assert (await desk_of(made).grants())[0].uses == 2
    await asyncio.sleep(3601.0)
    assert list(await desk_of(made).grants()) == []
    running = asyncio.ensure_future(made.run([Call("act", {"what": 1})]))
    await answer(made, (await pending(made))[0], "deny")
    assert statuses(await running) == ["denied denied"]


async def test_a_grant_of_one_session_is_none_of_another_and_a_revoked_one_none_at_all(clock: VirtualClock) -> None:

    made = executor(World(), clock, hold=0.0)

    async def in_session(session: str) -> list[str]:
        action = Action((Call("act", {"what": 1}),))
        return statuses(await made.act(action, Context("main", clock.new_id(), session)))

    assert await in_session("a") == ["skipped parked"]
    await answer(made, (await pending(made))[0], grant_for=60.0)
    assert [await in_session("a"), await in_session("b")] == [["ok"], ["skipped parked"]]
    await answer(made, (await pending(made))[0], grant_for=60.0, grant_session=False)
    assert await in_session("c") == ["ok"]
    for grant in await desk_of(made).grants():
        assert (await desk_of(made).revoke(grant.id)).id == grant.id
    assert [await in_session("a"), await in_session("c")] == [["skipped parked"], ["skipped parked"]]
    with pytest.raises(LookupError):
        await desk_of(made).revoke("g")


async def test_grants_of_another_process_are_used_and_revoked_ones_are_not(clock: VirtualClock) -> None:
    store = InMemory()
    here, there = (executor(World(), clock, store=store, hold=0.0) for _ in range(2))
    act = [Call("act", {"what": 1})]
    async with here, there:
        assert statuses(await there.run(act)) == ["skipped parked"]
        await answer(there, (await pending(there))[0], grant_for=3600.0)
        await here.take_over()
        (grant,) = await desk_of(here).grants()
        assert statuses(await here.run(act)) == ["ok"]
        await desk_of(there).revoke(grant.id)
        assert statuses(await here.run(act)) == ["skipped parked"]
        await here.take_over()
        assert list(await desk_of(here).grants()) == []


# -- the store


async def test_answers_and_grants_outlive_the_process(clock: VirtualClock, tmp_path: Path) -> None:
    world = World()
    async with remembering(tmp_path, clock) as memory:
        made = executor(world, clock, store=memory)
        async with made:
            running = asyncio.ensure_future(made.run([Call("act", {"what": 1})]))
            await answer(made, (await pending(made))[0], grant_for=60.0)
            await running
            before = await desk_of(made).list(None)
    async with remembering(tmp_path, clock) as memory:
        made = executor(world, clock, store=memory)
        async with made:
            assert await desk_of(made).list(None) == before
            assert statuses(await made.run([Call("act", {"what": 1})])) == ["ok"]
    assert world.done == [1, 1]


async def test_only_the_last_thousand_answered_questions_are_kept(clock: VirtualClock) -> None:
    made = executor(World(), clock)
    desk = desk_of(made)
    await desk.open()
    old = clock.now() - timedelta(days=1)
    for n in range(KEPT + 5):
        await desk._rows.add(Approval(f"a{n:06}", Call("act"), "d", old, old, agent="main", status="used"))
    running = asyncio.ensure_future(made.run([Call("act", {"what": 1})]))
    (asked,) = await pending(made)

    assert len(await desk.list(None)) == KEPT + 1
    await answer(made, asked, "deny")
    await running


class Failing(InMemory):
    """A store that stops taking rows."""

    is_broken = False
    hangs = False

    async def keep(self, kind: str, id: str, value: Any, *, expect: int | None = None) -> int:
        if self.hangs:
            await asyncio.Event().wait()
        if self.is_broken:
            raise TransientError("the disk is full")
        return await super().keep(kind, id, value, expect=expect)

    async def load(self, key: str) -> Any: ...
    async def save(self, key: str, value: Any) -> None: ...


async def test_a_store_that_takes_nothing_lets_nothing_run(clock: VirtualClock) -> None:
    world, store = World(), Failing()
    made = executor(world, clock, store=store)  # type: ignore[arg-type]
    store.is_broken = True
    assert statuses(await made.run([Call("act", {"what": 1})])) == ["denied denied"]
    store.is_broken, store.hangs = False, True
    result = await made.run([Call("act", {"what": 1})])
    assert statuses(result) == ["denied denied"]
    assert "the store did not answer within 10 s" in result.results[0].fault.message
    store.hangs = False
    running = asyncio.ensure_future(made.run([Call("act", {"what": 2})]))
    (asked,) = await pending(made)
    store.is_broken = True
    with pytest.raises(TransientError):
        await answer(made, asked)
    store.is_broken = False
    await answer(made, asked)
    store.is_broken = True
    assert statuses(await running) == ["denied denied"]
    assert world.done == []


async def test_rows_of_another_version_are_left_alone(clock: VirtualClock) -> None:
    store = Failing()
    await store.keep("approval", "a0", {"unheard": "of"})
    made = executor(World(), clock, store=store)  # type: ignore[arg-type]
    async with made:
        assert list(await desk_of(made).list(None)) == []
    assert len(await store.records("approval")) == 1
