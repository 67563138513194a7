"""One run: the pursuit of one goal over as many cycles as it takes.

It holds what its cycles have brought; whether it is over says `spar.runs.verdict`, the account of all runs is
`spar.runs.runs`'.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import force_setattr

from spar.clock import Timer
from spar.data.reply import Reply, failure, reply_of
from spar.ids import new_id
from spar.loop.wake import Signal
from spar.ports.trust import least_trust
from spar.protocols import RunContext
from spar.records.run_options import NO_OPTIONS, RunOptions
from spar.types import ActionResult, Perception, Reasoning, RunUsage, Trust

#: Errors of runs that people have ended themselves.
CALLED_OFF: Final = ("aborted", "superseded", "interrupted by a newer message", "reset")
#: Those of them after which nothing that the run asked people for is to happen.
FORGOTTEN: Final = ("aborted", "reset")
#: Under this attribute a message carries the schema that the answer to it has to fit.
OUTPUT: Final = "output_schema"

Outcome = Literal["queued", "started", "steered", "collected", "interrupting", "dropped"]


class Receipt(Struct, frozen=True):
    """The answer to `submit`: the run's id and when it was accepted (UTC)."""

    run_id: str
    accepted_at: datetime


class RunStatus(Struct, frozen=True):
    """The answer to `wait`. `status` is `timeout` while the run goes on; `outcome` is what became of the message.

    `reply` is what people are told: of the output, or in one sentence that the run failed; `silent` says that it chose
    to tell them nothing. `usage` is what it took in this process, `options` those that hold for it.
    """

    run_id: str
    status: Literal["ok", "error", "timeout"]
    outcome: str = "queued"
    started_at: datetime | None = None
    ended_at: datetime | None = None
    error: str = ""
    output: Any = None
    errors: tuple[dict[str, Any], ...] = ()
    reply: str | None = None
    silent: bool = False
    usage: RunUsage = RunUsage()
    options: RunOptions = NO_OPTIONS

    @classmethod
    def read(cls, plain: Any) -> RunStatus:
        """The answer as it was kept. Raises: msgspec.ValidationError."""
        return msgspec.convert(plain, cls, strict=False)


class RunRow(Struct, frozen=True):
    """A run in a list; `status` is queued, running, ok or error."""

    run_id: str
    session: str
    status: str
    accepted_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


class EndedRun(RunStatus, frozen=True):
    """A run that has ended, with all messages of its cycles: the value at `after_run`."""

    messages: tuple[dict[str, Any], ...] = ()


class End(Struct, frozen=True):
    """The way in which a run is over. `reply` is what its output says to people, and follows from that."""

    status: Literal["ok", "error"]
    error: str = ""
    output: Any = None
    reply: Reply = Reply()

    def __post_init__(self) -> None:
        if self.output is not None:
            force_setattr(self, "reply", reply_of(self.output))

    @property
    def visible_output(self) -> Any:
        """Return the answer as who asks is given it: a silent text is none."""
        return None if isinstance(self.output, str) and self.reply.is_silent else self.output


class Limits(Struct, frozen=True):
    """The limits of one run: seconds, seconds of waiting for a provider (0: any), and by quantity what there is
    a limit for."""

    timeout: float = 0.0
    most: Mapping[str, int] = {}
    patience: float = 0.0


class EventLog(Protocol):
    """The log of a run's events."""

    def add(self, stream: Any, at: datetime, data: dict[str, Any], size: int = 0) -> None: ...


