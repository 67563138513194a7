"""What the next process goes on with: accepted work, begun cycles, calls in doubt, work that was put aside."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import Action, Agent, Call, Context, Perception, facts, tool
from spar.errors import ConflictError, NotReadyError, PermanentError, SparError, TransientError
from spar.events import CallInDoubt, DeadLettered, LoopCompleted, PhaseStarted, Recovered, RunEnded
from spar.journal import recovery
from spar.journal.restart import EVERY
from spar.protocols import Host, SensorContext, SensorSpec
from spar.records.journal import Item
from spar.testing import Hang, ScriptedPlanner, VirtualClock
from spar.threads import SLICE
from spar.types import ActionResult
from tests.doubles import heard
from tests.journal.left import accept, accepted, ended, left_behind, opened, planned, started

effects: list[str] = []


@pytest.fixture(autouse=True)
def _no_effects() -> None:
    effects.clear()


@tool(effect="once")
async def pay(amount: int) -> int:
    effects.append(f"pay {amount}")
    return amount * 2


@tool(effect="idempotent")
async def put(value: int) -> int:
    effects.append(f"put {value}")
    return value


@tool(effect="read")
async def look(at: int) -> int:
    effects.append(f"look {at}")
    return at + 1


TOOLS = [pay, put, look]


def memory_at(path: Path, **options: Any) -> Memory:
    return Memory(f"sqlite:///{path / 'memory.db'}", **options)


async def nothing(perceptions: Any) -> None:
    return None


def agent_at(path: Path, clock: VirtualClock, plan: Any = nothing, **options: Any) -> Agent:
    options = {"tools": TOOLS, "loop_interval": 0.1, **options}
    return Agent(plan=plan, memory=memory_at(path), clock=clock, **options)


PLAN = Action(
    (
        Call("look", {"at": 1}, id="a", output_path="†state.a"),
        Call("pay", {"amount": "†state.a"}, id="b", output_path="†state.b"),
        Call("put", {"value": "†state.b"}, id="c", output_path="†state.c"),
    ),
    id="the-action",
)
GO = opened(Perception("go", id="p"))
IN_DOUBT = (ended(PLAN.calls[0], output=2), started(PLAN.calls[1], values={"amount": 2}))


# -- accepted work


async def test_a_message_has_the_same_receipt_in_the_next_process_and_its_answer_is_still_known(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async def plan(perceptions: Any) -> Action:
        return Action(output="42")

    async with agent_at(tmp_path, clock, plan) as agent:
        first = await agent.submit("what is it?", idempotency_key="k")
        answer = await agent.wait(first.run_id, 5)
    async with agent_at(tmp_path, clock, plan) as agent:
        again = await agent.submit("what is it?", idempotency_key="k")
        known = await agent.wait(first.run_id, 5)
        with pytest.raises(LookupError, match="no run 'other'"):
            await agent.wait("other", 1)

    assert (again.run_id, known.status, known.output) == (first.run_id, "ok", "42")
    assert known == answer
    assert again.accepted_at == first.accepted_at


async def test_a_perception_that_is_accepted_twice_is_taken_in_once_also_by_another_process(
    tmp_path: Path, clock: VirtualClock
) -> None:
    said, seen = Perception("hello", id="same"), []

    async def plan(perceptions: list[Perception]) -> None:
        seen.extend(perceptions)

    async with agent_at(tmp_path, clock, plan) as agent:
        answers = [await agent.accept(said), await agent.accept(said), agent.push(said)]
        await clock.sleep(1)
    async with agent_at(tmp_path, clock, plan) as agent:
        answers += [await agent.accept(said), agent.push(said)]
        await clock.sleep(1)

    assert answers == [True, False, True, False, True]
    assert len(seen) == 1


async def test_of_what_earlier_processes_took_in_the_newest_is_known_longest(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recovery, "REMEMBERED", 3)
    seen: list[str] = []

    async def plan(perceptions: list[Perception]) -> None:
        seen.extend(perception.id for perception in perceptions)

    for ids in (["a", "b", "c"], ["d", "c"]):
        async with agent_at(tmp_path, clock, plan) as agent:
            for id in ids:
                agent.push(Perception(id, id=id))
                await clock.sleep(1)

    assert seen == ["a", "b", "c", "d"]


@pytest.mark.parametrize("has_memory", [False, True])
async def test_an_empty_key_is_none_and_every_message_and_perception_is_taken_in(
    tmp_path: Path, clock: VirtualClock, has_memory: bool
) -> None:
    """Of a client whose variable was not set."""

    async def plan(perceptions: list[Perception]) -> Action:
        return Action(output=[perception.text for perception in perceptions])

    agent = agent_at(tmp_path, clock, plan) if has_memory else Agent(plan=plan, clock=clock, loop_interval="off")
    async with agent:
        runs = [await agent.submit(text, idempotency_key=key) for text, key in (("a", ""), ("b", ""), ("c", None))]
        answers = [(await agent.wait(run.run_id, 5)).output for run in runs]
        accept = agent.conversations.submission.accept
        taken = [await accept(Perception(text), key=key) for text, key in (("d", ""), ("e", ""), ("f", None))]

    assert (answers, taken) == ([["a"], ["b"], ["c"]], [True] * 3)


async def test_a_run_that_was_under_way_goes_on_with_what_its_cycles_have_brought(
    tmp_path: Path, clock: VirtualClock
) -> None:
    contexts: list[Context] = []

    async def ask_on(perceptions: Any, context: Context) -> Action:
        contexts.append(context)
        assert context.run is not None
        if context.run.number < 3:
            return Action((Call("look", {"at": context.run.number}, output_path="†state.at"),))
        return Action(output=[message["state"]["at"] for message in context.run.messages if "state" in message])

    async def stuck(perceptions: Any, context: Context) -> Action:
        if context.run is not None and context.run.number == 3:
            await clock.sleep(1000)
        return await ask_on(perceptions, context)

    agent = agent_at(tmp_path, clock, stuck)
    await agent.start()
    receipt = await agent.submit("go on")
    await clock.sleep(5)
    await agent.stop(deadline=0)
    async with agent_at(tmp_path, clock, ask_on) as agent:
        answer = await agent.wait(receipt.run_id, 20)

    assert (answer.status, answer.output) == ("ok", [2, 3])
    assert effects == ["look 1", "look 2"]


# -- cycles that were cut off


async def test_a_cycle_goes_on_under_its_own_id_and_makes_no_call_again_that_had_ended(
    tmp_path: Path, clock: VirtualClock
) -> None:
    look, pay, _ = PLAN.calls
    await left_behind(tmp_path, GO, planned(PLAN), started(look, "read"), ended(look, output=2), started(pay),
                      ended(pay, output=4))  # fmt: skip
    agent = agent_at(tmp_path, clock)
    completed, begins = heard(agent, LoopCompleted), heard(agent, PhaseStarted)
    async with agent:
        await clock.sleep(1)
        assert agent.memory is not None
        record = await agent.memory.cycle("0cut")

    assert effects == ["put 4"]
    assert [event.outcome for event in completed if event.cycle_id == "0cut"] == ["acted"]
    assert [event.phase for event in begins if event.cycle_id == "0cut"] == ["sense", "plan", "act", "reflect"]
    assert record is not None
    assert record.result is not None
    assert [result.status for result in record.result.results] == ["ok", "ok", "ok"]
    assert record.result.state == {"a": 2, "b": 4, "c": 4}


async def test_a_call_that_may_have_had_its_effect_is_in_doubt_and_only_what_needs_it_is_held_up(
    tmp_path: Path, clock: VirtualClock
) -> None:
    plan = Action((*PLAN.calls, Call("look", {"at": 7}, id="d")), id="the-action")

    await left_behind(tmp_path, GO, planned(plan), *IN_DOUBT)
    told: list[Perception] = []

    async def listen(perceptions: list[Perception]) -> None:
        told.extend(perceptions)

    agent = agent_at(tmp_path, clock, listen)
    doubtful = heard(agent, CallInDoubt)
    async with agent:
        await clock.sleep(1)
        assert agent.memory is not None
        record = await agent.memory.cycle("0cut")
        [doubt] = await agent.recovery.restart.doubts.list()

    assert effects == ["look 7"]
    assert record is not None
    assert record.result is not None
    assert [result.status for result in record.result.results] == ["ok", "in_doubt", "skipped", "ok"]
    assert [event.doubt for event in doubtful] == [doubt.id] == ["0cut/b"]
    assert [(perception.kind, perception.trust) for perception in told] == [("call.in_doubt", "trusted")]
    assert "may have had its effect" in doubt.why


async def test_a_call_that_was_put_off_by_a_stop_and_then_begun_again_is_in_doubt_when_the_process_dies(
    tmp_path: Path, clock: VirtualClock
) -> None:
    look, pay, _ = PLAN.calls
    await left_behind(tmp_path, GO, planned(PLAN), ended(look, output=2), ended(pay, "cancelled"),
                      started(pay, values={"amount": 2}))  # fmt: skip
    async with agent_at(tmp_path, clock) as agent:
        await clock.sleep(1)
        assert [doubt.id for doubt in await agent.recovery.restart.doubts.list()] == ["0cut/b"]
    assert effects == []


@pytest.mark.parametrize("obeys", [True, False])
async def test_a_call_that_timed_out_after_it_began_is_in_doubt_if_it_must_not_be_repeated(
    tmp_path: Path, clock: VirtualClock, obeys: bool
) -> None:
    hang = Hang(ignore_cancel=not obeys)

    @tool(effect="once", timeout=1.0)
    async def transfer() -> None:
        await hang.wait()

    @tool(effect="read", timeout=1.0)
    async def ask() -> None:
        await asyncio.Event().wait()

    plans = [Action((Call("transfer", id="a"), Call("ask", id="b")))]

    async def plan(perceptions: Any) -> Action | None:
        return plans.pop() if plans else None

    async with agent_at(tmp_path, clock, plan, tools=[transfer, ask]) as agent:
        agent.push(Perception("go"))
        await clock.sleep(5)
        doubts = await agent.recovery.restart.doubts.list()
        hang.release()

    assert [doubt.call.id for doubt in doubts] == ["a"]
    assert "did not end within 1 s and may have had its effect" in doubts[0].why


@pytest.fixture
async def doubtful(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[tuple[Agent, list[Perception]]]:
    """An agent with a call in doubt, and what its planner is told."""

    await left_behind(tmp_path, GO, planned(PLAN), *IN_DOUBT)
    told: list[Perception] = []

    async def listen(perceptions: list[Perception]) -> None:
        told.extend(perceptions)

    async with agent_at(tmp_path, clock, listen) as agent:
        await clock.sleep(1)
        told.clear()
        yield agent, told


@pytest.mark.parametrize("answer", ["done", "failed"])
async def test_who_knows_what_became_of_a_call_in_doubt_says_so_and_the_planner_is_told(
    doubtful: tuple[Agent, list[Perception]], clock: VirtualClock, answer: Any
) -> None:
    agent, told = doubtful

    doubt = await agent.recovery.restart.doubts.resolve("0cut", answer, by="anna", output=4)
    await clock.sleep(1)

    assert (doubt.answer, doubt.answered_by, doubt.output) == (answer, "anna", 4)
    assert [(each.kind, each.attributes["output"]) for each in told] == [(f"call.{answer}", 4)]
    assert await agent.recovery.restart.doubts.list() == []
    assert agent.recovery.snapshot()["in_doubt"] == 0
    assert effects == []
    with pytest.raises(ConflictError, match=f"is not in doubt any more: {answer}, by anna"):
        await agent.recovery.restart.doubts.resolve("0cut/b", "again")


async def test_a_call_in_doubt_that_did_not_happen_is_made_again_with_the_values_that_it_had(
    doubtful: tuple[Agent, list[Perception]], clock: VirtualClock
) -> None:
    agent, told = doubtful

    await agent.recovery.restart.doubts.resolve("0cut/b", "again", by="anna")
    await clock.sleep(1)

    assert effects == ["pay 2"]
    assert told == []
    assert agent.stats.outcomes["acted"] == 2


async def test_a_cycle_that_a_stop_cut_off_goes_on_at_the_next_start_and_no_attempt_is_counted(
    tmp_path: Path, clock: VirtualClock
) -> None:
    started: list[int] = []

    @tool(effect="idempotent", timeout=1000)
    async def slow(value: int) -> int:
        started.append(value)
        if len(started) <= 4:
            await clock.sleep(500)
        return value

    async def plan(perceptions: list[Perception]) -> Action:
        return Action((Call("look", {"at": 1}, output_path="†state.a"), Call("slow", {"value": "†state.a"})))

    for _ in range(4):
        agent = agent_at(tmp_path, clock, plan, tools=[look, slow])
        outcomes = heard(agent, LoopCompleted)
        await agent.start()
        if not started:
            await agent.accept(Perception("go"))
        await clock.sleep(2)
        await agent.stop(deadline=0)
        assert "interrupted" in [event.outcome for event in outcomes]
    async with agent_at(tmp_path, clock, plan, tools=[look, slow]) as agent:
        await clock.sleep(2)
        assert agent.stats.outcomes["acted"] == 1
        assert await agent.recovery.restart.letters.list() == []

    assert started == [2] * 5
    assert effects == ["look 1"]


async def test_an_actor_that_tells_nothing_of_its_calls_is_not_let_do_them_again(
    tmp_path: Path, clock: VirtualClock
) -> None:
    done: list[str] = []

    class Own:
        def __init__(self, effect: str | None) -> None:
            if effect is not None:
                self.effect = effect

        async def act(self, action: Action) -> ActionResult:
            done.append(action.id)
            return ActionResult(action)

    for number, effect in enumerate((None, "once", "idempotent", "read")):
        folder = tmp_path / str(number)
        folder.mkdir()
        await left_behind(folder, GO, planned(PLAN, effect=effect or "once"))
        async with agent_at(folder, clock, act=Own(effect), tools=()) as agent:
            await clock.sleep(1)
            assert agent.recovery.snapshot()["in_doubt"] == (3 if effect in (None, "once") else 0)

    assert done == ["the-action", "the-action"]


async def test_steps_that_were_cut_off_are_not_gone_on_with_but_their_doubts_are_told(
    tmp_path: Path, clock: VirtualClock
) -> None:
    stepped = opened(Perception("go", id="p"), is_stepped=True)
    await left_behind(tmp_path, stepped, planned(PLAN), started(PLAN.calls[1]))
    async with agent_at(tmp_path, clock) as agent:
        await clock.sleep(1)
        assert [doubt.id for doubt in await agent.recovery.restart.doubts.list()] == ["0cut/b"]
        assert agent.core.ledger.journal.is_open("0cut") is False

    assert effects == []


# -- attempts


async def test_work_that_killed_three_processes_is_put_aside_and_what_came_with_it_is_not(
    tmp_path: Path, clock: VirtualClock
) -> None:
    poison = Perception("poison", id="p1")
    fine = Perception("fine", id="p2")
    run = Item("r1", Perception("go", id="p3"), "run", attempts=3)
    await left_behind(tmp_path, opened(poison, fine, items=("p1",)), accepted(Item("p1", poison, attempts=2)),
                      accepted(run))  # fmt: skip
    seen: list[str] = []

    async def plan(perceptions: list[Perception]) -> None:
        seen.extend(perception.text for perception in perceptions)

    agent = agent_at(tmp_path, clock, plan)
    put_aside, ended = heard(agent, DeadLettered), heard(agent, RunEnded)
    async with agent:
        await clock.sleep(1)
        letters = await agent.recovery.restart.letters.list()
        assert seen == ["fine"]
        assert sorted((event.item, event.attempts) for event in put_aside) == [("p1", 3), ("r1", 3)]
        assert sorted(letter.item.perception.text for letter in letters) == ["go", "poison"]
        answer = await agent.wait("r1", 1)
        assert [(event.run_id, event.status) for event in ended] == [("r1", "error")]
        assert (answer.status, "3 attempts failed" in answer.error) == ("error", True)

        await agent.recovery.restart.letters.revive("p1")
        await clock.sleep(1)
        assert seen == ["fine", "poison"]
        with pytest.raises(LookupError, match="no dead letter 'p1'; known: r1"):
            await agent.recovery.restart.letters.revive("p1")


async def test_what_a_sensor_notices_while_work_is_tried_again_piece_by_piece_is_planned_without_an_interval(
    tmp_path: Path, clock: VirtualClock
) -> None:
    class Watch:
        """A sense module that has news only once."""

        news: tuple[Perception, ...] = ()

        def attach(self, host: Host) -> None:
            self.wake = host.wake

        async def sense(self) -> list[Perception]:
            news, self.news = self.news, ()
            return list(news)

    watch = Watch()
    seen: list[str] = []

    async def plan(perceptions: list[Perception]) -> None:
        seen.extend(perception.text for perception in perceptions)
        if seen == ["first"]:
            watch.news = (Perception("news"),)
            watch.wake()

    tried = [accepted(Item(text, Perception(text, id=text), attempts=1)) for text in ("first", "second")]
    await left_behind(tmp_path, *tried)
    async with agent_at(tmp_path, clock, plan, sense=watch, loop_interval="off"):
        await clock.sleep(100)

    assert seen == ["first", "second", "news"]


async def test_perceptions_of_a_plan_that_fails_are_planned_again_later_and_put_aside_at_the_third_time(
    tmp_path: Path, clock: VirtualClock
) -> None:
    tried: list[tuple[float, str]] = []
    began = clock.monotonic()

    async def plan(perceptions: list[Perception]) -> None:
        for perception in perceptions:
            tried.append((round(clock.monotonic() - began), perception.text))
            if perception.text == "bad":
                raise PermanentError("cannot")

    async with agent_at(tmp_path, clock, plan) as agent:
        await agent.accept(Perception("bad"))
        await clock.sleep(0.5)
        await agent.accept(Perception("good"))
        await clock.sleep(200)
        [letter] = await agent.recovery.restart.letters.list()

    assert [text for _, text in tried] == ["bad", "good", "bad", "bad"]
    assert "cannot" in letter.reason
    assert tried[2][0] >= 10


async def test_what_is_to_be_tried_again_in_a_session_that_went_to_another_process_is_left_to_that_one(
    clock: VirtualClock,
) -> None:
    tried: list[str] = []

    async def plan(perceptions: list[Perception]) -> None:
        tried.extend(each.text for each in perceptions)
        raise TransientError("the service is down")

    memory = Memory("sqlite://:memory:")
    async with Agent(plan=plan, memory=memory, clock=clock, loop_interval="off") as agent:
        for session in ("lost", "kept"):
            await agent.accept(Perception(session, session=session))
        await clock.sleep(0.1)
        assert tried == ["lost", "kept"]
        agent.core.ledger.drop("lost")  # as a node does
        await clock.sleep(EVERY * 0.5)  # no look at all work meanwhile
    assert tried.count("lost") == 1
    assert tried.count("kept") > 1


async def test_work_whose_wait_ends_during_a_pause_is_tried_again_after_it(tmp_path: Path, clock: VirtualClock) -> None:
    tried: list[str] = []

    async def plan(perceptions: list[Perception]) -> None:
        tried.extend(perception.text for perception in perceptions)
        if len(tried) == 1:
            raise PermanentError("cannot")

    async with agent_at(tmp_path, clock, plan) as agent:
        await agent.accept(Perception("bad"))
        await clock.sleep(0.5)
        await agent.pause()
        await clock.sleep(60)
        assert tried == ["bad"]
        await agent.resume()
        await clock.sleep(1)
        assert tried == ["bad", "bad"]
        assert agent.recovery.snapshot()["in_hand"] == 0


async def test_an_item_that_another_process_accepted_is_taken_without_a_look_at_all_work(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[str] = []

    async def plan(perceptions: list[Perception]) -> None:
        planned.extend(each.text for each in perceptions)

    async with agent_at(tmp_path, clock, plan, loop_interval="off") as agent:
        journal = agent.core.ledger.journal
        assert journal is not None
        item = Item("new", Perception("new", id="new", session="s"), session="s")
        journal.append(facts.WorkChanged(session="s", item=item), "main")
        monkeypatch.setattr(type(journal.views), "unfinished", None)
        told: list[Any] = []
        agent.events.subscribe(Recovered, told.append)
        other = Item("other", Perception("other", session="s"), session="s")
        journal.append(facts.WorkChanged(session="s", item=other), "main")
        assert await agent.recovery.restart.reconcile(["new"])
        await clock.sleep(1.0)
        assert planned == ["new"]
        assert told == []


async def test_work_that_two_looks_find_is_given_to_its_session_once(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look waits for what earlier cycles of a run have brought, and another one comes, as of a request of a node."""
    planned: list[str] = []
    is_read = asyncio.Event()

    async def plan(perceptions: list[Perception]) -> Action:
        planned.extend(each.text for each in perceptions)
        return Action(output="done")

    async def slowly(cycle_id: str) -> None:
        await is_read.wait()

    async with agent_at(tmp_path, clock, plan, loop_interval="off") as agent:
        restart, journal = agent.recovery.restart, agent.core.ledger.journal
        monkeypatch.setattr(agent.memory, "cycle", slowly)
        first = Perception("first", session="a", kind="message")
        for item in (
            Item("run", first, "run", "a", past=("c1",)),
            Item("next", Perception("next", id="next", session="b"), session="b"),
        ):
            journal.append(facts.WorkChanged(session=item.session, item=item), "main")
        journal.append(
            facts.CycleOpened(session="c", cycle="cut", perceptions=(Perception("cut", session="c"),)), "main"
        )
        looks = [asyncio.create_task(restart.reconcile())]
        await clock.sleep(1.0)
        looks += [asyncio.create_task(restart.reconcile()), asyncio.create_task(restart.reconcile(["next"]))]
        await clock.sleep(1.0)
        is_read.set()
        assert all(await asyncio.gather(*looks))
        await clock.sleep(1.0)

    assert sorted(planned) == ["cut", "first", "next"]


