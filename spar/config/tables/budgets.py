"""Table `[budgets]`, and its amounts: a count, or money in units of its currency; or "off"."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Literal

from annotated_types import Ge, Le

from spar.config.tables.section import NO_FLAG, Also, Section, Whole
from spar.ports.budgets import MOST, QUANTITIES, WINDOWS, Limits, in_micro

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
    """Tokens of models that a cache served."""
    money: Money = "off"
    """The cost of models, in the currency of their prices."""


class BudgetSettings(Section, frozen=True, kw_only=True):
    """The agent slows down at 80 % of a budget, does without models or asks people at 100 %, is paused at 120 %."""

    cycle: WindowBudget = WindowBudget(calls=10_000, requests=8, money=Decimal("0.5"))
    """One cycle."""
    hour: WindowBudget = WindowBudget(
        effects=1_000, requests=120, tokens=200_000, cached_tokens=2_000_000, money=Decimal(1)
    )
    """An hour (UTC)."""
    day: WindowBudget = WindowBudget(effects=10_000, tokens=2_000_000, cached_tokens=20_000_000, money=Decimal(5))
    """A day (UTC)."""
    month: WindowBudget = WindowBudget(money=Decimal(50))
    """A month (UTC)."""

    @classmethod
    def off(cls) -> BudgetSettings:
        """Return budgets without limits, as an agent made by hand has."""
        return cls(**dict.fromkeys(WINDOWS, WindowBudget()))

    @property
    def limits(self) -> Limits:
        """Return the limits by window and quantity; money in millionths."""
        return {
            (window, quantity): in_micro(amount)
            for window in WINDOWS
            for quantity in QUANTITIES
            if (amount := getattr(getattr(self, window), quantity)) != "off"
        }
