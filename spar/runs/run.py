"""One run: the pursuit of one goal over as many cycles as needed.

It holds the results of its cycles. `spar.runs.verdict` decides when it has ended; `spar.runs.runs` keeps all runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, Protocol

from msgspec import Struct
from msgspec.structs import force_setattr

from spar.clock import Timer
from spar.data.reply import Reply, failure, reply_of
from spar.facts.messages import Outcome
from spar.ids import new_id
from spar.loop.wake import Signal
from spar.ports.trust import least_trust
from spar.protocols import RunContext
from spar.records.run_options import NO_OPTIONS, RunOptions
from spar.records.runs import RunRow, RunStatus
from spar.types import ActionResult, Perception, Reasoning, RunUsage, Trust

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


class Limits(Struct, frozen=True):
    """Limits of one run: `timeout` in seconds (0: none), `patience` in seconds of waiting for a provider (0: none),
    `most` by quantity."""

    timeout: float = 0.0
    most: Mapping[str, int] = {}
    patience: float = 0.0


class EventLog(Protocol):
    """Log of a run's events."""

    def add(self, stream: Any, at: datetime, data: dict[str, Any], size: int = 0) -> None: ...


class Run:
    """State of one run."""

    __slots__ = ("absorbed", "accepted_at", "defaults", "ended_at", "error", "errors", "failed_calls", "failures",
                 "has_ended", "id", "into", "is_changed", "is_collected", "is_planned", "is_to_tell",
                 "is_to_verify", "is_told", "is_transcribed", "later_messages", "log", "message", "new", "number",
                 "options", "outcome", "output", "processed_ids", "queued_at", "reasoning", "reply", "results",
                 "sent", "session", "started_at", "started_mono", "status", "timer", "touched", "unwritten",
                 "used", "waited", "waits_until")  # fmt: skip

    def __init__(
        self, message: Perception, accepted_at: datetime, *, is_to_verify: bool = True, is_to_tell: bool = False
    ) -> None:
        self.id, self.is_to_verify = new_id(), is_to_verify
        #: Whether people wait for its answer, so that they are told of its failure.
        self.is_to_tell = is_to_tell
        self.message, self.session, self.accepted_at = message, message.session, accepted_at
        #: The options that its sender chose, and the defaults of its session.
        self.options = self.defaults = NO_OPTIONS
        #: Where the thoughts of its models are shown.
        self.reasoning: Reasoning = "off"
        self.outcome: Outcome = "queued"
        self.status: Literal["ok", "error"] | None = None
        self.started_at: datetime | None = None
        #: When it began, when it was last active (monotonic seconds); the seconds that it has waited for a provider,
        #: and until when it waits (monotonic seconds).
        self.started_mono = self.touched = self.waited = self.waits_until = 0.0
        self.ended_at: datetime | None = None
        self.error, self.output, self.reply = "", None, Reply()
        self.errors: tuple[dict[str, Any], ...] = ()
        self.results: list[ActionResult] = []
        self.number, self.failures, self.is_planned = 1, 0, False
        self.failed_calls: str | None = None
        #: The messages after the first; those (the first included) that no plan has answered yet; those that the
        #: transcript does not have yet.
        self.later_messages: tuple[Perception, ...] = ()
        self.new: tuple[Perception, ...] = (message,)
        self.unwritten: tuple[Perception, ...] = (message,)
        self.used: dict[str, int] = {}
        #: The run that absorbed this one, and the runs that this one absorbed.
        self.into: Run | None = None
        self.absorbed: tuple[Run, ...] = ()
        self.is_collected = False
        #: When it was queued (monotonic seconds).
        self.queued_at = 0.0
        #: Whether a hook changed its answer after the journal had it, and whether the transcript has its end.
        self.is_changed = self.is_transcribed = False
        #: Whether its end was sent to people; the routes and texts (normalized) that it has sent.
        self.is_told = False
        self.sent: list[tuple[str, str]] = []
        #: Its event log, while it is open.
        self.log: EventLog | None = None
        #: For a run of an earlier process: the ids of the perceptions that its cycles have processed.
        self.processed_ids: frozenset[str] = frozenset()
        self.timer: Timer | None = None
        self.has_ended: Signal | None = None  # set by the first caller that waits

    @property
    def trust(self) -> Trust:
        """Return the trust of the least trusted of its messages."""
        return least_trust((self.message, *self.later_messages)) if self.later_messages else self.message.trust

    @property
    def chosen(self) -> RunOptions:
        """Return the options in force: those of its messages, the newest first, then the defaults of its session."""
        options = self.options
        for other in self.absorbed:
            options = options.followed_by(other.options)
        return options if self.defaults is NO_OPTIONS else options.over(self.defaults)

    def absorb(self, other: Run) -> None:
        """Absorb the message of another run, which will end with this one."""
        other.into = self
        self.absorbed = (*self.absorbed, other)
        self.later_messages = (*self.later_messages, other.message)
        self.new, self.unwritten = (*self.new, other.message), (*self.unwritten, other.message)

    def share_usage(self) -> tuple[Run, ...]:
        """Copy the usage and errors to the absorbed runs, which end with it, and return them."""
        for other in self.absorbed:
            other.errors, other.started_at = self.errors, other.started_at or self.started_at
            other.used, other.waited = self.used, self.waited
        return self.absorbed

    def mark_restored(self, message: Perception) -> None:
        """Treat a message of an earlier process as answered if a cycle has processed it or if it was collected into the
        first."""
        if message.id in self.processed_ids or self.is_about(message):
            self.new = tuple(other for other in self.new if other is not message)
            self.unwritten = tuple(other for other in self.unwritten if other is not message)

    def is_about(self, message: Perception) -> bool:
        """Return whether a message was collected into the first message of this run."""
        return any(part.id == message.id for part in self.message.evidence)

    def planned(self) -> None:
        """Note that a plan has answered its messages."""
        self.is_planned, self.failures, self.new = True, 0, ()

    def status_at(self, end: End | None, now: datetime) -> RunStatus:
        """Return its status; with an `end`, the status that it would have if it ended so now."""
        if self.status is not None or end is None:
            return RunStatus(self.id, self.status or "timeout", self.outcome, self.started_at, self.ended_at,
                             self.error, self.output, self.errors, self.reply.text, self.reply.is_silent,
                             self.usage, self.chosen)  # fmt: skip
        reply = self.reply_to(end)
        return RunStatus(self.id, end.status, self.outcome, self.started_at, now, end.error, end.visible_output,
                         self.errors, reply.text, reply.is_silent, self.usage, self.chosen)  # fmt: skip

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
        return end.status == "error" and end.error not in CALLED_OFF and self.outcome != "dropped"

    def timeout(self, limits: Limits) -> float:
        """Return the seconds that it may take; 0 for no limit."""
        chosen = self.chosen.timeout
        return limits.timeout if chosen is None else chosen

    def stop_timer(self) -> None:
        """Cancel its timer, if there is one."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    @property
    def row(self) -> RunRow:
        """Return it as it is listed."""
        status = self.status or ("running" if self.started_at else "queued")
        return RunRow(self.id, self.session, status, self.accepted_at, self.started_at, self.ended_at)

    @property
    def usage(self) -> RunUsage:
        """Return its usage."""
        count = self.used.get
        return RunUsage(count("requests", 0), count("calls", 0), count("input_tokens", 0), count("output_tokens", 0),
                        count("cached_tokens", 0), count("money", 0), self.waited)  # fmt: skip

    def use(self, quantity: str, number: int) -> None:
        """Add to its usage of a quantity."""
        self.used[quantity] = self.used.get(quantity, 0) + number

    def context(self) -> RunContext:
        """Return the values that modules are given about it."""
        messages = tuple(message for result in self.results for message in result.messages)
        schema = self.message.attributes.get(OUTPUT)
        output = schema if isinstance(schema, dict) else None
        return RunContext(self.id, self.message.text, self.number, messages, tuple(self.results), self.message,
                          self.later_messages, self.trust, output, self.chosen, self.reasoning)  # fmt: skip


def too_long(timeout: float) -> str:
    """Return the error of a run that took more than `timeout` seconds."""
    return f"took longer than {timeout:g} s"
