"""Work of an agent that the next process must continue: the values of the journal.

The journal holds facts, not code to replay: accepted work, cycles with the work that they began on, and calls that were
planned, started and ended, with their results. From these a new process, also of a later release, continues: accepted
work is handed out again, open cycles are finished, calls that ended are not repeated, and a call that may have had an
effect that must not be repeated is `in_doubt` until a person answers what happened.

Writing to the journal never waits; `safe()` waits until all earlier writes are as durable as the store promises.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal

from msgspec import Struct, field

from spar.records.run_options import RunOptions
from spar.records.transcript import Entry
from spar.types import (
    Action,
    Call,
    CallResult,
    Credit,
    CycleRecord,
    Experience,
    Fault,
    Feedback,
    Perception,
    replace,
    utcnow,
)

#: Number of times that the same work may be cut off or fail before it is put aside.
MOST_ATTEMPTS = 3

Answer = Literal["done", "failed", "again"]


class Item(Struct, frozen=True, gc=False):
    """Accepted work: a perception that was handed over, or the message of a run (`kind` "run", `id` the run's).

    `attempts` counts how often the process died or the plan failed while working on it, `fault` is the last reason;
    `due_at` is when it is tried again. `past` names the cycles that worked on a run so far. `is_sensed` says that the
    perception has been through the pipeline; `into` names the run that this one has joined. `output` is the answer that
    a run gave together with failed calls; it is asked for once more. `options` are the choices of the sender of a run's
    message, `defaults` those of its session (None: no choice). `used` are the amounts by quantity that the run used by
    the end of its last cycle, `waited` is the number of seconds that it waited for its provider, `failures` that of
    failed plans in a row. `is_collected` says that its message waits for others to join it.
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
    used: Mapping[str, int] = {}
    is_collected: bool = False
    waited: float = 0.0
    failures: int = 0


class Unfinished(Struct, frozen=True):
    """Cycle that was begun and not ended, with all that is known of it.

    `action` is None when nothing was decided. `known` are the results of its calls in the order of their ends, as far
    as the calls must not run again; calls in doubt are among them. `attempts` counts the beginnings that did not end
    well. A cycle of single steps is not continued. `effect` is set if this is not a cycle but a detached call.
    `damage` says why it cannot be read as far as it should; its session is put aside.
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
    damage: str = ""

    @property
    def id(self) -> str:
        """Return the id of the cycle, or `cycle/call` of a detached call."""
        return self.cycle_id


class Doubt(Struct, frozen=True):
    """Call of which it is unknown whether it had its effect. `id` is `cycle_id/call_id`.

    It is open until `answer` is given: "done" (with which `output`), "failed" (it did not happen), or "again" (it did
    not happen and is made again).
    """

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

    @property
    def again(self) -> Item:
        """Return its item as if it were new."""
        return replace(self.item, attempts=0, fault=None, due_at=None)

    @property
    def answer(self) -> dict[str, Any]:
        """Return the answer of its run as people can ask for it, also once it was dropped; {} if it is no run."""
        if self.item.kind != "run":
            return {}
        return {"run_id": self.id, "status": "error", "ended_at": self.at, "error": self.reason}


class Spend(Struct, frozen=True):
    """Change to the used amount of a budget in one window; `window` is its name with its start
    (`hour:2026-11-21T18`)."""

    window: str
    quantity: str
    amount: int


class RowChange(Struct, frozen=True):
    """Change of a small row: it is written, or with `is_dropped` deleted. `owner` and `key` identify it."""

    owner: str
    key: str
    value: Any = None
    is_dropped: bool = False


class Closing(Struct, frozen=True):
    """Changes that become durable together with the end of a cycle.

    `record` is the record of the cycle (None for an idle one), `experiences` is what was learnt; `done` are the
    finished items, and `answer` is that of the run among them.
    `again` is set if the cycle was cut off and must be continued. `entries` are its additions to the transcript of its
    `session`, for run `run_id` unless they name their own; entries of a run that another one has superseded there are
    not stored, which is reported as a fault. `changes` are small rows that change with it: what was learnt of tools. A
    cycle with a `record` adds to the counts of its agent (`count_cycle`), and with it `besides`. `credits` say
    which experiences helped, `feedback` how earlier cycles and runs turned out, and this one.
    A chain of steps (`is_stepped`) may be closed again.
    """

    outcome: str
    record: CycleRecord | None = None
    experiences: tuple[Experience, ...] = ()
    run_id: str | None = None
    done: tuple[str, ...] = ()
    again: Unfinished | None = None
    entries: tuple[Entry, ...] = ()
    session: str = ""
    changes: tuple[RowChange, ...] = ()
    besides: dict[str, Any] | None = None
    is_stepped: bool = False
    credits: tuple[Credit, ...] = ()
    feedback: tuple[Feedback, ...] = ()
    answer: Any = None


def count_cycle(total: dict[str, Any], outcome: str, durations_of_cycle: Iterable[tuple[str, float]]) -> None:
    """Count one cycle in the counts of its agent: its outcome, and pairs of a name and its duration in seconds.

    Counts are objects `{"outcomes": {name: number}, "errors_by_phase": {name: number}, "durations": {name: [number,
    seconds]}}` of which any part may be missing, and can be added.
    """
    outcomes, durations = total.setdefault("outcomes", {}), total.setdefault("durations", {})
    outcomes[outcome] = outcomes.get(outcome, 0) + 1
    for name, seconds in durations_of_cycle:
        number, before = durations.get(name, (0, 0.0))
        durations[name] = number + 1, before + seconds


def merge_counts(total: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add counts to `total`. Raises: TypeError, ValueError, AttributeError for values that are not counts."""
    for kind in ("outcomes", "errors_by_phase"):
        numbers = total.setdefault(kind, {})
        for name, number in (more.get(kind) or {}).items():
            numbers[name] = numbers.get(name, 0) + number
    durations = total.setdefault("durations", {})
    for name, (number, seconds) in (more.get("durations") or {}).items():
        known_number, before = durations.get(name, (0, 0.0))
        durations[name] = known_number + number, before + seconds


#: The command that lists all of a kind.
_LISTED: Final = {
    "approval": "spar approvals list --status all",
    "grant": "spar approvals grants",
    "call in doubt": "spar calls list --status all",
    "dead letter": "spar dead list",
}


def named(known: Iterable[Any], id: str, what: str) -> Any:
    """Return the only value with this id or unique beginning of an id. Raises: LookupError with the known ids."""
    values = list(known)
    matches = [item for item in values if item.id == id] or [item for item in values if id and item.id.startswith(id)]
    if len(matches) == 1:
        return matches[0]
    nearest = matches or values
    names = ", ".join(item.id for item in nearest[:5]) or "none"
    more = f" and {len(nearest) - 5} more" if len(nearest) > 5 else ""
    number, label = ("several", "they are") if matches else ("no", "known")
    where = f"; {_LISTED[what]} shows them" if what in _LISTED and (more or not matches) else ""
    raise LookupError(f"{number} {what} {id!r:.100}; {label}: {names}{more}{where}")
