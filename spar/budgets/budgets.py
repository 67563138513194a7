"""The budgets of one agent: reserve, use, settle; and what happens as they are used up.

What is wanted is reserved first, durably where it can be, and counts from then on; once it is known how much it was,
the rest comes back. What nobody says, because the process died or the other side did not tell, is counted in full:
budgets fail closed, and a crash loop cannot make them fresh. A call of a tool is the simple case, one of each, and is
reserved without a wait (`admit`); who asks a model reserves the most that it can cost:

    most = {"requests": 1, "tokens": 4_000, "money": 12_000}
    with await agent.budgets.reserve(most, cycle_id=context.cycle_id, what=model) as reservation:
        ...
        reservation.settle({"tokens": 1_500, "money": 4_100})

The figures are `spar.budgets.windows`' affair, what a measure does to its agent `spar.budgets.enforcement`'s. Used from
the event loop's thread; only `snapshot`, `ratios` and `refusals` from any.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from sys import maxsize
from typing import Any, Protocol

from spar.budgets.windows import LADDER, Account, Accounts, CallCharge
from spar.clock import Clock, Timer
from spar.events import BudgetExceeded, BudgetRenewed, BudgetWarned
from spar.failpoints import crashpoint
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

#: Seconds between two looks at the wall clock while a measure is in force; it may be set, and a machine may sleep.
_LOOK = 60.0


class SpendJournal(Protocol):
    """Journal of uses: told without a wait, on disk once `safe` has returned."""

    def spend(self, spends: Iterable[Spend], /) -> None: ...
    def safe(self) -> Awaitable[None]: ...


#: Told which measures are in force from now on, each with the reason.
Restrain = Callable[[Mapping[Measure, str]], object]


class Budgets:
    """See the module. Without limits nothing is counted, and nothing costs anything.

    Args: limits: by window and quantity; restrain: carries the measures out.
    """

    __slots__ = ("_accounts", "_clock", "_events", "_journal", "_measures", "_now", "_refused", "_restrain", "_timer",
                 "limits_calls", "limits_effects")  # fmt: skip

    def __init__(
        self, limits: Limits, clock: Clock, events: Publisher, restrain: Restrain = lambda measures: None
    ) -> None:
        self._accounts, self._clock, self._events, self._restrain = Accounts(limits), clock, events, restrain
        self._now = clock.now
        self._journal: SpendJournal | None = None
        self._measures = NO_MEASURES
        self._timer: Timer | None = None
        self._refused: dict[Quantity, int] = {}
        self._note_limits()

    # -- its life

    def open(self, journal: SpendJournal | None, spent: Iterable[Spend] = ()) -> None:
        """Go on from what was used so far, and keep uses in this journal. Idempotent."""
        self._journal = journal
        self._accounts.load(spent)
        self._turn(self._now())

    def close(self) -> None:
        """Look at the clock no more, until it is opened again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def apply(self, limits: Limits) -> None:
        """Have other limits from now on; what was used stays used."""
        if dict(limits) != self._accounts.limits:
            self._turned(self._accounts.limit(limits, self._now()))
            self._note_limits()

    def _note_limits(self) -> None:
        quantities = {quantity for _, quantity in self._accounts.limits}
        #: Whether it matters what effect a call has, and whether calls are counted at all.
        self.limits_effects = "effects" in quantities
        self.limits_calls = self.limits_effects or "calls" in quantities

    # -- calls of tools

    def admit(self, cycle: str, *, is_effect: bool) -> CallCharge | None:
        """Reserve one call, of this cycle; None when there is none left. Tells nobody."""
        charge = self._charge(cycle, is_effect)
        for account in charge.accounts:
            if account.used >= account.limit:
                return None
        self._take(charge)
        return charge

    def demand(self, cycle: str, *, is_effect: bool, what: str = "") -> CallCharge | BudgetRefusal:
        """Reserve one call of this cycle; when there is none left, that is counted and told (of `what`)."""
        charge = self._charge(cycle, is_effect)
        short = {account: 1 for account in charge.accounts if account.used >= account.limit}
        if short:
            return self._refuse(short, cycle, what)
        self._take(charge)
        return charge

    def insist(self, cycle: str, *, is_effect: bool) -> CallCharge:
        """Reserve one call, whatever is left: people have approved it."""
        charge = self._charge(cycle, is_effect)
        self._take(charge)
        return charge

    def use(self, charge: CallCharge) -> None:
        """The call that this was reserved for begins: keep that, together with what is told of it in this turn."""
        if charge.spends and self._journal is not None:
            self._journal.spend(charge.spends)

    def release(self, charge: CallCharge) -> None:
        """Give a call back that was reserved and never began."""
        for account in charge.accounts:
            account.used -= 1
            self._judge(account)

    def _charge(self, cycle: str, is_effect: bool) -> CallCharge:
        ledger = self._accounts
        if not ledger.starts_at <= (now := self._now()) < ledger.ends_at:
            self._turn(now)
        return ledger.charge(cycle, is_effect=is_effect)

    def _take(self, charge: CallCharge) -> None:
        for account in charge.accounts:
            account.used = used = account.used + 1
            if used >= account.next_at:
                self._judge(account)

    # -- requests to models, and whatever else is known only afterwards

    async def reserve(
        self, amounts: Mapping[Quantity, int | None], *, cycle_id: str = "", what: str = ""
    ) -> Reservation:
        """Reserve the most that something can take; on disk when this returns.

        Args: amounts: None where nobody knows how much, which only a quantity without limits allows; what: the name of
            the model, or whatever it is for, for those who are told that there is not enough.
        Raises: BudgetError when there is not enough left, ValueError for an amount that is none, what the journal
            raises when it cannot be kept: it must not be used then, and nothing is reserved.
        """
        parts = self._reserve(amounts, cycle_id, what)
        spends = [Spend(each.window, each.quantity, amount) for each, amount in parts if each.ends_at is not None]
        if spends and self._journal is not None:
            self._journal.spend(spends)
            try:
                await self._journal.safe()
            except BaseException:
                # Whether the journal will still write it is not known: what it keeps may be too much, never too little.
                self._settle(parts, NOTHING)
                raise
        crashpoint("budget.reserved")
        return Reservation(self, parts)

    def _reserve(
        self, amounts: Mapping[Quantity, int | None], cycle: str, what: str
    ) -> tuple[tuple[Account, int], ...]:
        for quantity, asked in amounts.items():
            if quantity not in QUANTITIES:
                raise ValueError(f"no budget for {quantity!r}; known: {', '.join(QUANTITIES)}")
            if asked is not None and (type(asked) is not int or not 0 <= asked <= MOST):
                raise ValueError(f"{quantity} is {asked!r:.50}, expected a whole number from 0 to {MOST} or None")
        now = self._now()
        if not self._accounts.starts_at <= now < self._accounts.ends_at:
            self._turn(now)
        wanted = {
            account: asked for quantity, asked in amounts.items() for account in self._accounts.of(quantity, cycle)
        }
        short = {
            account: asked
            for account, asked in wanted.items()
            if asked is None or (asked and account.used + asked > account.limit)
        }
        if short:
            refusal = self._refuse(short, cycle, what)
            wait = None if refusal.ends_at is None else max(0.0, (refusal.ends_at - now).total_seconds())
            raise BudgetError(refusal, wait)
        parts = tuple((account, asked) for account, asked in wanted.items() if asked)
        for account, amount in parts:
            account.used += amount
            account.held += amount
        return parts

    def settled(self, parts: Iterable[tuple[Account, int]], used: Mapping[Quantity, Any]) -> None:
        """Settle the reserved `parts` with the amounts used; a missing or unusable amount counts in full."""
        spends = self._settle(parts, used)
        if spends and self._journal is not None:
            self._journal.spend(spends)

    def _settle(self, parts: Iterable[tuple[Account, int]], used: Mapping[Quantity, Any]) -> list[Spend]:
        """Count what was taken instead of what was reserved; the differences, as far as they are kept."""
        differences = []
        for account, amount in parts:
            found = used.get(account.quantity)
            took = min(found, MOST) if type(found) is int and found >= 0 else amount
            account.held -= amount
            account.used += took - amount
            if took != amount and account.ends_at is not None:
                differences.append(Spend(account.window, account.quantity, took - amount))
            self._judge(account)
        return differences

    # -- how far it is used

    def snapshot(self) -> list[dict[str, Any]]:
        """Each budget: its name, `used` of `limit` (money in millionths), the `ratio`, how often it `refused`."""
        return [
            {"budget": each.budget, "used": each.used, "limit": each.limit, "ratio": round(each.ratio, 4),
             "refused": each.refused, "ends_at": each.ends_at}
            for each in self._accounts.look(self._now())
        ]  # fmt: skip

    def ratios(self) -> list[tuple[Quantity, str, float]]:
        """Quantity, kind of window, share of the limit that is used."""
        return [(each.quantity, each.budget.partition(".")[0], each.ratio) for each in self._accounts.look(self._now())]

    def refusals(self) -> dict[Quantity, int]:
        """Return how often there was not enough of each limited quantity."""
        limited = {quantity for _, quantity in list(self._accounts.limits)}
        return {quantity: self._refused.get(quantity, 0) for quantity in QUANTITIES if quantity in limited}

    @property
    def is_slow(self) -> bool:
        """Return whether the agent is to take its time."""
        return "slow" in self._measures

    def paced(self, wait: float | None, slowest: float) -> float | None:
        """The wait before the next cycle (seconds; None: until something comes): the slowest while so much is used."""
        return max(wait, slowest) if wait is not None and "slow" in self._measures else wait

    # -- inside

    def _refuse(self, short: Mapping[Account, int | None], cycle: str, what: str) -> BudgetRefusal:
        """Count and tell what there is not enough of; of several that which lasts longest."""
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
        self._judge(account)
        return refusal

    def _judge(self, account: Account) -> None:
        """See how far up the ladder this account is, and act on what has changed."""
        before, account.rung = account.rung, account.reached
        account.next_at = account.marks[account.rung] if account.rung < len(account.marks) else maxsize
        if account.rung == before or account not in self._accounts.current:
            return
        for measure in LADDER[account.quantity][before : account.rung]:
            self._events.publish(BudgetWarned(budget=account.budget, used=account.used, limit=account.limit,
                                              measure=measure, ends_at=account.ends_at))  # fmt: skip
        if not account.rung:
            self._events.publish(BudgetRenewed(budget=account.budget))
        self._restrained()

    def _turn(self, now: datetime) -> None:
        self._turned(self._accounts.turn(now))

    def _turned(self, gone: Iterable[Account]) -> None:
        """Other accounts count now: what those that are gone had led to ends, unless others lead to it."""
        for account in gone:
            if account.rung:
                account.rung = 0
                self._events.publish(BudgetRenewed(budget=account.budget))
        for account in self._accounts.current:
            self._judge(account)
        self._restrained()

    def _restrained(self) -> None:
        """Have in force what the accounts as they are lead to."""
        measures: dict[Measure, str] = {}
        for account in self._accounts.current:
            for measure in LADDER[account.quantity][: account.rung]:
                measures.setdefault(measure, _reason(account))
        if measures.keys() != self._measures.keys():
            self._measures = measures
            self._restrain(measures)
        self._look_later()

    def _look_later(self) -> None:
        """Have a measure end with the window that led to it, also if nobody asks for anything meanwhile."""
        ends = [each.ends_at for each in self._accounts.current if each.rung and each.ends_at is not None]
        if self._timer is None and ends:
            left = (min(ends) - self._now()).total_seconds()
            self._timer = self._clock.call_at(self._clock.monotonic() + min(max(left, 0.01), _LOOK), self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._accounts.starts_at <= (now := self._now()) < self._accounts.ends_at:
            self._turn(now)
        self._look_later()


def _reason(account: Account) -> str:
    shown = micro if account.quantity == "money" else str
    return f"budget {account.budget}: {shown(account.used)} of {shown(account.limit)} used"


class Reservation:
    """Reserved amounts; settled once: by `settle`, by `cancel`, or in full by leaving the block without either."""

    __slots__ = ("_budgets", "_parts")

    def __init__(self, budgets: Budgets, parts: tuple[tuple[Account, int], ...]) -> None:
        self._budgets, self._parts = budgets, parts

    def settle(self, used: Mapping[Quantity, int | None] | None = None) -> None:
        """It took this much, in all; what is left out took all that was reserved. What comes later changes nothing."""
        parts, self._parts = self._parts, ()
        self._budgets.settled(parts, used or {})

    def cancel(self) -> None:
        """It was never used."""
        self.settle(NOTHING)

    def __enter__(self) -> Reservation:
        return self

    def __exit__(self, *exc: object) -> None:
        self.settle()
