"""Table `[budgets]`, and its amounts: a count, or money in units of its currency; or "off"."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from annotated_types import Ge, Le

from spar.config.tables.section import NO_FLAG, Also, Section, Whole
from spar.ports.budgets import MOST, QUANTITIES, WINDOWS, Limits, in_micro
from spar.types import replace

#: Money is counted in millionths of a unit.
_MICRO = 1_000_000


#: How many of something wait at most.
Cap = Annotated[Whole, Ge(1), Le(MOST)] | Literal["auto"]
#: An amount that may be used; 0: nothing, "off": any. Money is exact to a millionth, and never stored as a float.
Count = Annotated[Whole, Ge(0), Le(MOST)] | Literal["off"]
Money = Annotated[Decimal, Ge(0), Le(MOST // _MICRO), Also({"decimal_places": 6}), NO_FLAG] | Literal["off"]


class WindowBudget(Section, frozen=True, kw_only=True):
    """The amounts that may be used within one window. 0: nothing; "off": any amount."""

    calls: Count = "off"
    """Calls of tools; each attempt counts as one."""
    effects: Count = "off"
    """Calls of tools that change something."""
    requests: Count = "off"
    """Requests to models."""
    tokens: Count = "off"
    """Tokens of models: read in full, and written."""
    cached_tokens: Count = "off"
    """Tokens of models that a cache served, at a fraction of the price."""
    money: Money = "off"
    """The cost of models, in units of the currency of their prices."""


class CycleBudget(WindowBudget, frozen=True, kw_only=True):
    """The amounts that one cycle may use; more is refused, and the next cycle has the same amounts again."""

    calls: Count = 10_000
    """Calls of tools; each attempt counts as one."""
    requests: Count = 8
    """Requests to models."""
    money: Money = Decimal("0.5")
    """The cost of models."""


class HourBudget(WindowBudget, frozen=True, kw_only=True):
    """The amounts that an hour, by the clock and in UTC, may use."""

    effects: Count = 1_000
    """Calls of tools that change something."""
    requests: Count = 120
    """Requests to models."""
    tokens: Count = 200_000
    """Tokens of models: read in full, and written."""
    cached_tokens: Count = 2_000_000
    """Tokens of models that a cache served, at a fraction of the price."""
    money: Money = Decimal(1)
    """The cost of models."""


class DayBudget(WindowBudget, frozen=True, kw_only=True):
    """The amounts that a day (UTC) may use: less than its hours together."""

    effects: Count = 10_000
    """Calls of tools that change something."""
    tokens: Count = 2_000_000
    """Tokens of models: read in full, and written."""
    cached_tokens: Count = 20_000_000
    """Tokens of models that a cache served, at a fraction of the price."""
    money: Money = Decimal(5)
    """The cost of models."""


class MonthBudget(WindowBudget, frozen=True, kw_only=True):
    """The amounts that a month (UTC) may use."""

    money: Money = Decimal(50)
    """The cost of models."""


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
