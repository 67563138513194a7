"""Budgets as pure figures: windows of the calendar, the use in each, and the marks that it reaches.

An account counts one quantity in one window. Windows follow the UTC calendar and are identified by their names
(`hour:2026-11-21T18`), so a clock that is set back continues in the account of that time and one that is set forward
leaves it unchanged: no change of the clock renews a used budget. `spar.budgets.budgets` handles requests, events and
storage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from sys import maxsize
from typing import Final, NamedTuple

from spar.data.bounded import BoundedDict
from spar.ports.budgets import QUANTITIES, Limits, Measure, Quantity, Window
from spar.records.journal import Spend

#: Windows that are longer than a cycle, the longest first: a refusal names the budget with the longest wait.
LASTING: Final[tuple[Window, ...]] = ("month", "day", "hour")
#: Marks in percent of a limit: warning, nothing left, something must be wrong.
MARKS: Final = (80, 100, 120)
#: Measure at each of these marks. At the second one the agent continues without the exhausted quantity: without models
#: by its rules, without calls by asking people for each.
LADDER: Final[Mapping[Quantity, tuple[Measure, Measure, Measure]]] = {
    "calls": ("slow", "ask", "pause"),
    "effects": ("slow", "ask", "pause"),
    "requests": ("slow", "degrade", "pause"),
    "tokens": ("slow", "degrade", "pause"),
    "cached_tokens": ("slow", "degrade", "pause"),
    "money": ("slow", "degrade", "pause"),
}
#: Refusals in one window after which the last mark counts as reached: a caller that asks so often ignores refusals.
MOST_REFUSALS: Final = 20
#: Most accounts of past windows that are remembered, in case the clock returns to them.
_MOST_PAST: Final = 1_000
_MOST_CYCLES: Final = 1_000
#: Shared by all agents without limits.
_NONE: Final[Mapping[Quantity, tuple[Account, ...]]] = {}


def span(window: Window, now: datetime) -> tuple[datetime, datetime]:
    """Return start and end of the window that contains `now` (UTC); the end is exclusive."""
    start = now.replace(minute=0, second=0, microsecond=0)
    if window == "hour":
        return start, start + timedelta(hours=1)
    start = start.replace(hour=0)
    if window == "day":
        return start, start + timedelta(days=1)
    start = start.replace(day=1)
    return start, (start + timedelta(days=31)).replace(day=1)


def name_of(window: Window, start: datetime) -> str:
    """Return the name of the window that begins at `start`; names of one kind sort by time."""
    return f"{window}:{start.isoformat()[: {'hour': 13, 'day': 10}.get(window, 7)]}"


class Account:
    """Use of one quantity in one window. `held` is the reserved part, which may turn out to be less.

    `rung` counts the reached marks that were acted on, `next_at` is the use at which the marks must be checked again.
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
        """Replace the limit."""
        self.limit = limit
        # A limit of 0 forbids, and a cycle ends soon: neither leads to measures.
        has_marks = limit and self.ends_at is not None
        self.marks = tuple(-(-limit * percent // 100) for percent in MARKS) if has_marks else ()
        self.next_at = self.marks[0] if self.marks else maxsize

    @property
    def reached(self) -> int:
        """Return the number of marks that the use has reached, without reservations: most of these are returned."""
        settled = self.used - self.held
        number = sum(settled >= mark for mark in self.marks)
        if number and self.refused:  # the rest is too small for the requests
            number = max(number, 3 if self.refused >= MOST_REFUSALS else 2)
        return number

    @property
    def ratio(self) -> float:
        """Return the used share of the limit, from 0; 1 for a limit of 0."""
        return self.used / self.limit if self.limit else 1.0


class CallCharge:
    """Charge of one call: one unit of each of these accounts; `spends` are those of the lasting accounts."""

    __slots__ = ("accounts", "is_effect", "spends")

    def __init__(self, accounts: tuple[Account, ...], *, is_effect: bool) -> None:
        self.accounts, self.is_effect = accounts, is_effect
        self.spends = tuple(account.one for account in accounts if account.one is not None)


class _Cycle(NamedTuple):
    """Accounts of one cycle, and its two charges, which are valid for the present hour."""

    accounts: dict[Quantity, Account]
    charges: list[CallCharge | None]


class Accounts:
    """Accounts of one agent. Times are aware and UTC; no method waits, publishes or reads the clock."""

    __slots__ = ("_by_quantity", "_cycles", "_known", "_used", "current", "ends_at", "limits", "starts_at")

    def __init__(self, limits: Limits) -> None:
        self.limits = dict(limits)
        self.starts_at = self.ends_at = datetime.min.replace(tzinfo=UTC)  # bounds of the present hour; none yet
        self.current: tuple[Account, ...] = ()
        self._by_quantity: Mapping[Quantity, tuple[Account, ...]] = _NONE
        self._known: dict[tuple[str, str], Account] = {}  # the lasting accounts, in the order of their first use
        self._used: dict[tuple[str, str], int] = {}  # uses recorded before this process
        self._cycles: BoundedDict[str, _Cycle] | None = None  # created for the first cycle

    def load(self, spent: Iterable[Spend]) -> None:
        """Take over recorded uses; a larger known use stays."""
        for spend in spent:
            key, used = (spend.window, spend.quantity), max(0, spend.amount)
            if (account := self._known.get(key)) is not None:
                account.used = max(account.used, used)
            else:
                self._used[key] = used

    def refresh(self, spent: Iterable[Spend], before: Mapping[Account, int]) -> dict[Account, int]:
        """Take over the uses of all processes, and return them. Args: before: the known uses when they were read.

        Reservations of others beyond a limit are not taken over: they are undone. Calls count here before they are
        recorded, so that their use never falls.
        """
        uses: dict[Account, int] = {}
        for spend in spent:
            key, used = (spend.window, spend.quantity), max(0, spend.amount)
            if (account := self._known.get(key)) is None:
                self._used[key] = used
                continue
            uses[account] = present = used + account.used - before.get(account, account.used)
            if account.quantity in ("calls", "effects"):
                account.used = max(account.used, present)
            else:
                account.used = min(present, max(account.used, account.limit))
        return uses

    def turn(self, now: datetime) -> list[Account]:
        """Make the accounts of this moment the current ones; return those that are not current any more."""
        before = self.current
        self.starts_at, self.ends_at = span("hour", now)
        of_now = dict(self._account(window, quantity, self.limits[window, quantity], now) for quantity in QUANTITIES
                      for window in LASTING if (window, quantity) in self.limits)  # fmt: skip
        self._known |= of_now
        accounts = list(of_now.values())
        of_quantity = {account.quantity: tuple(other for other in accounts if other.quantity == account.quantity)
                       for account in accounts}  # fmt: skip
        self._by_quantity = of_quantity or _NONE
        for cycle in (self._cycles or {}).values():
            cycle.charges[:] = [None, None]
        self.current = tuple(accounts)
        past_keys = [key for key, account in self._known.items() if account not in accounts]
        for key in past_keys[: max(0, len(past_keys) - _MOST_PAST)]:
            del self._known[key]
        return [account for account in before if account not in accounts]

    def limit(self, limits: Limits, now: datetime) -> list[Account]:
        """Replace the limits; used amounts stay. Return the accounts that do not count any more."""
        self.limits = dict(limits)
        for account in self._known.values():
            if (limit := self.limits.get(_key(account))) is not None:
                account.allow(limit)
        for name, cycle in (self._cycles or {}).items():
            self._limit_cycle(name, cycle)
        return self.turn(now)

    def charge(self, cycle: str, *, is_effect: bool) -> CallCharge:
        """Return the charge of a call of this cycle at present."""
        entry = self._cycle(cycle)
        charge = entry.charges[is_effect]
        if charge is None:
            quantities: tuple[Quantity, ...] = ("effects", "calls") if is_effect else ("calls",)
            accounts = tuple(account for quantity in quantities for account in self.of(quantity, cycle))
            charge = entry.charges[is_effect] = CallCharge(accounts, is_effect=is_effect)
        return charge

    def of(self, quantity: Quantity, cycle: str) -> Iterator[Account]:
        """Yield the accounts that count a quantity, the longest window first."""
        yield from self._by_quantity.get(quantity, ())
        if ("cycle", quantity) in self.limits and (account := self._cycle(cycle).accounts.get(quantity)):
            yield account

    def look(self, now: datetime) -> list[Account]:
        """Return the accounts of this moment and of the last cycle without changing anything: safe from any thread."""
        last = next(reversed(list((self._cycles or {}).values())), None)
        accounts: list[Account] = []
        for (window, quantity), limit in list(self.limits.items()):
            if window == "cycle":
                cycle_account = last.accounts.get(quantity) if last is not None else None
                accounts.append(cycle_account or Account(window, window, quantity, limit, None))
                continue
            accounts.append(self._account(window, quantity, limit, now)[1])
        return accounts

    def _account(
        self, window: Window, quantity: Quantity, limit: int, now: datetime
    ) -> tuple[tuple[str, str], Account]:
        """Return the key of an account of this moment, and the account, which may be a new one."""
        start, end = span(window, now)
        key = (name_of(window, start), quantity)
        account = self._known.get(key)
        if account is None:
            account = Account(window, key[0], quantity, limit, end)
            account.used = self._used.get(key, 0)
        return key, account

    def _cycle(self, cycle: str) -> _Cycle:
        if self._cycles is None:
            self._cycles = BoundedDict(_MOST_CYCLES)
        entry = self._cycles.get(cycle)
        if entry is None:
            entry = self._cycles[cycle] = _Cycle({}, [None, None])
            self._limit_cycle(cycle, entry)
        return entry

    def _limit_cycle(self, name: str, cycle: _Cycle) -> None:
        """Apply the present limits to a cycle; what it has used stays."""
        for (window, quantity), limit in self.limits.items():
            if window == "cycle":
                account = Account(window, f"cycle:{name}", quantity, limit, None)
                cycle.accounts.setdefault(quantity, account).allow(limit)


def _key(account: Account) -> tuple[Window, Quantity]:
    window: Window = account.window.partition(":")[0]  # type: ignore[assignment]
    return window, account.quantity
