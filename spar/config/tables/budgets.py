"""Table `[budgets]`, and its amounts: a count, or money in units of its currency; or "off"."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, Literal

from spar.config.tables.fields import Reading
from spar.config.tables.section import Section
from spar.ports.budgets import MOST, QUANTITIES, WINDOWS, Limits, in_micro
from spar.types import replace

#: Money is counted in millionths of a unit.
_MICRO = 1_000_000


def _count(value: Any) -> int:
    """Return a count, which may be written as text."""
    if type(value) is str and value.isascii() and value.isdigit() and len(value) <= len(str(MOST)):
        value = int(value)
    if type(value) is not int or not 0 <= value <= MOST:
        raise ValueError(f'must be a whole number from 0 to {MOST}, or "off" for any')
    return value


def _cap(value: Any) -> int:
    """Return an upper bound of at least one."""
    try:
        if count := _count(value):
            return count
    except ValueError:
        pass
    raise ValueError(f'must be a whole number from 1 to {MOST}, or "auto"')


def _money(value: Any) -> Decimal:
    """Return an amount of money, exact to a millionth: a number or decimal text; never stored as a float."""
    try:
        # The text of a float is the decimal that was written, not the nearest binary number.
        amount = Decimal(str(value)) if type(value) in (int, float, str, Decimal) else Decimal("nan")
    except InvalidOperation:
        amount = Decimal("nan")
    if not (amount.is_finite() and 0 <= amount <= MOST // _MICRO and amount * _MICRO == int(amount * _MICRO)):
        form = 'with at most 6 decimals, like 0.5 or "0.50", or "off" for any'
        raise ValueError(f"must be an amount from 0 to {MOST // _MICRO} {form}")
    return amount


_WHOLE = {"type": "integer", "minimum": 0, "maximum": MOST}
_AMOUNTS = ({"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^\d+(\.\d+)?$"})

#: How many of something wait at most.
Cap = Annotated[
    int | Literal["auto"], Reading("whole number above 0", ({**_WHOLE, "minimum": 1},), _cap, {"auto": "auto"})
]
#: An amount that may be used; 0: nothing, "off": any.
Count = Annotated[int | Literal["off"], Reading("whole number", (_WHOLE,), _count, {"off": "off"})]
Money = Annotated[Decimal | Literal["off"], Reading("amount of money", _AMOUNTS, _money, {"off": "off"})]


class WindowBudget(Section, frozen=True, kw_only=True):
    """The amounts that may be used within one window. 0: nothing; "off": any amount."""

    calls: Count = "off"
    """Calls of tools; each attempt counts as one."""
    effects: Count = "off"
    """The calls of tools that change something."""
    requests: Count = "off"
    """Requests to models."""
    tokens: Count = "off"
    """Tokens of models, input and output."""
    money: Money = "off"
    """The cost of models, in units of the currency of their prices."""


class CycleBudget(WindowBudget, frozen=True, kw_only=True):
    """The amounts that one cycle may use; more is refused, and the next cycle has the same amounts again."""

    calls: Count = 10_000
    """Calls of tools; a plan with more of them is a mistake."""
    requests: Count = 8
    """Requests to models; more do not make a plan better."""
    money: Money = Decimal("0.5")
    """Half a unit: a tenth of a day's."""


class HourBudget(WindowBudget, frozen=True, kw_only=True):
    """The amounts that an hour, by the clock and in UTC, may use."""

    effects: Count = 1_000
    """Calls that change something: an agent that files incoming documents stays below, one that runs wild does not."""
    requests: Count = 120
    """Requests to models: one each half minute."""
    tokens: Count = 200_000
    """Tokens of models."""
    money: Money = Decimal(1)
    """The cost of models."""


class DayBudget(WindowBudget, frozen=True, kw_only=True):
    """The amounts that a day (UTC) may use: less than its hours together."""

    effects: Count = 10_000
    """Calls that change something."""
    tokens: Count = 2_000_000
    """Tokens of models."""
    money: Money = Decimal(5)
    """The cost of models."""


class MonthBudget(WindowBudget, frozen=True, kw_only=True):
    """The amounts that a month (UTC) may use."""

    money: Money = Decimal(50)
    """The cost of models: ten days at their limit."""


class BudgetSettings(Section, frozen=True, kw_only=True):
    """Budgets: the agent slows down at 80 % of one, does without models or asks people at 100 %, is paused at 120 %."""

    cycle: CycleBudget = CycleBudget()
    """One cycle."""
    hour: HourBudget = HourBudget()
    """An hour."""
    day: DayBudget = DayBudget()
    """A day."""
    month: MonthBudget = MonthBudget()
    """A month."""

    @classmethod
    def off(cls) -> BudgetSettings:
        """Return budgets without limits, as an agent made by hand has."""
        usual, none = cls(), dict.fromkeys(QUANTITIES, "off")
        return cls(**{window: replace(getattr(usual, window), **none) for window in WINDOWS})

    @property
    def limits(self) -> Limits:
        """Return the limits by window and quantity; money in millionths."""
        return {
            (window, quantity): in_micro(amount)
            for window in WINDOWS
            for quantity in QUANTITIES
            if (amount := getattr(getattr(self, window), quantity)) != "off"
        }
