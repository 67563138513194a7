"""Events of a cycle and its phases."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import field

from spar.events.event import Event
from spar.types import CycleRecord, Fault, Phase


class LoopStarted(Event):
    """A cycle has begun; all events of the cycle carry its `cycle_id`."""

    cycle_id: str
    started_at: datetime
    session: str = "main"


class PhaseStarted(Event):
    """A phase has begun; `input` is its argument."""

    cycle_id: str
    phase: Phase
    input: Any = None
    session: str = "main"


class PhaseCompleted(Event):
    """A phase has ended well; `output` is the value that it returned, `duration` its seconds."""

    cycle_id: str
    phase: Phase
    output: Any = None
    duration: float = 0.0
    session: str = "main"


class LoopCompleted(Event):
    """A cycle has ended. `outcome` is `acted idle skipped degraded failed interrupted`; `calls` counts its calls that
    were `ok`, `failed` and `skipped`. `deferred` is the reason if its plan was put off; then nothing was decided."""

    cycle_id: str
    completed_at: datetime
    duration: float
    outcome: str
    session: str = "main"
    calls: dict[str, int] = field(default_factory=dict)
    deferred: str = ""


class CycleRecorded(Event):
    """A cycle with a result has ended; `record` is all that is stored of it."""

    record: CycleRecord
    run_id: str = ""


class ErrorOccurred(Event):
    """A phase has failed. `error` is the failure as data, `exception` the exception itself, `policy` the consequence.
    `session` is "" for an error that belongs to no session."""

    cycle_id: str
    phase: str
    error: Fault
    policy: str = ""
    exception: BaseException | None = None
    session: str = ""

    @classmethod
    def of(cls, error: BaseException, part: str, phase: str, policy: str, cycle_id: str = "") -> ErrorOccurred:
        """Return the event of an exception in a part that belongs to no session."""
        fault = Fault.of(error, part=part, phase=phase)
        return cls(cycle_id=cycle_id, phase=phase, error=fault, policy=policy, exception=error)


class BreakpointReached(Event):
    """A session stands at a point of its cycle: `where` says at which, `name` is that of the breakpoint ("": a step),
    `stop` is the id of the stop for whoever attaches."""

    name: str
    stop: str
    where: str
    session: str
    cycle_id: str
    run_id: str | None = None


class BreakpointLeft(Event):
    """A session that stood at a point of its cycle goes on; `by` let it go on, "" for nobody: its lease was over, its
    run or the agent was ended."""

    stop: str
    where: str
    session: str
    cycle_id: str
    by: str = ""
    run_id: str | None = None


class BreakpointEnded(Event):
    """A breakpoint has ended by itself, or its condition has failed (`state` is `ended` or `failed`); the `sessions`
    that stood at it go on. `name` is "" for a step."""

    name: str
    state: str
    reason: str
    sessions: tuple[str, ...] = ()


LoopPhaseStarted = PhaseStarted
LoopPhaseCompleted = PhaseCompleted
