"""Row 40: processor time that traces add to a cycle, on the event loop and in the thread that tells them.

The same cycle with and without: the loop makes the record and hands it over; a thread makes spans of it and encodes
them as OTLP. The collector is left out: what is encoded is thrown away. Beside it the SDK's own way, a span begun and
ended on the loop for each of the five that a quiet cycle tells, without their export.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from benchmarks.counted import Counted, counted
from benchmarks.harness import Effort
from benchmarks.table import Line, amount
from spar.tracing.attach import trace_by
from spar.tracing.spans import Span
from spar.tracing.tracer import Tracer

#: Microseconds that traces may add to a cycle on the loop.
OWED = 15.0
ROUNDS, CYCLES = 7, 2_000


class Encoding:
    """Sender that does all but the sending."""

    def __init__(self) -> None:
        from spar.tracing.otlp import OtlpSender

        self._sender = OtlpSender("bench", "0", "http://127.0.0.1:9/v1/traces", {}, 1.0)
        self.bytes = 0

    def send(self, spans: Sequence[Span]) -> bool:
        self.bytes += len(self._sender.encoded(spans))
        return True

    def close(self) -> None:
        self._sender.close()


async def measure(effort: Effort) -> list[Line]:
    async with counted(2, listeners=False) as (traced, quiet):
        sender, without, on_loop, told = Encoding(), list[float](), list[float](), list[float]()
        await quiet.batch(CYCLES)
        for _ in range(ROUNDS):
            without.append(await _microseconds(quiet))
        for number in range(ROUNDS):
            tracer = Tracer(lambda: sender)
            traced.agent.attachments.add(partial(trace_by, tracer=tracer), "benchmark", name := f"traces {number}")
            on_loop.append(await _microseconds(traced))
            before = time.process_time()
            tracer.start()  # now, so that the two do not take the interpreter from each other
            assert tracer.close(60.0)
            told.append((time.process_time() - before) / CYCLES * 1e6)
            for end in traced.agent.attachments.by_name.pop(name).registered:
                end()
            traced.agent.core.traces = None
    # The least of the rounds: what a busy machine adds is no cost of traces.
    sdk, loop = min(_of_sdk() for _ in range(ROUNDS)), min(on_loop) - min(without)
    beside = {"against": "5 spans of the SDK, not exported", "other": f"{sdk:.1f} µs"}
    return [
        amount(40, "traces of a cycle: on the loop", loop, "µs", owed=OWED, by="cpu", is_limit=True, **beside),
        amount(40, "traces of a cycle: in the thread that tells them", min(told), "µs", by="cpu", **beside),
    ]


async def _microseconds(agent: Counted) -> float:
    """Processor time of a cycle on the loop."""
    before = time.thread_time()
    await agent.batch(CYCLES)
    return (time.thread_time() - before) / CYCLES * 1e6


def _of_sdk() -> float:
    from opentelemetry.sdk.trace import TracerProvider

    tracer = TracerProvider().get_tracer("bench")
    began = time.thread_time()
    for _ in range(CYCLES // 4):
        with tracer.start_as_current_span("invoke_agent"):
            for phase in ("sense", "plan", "act", "reflect"):
                tracer.start_span(phase, attributes={"spar.phase": phase}).end()
    return (time.thread_time() - began) / (CYCLES // 4) * 1e6
