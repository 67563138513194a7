"""Health: what counts as wrong, the ladder of recovery with every step told, and that alerts are closed again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from planning.chain import Chain
from spar import Agent
from spar.events import ErrorOccurred, Event, HealthAlert, HealthRecovered, LoopCompleted, RecoveryStep
from spar.health.ladder import MEND_WITHIN
from spar.testing import Hang, ScriptedActor, ScriptedPlanner, ScriptedReflector, ScriptedSense, VirtualClock
from spar.types import Action, Call, Perception
from tests.doubles import heard


class Module:
    """A sense module that fails as long as it is `broken`, and counts how often it was opened."""

    def __init__(self, broken: bool = True) -> None:
        self.broken, self.opened, self.closed = broken, 0, 0
        self.heals_at: int | None = None
        self.on_open: Callable[[int], Any] | None = None

    async def __aenter__(self) -> Module:
        self.opened += 1
        if self.on_open is not None and (waiting := self.on_open(self.opened)) is not None:
            await waiting
        if self.opened == self.heals_at:
            self.broken = False
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.closed += 1

    async def sense(self) -> list[Perception]:
        if self.broken:
            raise ConnectionError("no route")
        return []


class Story:
    """An agent and what its health said, in order, as short sentences."""

    def __init__(
        self, clock: VirtualClock, *, interval: Any = 1.0, phases: Any = None, health: Any = None, **modules: Any
    ) -> None:
        settings = {"agent": {"phases": phases or {}}, "health": {"backoff": 0, **(health or {})}}
        self.agent = Agent(loop_interval=interval, settings=settings, clock=clock, **modules)
        self.events: list[Any] = []
        for kind in (HealthAlert, HealthRecovered, RecoveryStep):
            self.agent.events.subscribe(kind, self.events.append)

    @property
    def told(self) -> list[str]:
        return [_sentence(event) for event in self.events]

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def open(self) -> list[str]:
        return sorted(self.agent.health.alerts)


def _sentence(event: Event) -> str:
    if isinstance(event, HealthAlert):
        return f"{event.severity} {event.kind}"
    if isinstance(event, RecoveryStep):
        return event.step
    assert isinstance(event, HealthRecovered)
    return f"recovered {event.kind}"


def acting(**more: Any) -> dict[str, Any]:
    """Modules of an agent that acts in every cycle."""
    return {"sense": ScriptedSense(then="x"), "plan": ScriptedPlanner([[Call("x")]]), "act": ScriptedActor(),
            "reflect": ScriptedReflector(), **more}  # fmt: skip


def cycles(story: Story, clock: VirtualClock) -> list[float]:
    """When each cycle of it ended, as they do."""
    times: list[float] = []
    story.agent.events.subscribe(LoopCompleted, lambda event: times.append(clock.elapsed))
    return times


async def test_failing_cycles_in_a_row_open_one_alert_that_says_where_and_why(clock: VirtualClock) -> None:
    story = Story(clock, sense=ScriptedSense([OSError("no route")] * 8, then=None))
    started = clock.now()
    async with story.agent:
        await clock.sleep(7.5)
        [alert] = story.of(HealthAlert)
        assert (alert.kind, alert.severity) == ("failing", "warning")
        assert alert.message == "5 cycles in a row failed, the last in sense: no route"
        assert (alert.since - started).total_seconds() == pytest.approx(4.0)
        assert alert.cycle_id
        assert alert.alert_id
        assert story.open == ["failing"]


async def test_a_cycle_that_was_interrupted_neither_closes_the_alert_nor_counts(clock: VirtualClock) -> None:
    story = Story(
        clock, sense=ScriptedSense([*[OSError("no")] * 5, asyncio.CancelledError(), *[OSError("no")] * 4], then=None)
    )
    async with story.agent:
        await clock.sleep(9.5)
        assert story.told == ["warning failing", "restart"]
        assert story.agent.stats.consecutive_failures == 9


async def test_each_wait_grows_while_the_agent_keeps_failing_and_is_told(clock: VirtualClock) -> None:
    sense = ScriptedSense([*[OSError("no")] * 8, *[None] * 3], then=OSError("no"))
    story = Story(clock, interval=0.25, health={"backoff": 1.0, "failing_after": 3}, sense=sense)
    times = cycles(story, clock)
    async with story.agent:
        await clock.sleep(500)
    waits = [round(after - before, 3) for before, after in pairwise(times)]
    assert waits[:11] == [0.25, 0.25, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 0.25, 0.25, 0.25], "it ends with the failures"
    steps = [event for event in story.of(RecoveryStep) if event.step == "back_off"]
    assert [event.reason for event in steps[:3]] == [f"the next cycle waits {seconds} s" for seconds in (1, 2, 4)]
    assert {event.alert_id for event in steps[:6]} == {story.of(HealthAlert)[0].alert_id}
    assert "warning stalled" not in story.told


async def test_a_continuous_agent_that_fails_backs_off_too(clock: VirtualClock) -> None:
    story = Story(clock, interval=0, health={"backoff": 1.0}, sense=Module())
    async with story.agent:
        await clock.sleep(60)
        assert story.agent.stats.total_cycles < 100


# -- the ladder ---------------------------------------------------------------------------------------------


async def test_the_module_that_keeps_failing_is_closed_and_opened_again(clock: VirtualClock) -> None:
    module = Module()
    module.heals_at = 2
    story = Story(clock, sense=module)
    async with story.agent:
        await clock.sleep(8)
        assert (module.opened, module.closed) == (2, 1)
    assert story.told == ["warning failing", "restart", "recovered failing"]
    [step] = story.of(RecoveryStep)
    assert (step.part, step.reason) == ("Module", "no route")
    assert step.alert_id == story.of(HealthAlert)[0].alert_id


class FallingBack:
    """A planner that fails until it is told to fall back."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.is_degraded = False

    async def plan(self, perceptions: list[Perception]) -> Action:
        if not self.is_degraded:
            raise ConnectionError("the model is away")
        return Action([Call("x")], degraded=True)

    def degrade(self, reason: str) -> None:
        self.told.append(reason)
        self.is_degraded = True

    def restore(self) -> None:
        self.told.append("restore")
        self.is_degraded = False


