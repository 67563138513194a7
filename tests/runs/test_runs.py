"""Runs: a message is accepted, pursued over as many cycles as it takes, and ends exactly once."""

from __future__ import annotations

import asyncio
import itertools
from datetime import UTC, datetime
from typing import Any

import pytest

from spar import (
    Action,
    ActionResult,
    Agent,
    Call,
    CallResult,
    Context,
    Decision,
    Fault,
    LifecycleError,
    LoopCompleted,
    Perception,
    PermanentError,
    TransientError,
)  # fmt: skip
from spar.clock import SystemClock
from spar.data.reply import End
from spar.decisions.finish import MOST_FAILURES, Limits, judge
from spar.events import MessageOutcome, RunAccepted, RunEnded, RunStarted
from spar.ids import new_id
from spar.loop.cycle import Cycle, closed, requested_wait
from spar.records.journal import Item
from spar.runs import runs
from spar.runs.runs import KEPT, KEPT_BYTES, Run
from spar.state.work import RunState
from spar.testing import Hang, ScriptedActor, ScriptedPlanner, ScriptedSense, VirtualClock, stream
from tests.doubles import heard

DONE = Action(output="done")
START = datetime(2026, 1, 1, tzinfo=UTC)


def agent_of(clock: VirtualClock, plan: Any = None, **more: Any) -> Agent:
    return Agent(
        plan=plan or ScriptedPlanner([DONE]), act=more.pop("act", None) or ScriptedActor(), clock=clock, **more
    )


def accepted(agent: Agent, key: str | None) -> Run:
    return agent.conversations.parts.runs.accept(Item(new_id(), Perception("x"), "run", key=key, at=agent.clock.now()))


async def test_what_is_used_after_the_end_of_a_run_is_counted(clock: VirtualClock) -> None:
    async with agent_of(clock) as agent:
        receipt = await agent.submit("hello")
        before = (await agent.wait(receipt.run_id)).usage
        agent.runs.used(receipt.run_id, {"requests": 2, "output_tokens": 5})
        after = (await agent.wait(receipt.run_id)).usage

    assert (after.requests - before.requests, after.output_tokens - before.output_tokens) == (2, 5)


# -- accepting


async def test_a_message_reaches_the_planner_as_a_trusted_perception_and_a_perception_keeps_its_trust(
    clock: VirtualClock,
) -> None:
    planner = ScriptedPlanner([DONE])
    async with agent_of(clock, planner) as agent:
        for message, session in (("hello {} \udc80", "main"), (Perception({"alert": 1}, source="hook"), "incident")):
            receipt = await agent.submit(message, session=session)
            assert (await agent.wait(receipt.run_id)).status == "ok"

    (text,), (alert,) = planner.seen
    assert (text.text, text.kind, text.trust, text.session) == ("hello {} \udc80", "message", "trusted", "main")
    assert (alert.content, alert.source, alert.trust, alert.session) == ({"alert": 1}, "hook", "untrusted", "incident")


@pytest.mark.parametrize(
    ("message", "options", "reason"),
    [
        *(
            (message, {}, "message must be text")
            for message in ("", "   \n", Perception(""), None, 7, b"hello", ["hello"])
        ),
        *(("hello", {"session": session}, "session's key") for session in ("", " ", 7)),
        ("hello", {"mode": "shout"}, "mode 'shout'"),
    ],
)
async def test_an_empty_message_what_is_none_no_session_and_no_mode_are_refused(
    message: Any, options: dict[str, Any], reason: str, clock: VirtualClock
) -> None:
    with pytest.raises(ValueError, match=reason):
        await agent_of(clock).submit(message, **options)


