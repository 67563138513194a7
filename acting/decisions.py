"""What people may say to a question, and what becomes of its row. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from spar.records.approvals import TRANSITIONS, Approval, ApprovalStatus, DecidedError, Decision
from spar.types import replace

OUTCOMES: Final[dict[Decision, ApprovalStatus]] = {
    "approve": "approved",
    "edit": "approved",
    "replace": "approved",
    "deny": "denied",
}
_NEEDS: Final[dict[Decision, str]] = {"edit": "params", "replace": "call"}


def moved(row: Approval, status: ApprovalStatus, **changes: Any) -> Approval:
    """The row in another status. Raises: DecidedError for a change that is not legal (`TRANSITIONS`)."""
    if status not in TRANSITIONS[row.status]:
        raise DecidedError(f"approval {row.id!r} is {row.status} and cannot become {status}")
    return replace(row, status=status, **changes)


def standing(row: Approval) -> str:
    """How a row that takes no decision any more stands, in words."""
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
