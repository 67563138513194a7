"""Whose failure it is: health counts by session and phase, and one session's trouble is no other's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from planning.chain import Chain
from planning.llm.planner import ModelPlanner
from planning.resilience.provider_errors import provider_error
from spar import Agent, PermanentError
from spar.errors import ConfigError
from spar.events import ErrorOccurred
from spar.health.health import Health
from spar.health.streaks import MOST_STREAKS, Streaks
from spar.hooks import Decision
from spar.observe.stats import MOST_SESSIONS, SessionStats
from spar.testing import Hang, ScriptedSense, VirtualClock
from spar.types import Action, Fault, Perception
from tests.doubles import HealthHeard, heard


def planner(fails: Callable[[str], BaseException | None]) -> Any:
    """A planner that answers messages and raises what `fails` makes of their text."""

    async def plan(perceptions: list[Perception]) -> Action | None:
        text = " ".join(str(perception.content) for perception in perceptions)
        if (error := fails(text)) is not None:
            raise error
        return Action(output="answered") if perceptions else None

    return plan


def failing_on(word: str, error: Callable[[], BaseException]) -> Any:
    return planner(lambda text: error() if word in text else None)


async def say(agent: Agent, text: str, session: str, times: int = 1) -> str:
    """Say something so many times, one after the other; the status of the last run."""
    status = ""
    for _ in range(times):
        receipt = await agent.submit(text, session=session)
        status = (await agent.wait(receipt.run_id, 600)).status
    return status


# -- what counts for nobody -----------------------------------------------------------------------------------


@pytest.mark.parametrize("session", ["main", "mallory"])
async def test_messages_that_can_never_be_planned_pause_and_degrade_nobody(clock: VirtualClock, session: str) -> None:
    class Model:
        name = "m"

        async def __call__(self, request: Any) -> dict[str, Any]:
            if "forbidden" in str(request.context[-6:]):
                raise provider_error("refused", "the content filter refused to answer this")
            return {"calls": [], "output": "hello alice"}

    async def rules(perceptions: list[Perception]) -> None:
        return None

    agent = Agent(plan=Chain([ModelPlanner(Model()), rules], main=0), loop_interval=1.0, clock=clock)
    async with HealthHeard(agent) as heard:
        assert await say(agent, "forbidden", session, times=40) == "error"
        assert (agent.state, heard.kinds, heard.steps) == ("running", ["runs"], [])
        began = clock.elapsed
        assert await say(agent, "hi", "alice") == "ok"
        assert clock.elapsed - began < 2.0
        assert agent.stats.consecutive_failures == 0
        assert agent.stats.failed_cycles == 40


async def test_a_plan_for_what_was_noticed_that_can_never_be_made_counts_for_nobody(clock: VirtualClock) -> None:
    agent = Agent(sense=ScriptedSense(then="bad"), plan=failing_on("bad", lambda: PermanentError("no")), clock=clock)
    async with HealthHeard(agent) as heard:
        await clock.sleep(60)
    assert agent.stats.failed_cycles > 40
    assert (heard.alerts, heard.steps) == ([], [])


async def test_a_file_that_somebody_named_and_that_is_missing_counts_for_nobody(clock: VirtualClock) -> None:
    agent = Agent(plan=failing_on("read", lambda: FileNotFoundError("no such file")), loop_interval=1.0, clock=clock)
    async with HealthHeard(agent) as heard:
        assert await say(agent, "read /tmp/nothing", "main", times=10) == "error"
        assert (agent.state, heard.kinds, heard.steps) == ("running", ["runs"], [])


@pytest.mark.parametrize(
    ("then", "error"),
    [("bad", ConfigError("no such model")), (PermanentError("no sensor"), None)],
    ids=["a setting that cannot be used", "a sense that fails for good"],
)
async def test_what_concerns_everybody_counts_though_it_is_not_worth_a_retry(
    clock: VirtualClock, then: Any, error: BaseException | None
) -> None:
    agent = Agent(sense=ScriptedSense(then=then), plan=failing_on("bad", lambda: error), clock=clock)
    async with HealthHeard(agent) as heard:
        await clock.sleep(10)
    assert [(alert.kind, alert.session) for alert in heard.alerts] == [("failing", "main")]


# -- by phase -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("idle_every", [2, 3, 7])
async def test_idle_cycles_neither_end_a_streak_nor_close_its_alert(clock: VirtualClock, idle_every: int) -> None:
    number = 0

    async def sense() -> list[Perception]:
        nonlocal number
        number += 1
        return [Perception(f"x{number}")] if number % idle_every else []

    agent = Agent(sense=sense, plan=failing_on("x", lambda: ValueError("always")), loop_interval=1.0, clock=clock,
                  settings={"health": {"failing_after": 3, "backoff": 0, "max_restarts": 1000}})  # fmt: skip
    async with HealthHeard(agent) as heard:
        await clock.sleep(100)
        assert [alert.kind for alert in heard.alerts] == ["failing"]
        assert heard.ends == []
        assert agent.stats.consecutive_failures == agent.stats.failed_cycles
        assert heard.alerts[0].message == "3 cycles in a row failed, the last in plan: always"


async def test_skipped_cycles_neither_count_nor_end_a_streak(clock: VirtualClock) -> None:
    agent = Agent(sense=ScriptedSense(then="x"), plan=failing_on("x", lambda: ValueError("always")), loop_interval=1.0,
                  clock=clock, settings={"health": {"failing_after": 4, "backoff": 0}})  # fmt: skip
    heard = HealthHeard(agent)
    asked = 0

    @agent.hook("before_plan")
    async def every_other(ctx: Any) -> Decision | None:
        nonlocal asked
        asked += 1
        return Decision.deny("not now") if asked % 2 else None

    async with agent:
        await clock.sleep(5.5)
        assert (agent.stats.outcomes["skipped"], agent.stats.outcomes["failed"], heard.alerts) == (3, 3, [])
        await clock.sleep(4)
        assert [alert.kind for alert in heard.alerts] == ["failing"]
        assert heard.ends == []


# -- by session -----------------------------------------------------------------------------------------------


async def test_one_sessions_failures_neither_pause_nor_degrade_nor_slow_another(clock: VirtualClock) -> None:
    chain = Chain(
        [failing_on("bad", lambda: ValueError("a bug")), planner(lambda text: ValueError("nor do we"))], main=0
    )
    agent = Agent(plan=chain, loop_interval=1.0, clock=clock, settings={"health": {"backoff": 0.01}})
    async with HealthHeard(agent) as heard:
        await say(agent, "bad", "mallory", times=60)
        assert agent.state == "running"
        assert {step.step for step in heard.steps} <= {"restart", "back_off"}
        assert chain.degraded_reason is None
        began = clock.elapsed
        assert await say(agent, "hi", "alice") == "ok"
        assert clock.elapsed - began < 2.0
        assert {(alert.kind, alert.session) for alert in heard.alerts} == {("failing", "mallory"), ("runs", "")}
        assert [end.kind for end in heard.ends] == ["runs"]


async def test_a_module_that_serves_others_well_is_not_restarted_for_one_session(clock: VirtualClock) -> None:
    agent = Agent(plan=failing_on("bad", lambda: ValueError("a bug")), loop_interval=1.0, clock=clock,
                  settings={"health": {"failing_after": 3}})  # fmt: skip
    async with HealthHeard(agent) as heard:
        for _ in range(10):
            await say(agent, "bad", "mallory")
            assert await say(agent, "hi", "alice") == "ok"
    assert [(alert.kind, alert.session) for alert in heard.alerts] == [("failing", "mallory")]
    assert "restart" in [step.step for step in heard.steps[:1]]  # nobody had been served when it began to fail
    assert [step.step for step in heard.steps].count("restart") == 1


async def test_the_standing_session_does_not_pause_the_agent_while_others_are_at_work(clock: VirtualClock) -> None:
    long = Hang()

    async def plan(perceptions: list[Perception]) -> Action:
        await long.wait()
        return Action(output="done")

    agent = Agent(sense=ScriptedSense(then=OSError("no")), plan=plan, loop_interval=1.0, clock=clock,
                  settings={"health": {"failing_after": 1, "max_restarts": 1, "backoff": 0}})  # fmt: skip
    async with HealthHeard(agent) as heard:
        receipt = await agent.submit("something long", session="alice")
        await clock.sleep(20)
        assert agent.state == "running"
        assert heard.alerts[-1].severity == "critical"
        long.release()
        assert (await agent.wait(receipt.run_id, 30)).status == "ok"
        await clock.sleep(5)
        assert agent.state == "paused"


async def test_the_restarts_of_other_sessions_are_not_counted_against_the_standing_one(clock: VirtualClock) -> None:
    noticed: list[Perception] = []

    async def sense() -> list[Perception]:
        return list(noticed)

    agent = Agent(sense=sense, plan=failing_on("bad", lambda: ValueError("no")), loop_interval=1.0, clock=clock,
                  settings={"health": {"failing_after": 1, "backoff": 0}})  # fmt: skip
    async with HealthHeard(agent) as heard:
        for number in range(10):
            await say(agent, "bad", f"m{number}")
        assert [step.step for step in heard.steps].count("restart") == 5
        noticed.append(Perception("bad"))
        await clock.sleep(1.5)
        assert [(step.step, step.session) for step in heard.steps[5:]] == [("restart", "main")]


async def test_a_phase_past_its_deadline_is_the_alert_of_its_session_until_it_succeeds_there(
    clock: VirtualClock,
) -> None:
    hang = Hang()

    async def plan(perceptions: list[Perception]) -> Action:
        if "slow" in str(perceptions[0].content):
            await hang.wait()
        return Action(output="done")

    agent = Agent(plan=plan, loop_interval=1.0, clock=clock,
                  settings={"agent": {"phases": {"plan": {"timeout": 2.0}}}})  # fmt: skip
    async with HealthHeard(agent) as heard:
        receipt = await agent.submit("slow", session="bob")
        await clock.sleep(2.5)
        assert [(alert.kind, alert.session) for alert in heard.alerts] == [("stuck", "bob")]
        assert await say(agent, "quick", "alice") == "ok"
        assert heard.ends == []
        hang.release()
        await agent.wait(receipt.run_id, 30)
        assert await say(agent, "quick", "bob") == "ok"
        assert [(end.kind, end.session) for end in heard.ends] == [("stuck", "bob")]


# -- how much is remembered -----------------------------------------------------------------------------------


def fault(phase: Any = "plan") -> Fault:
    return Fault("error", "no", "part", phase)


def test_only_so_many_streaks_are_remembered_and_the_oldest_is_handed_back() -> None:
    streaks = Streaks()
    for number in range(MOST_STREAKS):
        assert streaks.failed(f"s{number}", "plan", fault(), "c")[1] is None
    streaks.failed("s0", "plan", fault(), "c")
    _, forgotten = streaks.failed("one more", "plan", fault(), "c")
    assert forgotten.session == "s1"
    assert streaks.worst == 2


def test_the_longest_streak_is_known_after_it_has_ended() -> None:
    streaks = Streaks()
    for session, times in (("a", 5), ("b", 3)):
        for _ in range(times):
            streaks.failed(session, "plan", fault(), "c")
    streaks.failed("b", "act", fault("act"), "c")
    assert (streaks.worst, streaks.worst_of("b"), streaks.worst_of("nobody")) == (5, 3, 0)
    streaks.succeeded("a", "plan")
    assert streaks.worst == 3
    streaks.succeeded("b", "plan")
    assert (streaks.worst, bool(streaks)) == (1, True)
    streaks.succeeded("b", "act")
    assert (streaks.worst, bool(streaks)) == (0, False)


async def test_alerts_of_sessions_are_bounded(clock: VirtualClock) -> None:
    agent = Agent(plan=failing_on("bad", lambda: ValueError("no")), loop_interval="off", clock=clock,
                  settings={"health": {"failing_after": 1}})  # fmt: skip
    health: Health = agent.health
    async with agent:
        for number in range(MOST_STREAKS):
            health.judge.streaks.failed(f"s{number}", "plan", fault(), "c")
            health.judge.alert("failing", "no", session=f"s{number}", phase="plan")
        await say(agent, "bad", "one more")
        assert len(health.alerts) == MOST_STREAKS
        assert "failing:s0" not in health.alerts


# -- what goes on too long ------------------------------------------------------------------------------------


async def waits(perceptions: list[Perception]) -> Action:
    if "slow" in str(perceptions[0].content):
        await Hang().wait()
    return Action(output="done")


@pytest.mark.parametrize("session", ["main", "bob"])
@pytest.mark.parametrize(
    ("settings", "after", "kind"),
    [
        ({}, 60.0, "slow"),
        ({"health": {"slow_after": 3.0}}, 3.0, "slow"),
        ({"agent": {"phases": {"plan": {"timeout": "off"}}}}, 5.0, "stalled"),
        ({"health": {"stalled_after": 5.0}}, 5.0, "stalled"),
    ],
)
async def test_a_plan_in_hand_is_slow_and_one_that_nothing_bounds_is_stalled_in_any_session(
    clock: VirtualClock, session: str, settings: dict[str, Any], after: float, kind: str
) -> None:
    agent = Agent(plan=waits, loop_interval=1.0, clock=clock, settings=settings)
    async with HealthHeard(agent) as heard:
        await agent.submit("slow", session=session)
        await clock.sleep(after - 1)
        assert heard.alerts == []
        await clock.sleep(4)
        assert [(alert.kind, alert.session) for alert in heard.alerts] == [(kind, session)]
        assert kind == "stalled" or "plan goes on" in heard.alerts[0].message
        await agent.stop(deadline=0)


async def test_a_session_that_has_come_to_rest_is_not_slow_any_more(clock: VirtualClock) -> None:
    async def plan(perceptions: list[Perception]) -> Action:
        await clock.sleep(5)
        return Action(output="done")

    agent = Agent(plan=plan, loop_interval=1.0, clock=clock, settings={"health": {"slow_after": 3.0}})
    async with HealthHeard(agent) as heard:
        await say(agent, "hello", "bob")
        await clock.sleep(2)
        assert [(alert.kind, alert.session) for alert in heard.alerts] == [("slow", "bob")]
        assert [(end.kind, end.session) for end in heard.ends] == [("slow", "bob")]


# -- statistics by session ------------------------------------------------------------------------------------


async def test_each_session_has_statistics_of_its_own(clock: VirtualClock) -> None:
    agent = Agent(plan=failing_on("bad", lambda: ValueError("no")), loop_interval=1.0, clock=clock)
    async with agent:
        errors = heard(agent, ErrorOccurred)
        assert await say(agent, "hi", "alice", times=3) == "ok"
        await say(agent, "bad", "bob")
        assert {error.session for error in errors} == {"bob"}
        bob, alice = agent.stats_of("bob"), agent.stats_of("alice")
        assert (alice.total_cycles, alice.failed_cycles, alice.outcomes["acted"]) == (3, 0, 3)
        assert (bob.total_cycles, bob.failed_cycles, bob.errors_by_phase["plan"]) == (3, 3, 3)
        assert (bob.consecutive_failures, alice.consecutive_failures) == (3, 0)
        sessions = [agent.stats_of(session) for session in ("main", "alice", "bob")]
        assert sum(each.total_cycles for each in sessions) == agent.stats.total_cycles
        with pytest.raises(LookupError, match="carol"):
            agent.stats_of("carol")


def test_the_statistics_of_so_many_sessions_are_kept(clock: VirtualClock) -> None:
    accounts = SessionStats(Streaks().worst_of)
    for number in range(MOST_SESSIONS):
        accounts.cycle((f"s{number}", "idle", 0.1, [None] * 4, ()))
    accounts.cycle(("s0", "idle", 0.3, [0.1, 0.2, None, None], (fault("reflect"),)))
    accounts.cycle(("one more", "idle", 0.1, [None] * 4, ()))
    found = accounts.snapshot("s0")
    assert (found.total_cycles, found.phase_mean_seconds["plan"], found.errors_by_phase["reflect"]) == (2, 0.2, 1)
    with pytest.raises(LookupError):
        accounts.snapshot("s1")
