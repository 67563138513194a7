"""The table `[budgets]`."""

from __future__ import annotations

from decimal import Decimal

from spar.config.tables.amounts import Count, Money
from spar.config.tables.section import Section
from spar.ports.budgets import QUANTITIES, WINDOWS, Limits, in_micro


class WindowBudget(Section):
    """The amounts that may be used within one window. 0: nothing; "off": any amount."""

    calls: Count = "off"
    """Calls of tools, each attempt one."""
    effects: Count = "off"
    """The calls of tools that change something."""
    requests: Count = "off"
    """Requests to models."""
    tokens: Count = "off"
    """Tokens of models, both ways."""
    money: Money = "off"
    """The cost of models, in units of the currency that their prices are given in."""


class CycleBudget(WindowBudget):
    """The amounts that one cycle may use; more is refused, and the next cycle has as much again."""

    calls: Count = 10_000
    """Calls of tools; a plan with more of them is a mistake."""
    requests: Count = 8
    """Requests to models; more do not make a plan better."""
    money: Money = Decimal("0.5")
    """Half a unit: a tenth of a day's."""


class HourBudget(WindowBudget):
    """The amounts that an hour, by the clock and in UTC, may use."""

    effects: Count = 1_000
    """Calls that change something: an agent that files what is dropped stays below, one that runs wild does not."""
    requests: Count = 120
    """Requests to models: one each half minute."""
    tokens: Count = 200_000
    """Tokens of models."""
    money: Money = Decimal(1)
    """The cost of models."""


class DayBudget(WindowBudget):
    """The amounts that a day (UTC) may use: less than its hours together."""

    effects: Count = 10_000
    """Calls that change something."""
    tokens: Count = 2_000_000
    """Tokens of models."""
    money: Money = Decimal(5)
    """The cost of models."""


class MonthBudget(WindowBudget):
    """The amounts that a month (UTC) may use."""

    money: Money = Decimal(50)
    """The cost of models: ten days at their limit."""


class BudgetSettings(Section):
    """Budgets: the agent slows down at 80 % of one, does without or asks at 100 %, is paused at 120 %."""

    cycle: CycleBudget = CycleBudget.model_construct()
    """One cycle."""
    hour: HourBudget = HourBudget.model_construct()
    """An hour."""
    day: DayBudget = DayBudget.model_construct()
    """A day."""
    month: MonthBudget = MonthBudget.model_construct()
    """A month."""

    @classmethod
    def off(cls) -> BudgetSettings:
        """No limit at all, as an agent has that is made by hand."""
        none = dict.fromkeys(WindowBudget.model_fields, "off")
        return cls.model_construct(**{name: budget.model_copy(update=none) for name, budget in cls.model_construct()})

    @property
    def limits(self) -> Limits:
        """The limits that there are, by window and quantity; money in millionths."""
        return {
            (window, quantity): in_micro(amount)
            for window in WINDOWS
            for quantity in QUANTITIES
            if (amount := getattr(getattr(self, window), quantity)) != "off"
        }
