"""Budgets as pure figures: windows of the calendar, what was used in each, and how far up the ladder that leads.

An account counts one quantity in one window. Windows go by the UTC calendar and are known by their names
(`hour:2026-11-21T18`), so a clock that is set back goes on in the account of that time and one that is set forward
leaves it as it was: no move of the clock makes a used budget fresh. Who asks, who is told and what is kept on disk is
the affair of `spar.budgets.budgets`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from sys import maxsize
from typing import Final

from spar.data.bounded import BoundedDict
from spar.ports.budgets import QUANTITIES, Limits, Measure, Quantity, Window
from spar.records.journal import Spend

#: Windows that last over cycles, the longest first: what is named of a refusal is what lets one wait longest.
LASTING: Final[tuple[Window, ...]] = ("month", "day", "hour")
#: Of a limit, in percent: where an agent is warned, where nothing is left, where something must be wrong.
MARKS: Final = (80, 100, 120)
#: What happens at each of these marks. At the second the agent goes on as far as it can without what is used up:
#: without models by its rules, without calls by asking people for each.
LADDER: Final[Mapping[Quantity, tuple[Measure, Measure, Measure]]] = {
    "calls": ("slow", "ask", "pause"),
    "effects": ("slow", "ask", "pause"),
    "requests": ("slow", "degrade", "pause"),
    "tokens": ("slow", "degrade", "pause"),
    "money": ("slow", "degrade", "pause"),
}
#: Refusals in one window after which the last mark counts as reached: whoever asks so often does not notice.
MOST_REFUSALS: Final = 20
#: Accounts of windows that are over and still remembered, in case the clock should come back to them.
_MOST_PAST: Final = 1_000
_MOST_CYCLES: Final = 1_000
#: One for all agents without limits.
_NONE: Final[Mapping[Quantity, tuple[Account, ...]]] = {}


def span(window: Window, now: datetime) -> tuple[datetime, datetime]:
    """From when until before when the window lasts that `now` (UTC) falls in."""
    start = now.replace(minute=0, second=0, microsecond=0)
    if window == "hour":
        return start, start + timedelta(hours=1)
    start = start.replace(hour=0)
    if window == "day":
        return start, start + timedelta(days=1)
    start = start.replace(day=1)
    return start, (start + timedelta(days=31)).replace(day=1)


def name_of(window: Window, start: datetime) -> str:
    """The name of the window that starts then; names of one kind sort by time."""
    return f"{window}:{start.isoformat()[: {'hour': 13, 'day': 10}.get(window, 7)]}"


class Account:
    """Use of one quantity in one window. `held` is the part that is reserved and may turn out to be less.

    `rung` counts the marks that were reached and acted on, `next_at` is the use at which that must be looked at again.
    """

    __slots__ = ("budget", "ends_at", "held", "limit", "marks", "next_at", "one", "quantity", "refused", "rung",
                 "used", "window")  # fmt: skip

    def __init__(self, window: Window, name: str, quantity: Quantity, limit: int, ends_at: datetime | None) -> None:
        self.window, self.quantity, self.ends_at = name, quantity, ends_at
        self.budget = f"{window}.{quantity}"
        self.used = self.held = self.refused = self.rung = 0
        self.one: Spend | None = None if ends_at is None else Spend(name, quantity, 1)
        self.allow(limit)

    def allow(self, limit: int) -> None:
        """Have this limit from now on."""
        self.limit = limit
        # A limit of 0 forbids, and a cycle is over soon: neither is a reason to treat the agent differently.
        is_to_climb = limit and self.ends_at is not None
        self.marks = tuple(-(-limit * percent // 100) for percent in MARKS) if is_to_climb else ()
        self.next_at = self.marks[0] if self.marks else maxsize

    @property
    def reached(self) -> int:
        """Number of marks that the use so far has reached, without what is only reserved: most of it comes back."""
        settled = self.used - self.held
        found = sum(settled >= mark for mark in self.marks)
        if found and self.refused:  # what is left is too little for what is asked for
            found = max(found, 3 if self.refused >= MOST_REFUSALS else 2)
        return found

    @property
    def ratio(self) -> float:
        """The share of the limit that is used, from 0; of a limit of 0 everything is."""
        return self.used / self.limit if self.limit else 1.0


class CallCharge:
    """Charge of one call: one of each of these accounts; `spends` are those of the lasting accounts."""

    __slots__ = ("accounts", "is_effect", "spends")

    def __init__(self, accounts: tuple[Account, ...], *, is_effect: bool) -> None:
        self.accounts, self.is_effect = accounts, is_effect
        self.spends = tuple(account.one for account in accounts if account.one is not None)


class _Cycle:
    """The accounts of one cycle, and its two charges as long as the hour lasts."""

    __slots__ = ("accounts", "charges")

    def __init__(self, accounts: dict[Quantity, Account]) -> None:
        self.accounts = accounts
        self.charges: list[CallCharge | None] = [None, None]


class Accounts:
    """The accounts of one agent. Times are aware and UTC; nothing here waits, tells or asks for the time."""

    __slots__ = ("_by_quantity", "_cycles", "_known", "_used", "current", "ends_at", "limits", "starts_at")

    def __init__(self, limits: Limits) -> None:
        self.limits = dict(limits)
        self.starts_at = self.ends_at = datetime.min.replace(tzinfo=UTC)  # of the hour that is accounted for: none yet
        self.current: tuple[Account, ...] = ()
        self._by_quantity: Mapping[Quantity, tuple[Account, ...]] = _NONE
        self._known: dict[tuple[str, str], Account] = {}  # the lasting ones, in the order of their first use
        self._used: dict[tuple[str, str], int] = {}  # of windows before this process
        self._cycles: BoundedDict[str, _Cycle] | None = None  # made with the first one

    def load(self, spent: Iterable[Spend]) -> None:
        """Take over what was used, as it was kept; what is known to be more stays."""
        for each in spent:
            key, used = (each.window, each.quantity), max(0, each.amount)
            if (account := self._known.get(key)) is not None:
                account.used = max(account.used, used)
            else:
                self._used[key] = used

    def turn(self, now: datetime) -> list[Account]:
        """Have the accounts of this moment as the current ones; returns those that are not any more."""
        before = self.current
        self.starts_at, self.ends_at = span("hour", now)
        found = [self._account(window, quantity, now) for quantity in QUANTITIES for window in LASTING
                 if (window, quantity) in self.limits]  # fmt: skip
        of_quantity = {each.quantity: tuple(other for other in found if other.quantity == each.quantity)
                       for each in found}  # fmt: skip
        self._by_quantity = of_quantity or _NONE
        for cycle in (self._cycles or {}).values():
            cycle.charges = [None, None]
        self.current = tuple(found)
        past = [key for key, account in self._known.items() if account not in found]
        for key in past[: max(0, len(past) - _MOST_PAST)]:
            del self._known[key]
        return [account for account in before if account not in found]

    def limit(self, limits: Limits, now: datetime) -> list[Account]:
        """Have other limits from now on; what was used stays. Returns the accounts that are none any more."""
        self.limits = dict(limits)
        for account in self._known.values():
            if (limit := self.limits.get(_key(account))) is not None:
                account.allow(limit)
        self._cycles = None
        return self.turn(now)

    def charge(self, cycle: str, *, is_effect: bool) -> CallCharge:
        """Return the charge of a call of this cycle now."""
        entry = self._cycle(cycle)
        charge = entry.charges[is_effect]
        if charge is None:
            quantities: tuple[Quantity, ...] = ("effects", "calls") if is_effect else ("calls",)
            accounts = tuple(account for quantity in quantities for account in self.of(quantity, cycle))
            charge = entry.charges[is_effect] = CallCharge(accounts, is_effect=is_effect)
        return charge

    def of(self, quantity: Quantity, cycle: str) -> Iterator[Account]:
        """The accounts that a quantity is counted in, the longest window first."""
        yield from self._by_quantity.get(quantity, ())
        if ("cycle", quantity) in self.limits and (account := self._cycle(cycle).accounts.get(quantity)):
            yield account

    def look(self, now: datetime) -> list[Account]:
        """The accounts of this moment and of the last cycle, without a change to anything: from any thread."""
        last = next(reversed(list((self._cycles or {}).values())), None)
        found: list[Account] = []
        for (window, quantity), limit in list(self.limits.items()):
            if window == "cycle":
                shown = last.accounts.get(quantity) if last is not None else None
                found.append(shown or Account(window, window, quantity, limit, None))
                continue
            start, end = span(window, now)
            name = name_of(window, start)
            known = self._known.get((name, quantity))
            if known is None:
                known = Account(window, name, quantity, limit, end)
                known.used = self._used.get((name, quantity), 0)
            found.append(known)
        return found

    def _account(self, window: Window, quantity: Quantity, now: datetime) -> Account:
        start, end = span(window, now)
        key = (name_of(window, start), quantity)
        account = self._known.get(key)
        if account is None:
            account = self._known[key] = Account(window, key[0], quantity, self.limits[window, quantity], end)
            account.used = self._used.get(key, 0)
        return account

    def _cycle(self, cycle: str) -> _Cycle:
        if self._cycles is None:
            self._cycles = BoundedDict(_MOST_CYCLES)
        entry = self._cycles.get(cycle)
        if entry is None:
            entry = self._cycles[cycle] = _Cycle({
                quantity: Account(window, f"cycle:{cycle}", quantity, limit, None)
                for (window, quantity), limit in self.limits.items() if window == "cycle"
            })  # fmt: skip
        return entry


def _key(account: Account) -> tuple[Window, Quantity]:
    window: Window = account.window.partition(":")[0]  # type: ignore[assignment]
    return window, account.quantity