async def test_a_restart_that_does_not_help_is_followed_by_degraded_mode_until_the_agent_was_well_for_a_while(
    clock: VirtualClock,
) -> None:
    planner = FallingBack()
    story = Story(clock, **acting(plan=planner))
    async with story.agent:
        await clock.sleep(20.5)
        assert story.agent.stats.outcomes["degraded"] > 0
        assert story.told == ["warning failing", "restart", "restart", "degrade", "recovered failing"]
        await clock.sleep(39.5)
        assert planner.told == ["the model is away"]
        await clock.sleep(12)
        assert planner.told == ["the model is away", "restore"]
        assert story.told[5:] == ["restore"]
        await clock.sleep(12)
        assert planner.told[-1] == "the model is away"


async def test_the_standard_planner_is_degraded_and_restored_as_a_step_that_is_told(clock: VirtualClock) -> None:
    class Dead:
        async def plan(self, perceptions: list[Perception]) -> Action:
            await Hang().wait()
            raise AssertionError

    chain = Chain([Dead(), ScriptedPlanner([[Call("x")]])])
    story = Story(clock, phases={"plan": {"timeout": 0.5}}, **acting(plan=chain))
    async with story.agent:
        await clock.sleep(20)
        assert chain.degraded_reason is not None
        assert story.agent.stats.outcomes["degraded"] > 0
        assert "degrade" in story.told
        await clock.sleep(60)
        assert "restore" in story.told


