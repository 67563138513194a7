"""Queue of approvals and grants as durable rows, each changed by compare-and-set only (`spar.ports.rows`).

So of a hundred decisions at once only one counts, and an approval is used once, also over restarts. A row is written
before anything is published about it. `decisions` has the legal changes, `run/parked` stores calls without an answer in
time, `run/holds` decides which calls may run.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from acting.approvals.decisions import (
    BoundCall,
    Fingerprinter,
    Grants,
    asked_already,
    demand_room,
    moved,
    standing,
    surplus,
)
from acting.tooling.context import Scope
from spar.clock import Clock, Signal, Timer
from spar.errors import SparError
from spar.events import ApprovalExpired, ApprovalResolved
from spar.failpoints import crashpoint
from spar.ports.rows import InMemory, KeptRows, in_time
from spar.protocols import Host, Records
from spar.records.approvals import (
    TRANSITIONS,
    Approval,
    DecidedError,
    Decision,
    DigestMismatchError,
    Grant,
    check_decision,
)
from spar.threads import Tasks, call_off
from spar.types import Trust, replace

_RETRY = 10.0  # seconds until an end of a question that the store did not take is written again


class ApprovalQueue:
    """The approvals of one executor; a `spar.records.approvals.Approver`.

    Args: expires: seconds after which an unanswered question is denied, and for which an approval may be used; most:
        how many questions of one run, or of one session's cycles without a run, may wait; tell: publishes an event.
    """

    def __init__(
        self, fingerprinter: Fingerprinter, clock: Clock, tell: Callable[..., None], *, expires: float, most: int
    ) -> None:
        self.fingerprinter, self.clock, self._tell = fingerprinter, clock, tell
        self._expires, self._expiry, self._most = expires, timedelta(seconds=expires), most
        self.agent = ""
        self.store: Records = InMemory()
        self._rows = KeptRows("approval", Approval, lambda row: row.agent == self.agent)
        self._rows.on_found = self._follow
        self._grants = Grants(fingerprinter, lambda: self.clock.now())
        self._timers: dict[str, Timer] = {}  # of the ends of questions
        self._answered = Signal()  # of each answer
        self._opening, self._asking = asyncio.Lock(), asyncio.Lock()
        self._is_open, self._may_wait = False, True
        self.tasks = Tasks()  # that write new rows, ends of questions, and calls that wait for people
        #: Questions whose calls are over, with the reason, as long as the store has not taken their end.
        self._over: dict[str, str] = {}
        #: Called with each approval that got an answer or expired.
        self.on_answer: Callable[[Approval], object] = lambda approval: None

    # -- opening and closing

    def attach(self, host: Host, clock: Clock) -> None:
        """Store rows in the agent's memory if it offers that. Call this before `open`."""
        self.agent, self.clock = host.agent, clock
        self.fingerprinter.use(clock)
        if isinstance(host.store, Records) and host.store is not self.store:
            self.store = host.store
            self._is_open = False  # the rows in memory are those of another store

    async def open(self) -> None:
        """Read the rows. Idempotent. Raises: TransientError when the store cannot be read now."""
        if self._is_open:
            return
        async with self._opening:
            while not self._is_open:
                store = self.store
                await self._grants.open(store)
                await self._rows.open(store)
                self._is_open = store is self.store
                for row in builtins.list(self._rows.values.values()):
                    self._arm_row(row)

    async def refresh(self) -> None:
        """Read the changes by another queue. Raises: TransientError when the store cannot be read now."""
        if not self._is_open:
            return
        await self._grants.refresh()
        await self._rows.refresh()
        for row in self._rows.values.values():
            self._arm_row(row)

    async def close(self) -> None:
        """Cancel the timers; the rows are read again at the next `open`."""
        self._is_open, self._may_wait = False, True
        for id in builtins.list(self._timers):
            self._disarm(id)
        while self.tasks:
            await call_off(builtins.list(self.tasks))
        self._over.clear()

    # -- for people: list and decide

    async def list(self, status: str | None = "pending") -> Sequence[Approval]:
        """Return the approvals of a status (None: all), the newest first."""
        await self.open()
        return self.rows(status)

    def rows(self, status: str | None = "pending") -> builtins.list[Approval]:
        """Return the approvals in memory; none before `open`. May be called from any thread."""
        over = self._over if status == "pending" else ()
        rows = [
            row
            for row in builtins.list(self._rows.values.values())
            if status in (None, row.status) and row.id not in over
        ]
        return sorted(rows, key=lambda row: row.asked_at)[::-1]

    async def get(self, id: str) -> Approval:
        """Return the approval with this id, or with the only id that begins so. Raises: LookupError."""
        await self.open()
        try:
            return self._rows.named(id)
        except LookupError:  # another process may have asked since the last reading
            await self.refresh()
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
        """Store a person's decision; it is durable when this returns. See `spar.records.approvals.Approver`.

        Raises: LookupError, DigestMismatchError, DecidedError, ValueError; TransientError when it cannot be kept now.
        """
        check_decision(decision, params=params, call=call, grant_for=grant_for)
        row = await self.get(id)
        self._demand_pending(row, digest)
        changes: dict[str, Any] = {"decided_by": by, "reason": reason}
        if params is not None or call is not None:
            new = self.fingerprinter.changed(row.call, params, call, row.session)
            digest_of_new, _ = await self.fingerprinter.fingerprint(new)
            changes |= {"original": row.call, "call": new.call, "effect": new.effect, "digest": digest_of_new}
        grant = None
        if grant_for is not None:
            # The grant is stored first, because the approval names it.
            grant = await self._grants.give(row, grant_for, by, is_of_session=grant_session)
            changes["grant"] = grant.id

        def answered(approval: Approval) -> Approval:
            self._demand_pending(approval, digest)
            now = self.clock.now()
            if decision == "deny":
                return moved(approval, "denied", decided_at=now, **changes)
            return moved(approval, "approved", decided_at=now, expires_at=now + self._expiry, **changes)

        crashpoint("approval.decided_before_commit")
        try:
            row = await self._rows.change(row.id, answered)
        except BaseException:
            if grant is not None:
                await self._grants.drop(grant.id)
            raise
        crashpoint("approval.committed")
        reason_text = f"by {by}: {reason}" if reason else f"by {by}"
        self._tell_of(ApprovalResolved, row, decision=decision, reason=reason_text)
        self._follow(row)
        return row

    async def grants(self) -> Sequence[Grant]:
        """Return the grants in force."""
        await self.open()
        return self._grants.in_force()

    async def revoke(self, id: str) -> Grant:
        """End a grant, by its id or a unique beginning of one. Raises: LookupError, TransientError."""
        await self.open()
        grant = self._grants.named(id)
        await self._grants.drop(grant.id)
        return grant

    async def forget_session(self, session: str) -> None:
        """Delete the ended questions of a session, and the grants that were given for it alone.

        Raises: TransientError.
        """
        await self.open()
        await self.refresh()
        over = [row.id for row in self.rows(None) if row.session == session and not TRANSITIONS[row.status]]
        for id in over:
            await self._rows.drop(id)
        for id in [grant.id for grant in self._grants.values.values() if grant.session == session]:
            await self._grants.drop(id)

    # -- for calls: ask and use

    async def ask(self, bound_call: BoundCall, digest: str, why: str, trust: Trust, scope: Scope
                  ) -> tuple[Approval, bool]:  # fmt: skip
        """Return the question about a call, and whether this cycle asked it: there is only one at a time for a call.

        Raises: RefusedError when too many wait already; TransientError and ValueError when it cannot be kept.
        """
        await self.open()
        now, effect = self.clock.now(), bound_call.effect
        row = Approval(self._rows.new_id("a"), bound_call.call, digest, now, now + self._expiry, why, effect, trust,
                       self.agent, scope.session, scope.cycle_id, scope.run_id)  # fmt: skip
        return await in_time(self._ask(row))

    async def _ask(self, row: Approval) -> tuple[Approval, bool]:
        async with self._asking:
            rows = [row for row in self._rows.values.values() if row.id not in self._over]
            if (existing := asked_already(rows, row)) is not None:
                return existing
            demand_room(rows, row, self._most)
            for old in surplus(rows):
                await self._rows.drop(old.id)
            crashpoint("approval.before_commit")
            await self._add(row)
            crashpoint("approval.requested")
            self._arm_row(row)
            return row, True

    async def _add(self, row: Approval) -> None:
        """Store a question. If its caller does not wait for that, or the store does not answer, withdraw it."""
        writing = self.tasks.start(self._rows.add(row), "question to people")
        try:
            await asyncio.shield(writing)
        except ValueError:  # the store has not taken it
            raise
        except BaseException:
            self._over[row.id] = "its call ended while people were asked about it"

            def is_written(writing: asyncio.Task[None]) -> None:
                if not writing.cancelled():
                    writing.exception()  # nobody waits for it any more: asyncio would log it as an error
                self._end(row.id)

            writing.add_done_callback(is_written)
            raise

    async def answer(self, id: str, hold: float) -> Approval:
        """Return the row when it has an answer or has expired, at the latest after `hold` seconds.

        At once while waiting is not allowed.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(hold):
                while self._rows.named(id).status == "pending" and hold > 0 and self._may_wait:
                    await self._answered.wait()
        return self._rows.named(id)

    def hold_questions(self, *, is_allowed: bool) -> None:
        """Let calls wait for answers of people from now on; if not allowed, let none wait any more."""
        self._may_wait = is_allowed
        if not is_allowed:
            self._answered.set()

    async def use(self, id: str, bound_call: BoundCall) -> tuple[str, str, Mapping[str, Any] | None]:
        """Use an approval for a call, once, and durably before the call may start.

        The fingerprint is taken again first: if the call is not the approved one any more, the approval becomes void.
        Returns: the kind of the refusal and why, "" for none; and the facts that bind the call.
        """
        digest, binds, changed = "", None, "what would run now is not what was approved"
        try:
            digest, binds = await self.fingerprinter.fingerprint(bound_call)
        except SparError as error:
            changed = str(error)

        def use(row: Approval) -> Approval:
            if row.status != "approved":
                raise DecidedError(f"approval {row.id!r} cannot be used: it is {standing(row)}")
            if self.clock.now() >= row.expires_at:
                return moved(row, "expired")
            return moved(row, "used") if row.digest == digest else moved(row, "void", reason=changed)

        try:
            row = await self._rows.change(id, use)
        except (SparError, LookupError) as error:
            return "denied", str(error), None
        crashpoint("approval.used")
        self._follow(row, is_answer=False)
        if row.status == "expired":
            return "expired", f"approval {id!r} was not used within {self._expires:g} s of being given", None
        return ("", "", binds) if row.status == "used" else ("drift", f"{changed}: approval {id!r} is void", None)

    async def granted(self, session: str, digest: str, since: datetime | None) -> Grant | None:
        """Use a grant for exactly the call with this digest. Return it; None if there is none.

        Args: since: no grant from before this time counts.
        """
        await self.open()
        return await self._grants.use(session, digest, since)

    async def park(self, id: str) -> None:
        """Mark an approval whose cycle goes on without an answer and whose call is stored."""
        if not self._rows.values[id].is_parked:
            await self._rows.change(id, lambda row: replace(row, is_parked=True))

    def drop(self, id: str, reason: str) -> None:
        """Make an approval void as `withdraw` does, and write that later."""
        self._over.setdefault(id, reason)
        self._end(id)

    async def withdraw(self, reason: str, is_over: Callable[[Approval], bool]) -> None:
        """Make the approvals void whose calls will not run, unless they have ended. They take no decision any more; if
        the store does not take that now, it is tried again."""
        for row in filter(is_over, self.unsettled):
            self._over.setdefault(row.id, reason)
            await self._close(row.id)

    def known(self, id: str) -> Approval | None:
        """Return the row in memory, or None."""
        return self._rows.values.get(id)

    @property
    def unsettled(self) -> builtins.list[Approval]:
        """Return the rows whose calls may still run, and those whose end is not written yet."""
        return [row for row in self._rows.values.values() if row.status in ("pending", "approved")]

    # -- inside

    def _arm_row(self, row: Approval) -> None:
        """Start the timer of a row. A wall clock that was set back since then does not lengthen its time."""
        if row.status in ("pending", "approved") and row.id not in self._over:
            left = (row.expires_at - self.clock.now()).total_seconds()
            self._arm(row.id, min(left, self._expires))

    def _arm(self, id: str, seconds: float) -> None:
        """Start the timer of a question, in place of an earlier one."""
        self._disarm(id)
        at = self.clock.monotonic() + max(0.0, seconds)
        self._timers[id] = self.clock.call_at(at, partial(self._end, id))

    def _disarm(self, id: str) -> None:
        if (timer := self._timers.pop(id, None)) is not None:
            timer.cancel()

    def _end(self, id: str) -> None:
        """Write the end of a question now, in place of its timer."""
        self._disarm(id)
        self.tasks.start(self._close(id), "end of a question")

    def _follow(self, row: Approval, *, is_answer: bool = True) -> None:
        """Do what follows from a change of a row, here, in another process, or in a store that did not answer."""
        self._disarm(row.id)
        self._arm_row(row)
        if row.status != "pending":
            self._answered.set()
            if is_answer:
                self.on_answer(row)

    def _demand_pending(self, row: Approval, digest: str) -> None:
        """Check that a row takes a decision. Raises: DecidedError; DigestMismatchError for another call."""
        over = self._over.get(row.id)
        if over or row.status != "pending" or self.clock.now() >= row.expires_at:
            raise DecidedError(f"approval {row.id!r} takes no decision any more: {over or f'it is {standing(row)}'}")
        if row.digest != digest:
            raise DigestMismatchError(f"approval {row.id!r} is about another call: its digest is {row.digest[:12]}…")

    async def _close(self, id: str) -> None:
        """Write the end of a question: it is void if its call is over, else it has expired."""
        row, over = self.known(id), self._over.get(id)
        before = "" if row is None else row.status

        def ended(row: Approval) -> Approval:
            if over is not None:
                return moved(row, "void", reason=over)
            if row.status != before:
                raise DecidedError("it has been answered")
            return moved(row, "expired", decided_at=self.clock.now() if before == "pending" else row.decided_at)

        try:
            if row is not None:
                row = await self._rows.change(id, ended)
            elif over is not None:  # the store may have taken it without saying so
                await self._rows.drop(id)
        except (DecidedError, LookupError):  # it has come to its end already, or its row is lost
            row = None
        except Exception:  # the store fails: it takes no decision any more in any case
            self._answered.set()
            self._arm(id, _RETRY)
            return
        self._over.pop(id, None)
        if row is None:
            return
        self._follow(row, is_answer=over is None)
        if over is not None:
            self._tell_of(ApprovalResolved, row, decision="void", reason=over)
        elif before == "pending":
            self._tell_of(ApprovalExpired, row)

    def _tell_of(self, kind: Any, row: Approval, **fields: Any) -> None:
        self._tell(kind, call=row.call, cycle_id=row.cycle_id, run_id=row.run_id, **fields)
