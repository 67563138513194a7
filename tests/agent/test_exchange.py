"""Modules are exchanged side by side: nothing is closed under anybody's work, and nobody's work holds up another's."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from planning.chain import Chain
from spar import Agent
from spar.agent.exchange import FREE_WITHIN, _pass_on_degradation
from spar.config.load import from_mapping
from spar.errors import LifecycleError, SparError
from spar.events import ErrorOccurred, RecoveryStep
from spar.testing import Hang, ScriptedSense, VirtualClock
from spar.types import Action, ActionResult, Call, CallResult, Perception
from tests.doubles import heard


class Planner:
    """A planner that says who it is; it waits over what is slow and fails over what is bad."""

    def __init__(self, name: str, log: list[str], opening: Hang | None = None) -> None:
        self.name, self.log, self.busy, self.opening = name, log, 0, opening
        self.slow = Hang()

    async def __aenter__(self) -> Planner:
        if self.opening is not None:
            await self.opening.wait()
        self.log.append(f"open {self.name}")
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.log.append(f"close {self.name} with {self.busy} at work")

    async def plan(self, perceptions: list[Perception]) -> Action:
        text = str(perceptions[0].content)
        if "bad" in text:
            raise ConnectionError("no route")
        if "slow" in text:
            self.busy += 1
            await self.slow.wait()
            self.busy -= 1
        return Action(output=self.name)


async def ask(agent: Agent, text: str, session: str) -> Any:
    receipt = await agent.submit(text, session=session)
    return (await agent.wait(receipt.run_id, 600)).output


async def test_each_session_changes_over_at_its_own_boundary_and_the_old_one_is_closed_last(
    clock: VirtualClock,
) -> None:
    log: list[str] = []
    old, new = Planner("old", log), Planner("new", log)
    agent = Agent(plan=old, loop_interval="off", clock=clock)
    async with agent:
        slow = await agent.submit("something slow", session="slow")
        await clock.sleep(1)
        await agent.exchange({"plan": new}, agent.settings)
        assert log == ["open old", "open new"]
        assert await ask(agent, "hello", "quick") == "new"
        assert log == ["open old", "open new"]
        old.slow.release()
        assert (await agent.wait(slow.run_id, 10)).output == "old"
        await clock.sleep(1)
        assert log == ["open old", "open new", "close old with 0 at work"]
        assert await ask(agent, "hello", "slow") == "new"
        assert agent.state == "running"
    assert log[3:] == ["close new with 0 at work"]


async def test_a_session_that_does_not_leave_is_told_of_and_not_cut(clock: VirtualClock) -> None:
    log: list[str] = []
    old = Planner("old", log)
    phases = {name: {"timeout": "off"} for name in ("sense", "plan", "act", "reflect")}
    settings = {"agent": {"phases": phases}, "runs": {"timeout": "off"}}
    agent = Agent(plan=old, loop_interval="off", clock=clock, settings=settings)
    steps = heard(agent, RecoveryStep)
    async with agent:
        slow = await agent.submit("something slow", session="slow")
        await clock.sleep(1)
        await agent.exchange({"plan": Planner("new", log)}, agent.settings)
        await clock.sleep(3000)
        assert [(step.step, step.part) for step in steps] == [("abandon", "Planner")]
        assert "at work for slow" in steps[0].reason
        old.slow.release()
        assert (await agent.wait(slow.run_id, 10)).output == "old"
        await clock.sleep(1)
        assert log[-1] == "close old with 0 at work"


async def test_what_cannot_be_opened_leaves_everything_as_it_was(clock: VirtualClock) -> None:
    log: list[str] = []

    class Broken(Planner):
        async def __aenter__(self) -> Planner:
            raise OSError("no such model")

    old = Planner("old", log)
    agent = Agent(plan=old, loop_interval="off", clock=clock)
    async with agent:
        fresh = Planner("act", log)
        with pytest.raises(OSError, match="no such model"):
            await agent.exchange({"sense": ScriptedSense(), "plan": Broken("new", log), "act": _actor(fresh)},
                                 agent.settings)  # fmt: skip
        assert agent.setup.modules["plan"].part is old
        assert await ask(agent, "hello", "any") == "old"
    assert log == ["open old", "close old with 0 at work"]


def _actor(opened: Planner) -> Any:
    class Actor:
        async def __aenter__(self) -> Actor:
            await opened.__aenter__()
            return self

        async def __aexit__(self, *exc: object) -> None:
            await opened.__aexit__()

        async def act(self, action: Action) -> ActionResult:
            return ActionResult(action, "ok", tuple(CallResult(call, "ok") for call in action.calls))

    return Actor()


async def test_opening_a_new_module_is_bounded_and_holds_up_nobody(clock: VirtualClock) -> None:
    log: list[str] = []
    agent = Agent(plan=Planner("old", log), loop_interval="off", clock=clock)
    async with agent:
        exchange = asyncio.ensure_future(agent.exchange({"plan": Planner("new", log, Hang())}, agent.settings))
        await clock.sleep(30)
        assert await ask(agent, "hello", "any") == "old"
        with pytest.raises(SparError, match=r"Planner did not open within 60 s \(agent\.phases\.plan\.opening\)"):
            await exchange
        assert 59 < clock.elapsed < 62
        assert await ask(agent, "hello", "any") == "old"


async def test_the_time_for_opening_is_a_setting(clock: VirtualClock) -> None:
    agent = Agent(plan=Planner("x", [], Hang()), clock=clock,
                  settings={"agent": {"phases": {"plan": {"opening": 5.0}}}})  # fmt: skip
    with pytest.raises(SparError, match="within 5 s"):
        await agent.start()
    assert agent.state == "created"
    assert clock.elapsed == pytest.approx(5.0, abs=1.0)


@pytest.mark.parametrize("started", [False, True])
async def test_a_stop_calls_off_what_is_being_opened(clock: VirtualClock, started: bool) -> None:
    log: list[str] = []
    agent = Agent(plan=Planner("old", log, None if started else Hang()), loop_interval="off", clock=clock)
    if started:
        await agent.start()
        opening = asyncio.ensure_future(agent.exchange({"plan": Planner("new", log, Hang())}, agent.settings))
    else:
        opening = asyncio.ensure_future(agent.start())
    await clock.sleep(1)
    await agent.stop()
    with pytest.raises(LifecycleError):
        await opening
    assert clock.elapsed < 5
    assert agent.state == ("stopped" if started else "created")


async def test_what_senses_is_exchanged_while_the_standing_session_rests(clock: VirtualClock) -> None:
    log: list[str] = []

    class Sense:
        def __init__(self, name: str) -> None:
            self.name = name

        async def __aenter__(self) -> Sense:
            log.append(f"open {self.name}")
            await clock.sleep(0.5)
            return self

        async def __aexit__(self, *exc: object) -> None:
            log.append(f"close {self.name}")

        async def sense(self) -> list[Perception]:
            log.append(f"sense {self.name}")
            return [Perception("x")]

        async def settled(self) -> None:
            log.append(f"settled {self.name}")

    hang = Hang(seconds=3.0)

    async def plan(perceptions: list[Perception]) -> Action:
        if perceptions[0].kind != "message":
            await hang.wait()
        return Action(output="done")

    agent = Agent(sense=Sense("old"), plan=plan, loop_interval=1.0, clock=clock)
    async with agent:
        await clock.sleep(1)
        exchange = asyncio.ensure_future(agent.exchange({"sense": Sense("new")}, agent.settings))
        await clock.sleep(1)
        assert await ask(agent, "hello", "alice") == "done"  # others go on
        assert log == ["open old", "sense old"]
        await exchange
        await clock.sleep(5)
    at = log.index("open new")
    assert log[:at] == ["open old", "sense old", "settled old"]
    assert log[at + 1] == "close old"
    assert "sense old" not in log[at:]


async def test_what_senses_is_exchanged_while_nothing_is_to_be_sensed(clock: VirtualClock) -> None:
    agent = Agent(sense=ScriptedSense(), loop_interval="off", clock=clock)
    async with agent:
        agent.wake()
        await agent.pause()
        await agent.resume()
        new = ScriptedSense()
        async with asyncio.timeout(10):
            await agent.exchange({"sense": new}, agent.settings)
        assert agent.setup.modules["sense"].part is new


# -- recovery -------------------------------------------------------------------------------------------------

HEALTH = {"health": {"failing_after": 2, "backoff": 0.01}}


async def test_recovery_opens_a_new_module_beside_the_old_one_where_it_can_be_made(clock: VirtualClock) -> None:
    log: list[str] = []
    old = Planner("first", log)
    agent = Agent(plan=old, loop_interval="off", clock=clock, settings=HEALTH)
    made = iter(("second", "third", "fourth"))
    agent.lifespan.make = lambda phase: Planner(next(made), log)
    async with agent:
        slow = await agent.submit("something slow", session="good")
        await clock.sleep(1)
        await ask(agent, "bad", "mallory")
        assert log[:2] == ["open first", "open second"]
        assert "close first" not in " ".join(log)
        old.slow.release()
        assert (await agent.wait(slow.run_id, 10)).output == "first"
        await clock.sleep(1)
        assert "close first with 0 at work" in log


async def test_a_module_of_which_there_is_only_one_is_restarted_when_nobody_is_at_work(clock: VirtualClock) -> None:
    log: list[str] = []
    only = Planner("only", log)
    agent = Agent(plan=only, loop_interval="off", clock=clock, settings=HEALTH)
    async with agent:
        slow = await agent.submit("something slow", session="good")
        await clock.sleep(1)
        bad = await agent.submit("bad", session="mallory")
        await clock.sleep(5)
        assert log == ["open only"]
        only.slow.release()
        assert (await agent.wait(slow.run_id, 10)).output == "only"
        await agent.wait(bad.run_id, 30)
        assert log[:3] == ["open only", "close only with 0 at work", "open only"]
        assert await ask(agent, "hello", "alice") == "only"


async def test_a_restart_for_which_others_leave_no_room_is_given_up_and_told(clock: VirtualClock) -> None:
    log: list[str] = []
    only = Planner("only", log)
    agent = Agent(plan=only, loop_interval="off", clock=clock, settings=HEALTH)
    errors = heard(agent, ErrorOccurred)
    async with agent:
        await agent.submit("something slow", session="good")
        await clock.sleep(1)
        await agent.submit("bad", session="mallory")
        await clock.sleep(FREE_WITHIN + 5)
        told = [error.error.message for error in errors if error.policy == "restart"]
        assert told == ["Planner is at work for other sessions and was not restarted"]
        assert await ask(agent, "hello", "alice") == "only"
        assert log == ["open only"]
        await agent.stop(deadline=0)


async def test_a_planner_that_makes_do_with_less_is_followed_by_one_that_does() -> None:
    async def one(perceptions: list[Perception]) -> None:
        return None

    old, new = Chain([one, one]), Chain([one, one])
    old.degrade("the model is away")
    _pass_on_degradation(old, new)
    assert new.degraded_reason == "the model is away"


async def test_pace_changes_by_an_exchange_at_once(clock: VirtualClock) -> None:
    agent = Agent(sense=ScriptedSense(), loop_interval=1000.0, clock=clock)
    async with agent:
        await clock.sleep(1)
        await agent.exchange({}, from_mapping({"agent": {"loop_interval": 2.0}}))
        await clock.sleep(5)
        assert agent.stats.total_cycles == 4


async def test_calls_that_wait_for_a_person_survive_an_exchange_of_the_actor(clock: VirtualClock) -> None:
    """See tests/journal/test_parked_cycles.py for what becomes of them without one."""
    from acting import Executor
    from spar.testing import RecordingTool

    probe = RecordingTool("probe")

    async def slow() -> str:
        """Take a while."""
        await clock.sleep(5)
        return "done"

    store = _records()

    def executor() -> Executor:
        approval = {"hold": 0.0, "rules": [{"tool": "probe", "decision": "ask"}]}
        return Executor([probe, slow], settings={"approval": approval})

    async def plan(perceptions: list[Perception]) -> Action | None:
        return Action([Call("probe"), Call("slow")]) if any(each.kind == "message" for each in perceptions) else None

    agent = Agent(plan=plan, act=executor(), memory=store, loop_interval="off", clock=clock)
    async with agent:
        await agent.submit("go", session="bob")
        await clock.sleep(1)
        assert agent.sessions.by_key["bob"].cycle is not None
        await agent.exchange({"act": executor()}, agent.settings)
        await clock.sleep(10)
        desk = agent.setup.modules["act"].part.approvals
        [row] = await desk.list()
        assert (row.is_parked, probe.calls) == (True, [])
        await desk.decide(row.id, row.digest, "approve", by="ann")
        await clock.sleep(5)
        assert len(probe.calls) == 1


def _records() -> Any:
    from spar.ports.rows import InMemory

    class Store(InMemory):
        async def store(self, experience: Any) -> None:
            return None

        async def load(self, key: str) -> Any:
            return None

        async def save(self, key: str, value: Any) -> None:
            return None

    return Store()
