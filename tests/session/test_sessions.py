"""The beginning and the end of sessions, and what is done between two cycles."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from memory import Memory
from spar import Action, Agent, Context, ErrorOccurred, Perception
from spar.events import RunEnded
from spar.records.runs import RunStatus
from spar.session.cycles import SETTLE_WITHIN
from spar.testing import VirtualClock
from tests.waiting import until


async def plan(perceptions: Any) -> Action:
    return Action(output="done")


def told_by(agent: Agent) -> list[tuple[str, str, str]]:
    told: list[tuple[str, str, str]] = []
    for point in ("session_start", "session_end"):
        agent.hook(point)(lambda ctx: told.append((ctx.point, ctx.value, ctx.reason)))
    return told


async def say(agent: Agent, session: str) -> None:
    receipt = await agent.submit("hello", session=session)
    assert (await agent.wait(receipt.run_id)).status == "ok"


async def test_a_session_begins_with_its_first_run_and_ends_when_the_agent_stops(clock: VirtualClock) -> None:
    agent = Agent(plan=plan, clock=clock)
    told = told_by(agent)
    async with agent:
        for session in ("a", "main", "a", "a", "main"):
            await say(agent, session)
            await asyncio.sleep(5.0)
        agent.push(Perception("noise", session="b"))  # says nothing that a transcript tells
        await asyncio.sleep(5.0)
        assert told == [("session_start", "a", ""), ("session_start", "main", "")]

    assert told[2:] == [("session_end", "a", "stop"), ("session_end", "main", "stop")]


@pytest.mark.parametrize("is_kept", [True, False])
async def test_a_session_does_not_begin_again_after_a_restart(
    is_kept: bool, clock: VirtualClock, tmp_path: Path
) -> None:
    def agent_at() -> Agent:
        memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}") if is_kept else None
        return Agent(plan=plan, clock=clock, memory=memory)

    agent = agent_at()
    told = told_by(agent)
    async with agent:
        await say(agent, "a")
    if is_kept:
        agent = agent_at()
        again = told_by(agent)
    else:
        again = told
        told.clear()
    async with agent:
        await say(agent, "a")
        await say(agent, "b")

    assert again[0] == ("session_start", "b", "")
    assert sorted(again[1:]) == [("session_end", "a", "stop"), ("session_end", "b", "stop")]


async def test_a_session_whose_transcript_is_gone_ends_and_begins_anew(clock: VirtualClock, tmp_path: Path) -> None:
    memory = Memory(f"sqlite:///{tmp_path / 'memory.db'}")
    agent = Agent(plan=plan, clock=clock, memory=memory)
    told = told_by(agent)
    async with agent:
        for _ in range(2):
            await say(agent, "a")
        await memory.transcripts.forget(agent.name, "a")
        await say(agent, "a")

    assert [(point, reason) for point, _, reason in told] == [
        ("session_start", ""), ("session_end", "forgotten"), ("session_start", ""), ("session_end", "stop"),
    ]  # fmt: skip


async def test_a_session_in_which_nothing_is_said_for_long_ends_as_idle_where_that_is_asked_for(
    clock: VirtualClock,
) -> None:
    agent = Agent(plan=plan, clock=clock, settings={"sessions": {"idle": 60.0}})
    told = told_by(agent)
    async with agent:
        await say(agent, "a")
        await asyncio.sleep(40.0)
        await say(agent, "b")
        await say(agent, "a")
        await asyncio.sleep(59.0)
        assert len(told) == 2
        await asyncio.sleep(10.0)

    assert told[2:] == [("session_end", "b", "idle"), ("session_end", "a", "idle")]


async def test_a_session_that_is_at_work_is_not_idle(clock: VirtualClock) -> None:
    async def slow(perceptions: Any) -> Action:
        await asyncio.sleep(100.0)
        return Action(output="done")

    agent = Agent(plan=slow, clock=clock, settings={"sessions": {"idle": 10.0}})
    told = told_by(agent)
    async with agent:
        receipt = await agent.submit("hello", session="a")
        await asyncio.sleep(90.0)
        assert told == [("session_start", "a", "")]
        assert (await agent.wait(receipt.run_id)).status == "ok"
        await asyncio.sleep(25.0)
        assert told[1:] == [("session_end", "a", "idle")]


async def test_a_stop_waits_for_the_hook_at_a_session_s_end_but_not_beyond_its_deadline(clock: VirtualClock) -> None:
    for deadline, ended in ((None, ["a"]), (1.0, [])):
        agent, told = Agent(plan=plan, clock=clock), []

        @agent.hook("session_end")
        async def slow(ctx: Any, told: list[str] = told) -> None:
            await asyncio.sleep(5.0)
            told.append(ctx.value)

        await agent.start()
        await agent.wait((await agent.submit("hello", session="a")).run_id)
        await agent.stop(deadline)
        assert told == ended
        assert agent.state == "stopped"


async def test_a_slow_hook_at_a_session_s_beginning_does_not_delay_the_others(clock: VirtualClock) -> None:
    agent = Agent(plan=plan, clock=clock)

    @agent.hook("session_start")
    async def slow(ctx: Any) -> None:
        if ctx.session == "slow":
            await asyncio.sleep(10.0)

    async with agent:
        first = await agent.submit("hello", session="slow")
        second = await agent.submit("hello", session="quick")
        assert (await agent.wait(second.run_id, 1.0)).status == "ok"
        assert (await agent.wait(first.run_id, 1.0)).status == "timeout"
        assert (await agent.wait(first.run_id, 20.0)).status == "ok"


async def test_a_hook_that_fails_at_a_session_s_beginning_is_reported_and_the_session_goes_on(
    clock: VirtualClock,
) -> None:
    agent = Agent(plan=plan, clock=clock)
    errors: list[str] = []
    agent.on(ErrorOccurred)(lambda event: errors.append(event.phase))

    @agent.hook("session_start")
    async def broken(ctx: Any) -> None:
        raise ValueError("no")

    async with agent:
        receipt = await agent.submit("hello", session="a")
        assert (await agent.wait(receipt.run_id)).status == "ok"
    assert errors == ["session_start"]


async def test_a_sense_module_that_hangs_while_it_hears_what_is_settled_is_left_and_reported(
    clock: VirtualClock,
) -> None:
    class Sense:
        async def sense(self) -> list[Perception]:
            return [Perception("tick")]

        async def settled(self) -> None:
            await asyncio.sleep(1e6)

    agent = Agent(sense=Sense(), plan=plan, clock=clock)
    errors: list[str] = []
    agent.on(ErrorOccurred)(lambda event: errors.append(event.error.kind))
    async with agent:
        await asyncio.sleep(SETTLE_WITHIN * 3)
        assert 2 <= agent.stats.total_cycles <= 4
        await agent.stop(deadline=0.0)
    assert set(errors) == {"timeout"}


async def test_a_sense_module_that_cancels_itself_while_it_hears_does_not_end_the_agent(clock: VirtualClock) -> None:
    class Sense:
        async def sense(self) -> list[Perception]:
            return [Perception("tick")]

        async def settled(self) -> None:
            raise asyncio.CancelledError

    async with Agent(sense=Sense(), plan=plan, clock=clock) as agent:
        await asyncio.sleep(5.0)
        assert agent.is_running
        assert agent.stats.total_cycles > 3


async def test_a_hook_that_ignores_its_cancellation_counts_as_left_behind(clock: VirtualClock) -> None:
    agent, may_end = Agent(plan=plan, clock=clock), asyncio.Event()

    @agent.hook("service_start", timeout=0.1)
    async def stubborn(ctx: Any) -> None:
        while not may_end.is_set():
            try:
                await may_end.wait()
            except asyncio.CancelledError:
                pass

    async with agent:
        assert agent.left_behind == 1
        may_end.set()
        await asyncio.sleep(0.1)
        assert agent.left_behind == 0


#: Not loaded for a class, and not for an agent of any kind without settings; not for an agent that only perceives.
_HEAVY = ("pydantic", "pydantic_core", "spar.config.load", "apsw", "httpx", "loguru")
_OF_PARTS = (*_HEAVY, "spar.parts.registry", "importlib.metadata")


def test_importing_the_agent_and_making_one_without_settings_loads_nothing_heavy() -> None:
    code = "import sys; from spar import Agent"
    for made, heavy in (
        ("None", _OF_PARTS), ("Agent()", _OF_PARTS), ("Agent(sense=lambda: [], loop_interval='off')", _OF_PARTS),
        ("Agent(sense=lambda: [], plan=lambda perceptions: None)", _HEAVY),
    ):  # fmt: skip
        code += f"; {made}; print([name for name in {heavy} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.split() == ["[]"] * 4


@pytest.mark.parametrize(
    ("named", "asked", "goes_to"),
    [("ada", None, "ada"), ("ada", "bob", "bob"), ("ada", "main", "main"), ("main", None, "main"), (None, None, "main"),
     (None, "bob", "bob")],
)  # fmt: skip
async def test_a_message_goes_to_the_session_that_is_asked_for_or_that_it_names(
    named: str | None, asked: str | None, goes_to: str, clock: VirtualClock
) -> None:
    seen: list[tuple[str, str]] = []

    async def plan_seen(perceptions: Any, context: Context) -> Action:
        seen.append((context.session, perceptions[0].session))
        return Action(output="done")

    message = "hello" if named is None else Perception("hello", session=named)
    async with Agent(plan=plan_seen, clock=clock) as agent:
        receipt = await (agent.submit(message) if asked is None else agent.submit(message, session=asked))
        assert (await agent.wait(receipt.run_id)).status == "ok"

    assert seen == [(goes_to, goes_to)]


async def test_a_perception_that_is_accepted_goes_to_the_session_that_it_names(clock: VirtualClock) -> None:
    seen: list[str] = []

    async def plan_seen(perceptions: Any, context: Context) -> None:
        seen.extend(context.session for _ in perceptions)

    async with Agent(plan=plan_seen, clock=clock) as agent:
        await agent.accept(Perception("hello", session="ada"))
        await clock.sleep(10)

    assert seen == ["ada"]


OBJECTS = """
import asyncio, gc
from spar import Action, Agent

