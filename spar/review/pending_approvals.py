"""Approvals of one agent: as last read, written to the log, counted for status and metrics; and decided by a program.

The act module stores approvals and does not log; its events say that something has changed, and its port has the
present approvals. So each of those events, and the start, leads to one reading of the port, in the agent's event loop;
events that come during a reading share the next one. The log names the tools, never the parameters.

The command line and HTTP decide the same rows as a program that runs the agent in its own process; the first decision
counts. A decision by a program concerns the call as it is stored now. An interface that shows the call to a person
first decides by the digest of the shown row (`spar.records.approvals.Approver`).
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Generator, Mapping
from datetime import datetime
from typing import Any

from spar.events import ApprovalExpired, ApprovalRequested, ApprovalResolved, Event, StateChanged
from spar.loop.core import Core
from spar.loop.setup import Setup
from spar.observe.logs import get_logger
from spar.ports.any_part import has, offers
from spar.ports.phases import ListsAtOnce, OptionalActor
from spar.records.approvals import Approval, Approver, Decision
from spar.records.audit import AuditDraft, auditing
from spar.types import Call

log = get_logger("spar.approvals")

#: Endings of a question to people, as metrics count them.
ENDINGS = ("approve", "deny", "edit", "replace", "expire", "void", "other")
#: Log message for an approval that is not pending any more, by its status.
_ENDED = {"expired": "approval expired", "void": "approval void"}


def approver_of(setup: Setup) -> Approver | None:
    """Return the queue of an agent's approvals; None if its act module has none."""
    actor = setup.modules["act"].part
    approver: Approver | None = actor.approvals if has(actor, OptionalActor.approvals) else None
    return approver


class Waiting:
    """Watcher of one agent's approvals. `endings` counts how questions ended; reading is safe from any thread."""

    __slots__ = ("_core", "_last_seq", "_looking", "_pending", "_setup", "endings")

    def __init__(self, core: Core, setup: Setup) -> None:
        self._core, self._setup = core, setup
        self._pending: dict[str, Approval] | None = None  # None: not read yet
        self._looking, self._last_seq = asyncio.Lock(), 0
        self.endings = dict.fromkeys(ENDINGS, 0)
        core.events.subscribe(ApprovalResolved, self._resolved)
        core.events.subscribe(ApprovalExpired, self._expired)
        for kind in (ApprovalRequested, ApprovalResolved, ApprovalExpired, StateChanged):
            core.events.subscribe(kind, self._look)

    @property
    def agent(self) -> str:
        return self._core.name

    def pending(self, now: datetime) -> list[Approval]:
        """Return the approvals that can still be answered, the oldest first; of several nodes those of its sessions."""
        core, approver = self._core, approver_of(self._setup)
        pending = list((self._pending or {}).values())
        if core.shared is not None and approver is not None:
            # People answer at any node, and sessions come and go without an event here.
            pending = approver.rows("pending") if offers(approver, ListsAtOnce) else pending
            pending = [approval for approval in pending if core.has(approval.session)]
        return sorted([one for one in pending if one.expires_at > now], key=lambda approval: approval.asked_at)

    def snapshot(self, now: datetime) -> dict[str, Any]:
        """Return the number of pending approvals, and the age of the oldest one (seconds; None without any)."""
        waiting = self.pending(now)
        age = (now - waiting[0].asked_at).total_seconds() if waiting else None
        return {"pending": len(waiting), "oldest_age_seconds": age}

    def _resolved(self, event: ApprovalResolved) -> None:
        self.endings[event.decision if event.decision in self.endings else "other"] += 1

    def _expired(self, event: ApprovalExpired) -> None:
        self.endings["expire"] += 1

    async def _look(self, event: Event) -> None:
        async with self._looking:
            approver = approver_of(self._setup)
            if approver is None or event.seq <= self._last_seq:
                return  # a reading that began after this event includes its change
            if isinstance(event, StateChanged) and event.new != "running":
                return  # the store of approvals may be closed already
            last_seq = self._core.events.seq
            try:
                pending = {approval.id: approval for approval in await approver.list("pending")}
                ended_ids = [id for id in self._pending or () if id not in pending]
                ended = [await _get(approver, id) for id in ended_ids]
            except Exception as error:  # the next event leads to another reading
                log.warning("approvals cannot be read", agent=self._core.name, reason=repr(error))
                return
            former, self._pending, self._last_seq = self._pending, pending, last_seq
        message = "approval still waits" if former is None else "approval requested"
        for approval in sorted(pending.values(), key=lambda approval: approval.asked_at):
            if approval.id not in (former or ()):
                self._log(message, approval)
        for done in filter(None, ended):
            self._log(_ENDED.get(done.status, "approval resolved"), done, status=done.status, by=done.decided_by)

    def _log(self, message: str, approval: Approval, **more: str) -> None:
        log.info(message, agent=self._core.name, id=approval.id, tool=approval.call.tool, session=approval.session,
                 **more)  # fmt: skip


async def _get(approver: Approver, id: str) -> Approval | None:
    try:
        return await approver.get(id)
    except LookupError:  # the approval is not stored any more
        return None


#: The name of the decider if the program gives none.
PROGRAM = "program"


class Listed(builtins.list[Approval]):
    """List of approvals. Awaiting it returns the same list, for code that also reads approvals stored elsewhere."""

    def __await__(self) -> Generator[None, None, Listed]:
        return self
        yield


class AgentApprovals:
    """Approvals of one agent: `agent.approvals`. Args: demand: raises NotReadyError before the agent was started."""

    __slots__ = ("_core", "_demand", "_setup")

    def __init__(self, core: Core, setup: Setup, demand: Callable[[str], None]) -> None:
        self._core, self._setup, self._demand = core, setup, demand

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
        self._demand("answer approvals")
        approver = approver_of(self._setup)
        if approver is None or not offers(approver, ListsAtOnce):
            raise LookupError(
                f"agent {self._core.name!r} keeps no approvals: its act module is not the built-in executor"
            )
        return approver
