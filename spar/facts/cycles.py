"""Facts of cycles: the work that each took, what it began on, and how it closed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, Self

from msgspec import field

from spar.facts.fact import Fact
from spar.records.journal import Closing, Item, RowChange, Unfinished
from spar.types import Perception, utcnow

#: What became of the plan of a cycle: it was made; it failed; the planner waits for its provider; a hook refused the
#: cycle; the actor must not continue the run; the cycle was cut off; it did not come so far.
PlanOutcome = Literal["made", "failed", "deferred", "refused", "barred", "cut", "none"]


class WorkHandedOut(Fact, frozen=True, kw_only=True):
    """Interrupted or failed work waits for a cycle of its own.

    `work` is the id of the `cycle` to continue, or of the `item` to deal with again; `run` is its run. `is_suspect`
    says that it may have killed a process; such work is tried one piece at a time.
    """

    work: str
    run: str = ""
    cycle: Unfinished | None = None
    item: Item | None = None
    is_suspect: bool = False


class WorkTaken(Fact, frozen=True, kw_only=True):
    """A cycle took the work that it deals with: interrupted work, or the waiting perceptions and messages of its run.

    `work` is the piece of interrupted work, "" for none. `items` are the ids of the accepted work.
    """

    cycle: str
    run: str = ""
    work: str = ""
    items: tuple[str, ...] = ()
    is_stepped: bool = False


class CycleOpened(Fact, frozen=True, kw_only=True):
    """A cycle noticed something and plans. From here on it is finished, also after a crash.

    `at` is when it began, `attempts` counts its beginnings so far. `cursors` and `changes` are the places and small
    rows of the sensors whose perceptions it takes: one that cannot be stored is reported, and keeps its old value.
    """

    cycle: str
    run: str = ""
    items: tuple[str, ...] = ()
    perceptions: tuple[Perception, ...] = ()
    is_stepped: bool = False
    at: datetime = field(default_factory=utcnow)
    attempts: int = 1
    cursors: Mapping[str, Any] = {}
    changes: tuple[RowChange, ...] = ()

    @classmethod
    def of(cls, cycle: Unfinished) -> Self:
        """Return the beginning of a cycle as the next process knows it."""
        return cls(session=cycle.session, cycle=cycle.cycle_id, run=cycle.run_id or "", items=cycle.items,
                   perceptions=cycle.perceptions, is_stepped=cycle.is_stepped, at=cycle.opened_at,
                   attempts=cycle.attempts)  # fmt: skip

    @property
    def unfinished(self) -> Unfinished:
        """Return the cycle as the next process needs it."""
        return Unfinished(self.cycle, self.session, self.perceptions, self.items, self.run or None,
                          attempts=self.attempts, opened_at=self.at, is_stepped=self.is_stepped)  # fmt: skip


class CycleReopened(CycleOpened, frozen=True, kw_only=True):
    """An interrupted cycle is about to be continued: this counts as an attempt, whatever happens next."""


class CycleWritten(Fact, frozen=True, kw_only=True):
    """Results of a cycle, and all that becomes durable together with its end."""

    cycle: str
    closing: Closing


class CycleClosed(Fact, frozen=True, kw_only=True):
    """A cycle ended.

    `is_put_back` says that its interrupted work waits again. `has_result` says that calls were made or an answer given;
    `calls` counts those that were attempted, `has_failed` says that not all went well. `error` is why the plan failed,
    was deferred, refused, barred, or cut off by people; `is_final` says that the plan shall not be tried again.
    `requests` is 1 if a model decided. `waits` is the number of seconds that its run waits for a provider. `answers`
    says that the plan gave the answer `output` for now.
    """

    cycle: str
    outcome: str
    run: str = ""
    is_put_back: bool = False
    has_result: bool = False
    calls: int = 0
    has_failed: bool = False
    plan: PlanOutcome = "none"
    error: str = ""
    is_final: bool = False
    requests: int = 0
    waits: float = 0.0
    answers: bool = False
    output: Any = None
