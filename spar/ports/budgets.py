"""Port of an agent's budgets: limits, reservations, and refusals; and costs of requests to models as they are stored.

A call of a tool is reserved without waiting (`admit`, `demand`, `insist`). A request to a model first reserves the most
that it can cost (`reserve`) and is settled when the cost is known. Money is counted in millionths of the currency's
unit. Costs are small rows for each day, which are read also without the attachment that records them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeVar, get_args

from msgspec import Struct, field

from spar.errors import TransientError

if TYPE_CHECKING:
    from spar.protocols import Rows

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


#: Days that are kept.
MOST_DAYS: Final = 400
#: The name of the rows of a day, before the day; of the row that says since when costs are recorded.
NAME, SINCE = "costs", "since"

Sum = Literal["model", "session", "rule", "day"]
SUMS: Final[tuple[Sum, ...]] = get_args(Sum)


class CostKey(NamedTuple):
    """Key of a sum of one day."""

    model: str
    session: str
    rule: str


class Cost(Struct, omit_defaults=True):
    """Sum of requests: tokens, of the input those that a cache served, money in millionths of the currency's unit.

    `unpriced` counts the requests for which no price is known, `unmeasured` those whose usage nobody reported; the
    money of both is not known.
    """

    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    money: int = 0
    unpriced: int = 0
    unmeasured: int = 0

    def add(self, other: Cost) -> None:
        """Add another sum."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Costs(Struct):
    """Costs from a day on: the sums, the whole, and since when costs are recorded (None: they never were)."""

    sums: dict[str, Cost] = field(default_factory=dict)
    whole: Cost = field(default_factory=Cost)
    recorded_since: datetime | None = None


def sums_in(rows: Mapping[str, Any]) -> Iterator[tuple[CostKey, Cost]]:
    """Yield the sums in the rows of a day; a row that cannot be read is left out."""
    from spar.decoding import convert

    for key, value in rows.items():
        try:
            yield CostKey(*map(str, json.loads(key)[:3])), convert(value, Cost)
        except (ValueError, TypeError):
            continue


async def costs_of(store: Rows, agent: str, days: Iterable[date], by: Sum) -> Costs:
    """Return the costs of an agent on these days. Raises: what the store raises."""
    result = Costs()
    if (since := (await store.rows(f"{NAME}:{agent}")).get(SINCE)) is not None:
        result.recorded_since = datetime.fromisoformat(str(since))
    for day in days:
        for key, cost in sums_in(await store.rows(f"{NAME} {day}:{agent}")):
            label = str(day) if by == "day" else getattr(key, by)
            result.sums.setdefault(label, Cost()).add(cost)
            result.whole.add(cost)
    return result


def days_since(since: datetime, until: datetime) -> list[date]:
    """Return the days (UTC) from a time until another one, at most as many as are kept, the newest first."""
    last = until.astimezone(UTC)
    first = max(since, last - timedelta(days=MOST_DAYS - 1)).astimezone(UTC)
    return [last.date() - timedelta(days=back) for back in range((last.date() - first.date()).days + 1)]
