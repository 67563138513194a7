"""Work of an agent that the next process must find again: the values of the journal, and its port.

The journal holds facts, not code to be replayed: what was accepted, which cycles were begun on what, which calls
were planned, started and ended, and how. From these a new process, also of a later release, goes on: accepted work
is handed out again, begun cycles are finished, calls that ended are not repeated, and a call that may have had an
effect that must not be repeated is `in_doubt` until somebody says what became of it.

Telling the journal never waits; `safe()` does, until all that was told before it is as safe as the store promises.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from datetime import datetime
from typing import Any, Generic, Literal, Protocol, TypeVar, runtime_checkable

from msgspec import Struct, field

from spar.errors import ConflictError
from spar.records.run_options import RunOptions
from spar.records.transcript import Entry
from spar.types import Action, Call, CallResult, Credit, CycleRecord, Experience, Fault, Feedback, Perception, utcnow

J = TypeVar("J")
R = TypeVar("R")

#: How often the same work may be cut off or fail before it is put aside.
MOST_ATTEMPTS = 3

Answer = Literal["done", "failed", "again"]


class Item(Struct, frozen=True):
    """Accepted work: a perception that was handed over, or the message of a run (`kind` "run", `id` the run's).

    `attempts` counts how often the process died or the plan failed with it in hand, `fault` the last reason;
    `due_at` is when it is to be tried again. `past` names the cycles that worked on a run so far. `is_sensed` says that
    the perception has been through the pipeline; `into` names the run that this one has become a part of. `output` is
    the answer that a run gave together with failed calls, for which it is asked once more. `options` are what the
    sender of a run's message chose, `defaults` what its session did (None: nothing).
    """

    id: str
    perception: Perception
    kind: Literal["perception", "run"] = "perception"
    session: str = "main"
    key: str | None = None
    at: datetime = field(default_factory=utcnow)
    attempts: int = 0
    fault: Fault | None = None
    due_at: datetime | None = None
    past: tuple[str, ...] = ()
    is_sensed: bool = False
    into: str = ""
    output: Any = None
    options: RunOptions | None = None
    defaults: RunOptions | None = None


class Unfinished(Struct, frozen=True):
    """A cycle that was begun and not ended: on what, what was to be done, and what is known to have been done.

    `action` is None when nothing was decided. `known` are the ends of its calls in the order in which they ended,
    as far as they are not to be made again; calls in doubt are among them. `attempts` counts the beginnings that came
    to no good end. A cycle of steps is not gone on with. `effect` is set where this is no cycle but a detached call.
    """

    cycle_id: str
    session: str
    perceptions: tuple[Perception, ...] = ()
    items: tuple[str, ...] = ()
    run_id: str | None = None
    action: Action | None = None
    known: tuple[CallResult, ...] = ()
    attempts: int = 1
    opened_at: datetime = field(default_factory=utcnow)
    is_stepped: bool = False
    effect: str = ""


class Interrupted(Generic[R]):
    """A piece of interrupted work: a cycle to go on with or an item to deal with again, and its run if it has one.

    `is_suspect` says that it may be what killed a process; `since` when it was handed over here (monotonic seconds).
    """

    __slots__ = ("is_suspect", "run", "session", "since", "work")

    def __init__(self, work: Unfinished | Item, run: R | None, since: float, *, is_suspect: bool = False) -> None:
        self.work, self.run, self.since, self.is_suspect = work, run, since, is_suspect
        self.session = work.session

    @property
    def cycle(self) -> Unfinished | None:
        """The cycle that goes on under its own id; None where a new one deals with an item."""
        return self.work if isinstance(self.work, Unfinished) else None

    @property
    def items(self) -> tuple[str, ...]:
        """The accepted work (ids) that it was begun on."""
        return self.work.items if isinstance(self.work, Unfinished) else (self.work.id,)


class Doubt(Struct, frozen=True):
    """A call that may or may not have had its effect. `id` is `cycle_id/call_id`; open until `answer` is given:
    it was "done" (with which `output`), it "failed" (did not happen), or it did not happen and is made "again"."""

    id: str
    call: Call
    cycle_id: str
    session: str = "main"
    run_id: str | None = None
    at: datetime = field(default_factory=utcnow)
    why: str = ""
    action_id: str = ""
    answer: Answer | None = None
    output: Any = None
    answered_by: str = ""
    answered_at: datetime | None = None
    reason: str = ""


class DeadLetter(Struct, frozen=True):
    """Work that was put aside after `MOST_ATTEMPTS` attempts, with the last reason."""

    id: str
    item: Item
    at: datetime
    reason: str


class Spend(Struct, frozen=True):
    """A change to what was used of a budget in one window: `window` names it with its start (`hour:2026-11-21T18`)."""

    window: str
    quantity: str
    amount: int


class RowChange(Struct, frozen=True):
    """A small row that is written, or with `is_dropped` deleted: `owner` names whose it is, `key` which one."""

    owner: str
    key: str
    value: Any = None
    is_dropped: bool = False


class Closing(Struct, frozen=True):
    """Changes that become durable together with the end of a cycle.

    `record` is its place on the tape (None for an idle one), `experiences` what was learnt; `done` are the items that
    are through, `failed` those to be tried again; `run` is its run's answer (a struct) once that has ended, `parts` are
    those of the messages that had become a part of that run, `past` is the run's item with this cycle among its past.
    `again` is what is to be gone on with: the cycle was cut off. `entries` are what it adds to the transcript of its
    `session`, for run `run_id` unless they name their own; those of a run that another one has superseded there are not
    kept, which is told as a fault. `changes` are small rows that change with it: what was learnt of tools. With
    `record` the cycle adds to the counts of its agent (`spar.records.counts`), and with it `besides`. `credits` say
    which experiences helped, `feedback` how earlier cycles and runs went after all, and this one's.
    A chain of steps (`is_stepped`) may be closed again.
    """

    outcome: str
    record: CycleRecord | None = None
    experiences: tuple[Experience, ...] = ()
    run_id: str | None = None
    done: tuple[str, ...] = ()
    failed: tuple[Item, ...] = ()
    run: Any = None
    parts: tuple[Any, ...] = ()
    past: Item | None = None
    again: Unfinished | None = None
    entries: tuple[Entry, ...] = ()
    session: str = ""
    changes: tuple[RowChange, ...] = ()
    besides: dict[str, Any] | None = None
    is_stepped: bool = False
    credits: tuple[Credit, ...] = ()
    feedback: tuple[Feedback, ...] = ()

    @property
    def is_alone(self) -> bool:
        """Return whether the record and its counts are all that came of the cycle, and will be."""
        return self.record is not None and not (
            self.run_id or self.done or self.failed or self.entries or self.experiences or self.again or self.is_stepped
            or self.credits or self.feedback
        )  # fmt: skip

    @property
    def leaves_a_trace(self) -> bool:
        """Return whether anything came of the cycle that must be found again."""
        return bool(
            self.record or self.done or self.failed or self.run or self.past or self.again or self.entries
            or self.credits or self.feedback
        )  # fmt: skip


@runtime_checkable
class CallJournal(Protocol):
    """Journal that an actor tells of its calls; an actor that does has the attribute `keeps_journal`.

    `work` is the cycle's id, or the action's where there is no cycle.
    """

    epoch: int

    def acting(self, work: str, action: Action, effect: str = "") -> None:
        """This action is going to be executed; `effect` is that of an actor that tells nothing of its calls itself."""

    def planned(self, work: str, call: Call) -> None:
        """A call has come that the action did not hold when it began."""

    def started(
        self, work: str, call_id: str, attempt: int, effect: str, allowed: str, values: Mapping[str, Any] | None = None
    ) -> None:
        """An attempt begins; `allowed` says by what: "auto" or the id of an approval. `values` are its parameters where
        the call itself only refers to them."""

    def ended(self, work: str, result: CallResult) -> None:
        """A call has ended; `result.output` is what its tool returned, also a `Message`."""

    def detached(self, work: str, action: Action, effect: str, session: str) -> None:
        """The one call of this goes on, and nobody waits for it."""

    def attached(self, work: str, call_id: str) -> None:
        """A detached call has come to its end, which is told like any other's."""

    def next_fence(self, above: int = 0) -> int:
        """A number above `above` and all that this was given before, also by other processes and to other actors."""

    def is_open(self, work: str) -> bool:
        """Return whether this cycle has begun and not ended, in this process or an earlier one."""

    def safe(self) -> Awaitable[None]:
        """Return when everything told so far is safe. Raises: SparError when the store is closed."""


def demanded(journal: J | None) -> J:
    """Return the journal. Raises: ConflictError where none is kept."""
    if journal is None:
        raise ConflictError("there is no journal: the agent has no memory that keeps one, or has not been started")
    return journal


def named(known: Iterable[Any], id: str, what: str) -> Any:
    """The one with this id or unique beginning of one. Raises: LookupError saying which there are."""
    every = list(known)
    found = [each for each in every if each.id == id] or [each for each in every if id and each.id.startswith(id)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(each.id for each in (found or every)[:5]) or "none"
    raise LookupError(f"{'several' if found else 'no'} {what} {id!r:.100}; {'they are' if found else 'known'}: {names}")
