"""Approvals: people's answers to calls that ask for one. Their values, their legal transitions, and the approver's
port.

An approval is a durable row about exactly one call: `digest` identifies the call that would run, the approval is used
once, and without an answer it expires to a denial. A grant is a lasting answer, for calls of one shape and for a time.
The acting phase stores the rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Literal, Protocol, get_args

from msgspec import Struct

from spar.errors import SparError
from spar.types import Call, Trust

ApprovalStatus = Literal["pending", "approved", "denied", "expired", "used", "void"]

#: Legal transitions of an approval. `void`: the work that asked is gone, or the call differs from the one that was
#: shown.
TRANSITIONS: dict[ApprovalStatus, tuple[ApprovalStatus, ...]] = {
    "pending": ("approved", "denied", "expired", "void"),
    "approved": ("used", "expired", "void"),
    "denied": (),
    "expired": (),
    "used": (),
    "void": (),
}

Decision = Literal["approve", "deny", "edit", "replace"]
#: The only decision that a field of a decision goes with.
GOES_WITH: Final[dict[str, Decision]] = {
    "params": "edit",
    "call": "replace",
    "grant_for": "approve",
    "grant_session": "approve",
}


class Approval(Struct, frozen=True):
    """Question to people. `call` has its references resolved; `why` is the reason for asking; times are UTC.

    `is_parked` says that the asking cycle went on without an answer: the call continues in a cycle after the answer.
    `original` is the call as it was first shown if somebody edited or replaced it.
    """

    id: str
    call: Call
    digest: str
    asked_at: datetime
    expires_at: datetime
    why: str = ""
    effect: str = "once"
    trust: Trust = "trusted"
    agent: str = ""
    session: str = "main"
    cycle_id: str = ""
    run_id: str | None = None
    status: ApprovalStatus = "pending"
    is_parked: bool = False
    decided_at: datetime | None = None
    decided_by: str = ""
    reason: str = ""
    grant: str = ""
    original: Call | None = None


class Grant(Struct, frozen=True):
    """Permission for calls of `tool` with exactly these parameters, which need no answer until `expires_at`.

    `session` "" is every session. `uses` counts the calls that it allowed. `digest` identifies the very call that it
    was given for: after a change of its schema, effect, rules or files people are asked again.
    """

    id: str
    tool: str
    params: dict[str, Any]
    expires_at: datetime
    session: str = ""
    granted_by: str = ""
    granted_at: datetime | None = None
    uses: int = 0
    digest: str = ""


class DigestMismatchError(SparError):
    """Error of a decision about another call than the one that waits."""


class DecidedError(SparError):
    """Error of a decision that comes too late: the approval was decided, used, or has expired."""


def check_decision(decision: str, **fields: Any) -> None:
    """Check the fields of a decision. Raises: ValueError for one that is missing, or that does not go with it."""
    if decision not in get_args(Decision):
        raise ValueError(f"the decision is {decision!r}, expected {', '.join(get_args(Decision))}")
    for name, value in fields.items():
        only = GOES_WITH[name]
        if value is not None and decision != only:
            raise ValueError(f"{name!r} goes with {only!r} only, the decision is {decision!r}")
        if decision == only and name in ("params", "call") and value is None:
            raise ValueError(f"{decision!r} needs {name!r}: what is to run instead")


class Approver(Protocol):
    """Port of approvals; an act module that can wait for people has one as `approvals`."""

    async def list(self, status: str | None = "pending") -> Sequence[Approval]:
        """Return the approvals of a status, the newest first; None: of any status."""

    async def get(self, id: str) -> Approval:
        """Return the approval with this id or unique beginning of an id. Raises: LookupError."""

    async def decide(
        self,
        id: str,
        digest: str,
        decision: Decision,
        *,
        by: str,
        reason: str = "",
        params: Mapping[str, Any] | None = None,
        call: Mapping[str, Any] | None = None,
        grant_for: float | None = None,
        grant_session: bool = True,
    ) -> Approval:
        """Store a person's decision; durable when this returns.

        `params` goes with `edit`, `call` (a wire call) with `replace`; `grant_for` (seconds, with `approve`) also
        grants further calls with exactly these parameters, in this session only or in all sessions.
        Raises: LookupError, DigestMismatchError, DecidedError, ValueError for parameters that the tool refuses or a
            grant that cannot be given.
        """

    async def grants(self) -> Sequence[Grant]:
        """Return the present grants."""

    async def revoke(self, id: str) -> Grant:
        """End a grant. Raises: LookupError."""
