"""The table `[budgets]`, and its amounts: a count, or money in units of its currency; or "off"."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, ClassVar, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from spar.config.tables.section import Section
from spar.ports.budgets import MOST, QUANTITIES, WINDOWS, Limits, in_micro

#: Money is counted in millionths of a unit.
_MICRO = 1_000_000


class CountField:
    """Annotates a number of something; 0: nothing may be used, "off": any number."""

    allowed = f'a whole number from 0 to {MOST}, or "off" for any'
    schema: ClassVar[dict[str, Any]] = {"type": "integer", "minimum": 0, "maximum": MOST}

    def read(self, value: Any) -> Any:
        if value == "off":
            return value
        if type(value) is str and value.isascii() and value.isdigit() and len(value) <= len(str(MOST)):
            value = int(value)
        if type(value) is not int or not 0 <= value <= MOST:
            raise PydanticCustomError("allowed", "must be {allowed}", {"allowed": self.allowed})
        return value

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [self.schema, {"enum": ["off"]}]}


class Paid(CountField):
    """Annotates an amount of money, exact to a millionth: a number or decimal text; never kept as a float."""

    allowed = f'an amount from 0 to {MOST // _MICRO} with at most 6 decimals, like 0.5 or "0.50", or "off" for any'
    schema: ClassVar[dict[str, Any]] = {
        "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": r"^\d+(\.\d+)?$"}]
    }

    def read(self, value: Any) -> Any:
        if value == "off":
            return value
        try:
            # Through its text a float is the decimal that was written, not the binary one nearest to it.
            amount = Decimal(str(value)) if type(value) in (int, float, str, Decimal) else Decimal("nan")
        except InvalidOperation:
            amount = Decimal("nan")
        if not (amount.is_finite() and 0 <= amount <= MOST // _MICRO and amount * _MICRO == int(amount * _MICRO)):
            raise PydanticCustomError("allowed", "must be {allowed}", {"allowed": self.allowed})
        return amount


class Capped(CountField):
    """Annotates how many of something there may be; at least one, or "auto"."""

    allowed = f'a whole number from 1 to {MOST}, or "auto"'
    schema: ClassVar[dict[str, Any]] = {
        "anyOf": [{"type": "integer", "minimum": 1, "maximum": MOST}, {"enum": ["auto"]}]
    }

    def read(self, value: Any) -> Any:
        if value == "auto":
            return value
        if value == "off" or (found := super().read(value)) == 0:
            raise PydanticCustomError("allowed", "must be {allowed}", {"allowed": self.allowed})
        return found

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return dict(self.schema)


Cap = Annotated[int | Literal["auto"], Capped()]
Count = Annotated[int | Literal["off"], CountField()]
Money = Annotated[Decimal | Literal["off"], Paid()]


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
