"""The tracer: bounded, never in the way, and its names are the same in every process."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from spar import Agent
from spar.events import CycleRecorded
from spar.loop.core import Core
from spar.testing import VirtualClock
from spar.tracing.attach import trace_by
from spar.tracing.spans import Span, spans_of_cycle
from spar.tracing.trace_context import TraceParent, is_sampled, parse_traceparent, span_of, trace_of, traceparent
from spar.tracing.tracer import MOST_WAITING, Tracer
from spar.types import Action, ActionResult, Call, CallResult, CycleRecord, Perception

AT = datetime(2026, 11, 22, 18, tzinfo=UTC)


class Kept:
    """Sender that keeps what it is given, once it may."""

    def __init__(self, *, is_held: bool = False) -> None:
        self.spans: list[Span] = []
        self.asked, self.gate = threading.Event(), threading.Event()
        if not is_held:
            self.gate.set()

    def send(self, spans: Sequence[Span]) -> bool:
        self.asked.set()
        self.gate.wait(20.0)
        self.spans += spans
        return True

    def close(self) -> None:
        self.gate.set()


def record_of(number: int, **more: Any) -> CycleRecord:
    cycle_id = f"c{number}"
    return CycleRecord(cycle_id, "main", "main", AT, 1.0, "acted", trace_id=trace_of(cycle_id), **more)


def test_a_collector_that_hangs_costs_the_oldest_and_holds_up_nobody() -> None:
    sender = Kept(is_held=True)
    tracer = Tracer(lambda: sender)
    tracer.start()
    tracer.recorded(CycleRecorded(record=record_of(0)))
    assert sender.asked.wait(20.0)
    for number in range(MOST_WAITING + 5):
        tracer.recorded(CycleRecorded(record=record_of(number)))
    assert (tracer.waiting, tracer.counts.dropped) == (MOST_WAITING, 5)
    sender.gate.set()
    assert tracer.close(20.0)
    assert len(sender.spans) == 1 + MOST_WAITING
    assert tracer.counts.exported == 1 + MOST_WAITING


def test_the_share_that_is_told_is_the_same_in_every_process() -> None:
    tracer = Tracer(Kept, ratio=0.25)
    told = [number for number in range(2_000) if tracer.trace(f"c{number}")]
    assert told == [number for number in range(2_000) if is_sampled(trace_of(f"c{number}"), 0.25)]
    assert 400 < len(told) < 600
    assert not any(Tracer(Kept, ratio=0.0).trace(f"c{number}") for number in range(100))
    assert Tracer(Kept, ratio=0.0).names({"cycle": "c1"}) == {}


def test_a_line_of_the_log_is_named_by_what_it_says_of_its_cycle() -> None:
    tracer = Tracer(Kept)
    assert tracer.names({"agent": "main"}) == {}
    assert tracer.names({"cycle": "c1"}) == {"trace_id": trace_of("c1"), "span_id": span_of("c1")}
    assert tracer.names({"cycle": "c1", "phase": "plan"})["span_id"] == span_of("c1", "plan")
    assert tracer.names({"cycle": "c1", "phase": "act", "call": "k"})["span_id"] == span_of("c1", "call", "k")


@pytest.mark.parametrize(
    "header",
    ["", "00", "00-" + "0" * 32 + "-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-" + "0" * 16 + "-01",
     "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
     "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
     "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more", "0" * 100_000],
)  # fmt: skip
def test_a_header_that_breaks_the_rules_names_nobody(header: str) -> None:
    assert parse_traceparent(header) is None


def test_a_header_names_a_span() -> None:
    parent = TraceParent("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331")
    assert parse_traceparent(traceparent(parent.trace_id, parent.span_id)) == parent
    later = parse_traceparent("cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00-what-comes-later")
    assert later == TraceParent(parent.trace_id, parent.span_id, is_sampled=False)


def test_no_span_leaves_its_parent_whatever_the_times_say() -> None:
    call = Call("measure", {"key": "x"})
    result = CallResult(call, "ok", started_at=AT.replace(hour=3), duration=1e6)
    record = record_of(
        1, action=Action(calls=(call,)), result=ActionResult(None, "ok", (result,)),
        phases={"sense": 5.0, "plan": 0.2, "act": 9.0, "reflect": 0.1}, perceptions=(Perception("x", source="host"),),
    )  # fmt: skip
    spans = spans_of_cycle(record)
    assert {each.name for each in spans} == {
        "invoke_agent main", "spar.sense", "plan main", "spar.act", "spar.reflect", "execute_tool measure",
    }  # fmt: skip
    assert all(spans[0].began <= each.began <= each.ended <= spans[0].ended for each in spans)


async def test_an_agent_without_memory_tells_cycles_that_did_something_and_an_idle_one_nothing(
    clock: VirtualClock,
) -> None:
    waiting = [[Perception("x")]]

    async def sense() -> list[Perception]:
        return waiting.pop() if waiting else []

    sender = Kept()
    tracer = Tracer(lambda: sender)
    agent = Agent(sense=sense, plan=lambda noticed: Action(goal="g"), clock=clock, loop_interval=1.0, name="agent",
                  attach=[partial(trace_by, tracer=tracer)])  # fmt: skip
    async with agent:
        await clock.sleep(10)
    assert tracer.close(20.0)
    assert agent.stats.total_cycles > 5
    assert sum(each.name == "invoke_agent agent" for each in sender.spans) == 1


@pytest.mark.parametrize("is_on", [False, True])
async def test_a_cycle_whose_calls_send_nothing_asks_for_no_header_whether_traces_are_told_or_not(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, is_on: bool
) -> None:
    asked: list[str] = []

    def counted(core: Core, to: str, cycle_id: str, *names: str) -> str:
        asked.append(to)
        return ""

    monkeypatch.setattr(Core, "traceparent", counted)

    async def look() -> str:
        return "seen"

    tracer = Tracer(Kept, named_to=("models", "mcp", "http"))
    agent = Agent(sense=lambda: [Perception("x")], plan=lambda noticed: Action(calls=[Call("look", {})]), tools=[look],
                  clock=clock, loop_interval=1.0, attach=[partial(trace_by, tracer=tracer)] * is_on)  # fmt: skip
    async with agent:
        await clock.sleep(10)
    assert agent.stats.total_cycles > 5
    assert asked == []


def test_a_header_names_a_span_that_is_told_to_those_alone_who_may_know_it() -> None:
    tracer = Tracer(Kept, named_to=("models",))
    assert tracer.traceparent("models", "c1", "model", "7") == traceparent(trace_of("c1"), span_of("c1", "model", "7"))
    assert tracer.traceparent("http", "c1", "call", "k") == ""
    assert tracer.traceparent("models", "", "model", "7") == "", "of no cycle"
    assert Tracer(Kept, ratio=0.0, named_to=("models",)).traceparent("models", "c1", "model", "7") == ""
    assert Agent().core.traceparent("models", "c1", "model", "7") == "", "no traces are told"
