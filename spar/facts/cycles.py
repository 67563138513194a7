"""Facts of cycles: the work that each took, what it began on, and how it closed."""

from __future__ import annotations

from typing import Any, Literal

from spar.facts.fact import Fact
from spar.records.journal import Item, Unfinished
from spar.types import Perception

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
    """A cycle noticed something and plans. From here on it is finished, also after a crash."""

    cycle: str
    run: str = ""
    items: tuple[str, ...] = ()
    perceptions: tuple[Perception, ...] = ()
    is_stepped: bool = False


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