async def main():
    gate = asyncio.Event()
    async def plan(perceptions):
        await gate.wait()
        return Action(output="done")
    async with Agent(plan=plan, loop_interval=0.01, settings={"runs": {"limit": 1}}) as agent:
        counts = []
        for kind in ("first", "then"):
            for number in range(100):
                await agent.submit("hello", session=f"{kind}{number}")
            gc.collect()
            counts.append(len(gc.get_objects()))
        gate.set()
    print((counts[1] - counts[0]) / 100)

asyncio.run(main())
"""


def test_the_garbage_collector_looks_through_few_objects_of_a_message_that_waits_for_a_slot() -> None:
    shown = subprocess.run([sys.executable, "-c", OBJECTS], capture_output=True, text=True, check=True, timeout=120)
    assert float(shown.stdout) < 14.5


class SharedByTest:
    """Sessions of this process, of which it has not read all that others have left."""

    def __init__(self) -> None:
        self.unread: set[str] = set()

    def has_read(self, session: str) -> bool:
        return session not in self.unread

    def owns(self, session: str) -> bool:
        return True

    has = owns

    def is_suspect(self, session: str) -> bool:
        return False


async def test_a_session_that_waits_for_a_slot_gets_none_before_what_others_have_left_of_it_is_read(
    clock: VirtualClock,
) -> None:
    async def slow(perceptions: Any, context: Context) -> Action | None:
        if context.run is None:
            return None
        begun.append(context.run.goal)
        await clock.sleep(1.0)
        return Action(output="done")

    begun: list[str] = []
    async with Agent(plan=slow, clock=clock, settings={"runs": {"limit": 1}}) as agent:
        shared: Any = SharedByTest()
        agent.core.shared = shared
        await agent.submit("first", session="a")
        second = await agent.submit("second", session="b")
        shared.unread.add("b")
        await clock.sleep(5.0)
        assert begun == ["first"]
        shared.unread.clear()
        agent.sessions.spawn_all()
        assert (await agent.wait(second.run_id, 5.0)).status == "ok"
        agent.core.shared = None
    assert begun == ["first", "second"]


async def test_a_run_whose_session_goes_to_another_node_while_it_is_aborted_is_aborted_there(
    clock: VirtualClock,
) -> None:
    class Elsewhere(SharedByTest):
        """Sessions that are another node's once the phase has been cancelled."""

        def __init__(self) -> None:
            super().__init__()
            self.is_lost = False
            self.aborted: list[str] = []

        def owns(self, session: str) -> bool:
            return not self.is_lost

        has = owns

        async def wait(self, run_id: str, timeout: float | None) -> RunStatus:
            return RunStatus(run_id, "timeout")

        async def abort(self, run_id: str) -> None:
            self.aborted.append(run_id)

    async def slow(perceptions: Any, context: Context) -> Action | None:
        if context.run is None:
            return None
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            shared.is_lost = True

    async def let_go() -> None:
        session = agent.sessions.by_key["a"]
        await until(lambda: shared.is_lost and session.runner.task is None)
        agent.sessions.drop(session)
        agent.runs.let_go(lambda key: key == "a")

    begun, shared = asyncio.Event(), Elsewhere()
    told: list[Any] = []
    async with Agent(plan=slow, clock=clock) as agent:
        agent.core.shared = cast("Any", shared)
        receipt = await agent.submit("first", session="a")
        await begun.wait()
        agent.events.subscribe(RunEnded, told.append)
        await asyncio.gather(agent.abort(receipt.run_id), let_go())
        agent.core.shared = None
    assert shared.aborted == [receipt.run_id]
    assert told == []
