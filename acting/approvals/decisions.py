"""Rules of approvals: the legal changes, the contents of a decision, and repeated questions. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from acting.approvals.fingerprint import BoundCall
from acting.tooling.context import Scope
from spar.errors import SparError
from spar.records.approvals import TRANSITIONS, Approval, ApprovalStatus, DecidedError, Decision, DigestMismatchError
from spar.types import replace

OUTCOMES: Final[dict[Decision, ApprovalStatus]] = {
    "approve": "approved",
    "edit": "approved",
    "replace": "approved",
    "deny": "denied",
}
_NEEDS: Final[dict[Decision, str]] = {"edit": "params", "replace": "call"}
KEPT: Final = 1000  # settled approvals that stay readable
_RUNS: Final = 10  # the limit of all questions is so many times the limit of one run


class RefusedError(SparError):
    """The question cannot be asked; the message says why."""


def moved(row: Approval, status: ApprovalStatus, **changes: Any) -> Approval:
    """Return the row in another status. Raises: DecidedError for a change that is not legal (`TRANSITIONS`)."""
    if status not in TRANSITIONS[row.status]:
        raise DecidedError(f"approval {row.id!r} is {row.status} and cannot become {status}")
    return replace(row, status=status, **changes)


def standing(row: Approval) -> str:
    """Return the state of a row that takes no decision any more, in words."""
    if row.status == "pending":
        return "expired"
    return f"{row.status}, decided by {row.decided_by}" if row.decided_by else row.status


def check_shape(decision: str, params: Any, call: Any, grant_for: float | None) -> None:
    """Check the fields of a decision. Raises: ValueError for a missing field, or one that does not belong to it."""
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
    """Check that a row takes a decision. Raises: DecidedError if not; DigestMismatchError for another call."""
    if row.status != "pending" or now >= row.expires_at:
        raise DecidedError(f"approval {row.id!r} takes no decision any more: it is {standing(row)}")
    if row.digest != digest:
        raise DigestMismatchError(f"approval {row.id!r} is about another call: its digest is {row.digest[:12]}…")


def asked_already(rows: Collection[Approval], bound_call: BoundCall, digest: str, scope: Scope,
                  now: datetime) -> tuple[Approval, bool] | None:  # fmt: skip
    """Return the question that exists for a call, and whether this cycle asked it; None if there is none."""
    cycle_id = scope.cycle_id
    if cycle_id:
        # An interrupted cycle that goes on still owns its questions, also those that have an answer by now.
        for row in rows:
            is_own = (row.cycle_id, row.call.id) == (cycle_id, bound_call.call.id)
            if is_own and _is_about(row, bound_call, digest, now):
                return row, True
    for row in rows:
        if row.status != "pending" or row.session != scope.session:
            continue
        # Another call of the same plan gets a question of its own, even if it differs only in its id.
        is_own = row.call.id == bound_call.call.id
        if row.digest == digest and now < row.expires_at and (is_own or row.cycle_id != cycle_id):
            return row, False
    return None


def demand_room(rows: Iterable[Approval], scope: Scope, most: int) -> None:
    """Check the limits of waiting questions, of this run and in all. Raises: RefusedError when one is reached."""
    pending = [row for row in rows if row.status == "pending"]
    if len(pending) >= _RUNS * most:
        raise RefusedError(f"{len(pending)} calls wait for an approval already, as many as may in all")
    session, run_id = scope.session, scope.run_id
    waiting = sum(row.session == session and row.run_id == run_id for row in pending)
    if waiting >= most:
        whose = f"run {run_id!r}" if run_id else f"session {session!r}"
        raise RefusedError(f"{waiting} calls of {whose} wait for an approval already, as many as may")


def surplus(rows: Iterable[Approval]) -> list[Approval]:
    """Return the oldest settled rows beyond the `KEPT` latest ones."""
    settled = sorted((row for row in rows if not TRANSITIONS[row.status]), key=lambda row: row.asked_at)
    return settled[: max(0, len(settled) - KEPT)]


def _is_about(row: Approval, bound_call: BoundCall, digest: str, now: datetime) -> bool:
    """Return whether a question is about a call as it would run now, and still counts."""
    is_same = row.digest == digest
    if row.original is not None:  # the digest is that of the call by which people replaced it
        original = row.original
        is_same = (original.tool, original.params) == (bound_call.call.tool, bound_call.call.params)
    is_in_time = row.status in ("pending", "approved") and now < row.expires_at
    return is_same and (is_in_time or row.status == "denied")
