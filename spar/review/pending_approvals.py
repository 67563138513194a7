"""Pending approvals as they were when last looked: told in the log, counted for status and metrics.

The act module keeps approvals and knows no logs; its events say that something has changed, its port what there is.
So each of those events, and the start, leads to one look at the port, in the agent's event loop; those that come
while a look is under way share the next one. What is asked for is in the log, never with which parameters.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Any

from spar.events import ApprovalExpired, ApprovalRequested, ApprovalResolved, Event, StateChanged
from spar.loop.core import Core
from spar.loop.setup import Setup
from spar.observe.logs import get_logger
from spar.ports.optional import HasApprovals, offers
from spar.records.approvals import Approval, Approver

log = get_logger("spar.approvals")

#: How a question to people can end, as metrics count it.
ENDINGS = ("approve", "deny", "edit", "replace", "expire", "void", "other")
#: What the log says of an approval that waits no more, by its status.
_ENDED = {"expired": "approval expired", "void": "approval void"}


def approver_of(setup: Setup) -> Approver | None:
    """Return the queue of an agent's approvals; None when its act module keeps none."""
    actor = setup.modules["act"].part
    found: Approver | None = actor.approvals if offers(actor, HasApprovals) else None
    return found


class Waiting:
    """Watches one agent from now on. `endings` counts how questions ended; reading is safe from any thread."""

    __slots__ = ("_core", "_looking", "_pending", "_seen", "_setup", "endings")

    def __init__(self, core: Core, setup: Setup) -> None:
        self._core, self._setup = core, setup
        self._pending: dict[str, Approval] | None = None  # None: not looked yet
        self._looking, self._seen = asyncio.Lock(), 0
        self.endings = dict.fromkeys(ENDINGS, 0)
        core.events.subscribe(ApprovalResolved, self._resolved)
        core.events.subscribe(ApprovalExpired, self._expired)
        for kind in (ApprovalRequested, ApprovalResolved, ApprovalExpired, StateChanged):
            core.events.subscribe(kind, self._look)

    @property
    def agent(self) -> str:
        return self._core.name

    def pending(self, now: datetime) -> list[Approval]:
        """Return the approvals that can still be answered, oldest first."""
        found = [approval for approval in (self._pending or {}).values() if approval.expires_at > now]
        return sorted(found, key=lambda approval: approval.asked_at)

    def snapshot(self, now: datetime) -> dict[str, Any]:
        """Return how many wait, and for how long the oldest has (seconds; None when none does)."""
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
            if approver is None or event.seq <= self._seen:
                return  # a look that began after this event has shown what it is about
            if isinstance(event, StateChanged) and event.new != "running":
                return  # what keeps approvals may be closed already
            seen = self._core.events.seq
            try:
                found = {approval.id: approval for approval in await approver.list("pending")}
                gone = [id for id in self._pending or () if id not in found]
                ended = [await _ended(approver, id) for id in gone]
            except Exception as error:  # the next event looks again
                log.warning("approvals cannot be read", agent=self._core.name, reason=repr(error))
                return
            known, self._pending, self._seen = self._pending, found, seen
        message = "approval still waits" if known is None else "approval requested"
        for approval in sorted(found.values(), key=lambda approval: approval.asked_at):
            if approval.id not in (known or ()):
                self._tell(message, approval)
        for done in filter(None, ended):
            self._tell(_ENDED.get(done.status, "approval resolved"), done, status=done.status, by=done.decided_by)

    def _tell(self, message: str, approval: Approval, **more: str) -> None:
        log.info(message, agent=self._core.name, id=approval.id, tool=approval.call.tool, session=approval.session,
                 **more)  # fmt: skip


async def _ended(approver: Approver, id: str) -> Approval | None:
    try:
        return await approver.get(id)
    except LookupError:  # it is not kept any longer
        return None
