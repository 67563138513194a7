"""Events of calls, and of the approvals that they wait for."""

from __future__ import annotations

from typing import Any

from spar.events.event import Event
from spar.types import Call, CallResult
from spar.types.slotted import slotted


class CallEvent(Event, gc=False):
    """Base of the events about one call."""

    call: Call
    cycle_id: str = ""
    run_id: str | None = None


@slotted
class CallProposed(CallEvent):
    """A plan contains this call."""


@slotted
class CallStarted(CallEvent):
    """An attempt at a call has begun; `attempt` counts from 1."""

    attempt: int = 1


class CallProgressed(CallEvent):
    """A tool has reported the progress of its call."""

    progress: Any = None


@slotted
class CallCompleted(CallEvent, kw_only=True):
    """A call has ended well."""

    result: CallResult


class CallFailed(CallEvent, kw_only=True):
    """A call has failed, timed out, or is in doubt; `result` has the status and the fault."""

    result: CallResult


class CallSkipped(CallEvent, kw_only=True):
    """A call will not run: it was skipped, denied or cancelled; `result` has the status and the reason."""

    result: CallResult


class CallInDoubt(CallEvent):
    """It is unknown whether this call had its effect; `doubt` is its id for `spar calls resolve`."""

    doubt: str = ""
    why: str = ""


class DoubtResolved(CallEvent):
    """A person has answered a call in doubt: `done`, `failed` or `again`."""

    doubt: str = ""
    answer: str = ""
    by: str = ""


class ApprovalRequested(CallEvent):
    """A call waits for the decision of a person."""


class ApprovalResolved(CallEvent):
    """A person, a rule or a grant has decided about a call."""

    decision: str = ""
    reason: str = ""


class ApprovalExpired(CallEvent):
    """Nobody has decided about a call in time; it is denied."""


class WriteConflict(Event):
    """Two calls wrote to one path without an order between them."""

    path: str
    calls: tuple[str, ...]
