"""The port of an agent's budgets: what is limited, what is reserved, and what a refusal says.

A call of a tool is reserved without a wait (`admit`, `demand`, `insist`); a request to a model reserves the most that
it can cost (`reserve`) and is settled when the cost is known. Money is counted in millionths of the currency's unit.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Final, Literal, Protocol, TypeVar

from msgspec import Struct

from spar.errors import TransientError

C = TypeVar("C")

Window = Literal["cycle", "hour", "day", "month"]
Quantity = Literal["calls", "effects", "requests", "tokens", "money"]
Measure = Literal["slow", "degrade", "ask", "pause"]
#: The most that may be used, by window and quantity. What is not named here has no limit and is not counted.
Limits = Mapping[tuple[Window, Quantity], int]

QUANTITIES: Final[tuple[Quantity, ...]] = ("calls", "effects", "requests", "tokens", "money")
WINDOWS: Final[tuple[Window, ...]] = ("cycle", "hour", "day", "month")
#: The largest amount, of a limit as of a use: sums of them stay far below what a database's integer holds.
MOST: Final = 10**15
NOTHING: Final[Mapping[Quantity, int]] = dict.fromkeys(QUANTITIES, 0)
#: The measures of an agent that has used up no budget; one for all.
NO_MEASURES: Final[Mapping[Measure, str]] = {}


class BudgetRefusal(Struct, frozen=True):
    """A budget that is too small: `asked` (None: nobody knows how much) was more than is left until `ends_at`."""

    budget: str
    used: int
    limit: int
    asked: int | None
    ends_at: datetime | None = None

    @property
    def sentence(self) -> str:
        """The budget, how far it is used, and when there is more."""
        shown = micro if self.budget.endswith(".money") else str
        until = f"{self.ends_at:%Y-%m-%d %H:%M} UTC" if self.ends_at is not None else "the next cycle"
        asked = "an amount that nobody knows" if self.asked is None else f"{shown(self.asked)} more"
        return (
            f"budget {self.budget} does not allow {asked}: {shown(self.used)} of {shown(self.limit)} used until {until}"
        )


def in_micro(amount: Decimal | int) -> int:
    """Return money in millionths of its unit; other amounts are returned as they are."""
    return int(amount * 1_000_000) if isinstance(amount, Decimal) else amount


def micro(amount: int) -> str:
    """Return millionths as decimal text."""
    whole, rest = divmod(abs(amount), 1_000_000)
    return f"{'-' * (amount < 0)}{whole}.{rest:06d}".rstrip("0").rstrip(".")


class BudgetError(TransientError):
    """There is not enough left of a budget: `refusal` says of which, `retry_after` when there is more (seconds)."""

    def __init__(self, refusal: BudgetRefusal, retry_after: float | None) -> None:
        super().__init__(refusal.sentence, retry_after=retry_after)
        self.refusal = refusal


class CallReservation(Protocol):
    """The reservation of one call of a tool."""

    @property
    def is_effect(self) -> bool: ...


class RequestReservation(Protocol):
    """The reservation of one request, settled once: by `settle`, by `cancel`, or in full by leaving its block."""

    def settle(self, used: Mapping[Quantity, int | None] | None = None) -> None: ...
    def cancel(self) -> None: ...
    def __enter__(self) -> RequestReservation: ...
    def __exit__(self, *exc: object) -> None: ...


class CallBudgets(Protocol[C]):
    """The budgets for calls of tools; `spar.budgets.budgets.Budgets` documents each method."""

    limits_calls: bool
    limits_effects: bool

    def admit(self, cycle: str, *, is_effect: bool) -> C | None: ...
    def demand(self, cycle: str, *, is_effect: bool, what: str = "") -> C | BudgetRefusal: ...
    def insist(self, cycle: str, *, is_effect: bool) -> C: ...
    def use(self, charge: C, /) -> None: ...
    def release(self, charge: C, /) -> None: ...


class RequestBudgets(Protocol):
    """The budgets for requests to models."""

    async def reserve(
        self, amounts: Mapping[Quantity, int | None], *, cycle_id: str = "", what: str = ""
    ) -> RequestReservation: ...
