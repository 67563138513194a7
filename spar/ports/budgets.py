"""Port of an agent's budgets: limits, reservations, and refusals.

A call of a tool is reserved without waiting (`admit`, `demand`, `insist`). A request to a model first reserves the most
that it can cost (`reserve`) and is settled when the cost is known. Money is counted in millionths of the currency's
unit.
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
Quantity = Literal["calls", "effects", "requests", "tokens", "cached_tokens", "money"]
Measure = Literal["slow", "degrade", "ask", "pause"]
#: Most that may be used, by window and quantity. A pair that is missing has no limit and is not counted.
Limits = Mapping[tuple[Window, Quantity], int]

QUANTITIES: Final[tuple[Quantity, ...]] = ("calls", "effects", "requests", "tokens", "cached_tokens", "money")
WINDOWS: Final[tuple[Window, ...]] = ("cycle", "hour", "day", "month")
#: Largest amount of a limit or a use: sums of them stay far below the largest integer of a database.
MOST: Final = 10**15
NOTHING: Final[Mapping[Quantity, int]] = dict.fromkeys(QUANTITIES, 0)
#: Measures of an agent that has used up no budget; shared by all agents.
NO_MEASURES: Final[Mapping[Measure, str]] = {}


class BudgetRefusal(Struct, frozen=True):
    """Refusal because of a budget: `asked` (None: an unknown amount) is more than is left until `ends_at`."""

    budget: str
    used: int
    limit: int
    asked: int | None
    ends_at: datetime | None = None

    @property
    def sentence(self) -> str:
        """Return a sentence with the budget, its use, and when more becomes available."""
        format_amount = micro if self.budget.endswith(".money") else str
        until = f"{self.ends_at:%Y-%m-%d %H:%M} UTC" if self.ends_at is not None else "the next cycle"
        amount_text = "an amount that nobody knows" if self.asked is None else f"{format_amount(self.asked)} more"
        use = f"{format_amount(self.used)} of {format_amount(self.limit)} used until {until}"
        return f"budget {self.budget} does not allow {amount_text}: {use}"


def in_micro(amount: Decimal | int) -> int:
    """Return money in millionths of its unit; other amounts stay as they are."""
    return int(amount * 1_000_000) if isinstance(amount, Decimal) else amount


def micro(amount: int) -> str:
    """Return millionths as decimal text."""
    units, millionths = divmod(abs(amount), 1_000_000)
    return f"{'-' * (amount < 0)}{units}.{millionths:06d}".rstrip("0").rstrip(".")


class BudgetError(TransientError):
    """Error of a use that exceeds a budget: `refusal` names the budget, `retry_after` the seconds until more is
    available."""

    def __init__(self, refusal: BudgetRefusal, retry_after: float | None) -> None:
        super().__init__(refusal.sentence, retry_after=retry_after)
        self.refusal = refusal


class RequestReservation(Protocol):
    """Reservation of one request, settled once: by `settle`, by `cancel`, or in full at the end of its `with` block."""

    def settle(self, used: Mapping[Quantity, int | None] | None = None) -> None: ...
    def cancel(self) -> None: ...
    def __enter__(self) -> RequestReservation: ...
    def __exit__(self, *exc: object) -> None: ...


class CallBudgets(Protocol[C]):
    """Budgets for calls of tools; `spar.budgets.budgets.Budgets` documents each method. A charge has `is_effect`."""

    limits_calls: bool
    limits_effects: bool

    def demand(self, cycle: str, *, is_effect: bool, what: str = "") -> C | BudgetRefusal: ...
    def insist(self, cycle: str, *, is_effect: bool) -> C: ...
    def use(self, charge: C, /) -> None: ...
    def release(self, charge: C, /) -> None: ...


class RequestBudgets(Protocol):
    """Budgets for requests to models."""

    async def reserve(
        self, amounts: Mapping[Quantity, int | None], *, cycle_id: str = "", what: str = ""
    ) -> RequestReservation: ...