@pytest.mark.parametrize("effect", ["once", "idempotent"])
async def test_a_call_that_continues_without_its_cycle_is_left_alone_while_it_runs(
    tmp_path: Path, clock: VirtualClock, effect: Any
) -> None:
    @tool(effect=effect, detach=True, timeout=1_000.0)
    async def long() -> str:
        effects.append("long")
        await clock.sleep(300.0)
        return "done"

    async def plan(perceptions: list[Perception]) -> Action | None:
        return Action([Call("long")]) if any(each.text == "go" for each in perceptions) else None

    async with agent_at(tmp_path, clock, plan, tools=[long], loop_interval="off") as agent:
        await agent.accept(Perception("go"))
        await clock.sleep(2 * EVERY)
        assert agent.recovery.snapshot()["in_doubt"] == 0
        await clock.sleep(300.0)
        assert await agent.core.ledger.journal.views.unfinished("main") == []

    assert effects == ["long"]


async def test_what_a_sensor_brings_again_while_it_waits_for_its_next_try_is_tried_once(
    tmp_path: Path, clock: VirtualClock
) -> None:
    planned: list[str] = []
    troubles: list[Any] = []
    again = [Perception("the disk is full", id="p1")] * 2

    async def sense() -> list[Perception]:
        return [again.pop()] if again else []

    async def plan(perceptions: Any) -> None:
        planned.extend(each.id for each in perceptions)
        if len(planned) < 3 and perceptions:
            raise TransientError("not now")

    asyncio.get_running_loop().set_exception_handler(lambda loop, trouble: troubles.append(trouble))
    async with agent_at(tmp_path, clock, plan, sense=sense) as agent:
        await clock.sleep(120)
        assert agent.recovery.snapshot()["in_hand"] == 0

    assert (planned, troubles) == (["p1"] * 3, [])