async def test_the_same_key_gives_the_same_receipt_and_one_run(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([DONE])
    async with agent_of(clock, planner) as agent:
        first = await agent.submit("hello", idempotency_key="k")
        again = await agent.submit("hello", idempotency_key="k")
        other = await agent.submit("hello", idempotency_key="l")
        assert (await agent.wait(first.run_id)).status == "ok"
        late = await agent.submit("hello", idempotency_key="k", session="elsewhere")
        await agent.wait(other.run_id)

    assert first == again == late
    assert other.run_id != first.run_id
    assert len(planner.seen) == 2


async def test_the_same_key_at_once_is_one_run_although_hooks_take_their_time(clock: VirtualClock) -> None:
    agent = agent_of(clock)

    @agent.hook("message_received")
    async def slowly(ctx: Any) -> None:
        await asyncio.sleep(1.0)

    receipts = await asyncio.gather(*(agent.submit("hello", idempotency_key="k") for _ in range(5)))

    assert len({receipt.run_id for receipt in receipts}) == 1
    assert agent.runs.open == 1


async def test_a_hook_may_rewrite_a_message_and_nothing_else(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([DONE])
    agent = agent_of(clock, planner)
    values: list[Any] = ["shorter", Perception("another", kind="message"), 7]

    @agent.hook("message_received")
    async def rewrite(ctx: Any) -> Decision:
        return Decision.rewrite(values.pop(0))

    async with agent:
        for _ in range(3):
            await agent.wait((await agent.submit("hello")).run_id)

    assert [[p.text for p in seen] for seen in planner.seen] == [["shorter"], ["another"], ["hello"]]


async def test_a_paused_agent_accepts_and_serves_later(clock: VirtualClock) -> None:
    async with agent_of(clock) as agent:
        await agent.pause()
        receipt = await agent.submit("hello", session="guest")
        status = await agent.wait(receipt.run_id, timeout=5.0)
        assert (status.status, status.outcome, status.started_at) == ("timeout", "queued", None)

        await agent.resume()

        assert (await agent.wait(receipt.run_id)).status == "ok"


async def test_an_agent_that_stops_while_a_hook_thinks_refuses(clock: VirtualClock) -> None:
    agent = agent_of(clock)

    @agent.hook("message_received")
    async def slowly(ctx: Any) -> None:
        await asyncio.sleep(1.0)

    await agent.start()
    submitting = asyncio.create_task(agent.submit("hello"))
    await asyncio.sleep(0.5)
    await agent.stop()

    with pytest.raises(LifecycleError, match="submit"):
        await submitting
    assert agent.runs.open == 0


# -- waiting


async def test_waiting_tells_all_who_wait_what_became_of_it_and_a_cancelled_one_does_not_disturb(
    clock: VirtualClock,
) -> None:
    async with agent_of(clock, ScriptedPlanner([3.0, DONE])) as agent:
        receipt = await agent.submit("hello")
        waiting = [asyncio.create_task(agent.wait(receipt.run_id)) for _ in range(5)]
        await asyncio.sleep(1.0)
        waiting.pop().cancel()
        status, *others = await asyncio.gather(*waiting)

    assert others == [status] * 3
    assert (status.run_id, status.outcome, status.errors) == (receipt.run_id, "started", ())
    assert (status.status, status.output, status.error) == ("ok", "done", "")
    assert status.started_at is not None
    assert status.ended_at is not None
    assert (status.ended_at - status.started_at).total_seconds() == pytest.approx(3.0, abs=0.1)


async def test_waiting_ends_at_its_timeout_and_never_stops_the_run(clock: VirtualClock) -> None:
    async with agent_of(clock, ScriptedPlanner([10.0, DONE])) as agent:
        receipt = await agent.submit("hello")
        assert (receipt.accepted_at, receipt.accepted_at.tzinfo, clock.elapsed) == (clock.now(), UTC, 0.0), "at once"
        status = await agent.wait(receipt.run_id, timeout=2.0)
        assert (status.status, status.ended_at) == ("timeout", None)
        assert clock.elapsed == 2.0
        for at_once in (0, 0.0, -1.0, float("nan")):
            assert (await agent.wait(receipt.run_id, timeout=at_once)).status == "timeout"
        assert clock.elapsed == 2.0

        assert (await agent.wait(receipt.run_id, timeout=None)).status == "ok"


@pytest.mark.parametrize("request_name", ["wait", "abort"])
async def test_an_unknown_run_is_a_lookup_error_at_once(request_name: str, clock: VirtualClock) -> None:
    async with agent_of(clock) as agent:
        with pytest.raises(LookupError, match="no run 'nobody'"):
            await getattr(agent, request_name)("nobody")
    assert clock.elapsed == 0.0


async def test_only_so_many_ended_runs_are_kept_and_open_ones_always(clock: VirtualClock) -> None:
    agent = agent_of(clock)
    oldest = await agent.submit("hello", session="waits")
    first = accepted(agent, "key")
    agent.runs.end(first, End("ok"))
    for _ in range(KEPT + 5):
        agent.runs.end(accepted(agent, None), End("ok"))
    accepted(agent, None)

    assert (await agent.wait(oldest.run_id, timeout=0)).status == "timeout"
    assert agent.runs.open == 2
    with pytest.raises(LookupError):
        await agent.wait(first.id)


# -- the course of a run


async def test_later_requests_find_what_was_done_in_their_context(clock: VirtualClock) -> None:
    seen: list[tuple[int, str, int, int]] = []

    async def plan(perceptions: list[Perception], context: Context) -> Action:
        run = context.run
        seen.append((run.number, run.goal, len(run.results), len(run.messages)))
        assert len(perceptions) == (1 if run.number == 1 else 0)
        return Action(calls=[Call("a")]) if run.number < 4 else DONE

    async def act(action: Action) -> ActionResult:
        results = tuple(CallResult(call, "ok") for call in action.calls)
        return ActionResult(action, results=results, messages=({"type": "data"},) * 2)

    async with agent_of(clock, plan, act=act) as agent:
        status = await agent.wait((await agent.submit("the goal")).run_id)

    assert (status.status, status.output) == ("ok", "done")
    assert seen == [(1, "the goal", 0, 0), (2, "the goal", 1, 2), (3, "the goal", 2, 4), (4, "the goal", 3, 6)]


async def test_new_perceptions_reach_a_run_in_hand(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([Call("a"), 1.0, Call("b"), DONE])
    agent = agent_of(clock, planner, sense=ScriptedSense([None, ["news"]]))
    receipt = await agent.submit("go")
    async with agent:
        await agent.wait(receipt.run_id)

    assert [[p.text for p in seen] for seen in planner.seen] == [["go"], ["news"], []]


# -- failing


async def test_a_run_is_told_from_acceptance_to_end(clock: VirtualClock) -> None:
    agent = agent_of(clock)
    told: list[str] = []
    for kind in (RunAccepted, RunStarted, MessageOutcome, RunEnded):
        agent.events.subscribe(kind, lambda event: told.append(type(event).__name__))
    async with agent:
        await agent.wait((await agent.submit("hello")).run_id)

    assert told == ["RunAccepted", "MessageOutcome", "RunStarted", "RunEnded"]


FAILING = [OSError("down")] * 2
#: What a planner does, how the run ends, and how often the planner was asked.
PLANS: dict[str, tuple[list[Any], tuple[str, str, Any], int]] = {
    "it keeps failing and ends after three attempts": ([OSError("down")], ("error", "down", None), MOST_FAILURES),
    "it recovers in time and is forgiven": ([*FAILING, Call("a"), *FAILING, DONE], ("ok", "", "done"), 6),
    "a permanent error ends it at once": ([PermanentError("no such account")], ("error", "no such account", None), 1),
    "it plans nothing": ([None], ("ok", "", None), 1),
    **{
        f"an output that is empty is an output: {output!r}": (
            [Action(calls=[Call("a")], output=output)],
            ("ok", "", output),
            1,
        )
        for output in ("", 0, False, [], {})
    },
}


@pytest.mark.parametrize("case", PLANS)
async def test_a_run_ends_once_with_the_output_of_its_plan_or_its_error(case: str, clock: VirtualClock) -> None:
    script, end, asked = PLANS[case]
    planner = ScriptedPlanner(script)
    agent = agent_of(clock, planner)
    ends = heard(agent, RunEnded)
    async with agent:
        status = await agent.wait((await agent.submit("hello")).run_id)

    assert (status.status, status.error, status.output) == end
    assert status.ended_at is not None
    assert [p.text for p in planner.seen[min(asked, 3) - 1]] == ["hello"], "each attempt sees it"
    assert (len(planner.seen), len(ends), MOST_FAILURES) == (asked, 1, 3)


async def test_a_failing_sense_delays_a_run_and_does_not_end_it(clock: VirtualClock) -> None:
    sense = ScriptedSense([OSError("a"), OSError("b"), OSError("c"), OSError("d"), None])
    async with agent_of(clock, sense=sense) as agent:
        status = await agent.wait((await agent.submit("hello")).run_id)

    assert status.status == "ok"


async def test_a_failing_act_is_for_the_planner_to_see(clock: VirtualClock) -> None:
    seen: list[str] = []

    async def plan(perceptions: list[Perception], context: Context) -> Action:
        seen.extend(result.status for result in context.run.results[len(seen) :])
        return Action(calls=[Call("a")]) if context.run.number < 3 else DONE

    async with agent_of(clock, plan, act=ScriptedActor([OSError("jammed"), "ok"])) as agent:
        status = await agent.wait((await agent.submit("hello")).run_id)

    assert status.status == "ok"
    assert seen == ["failed", "ok"]


async def test_what_a_broken_stream_had_begun_is_not_forgotten_at_the_next_attempt(clock: VirtualClock) -> None:
    async def tool_a() -> str:
        """A."""
        ran.append("a")
        return "done a"

    ran: list[str] = []
    known: list[int] = []
    plans: list[Any] = [stream([Call("tool_a"), 1.0, TransientError("cut off")])]

    async def plan(perceptions: list[Perception], context: Context) -> Any:
        known.append(sum(len(result.results) for result in context.run.results))
        return plans.pop().play() if plans else DONE

    agent = Agent(plan=plan, tools=[tool_a], clock=clock)
    async with agent:
        status = await agent.wait((await agent.submit("hello")).run_id)

    assert status.status == "ok"
    assert ran == ["a"]
    assert known == [0, 1]


async def test_verifying_the_output_can_be_turned_off(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([Action(calls=[Call("a")], output="first")])
    settings = {"runs": {"verify_output": False}}
    async with agent_of(clock, planner, act=ScriptedActor([{"a": OSError("jammed")}]), settings=settings) as agent:
        status = await agent.wait((await agent.submit("hello")).run_id)

    assert (status.output, len(planner.seen), len(status.errors)) == ("first", 1, 1)


# -- time limits


@pytest.mark.parametrize("hangs", [False, True])
async def test_a_run_ends_when_it_took_too_long(hangs: bool, clock: VirtualClock) -> None:
    planner = ScriptedPlanner([Hang()] if hangs else [Call("again")])
    agent = agent_of(clock, planner, settings={"runs": {"timeout": 20}, "agent": {"phases": {"plan": {"timeout": 0}}}})
    ends = heard(agent, RunEnded)
    async with agent:
        receipt = await agent.submit("hello")
        status = await agent.wait(receipt.run_id, timeout=100.0)
        assert (status.status, status.error) == ("error", "took longer than 20 s")
        assert clock.elapsed == pytest.approx(20.0, abs=1.1)
        assert len(ends) == 1
        before = agent.stats.total_cycles
        await asyncio.sleep(10.0)
        assert agent.stats.total_cycles > before


async def test_a_run_without_limit_may_take_as_long_as_it_likes(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([*[10.0, Call("again")] * 100, DONE])
    async with agent_of(clock, planner, settings={"runs": {"timeout": 0}}) as agent:
        status = await agent.wait((await agent.submit("hello")).run_id, timeout=None)

    assert status.status == "ok"
    assert clock.elapsed >= 1000.0


# -- aborting


async def test_aborting_a_queued_run_keeps_it_from_ever_starting(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([5.0, DONE])
    agent = agent_of(clock, planner)
    ends = heard(agent, RunEnded)
    async with agent:
        first, second = await agent.submit("one"), await agent.submit("two")
        await asyncio.sleep(1.0)

        await agent.abort(second.run_id)

        status = await agent.wait(second.run_id)
        assert (status.status, status.error, status.started_at) == ("error", "aborted", None)
        assert status.ended_at is not None
        assert (await agent.wait(first.run_id)).status == "ok"
        await asyncio.sleep(10.0)

    assert len(planner.seen) == 1
    assert len(ends) == 2


async def test_aborting_a_running_one_cancels_its_phase_once_and_returns_when_that_has_settled(
    clock: VirtualClock,
) -> None:
    hang = Hang()
    agent = agent_of(clock, ScriptedPlanner([hang, DONE]))
    ends, outcomes = heard(agent, RunEnded), []  # type: ignore[var-annotated]
    agent.events.subscribe(LoopCompleted, lambda event: outcomes.append(event.outcome))
    async with agent:
        first, second = await agent.submit("one"), await agent.submit("two")
        await asyncio.sleep(1.0)
        await asyncio.gather(*(agent.abort(first.run_id) for _ in range(3)))
        assert (hang.cancelled, hang.waiting) == (1, 0)
        status = await agent.wait(first.run_id, timeout=0)
        assert (status.status, status.error) == ("error", "aborted")
        assert "interrupted" in outcomes
        for _ in range(2):
            assert (await agent.wait(second.run_id)).status == "ok"
            for ended in (first, second):
                await agent.abort(ended.run_id)
        await asyncio.sleep(5.0)
    assert [end.run_id for end in ends] == [first.run_id, second.run_id]
    assert (hang.cancelled, outcomes.count("interrupted")) == (1, 1)


@pytest.mark.parametrize("state", ["created", "paused"])
async def test_aborting_a_queued_run_of_an_agent_that_does_not_turn(state: str, clock: VirtualClock) -> None:
    planner = ScriptedPlanner([DONE])
    agent = agent_of(clock, planner)
    if state == "paused":
        await agent.start()
        await agent.pause()
    receipt = await agent.submit("hello", session="guest")

    await agent.abort(receipt.run_id)

    assert (await agent.wait(receipt.run_id, timeout=0)).error == "aborted"
    assert "guest" not in agent.sessions.by_key
    await (agent.resume() if state == "paused" else agent.start())
    await asyncio.sleep(5.0)
    await agent.stop()
    assert planner.seen == []


async def test_a_tool_may_abort_its_own_run(clock: VirtualClock) -> None:
    async def give_up() -> str:
        """Give up."""
        await agent.abort(receipt.run_id)
        return "not reached"

    agent = Agent(plan=ScriptedPlanner([Call("give_up")]), tools=[give_up], clock=clock)
    async with agent:
        receipt = await agent.submit("hello")
        status = await agent.wait(receipt.run_id, timeout=10.0)

    assert (status.status, status.error) == ("error", "aborted")


# -- stopping


async def test_a_run_cut_by_a_stop_is_not_ended_and_goes_on_at_the_next_start(clock: VirtualClock) -> None:
    planner = ScriptedPlanner([Call("a"), Hang(), DONE])
    agent = agent_of(clock, planner)
    ends = heard(agent, RunEnded)
    await agent.start()
    receipt = await agent.submit("hello")
    await asyncio.sleep(5.0)

    await agent.stop(deadline=0.0)

    assert ends == []
    assert (await agent.wait(receipt.run_id, timeout=5.0)).status == "timeout"
    await agent.start()
    assert (await agent.wait(receipt.run_id)).output == "done"
    assert len(ends) == 1
    await agent.stop()


async def test_an_abort_during_a_stop_returns_and_ends_the_run_once(clock: VirtualClock) -> None:
    agent = agent_of(clock, ScriptedPlanner([Hang()]))
    ends = heard(agent, RunEnded)
    await agent.start()
    receipt = await agent.submit("hello")
    await asyncio.sleep(1.0)
    stopping = asyncio.create_task(agent.stop())
    await asyncio.sleep(1.0)

    await asyncio.wait_for(agent.abort(receipt.run_id), 5.0)

    await asyncio.wait_for(stopping, 5.0)
    assert [(end.status, end.error) for end in ends] == [("error", "aborted")]


def test_the_fault_that_ends_a_run_is_the_plans() -> None:
    run = Run("run", RunState(Perception("go")), START)
    cycle = Cycle("main", None, SystemClock())
    cycle.faults = (Fault("io", "sensor", phase="sense"), Fault("permanent", "planner", phase="plan", retryable=False))

    end = judge(run.state, closed(cycle, run.id, ""), elapsed=0.0, limits=Limits())
    assert end == End("error", "planner")


# -- limits and pauses


@pytest.mark.parametrize("limit", ["timeout", "inactivity"])
@pytest.mark.parametrize("rest", ["pause", "stop"])
async def test_the_time_of_a_pause_counts_towards_no_limit_and_the_limit_counts_again_afterwards(
    limit: str, rest: str, clock: VirtualClock
) -> None:
    planned: list[float] = []

    async def plan(perceptions: Any, context: Any) -> Action | None:
        if context.run is None:
            return None
        planned.append(clock.elapsed)
        if len(planned) > 1:
            await asyncio.sleep(1e6)
        return Action([Call("again")])

    settings = {
        "runs": {limit: 10.0},
        "agent": {"phases": {"plan": {"timeout": 0}}, "min_interval": 5, "max_interval": 10},
        "health": {"stalled_after": 1e6},
    }
    agent = agent_of(clock, plan, loop_interval=60.0, settings=settings)
    await agent.start()
    receipt = await agent.submit("hello", session="s")
    await asyncio.sleep(1.0)
    if rest == "pause":
        await agent.pause()
        await asyncio.sleep(30.0)
        assert (await agent.wait(receipt.run_id, 0)).status == "timeout"
        await agent.resume()
    else:
        await agent.stop()
        await asyncio.sleep(30.0)
        await agent.start()
    began = clock.elapsed
    status = await agent.wait(receipt.run_id, 500.0)
    await agent.stop(0.0)

    words = {"timeout": "took longer than 10 s", "inactivity": "nothing of it went on for 10 s"}
    assert (status.status, status.error) == ("error", words[limit])
    assert clock.elapsed - began == pytest.approx(9.0 if limit == "timeout" else 10.0, abs=1.6)


# -- what is kept


async def test_ended_runs_are_kept_by_their_size_too_and_the_newest_always(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, kept = agent_of(clock), KEPT_BYTES // 16
    monkeypatch.setattr(runs, "KEPT_BYTES", kept)
    size = kept // 10

    def ended(output: Any) -> str:
        run = accepted(agent, None)
        agent.runs.end(run, End("ok", output=output))
        return run.id

    small = ended("small")
    large = [ended("x" * size) for _ in range(30)]
    known = [run_id for run_id in large if agent.runs.find(run_id)]
    assert known == large[-len(known) :]
    assert 8 <= len(known) <= 10
    assert agent.runs.find(small) is None

    huge = ended({"a": ["x" * kept, "y" * kept]})
    assert (await agent.wait(huge, 0)).status == "ok"
    assert [run_id for run_id in large if agent.runs.find(run_id)] == []


# -- an answer of nothing


@pytest.mark.parametrize("output", ["", "  \n"])
async def test_a_planner_in_code_may_answer_nothing(output: str, clock: VirtualClock) -> None:
    planner = ScriptedPlanner([Action(output=output)])
    async with agent_of(clock, planner) as agent:
        status = await agent.wait((await agent.submit("hello")).run_id)

    assert (status.status, status.output, status.reply, status.silent) == ("ok", output, None, False)
    assert len(planner.seen) == 1


# -- patience that is asked for


@pytest.mark.parametrize(
    ("session", "asked", "waited", "interval"),
    [
        ("main", 2.0, 2.0, 0),  # with `guest`, `main` would turn without a pause all the while
        *((session, 2.0, 2.0, interval) for session in ("main", "guest") for interval in (1.0, "off")),
        *((session, 100_000.0, 300.0, "off") for session in ("main", "guest")),
    ],
)
async def test_a_failing_plan_is_left_alone_for_as_long_as_it_asks_whatever_comes_meanwhile(
    session: str, asked: float, waited: float, interval: Any, clock: VirtualClock
) -> None:
    times: list[float] = []

    async def plan(perceptions: Any, context: Any) -> Action | None:
        if context.run is None:
            return None
        times.append(clock.elapsed)
        if len(times) < 3:
            raise TransientError("slow down", retry_after=asked)
        return DONE

    async with agent_of(clock, plan, loop_interval=interval) as agent:
        receipt = await agent.submit("hello", session=session)
        await asyncio.sleep(0.7)
        agent.push(Perception("knock", session=session))
        await agent.submit("me too", session=session)
        other = await agent.submit("hello", session="other")
        assert (await agent.wait(receipt.run_id, 700.0)).status == "ok"
        assert (await agent.wait(other.run_id, 5.0)).status == "ok"

    mine = [time for time in times if time != pytest.approx(0.7)]
    assert [after - before for before, after in itertools.pairwise(mine[:2])] == [pytest.approx(waited, abs=0.2)]


async def test_a_failing_sense_is_left_alone_for_as_long_as_it_asks(clock: VirtualClock) -> None:
    times: list[float] = []

    async def sense() -> list[Perception]:
        times.append(clock.elapsed)
        if len(times) == 1:
            raise TransientError("429", retry_after=8)
        return []

    async with agent_of(clock, None, sense=sense, loop_interval=0.05):
        await asyncio.sleep(9.0)

    assert times[1] == pytest.approx(8.0)


@pytest.mark.parametrize("asked", [float("nan"), -3.0, "soon", True, None])
async def test_patience_that_is_no_number_of_seconds_is_not_heard(asked: Any, clock: VirtualClock) -> None:
    assert requested_wait(Fault("transient", "x", retryable=True, detail={"retry_after": asked})) == 0.0
