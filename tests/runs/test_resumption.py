"""Interrupted work of a session: it is taken when its cycle opens, and no other run of the session begins before it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import Action, Agent, Call, Context, Decision, Perception, facts, tool
from spar.events import CallStarted, LoopCompleted, LoopStarted, RunEnded, RunStarted
from spar.facts import Fact
from spar.records.journal import Item, Unfinished
from spar.testing import VirtualClock
from spar.types import CallResult
from tests.doubles import heard
from tests.journal.left import accepted, ended, left_behind, planned, started

effects: list[str] = []


@pytest.fixture(autouse=True)
def _no_effects() -> None:
    effects.clear()


@tool(effect="once")
async def pay(amount: int) -> int:
    effects.append(f"pay {amount}")
    return amount


@tool(effect="read")
async def look(what: str) -> str:
    effects.append(f"look {what}")
    return what


@tool(effect="idempotent")
async def rest(clock_seconds: float) -> str:
    effects.append("rest")
    await CLOCK.sleep(clock_seconds)
    return "rested"


CLOCK: VirtualClock | None = None


@pytest.fixture(autouse=True)
def _clock(clock: VirtualClock) -> None:
    global CLOCK
    CLOCK = clock


TWO_PAYMENTS = Action(
    (Call("pay", {"amount": 1}, id="p"), Call("pay", {"amount": 2}, id="q", after=("p",))), id="two-payments"
)


def agent_at(path: Path, clock: VirtualClock, plan: Any, **options: Any) -> Agent:
    memory = Memory(f"sqlite:///{path / 'memory.db'}")
    options = {"tools": [pay, look, rest], "loop_interval": 0.1, **options}
    return Agent(plan=plan, memory=memory, clock=clock, **options)


def cut(cycle: Unfinished, action: Action, *known: CallResult) -> list[Fact]:
    """A cycle that had decided on this and was cut off when these calls had ended."""
    id = cycle.cycle_id
    told = [facts.CycleOpened.of(cycle), planned(action, id)]
    for result in known:
        told += [started(result.call, cycle=id), ended(result.call, output=result.output, cycle=id)]
    return told


async def silent(perceptions: Any) -> None:
    return None


def message(text: str, session: str) -> Perception:
    return Perception(text, kind="message", session=session, id=f"said-{text}", trust="trusted")


# -- a cycle that is refused before it has begun


@pytest.mark.parametrize("lives", [1, 4])
async def test_a_cycle_that_goes_on_is_put_back_as_it_was_when_a_hook_denies_it(
    tmp_path: Path, clock: VirtualClock, lives: int
) -> None:
    said = Perception("go", id="p0")
    done = CallResult(TWO_PAYMENTS.calls[0], "ok", output=1, attempts=1)
    await left_behind(
        tmp_path, accepted(Item("p0", said)), *cut(Unfinished("0cut", "main", (said,), ("p0",)), TWO_PAYMENTS, done)
    )
    planned: list[str] = []

    async def plan(perceptions: Sequence[Perception]) -> Action:
        planned.extend(each.text for each in perceptions)
        return TWO_PAYMENTS

    for _ in range(lives):
        agent = agent_at(tmp_path, clock, plan)
        agent.hook("before_cycle")(lambda ctx: Decision.deny("quiet hours"))
        async with agent:
            await clock.sleep(1)
            assert [each.cycle_id for each in await agent.core.ledger.journal.views.unfinished("main")] == ["0cut"]
    async with agent_at(tmp_path, clock, plan):
        await clock.sleep(1)

    assert (effects, planned) == (["pay 2"], [])


@pytest.mark.parametrize(("session", "is_denied"), [("main", False), ("bob", False), ("bob", True)])
async def test_a_run_that_is_aborted_while_its_cycle_waits_to_go_on_makes_no_further_call(
    session: str, is_denied: bool, tmp_path: Path, clock: VirtualClock
) -> None:
    """A hook has denied its cycle for now, or is still asked about it."""
    said = message("pay", session)
    cycle = Unfinished("0cut", session, (said,), ("run",), "run")
    await left_behind(tmp_path, accepted(Item("run", said, "run", session)), *cut(cycle, TWO_PAYMENTS))
    agent, is_quiet = agent_at(tmp_path, clock, silent), is_denied

    @agent.hook("before_cycle")
    async def slow(ctx: Any) -> Decision | None:
        await clock.sleep(0 if is_denied else 2)
        return Decision.deny("quiet hours") if is_quiet else None

    async with agent:
        await clock.sleep(1)
        await agent.abort("run")
        assert (await agent.wait("run", 1)).error == "aborted"
        is_quiet = False
        await clock.sleep(10)
        assert await agent.core.ledger.journal.views.unfinished("main") == []
        assert set(agent.sessions.by_key) == {"main"}

    assert effects == []


# -- one run at a time


async def answer(perceptions: Any, context: Context) -> Action | None:
    if context.run is None:
        return None
    return Action(output=f"done {context.run.goal}")


@pytest.mark.parametrize("attempts", [1, 2])
@pytest.mark.parametrize("planning_seconds", [0.0, 2.0])
async def test_a_session_with_interrupted_work_takes_no_other_run_before_that_has_ended(
    tmp_path: Path, clock: VirtualClock, attempts: int, planning_seconds: float
) -> None:
    """The cycle of `old` may be to blame for two deaths, so it waits until that of `first` has been tried; meanwhile
    somebody says something new in its session."""
    first, old = message("first", "ann"), message("old", "bob")
    resting = Action((Call("rest", {"clock_seconds": 1.0}, id="r"),), id="resting")
    looking = Action((Call("look", {"what": "old"}, id="l"),), id="looking")
    await left_behind(
        tmp_path,
        accepted(Item("run-first", first, "run", "ann")),
        accepted(Item("run-old", old, "run", "bob")),
        *cut(Unfinished("0cut-1", "ann", (first,), ("run-first",), "run-first", attempts=attempts), resting),
        *cut(Unfinished("0cut-2", "bob", (old,), ("run-old",), "run-old", attempts=attempts), looking),
    )

    async def plan(perceptions: Any, context: Context) -> Action | None:
        await clock.sleep(planning_seconds)
        return await answer(perceptions, context)

    agent = agent_at(tmp_path, clock, plan)
    cycles, runs = heard(agent, LoopStarted, LoopCompleted), heard(agent, RunStarted, RunEnded)
    calls = heard(agent, CallStarted)
    async with agent:
        new = await agent.submit("new", session="bob")
        answers = [await agent.wait(run_id, 60) for run_id in ("run-first", "run-old", new.run_id)]
        row = await agent.recovery.status_of(new.run_id)

    assert [(each.status, each.output) for each in answers] == [("ok", f"done {x}") for x in ("first", "old", "new")]
    assert row.output == "done new"
    in_bob = [(type(each).__name__, each.run_id) for each in runs if each.run_id in ("run-old", new.run_id)]
    assert in_bob == [("RunStarted", "run-old"), ("RunEnded", "run-old"),
                      ("RunStarted", new.run_id), ("RunEnded", new.run_id)]  # fmt: skip
    assert sorted(effects) == ["look old", "rest"]
    began = {each.call.tool: each.at for each in calls}
    has_waited = (began["look"] - began["rest"]).total_seconds() >= 1.0  # as long as the call of `first` takes
    assert has_waited == (attempts > 1)
    assert len({each.cycle_id for each in cycles if isinstance(each, LoopStarted) and each.session == "bob"}) == 3


async def test_one_session_whose_interrupted_run_takes_long_keeps_no_other_from_its_interrupted_work(
    tmp_path: Path, clock: VirtualClock
) -> None:
    told = []
    for number, session in enumerate(("ann", "ann", "bob")):
        said, name = message(str(number), session), f"run-{number}"
        told += [accepted(Item(name, said, "run", session, attempts=1))]
    await left_behind(tmp_path, *told)

    async def plan(perceptions: Any, context: Context) -> Action | None:
        if context.run is not None and context.run.goal == "0":
            if context.run.number == 1:
                return Action((Call("look", {"what": "0"}),))
            await clock.sleep(1000)
        return await answer(perceptions, context)

    agent = agent_at(tmp_path, clock, plan, settings={"runs": {"timeout": 5000}, "agent": {"phases": {"plan": {
        "timeout": 5000}}}})  # fmt: skip
    async with agent:
        assert (await agent.wait("run-2", 60)).output == "done 2"
        assert (await agent.wait("run-1", 60)).status == "timeout"
        assert (await agent.wait("run-0", 2000)).output == "done 0"
        assert (await agent.wait("run-1", 60)).output == "done 1"


async def test_an_interrupted_run_waits_for_a_place_like_any_other(tmp_path: Path, clock: VirtualClock) -> None:
    told = []
    for number in range(4):
        session = ("main", "a", "b", "c")[number]
        said, name = message(str(number), session), f"run-{number}"
        cycle = Unfinished(f"0cut-{number}", session, (said,), (name,), name)
        action = Action((Call("look", {"what": str(number)}),), id=f"a{number}")
        told += [accepted(Item(name, said, "run", session)), *cut(cycle, action)]
    await left_behind(tmp_path, *told)
    now = most = 0

    async def plan(perceptions: Any, context: Context) -> Action | None:
        nonlocal now, most
        if context.run is None:
            return None
        now += 1
        most = max(most, now)
        await clock.sleep(1)
        now -= 1
        return await answer(perceptions, context)

    agent = agent_at(tmp_path, clock, plan, settings={"runs": {"limit": 1}})
    under_way, at_once = set(), []
    agent.events.subscribe(RunStarted, lambda event: (under_way.add(event.run_id), at_once.append(len(under_way))))
    agent.events.subscribe(RunEnded, lambda event: under_way.discard(event.run_id))
    async with agent:
        for number in range(4):
            assert (await agent.wait(f"run-{number}", 60)).output == f"done {number}"

    assert (most, max(at_once)) == (1, 1)


@pytest.mark.parametrize("is_aborted", [True, False])
async def test_what_is_denied_or_called_off_keeps_no_other_from_being_tried(
    is_aborted: bool, tmp_path: Path, clock: VirtualClock
) -> None:
    """All may be to blame for two deaths; the cycle of one session is denied for a while."""
    told = []
    for number, session in enumerate(("ann", "bob", "eve")):
        said, name = message(session, session), f"run-{session}"
        cycle = Unfinished(f"0cut-{number}", session, (said,), (name,), name, attempts=2)
        action = Action((Call("look", {"what": session}),), id=f"a{number}")
        told += [accepted(Item(name, said, "run", session)), *cut(cycle, action)]
    await left_behind(tmp_path, *told)
    agent, is_quiet = agent_at(tmp_path, clock, answer), True
    agent.hook("before_cycle")(lambda ctx: Decision.deny("quiet hours") if is_quiet and ctx.session == "ann" else None)
    async with agent:
        for session in ("bob", "eve"):
            assert (await agent.wait(f"run-{session}", 30)).output == f"done {session}"
        if is_aborted:
            await agent.abort("run-ann")
        is_quiet = False
        assert (await agent.wait("run-ann", 30)).error == ("aborted" if is_aborted else "")

    assert effects == ["look bob", "look eve", *([] if is_aborted else ["look ann"])]
