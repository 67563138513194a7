"""Tracer: takes each ended cycle at the cost of one append, and sends its spans to the collector in a separate thread.

The queue is bounded: while a collector is down or slow, the oldest entries are dropped and counted, and one line of the
log reports this until it answers again. No cycle waits for anything here, and nothing raises into one.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, Final, Protocol

from msgspec import Struct

from spar.data.bounded import BoundedDict
from spar.events import CycleRecorded, ModelAnswered, RunEnded
from spar.observe.logs import get_logger
from spar.tracing.spans import Span, batches, span_of_run, spans_of_cycle
from spar.tracing.trace_context import (
    TraceParent,
    is_sampled,
    parse_traceparent,
    span_of,
    trace_of,
    traceparent,
)

log = get_logger("spar.tracing")

#: Most cycles and ends of runs that wait to be sent.
MOST_WAITING: Final = 2_048
#: Seconds of gathering entries before they are sent, and most spans of one request.
GATHER_FOR, MOST_AT_ONCE = 1.0, 512
#: Most runs whose cycles are remembered until their ends, and most linked cycles of one run.
MOST_RUNS, MOST_CYCLES = 1_000, 128
#: Most cycles whose requests to models are remembered until their ends, and most requests of one cycle.
MOST_ASKING, MOST_REQUESTS = 1_000, 64


class Sender(Protocol):
    """Sender of spans to a collector. `send` blocks and returns whether they were accepted."""

    def send(self, spans: Sequence[Span]) -> bool: ...
    def close(self) -> None: ...


class TraceCounts(Struct):
    """Counts: `exported` spans were accepted by the collector; `dropped` spans, or cycles before they became spans,
    were lost."""

    exported: int = 0
    dropped: int = 0


class _Run(Struct):
    """Present run: its cycles, the beginning of the first one, and the span of the request for it."""

    cycles: list[str]
    began: int = 0
    remote: TraceParent | None = None


class Tracer:
    """Sender of the traces of one service. Handlers run in the agent's event loop, `run` in a thread.

    Args: make: makes the sender, in the thread because its imports are large; ratio: the share of cycles that is sent;
        named_to: receivers of requests that name their span (`models`, `mcp`, `http`).
    """

    def __init__(self, make: Callable[[], Sender], *, ratio: float = 1.0, with_content: bool = False,
                 named_to: Collection[str] = ()) -> None:  # fmt: skip
        self._make, self._ratio, self._with_content, self._named_to = make, ratio, with_content, named_to
        self.counts = TraceCounts()
        self._queue: deque[Callable[[], list[Span]]] = deque()
        self._requests: BoundedDict[str, list[ModelAnswered]] = BoundedDict(MOST_ASKING)
        self._runs: BoundedDict[str, _Run] = BoundedDict(MOST_RUNS)
        self._wake, self._ending = threading.Event(), threading.Event()
        self._sender: Sender | None = None
        self._is_down = False
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """Return the number of cycles and runs that wait to be sent."""
        return len(self._queue)

    def start(self) -> None:
        """Start sending."""
        self._ending.clear()
        self._thread = threading.Thread(target=self._run, name="spar tracing", daemon=True)
        self._thread.start()

    def trace(self, cycle_id: str) -> str:
        """Return the trace of a cycle; "" for one that is not sent."""
        trace_id = trace_of(cycle_id)
        return trace_id if is_sampled(trace_id, self._ratio) else ""

    def traceparent(self, to: str, cycle_id: str, *names: str) -> str:
        """Return the header `traceparent` of a span of a cycle; "" for one that is not sent, or that `to` must not
        know.

        Args: to: `models`, `mcp` or `http`; names: those of the span, see `span_of`.
        """
        if to not in self._named_to or not cycle_id or not (trace_id := self.trace(cycle_id)):
            return ""
        return traceparent(trace_id, span_of(cycle_id, *names))

    def names(self, fields: Any) -> dict[str, str]:
        """Return trace and span of a log line by its fields `cycle`, `phase` and `call`; none without a cycle."""
        cycle = fields.get("cycle")
        if not (isinstance(cycle, str) and cycle and (trace_id := self.trace(cycle))):
            return {}
        call, phase = fields.get("call"), fields.get("phase")
        inner = ("call", call) if isinstance(call, str) and call else (phase,) if isinstance(phase, str) else ()
        return {"trace_id": trace_id, "span_id": span_of(cycle, *filter(None, inner))}

    # -- events, in the event loop

    def linked(self, run_id: str, header: str) -> None:
        """Remember the caller of a run by the `traceparent` of the request; an invalid header is ignored."""
        if (remote := parse_traceparent(header)) is not None:
            self._run_of(run_id).remote = remote

    def answered(self, event: ModelAnswered) -> None:
        """Remember a request to a model until its cycle ends."""
        requests = self._requests.setdefault(event.cycle_id, [])
        if len(requests) < MOST_REQUESTS:
            requests.append(event)

    def recorded(self, event: CycleRecorded) -> None:
        """Queue an ended cycle."""
        record, run_id = event.record, event.run_id
        requests = self._requests.pop(record.cycle_id, ()) if self._requests else ()
        links: tuple[TraceParent, ...] = ()
        if run_id:
            run = self._run_of(run_id)
            run.began = run.began or int(record.started_at.timestamp() * 1e9)
            if record.trace_id and len(run.cycles) < MOST_CYCLES:
                run.cycles.append(record.cycle_id)
            links = (run.remote,) if run.remote is not None else ()
        if record.trace_id:
            self._enqueue(partial(spans_of_cycle, record, run_id, requests, links, with_content=self._with_content))

    def run_ended(self, event: RunEnded) -> None:
        """Queue an ended run, unless none of its cycles is sent."""
        run = self._runs.pop(event.run_id, None)
        if run is not None and run.cycles:
            ended = int(event.at.timestamp() * 1e9) if event.at is not None else time.time_ns()
            self._enqueue(lambda: [span_of_run(event, run.began, ended, run.cycles, run.remote)])

    def _run_of(self, run_id: str) -> _Run:
        return self._runs.setdefault(run_id, _Run([]))

    def _enqueue(self, spans: Callable[[], list[Span]]) -> None:
        if len(self._queue) >= MOST_WAITING:
            self._queue.popleft()
            self.counts.dropped += 1
        self._queue.append(spans)
        if not self._wake.is_set():
            self._wake.set()

    # -- sending, in a thread

    def close(self, timeout: float) -> bool:
        """Send what waits, for at most so many seconds; return whether all of it was sent in time. Idempotent."""
        if (thread := self._thread) is None or not thread.is_alive():
            return not self._queue
        self._ending.set()
        self._wake.set()
        thread.join(timeout)
        is_through = not thread.is_alive()
        if not is_through:
            if (sender := self._sender) is not None:
                sender.close()
            self.counts.dropped += len(self._queue)
            log.warning("traces not told in time", cycles=len(self._queue), within_seconds=timeout)
        return is_through

    def _run(self) -> None:
        try:
            self._sender = self._make()
        except Exception as error:
            log.error("traces cannot be told", reason=repr(error))
            return
        while not self._ending.is_set():
            self._wake.wait()
            self._ending.wait(GATHER_FOR)  # more entries come soon
            self._wake.clear()  # before the queue is read: a later entry sets it again
            self._send_waiting()
        self._send_waiting()
        self._sender.close()

    def _send_waiting(self) -> None:
        """Send all entries that wait now."""
        spans: list[Span] = []
        while self._queue:
            make = self._queue.popleft()
            try:
                spans += make()
            except Exception as error:  # a stranger's value in a record
                self.counts.dropped += 1
                log.error("cycle cannot be told as a trace", reason=repr(error))
            if len(spans) >= MOST_AT_ONCE:
                self._send(spans)
                spans = []
        if spans:
            self._send(spans)

    def _send(self, spans: list[Span]) -> None:
        assert self._sender is not None
        for batch in batches(spans, MOST_AT_ONCE):
            try:
                is_taken, why = self._sender.send(batch), "the collector does not take them"
            except Exception as error:
                is_taken, why = False, repr(error)
            if is_taken:
                self.counts.exported += len(batch)
            else:
                self.counts.dropped += len(batch)
            if self._is_down == is_taken:
                self._is_down = not is_taken
                if is_taken:
                    log.info("traces are told again", dropped=self.counts.dropped)
                else:
                    log.warning("traces are lost", reason=why, next="see spar_trace_spans_total")
