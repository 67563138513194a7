"""What metrics say of single calls and of approvals, and that they say it within bounds and at little cost."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families as read_plain

from spar import Agent, __version__
from spar.events import ApprovalExpired, ApprovalResolved
from spar.observe.stats import BOUNDS, CALL_OUTCOMES, FOLD_AT, LONGEST_TOOL, MOST_TOOLS, OTHER_TOOLS, Calls
from spar.review.pending_approvals import ENDINGS, Waiting
from spar.service.metrics import Metrics
from spar.types import Action, Call, CallResult, Perception


def samples(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one name by their label values, sorted by label."""
    found: dict[tuple[str, ...], float] = {}
    for family in read_plain(metrics.render()[0].decode()):
        for sample in family.samples:
            if sample.name == name:
                labels = tuple(value for _, value in sorted(sample.labels.items()))
                assert labels not in found
                found[labels] = sample.value
    return found


def of(*agents: Any, **more: Any) -> Metrics:
    return Metrics(lambda: agents, __version__, **more)


def result(tool: str, status: Any = "ok", duration: float = 0.0) -> CallResult:
    return CallResult(Call(tool), status, duration=duration)


async def test_each_call_of_a_cycle_is_counted_by_tool_and_outcome() -> None:
    async def good(seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def bad() -> None:
        raise ValueError("no")

    async def plan(perceptions: Any) -> Action:
        failing = Call("bad", id="b")
        return Action([Call("good", {"seconds": 0.002}), Call("good", {"seconds": 0.0}), failing,
                       Call("good", {"seconds": 0.0}, after=("b",)), Call("no_such")], output="done")  # fmt: skip

    agent = Agent(plan=plan, tools=[good, bad], loop_interval="off")
    async with agent:
        await agent.wait((await agent.submit("go")).run_id, 10)
        cycles = agent.stats.outcomes["acted"]
        metrics = of(agent)
        counts = samples(metrics, "spar_calls_total")

    assert cycles >= 1
    assert counts["main", "ok", "good"] == 2 * cycles
    assert counts["main", "error", "bad"] == counts["main", "error", "no_such"] == cycles
    assert counts["main", "skipped", "good"] == cycles
    assert sum(counts.values()) == 5 * cycles
    assert samples(metrics, "spar_call_duration_seconds_count")["main", "good"] == 2 * cycles
    assert samples(metrics, "spar_call_duration_seconds_sum")["main", "good"] >= 0.002 * cycles


@pytest.mark.parametrize(
    ("status", "outcome"),
    [("ok", "ok"), ("failed", "error"), ("timeout", "timeout"), ("denied", "denied"), ("skipped", "skipped"),
     ("in_doubt", "unknown"), ("cancelled", "unknown"), ("whatever", "unknown")],
)  # fmt: skip
def test_outcomes_come_from_a_closed_set(status: str, outcome: str) -> None:
    agent = Agent()
    agent.account.calls.add([result("note", status)])

    counts = samples(of(agent), "spar_calls_total")

    assert counts == {("main", name, "note"): float(name == outcome) for name in CALL_OUTCOMES}


def test_durations_are_those_of_the_calls_that_ran() -> None:
    agent = Agent()
    agent.account.calls.add([result("note", "ok", 0.1), result("note", "failed", 3.0), result("note", "skipped")])

    metrics = of(agent)

    assert samples(metrics, "spar_call_duration_seconds_count")["main", "note"] == 2
    assert samples(metrics, "spar_call_duration_seconds_sum")["main", "note"] == pytest.approx(3.1)
    buckets = samples(metrics, "spar_call_duration_seconds_bucket")
    assert len(buckets) == len(BOUNDS) + 1
    assert buckets["main", "0.1", "note"] == 1
    assert buckets["main", "+Inf", "note"] == 2


def test_ten_thousand_tools_make_a_bounded_page() -> None:
    agent = Agent()
    for number in range(10_000):
        agent.account.calls.add([result(f"tool-{number}", "ok", 0.001)])

    metrics = of(agent)

    counts = samples(metrics, "spar_calls_total")
    assert len({labels[2] for labels in counts}) == MOST_TOOLS + 1
    assert counts["main", "ok", OTHER_TOOLS] == 10_000 - MOST_TOOLS
    assert len(counts) + len(samples(metrics, "spar_call_duration_seconds_bucket")) <= 101 * (6 + 24)


def test_a_tool_may_have_any_name() -> None:
    names = ['x"} evil 1\n', "back\\slash", "\ud800", "\ud801", "", "x" * 10_000, "x" * 10_001, "é\x00", OTHER_TOOLS]
    agent = Agent()
    agent.account.calls.add([result(name) for name in names])

    counts = samples(of(agent), "spar_calls_total")

    tools = {labels[2] for labels in counts}
    assert 'x"} evil 1\n' in tools
    assert tools >= {"\\ud800", "\\ud801", ""}
    assert max(map(len, tools)) == LONGEST_TOOL
    assert sum(counts.values()) == len(names)


def test_nothing_that_a_call_brought_is_held() -> None:
    calls = Calls()

    class Output:
        pass

    import weakref

    output = Output()
    gone = weakref.ref(output)
    calls.add([CallResult(Call("note"), "ok", output=output)])
    del output

    assert gone() is None


def test_calls_that_nobody_scrapes_do_not_pile_up() -> None:
    calls = Calls()
    for _ in range(FOLD_AT * 3 + 1):
        calls.add([result("note", "ok", 0.1)])

    assert len(calls._pending) < FOLD_AT
    assert len(calls.durations["note"].pending) < FOLD_AT


def test_counting_while_others_read_loses_nothing() -> None:
    calls, readers = Calls(), []
    is_done = threading.Event()

    def read() -> None:
        while not is_done.is_set():
            calls.fold()

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(20_000):
        calls.add([result("note", "ok", 0.1), result("file", "failed")])
    is_done.set()
    for reader in readers:
        reader.join()
    calls.fold()

    assert calls.outcomes["note"]["ok"] == calls.outcomes["file"]["error"] == calls.durations["note"].count == 20_000


# -- approvals


async def test_how_questions_end_is_counted_from_a_closed_set() -> None:
    agent = Agent(act=lambda action: None)
    waiting = Waiting(agent.core, agent.setup)
    metrics = of(agent, waiting=lambda: [waiting])
    assert samples(metrics, "spar_approvals_total") == {("main", name): 0.0 for name in ENDINGS}
    assert samples(metrics, "spar_approvals_pending") == {("main",): 0.0}

    for decision in ("approve", "approve", "deny", "edit", "replace", "void", "", "made up"):
        agent.events.publish(ApprovalResolved(call=Call("note"), decision=decision))
    agent.events.publish(ApprovalExpired(call=Call("note")))

    assert samples(metrics, "spar_approvals_total") == {
        ("main", "approve"): 2.0, ("main", "deny"): 1.0, ("main", "edit"): 1.0, ("main", "replace"): 1.0,
        ("main", "expire"): 1.0, ("main", "void"): 1.0, ("main", "other"): 2.0,
    }  # fmt: skip


async def test_without_anything_that_asks_there_are_no_series_of_it() -> None:
    assert samples(of(Agent()), "spar_approvals_pending") == {}


async def test_a_perception_makes_no_label() -> None:
    agent = Agent(
        plan=lambda perceptions: Action([Call("no_such", {"text": "secret"})], output="x"), loop_interval="off"
    )
    async with agent:
        await agent.wait((await agent.submit(Perception("secret", kind="message"))).run_id, 10)

    assert "secret" not in of(agent).render()[0].decode()
