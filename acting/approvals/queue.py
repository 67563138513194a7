"""Queue of approvals and grants as durable rows, each changed by compare-and-set only (`records`).

So a hundred decisions at once leave one that counts, and an approval is used once, also over restarts. A row is written
before anybody hears of it. What becomes of calls that nobody answered in time is `deferred`'s affair, what may run at
all `authorize`'s.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

from msgspec import Struct

from acting.approvals.expiry import Expiry
from acting.approvals.fingerprint import BoundCall, Fingerprinter
from acting.approvals.grants import Grants
from acting.approvals.records import InMemory, Rows, in_time
from spar.clock import Clock
from spar.errors import SparError
from spar.events import ApprovalExpired, ApprovalResolved
from spar.failpoints import crashpoint
from spar.protocols import Host, Records
from spar.records.approvals import (
    TRANSITIONS,
    Approval,
    ApprovalStatus,
    DecidedError,
    Decision,
    DigestMismatchError,
    Grant,
)
from spar.types import Trust, replace

KEPT: Final = 1000  # answered approvals that can still be looked at
_RUNS = 10  # times what may wait of one run may wait in all
_RETRY = 10.0  # seconds until an expiry is written again that the store did not take


class RefusedError(SparError):
    """The question cannot be asked; the message says why."""


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
        self._waiting: dict[str, builtins.list[asyncio.Future[None]]] = {}
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
        self._demand_pending(row, digest)
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
            self._demand_pending(found, digest)
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
        self._tell(
            ApprovalResolved, call=row.call, cycle_id=row.cycle_id, run_id=row.run_id, decision=decision, reason=said
        )
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
        return await in_time(self._in_turn(bound_call, fingerprint.digest, why, trust, session, cycle_id, run_id))

    async def _in_turn(self, *question: Any) -> tuple[Approval, bool]:
        async with self._asking:
            return await self._ask(*question)

    async def _ask(self, bound_call: BoundCall, digest: str, why: str, trust: Trust, session: str, cycle_id: str,
                   run_id: str | None) -> tuple[Approval, bool]:  # fmt: skip
        rows = self._rows.values.values()
        pending = [row for row in rows if row.status == "pending"]
        open_ = [row for row in pending if row.session == session]
        if cycle_id:
            # A cycle that was cut off and goes on owns its questions still, and what was answered before it got here.
            own = [row for row in rows if (row.cycle_id, row.call.id) == (cycle_id, bound_call.call.id)]
            for row in own:
                if self._speaks_of(row, bound_call, digest):
                    return row, True
        for row in open_:
            # Another call of the same plan, be it the same in all but its id, is answered by itself.
            is_own = row.call.id == bound_call.call.id
            if row.digest == digest and self.clock.now() < row.expires_at and (is_own or row.cycle_id != cycle_id):
                return row, False
        if len(pending) >= _RUNS * self._most:
            raise RefusedError(f"{len(pending)} calls wait for an approval already, as many as may in all")
        waiting = sum(row.run_id == run_id for row in open_)
        if waiting >= self._most:
            whose = f"run {run_id!r}" if run_id else f"session {session!r}"
            raise RefusedError(f"{waiting} calls of {whose} wait for an approval already, as many as may")
        now = self.clock.now()
        row = Approval(self._rows.new_id("a"), bound_call.call, digest, now, now + timedelta(seconds=self._expires),
                       why, bound_call.effect, trust, self.agent, session, cycle_id, run_id)  # fmt: skip
        await self._make_room()
        crashpoint("approval.before_commit")
        await self._rows.add(row)  # the last wait: a cancelled asker leaves no question that nobody waits for
        crashpoint("approval.requested")
        self._arm(row)
        return row, True

    async def answer(self, id: str, hold: float) -> Approval:
        """The row once it has an answer or has expired, or as it is after `hold` seconds."""
        if (row := self._rows.named(id)).status == "pending" and hold > 0:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.setdefault(id, []).append(waiter)
            timer = self.clock.call_at(self.clock.monotonic() + hold, partial(_wake, waiter))
            try:
                await waiter
            finally:
                timer.cancel()
                waiters = self._waiting.get(id, [])
                if waiter in waiters:
                    waiters.remove(waiter)
                if not waiters:
                    self._waiting.pop(id, None)
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
        self._wake_all(id)
        self._tell(
            ApprovalResolved, call=row.call, cycle_id=row.cycle_id, run_id=row.run_id, decision="void", reason=reason
        )

    def known(self, id: str) -> Approval | None:
        """The row as it was last known."""
        return self._rows.values.get(id)

    @property
    def unsettled(self) -> builtins.list[Approval]:
        """The rows of which something may still come."""
        return [row for row in self._rows.values.values() if row.status in ("pending", "approved")]

    # -- inside

    def _speaks_of(self, row: Approval, bound_call: BoundCall, digest: str) -> bool:
        """Return whether a question about a call of this id is about what it would do now, and still counts."""
        is_same = row.digest == digest
        if row.original is not None:  # the digest is that of the call which people put in its place
            asked = row.original
            is_same = (asked.tool, asked.params) == (bound_call.call.tool, bound_call.call.params)
        is_in_time = row.status in ("pending", "approved") and self.clock.now() < row.expires_at
        return is_same and (is_in_time or row.status == "denied")

    def _demand_pending(self, row: Approval, digest: str) -> None:
        if row.status != "pending" or self.clock.now() >= row.expires_at:
            raise DecidedError(f"approval {row.id!r} takes no decision any more: it is {standing(row)}")
        if row.digest != digest:
            raise DigestMismatchError(f"approval {row.id!r} is about another call: its digest is {row.digest[:12]}…")

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
            self._wake_all(id)
            self._expiry.arm(id, _RETRY)
            return
        self._ended(row)
        if before == "pending":
            self._tell(ApprovalExpired, call=row.call, cycle_id=row.cycle_id, run_id=row.run_id)

    def _found(self, row: Approval) -> None:
        """The store holds another answer than was known: it took a change though it never said so."""
        if row.status != "pending":
            self._ended(row)
            self._arm(row)

    def _ended(self, row: Approval) -> None:
        self._expiry.disarm(row.id)
        self._wake_all(row.id)
        self.on_answer(row)

    def _wake_all(self, id: str) -> None:
        for waiter in self._waiting.get(id, ()):
            _wake(waiter)

    async def _make_room(self) -> None:
        """Forget the oldest answered rows beyond those that are kept."""
        settled = [row for row in self._rows.values.values() if not TRANSITIONS[row.status]]
        for row in sorted(settled, key=lambda row: row.asked_at)[: max(0, len(settled) - KEPT)]:
            await self._rows.drop(row.id)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


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
