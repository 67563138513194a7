"""Rows of numbers as metrics show them: label values and a number, with an end to how many values are told apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable

#: Of one label no more values are told apart; what comes later is put together as `OTHER`.
MOST_VALUES = 100
OTHER = "other"

Rows = Iterable[tuple[list[str], float]]


def bounded(rows: Rows, merge: Callable[[float, float], float]) -> list[tuple[list[str], float]]:
    """The rows with no more than `MOST_VALUES` values of each label; those that fall together are merged."""
    known: dict[int, set[str]] = {}
    found: dict[tuple[str, ...], float] = {}
    for values, number in rows:
        for place, value in enumerate(values):
            seen = known.setdefault(place, set())
            if value not in seen and len(seen) >= MOST_VALUES:
                values = [*values[:place], OTHER, *values[place + 1 :]]
            else:
                seen.add(value)
        key = tuple(values)
        found[key] = merge(found[key], number) if key in found else number
    return [(list(key), number) for key, number in found.items()]


def whole(values: list[str]) -> list[str]:
    """Labels that every encoder takes: names may hold lone surrogates."""
    return [value.encode("utf-8", "replace").decode() for value in values]