class Run:
    """One run on its way."""

    __slots__ = ("absorbed", "accepted_at", "defaults", "ended_at", "error", "errors", "failed_calls",
                 "failures", "has_ended", "id", "into", "is_changed", "is_collected", "is_planned",
                 "is_to_tell", "is_to_verify", "is_told", "is_transcribed", "log", "message", "new",
                 "number", "options", "outcome", "output", "queued_at", "reasoning", "reply", "results", "said",
                 "seen", "sent", "session", "started_at", "started_mono", "status", "timer", "touched",
                 "unwritten", "used", "waited", "waits_until")  # fmt: skip

    def __init__(
        self, message: Perception, accepted_at: datetime, *, is_to_verify: bool = True, is_to_tell: bool = False
    ) -> None:
        self.id, self.is_to_verify = new_id(), is_to_verify
        #: Whether people wait for it, and are to hear of its failure.
        self.is_to_tell = is_to_tell
        self.message, self.session, self.accepted_at = message, message.session, accepted_at
        #: What its sender chose, and what its session chooses where the sender did not.
        self.options = self.defaults = NO_OPTIONS
        #: Who may read what its models think.
        self.reasoning: Reasoning = "off"
        self.outcome: Outcome = "queued"
        self.status: Literal["ok", "error"] | None = None
        self.started_at: datetime | None = None
        #: Monotonic seconds: when it began, when anything of it last went on; and how long it waited for a provider.
        self.started_mono = self.touched = self.waited = self.waits_until = 0.0
        self.ended_at: datetime | None = None
        self.error, self.output, self.reply = "", None, Reply()
        self.errors: tuple[dict[str, Any], ...] = ()
        self.results: list[ActionResult] = []
        self.number, self.failures, self.is_planned = 1, 0, False
        self.failed_calls: str | None = None
        #: What people have said in it after its message, and of that (message included) what is still to be planned
        #: for and what is still to be written in the transcript.
        self.said: tuple[Perception, ...] = ()
        self.new: tuple[Perception, ...] = (message,)
        self.unwritten: tuple[Perception, ...] = (message,)
        self.used: dict[str, int] = {}
        #: The run that this one became a part of, and those that became a part of this one.
        self.into: Run | None = None
        self.absorbed: tuple[Run, ...] = ()
        self.is_collected = False
        #: When it began to wait for its turn (monotonic seconds).
        self.queued_at = 0.0
        #: Whether a hook changed its answer after it was kept, and whether the transcript knows that it has ended.
        self.is_changed = self.is_transcribed = False
        #: Whether people have been told how it ended; where and what it has told them, texts as they are compared.
        self.is_told = False
        self.sent: list[tuple[str, str]] = []
        #: Its events, while it goes on and somebody keeps them.
        self.log: EventLog | None = None
        #: Of a run of an earlier process, the perceptions (ids) that its cycles have dealt with.
        self.seen: frozenset[str] = frozenset()
        self.timer: Timer | None = None
        self.has_ended: Signal | None = None  # once somebody waits for that

    @property
    def trust(self) -> Trust:
        """Return the trust of the least trusted of all that was said in it."""
        return least_trust((self.message, *self.said)) if self.said else self.message.trust

    @property
    def chosen(self) -> RunOptions:
        """Return the options that hold now: those of its messages, the newest first, then those of its session."""
        options = self.options
        for other in self.absorbed:
            options = options.followed_by(other.options)
        return options if self.defaults is NO_OPTIONS else options.over(self.defaults)

    def hear(self, other: Run) -> None:
        """Take in the message of another run, which ends when this one does."""
        other.into = self
        self.absorbed = (*self.absorbed, other)
        self.said = (*self.said, other.message)
        self.new, self.unwritten = (*self.new, other.message), (*self.unwritten, other.message)

    def share(self) -> tuple[Run, ...]:
        """Give what it took and met to those that became a part of it, and end with it; they are returned."""
        for other in self.absorbed:
            other.errors, other.started_at = self.errors, other.started_at or self.started_at
            other.used, other.waited = self.used, self.waited
        return self.absorbed

    def restored(self, message: Perception) -> None:
        """Take what was said in it in an earlier process as new only if no cycle has dealt with it, and if it was not
        collected into what the run is about."""
        if message.id in self.seen or self.is_about(message):
            self.new = tuple(each for each in self.new if each is not message)
            self.unwritten = tuple(each for each in self.unwritten if each is not message)

    def is_about(self, message: Perception) -> bool:
        """Return whether a message was collected with others into this run's."""
        return any(part.id == message.id for part in self.message.evidence)

    def planned(self) -> None:
        """Note that what was said in it has been planned for."""
        self.is_planned, self.failures, self.new = True, 0, ()

    def status_at(self, end: End | None, now: datetime) -> RunStatus:
        """Return the answer to who asks: how it ended, or with this end would have now; else that it goes on."""
        if self.status is not None or end is None:
            return RunStatus(self.id, self.status or "timeout", self.outcome, self.started_at, self.ended_at,
                             self.error, self.output, self.errors, self.reply.text, self.reply.is_silent,
                             self.usage, self.chosen)  # fmt: skip
        reply = self.reply_to(end)
        return RunStatus(self.id, end.status, self.outcome, self.started_at, now, end.error, end.visible_output,
                         self.errors, reply.text, reply.is_silent, self.usage, self.chosen)  # fmt: skip

    def reply_to(self, end: End) -> Reply:
        """Return what people are told at its end: what it answered, or the one sentence that stands for that."""
        reply = end.reply
        if reply.text is not None or reply.is_silent:
            return reply
        if self.tells_failure(end):
            return Reply(failure(end.error))
        return Reply(self.failed_calls) if self.failed_calls else reply

    def tells_failure(self, end: End) -> bool:
        """Return whether people hear that it failed: not if they called it off or replaced it."""
        return self.is_to_tell and end.status == "error" and end.error not in CALLED_OFF and self.outcome != "dropped"

    def timeout(self, limits: Limits) -> float:
        """Return the seconds that it may take; 0: any number."""
        chosen = self.chosen.timeout
        return limits.timeout if chosen is None else chosen

    def stop_timer(self) -> None:
        """Cancel the timer that would look after it, if there is one."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    @property
    def usage(self) -> RunUsage:
        """Return what it has taken in this process."""
        found = self.used.get
        return RunUsage(found("requests", 0), found("calls", 0), found("input_tokens", 0), found("output_tokens", 0),
                        found("cached_tokens", 0), found("money", 0), self.waited)  # fmt: skip

    def use(self, quantity: str, number: int) -> None:
        """Count what it takes."""
        self.used[quantity] = self.used.get(quantity, 0) + number

    def context(self) -> RunContext:
        messages = tuple(message for result in self.results for message in result.messages)
        schema = self.message.attributes.get(OUTPUT)
        output = schema if isinstance(schema, dict) else None
        return RunContext(self.id, self.message.text, self.number, messages, tuple(self.results), self.message,
                          self.said, self.trust, output, self.chosen, self.reasoning)  # fmt: skip


def too_long(timeout: float) -> str:
    """Why a run that took more than `timeout` seconds was ended."""
    return f"took longer than {timeout:g} s"
