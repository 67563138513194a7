"""The rules of approvals: which changes are legal, what a decision needs, when a question is a new one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from acting.approvals.fingerprint import BoundCall
from spar.errors import SparError
from spar.records.approvals import (
    TRANSITIONS,
    Approval,
    ApprovalStatus,
    DecidedError,
    Decision,
    DigestMismatchError,
)
from spar.types import replace

OUTCOMES: Final[dict[Decision, ApprovalStatus]] = {
    "approve": "approved",
    "edit": "approved",
    "replace": "approved",
    "deny": "denied",
}
_NEEDS: Final[dict[Decision, str]] = {"edit": "params", "replace": "call"}
KEPT: Final = 1000  # answered approvals that can still be looked at
_RUNS: Final = 10  # times what may wait of one run may wait in all


class RefusedError(SparError):
    """The question cannot be asked; the message says why."""


def moved(row: Approval, status: ApprovalStatus, **changes: Any) -> Approval:
    """The row in another status. Raises: DecidedError for a change that is not legal (`TRANSITIONS`)."""
    if status not in TRANSITIONS[row.status]:
        raise DecidedError(f"approval {row.id!r} is {row.status} and cannot become {status}")
    return replace(row, status=status, **changes)


def standing(row: Approval) -> str:
    """Return the state of a row that takes no decision any more, in words."""
    if row.status == "pending":
        return "expired"
    return f"{row.status}, decided by {row.decided_by}" if row.decided_by else row.status


def check_shape(decision: str, params: Any, call: Any, grant_for: float | None) -> None:
    """Raises: ValueError when a decision comes with what does not belong to it, or without what does."""
    if decision not in OUTCOMES:
        raise ValueError(f"the decision is {decision!r}, expected {', '.join(OUTCOMES)}")
    for name, value in (("params", params), ("call", call)):
        is_needed = _NEEDS.get(decision) == name
        if is_needed and not isinstance(value, Mapping):
            raise ValueError(f"{decision!r} needs {name}, an object, found {type(value).__name__}")
        if not is_needed and value is not None:
            raise ValueError(f"{name} does not go with {decision!r}")
    if grant_for is not None and decision != "approve":
        raise ValueError(f"a grant goes with 'approve', not with {decision!r}")


def demand_pending(row: Approval, digest: str, now: datetime) -> None:
    """Raises: DecidedError for a row that takes no decision now; DigestMismatchError for one of another call."""
    if row.status != "pending" or now >= row.expires_at:
        raise DecidedError(f"approval {row.id!r} takes no decision any more: it is {standing(row)}")
    if row.digest != digest:
        raise DigestMismatchError(f"approval {row.id!r} is about another call: its digest is {row.digest[:12]}…")


def asked_already(
    rows: Collection[Approval], bound_call: BoundCall, digest: str, session: str, cycle_id: str, now: datetime
) -> tuple[Approval, bool] | None:
    """Return the question that is about this call now, and whether it is this cycle's own; None if there is none."""
    if cycle_id:
        # A cycle that was cut off and goes on owns its questions still, and what was answered before it got here.
        for row in rows:
            is_own = (row.cycle_id, row.call.id) == (cycle_id, bound_call.call.id)
            if is_own and _speaks_of(row, bound_call, digest, now):
                return row, True
    for row in rows:
        if row.status != "pending" or row.session != session:
            continue
        # Another call of the same plan, be it the same in all but its id, is answered by itself.
        is_own = row.call.id == bound_call.call.id
        if row.digest == digest and now < row.expires_at and (is_own or row.cycle_id != cycle_id):
            return row, False
    return None


def demand_room(rows: Iterable[Approval], session: str, run_id: str | None, most: int) -> None:
    """Raises: RefusedError when as many calls of this run, or in all, wait for an answer as may."""
    pending = [row for row in rows if row.status == "pending"]
    if len(pending) >= _RUNS * most:
        raise RefusedError(f"{len(pending)} calls wait for an approval already, as many as may in all")
    waiting = sum(row.session == session and row.run_id == run_id for row in pending)
    if waiting >= most:
        whose = f"run {run_id!r}" if run_id else f"session {session!r}"
        raise RefusedError(f"{waiting} calls of {whose} wait for an approval already, as many as may")


def surplus(rows: Iterable[Approval]) -> list[Approval]:
    """Return the oldest rows that are settled, beyond those that are kept."""
    settled = sorted((row for row in rows if not TRANSITIONS[row.status]), key=lambda row: row.asked_at)
    return settled[: max(0, len(settled) - KEPT)]


def _speaks_of(row: Approval, bound_call: BoundCall, digest: str, now: datetime) -> bool:
    """Return whether a question about a call of this id is about what it would do now, and still counts."""
    is_same = row.digest == digest
    if row.original is not None:  # the digest is that of the call which people put in its place
        asked = row.original
        is_same = (asked.tool, asked.params) == (bound_call.call.tool, bound_call.call.params)
    is_in_time = row.status in ("pending", "approved") and now < row.expires_at
    return is_same and (is_in_time or row.status == "denied")
