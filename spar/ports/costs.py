"""Costs of requests to models as they are stored: small rows for each day, which a question reads.

They are read also without the attachment that records them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from msgspec import Struct, field

if TYPE_CHECKING:
    from spar.protocols import Rows

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