# -- what is written when


async def test_a_sensors_cursor_goes_on_when_the_journal_has_what_it_brought(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """Saved later, a crash in between would bring it twice; saved earlier, not at all."""
    from perception import Sense

    class Counter:
        every = 0.05

        async def open(self, context: SensorContext) -> None:
            self.context, self.number = context, int(context.cursor or 0)

        async def poll(self) -> list[Perception]:
            self.number += 1
            self.context.checkpoint(self.number)
            return [Perception(f"number {self.number}")]

        async def close(self) -> None:
            return None

    seen: list[str] = []

    async def plan(perceptions: list[Perception]) -> Action:
        seen.extend(perception.text for perception in perceptions)
        memory = agent.memory
        assert memory is not None
        await memory.flush()
        cursor = await memory.load("cursor:main:counter")
        assert cursor == counter.number
        assert [cycle.perceptions for cycle in await memory.journal.views.unfinished("main")] == [tuple(perceptions)]
        return Action((Call("look", {"at": 1}),))

    for _ in range(2):
        counter = Counter()
        agent = agent_at(tmp_path, clock, plan, sense=Sense([SensorSpec("counter", counter)]))
        async with agent:
            await clock.sleep(1)
        assert agent.stats.failed_cycles == 0

    assert seen == [f"number {number}" for number in range(1, len(seen) + 1)]
    assert len(seen) > 4


async def test_what_a_sensor_brings_again_that_was_in_hand_when_the_process_died_is_taken_once_and_apart(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """It died so soon that nothing but the hand knew of it."""
    from perception import Sense
    from spar.types import trait

    class Folder:
        every = 0.05

        async def open(self, context: SensorContext) -> None:
            self.context, self.number = context, int(context.cursor or 0)

        async def poll(self) -> list[Perception]:
            new = [Perception(f"file {n}", source="folder", key=f"k{n}") for n in range(self.number, 3)]
            self.number = 3
            self.context.checkpoint(3)
            return new

        async def close(self) -> None:
            return None

    deadly = Perception("file 1", source="folder", key="k1")
    memory, noted = memory_at(tmp_path), tmp_path / "memory.db.hand"
    async with memory:
        memory.journal.hand.forget()
        memory.journal.append(facts.WorkChanged(session="main", item=Item("p", Perception("pushed", id="p"))), "main")
        memory.journal.hand.take("gone", [trait(deadly), "p"])
        lines = noted.read_bytes()
    noted.write_bytes(lines)
    turns: list[list[str]] = []
    attempts: dict[str, int] = {}

    async def plan(perceptions: list[Perception]) -> Action:
        turns.append([perception.text for perception in perceptions])
        await clock.sleep(0.01)  # until the agent has begun
        attempts.update({id: item.attempts for id, item in agent.recovery.items("main").items()})
        return Action((Call("look", {"at": 1}),))

    for _ in range(2):
        async with agent_at(tmp_path, clock, plan, sense=Sense([SensorSpec("folder", Folder())])) as agent:
            await clock.sleep(2)
            assert await agent.recovery.restart.letters.list() == []

    assert sorted(turns) == [["file 0"], ["file 1"], ["file 2"], ["pushed"]]
    assert attempts["p"] == 1


async def test_nothing_is_accepted_before_the_journal_is_open_and_read(tmp_path: Path, clock: VirtualClock) -> None:
    tries: list[Any] = []
    agent: Agent

    async def everything() -> None:
        for work in (
            agent.submit("a message"),
            agent.submit("again", idempotency_key="k"),
            agent.accept(Perception("x")),
        ):
            with pytest.raises(NotReadyError, match=r"journal of agent 'main' is not open \(created\)") as refused:
                await work
            tries.append(refused.value.retry_after)

    class Asks:
        async def __aenter__(self) -> Asks:
            await everything()
            return self

        async def __aexit__(self, *exc: object) -> None: ...

        async def reflect(self, result: Any) -> None: ...

    agent = agent_at(tmp_path, clock, reflect=Asks())
    await everything()
    assert not agent.push(Perception("early"))
    assert agent.refused == 1
    async with agent:
        assert len(tries) == 6
        assert None not in tries
        receipt = await agent.submit("a message", idempotency_key="k")
        assert (await agent.wait(receipt.run_id, 5)).status == "ok"
    async with agent_at(tmp_path, clock) as agent:
        assert await agent.submit("another", idempotency_key="k") == receipt
        assert agent.runs.open == 0


async def test_nothing_is_accepted_any_more_once_the_journal_is_given_up(tmp_path: Path, clock: VirtualClock) -> None:
    agent = agent_at(tmp_path, clock)

    @agent.hook("message_received")
    async def slow(context: Any) -> None:
        await clock.sleep(5)

    await agent.start()
    submitting = asyncio.create_task(agent.submit("too late"))
    await asyncio.sleep(0)
    await agent.stop()
    with pytest.raises(SparError):
        await submitting
    assert not agent.push(Perception("too late"))


async def test_a_start_whose_journal_is_absent_fails(tmp_path: Path, clock: VirtualClock) -> None:
    class Forgetful(Memory):
        @property
        def journal(self) -> Any:
            raise SparError("no journal today")

    agent = Agent(memory=Forgetful(f"sqlite:///{tmp_path / 'memory.db'}"), clock=clock)
    with pytest.raises(SparError, match="its journal is not: nothing is kept"):
        await agent.start()
    assert agent.state == "created"


async def test_a_run_whose_last_cycle_was_stepped_by_hand_has_its_answer_at_once(
    tmp_path: Path, clock: VirtualClock
) -> None:
    async def plan(perceptions: Any, context: Context) -> Action:
        return Action(output="42")

    agent = agent_at(tmp_path, clock, plan, loop_interval="off")
    await agent.start()
    await agent.pause()
    receipt = await agent.submit("what is it?")
    await agent.step_sense()
    await agent.step_plan()
    await agent.step_act()
    await agent.step_reflect()
    answer = await agent.wait(receipt.run_id, 5)
    await agent.stop()

    assert (answer.status, answer.output) == ("ok", "42")


@pytest.mark.parametrize("has_begun", [True, False])
async def test_what_a_cycle_had_done_before_it_was_called_off_is_not_done_again(
    tmp_path: Path, clock: VirtualClock, has_begun: bool
) -> None:
    """A run is called off in whose cycle something else was dealt with as well."""

    @tool(effect="read", timeout=1000)
    async def hang() -> None:
        await clock.sleep(500)

    planned: list[list[str]] = []

    async def plan(perceptions: list[Perception], context: Context) -> Action:
        planned.append(sorted(perception.text for perception in perceptions))
        if context.run is None:
            return Action((Call("pay", {"amount": 1}),))
        if not has_begun:
            await clock.sleep(500)
        return Action((Call("pay", {"amount": 1}), Call("hang")))

    async with agent_at(tmp_path, clock, plan, tools=[pay, hang]) as agent:
        await agent.pause()
        await agent.accept(Perception("beside it"))
        receipt = await agent.submit("a run")
        await agent.resume()
        await clock.sleep(2)
        await agent.abort(receipt.run_id)
        await clock.sleep(60)

    assert planned[0] == ["a run", "beside it"]
    assert planned[1:] == ([] if has_begun else [["beside it"]])
    assert effects == ["pay 1"]


async def test_a_stop_in_good_order_counts_no_attempt_and_forgets_none(tmp_path: Path, clock: VirtualClock) -> None:
    action = Action((Call("hang"),), id="the-action")
    await left_behind(tmp_path, opened(Perception("go", id="p"), attempts=2), planned(action))

    @tool(effect="idempotent", timeout=1000)
    async def hang() -> None:
        await clock.sleep(500)

    agent = agent_at(tmp_path, clock, tools=[hang])
    await agent.start()
    await clock.sleep(1)
    await agent.stop(deadline=0)
    async with memory_at(tmp_path) as memory:
        [cycle] = await memory.journal.views.unfinished("main")

    assert cycle.attempts == 2


async def test_a_run_that_waits_in_line_after_a_crash_can_be_asked_after_and_called_off(
    tmp_path: Path, clock: VirtualClock
) -> None:
    """Two runs were in hand when the process died: they are tried one after the other."""

    planned: list[str] = []
    hang = Hang()

    async def plan(perceptions: list[Perception]) -> Action:
        planned.extend(each.text for each in perceptions)
        if not hang.cancelled and "one" in planned[-1]:
            await hang.wait()
        return Action(output="done")

    said = [Perception(name, id=f"p-{name}", kind="message", session=name) for name in ("one", "two")]
    await left_behind(tmp_path, *(accepted(Item(each.session, each, "run", each.session, attempts=1)) for each in said))
    async with agent_at(tmp_path, clock, plan) as agent:
        await clock.sleep(1)
        assert planned == ["one"]
        assert (await agent.wait("two", 0.5)).status == "timeout"
        await agent.abort("two")
        hang.release()
        assert (await agent.wait("one", 10)).output == "done"
        ended = await agent.wait("two", 0)
        await clock.sleep(1)

    assert (ended.status, ended.error) == ("error", "aborted")
    assert planned == ["one"]


async def test_what_ends_while_the_journal_is_looked_through_is_not_done_again(clock: VirtualClock) -> None:
    """The look takes a moment, as on a busy disk, and what it found may have ended meanwhile."""
    done, looks = list[float](), list[float]()

    @tool(effect="idempotent")
    async def mend() -> None:
        """Take half a second."""
        done.append(clock.elapsed)
        await clock.sleep(0.5)

    memory = Memory("sqlite://:memory:")
    plan = ScriptedPlanner([lambda _: [Call("mend")]], then=lambda _: [Call("mend")])
    agent = Agent(plan=plan, tools=[mend], memory=memory, clock=clock, loop_interval="off")
    async with agent:
        journal = memory.journal
        items = journal.views.items

        async def slowly(name: str, ids: Any) -> Any:
            found = await items(name, ids)
            looks.append(clock.elapsed)
            await clock.sleep(1.0)
            return found

        journal.views.items = slowly  # type: ignore[method-assign]
        await clock.advance(EVERY - 0.2 - clock.elapsed)
        await agent.accept(Perception("the shop is down"))
        await clock.advance(EVERY)
        assert await agent.recovery.restart.reconcile()
    assert (len(done), len(looks)) == (1, 4)


class OneAtATime:
    """Planner that takes a second for each message, and counts how many it has at once."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock, self._present, self.most = clock, 0, 0

    async def plan(self, perceptions: Any, context: Context) -> Action | None:
        if context.run is None:
            return None
        self._present += 1
        self.most = max(self.most, self._present)
        await self._clock.sleep(1.0)
        self._present -= 1
        return Action(output=context.run.goal)


def left_run(**fields: Any) -> facts.WorkChanged:
    return facts.WorkChanged(
        session="s", item=Item("left", Perception("left", session="s", kind="message"), "run", "s", **fields)
    )


async def test_work_that_is_read_while_its_session_ends_waits_for_the_run_that_has_begun_meanwhile(
    clock: VirtualClock,
) -> None:
    """Its former cycles are read for a moment, in which the session gets empty, and a new message comes."""
    planner, memory = OneAtATime(clock), Memory("sqlite://:memory:")
    async with Agent(plan=planner, memory=memory, clock=clock, loop_interval="off") as agent:
        read = memory.cycle

        async def slowly(cycle_id: str) -> Any:
            await clock.sleep(0.5)
            return await read(cycle_id)

        memory.cycle = slowly  # type: ignore[method-assign]
        first = await agent.submit("first", session="s")
        await clock.sleep(0.8)
        memory.journal.append(left_run(past=("gone",)), "main")
        looking = asyncio.create_task(agent.recovery.restart.reconcile())
        await clock.sleep(0.3)
        new = await agent.submit("new", session="s")
        assert await looking
        answers = [(await agent.wait(run_id, 10)).output for run_id in (first.run_id, "left", new.run_id)]
    assert answers == ["first", "left", "new"]
    assert planner.most == 1


async def test_a_session_that_was_removed_begins_nothing_beside_the_one_that_has_its_state_now(
    clock: VirtualClock,
) -> None:
    planner, memory = OneAtATime(clock), Memory("sqlite://:memory:")
    async with Agent(plan=planner, memory=memory, clock=clock, loop_interval="off") as agent:
        memory.journal.append(left_run(due_at=clock.now() + timedelta(hours=1)), "main")  # keeps the state
        assert await agent.recovery.restart.reconcile()
        first = await agent.submit("first", session="s")
        removed = agent.sessions.by_key["s"]
        await agent.wait(first.run_id)
        await clock.sleep(0.1)
        assert "s" not in agent.sessions.by_key
        new = await agent.submit("new", session="s")
        agent.sessions.spawn(removed)
        assert (await agent.wait(new.run_id)).output == "new"
    assert planner.most == 1


async def test_others_have_their_turn_while_much_open_work_is_given_to_its_sessions(tmp_path: Path) -> None:
    clock = VirtualClock()
    memory = memory_at(tmp_path)
    async with memory:
        for number in range(4 * SLICE):
            await accept(memory.journal, Item(f"m{number}", Perception("go"), session=f"s{number}"))
    agent = agent_at(tmp_path, clock)
    handed_out = [0]  # in each turn of the event loop, all in all

    def let_threads_run() -> None:
        time.sleep(1e-4)

    async def watch() -> None:
        while True:
            handed_out.append(agent.recovery.snapshot()["in_hand"])
            let_threads_run()  # the one that reads the journal gets on meanwhile
            await asyncio.sleep(0)

    watcher = asyncio.create_task(watch())
    async with agent:
        watcher.cancel()
    most = max(after - before for before, after in itertools.pairwise(handed_out))

    assert max(handed_out) == 4 * SLICE
    assert 0 < most <= SLICE


async def test_what_people_decided_while_an_agent_was_stopped_is_no_more_in_what_it_counts(
    tmp_path: Path, clock: VirtualClock
) -> None:
    poison = Item("p1", Perception("poison", id="p1"), attempts=3)
    await left_behind(tmp_path, facts.PutAside(session="main", item=poison, reason="why"))
    agent = agent_at(tmp_path, clock)
    async with agent:
        assert agent.recovery.snapshot()["dead_letters"] == 1
    async with agent_at(tmp_path, clock) as other:
        await other.recovery.restart.letters.bury("p1")
    async with agent:
        assert agent.recovery.snapshot()["dead_letters"] == 0


async def test_a_run_that_was_put_aside_and_dropped_has_ended_with_an_error_for_ever(
    tmp_path: Path, clock: VirtualClock
) -> None:
    item = Item("r1", Perception("go", id="r1", kind="message"), "run", attempts=3, past=("c1",))
    async with memory_at(tmp_path) as memory:
        await accept(memory.journal, item)
    for decision in ("wait", "drop", "wait"):
        async with agent_at(tmp_path, clock) as agent:
            if decision == "drop":
                await agent.recovery.restart.letters.bury("r1")
            status = await agent.wait("r1", 0)
            assert (status.status, status.ended_at) == ("error", clock.now())
            assert status.error == "3 attempts failed; the last: the process ended with it in hand"
            (row,) = await agent.memory.run_rows("main", 10)
            assert (row.status, row.ended_at) == ("error", clock.now())


async def test_the_transcript_has_the_message_of_a_run_once_that_is_put_aside_after_some_cycles(
    tmp_path: Path, clock: VirtualClock
) -> None:
    for id, past in (("begun", ("c1",)), ("new", ())):
        async with memory_at(tmp_path) as memory:
            item = Item(id, Perception("go", id=id, kind="message", session=id), "run", id, attempts=3, past=past)
            await accept(memory.journal, item)
    async with agent_at(tmp_path, clock) as agent:
        entries = [await agent.conversations.transcripts.read(session) for session in ("begun", "new")]
    assert [[entry.kind for entry in each] for each in entries] == [["end"], ["user", "end"]]


async def test_a_run_that_is_called_off_once_a_stop_has_closed_the_journal_goes_on_at_the_next_start(
    tmp_path: Path, clock: VirtualClock
) -> None:
    @tool(effect="read")
    async def look() -> str:
        return "seen"

    async def plan(perceptions: list[Perception], context: Context) -> Action:
        await may_plan.wait()
        is_last = context.run is not None and context.run.number > 1
        return Action(output="done") if is_last else Action((Call("look", {}),))

    def agent_of(memory: Memory) -> Agent:
        return Agent(plan=plan, tools=[look], memory=memory, clock=clock, loop_interval="off")

    may_plan, has_closed, may_stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
    ended = list[str]()
    agent = agent_of(memory_at(tmp_path))
    agent.on(RunEnded)(lambda event: ended.append(event.error))
    await agent.start()

    @agent.hook("session_end")
    async def wait(context: Any) -> None:
        has_closed.set()
        await may_stop.wait()

    run_id = (await agent.submit("go")).run_id
    await clock.sleep(1.0)
    stopping = asyncio.ensure_future(agent.stop())
    await clock.sleep(1.0)
    may_plan.set()
    await has_closed.wait()
    agent.conversations.stops.in_background(agent.runs.get(run_id), "interrupted by a newer message")
    await clock.sleep(1.0)
    may_stop.set()
    await stopping
    assert ended == []
    async with agent_of(memory_at(tmp_path)) as agent:
        assert (await agent.wait(run_id, 60)).output == "done"
        ends = [entry for entry in await agent.conversations.transcripts.read("main") if entry.kind == "end"]
    assert [entry.body["error"] for entry in ends] == [""]
