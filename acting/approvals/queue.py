"""Queue of approvals and grants as durable rows, each changed by compare-and-set only (`records`).

So a hundred decisions at once leave one that counts, and an approval is used once, also over restarts. A row is written
before anybody hears of it. Which changes are legal is said in `decisions`, what becomes of calls that nobody answered
in time in `deferred`, what may run at all in `authorize`.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from msgspec import Struct

from acting.approvals.decisions import (
    OUTCOMES,
    asked_already,
    check_shape,
    demand_pending,
    demand_room,
    moved,
    standing,
    surplus,
)
from acting.approvals.expiry import Expiry, Waiters
from acting.approvals.fingerprint import BoundCall, Fingerprinter
from acting.approvals.grants import Grants
from acting.approvals.records import InMemory, Rows, in_time
from spar.clock import Clock
from spar.errors import SparError
from spar.events import ApprovalExpired, ApprovalResolved
from spar.failpoints import crashpoint
from spar.protocols import Host, Records
from spar.records.approvals import (
    Approval,
    DecidedError,
    Decision,
    Grant,
)
from spar.types import Trust, replace

_RETRY = 10.0  # seconds until an expiry is written again that the store did not take


class Use(Struct, frozen=True):
    """The outcome of using an approval: the kind of fault and why it cannot be used, else what binds the call."""

    kind: str = ""
    why: str = ""
    binds: Mapping[str, Any] | None = None


class ApprovalQueue:
    """The approvals of one executor; a `spar.records.approvals.Approver`.

    Args: expires: seconds until no answer is a denial, and for which an approval may be used once it is given; most:
        how many questions of one run, or of one session's cycles without a run, may wait for an answer; tell: publishes
        an event of a class.
    """

    def __init__(
        self, fingerprinter: Fingerprinter, clock: Clock, tell: Callable[..., None], *, expires: float, most: int
    ) -> None:
        self.fingerprinter, self.clock, self._tell = fingerprinter, clock, tell
        self._expires, self._most = expires, most
        self.agent = ""
        self.store: Records = InMemory()
        self._rows = Rows("approval", Approval, lambda row: row.agent == self.agent)
        self._rows.on_found = self._found
        self._grants = Grants(fingerprinter, lambda: self.clock.now())
        self._expiry = Expiry(lambda: self.clock, self._expire)
        self._waiters = Waiters(lambda: self.clock)
        self._opening, self._asking = asyncio.Lock(), asyncio.Lock()
        self._is_open = False
        #: Told of each answer and expiry.
        self.on_answer: Callable[[Approval], object] = lambda approval: None

    # -- opening and closing

    def attach(self, host: Host, clock: Clock) -> None:
        """Keep rows in the agent's memory if it offers that. Before it is opened."""
        self.agent, self.clock = host.agent, clock
        self.fingerprinter.use(clock)
        if isinstance(host.store, Records) and host.store is not self.store:
            self.store = host.store
            self._is_open = False  # whoever looked before saw another store's rows

    async def open(self) -> None:
        """Read what is kept. Idempotent. Raises: TransientError when the store cannot be read now."""
        if self._is_open:
            return
        async with self._opening:
            while not self._is_open:
                store = self.store
                await self._grants.open(store)
                await self._rows.open(store)
                self._is_open = store is self.store
                for row in builtins.list(self._rows.values.values()):
                    self._arm(row)

    async def refresh(self) -> None:
        """Take over what another queue has asked and settled. Raises: TransientError when it cannot be read now."""
        if not self._is_open:
            return
        await self._rows.refresh()
        for row in self._rows.values.values():
            self._arm(row)

    async def close(self) -> None:
        """Call nobody back any more; the rows are read again when it is opened again."""
        self._is_open = False
        await self._expiry.close()

    # -- what doors ask

    async def list(self, status: str | None = "pending") -> Sequence[Approval]:
        """The newest first; None: of any status."""
        await self.open()
        return self.rows(status)

    def rows(self, status: str | None = "pending") -> builtins.list[Approval]:
        """Return the approvals as they were last known; none before it was opened."""
        found = [row for row in self._rows.values.values() if status is None or row.status == status]
        return sorted(found, key=lambda row: row.asked_at)[::-1]

    async def get(self, id: str) -> Approval:
        """The approval with this id or unique beginning of one. Raises: LookupError."""
        await self.open()
        return self._rows.named(id)

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
        """Take a person's decision; durable when this returns. See `spar.records.approvals.Approver`.

        Raises: LookupError, DigestMismatchError, DecidedError, ValueError; TransientError when it cannot be kept now.
        """
        check_shape(decision, params, call, grant_for)
        row = await self.get(id)
        demand_pending(row, digest, self.clock.now())
        changes: dict[str, Any] = {"decided_by": by, "reason": reason}
        if params is not None or call is not None:
            new = (
                self.fingerprinter.edited(row.call, params)
                if params is not None
                else self.fingerprinter.replaced(row.call, call or {})
            )
            changes |= {"original": row.call, "call": new.call, "effect": new.effect, "digest": await self._digest(new)}
        grant = None
        if grant_for is not None:
            # First: a permission that its approval names must be there.
            grant = await self._grants.give(row, grant_for, by, is_of_session=grant_session)
            changes["grant"] = grant.id

        def answered(found: Approval) -> Approval:
            demand_pending(found, digest, self.clock.now())
            now = self.clock.now()
            until = found.expires_at if decision == "deny" else now + timedelta(seconds=self._expires)
            return moved(found, OUTCOMES[decision], decided_at=now, expires_at=until, **changes)

        crashpoint("approval.decided_before_commit")
        try:
            row = await self._rows.change(row.id, answered)
        except BaseException:
            if grant is not None:
                await self._grants.revoke(grant.id)
            raise
        crashpoint("approval.committed")
        said = f"by {by}: {reason}" if reason else f"by {by}"
        self._tell_of(ApprovalResolved, row, decision=decision, reason=said)
        self._ended(row)
        self._arm(row)
        return row

    async def grants(self) -> Sequence[Grant]:
        """The grants in force."""
        await self.open()
        return self._grants.in_force()

    async def revoke(self, id: str) -> Grant:
        """End a grant. Raises: LookupError."""
        await self.open()
        return await self._grants.revoke(id)

    # -- what the gate asks

    async def ask(self, bound_call: BoundCall, *, why: str, trust: Trust, session: str, cycle_id: str,
                  run_id: str | None) -> tuple[Approval, bool]:  # fmt: skip
        """The question about this call, and whether it is this cycle's own: one call is asked about once at a time.

        Raises: RefusedError when too many wait already; UnboundError; TransientError and ValueError when it cannot be
        kept.
        """
        await self.open()
        fingerprint = await self.fingerprinter.fingerprint(bound_call)
        return await in_time(self._ask(bound_call, fingerprint.digest, why, trust, session, cycle_id, run_id))

    async def _ask(self, bound_call: BoundCall, digest: str, why: str, trust: Trust, session: str, cycle_id: str,
                   run_id: str | None) -> tuple[Approval, bool]:  # fmt: skip
        async with self._asking:
            rows, now = self._rows.values.values(), self.clock.now()
            if (found := asked_already(rows, bound_call, digest, session, cycle_id, now)) is not None:
                return found
            demand_room(rows, session, run_id, self._most)
            row = Approval(self._rows.new_id("a"), bound_call.call, digest, now, now + timedelta(seconds=self._expires),
                           why, bound_call.effect, trust, self.agent, session, cycle_id, run_id)  # fmt: skip
            for old in surplus(rows):
                await self._rows.drop(old.id)
            crashpoint("approval.before_commit")
            await self._rows.add(row)  # the last wait: a cancelled asker leaves no question that nobody waits for
            crashpoint("approval.requested")
            self._arm(row)
            return row, True

    async def answer(self, id: str, hold: float) -> Approval:
        """The row once it has an answer or has expired, or as it is after `hold` seconds."""
        if (row := self._rows.named(id)).status == "pending" and hold > 0:
            await self._waiters.wait(id, hold)
            row = self._rows.named(id)
        return row

    async def use(self, id: str, bound_call: BoundCall) -> Use:
        """Use an approval for this call, once, durably before it may start.

        What would run now is bound anew first: if it is not what was approved, the approval is void.
        """
        fingerprint, changed = None, "what would run now is not what was approved"
        try:
            fingerprint = await self.fingerprinter.fingerprint(bound_call)
        except SparError as error:
            changed = str(error)

        def use(row: Approval) -> Approval:
            if row.status != "approved":
                raise DecidedError(f"approval {row.id!r} cannot be used: it is {standing(row)}")
            if self.clock.now() >= row.expires_at:
                return moved(row, "expired")
            is_same = fingerprint is not None and row.digest == fingerprint.digest
            return moved(row, "used") if is_same else moved(row, "void", reason=changed)

        try:
            row = await self._rows.change(id, use)
        except (SparError, LookupError) as error:
            return Use("denied", str(error))
        crashpoint("approval.used")
        self._expiry.disarm(id)
        if row.status == "expired":
            return Use("expired", f"approval {id!r} was not used within {self._expires:g} s of being given")
        if row.status == "used":
            return Use(binds=fingerprint.binds if fingerprint is not None else None)
        return Use("drift", f"{changed}: approval {id!r} is void")

    async def granted(self, bound_call: BoundCall, session: str) -> tuple[Grant, Mapping[str, Any]] | None:
        """The grant that lets this very call run, counted, and what binds the call; None if there is none.

        Raises: UnboundError.
        """
        await self.open()
        return await self._grants.use(bound_call, session)

    async def park(self, id: str) -> None:
        """The cycle that asked goes on without an answer, and its call is kept."""
        if not self._rows.values[id].is_parked:
            await self._rows.change(id, lambda row: replace(row, is_parked=True))

    async def void(self, id: str, reason: str) -> None:
        """The work that asked is gone, or is another one: whatever the answer, nothing comes of it, nor of no row."""

        def voided(row: Approval) -> Approval:
            return moved(row, "void", reason=reason)

        try:
            row = await self._rows.change(id, voided)
        except (DecidedError, LookupError):  # it has come to its end already, or its row is lost
            return
        self._expiry.disarm(id)
        self._waiters.wake(id)
        self._tell_of(ApprovalResolved, row, decision="void", reason=reason)

    def known(self, id: str) -> Approval | None:
        """The row as it was last known."""
        return self._rows.values.get(id)

    @property
    def unsettled(self) -> builtins.list[Approval]:
        """The rows of which something may still come."""
        return [row for row in self._rows.values.values() if row.status in ("pending", "approved")]

    # -- inside

    async def _digest(self, bound_call: BoundCall) -> str:
        try:
            return (await self.fingerprinter.fingerprint(bound_call)).digest
        except SparError as error:
            raise ValueError(str(error)) from error

    def _arm(self, row: Approval) -> None:
        """Have a row expire in time. A wall clock that was set back since it was written lengthens that not."""
        if row.status in ("pending", "approved"):
            left = (row.expires_at - self.clock.now()).total_seconds()
            self._expiry.arm(row.id, min(left, self._expires))

    async def _expire(self, id: str) -> None:
        if (asked := self.known(id)) is None:
            return
        before = asked.status

        def expired(row: Approval) -> Approval:
            if row.status != before:
                raise DecidedError("it has been answered")
            return moved(row, "expired", decided_at=self.clock.now() if before == "pending" else row.decided_at)

        try:
            row = await self._rows.change(id, expired)
        except (DecidedError, LookupError):
            return
        except Exception:  # the store fails: it takes no decision any more in any case
            self._waiters.wake(id)
            self._expiry.arm(id, _RETRY)
            return
        self._ended(row)
        if before == "pending":
            self._tell_of(ApprovalExpired, row)

    def _found(self, row: Approval) -> None:
        """The store holds another answer than was known: it took a change though it never said so."""
        if row.status != "pending":
            self._ended(row)
            self._arm(row)

    def _ended(self, row: Approval) -> None:
        self._expiry.disarm(row.id)
        self._waiters.wake(row.id)
        self.on_answer(row)

    def _tell_of(self, kind: Any, row: Approval, **fields: Any) -> None:
        self._tell(kind, call=row.call, cycle_id=row.cycle_id, run_id=row.run_id, **fields)