async def test_when_nothing_helps_the_agent_pauses_with_a_critical_alert_until_it_is_resumed_and_well(
    clock: VirtualClock,
) -> None:
    module = Module()
    story = Story(clock, sense=module, health={"failing_after": 2, "max_restarts": 3})
    async with story.agent:
        await clock.sleep(30)
        assert story.agent.state == "paused"
        assert story.told == ["warning failing", "restart", "restart", "restart", "pause", "critical failing"]
        warning, critical = story.of(HealthAlert)
        assert critical.message == "paused, sense keeps failing: no route"
        assert critical.alert_id == warning.alert_id
        assert critical.since == warning.since
        assert "3 restarts within 60 s" in story.of(RecoveryStep)[-1].reason
        assert module.opened == 4
        total = story.agent.stats.total_cycles
        await clock.sleep(100)
        assert story.agent.stats.total_cycles == total == 8
        module.broken = False
        await story.agent.resume()
        await clock.sleep(1)
        assert story.told[-1] == "recovered failing"
        assert story.of(HealthRecovered)[0].alert_id == warning.alert_id
        assert story.open == []


async def test_restarts_that_lie_far_enough_apart_do_not_add_up(clock: VirtualClock) -> None:
    story = Story(clock, interval=31.0, sense=Module(), health={"failing_after": 1, "max_restarts": 2})
    async with story.agent:
        await clock.sleep(600)
        assert story.agent.state == "running"
        assert "pause" not in story.told


async def test_a_module_that_cannot_be_opened_again_is_reported_and_tried_at_the_next_rung(clock: VirtualClock) -> None:
    module = Module()

    def refuse_once(opened: int) -> None:
        if opened == 2:
            raise OSError("still starting")

    module.on_open, module.heals_at = refuse_once, 3
    story = Story(clock, sense=module)
    errors = heard(story.agent, ErrorOccurred)
    async with story.agent:
        await clock.sleep(12)
        assert story.told[-1] == "recovered failing"
    assert [event.error.message for event in errors if event.policy == "restart"] == ["still starting"]
    assert module.opened == 3


async def test_a_module_that_hangs_while_it_is_restarted_stalls_the_loop_only_so_long(clock: VirtualClock) -> None:
    module, hang = Module(), Hang()
    module.on_open = lambda opened: hang.wait() if opened == 2 else None
    story = Story(clock, sense=module)
    errors = heard(story.agent, ErrorOccurred)
    async with asyncio.timeout(500), story.agent:
        await clock.sleep(4.0 + MEND_WITHIN + 5)
        assert story.agent.stats.total_cycles > 5
    assert [event.error.kind for event in errors if event.policy == "restart"] == ["timeout"]
    assert hang.cancelled == 1


@pytest.mark.parametrize("what", ["degrade", "restore"])
async def test_a_planner_that_raises_in_degrade_or_restore_does_not_break_the_loop(
    clock: VirtualClock, what: str
) -> None:
    planner = FallingBack()

    def broken(*given: Any) -> None:
        raise RuntimeError(f"{what} is broken")

    setattr(planner, what, broken)
    story = Story(clock, **acting(plan=planner))
    errors = heard(story.agent, ErrorOccurred)
    async with story.agent:
        await clock.sleep(90)
        assert story.agent.state in ("running", "paused")
    assert f"{what} is broken" in {event.error.message for event in errors}
    assert not any(event.phase == "loop" for event in errors)


async def test_new_limits_count_from_the_next_cycle_on(clock: VirtualClock) -> None:
    from spar.config.load import from_mapping

    story = Story(clock, sense=Module(), health={"failing_after": 100})
    async with story.agent:
        await clock.sleep(5)
        assert story.told == []
        story.agent.apply(from_mapping({"health": {"failing_after": 2, "max_restarts": 0, "backoff": 0}}))
        await clock.sleep(5)
        assert story.told == ["warning failing", "pause", "critical failing"]


# -- slow ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "before", "seconds", "said"),
    [({"slow_after": 0.25}, [None], 0.5, "0.5 s, more than 0.25 s"), ({}, [0.2] * 20, 5.0, "5 s, more than 2 s")],
    ids=["than configured", "than usual"],
)
async def test_a_cycle_that_is_slower_is_slow_until_one_is_not(
    clock: VirtualClock, settings: dict[str, Any], before: list[float | None], seconds: float, said: str
) -> None:
    script = [None if took is None else partial(clock.sleep, took) for took in (*before, seconds, None)]
    story = Story(clock, health=settings, sense=ScriptedSense(script, then=None))
    async with story.agent:
        await clock.sleep(40)
    assert story.told == ["warning slow", "recovered slow"]
    assert story.of(HealthAlert)[0].message == f"a cycle took {said}"


