"""Budgets of one agent: reserve, use and settle amounts, and apply measures as budgets are used up.

An amount is reserved first, durably where possible, and counts from then on. Once the real amount is known, the
difference is returned. An amount that stays unknown, because the process died or the other side did not state it,
counts in full: budgets fail closed, and a crash loop cannot renew them. A call of a tool is the simple case, one of
each, and is reserved without waiting (`demand`). A caller that asks a model reserves the most that it can cost:

    most = {"requests": 1, "tokens": 4_000, "money": 12_000}
    with await agent.budgets.reserve(most, cycle_id=context.cycle_id, what=model) as reservation:
        ...
        reservation.settle({"tokens": 1_500, "money": 4_100})

Where other processes use up the same budgets, each reservation is on disk before it is held against the sum of all:
together they never use more. Calls are held against the sum of a second ago.

`spar.budgets.windows` computes the figures, `spar.budgets.enforcement` carries out the measures. Use it from the event
loop's thread; only `snapshot`, `ratios` and `refusals` are safe from any thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from sys import maxsize
from typing import Any, Protocol

from spar.budgets.windows import LADDER, Account, Accounts, CallCharge
from spar.clock import Clock, Timer
from spar.events import BudgetExceeded, BudgetRenewed, BudgetWarned
from spar.facts import BudgetUsed
from spar.failpoints import armed, crashpoint
from spar.ports.budgets import (
    MOST,
    NO_MEASURES,
    NOTHING,
    QUANTITIES,
    BudgetError,
    BudgetRefusal,
    Limits,
    Measure,
    Quantity,
    micro,
)
from spar.protocols import Publisher
from spar.records.journal import Spend

#: Seconds between two readings of the wall clock while a measure applies: it may be set, and a machine may sleep.
_LOOK = 60.0
#: Seconds after which the use by other processes is read again.
_READ_EVERY = 1.0


class SpendJournal(Protocol):
    """Journal of uses: `spend` does not wait; the uses are on disk once `safe` has returned."""

    def append(self, fact: BudgetUsed) -> None: ...
    def safe(self) -> Awaitable[None]: ...


#: Function that gets the measures that apply from now on, each with its reason.
Restrain = Callable[[Mapping[Measure, str]], object]


class Budgets:
    """Budgets of one agent; the module's docstring explains them. Without limits nothing is counted, at no cost.

    Args: limits: by window and quantity; restrain: carries out the measures.
    """

    __slots__ = ("_accounts", "_clock", "_events", "_journal", "_measures", "_now", "_read", "_read_at",
                 "_refresh_later", "_refused", "_restrain", "_timer", "limits_calls", "limits_effects")  # fmt: skip

    def __init__(
        self, limits: Limits, clock: Clock, events: Publisher, restrain: Restrain = lambda measures: None
    ) -> None:
        self._note_limits(limits)
        self._accounts, self._clock, self._events, self._restrain = Accounts(limits), clock, events, restrain
        self._now = clock.now
        self._read: Callable[[], Awaitable[Iterable[Spend]]] | None = None
        self._refresh_later: Callable[[], object] = lambda: None
        self._read_at = 0.0
        self._measures = NO_MEASURES
        self._timer: Timer | None = None
        self._refused: dict[Quantity, int] = {}

    # -- opening and closing

    def open(self, journal: SpendJournal, spent: Iterable[Spend] = (),
             read: Callable[[], Awaitable[Iterable[Spend]]] | None = None,
             refresh_later: Callable[[], object] = lambda: None) -> None:  # fmt: skip
        """Continue from the amounts used so far, and record uses in this journal. Idempotent.

        Args: read: returns what all processes together have used, None if no other uses these budgets; refresh_later:
            has `refresh` called soon.
        """
        self._journal, self._read, self._refresh_later = journal, read, refresh_later
        self._accounts.load(spent)
        self._change_hour(self._now())

    def close(self) -> None:
        """Stop reading the clock until the next `open`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def apply(self, limits: Limits) -> None:
        """Replace the limits; used amounts stay used."""
        if dict(limits) != self._accounts.limits:
            self._update_measures(self._accounts.limit(limits, self._now()))
            self._note_limits(limits)

    def _note_limits(self, limits: Limits) -> None:
        quantities = {quantity for _, quantity in limits}
        #: Whether calls with an effect are limited, and whether calls are counted at all.
        self.limits_effects = "effects" in quantities
        self.limits_calls = self.limits_effects or "calls" in quantities

    async def refresh(self) -> None:
        """Take over what other processes have used meanwhile. Raises: errors of the journal."""
        await self._refresh()
        for account in self._accounts.current:
            self._update_rung(account)

    async def _refresh(self) -> dict[Account, int]:
        """Take over what other processes have used; return what all have reserved or used together."""
        if self._read is None:
            return {}
        before = {account: account.used for account in self._accounts.current}
        self._read_at = self._clock.monotonic()
        return self._accounts.refresh(await self._read(), before)

    # -- calls of tools

    def demand(self, cycle: str, *, is_effect: bool, what: str = "") -> CallCharge | BudgetRefusal:
        """Reserve one call of this cycle; when none is left, count, publish and return a refusal (of `what`)."""
        if self._read is not None and self._clock.monotonic() - self._read_at >= _READ_EVERY:
            self._read_at = self._clock.monotonic()
            self._refresh_later()
        charge = self._charge(cycle, is_effect)
        short = {account: 1 for account in charge.accounts if account.used >= account.limit}
        if short:
            return self._refuse(short, cycle, what)
        self._count(charge)
        return charge

    def insist(self, cycle: str, *, is_effect: bool) -> CallCharge:
        """Reserve one call even if none is left: people have approved it."""
        charge = self._charge(cycle, is_effect)
        self._count(charge)
        return charge

    def use(self, charge: CallCharge) -> None:
        """Record the beginning of a reserved call, in the transaction of the journal's other writes of this step."""
        if charge.spends:
            self._journal.append(BudgetUsed(spends=charge.spends))

    def release(self, charge: CallCharge) -> None:
        """Undo the reservation of a call that never began."""
        for account in charge.accounts:
            account.used -= 1
            self._update_rung(account)

    def _charge(self, cycle: str, is_effect: bool) -> CallCharge:
        accounts = self._accounts
        if not accounts.starts_at <= (now := self._now()) < accounts.ends_at:
            self._change_hour(now)
        return accounts.charge(cycle, is_effect=is_effect)

    def _count(self, charge: CallCharge) -> None:
        for account in charge.accounts:
            account.used = used = account.used + 1
            if used >= account.next_at:
                self._update_rung(account)

    # -- requests to models, and other uses whose amount is known only afterwards

    async def reserve(
        self, amounts: Mapping[Quantity, int | None], *, cycle_id: str = "", what: str = ""
    ) -> Reservation:
        """Reserve the most that a request can use; on disk when this returns.

        Args: amounts: None for an unknown amount, which only a quantity without limits allows; what: the name of the
            model, or another name of the use, for events about a refusal.
        Raises: BudgetError when there is not enough left, ValueError for an invalid amount, the journal's error when it
            cannot be recorded: then nothing is reserved, and the amount must not be used.
        """
        if self._read is not None:
            await self.refresh()  # what they have returned can be used again
        parts = self._reserve(amounts, cycle_id, what)
        spends = [Spend(item.window, item.quantity, amount) for item, amount in parts if item.ends_at is not None]
        if spends:
            self._journal.append(BudgetUsed(spends=tuple(spends)))
            try:
                await self._journal.safe()
            except BaseException:
                # The journal may still write it: then it records too much, never too little.
                self._settle(parts, NOTHING)
                raise
        if self._read is not None:
            await self._hold_against_all(parts, cycle_id, what)
        if armed:
            crashpoint("budget.reserved")
        return Reservation(self, parts)

    def _reserve(
        self, amounts: Mapping[Quantity, int | None], cycle: str, what: str
    ) -> tuple[tuple[Account, int], ...]:
        for quantity, amount in amounts.items():
            if quantity not in QUANTITIES:
                raise ValueError(f"no budget for {quantity!r}; known: {', '.join(QUANTITIES)}")
            if amount is not None and (type(amount) is not int or not 0 <= amount <= MOST):
                raise ValueError(f"{quantity} is {amount!r:.50}, expected a whole number from 0 to {MOST} or None")
        now = self._now()
        if not self._accounts.starts_at <= now < self._accounts.ends_at:
            self._change_hour(now)
        wanted = {
            account: amount for quantity, amount in amounts.items() for account in self._accounts.of(quantity, cycle)
        }
        short = {
            account: amount
            for account, amount in wanted.items()
            if amount is None or (amount and account.used + amount > account.limit)
        }
        if short:
            raise self._error(short, cycle, what)
        parts = tuple((account, amount) for account, amount in wanted.items() if amount)
        for account, amount in parts:
            account.used += amount
            account.held += amount
        return parts

    async def _hold_against_all(self, parts: tuple[tuple[Account, int], ...], cycle: str, what: str) -> None:
        """Undo a reservation that is on disk if all processes together have reserved too much.

        Raises: BudgetError then; errors of the journal.
        """
        try:
            uses = await self._refresh()
        except BaseException:
            self.settled(parts, NOTHING)
            raise
        if short := {account: amount for account, amount in parts if uses.get(account, 0) > account.limit}:
            self.settled(parts, NOTHING)
            raise self._error(short, cycle, what)

    def settled(self, parts: Iterable[tuple[Account, int]], used: Mapping[Quantity, Any]) -> None:
        """Settle the reserved `parts` with the amounts used; a missing or unusable amount counts in full."""
        spends = self._settle(parts, used)
        if spends:
            self._journal.append(BudgetUsed(spends=tuple(spends)))

    def _settle(self, parts: Iterable[tuple[Account, int]], used: Mapping[Quantity, Any]) -> list[Spend]:
        """Count the used amounts in place of the reserved ones; return the differences that the journal must record."""
        differences = []
        for account, amount in parts:
            amount_used = used.get(account.quantity)
            actual = min(amount_used, MOST) if type(amount_used) is int and amount_used >= 0 else amount
            account.held -= amount
            account.used += actual - amount
            if actual != amount and account.ends_at is not None:
                differences.append(Spend(account.window, account.quantity, actual - amount))
            self._update_rung(account)
        return differences

    # -- figures

    def snapshot(self) -> list[dict[str, Any]]:
        """Return for each budget its name, `used` of `limit` (money in millionths), `ratio`, and number of refusals."""
        return [
            {"budget": account.budget, "used": account.used, "limit": account.limit, "ratio": round(account.ratio, 4),
             "refused": account.refused, "ends_at": account.ends_at}
            for account in self._accounts.look(self._now())
        ]  # fmt: skip

    def ratios(self) -> list[tuple[Quantity, str, float]]:
        """Return quantity, kind of window and used share of the limit, for each budget."""
        return [(item.quantity, item.budget.partition(".")[0], item.ratio) for item in self._accounts.look(self._now())]

    def refusals(self) -> dict[Quantity, int]:
        """Return the number of refusals for each limited quantity."""
        limited = {quantity for _, quantity in list(self._accounts.limits)}
        return {quantity: self._refused.get(quantity, 0) for quantity in QUANTITIES if quantity in limited}

    # -- inside

    def _error(self, short: Mapping[Account, int | None], cycle: str, what: str) -> BudgetError:
        refusal = self._refuse(short, cycle, what)
        wait = None if refusal.ends_at is None else max(0.0, (refusal.ends_at - self._now()).total_seconds())
        return BudgetError(refusal, wait)

    def _refuse(self, short: Mapping[Account, int | None], cycle: str, what: str) -> BudgetRefusal:
        """Count and publish a refusal; of several budgets, name the one whose window lasts longest."""
        account = next(iter(short))
        for other in short:
            if account.ends_at is None or (other.ends_at is not None and other.ends_at > account.ends_at):
                account = other
        refusal = BudgetRefusal(account.budget, account.used, account.limit, short[account], account.ends_at)
        self._refused[account.quantity] = self._refused.get(account.quantity, 0) + 1
        account.refused += 1
        self._events.publish(BudgetExceeded(budget=account.budget, used=account.used, limit=account.limit,
                                            asked=short[account], ends_at=account.ends_at, what=what,
                                            cycle_id=cycle))  # fmt: skip
        self._update_rung(account)
        return refusal

    def _update_rung(self, account: Account) -> None:
        """Compute how many marks this account has reached, and publish and apply the change."""
        before, account.rung = account.rung, account.reached
        account.next_at = account.marks[account.rung] if account.rung < len(account.marks) else maxsize
        if account.rung == before or account not in self._accounts.current:
            return
        for measure in LADDER[account.quantity][before : account.rung]:
            self._events.publish(BudgetWarned(budget=account.budget, used=account.used, limit=account.limit,
                                              measure=measure, ends_at=account.ends_at))  # fmt: skip
        if not account.rung:
            self._events.publish(BudgetRenewed(budget=account.budget))
        self._apply_measures()

    def _change_hour(self, now: datetime) -> None:
        self._update_measures(self._accounts.turn(now))

    def _update_measures(self, former: Iterable[Account]) -> None:
        """End the measures of accounts that do not count any more, and apply those of the current accounts."""
        for account in former:
            if account.rung:
                account.rung = 0
                self._events.publish(BudgetRenewed(budget=account.budget))
        for account in self._accounts.current:
            self._update_rung(account)
        self._apply_measures()

    def _apply_measures(self) -> None:
        """Apply the measures that follow from the current accounts."""
        measures: dict[Measure, str] = {}
        for account in self._accounts.current:
            for measure in LADDER[account.quantity][: account.rung]:
                measures.setdefault(measure, _reason(account))
        if measures.keys() != self._measures.keys():
            self._measures = measures
            self._restrain(measures)
        self._look_later()

    def _look_later(self) -> None:
        """Set a timer for the end of a measure's window, because no use may come in the meantime."""
        ends = [account.ends_at for account in self._accounts.current if account.rung and account.ends_at is not None]
        if self._timer is None and ends:
            seconds_left = (min(ends) - self._now()).total_seconds()
            look = _LOOK if self._read is None else _READ_EVERY
            self._timer = self._clock.call_at(self._clock.monotonic() + min(max(seconds_left, 0.01), look), self._look)

    def _look(self) -> None:
        self._timer = None
        if self._read is not None:
            self._refresh_later()
        if not self._accounts.starts_at <= (now := self._now()) < self._accounts.ends_at:
            self._change_hour(now)
        self._look_later()


def _reason(account: Account) -> str:
    format_amount = micro if account.quantity == "money" else str
    return f"budget {account.budget}: {format_amount(account.used)} of {format_amount(account.limit)} used"


class Reservation:
    """Reserved amounts; settled once: by `settle`, by `cancel`, or in full at the end of the `with` block."""

    __slots__ = ("_budgets", "_parts")

    def __init__(self, budgets: Budgets, parts: tuple[tuple[Account, int], ...]) -> None:
        self._budgets, self._parts = budgets, parts

    def settle(self, used: Mapping[Quantity, int | None] | None = None) -> None:
        """Settle with the amounts used in all; a missing amount counts in full. Later calls change nothing."""
        parts, self._parts = self._parts, ()
        self._budgets.settled(parts, used or {})

    def cancel(self) -> None:
        """Undo the reservation: nothing was used."""
        self.settle(NOTHING)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *exc: object) -> None:
        self.settle()
