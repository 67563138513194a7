"""Approvals: people's answers to calls that ask for one. Their shape, their legal changes, and who is asked.

An approval is a durable row about exactly one call: what would run is bound by `digest`, it is used once, and what
nobody answers expires to a denial. A grant is an answer that stays, for calls of one shape and for a time. Who keeps
the rows is the acting phase's affair.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, Protocol

from msgspec import Struct

from spar.errors import SparError
from spar.types import Call, Trust

ApprovalStatus = Literal["pending", "approved", "denied", "expired", "used", "void"]

#: What may become of an approval. `void`: the work that asked is gone, or what would run is not what was shown.
TRANSITIONS: dict[ApprovalStatus, tuple[ApprovalStatus, ...]] = {
    "pending": ("approved", "denied", "expired", "void"),
    "approved": ("used", "expired", "void"),
    "denied": (),
    "expired": (),
    "used": (),
    "void": (),
}

#: Programs that run nothing but themselves and write nothing but their output: those of which a call may be granted for
#: a time where the settings do not say others.
GRANTABLE = (
    *("cat", "date", "df", "du", "free", "head", "hostname", "id", "ls", "sort", "stat", "tail", "uname", "uptime"),
    *("wc", "whoami"),
)

Decision = Literal["approve", "deny", "edit", "replace"]


class Approval(Struct, frozen=True):
    """One question to people. `call` has its references resolved; `why` says what made it ask; times are UTC.

    `is_parked` says that the cycle which asked has gone on without an answer: the call goes on in the cycle after it.
    `original` is the call as it was first shown when somebody edited or replaced it.
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
    """Calls of `tool` with exactly these parameters need no answer until then.

    `session` "" is every session. `uses` counts the calls that it let through. `digest` binds it to the very call
    that it was given for: one whose schema, effect, rules or files have changed is asked about again.
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
    """The decision is about another call than the one that waits."""


class DecidedError(SparError):
    """The approval takes no decision any more: it was decided, used, or has expired."""


class Approver(Protocol):
    """Port of approvals; an act module has one as `approvals` if it can wait for people."""

    async def list(self, status: str | None = "pending") -> Sequence[Approval]:
        """The newest first; None: of any status."""
        ...

    async def get(self, id: str) -> Approval:
        """The approval with this id or unique beginning of one. Raises: LookupError."""
        ...

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
        """Take a person's decision; durable when this returns.

        `params` goes with `edit`, `call` (a wire call) with `replace`; `grant_for` (seconds, with `approve`) also
        grants further calls with just these parameters, in this session only or in all.
        Raises: LookupError, DigestMismatchError, DecidedError, ValueError for parameters that the tool does not take
        or a grant that cannot be given.
        """
        ...

    async def grants(self) -> Sequence[Grant]:
        """The grants in force."""
        ...

    async def revoke(self, id: str) -> Grant:
        """End a grant. Raises: LookupError."""
        ...