RETRIED = {"timeout": 0.5, "retries": 1, "backoff": 4.0}


@pytest.mark.parametrize(
    ("script", "phase", "seconds"),
    [([*[None] * 20, 0.9], {}, 40), ([299.0], {"timeout": 300.0}, 298), ([OSError("no")] * 9, RETRIED, 3.5),
     ([], {}, 1000)],
    ids=["less than a second", "within its deadline", "before the next attempt", "all well"],
)  # fmt: skip
async def test_nothing_is_said_of_what_is_neither_slow_nor_stuck(
    clock: VirtualClock, script: list[Any], phase: dict[str, float], seconds: float
) -> None:
    sense = ScriptedSense(
        [partial(clock.sleep, each) if isinstance(each, float) else each for each in script], then="x"
    )
    story = Story(clock, phases={"sense": phase}, **acting(sense=sense))
    async with story.agent:
        await clock.sleep(seconds)
        assert story.told == []
        assert story.agent.health.is_calm()


async def test_a_cycle_that_acts_is_not_slow_because_most_cycles_are_idle(clock: VirtualClock) -> None:
    async def think(perceptions: list[Perception]) -> Action:
        await clock.sleep(4.0)
        return Action([Call("x")])

    sense = ScriptedSense([item for _ in range(5) for item in (*[None] * 10, "something")], then=None)
    story = Story(clock, **acting(sense=sense, plan=think))
    async with story.agent:
        await clock.sleep(100)
        assert story.agent.stats.outcomes["acted"] == 5
    assert story.told == []


class Oversleeps:
    """Stands for the wake of a lane and sleeps on when its time is over, as a bug in its pacing would."""

    def __init__(self, wake: Any) -> None:
        self._wake = wake
        self.set, self.is_set = wake.set, False

    async def sleep(self, seconds: float | None) -> Any:
        return await self._wake.sleep(None)


async def test_no_cycle_for_three_expected_intervals_is_stalled_until_one_completes(clock: VirtualClock) -> None:
    story = Story(clock, interval=10.0, sense=ScriptedSense())
    async with story.agent:
        await clock.sleep(1)
        lane = story.agent.sessions.by_key["main"]
        lane.wake = Oversleeps(lane.wake)  # type: ignore[assignment]
        await clock.sleep(45)  # its last cycle was at 10 s, the next one is due at 20 s
        assert story.told == []
        await clock.sleep(8)
        assert story.told == ["warning stalled"]
        alert = story.of(HealthAlert)[0]
        assert "no cycle completed for" in alert.message
        assert "expected every 10 s" in alert.message
        story.agent.wake()
        await clock.sleep(1)
        assert story.told == ["warning stalled", "recovered stalled"]


@pytest.mark.parametrize(
    ("interval", "limit"),
    [("off", "auto"), ("off", 2.0), (3600.0, "auto"), (3600.0, 2.0), ("adaptive", "auto"), ("adaptive", 1.0)],
)
async def test_a_legal_wait_is_never_stalled(clock: VirtualClock, interval: Any, limit: Any) -> None:
    story = Story(clock, interval=interval, health={"stalled_after": limit}, sense=ScriptedSense())
    async with story.agent:
        await clock.sleep(4000)
    assert story.told == []


async def test_a_paused_agent_is_not_stalled_nor_is_one_that_goes_on_after_a_long_pause(clock: VirtualClock) -> None:
    story = Story(clock, sense=ScriptedSense())
    async with story.agent:
        await clock.sleep(2.5)
        await story.agent.pause()
        await clock.sleep(10_000)
        await story.agent.resume()
        await clock.sleep(5)
    async with story.agent:
        await clock.sleep(5)
    assert story.told == []
