"""One cycle in progress, and what a failed phase leads to: another attempt, a replaced product, or a short cycle."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from msgspec import Struct

from spar.backoff import Backoff
from spar.checks import shorten
from spar.clock import Clock, Wake
from spar.data.reply import answer_of
from spar.decisions.finish import Consequence, Ending, Progress, consequence
from spar.errors import ENDS_PROCESS, ContractError, PhaseTimeoutError
from spar.events import CycleRecorded
from spar.facts import CycleClosed, PlanOutcome
from spar.loop.core import Core
from spar.protocols import RunContext
from spar.records.journal import Unfinished
from spar.types import (
    PHASES,
    Ability,
    Action,
    ActionResult,
    CallResult,
    CallStatus,
    CycleRecord,
    Experience,
    Fault,
    Outcome,
    Perception,
    Phase,
    Reflection,
    copy_with,
    count_calls,
    replace,
)

if TYPE_CHECKING:
    from spar.facts import WorkHandedOut
    from spar.loop.plan_stream import OpenPlan
    from spar.state.apply import SessionState

#: Key of the standing session, whose phase sense polls the sensors.
STANDING = "main"
#: Further attempts under the policy `retry` when `phases.<phase>.retries` is not set.
RETRIES = 3
#: Kinds of faults of the act phase that end the run: a hook denied it, or it made no progress.
BARRING = ("denied", "no_progress")
#: Longest wait (seconds) inside a cycle before the next attempt. A failure that needs a longer one is not tried again
#: in this cycle.
LONGEST_WAIT = 5.0


#: Names of the cycle's attributes that hold the product of each phase.
PRODUCTS: dict[Phase, str] = {"sense": "perceptions", "plan": "action", "act": "result", "reflect": "reflection"}
#: Policy after the last attempt under `retry` has failed: the defaults of `[agent.errors]`. `skip` ends the cycle;
#: `reflect` goes on to the phase reflect with a failed result; `continue` ends the cycle as usual.
AFTER_RETRIES: dict[Phase, str] = {"sense": "skip", "plan": "skip", "act": "reflect", "reflect": "continue"}


#: Most bytes of one note that a cycle keeps. A note is a JSON object that a module adds to the cycle's record.
LARGEST_NOTE = 1 << 20


#: The longest wait (seconds) of a run for a provider before it is planned again.
LONGEST_DEFERRAL = 300.0
#: Upper bound (seconds) of the wait that a failure may request.
LONGEST_REQUESTED_WAIT = 300.0


#: Phases whose failure leaves the perceptions of a cycle unprocessed, and the fault of one that was cut off.
_UNPROCESSED_AFTER = ("sense", "plan")
_CUT = Fault("interrupted", "its cycle was cut off", "loop")


class Skip(Exception):
    """Exception that leaves out the remaining phases of a cycle; the reason has been published already."""


def requested_wait(fault: Fault) -> float:
    """Return the seconds that a failure requests to wait, at most `LONGEST_REQUESTED_WAIT`; 0 for none.

    The request is the entry `retry_after` in the fault's detail, as from a server that limits requests.
    """
    seconds = fault.detail.get("retry_after")
    if not fault.retryable or isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
        return 0.0
    return min(float(seconds), LONGEST_REQUESTED_WAIT)


class Step(Struct, frozen=True):
    """Settings of one phase.

    Attributes: number: index of the phase in `PHASES`. name: name of the module. check_product: function `(product,
        name, input)` that returns the valid product or raises ContractError. durations: list to which the loop appends
        the seconds of the phase. timeout, grace: seconds. attempts: most attempts in one cycle, at least 1. on_error:
        policy for a failure: skip, reflect, continue, retry, pause or stop (the agent).
    """

    phase: Phase
    number: int
    name: str
    check_product: Callable[[Any, str, Any], Any]
    durations: list[float]
    timeout: float = float("inf")
    attempts: int = 1
    backoff: Backoff = Backoff()
    grace: float = 0.5
    on_error: str = "skip"

    @property
    def final_policy(self) -> str:
        """Return the policy for a failure that is not tried again."""
        return AFTER_RETRIES[self.phase] if self.on_error == "retry" else self.on_error

    def wait_before_retry(self, attempt: int, fault: Fault) -> float | None:
        """Return the seconds to wait before the next attempt of the phase; None: do not try again in this cycle."""
        if attempt >= self.attempts or not fault.retryable:
            return None
        wait = requested_wait(fault) or self.backoff.delay(attempt)
        return wait if wait <= LONGEST_WAIT else None


R = TypeVar("R")


class _FirstUse:
    """Id of a cycle, made at its first use. Then the cycle has it as an attribute, which costs no call any more."""

    def __get__(self, cycle: Cycle, kind: type[Cycle]) -> str:
        id = cycle.__dict__["id"] = cycle.clock.new_id() if cycle.resumed is None else cycle.resumed.cycle_id
        return id


class Cycle:
    """One cycle: the products, durations and faults of its phases, from the event `LoopStarted` to `LoopCompleted`.

    A busy agent makes a cycle every few microseconds, so the id and the wall time are computed only when they are read.
    Attributes: id: unique, and sortable by the time of its first use. interrupted: the interrupted work that this cycle
        continues; None for none. run: the run that the cycle works on; None without a message. is_stepped: whether a
        person runs the phases one by one. is_cut: whether the cycle was cancelled or broke off. is_skipped: whether a
        hook denied it.
    """

    __slots__ = ("__dict__", "abilities", "action", "clock", "configuration", "duration", "durations", "error",
                 "faults", "has_sensed", "held", "interrupted", "is_cut", "is_journalled", "is_refused", "is_skipped",
                 "is_stepped", "items", "new_messages", "note_errors", "notes", "noticed", "outcome",
                 "perceptions", "phase", "phase_began", "reflection", "result", "resumable", "resumed", "run",
                 "session", "started", "when_closed")  # fmt: skip

    id = _FirstUse()

    def __init__(self, session: str, run: RunContext | None, clock: Clock,
                 interrupted: WorkHandedOut | None = None) -> None:  # fmt: skip
        self.session, self.run, self.clock, self.interrupted = session, run, clock, interrupted
        self.started = self.phase_began = clock.monotonic()
        #: Duration in seconds. For a cycle of single steps: the sum of its phases, without the time between the steps.
        self.duration = 0.0
        #: Seconds for which it stood still by hand. They count towards no duration: `started` is later by them.
        self.held = 0.0
        self.configuration = ""  # the digest of the configuration that it is decided by
        #: Ids of the accepted work (messages, pushed perceptions) that this cycle deals with.
        self.items: tuple[str, ...] = ()
        #: Notes that modules add to the record of the cycle, with the phase of each; and the errors of reading these
        #: notes.
        self.notes: tuple[tuple[Phase, Callable[[], dict[str, Any]]], ...] = ()
        self.note_errors: tuple[tuple[Phase, BaseException], ...] = ()
        #: Messages of people that arrived in the cycle's run since its last plan.
        self.new_messages: tuple[Perception, ...] = ()
        self.is_journalled = False  # whether the journal has an entry of this cycle
        self.phase: Phase = "sense"
        self.perceptions: Sequence[Perception] = ()
        #: The sensed perceptions, as they were before the hooks at `before_plan`; None: no hook ran.
        self.noticed: tuple[Perception, ...] | None = None
        #: The action with calls of an earlier cycle that waited for people and can run now; None for none.
        self.resumable: Action | None = None
        self.action: Action | OpenPlan | None = None
        self.result: ActionResult | None = None
        self.reflection: Reflection | None = None
        #: The agent's abilities (how well each tool works) as the reflector reads them; None: it did not read any.
        self.abilities: Mapping[str, Ability] | None = None
        #: Functions that are called once the cycle has ended and its outcome is in the journal.
        self.when_closed: tuple[Callable[[], object], ...] = ()
        #: Seconds of each phase, in the order of `PHASES`; None for a phase that was not reached.
        self.durations: list[float | None] = [None, None, None, None]
        self.faults: tuple[Fault, ...] = ()
        self.error: BaseException | None = None
        self.is_stepped = self.is_cut = self.is_skipped = False
        #: Whether the phase sense has begun.
        self.has_sensed = False
        #: Whether a hook denied the cycle before the phase sense: the cycle took no message and counts for nothing.
        self.is_refused = False
        #: The journal's entry of the cycle that this one continues under the same id; None for a new cycle.
        self.resumed: Unfinished | None = None if interrupted is None else interrupted.cycle
        self.outcome: Outcome = "idle"

    @property
    def started_at(self) -> datetime:
        """Return the wall time when the cycle began, computed from the present wall time."""
        return self.clock.now() - timedelta(seconds=self.clock.monotonic() - self.started + self.held)

    def conclude(self, now: float) -> Outcome:
        """Set the duration and return the outcome of the cycle, which ends at `now` (monotonic seconds).

        `interrupted` takes precedence over `failed`, and `failed` over all others. `degraded` means that a fallback
        planner made the plan.
        """
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
        """Return the seconds of the phases that have ended. Safe from any thread."""
        return {phase: seconds for phase, seconds in zip(PHASES, self.durations, strict=True) if seconds is not None}

    @property
    def next_look(self) -> float | None:
        """Return the seconds until the next cycle as the reflection, or else the plan, proposed; None for no
        proposal."""
        if self.reflection is not None and self.reflection.next_look is not None:
            return self.reflection.next_look
        return self.planned_look

    @property
    def planned_look(self) -> float | None:
        """Return the seconds until the next cycle that the plan proposed; None for no proposal."""
        return None if self.action is None else self.action.next_look

    @property
    def retry_after(self) -> float:
        """Return the longest wait in seconds that a fault of this cycle requests; 0 for none."""
        return max((requested_wait(fault) for fault in self.faults), default=0.0) if self.faults else 0.0

    @property
    def deferred(self) -> str:
        """Return the planner's reason why it cannot decide now and the run has to wait; "" when it has decided."""
        return "" if self.action is None else self.action.deferred

    @property
    def written_action(self) -> Action | None:
        """Return the action, with the calls written so far if the plan is still open."""
        action = self.action
        return action if action is None or isinstance(action, Action) else action.action

    @property
    def progress(self) -> Progress:
        """Return how far it came."""
        if self.resumed is not None and self.resumed.action is not None and self.phase != "sense":
            return "acting"  # an earlier cycle had planned
        if self.result is None:
            is_silent = self.phase == "act"  # its actor does not report the results of interrupted calls
            return "acting" if is_silent else "noticing" if self.phase == "sense" else "planning"
        if not self.is_cut or any(result.attempts for result in self.result.results):
            return "acting"  # some call was made, perhaps of an incomplete plan
        return "planning"

    @property
    def failure(self) -> Fault | None:
        """Return the fault because of which its perceptions were not processed; None if they were."""
        if self.is_cut:
            return _CUT
        return next((fault for fault in self.faults if fault.phase in _UNPROCESSED_AFTER), None)

    @property
    def unfinished(self) -> Unfinished:
        """Return the journal entry from which the next process resumes it. This interrupted start counts as no
        attempt."""
        if self.resumed is not None:
            return self.resumed
        run_id = self.run.id if self.run is not None else None
        return Unfinished(self.id, self.session, tuple(self.perceptions), self.items, run_id, attempts=0,
                          opened_at=self.started_at, is_stepped=self.is_stepped)  # fmt: skip

    def lived(self) -> Sequence[Experience]:
        """Return its experiences. If its reflection failed, return one that records the calls and how they ended."""
        action = self.written_action
        if self.reflection is not None:
            return self.reflection.experiences
        if self.result is None or action is None:
            return ()
        situation = "; ".join(perception.text[:200] for perception in action.perceptions[:3])
        calls = ", ".join(call.tool for call in action.calls[:20])
        cause = next((fault.message for fault in self.faults), "")
        return (Experience(situation, calls, self.result.status, session=self.session, cause=cause, origin=self.id),)

    def guarded(
        self, report: Callable[[Cycle, BaseException], object], work: Callable[..., R], *arguments: Any
    ) -> R | None:
        """Return the result of a step after the cycle's end. If it raises, report that and return None."""
        try:
            return work(*arguments)
        except ENDS_PROCESS:
            raise
        except BaseException as error:
            report(self, error)
            return None

    @property
    def calls(self) -> dict[str, int]:
        """Return how many calls of the cycle ended as `ok`, `failed` and `skipped`."""
        return count_calls(() if self.result is None else self.result.results)

    def recorded(
        self, core: Core, duration: float, report: Callable[[Cycle, Phase, BaseException], object]
    ) -> CycleRecord:
        """Return and publish the record of the cycle. A note that fails is reported as an error of its phase."""
        record = self.record(core.name, duration, "" if core.traces is None else core.traces.trace(self.id))
        if core.events.wanted[CycleRecorded]:
            core.events.publish(CycleRecorded(record=record, run_id="" if self.run is None else self.run.id))
        for phase, error in self.note_errors:
            report(self, phase, error)
        return record

    def record(self, agent: str, duration: float, trace_id: str = "") -> CycleRecord:
        """Return the record of this cycle. A product that another product contains is stored once."""
        action, result, reflection = self.written_action, self.result, self.reflection
        return CycleRecord(
            cycle_id=self.id,
            agent=agent,
            session=self.session,
            started_at=self.started_at,
            duration=duration,
            outcome=self.outcome,
            perceptions=tuple(self.perceptions),
            phases=cast(dict[str, float], self.phases),  # a new dict
            faults=self.faults,
            notes=tuple([self._read_note(*note) for note in self.notes]) if self.notes else (),
            calls=self.calls,
            action=None if action is None else copy_with(action, perceptions=()),
            result=None if result is None else copy_with(result, action=None),
            reflection=None if reflection is None else copy_with(reflection, result=None),
            trace_id=trace_id,
            configuration=self.configuration,
        )

    def _read_note(self, phase: Phase, note: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the content of a note, cut if it is too large; an error note when the module's function fails."""
        try:
            content = note()
            if not isinstance(content, Mapping):
                raise ContractError(f"a note must be an object, found {shorten(content)}")
        except ENDS_PROCESS:
            raise
        except BaseException as error:
            self.note_errors = (*self.note_errors, (phase, error))
            return {"kind": "unreadable", "phase": phase, "error": f"{type(error).__name__}: {error!s:.500}"}
        from spar.data.json_safe import shortened  # few modules write notes

        shortened_content, is_cut = shortened(content, LARGEST_NOTE)
        if not isinstance(shortened_content, dict):
            return {"kind": "too large", "truncated": True}
        return {**shortened_content, "truncated": True} if is_cut else shortened_content


def replace_product(step: Step, value: Any, fault: Fault, error: BaseException,
                    salvage: Salvage) -> ActionResult | None:  # fmt: skip
    """Return the replacement of a failed phase's product. Raises: Skip when the remaining phases are left out.

    Args: value: the input of the phase; salvage: asks the actor for the results that it has.
    """
    if step.phase == "act" and step.on_error != "skip":
        return failed_result(value, fault, error, salvage)
    if step.phase == "reflect":
        return None
    raise Skip


#: Function that asks the actor for the results of an action that was cut off.
Salvage = Callable[[Action], ActionResult | None]


def failed_result(action: Action | OpenPlan, fault: Fault, error: BaseException, salvage: Salvage) -> ActionResult:
    """Return the result of a failed act phase: the results that the actor has, or else all calls as failed."""
    if not isinstance(action, Action):
        action.close()  # nobody reads further calls
        action = action.action
    salvaged = error.product if isinstance(error, PhaseTimeoutError) else None
    if not isinstance(salvaged, ActionResult):
        salvaged = salvage(action)
    if salvaged is not None:
        return replace(salvaged, action=salvaged.action or action, status="failed", fault=salvaged.fault or fault)
    status: CallStatus = "timeout" if fault.kind == "timeout" else "failed"
    results = tuple(CallResult(call, status, fault=fault) for call in action.calls)
    return ActionResult(action, "failed", results, fault=fault)


def consequence_of(cycle: Cycle, stop_reason: str, *, is_stopped: bool) -> Consequence:
    """Return what becomes of the work of a cycle.

    Args: stop_reason: why it was cut off: "stop" if the agent stops, "" if it was not; is_stopped: its task was
        cancelled.
    """
    if cycle.is_cut:
        is_stopped &= not cycle.is_stepped
        ending: Ending = "called off" if stop_reason not in ("", "stop") else "stopped" if is_stopped else "broken"
    else:
        ending = "well" if cycle.failure is None else "failed"
    piece = cycle.interrupted
    usual = consequence(cycle.progress, ending, "" if piece is None else "item" if piece.cycle is None else "cycle")
    return "done" if cycle.is_stepped and usual == "later" else usual


def closed(cycle: Cycle, run_id: str, stop_reason: str) -> CycleClosed:
    """Return the fact that a cycle ended, with what it brought to its run.

    Args: stop_reason: why it was cut off: "stop" if the agent stops, "" if it was not.
    """
    result, action = cycle.result, cycle.action
    plan, error, is_final = _plan_of(cycle, stop_reason)
    waits = min(cycle.next_look, LONGEST_DEFERRAL) if cycle.deferred and cycle.next_look else 0.0
    requests = int(plan == "made" or (plan == "deferred" and not cycle.planned_look))
    calls = 0 if result is None else sum([call.attempts > 0 for call in result.results])
    answer, answers = None, False
    if plan == "made":
        answer = answer_of(action, result) if isinstance(action, Action) else None
        answers = not isinstance(action, Action) or answer is not None or not action.calls
    return CycleClosed(
        session=cycle.session, cycle=cycle.id, run=run_id, calls=calls,
        has_failed=result is not None and result.status in ("partial", "failed"), plan=plan, error=error,
        is_final=is_final, waits=waits, answers=answers, output=answer, requests=requests,
    )  # fmt: skip


def _plan_of(cycle: Cycle, stop_reason: str) -> tuple[PlanOutcome, str, bool]:
    """Return what became of the plan of a cycle as far as its run is concerned, why, and whether that is final."""
    if cycle.is_cut:
        return "cut", "" if stop_reason == "stop" else stop_reason, False
    if cycle.result is not None and (fault := cycle.result.fault) is not None and fault.kind in BARRING:
        return "barred", fault.message, False
    failed = {fault.phase: fault for fault in cycle.faults} if cycle.faults else {}
    if (failure := failed.get("plan")) is not None:
        return "failed", failure.message, not failure.retryable
    if cycle.is_skipped:
        return "refused", "a hook refused it", False
    has_no_plan = cycle.is_stepped and cycle.action is None and cycle.durations[1] is None
    if has_no_plan or "sense" in failed:  # the next cycle gets the messages
        return "none", "", False
    return ("deferred", cycle.deferred, False) if cycle.deferred else ("made", "", False)


class WorkingSession(Protocol):
    """Session as the parts below it use it. Times are monotonic seconds; `deadline` is that of the current phase.

    `stands` says where it stands still by hand; empty if it does not. `is_in_iteration` says that its loop is between
    the start of a cycle and the next wait.
    """

    key: str
    state: SessionState
    wake: Wake
    cycle: Cycle | None
    is_standing: bool
    is_in_iteration: bool
    last_completed: float
    rests_until: float | None
    stands: tuple[str, ...]

    @property
    def deadline(self) -> float: ...
    @property
    def has_work(self) -> bool: ...
    @property
    def has_suspects_to_try(self) -> bool: ...
    @property
    def is_mid_cycle(self) -> bool:
        """Return whether it is in a cycle, or in the work right after a cycle, and its task is alive."""

    def resume_with(self, fact: WorkHandedOut) -> object: ...
    def push(self, perception: Perception) -> object: ...
