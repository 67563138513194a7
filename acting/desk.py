"""Where people answer: approvals and grants as durable rows, each changed by compare-and-set only (`rows`).

So a hundred decisions at once leave one that counts, and an approval is used once, also over restarts. A row is written
before anybody hears of it. What becomes of calls that nobody answered in time is `parked`'s affair, what may run at all
`gate`'s.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Final

from acting.binding import Binder, Binding
from acting.grants import Grants
from acting.rows import InMemory, Rows
from spar.approvals import TRANSITIONS, Approval, ApprovalStatus, DecidedError, Decision, DigestMismatchError, Grant
from spar.clock import Clock, Timer
from spar.errors import SparError
from spar.events import ApprovalExpired, ApprovalResolved
from spar.protocols import Host, Records
from spar.types import Trust, replace

KEPT: Final = 1000  # answered approvals that can still be looked at
_RETRY = 10.0  # seconds until an expiry is written again that the store did not take
_OUTCOMES: Final[dict[Decision, ApprovalStatus]] = {
    "approve": "approved",
    "edit": "approved",
    "replace": "approved",
    "deny": "denied",
}
_NEEDS: Final[dict[Decision, str]] = {"edit": "params", "replace": "call"}


class RefusedError(SparError):
    """The question cannot be asked; the message says why."""


class Desk:
    """The approvals of one executor; a `spar.approvals.Approver`.

    Args: expires: seconds until no answer is a denial, and for which an approval may be used once it is given; most:
        how many questions of one run, or of one session's cycles without a run, may wait for an answer; tell: publishes
        an event of a class.
    """

    def __init__(self, binder: Binder, clock: Clock, tell: Callable[..., None], *, expires: float, most: int) -> None:
        self.binder, self.clock, self._tell, self._expires, self._most = binder, clock, tell, expires, most
        self.agent = ""
        self.store: Records = InMemory()
        self._rows = Rows("approval", Approval, lambda row: row.agent == self.agent)
        self._grants = Grants(binder, lambda: self.clock.now())
        self._timers: dict[str, Timer] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting: dict[str, builtins.list[asyncio.Future[None]]] = {}
        self._opening, self._asking = asyncio.Lock(), asyncio.Lock()
        self._is_open = False
        #: Told of each answer (or expiry) of a call that its cycle has gone on without.
        self.on_answer: Callable[[Approval], object] = lambda approval: None

    # -- opening and closing

    def attach(self, host: Host, clock: Clock) -> None:
        """Keep rows in the agent's memory if it offers that. Before it is opened."""
        self.agent, self.clock = host.agent, clock
        self.binder.use(clock)
        if isinstance(host.store, Records):
            self.store = host.store

    async def open(self) -> None:
        """Read what is kept. Idempotent. Raises: TransientError when the store cannot be read now."""
        if self._is_open:
            return
        async with self._opening:
            if not self._is_open:
                await self._grants.open(self.store)
                await self._rows.open(self.store)
                self._is_open = True
                for row in builtins.list(self._rows.values.values()):
                    self._arm(row)

    async def close(self) -> None:
        """Call nobody back any more; the rows are read again when it is opened again."""
        self._is_open = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        tasks = builtins.list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- what doors ask

    async def list(self, status: str | None = "pending") -> Sequence[Approval]:
        """The newest first; None: of any status."""
        await self.open()
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
        """Take a person's decision; durable when this returns. See `spar.approvals.Approver`.

        Raises: LookupError, DigestMismatchError, DecidedError, ValueError; TransientError when it cannot be kept now.
        """
        _check_shape(decision, params, call, grant_for)
        row = await self.get(id)
        self._demand_pending(row, digest)
        changes: dict[str, Any] = {"decided_by": by, "reason": reason}
        if params is not None or call is not None:
            new = (
                self.binder.edited(row.call, params)
                if params is not None
                else self.binder.replaced(row.call, call or {})
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
            return moved(found, _OUTCOMES[decision], decided_at=now, expires_at=until, **changes)

        try:
            row = await self._rows.change(row.id, answered)
        except BaseException:
            if grant is not None:
                await self._grants.revoke(grant.id)
            raise
        said = f"by {by}: {reason}" if reason else f"by {by}"
        self._tell(ApprovalResolved, call=row.call, cycle_id=row.cycle_id, decision=decision, reason=said)
        self._ended(row)
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

    async def ask(self, binding: Binding, *, why: str, trust: Trust, session: str, cycle_id: str,
                  run_id: str | None) -> tuple[Approval, bool]:  # fmt: skip
        """The question about this call, and whether it is a new one: the same call is asked about once at a time.

        Raises: RefusedError when too many wait already; UnboundError; TransientError and ValueError when it cannot be
        kept.
        """
        await self.open()
        digest = await self.binder.digest(binding)
        async with self._asking:
            return await self._ask(binding, digest, why, trust, session, cycle_id, run_id)

    async def _ask(self, binding: Binding, digest: str, why: str, trust: Trust, session: str, cycle_id: str,
                   run_id: str | None) -> tuple[Approval, bool]:  # fmt: skip
        open_ = [row for row in self._rows.values.values() if row.status == "pending" and row.session == session]
        for row in open_:
            if row.digest == digest and self.clock.now() < row.expires_at:
                return row, False
        waiting = sum(row.run_id == run_id for row in open_)
        if waiting >= self._most:
            whose = f"run {run_id!r}" if run_id else f"session {session!r}"
            raise RefusedError(f"{waiting} calls of {whose} wait for an approval already, as many as may")
        now = self.clock.now()
        row = Approval(self._rows.new_id("a"), binding.call, digest, now, now + timedelta(seconds=self._expires), why,
                       binding.effect, trust, self.agent, session, cycle_id, run_id)  # fmt: skip
        await self._make_room()
        await self._rows.add(row)  # the last wait: a cancelled asker leaves no question that nobody waits for
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

    async def use(self, id: str, binding: Binding) -> tuple[str, str]:
        """Use an approval for this call, once, durably before it may start; ("", "") or the kind of fault and why not.

        What would run now is bound anew first: if it is not what was approved, the approval is void.
        """
        try:
            found, changed = await self.binder.digest(binding), "what would run now is not what was approved"
        except SparError as error:
            found, changed = "", str(error)

        def use(row: Approval) -> Approval:
            if row.status != "approved":
                raise DecidedError(f"approval {row.id!r} cannot be used: it is {_said(row)}")
            if self.clock.now() >= row.expires_at:
                return moved(row, "expired")
            return moved(row, "used") if row.digest == found else moved(row, "void", reason=changed)

        try:
            row = await self._rows.change(id, use)
        except (SparError, LookupError) as error:
            return "denied", str(error)
        if row.status == "expired":
            return "expired", f"approval {id!r} was not used within {self._expires:g} s of being given"
        return ("", "") if row.status == "used" else ("drift", f"{changed}: approval {id!r} is void")

    async def granted(self, binding: Binding, session: str) -> Grant | None:
        """The grant that lets this very call run, counted; None if there is none. Raises: UnboundError."""
        await self.open()
        return await self._grants.use(binding, session)

    async def park(self, id: str) -> None:
        """The cycle that asked goes on without an answer, and its call is kept."""
        if not self._rows.values[id].is_parked:
            await self._rows.change(id, lambda row: replace(row, is_parked=True))

    async def void(self, id: str, reason: str) -> None:
        """The work that asked is gone, or is another one: whatever the answer, nothing comes of it."""

        def voided(row: Approval) -> Approval:
            return moved(row, "void", reason=reason) if "void" in TRANSITIONS[row.status] else row

        row = await self._rows.change(id, voided)
        self._disarm(id)
        if row.status == "void":
            self._wake_all(id)

    def known(self, id: str) -> Approval | None:
        """The row as it was last known."""
        return self._rows.values.get(id)

    @property
    def unsettled(self) -> builtins.list[Approval]:
        """The rows of which something may still come."""
        return [row for row in self._rows.values.values() if row.status in ("pending", "approved")]

    # -- inside

    def _demand_pending(self, row: Approval, digest: str) -> None:
        if row.status != "pending" or self.clock.now() >= row.expires_at:
            raise DecidedError(f"approval {row.id!r} takes no decision any more: it is {_said(row)}")
        if row.digest != digest:
            raise DigestMismatchError(f"approval {row.id!r} is about another call: its digest is {row.digest[:12]}…")

    async def _digest(self, binding: Binding) -> str:
        try:
            return await self.binder.digest(binding)
        except SparError as error:
            raise ValueError(str(error)) from error

    def _arm(self, row: Approval) -> None:
        """Have a pending row expire in time."""
        if row.status == "pending":
            left = (row.expires_at - self.clock.now()).total_seconds()
            self._arm_in(row.id, left)

    def _arm_in(self, id: str, seconds: float) -> None:
        self._disarm(id)
        when = self.clock.monotonic() + max(0.0, seconds)
        self._timers[id] = self.clock.call_at(when, partial(self._due, id))

    def _disarm(self, id: str) -> None:
        if (timer := self._timers.pop(id, None)) is not None:
            timer.cancel()

    def _due(self, id: str) -> None:
        self._timers.pop(id, None)
        task = asyncio.get_running_loop().create_task(self._expire(id), name="expiry of an approval")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _expire(self, id: str) -> None:
        def expired(row: Approval) -> Approval:
            if row.status != "pending":
                raise DecidedError("it has been answered")
            return moved(row, "expired", decided_at=self.clock.now())

        try:
            row = await self._rows.change(id, expired)
        except (DecidedError, LookupError):
            return
        except Exception:  # the store fails: it takes no decision any more in any case
            self._wake_all(id)
            self._arm_in(id, _RETRY)
            return
        self._tell(ApprovalExpired, call=row.call, cycle_id=row.cycle_id)
        self._ended(row)

    def _ended(self, row: Approval) -> None:
        self._disarm(row.id)
        self._wake_all(row.id)
        if row.is_parked:
            self.on_answer(row)

    def _wake_all(self, id: str) -> None:
        for waiter in self._waiting.get(id, ()):
            _wake(waiter)

    async def _make_room(self) -> None:
        """Forget the oldest answered rows beyond those that are kept."""
        settled = [row for row in self._rows.values.values() if not TRANSITIONS[row.status]]
        for row in sorted(settled, key=lambda row: row.asked_at)[: max(0, len(settled) - KEPT)]:
            await self._rows.drop(row.id)


def moved(row: Approval, status: ApprovalStatus, **changes: Any) -> Approval:
    """The row in another status. Raises: DecidedError for a change that is not legal (`TRANSITIONS`)."""
    if status not in TRANSITIONS[row.status]:
        raise DecidedError(f"approval {row.id!r} is {row.status} and cannot become {status}")
    return replace(row, status=status, **changes)


def _said(row: Approval) -> str:
    return "expired" if row.status == "pending" else f"{row.status}{f' by {row.decided_by}' if row.decided_by else ''}"


def _check_shape(decision: str, params: Any, call: Any, grant_for: float | None) -> None:
    """Raises: ValueError when a decision comes with what does not belong to it, or without what does."""
    if decision not in _OUTCOMES:
        raise ValueError(f"the decision is {decision!r}, expected {', '.join(_OUTCOMES)}")
    for name, value in (("params", params), ("call", call)):
        is_needed = _NEEDS.get(decision) == name
        if is_needed and not isinstance(value, Mapping):
            raise ValueError(f"{decision!r} needs {name}, an object, found {type(value).__name__}")
        if not is_needed and value is not None:
            raise ValueError(f"{name} does not go with {decision!r}")
    if grant_for is not None and decision != "approve":
        raise ValueError(f"a grant goes with 'approve', not with {decision!r}")


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
