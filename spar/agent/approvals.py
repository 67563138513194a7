"""Approvals as a program answers them that has the agent in its own process.

The same rows that people answer on the command line and over HTTP: the first answer counts wherever it is given.
A decision here is about the call as it is kept now; whoever shows it to a person first decides by the row's digest at
the doors (`spar.records.approvals.Approver`).
"""

from __future__ import annotations

import builtins
from collections.abc import Generator, Mapping
from typing import Any

from spar.journal.recovery import Recovery
from spar.loop.setup import Setup
from spar.ports.optional import ListsAtOnce, offers
from spar.records.approvals import Approval, Decision
from spar.records.audit import AuditDraft, auditing
from spar.review.pending_approvals import approver_of
from spar.types import Call

#: Who has decided where the program does not say it.
PROGRAM = "program"


class Listed(builtins.list[Approval]):
    """A list of approvals; awaiting it is the same list, as for those who keep them elsewhere."""

    def __await__(self) -> Generator[None, None, Listed]:
        return self
        yield


class AgentApprovals:
    """The approvals of one agent; `agent.approvals`."""

    __slots__ = ("_name", "_recovery", "_setup")

    def __init__(self, name: str, setup: Setup, recovery: Recovery) -> None:
        self._name, self._setup, self._recovery = name, setup, recovery

    def list(self, status: str | None = "pending") -> Listed:
        """Return the approvals of this status, the newest first; None: of any status.

        Raises: NotReadyError before the agent was started; LookupError when its act module keeps none.
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
        """Take a decision about a call that waits; it is durable when this returns, and the call's session goes on.

        Args: id: the approval's, or a unique beginning of it; params: with "edit", all parameters of the call that is
            to run; call: with "replace", the call that is to run instead; by: who decided, kept with the row.
        Raises: LookupError for an unknown id, DecidedError for one that takes no decision any more, ValueError for
            what does not fit the decision or the tool, NotReadyError before the agent was started, TransientError
            when it cannot be kept now.
        """
        approver = self._approver()
        row = await approver.get(id)
        wire = call.to_wire() if isinstance(call, Call) else call
        draft = AuditDraft(by or PROGRAM, "program", f"approval.{decision}", row.id, agent=self._name,
                           rows=("approval",))  # fmt: skip
        with auditing(draft):
            decided: Approval = await approver.decide(
                row.id, row.digest, decision, by=by or PROGRAM, reason=reason, params=params, call=wire
            )
        return decided

    def _approver(self) -> Any:
        self._recovery.demand_ready("answer approvals")
        approver = approver_of(self._setup)
        if approver is None or not offers(approver, ListsAtOnce):
            raise LookupError(f"agent {self._name!r} keeps no approvals: its act module is not the built-in executor")
        return approver
