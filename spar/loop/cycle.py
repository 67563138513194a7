"""One cycle in the making, and the tables of what a failing phase leads to."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import methodcaller
from typing import Any, TypeVar, cast

from msgspec import Struct
from msgspec.structs import force_setattr

from spar.backoff import Backoff
from spar.checks import shorten
from spar.clock import Clock
from spar.data.json_safe import shortened
from spar.errors import ENDS_PROCESS, ContractError, PhaseTimeoutError
from spar.loop.plan_stream import OpenPlan
from spar.protocols import RunContext
from spar.records.abilities import ReadAbilities
from spar.records.journal import Interrupted, Unfinished
from spar.types import (
    PHASES,
    Action,
    ActionResult,
    CallResult,
    CallStatus,
    CycleRecord,
    Fault,
    Outcome,
    Perception,
    Phase,
    Reflection,
    count_calls,
    replace,
)

V = TypeVar("V", bound=Struct)

#: The key of the standing session, whose sense polls the sensors.
STANDING = "main"
#: Further attempts under the policy `retry` where `phases.<phase>.retries` says none.
RETRIES = 3
#: A failure that asks for more patience than this (seconds) gets it between cycles, not inside one.
LONGEST_WAIT = 5.0


#: What a failure leads to once it has been retried in vain: the defaults of `[agent.errors]`.
AFTER_RETRIES: dict[Phase, str] = {"sense": "skip", "plan": "skip", "act": "reflect", "reflect": "continue"}


#: Bytes of one note that is kept with a cycle.
LARGEST_NOTE = 1 << 20


#: The most that a failure is left alone for when it asks for it (seconds).
LONGEST_PATIENCE = 300.0


class Skip(Exception):
    """Raised to end the cycle here; the reason has been published already."""


def asked_patience(fault: Fault) -> float:
    """Return the seconds for which a failure asks to be left alone, at most `LONGEST_PATIENCE`; 0 when it does not."""
    asked = fault.detail.get("retry_after")
    if not fault.retryable or isinstance(asked, bool) or not isinstance(asked, (int, float)) or not asked > 0:
        return 0.0
    return min(float(asked), LONGEST_PATIENCE)


class Step(Struct, frozen=True):
    """Terms of one phase, the `number`th: the module's `name`, the contract that its product is `held` to, the list of
    its durations (seconds), `timeout` and `grace` in seconds, `attempts` (at least 1), the policy `on_error`."""

    phase: Phase
    number: int
    name: str
    held: Callable[[Any, str, Any], Any]
    durations: list[float]
    timeout: float = float("inf")
    attempts: int = 1
    backoff: Backoff = Backoff()
    grace: float = 0.5
    on_error: str = "skip"

    @property
    def answer(self) -> str:
        """Return the policy for a failure that is not tried again."""
        return AFTER_RETRIES[self.phase] if self.on_error == "retry" else self.on_error

    def wait_before_retry(self, attempt: int, fault: Fault) -> float | None:
        """Seconds to wait before the next attempt of the phase; None: do not try again in this cycle."""
        if attempt >= self.attempts or not fault.retryable:
            return None
        wait = asked_patience(fault) or self.backoff.delay(attempt)
        return wait if wait <= LONGEST_WAIT else None


class Cycle:
    """One cycle: the products, durations and faults of its phases. Lives from `LoopStarted` to `LoopCompleted`.

    One is made every few microseconds: its id and the time of day, which most do not need, are made when asked for.
    `taken` is the interrupted work that it deals with.
    """

    __slots__ = ("abilities", "action", "clock", "duration", "durations", "error", "faults", "has_sensed", "is_cut",
                 "is_journalled", "is_refused", "is_skipped", "is_stepped", "items", "known_id", "note_errors", "notes",
                 "noticed", "outcome", "perceptions", "phase", "phase_began", "reflection", "result", "resumable",
                 "resumed", "run", "said", "session", "started", "taken", "when_closed")  # fmt: skip

    def __init__(self, session: str, run: RunContext | None, clock: Clock,
                 taken: Interrupted[Any] | None = None) -> None:  # fmt: skip
        self.session, self.run, self.clock, self.taken = session, run, clock, taken
        self.started = self.phase_began = clock.monotonic()
        #: Seconds that it took; of a chain of steps only what the phases took, not the looking in between.
        self.duration = 0.0
        #: Its id once somebody has asked for it.
        self.known_id = ""
        #: Accepted work that it took.
        self.items: tuple[str, ...] = ()
        #: What modules want kept with it, by the phase in which they said so, and what went wrong with that.
        self.notes: tuple[tuple[Phase, Callable[[], dict[str, Any]]], ...] = ()
        self.note_errors: tuple[tuple[Phase, BaseException], ...] = ()
        #: What people said in its run that is to be planned for.
        self.said: tuple[Perception, ...] = ()
        self.is_journalled = False
        self.phase: Phase = "sense"
        self.perceptions: Sequence[Perception] = ()
        #: What hooks made these of; None: nobody was asked.
        self.noticed: tuple[Perception, ...] | None = None
        #: What the actor goes on with, as it was when the cycle sensed.
        self.resumable: Action | None = None
        self.action: Action | OpenPlan | None = None
        self.result: ActionResult | None = None
        self.reflection: Reflection | None = None
        #: The abilities as its reflector reads them; None: nobody did.
        self.abilities: ReadAbilities | None = None
        #: Called once when it has ended and what it came to is told to the journal.
        self.when_closed: tuple[Callable[[], object], ...] = ()
        #: Seconds of each phase, in their order; None where it was not reached.
        self.durations: list[float | None] = [None, None, None, None]
        self.faults: tuple[Fault, ...] = ()
        self.error: BaseException | None = None
        self.is_stepped = self.is_cut = self.is_skipped = False
        #: Whether its sense phase has begun.
        self.has_sensed = False
        #: Whether a hook denied it before that: nothing was taken, and nothing comes of it.
        self.is_refused = False
        #: The cycle that this is, whose id it has; None where it is a new one.
        self.resumed: Unfinished | None = None if taken is None else taken.cycle
        self.outcome: Outcome = "idle"

    @property
    def id(self) -> str:
        """Unique and sortable by the time the cycle was first spoken of."""
        if not self.known_id:
            self.known_id = self.clock.new_id() if self.resumed is None else self.resumed.cycle_id
        return self.known_id

    @property
    def started_at(self) -> datetime:
        """Return when it began, by the wall clock as it stands now."""
        return self.clock.now() - timedelta(seconds=self.clock.monotonic() - self.started)

    def conclude(self, now: float) -> Outcome:
        """Return the outcome of the cycle that ends now. Interrupted weighs more than failed, failed more than anything
        done."""
        self.duration = sum(self.phases.values()) if self.is_stepped else now - self.started
        if self.is_cut:
            self.outcome = "interrupted"
        elif self.faults:
            self.outcome = "failed"
        elif self.result is not None and self.action is not None:
            self.outcome = "degraded" if self.action.degraded else "acted"
        elif self.is_skipped:
            self.outcome = "skipped"
        return self.outcome

    @property
    def phases(self) -> dict[Phase, float]:
        """Return the seconds of the phases that have ended. From any thread."""
        return {phase: taken for phase, taken in zip(PHASES, self.durations, strict=True) if taken is not None}

    @property
    def next_look(self) -> float | None:
        """Return when to look again (seconds), as the reflection or else the plan proposed."""
        if self.reflection is not None and self.reflection.next_look is not None:
            return self.reflection.next_look
        return self.planned_look

    @property
    def planned_look(self) -> float | None:
        """Return when to look again (seconds), as the plan proposed."""
        return None if self.action is None else self.action.next_look

    @property
    def retry_after(self) -> float:
        """Seconds for which what failed asks to be left alone; 0 when it does not."""
        return max((asked_patience(fault) for fault in self.faults), default=0.0) if self.faults else 0.0

    @property
    def deferred(self) -> str:
        """Why its run could not be planned for, if that is for later."""
        return "" if self.action is None else self.action.deferred

    @property
    def written_action(self) -> Action | None:
        return self.action.action if isinstance(self.action, OpenPlan) else self.action

    @property
    def calls(self) -> dict[str, int]:
        """Return how many of its calls were ok, failed and were skipped."""
        return count_calls(() if self.result is None else self.result.results)

    def record(self, agent: str, duration: float, trace_id: str = "") -> CycleRecord:
        """The cycle as it goes on the tape; what each product carries of its past is said once."""
        action, result, reflection = self.written_action, self.result, self.reflection
        return CycleRecord(
            cycle_id=self.id,
            agent=agent,
            session=self.session,
            started_at=self.started_at,
            duration=duration,
            outcome=self.outcome,
            perceptions=tuple(self.perceptions),
            action=None if action is None else _with(action, "perceptions", ()),
            result=None if result is None else _with(result, "action", None),
            reflection=None if reflection is None else _with(reflection, "result", None),
            phases=cast(dict[str, float], self.phases),  # made for whoever asks
            faults=self.faults,
            notes=tuple([self._noted(*note) for note in self.notes]) if self.notes else (),
            calls=self.calls,
            trace_id=trace_id,
        )

    def _noted(self, phase: Phase, note: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """A note as it is kept: of one that is too large only the beginning of its parts."""
        try:
            given = note()
            if not isinstance(given, Mapping):
                raise ContractError(f"a note must be an object, found {shorten(given)}")
        except ENDS_PROCESS:
            raise
        except BaseException as error:
            self.note_errors = (*self.note_errors, (phase, error))
            return {"kind": "unreadable", "phase": phase, "error": f"{type(error).__name__}: {error!s:.500}"}
        found, is_cut = shortened(given, LARGEST_NOTE)
        if not isinstance(found, dict):
            return {"kind": "too large", "truncated": True}
        return {**found, "truncated": True} if is_cut else found


_copied = methodcaller("__copy__")  # what `copy.copy` comes to in the end


def _with(value: V, name: str, content: Any) -> V:
    """Return a copy with something else in one field, which needs no check; the value where it holds that already."""
    if getattr(value, name) is content:
        return value
    copied: V = _copied(value)
    force_setattr(copied, name, content)
    return copied


def instead(step: Step, value: Any, fault: Fault, error: BaseException, salvage: Salvage) -> ActionResult | None:
    """Return what stands in the place of a failed phase's product. Raises: Skip when nothing can."""
    if step.phase == "act" and step.on_error != "skip":
        return failed_result(value, fault, error, salvage)
    if step.phase == "reflect":
        return None
    raise Skip


#: Asks the actor what had been done of an action that was cut off.
Salvage = Callable[[Action], ActionResult | None]


def failed_result(action: Action | OpenPlan, fault: Fault, error: BaseException, salvage: Salvage) -> ActionResult:
    """The result of an act phase that broke: what is known to have been done, else every call failed."""
    if isinstance(action, OpenPlan):
        action.close()  # nobody takes further calls
        action = action.action
    known = error.product if isinstance(error, PhaseTimeoutError) else None
    if not isinstance(known, ActionResult):
        known = salvage(action)
    if known is not None:
        return replace(known, action=known.action or action, status="failed", fault=known.fault or fault)
    status: CallStatus = "timeout" if fault.kind == "timeout" else "failed"
    results = tuple(CallResult(call, status, fault=fault) for call in action.calls)
    return ActionResult(action, "failed", results, fault=fault)
