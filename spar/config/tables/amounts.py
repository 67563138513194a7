"""Amounts of budgets as the configuration writes them: a count, or money in units of its currency; or "off"."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from typing import Annotated, Any, ClassVar, Literal

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from spar.ports.budgets import MOST

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
