"""Start, stop, pause, resume: every request in every state, at once, from everywhere, cut short and repeated."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spar import (
    Action,
    Agent,
    Call,
    ErrorOccurred,
    LifecycleError,
    LoopCompleted,
    LoopStarted,
    Perception,
    StateChanged,
)
from spar.agent.lifecycle import FOLLOWS, LEGAL
from spar.testing import Hang, RecordingStore, ScriptedActor, ScriptedPlanner, ScriptedSense, VirtualClock
from spar.types import Experience
from tests.waiting import until


class Part:
    """A module that says when it is opened and closed; `opening` and `closing` are awaited there."""

    def __init__(self, name: str, log: list[str], opening: Any = None, closing: Any = None) -> None:
        self.name, self.log, self.opening, self.closing = name, log, opening, closing
        self.is_open = False

    async def __aenter__(self) -> Part:
        self.log.append(f"open {self.name}")
        if self.opening is not None:
            await self.opening()
        self.is_open = True
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.log.append(f"close {self.name}")
        self.is_open = False
        if self.closing is not None:
            await self.closing()

    async def sense(self) -> list[Perception]:
        return []

    async def plan(self, perceptions: Any) -> None:
        return None

    async def act(self, action: Action) -> Any:
        raise AssertionError("nothing was planned")

    async def reflect(self, result: Any) -> Any:
        raise AssertionError("nothing was done")


def states_of(agent: Agent) -> list[str]:
    seen = [agent.state]
    agent.events.subscribe(StateChanged, lambda event: seen.append(event.new))
    return seen


async def raising(error: BaseException) -> None:
    raise error


# -- the table ---------------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def agent_that_is(state: str, clock: VirtualClock) -> AsyncIterator[tuple[Agent, Hang]]:
    """An agent in this state, and what its sense hangs in, if it does."""
    hang = Hang()
    sense = ScriptedSense([hang]) if state in ("pausing", "stopping") else None
    agent = Agent(sense=sense, clock=clock, loop_interval=0.5)
    waiting: asyncio.Task[None] | None = None
    if state != "created":
        await agent.start()
    if sense is not None:
        await until(lambda: hang.waiting == 1)
    if state == "pausing":
        waiting = asyncio.create_task(agent.pause())
    elif state == "stopping":
        waiting = asyncio.create_task(agent.stop())
    elif state == "paused":
        await agent.pause()
    elif state == "stopped":
        await agent.stop()
    elif state == "failed":
        agent.sessions.by_key["main"].runner.cancel()  # as the end of the event loop does
    await until(lambda: agent.state == state)
    yield agent, hang
    hang.release()
    if waiting is not None:
        await waiting
    await agent.stop()


REQUESTS: dict[str, Callable[[Agent], Coroutine[Any, Any, Any]]] = {
    "start": lambda agent: agent.start(),
    "pause": lambda agent: agent.pause(),
    "resume": lambda agent: agent.resume(),
    "stop": lambda agent: agent.stop(),
    "submit": lambda agent: agent.submit("hello"),
    "step": lambda agent: agent.step_sense(),
}
#: Where a legal request leads to, once the cycle in hand has ended.
LEADS_TO = {
    "created": {"start": "running", "stop": "created", "step": "created", "submit": "created"},
    "running": {"start": "running", "pause": "paused", "resume": "running", "stop": "stopped", "submit": "running"},
    "pausing": {"pause": "paused", "resume": "running", "stop": "stopped", "submit": "paused"},
    "paused": {"pause": "paused", "resume": "running", "stop": "stopped", "step": "paused", "submit": "paused"},
    "stopping": {"start": "running", "stop": "stopped"},
    "stopped": {"start": "running", "stop": "stopped", "step": "stopped"},
    "failed": {"start": "running", "stop": "stopped"},
}


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("state", LEGAL)
async def test_every_request_in_every_state_does_what_the_table_says(
    state: str, request_name: str, clock: VirtualClock
) -> None:
    async with agent_that_is(state, clock) as (agent, hang):
        request = asyncio.create_task(REQUESTS[request_name](agent))
        await asyncio.sleep(0)

        if request_name not in LEGAL[state]:  # type: ignore[index]
            with pytest.raises(LifecycleError) as caught:
                await request
            assert agent.state == state
            assert caught.value.state == state
            assert state in str(caught.value)
            assert all(legal in str(caught.value) for legal in LEGAL[state])  # type: ignore[index]
            return

        hang.release()
        await request
        await until(lambda: agent.state == LEADS_TO[state][request_name])


def test_the_tables_know_every_state_and_agree() -> None:
    assert set(LEGAL) == set(FOLLOWS) == set(LEADS_TO)
    assert {state: set(requests) for state, requests in LEADS_TO.items()} == {s: set(r) for s, r in LEGAL.items()}
    assert all(follower in FOLLOWS for followers in FOLLOWS.values() for follower in followers)


@pytest.mark.parametrize("request_name", ["start", "stop", "pause", "resume"])
async def test_a_request_repeated_changes_nothing(request_name: str, clock: VirtualClock) -> None:
    agent = Agent(clock=clock)
    await agent.start()
    if request_name == "resume":
        await agent.pause()
    await REQUESTS[request_name](agent)
    state, seen = agent.state, states_of(agent)

    await REQUESTS[request_name](agent)
    await asyncio.gather(*(REQUESTS[request_name](agent) for _ in range(5)))

    assert agent.state == state
    assert seen == [state]
    await agent.stop()


# -- at once, and cut short --------------------------------------------------------------------------------


async def test_starting_from_many_tasks_opens_everything_once(clock: VirtualClock) -> None:
    log: list[str] = []
    part = Part("plan", log, opening=lambda: asyncio.sleep(1.0))
    agent = Agent(plan=part, clock=clock)

    await asyncio.gather(*(agent.start() for _ in range(10)))

    assert agent.state == "running"
    assert log == ["open plan"]
    await asyncio.gather(*(agent.stop() for _ in range(10)))
    assert log == ["open plan", "close plan"]


async def test_a_stop_that_comes_while_the_agent_starts_stops_it_afterwards(clock: VirtualClock) -> None:
    log: list[str] = []
    part = Part("plan", log, opening=lambda: asyncio.sleep(1.0))
    agent = Agent(plan=part, clock=clock)

    starting = asyncio.create_task(agent.start())
    await asyncio.sleep(0.5)
    await agent.stop()

    await starting
    assert agent.state == "stopped"
    assert log == ["open plan", "close plan"]


async def test_a_stop_with_a_deadline_calls_off_a_start_that_hangs(clock: VirtualClock) -> None:
    log: list[str] = []
    first, second = Part("sense", log), Part("plan", log, opening=lambda: asyncio.sleep(1e6))
    agent = Agent(sense=first, plan=second, clock=clock)
    starting = asyncio.create_task(agent.start())
    await until(lambda: "open plan" in log)

    await agent.stop(deadline=2.0)

    with pytest.raises(LifecycleError, match="start"):
        await starting
    assert 2.0 <= clock.elapsed < 5.0
    assert agent.state == "created"
    assert log == ["open sense", "open plan", "close sense"]


async def test_a_cancelled_pause_settles_as_paused(clock: VirtualClock) -> None:
    hang = Hang(seconds=3.0)
    agent = Agent(sense=ScriptedSense([hang]), clock=clock)
    await agent.start()
    await until(lambda: hang.waiting == 1)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(agent.pause(), 0.5)

    assert agent.state == "pausing"
    await until(lambda: agent.state == "paused")
    await agent.stop()


async def test_a_cancelled_stop_goes_on_and_can_be_asked_for_again(clock: VirtualClock) -> None:
    hang = Hang(seconds=3.0)
    log: list[str] = []
    agent = Agent(sense=ScriptedSense([hang]), plan=Part("plan", log), clock=clock)
    await agent.start()
    await until(lambda: hang.waiting == 1)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(agent.stop(), 0.5)
    assert agent.state == "stopping"

    await agent.stop()

    assert agent.state == "stopped"
    assert log == ["open plan", "close plan"]


@pytest.mark.parametrize("kind", ["asyncio", "anyio"])
async def test_a_cancelled_start_closes_what_it_opened_and_can_be_repeated(kind: str, clock: VirtualClock) -> None:
    log: list[str] = []
    opening: list[Any] = [asyncio.Event().wait]

    async def open_slowly() -> None:
        if opening:
            await opening.pop()()

    slow_to_close = Part("sense", log, closing=lambda: asyncio.sleep(1.0))
    agent = Agent(sense=slow_to_close, plan=Part("plan", log), act=Part("act", log, opening=open_slowly), clock=clock)

    if kind == "asyncio":
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(agent.start(), 5.0)
    else:
        with pytest.raises(TimeoutError), anyio.fail_after(5.0):
            await agent.start()

    assert agent.state == "created"
    assert log == ["open sense", "open plan", "open act", "close plan", "close sense"]
    assert not slow_to_close.is_open
    await agent.start()
    assert agent.state == "running"
    assert log[5:] == ["open sense", "open plan", "open act"]
    await agent.stop()


async def test_a_failing_start_closes_in_reverse_order_says_why_and_can_be_repeated(clock: VirtualClock) -> None:
    log: list[str] = []
    failures: list[BaseException] = [OSError("no such device")]

    async def fail_once() -> None:
        if failures:
            raise failures.pop()

    agent = Agent(
        sense=Part("sense", log), plan=Part("plan", log), act=Part("act", log, opening=fail_once), clock=clock
    )

    with pytest.raises(OSError, match="no such device"):
        await agent.start()

    assert agent.state == "created"
    assert log == ["open sense", "open plan", "open act", "close plan", "close sense"]
    await agent.start()
    await agent.stop()
    assert log[-3:] == ["close act", "close plan", "close sense"]


async def test_a_store_that_cannot_be_read_fails_the_start_and_leaves_nothing_open(clock: VirtualClock) -> None:
    class Store(RecordingStore):
        failures = 1

        async def load(self, key: str) -> Any:
            if self.failures:
                self.failures -= 1
                raise OSError("disk on fire")
            return await super().load(key)

    store, log = Store(), []  # type: ignore[var-annotated]
    agent = Agent(plan=Part("plan", log), memory=store, clock=clock)

    with pytest.raises(OSError, match="disk on fire"):
        await agent.start()

    assert not store.is_open
    assert log == ["open plan", "close plan"]
    await agent.start()
    assert store.is_open
    await agent.stop()


async def test_state_saved_by_another_version_does_not_keep_the_agent_from_starting(clock: VirtualClock) -> None:
    store = RecordingStore()
    await store.save("agent:main", {"seq": 7, "abilities": [{"tool": "note", "nobody": "knows this"}, "junk"]})
    agent = Agent(memory=store, clock=clock)

    await agent.start()

    assert agent.abilities == {}
    assert agent.events.seq >= 7
    await agent.stop()


@pytest.mark.parametrize("deadline", [-1.0, float("nan")])
async def test_a_deadline_that_is_no_time_is_refused(deadline: float) -> None:
    with pytest.raises(ValueError, match="deadline"):
        await Agent().stop(deadline=deadline)


OPS = ("start", "stop", "stop at once", "pause", "resume", "cancel", "submit", "step")
Op = tuple[str, float]


async def walk(ops: list[Op], clock: VirtualClock) -> tuple[Agent, list[str], list[BaseException]]:
    """Make the requests from tasks of their own, so many seconds apart; everything that went wrong."""
    log: list[str] = []
    turning = 0
    wrong: list[BaseException] = []

    async def sense() -> list[Perception]:
        nonlocal turning
        turning += 1
        assert turning == 1, "two cycles of one session at once"
        try:
            await asyncio.sleep(0.3)
        finally:
            turning -= 1
        return []

    async def opening() -> None:
        await asyncio.sleep(0.1)
        log.append("opened plan")

    agent = Agent(sense=sense, clock=clock, loop_interval=0.2, plan=Part("plan", log, opening=opening))

    def check(event: StateChanged) -> None:
        if event.new not in FOLLOWS[event.old]:  # type: ignore[index]
            wrong.append(AssertionError(f"{event.old} -> {event.new}"))

    agent.events.subscribe(StateChanged, check)
    agent.events.subscribe(ErrorOccurred, lambda event: wrong.append(event.exception or AssertionError(event.error)))
    tasks: list[asyncio.Task[Any]] = []
    for op, pause in ops:
        if op == "cancel":
            if tasks:
                tasks[-1].cancel()
        elif op == "stop at once":
            tasks.append(asyncio.create_task(agent.stop(deadline=0.0)))
        else:
            tasks.append(asyncio.create_task(REQUESTS[op](agent)))
        await asyncio.sleep(pause)
    async with asyncio.timeout(60.0):
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        expected = (LifecycleError, asyncio.CancelledError)
        wrong.extend(each for each in outcomes if isinstance(each, BaseException) and not isinstance(each, expected))
        await agent.stop()
    return agent, log, wrong


@settings(max_examples=150, deadline=None, derandomize=True)
@given(ops=st.lists(st.tuples(st.sampled_from(OPS), st.sampled_from([0.0, 0.05, 0.1, 0.25, 1.0])), max_size=14))
def test_any_walk_of_overlapping_requests_follows_the_table_and_ends_stopped(ops: list[Op]) -> None:
    async def main() -> None:
        async with VirtualClock() as clock:
            agent, log, wrong = await walk(ops, clock)
            assert wrong == []
            assert agent.state in ("created", "stopped")
            assert log.count("opened plan") == log.count("close plan")
            assert all(lane.runner.task is None for lane in agent.sessions.by_key.values())

    asyncio.run(main())


# -- from inside -------------------------------------------------------------------------------------------


def agent_that_asks(where: str, what: str, clock: VirtualClock, asked: list[str]) -> Agent:
    """An agent of which one place asks for `what` in its first cycle, and notes that the asking returned."""

    async def ask() -> None:
        if not asked:
            asked.append("asks")
            await getattr(agent, what)()
            asked.append("returned")

    async def tool() -> str:
        """Ask."""
        await ask()
        return "done"

    async def sense() -> list[Perception]:
        if where == "cycle":
            await ask()
        return [Perception("go")]

    async def on_event(event: LoopStarted) -> None:
        await ask()

    async def hook(ctx: Any) -> None:
        await ask()

    if where == "tool":
        agent = Agent(sense=sense, plan=ScriptedPlanner([Call("tool")]), tools=[tool], clock=clock)
    else:
        agent = Agent(sense=sense, clock=clock)
    if where == "async handler":
        agent.events.subscribe(LoopStarted, on_event)
    elif where == "sync handler":
        agent.events.subscribe(LoopStarted, lambda event: asked or asyncio.ensure_future(ask()))
    elif where == "hook":
        agent.hook("before_cycle")(hook)
    return agent


@pytest.mark.parametrize("where", ["cycle", "tool", "async handler", "sync handler", "hook"])
@pytest.mark.parametrize(("what", "state"), [("stop", "stopped"), ("pause", "paused")])
async def test_from_inside_it_is_a_request_that_returns(where: str, what: str, state: str, clock: VirtualClock) -> None:
    asked: list[str] = []
    agent = agent_that_asks(where, what, clock, asked)
    outcomes: list[str] = []
    agent.events.subscribe(LoopCompleted, lambda event: outcomes.append(event.outcome))

    await agent.start()
    await until(lambda: agent.state == state)

    assert asked == ["asks", "returned"]
    assert "interrupted" not in outcomes
    assert len(outcomes) >= 1
    await agent.stop()


async def test_a_hook_at_the_start_may_ask_for_a_stop(clock: VirtualClock) -> None:
    agent = Agent(clock=clock)

    @agent.hook("service_start")
    async def not_today(ctx: Any) -> None:
        await agent.stop()

    await agent.start()
    await until(lambda: agent.state == "stopped")


async def test_a_handler_may_start_a_failed_agent_again(clock: VirtualClock) -> None:
    agent = Agent(clock=clock)

    @agent.on(StateChanged)
    async def again(event: StateChanged) -> None:
        if event.new == "failed":
            await agent.start()

    await agent.start()
    seen = states_of(agent)
    agent.sessions.by_key["main"].runner.cancel()

    await until(lambda: seen == ["running", "failed", "running"])
    await agent.stop()


async def test_one_agent_can_stop_another_from_its_cycle_and_wait_for_it(clock: VirtualClock) -> None:
    other = Agent(name="other", clock=clock, sense=ScriptedSense([Hang(seconds=2.0)]))
    seen: list[str] = []

    async def sense() -> list[Perception]:
        if not seen:
            await other.stop()
            seen.append(other.state)
        return []

    async with other, Agent(sense=sense, clock=clock):
        await until(lambda: bool(seen))

    assert seen == ["stopped"]


# -- stopping within a deadline ----------------------------------------------------------------------------


async def test_a_stop_without_deadline_lets_the_cycle_in_hand_finish(clock: VirtualClock) -> None:
    store, outcomes = RecordingStore(), []  # type: ignore[var-annotated]
    actor = ScriptedActor([20.0, "ok"])
    agent = Agent(
        sense=ScriptedSense(["go"]), plan=ScriptedPlanner([Call("note")]), act=actor, memory=store, clock=clock
    )
    agent.events.subscribe(LoopCompleted, lambda event: outcomes.append(event.outcome))
    await agent.start()
    await until(lambda: bool(actor.seen))

    await agent.stop()

    assert clock.elapsed >= 20.0
    assert outcomes == ["acted"]
    assert [cycle.outcome for cycle in store.cycles] == ["acted"]


async def test_a_phase_that_honours_its_cancellation_is_cut_at_the_deadline(clock: VirtualClock) -> None:
    store, hang, outcomes = RecordingStore(), Hang(), []  # type: ignore[var-annotated]
    agent = Agent(
        sense=ScriptedSense(["go"]), plan=ScriptedPlanner([Call("note")]), act=ScriptedActor([hang]), memory=store,
        clock=clock,
    )  # fmt: skip
    agent.events.subscribe(LoopCompleted, lambda event: outcomes.append(event.outcome))
    await agent.start()
    await until(lambda: hang.waiting == 1)
    began = clock.elapsed

    await agent.stop(deadline=2.0)

    assert hang.cancelled == 1
    assert outcomes == ["interrupted"]
    assert clock.elapsed - began == pytest.approx(2.0, abs=0.1)
    assert [cycle.outcome for cycle in store.cycles] == ["interrupted"]
    assert agent.stats.outcomes["interrupted"] == 1
    assert agent.stats.failed_cycles == 0


@pytest.mark.parametrize("phase", ["sense", "plan", "act", "reflect"])
async def test_a_phase_that_ignores_its_cancellation_is_left_behind(phase: str, clock: VirtualClock) -> None:
    outcomes: list[str] = []
    log: list[str] = []
    with Hang(ignore_cancel=True) as hang:

        async def hanging(*_: Any) -> Any:
            await hang.wait()

        modules: dict[str, Any] = {
            "sense": ScriptedSense(["go"]), "plan": ScriptedPlanner([Call("note")]), "act": ScriptedActor(),
            "reflect": Part("reflect", log),
        }  # fmt: skip
        modules[phase] = hanging
        agent = Agent(**modules, clock=clock)
        agent.events.subscribe(LoopCompleted, lambda event: outcomes.append(event.outcome))
        await agent.start()
        await until(lambda: hang.waiting == 1)
        began = clock.elapsed

        await agent.stop(deadline=1.0)

        assert agent.state == "stopped"
        assert outcomes == ["interrupted"]
        assert clock.elapsed - began < 5.0
        assert agent.left_behind == 1
        if phase != "reflect":
            assert log == ["open reflect", "close reflect"]
    await until(lambda: agent.left_behind == 0)


async def test_a_phase_that_swallows_its_cancellation_and_returns_is_still_recorded_as_interrupted(
    clock: VirtualClock,
) -> None:
    async def sense() -> list[Perception]:
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            pass
        return [Perception("too late")]

    planner, outcomes = ScriptedPlanner([Call("note")]), []  # type: ignore[var-annotated]
    agent = Agent(sense=sense, plan=planner, act=ScriptedActor(), clock=clock)
    agent.events.subscribe(LoopCompleted, lambda event: outcomes.append(event.outcome))
    await agent.start()
    await asyncio.sleep(1.0)

    await agent.stop(deadline=0.0)

    assert outcomes == ["interrupted"]


async def test_a_cut_phase_is_not_tried_again(clock: VirtualClock) -> None:
    with Hang(ignore_cancel=True) as hang:

        async def sense() -> Any:
            await hang.wait()

        agent = Agent(sense=sense, clock=clock, settings={"agent": {"phases": {"sense": {"retries": 5}}}})
        await agent.start()
        await until(lambda: hang.waiting == 1)

        await agent.stop(deadline=0.5)
        await asyncio.sleep(30.0)

        assert hang.waiting == 1
        assert agent.left_behind == 1
    await until(lambda: agent.left_behind == 0)


async def test_blocking_code_is_left_to_its_thread_at_the_deadline() -> None:
    hang = Hang(blocking=True)

    def sense() -> list[Perception]:
        hang.block()
        return []

    with hang:
        agent = Agent(sense=sense)
        await agent.start()
        await until(lambda: hang.waiting == 1)

        await asyncio.wait_for(agent.stop(deadline=0.05), 30.0)

        assert agent.state == "stopped"
        assert agent.left_behind == 1
        assert agent.stats.outcomes["interrupted"] == 1
    await until(lambda: agent.left_behind == 0)


async def test_a_store_that_hangs_does_not_keep_the_agent_from_stopping(clock: VirtualClock) -> None:
    class Store(RecordingStore):
        async def flush(self) -> None:
            await asyncio.sleep(1e6)

        async def save(self, key: str, value: Any) -> None:
            await asyncio.sleep(1e6)

    agent = Agent(memory=Store(), clock=clock)
    await agent.start()

    await asyncio.wait_for(agent.stop(), 60.0)

    assert agent.state == "stopped"


# -- opening and closing -----------------------------------------------------------------------------------


async def test_modules_open_in_order_and_close_in_reverse_with_the_store_outermost(clock: VirtualClock) -> None:
    log: list[str] = []

    class Store(Part):
        async def store(self, experience: Experience) -> None:
            self.log.append("store")

    phases = ("sense", "plan", "act", "reflect")
    agent = Agent(**{phase: Part(phase, log) for phase in phases}, memory=Store("store", log), clock=clock)

    async with agent:
        assert agent.state == "running"

    assert log == [
        "open store", "open sense", "open plan", "open act", "open reflect",
        "close reflect", "close act", "close plan", "close sense", "close store",
    ]  # fmt: skip


async def test_one_object_for_several_phases_is_opened_once(clock: VirtualClock) -> None:
    log: list[str] = []
    part = Part("all", log)

    async with Agent(sense=part, plan=part, act=part, reflect=part, clock=clock):
        pass

    assert log == ["open all", "close all"]


async def test_a_module_that_fails_to_close_is_reported_and_the_others_close(clock: VirtualClock) -> None:
    log: list[str] = []
    errors: list[ErrorOccurred] = []
    broken = Part("plan", log, closing=lambda: raising(OSError("stuck lid")))
    agent = Agent(sense=Part("sense", log), plan=broken, act=Part("act", log), clock=clock)
    agent.events.subscribe(ErrorOccurred, errors.append)
    await agent.start()

    await agent.stop()

    assert agent.state == "stopped"
    assert log[-3:] == ["close act", "close plan", "close sense"]
    assert [(event.phase, event.error.message) for event in errors] == [("close", "stuck lid")]
    await agent.start()
    await agent.stop()


class Nursery:
    """A module that holds an anyio task group and a cancel scope open for as long as it is open itself."""

    def __init__(
        self, child: Callable[[], Coroutine[Any, Any, None]] = anyio.sleep_forever, *, swallows: bool = False
    ) -> None:
        self.child, self.swallows, self.is_open = child, swallows, False

    async def __aenter__(self) -> Nursery:
        self.scope = anyio.CancelScope()
        self.scope.__enter__()
        self.group = anyio.create_task_group()
        await self.group.__aenter__()
        self.group.start_soon(self.child)
        self.is_open = True
        return self

    async def __aexit__(self, *exc: Any) -> bool | None:
        self.is_open = False
        self.group.cancel_scope.cancel()
        try:
            return await self.group.__aexit__(*exc)
        except ExceptionGroup:
            if self.swallows:
                return True
            raise
        finally:
            self.scope.__exit__(*exc)

    async def sense(self) -> list[Perception]:
        return []


async def test_a_module_may_hold_a_task_group_although_start_and_stop_come_from_different_tasks(
    clock: VirtualClock,
) -> None:
    module = Nursery()
    agent = Agent(sense=module, clock=clock)

    for _ in range(2):
        await asyncio.create_task(agent.start())
        await asyncio.sleep(3.0)
        assert module.is_open
        assert agent.state == "running"
        await asyncio.create_task(agent.stop())
        assert not module.is_open


@pytest.mark.parametrize("swallows", [False, True])
async def test_a_module_whose_background_task_fails_is_reported_and_opened_again_at_the_next_start(
    clock: VirtualClock, swallows: bool
) -> None:
    failures: list[BaseException] = [ValueError("child broke")]

    async def child() -> None:
        await anyio.sleep(2.0)
        if failures:
            raise failures.pop()
        await anyio.sleep_forever()

    module, errors = Nursery(child, swallows=swallows), []  # type: ignore[var-annotated]
    agent = Agent(sense=module, clock=clock)
    agent.events.subscribe(ErrorOccurred, errors.append)

    await agent.start()
    await asyncio.sleep(10.0)

    assert agent.state == "running"
    assert [event.phase for event in errors] == ["open"]
    assert swallows or errors[0].error.message == "child broke"
    await agent.stop()
    await agent.start()
    assert module.is_open
    await agent.stop()
    assert len(errors) == 1


async def test_as_a_context_manager_it_starts_stops_and_lets_exceptions_through(clock: VirtualClock) -> None:
    agent = Agent(clock=clock)

    with pytest.raises(KeyError, match="mine"):  # noqa: PT012
        async with agent as entered:
            assert entered is agent
            assert agent.state == "running"
            raise KeyError("mine")

    assert agent.state == "stopped"


# -- in the foreground, and across event loops -------------------------------------------------------------


async def test_cancelling_run_stops_the_agent(clock: VirtualClock) -> None:
    log: list[str] = []
    agent = Agent(plan=Part("plan", log), clock=clock)
    running = asyncio.create_task(agent.run())
    await until(lambda: agent.state == "running")

    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert agent.state == "stopped"
    assert log == ["open plan", "close plan"]


async def test_a_pause_does_not_end_run(clock: VirtualClock) -> None:
    agent = Agent(clock=clock)
    running = asyncio.create_task(agent.run())
    await until(lambda: agent.state == "running")

    await agent.pause()
    await asyncio.sleep(5.0)

    assert not running.done()
    await agent.resume()
    await agent.stop()
    await running


def test_an_agent_can_be_used_in_one_event_loop_after_another() -> None:
    log: list[str] = []
    agent = Agent(plan=Part("plan", log), sense=lambda: [], loop_interval=0.01)

    async def once() -> None:
        before = agent.stats.total_cycles
        async with agent:
            await until(lambda: agent.stats.total_cycles >= before + 2)

    asyncio.run(once())
    asyncio.run(once())

    assert agent.state == "stopped"
    assert log == ["open plan", "close plan"] * 2


def test_an_agent_whose_event_loop_is_shut_down_ends_promptly_and_can_start_in_another() -> None:
    log: list[str] = []
    agent = Agent(plan=Part("plan", log), loop_interval=0.01)

    async def start_and_leave() -> None:
        await agent.start()
        await until(lambda: agent.stats.total_cycles >= 1)

    asyncio.run(start_and_leave())

    assert agent.state == "failed"
    assert "outside" in agent.failure
    assert log == ["open plan", "close plan"]

    async def again() -> None:
        before = agent.stats.total_cycles
        await agent.start()
        await until(lambda: agent.stats.total_cycles >= before + 2)
        await agent.stop()

    asyncio.run(again())

    assert agent.state == "stopped"
    assert log == ["open plan", "close plan"] * 2


def test_running_in_the_foreground_under_asyncio_run_ends_with_it() -> None:
    agent = Agent(loop_interval=0.01)

    async def main() -> None:
        running = asyncio.create_task(agent.run())
        await until(lambda: agent.stats.total_cycles >= 1)
        del running

    asyncio.run(main())

    assert agent.state == "stopped"


async def test_a_call_from_another_event_loop_is_refused_while_its_own_runs() -> None:
    agent = Agent(loop_interval=0.01)
    await agent.start()
    refused: list[BaseException] = []

    def elsewhere() -> None:
        try:
            asyncio.run(agent.stop())
        except RuntimeError as error:
            refused.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await until(lambda: not thread.is_alive())

    assert "another event loop" in str(refused[0])
    assert agent.state == "running"
    await agent.stop()


async def test_nothing_of_it_is_left_when_it_has_stopped(clock: VirtualClock) -> None:
    before = asyncio.all_tasks()

    async def on_event(event: LoopStarted) -> None:
        await asyncio.sleep(0)

    agent = Agent(sense=Nursery(), memory=RecordingStore(), clock=clock)
    agent.events.subscribe(LoopStarted, on_event)
    async with agent:
        await agent.submit("hello", session="somebody")
        await asyncio.sleep(5.0)
    await asyncio.sleep(0.1)

    assert asyncio.all_tasks() == before
