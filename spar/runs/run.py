"""One run: the pursuit of one goal over as many cycles as needed.

It holds what this process knows of it beside its state (`spar.state.work.RunState`): its results, times, timer and
log. `spar.decisions.finish` decides when it has ended; `spar.runs.runs` keeps all runs. Timers end runs that take too
long or are inactive too long; while the agent does not run cycles, or a run waits for its provider, no time counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal, Protocol

from msgspec import Struct
from msgspec.structs import force_setattr, replace

from spar.bus.bus import Events
from spar.clock import Clock, Timer
from spar.data.reply import Reply, failure, fallback, reply_of
from spar.decisions.finish import Limits, too_long
from spar.events import AssistantDelta, CallCompleted, CallFailed, CallProgressed, CallStarted, Event, ReasoningDelta
from spar.loop.tasks import Signal
from spar.protocols import RunContext
from spar.records.runs import RunRow, RunStatus, beginning
from spar.state.work import RunState
from spar.types import ActionResult, Perception, Reasoning, RunUsage, least_trust

#: Errors of runs that people have ended.
CALLED_OFF: Final = ("aborted", "superseded", "interrupted by a newer message", "reset")
#: Those of them after which the actor also drops the waiting calls of the run.
FORGOTTEN: Final = ("aborted", "reset")
#: The message attribute with the schema of the expected answer.
OUTPUT: Final = "output_schema"


class EndedRun(RunStatus, frozen=True):
    """Run that has ended, with all messages of its cycles: the value of the hooks at `after_run`."""

    messages: tuple[dict[str, Any], ...] = ()


class End(Struct, frozen=True):
    """End of a run. `reply` is the text for people, derived from the output."""

    status: Literal["ok", "error"]
    error: str = ""
    output: Any = None
    reply: Reply = Reply()

    def __post_init__(self) -> None:
        if self.output is not None:
            force_setattr(self, "reply", reply_of(self.output))

    @property
    def visible_output(self) -> Any:
        """Return the output for callers; None for a silent text."""
        return None if isinstance(self.output, str) and self.reply.is_silent else self.output


#: Shared by all runs, since each empty set is an object of its own.
NO_IDS: Final = frozenset[str]()


class EventLog(Protocol):
    """Log of a run's events."""

    def add(self, stream: Any, at: datetime, data: dict[str, Any], size: int = 0) -> None: ...


