"""Approvals for a program that runs the agent in its own process.

The command line and HTTP decide the same rows; the first decision counts. A decision here concerns the call as it is
stored now. An interface that shows the call to a person first decides by the digest of the shown row
(`spar.records.approvals.Approver`).
"""

from __future__ import annotations

import builtins
from collections.abc import Generator, Mapping
from typing import Any

from spar.journal.recovery import Recovery
from spar.loop.core import Core
from spar.loop.setup import Setup
from spar.ports.any_part import offers
from spar.ports.phases import ListsAtOnce
from spar.records.approvals import Approval, Decision
from spar.records.audit import AuditDraft, auditing
from spar.review.pending_approvals import approver_of
from spar.types import Call

#: The name of the decider if the program gives none.
PROGRAM = "program"


class Listed(builtins.list[Approval]):
    """List of approvals. Awaiting it returns the same list, for code that also reads approvals stored elsewhere."""

    def __await__(self) -> Generator[None, None, Listed]:
        return self
        yield


class AgentApprovals:
    """Approvals of one agent: `agent.approvals`."""

    __slots__ = ("_core", "_recovery", "_setup")

    def __init__(self, core: Core, setup: Setup, recovery: Recovery) -> None:
        self._core, self._setup, self._recovery = core, setup, recovery

    def list(self, status: str | None = "pending") -> Listed:
        """Return the approvals of this status, the newest first; None: of any status.

        Raises: NotReadyError before the agent was started; LookupError if its act module keeps no approvals.
        """
        return Listed(self._approver().rows(status))

    async def decide(
        self,
        id: str,
        decision: Decision,
        *,
        params: Mapping[str, Any] | None = None,
        call: Call | Mapping[str, Any] | None = None,
        reason: str = "",
        by: str = "",
    ) -> Approval:
        """Decide about a waiting call. On return the decision is durable, and the call's session continues.

        Args: id: the approval's id, or a unique prefix; params: with "edit", all parameters of the call to run; call:
        with "replace", the call to run instead; by: who decided, stored with the row.
        Raises: LookupError for an unknown id, DecidedError if it was decided already, ValueError if a value does not
        fit the decision or the tool, NotReadyError before the agent was started, TransientError if it cannot be stored
        now.
        """
        approver = self._approver()
        row = await approver.get(id)
        wire = call.to_wire() if isinstance(call, Call) else call
        draft = AuditDraft(by or PROGRAM, "program", f"approval.{decision}", row.id, agent=self._core.name,
                           rows=("approval",))  # fmt: skip
        with auditing(draft):
            decided: Approval = await approver.decide(
                row.id, row.digest, decision, by=by or PROGRAM, reason=reason, params=params, call=wire
            )
        if (owner := self._core.owner_of(row.session)) is not None:
            await owner.answered(row.session)
        return decided

    def _approver(self) -> Any:
        self._recovery.demand_ready("answer approvals")
        approver = approver_of(self._setup)
        if approver is None or not offers(approver, ListsAtOnce):
            raise LookupError(
                f"agent {self._core.name!r} keeps no approvals: its act module is not the built-in executor"
            )
        return approver