class Run:
    """One run, as this process works on it. `state` is what its facts add up to."""

    __slots__ = ("accepted_at", "ended_at", "error", "errors", "failed_calls", "has_ended", "id", "is_changed",
                 "is_to_tell", "is_told", "is_transcribed", "log", "output", "processed_ids", "queued_at", "reasoning",
                 "reply", "results", "sent", "session", "started_at", "started_mono", "state", "status", "timer",
                 "touched", "unwritten", "waits_until")  # fmt: skip

    def __init__(self, id: str, state: RunState, accepted_at: datetime, reasoning: Reasoning = "off", *,
                 is_to_tell: bool = False) -> None:  # fmt: skip
        self.id, self.state, self.session, self.accepted_at = id, state, state.message.session, accepted_at
        #: Whether people wait for its answer, so that they are told of its failure.
        self.is_to_tell = is_to_tell
        #: Where the thoughts of its models are shown.
        self.reasoning: Reasoning = reasoning
        self.status: Literal["ok", "error"] | None = None
        self.started_at: datetime | None = None
        #: When it began, when it was last active, until when it waits for a provider (monotonic seconds).
        self.started_mono = self.touched = self.waits_until = 0.0
        self.ended_at: datetime | None = None
        self.error, self.output, self.reply = "", None, Reply()
        self.errors: tuple[dict[str, Any], ...] = ()
        self.results: tuple[ActionResult, ...] = ()
        self.failed_calls: str | None = None
        #: The messages that the transcript does not have yet.
        self.unwritten: tuple[Perception, ...] = state.new
        #: When it was queued (monotonic seconds).
        self.queued_at = 0.0
        #: Whether a hook changed its answer after the journal had it, and whether the transcript has its end.
        self.is_changed = self.is_transcribed = False
        #: Whether its end was sent to people; the routes and texts (normalized) that it has sent.
        self.is_told = False
        self.sent: tuple[tuple[str, str], ...] = ()
        #: Its event log, while it is open.
        self.log: EventLog | None = None
        #: For a run of an earlier process: the ids of the perceptions that its cycles have processed.
        self.processed_ids = NO_IDS
        self.timer: Timer | None = None
        self.has_ended: Signal | None = None  # set by the first caller that waits

    @property
    def message(self) -> Perception:
        """Return its first message; that of all collected ones once it has begun."""
        return self.state.message

    @property
    def messages(self) -> tuple[Perception, ...]:
        """Return its first message and those that joined it."""
        return (self.state.message, *self.state.later)

    def note(self, result: ActionResult | None) -> None:
        """Add the result of a cycle to its results; also of an interrupted cycle or an incomplete plan."""
        if result is None:
            return
        self.results = (*self.results, result)
        if result.results:  # an answer without calls keeps the errors, which it may be about
            self.errors = tuple([error for error in result.errors if error["error"]["kind"] != "steered"])
            self.failed_calls = fallback(result.results)

    def share_usage(self, part: Run) -> None:
        """Copy the usage and errors to a run that ends with it."""
        part.errors, part.started_at = self.errors, part.started_at or self.started_at
        part.state = replace(part.state, used=self.state.used, waited=self.state.waited)

    def spend_late(self, usage: Mapping[str, int]) -> None:
        """Add to its usage after its session has finished it."""
        used = self.state.used
        late = {quantity: used.get(quantity, 0) + number for quantity, number in usage.items()}
        self.state = replace(self.state, used={**used, **late})

    def is_about(self, message: Perception) -> bool:
        """Return whether a message was collected into the first message of this run."""
        return any(part.id == message.id for part in self.state.message.evidence)

    def status_at(self, end: End | None, now: datetime) -> RunStatus:
        """Return its status; with an `end`, the status that it would have if it ended so now."""
        state = self.state
        if self.status is not None or end is None:
            return RunStatus(self.id, self.status or "timeout", state.outcome, self.started_at, self.ended_at,
                             self.error, self.output if self.status else state.output, self.errors, self.reply.text,
                             self.reply.is_silent, self.usage, state.chosen)  # fmt: skip
        reply = self.reply_to(end)
        return RunStatus(self.id, end.status, state.outcome, self.started_at, now, end.error, end.visible_output,
                         self.errors, reply.text, reply.is_silent, self.usage, state.chosen)  # fmt: skip

    def reply_to(self, end: End) -> Reply:
        """Return the text for people at its end: its answer, or one sentence instead."""
        reply = end.reply
        if reply.text is not None or reply.is_silent:
            return reply
        if self.tells_failure(end):
            return Reply(failure(end.error))
        return Reply(self.failed_calls) if self.failed_calls else reply

    def tells_failure(self, end: End) -> bool:
        """Return whether people are told of its failure."""
        return self.is_to_tell and self.has_failed(end)

    def has_failed(self, end: End) -> bool:
        """Return whether its end is a failure: not if people aborted or replaced it, or its message was dropped."""
        return end.status == "error" and end.error not in CALLED_OFF and self.state.outcome != "dropped"

    def stop_timer(self) -> None:
        """Cancel its timer, if there is one."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    @property
    def row(self) -> RunRow:
        """Return it as it is listed."""
        status = self.status or ("running" if self.started_at else "queued")
        about = {} if self.status else beginning(self.message)
        return RunRow(self.id, self.session, status, self.accepted_at, self.started_at, self.ended_at, **about)

    @property
    def usage(self) -> RunUsage:
        """Return its usage."""
        count = self.state.used.get
        return RunUsage(count("requests", 0), count("calls", 0), count("input_tokens", 0), count("output_tokens", 0),
                        count("cached_tokens", 0), count("money", 0), self.state.waited)  # fmt: skip

    def context(self) -> RunContext:
        """Return the values that modules are given about it."""
        state = self.state
        messages = tuple(message for result in self.results for message in result.messages)
        schema = state.message.attributes.get(OUTPUT)
        output = schema if isinstance(schema, dict) else None
        return RunContext(self.id, state.message.text, state.number, messages, self.results, state.message,
                          state.later, least_trust(self.messages), output, state.chosen, self.reasoning)  # fmt: skip


#: Events that count as activity of a run, besides the ends of its cycles.
_SIGNS_OF_LIFE = (CallStarted, CallProgressed, CallCompleted, CallFailed, AssistantDelta, ReasoningDelta)


class RunTimers:
    """Timers of one agent's runs. `limits` and `inactivity` (seconds, 0: no limit) are taken from the settings.

    Args: runs: the open runs by id; is_late: called with a run to end and the reason.
    """

    __slots__ = ("_clock", "_events", "_inactivity", "_is_late", "_runs", "_suspended_at", "_unsubscribe", "limits")

    def __init__(
        self, events: Events, clock: Clock, runs: Mapping[str, Run], is_late: Callable[[Run, str], None]
    ) -> None:
        self._events, self._clock, self._runs, self._is_late = events, clock, runs, is_late
        self._suspended_at: float | None = None
        self._inactivity = 0.0
        self._unsubscribe: tuple[Callable[[], object], ...] = ()
        self.limits = Limits()

    @property
    def inactivity(self) -> float:
        return self._inactivity

    @inactivity.setter
    def inactivity(self, seconds: float) -> None:
        """Set the limit, and subscribe to signs of activity only while there is one."""
        if bool(seconds) != bool(self._unsubscribe):
            for unsubscribe in self._unsubscribe:
                unsubscribe()
            kinds = _SIGNS_OF_LIFE if seconds else ()
            self._unsubscribe = tuple(self._events.subscribe(kind, self._note_activity) for kind in kinds)
        self._inactivity = seconds

    def watch(self, run: Run) -> None:
        """Set the timer of a run to its next limit."""
        if self._suspended_at is not None:
            return
        timeout = self.limits.seconds(run.state)
        ends = run.started_mono + run.state.waited + timeout if timeout else float("inf")
        rests = run.touched + self._inactivity if self._inactivity else float("inf")
        if run.timer is not None:
            run.timer.cancel()
        due = min(ends, rests)
        run.timer = self._clock.call_at(due, partial(self._look, run)) if due < float("inf") else None

    def wait_for_provider(self, run: Run, seconds: float) -> None:
        """Note that a run waits for its provider from now on, for so many seconds, which do not count towards its
        limits."""
        run.touched = run.waits_until = self._clock.monotonic() + seconds
        self.watch(run)

    def suspend(self) -> None:
        """Stop the time of all runs, because the agent runs no cycles."""
        if self._suspended_at is not None:
            return
        self._suspended_at = self._clock.monotonic()
        for run in self._runs.values():
            run.stop_timer()

    def resume(self) -> None:
        """Let the time of all runs continue."""
        if self._suspended_at is None:
            return
        since, now, self._suspended_at = self._suspended_at, self._clock.monotonic(), None
        for run in self._runs.values():
            if run.started_at is not None and not run.state.into:
                run.started_mono += now - max(since, run.started_mono)
                run.touched += now - since  # also for a run that waits for its provider
                self.watch(run)

    def let_pass(self, run: Run, seconds: float) -> None:
        """Count so many seconds that have just passed, in which a run stood still, towards no limit of it."""
        run.started_mono += seconds
        run.touched += seconds
        self.watch(run)

    def _look(self, run: Run) -> None:
        now, run.timer, timeout = self._clock.monotonic(), None, self.limits.seconds(run.state)
        if timeout and now >= run.started_mono + run.state.waited + timeout:
            self._is_late(run, too_long(timeout))
        elif self._inactivity and now >= run.touched + self._inactivity:
            self._is_late(run, f"nothing of it went on for {self._inactivity:g} s")
        else:
            self.watch(run)

    def _note_activity(self, event: Event) -> None:
        if isinstance(event, _SIGNS_OF_LIFE) and (run := self._runs.get(event.run_id or "")) is not None:
            run.touched = self._clock.monotonic()
