"""One table of quality: what was owed, what was seen, and a strong simple baseline beside it from the same run.

Every goal is a lower bound: more is better.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any


class MissingDataError(Exception):
    """The public data of a measure are not in the folder that was named."""


@dataclass(frozen=True)
class Quality:
    """One goal of one measure.

    `baseline` is the figure of the method named by `beside` on the same data; `remark` says what was chosen on which
    part of the data, or why there is no value.
    """

    measure: str
    value: float | None = None
    owed: float | None = None
    moonshot: float | None = None
    baseline: float | None = None
    beside: str = ""
    remark: str = ""

    @property
    def reached(self) -> str:
        """ "moonshot", "owed" or "no"; "" where there is nothing to judge."""
        if self.value is None or self.owed is None:
            return ""
        if self.moonshot is not None and self.value >= self.moonshot:
            return "moonshot"
        return "owed" if self.value >= self.owed else "no"


HEAD = ("measure", "seen", "owed", "moonshot", "reached", "baseline", "remark")


def rendered(lines: Iterable[Quality]) -> str:
    """Return the table as Markdown."""
    rows = [HEAD, *(_cells(line) for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD) - 1)]
    text = [_row(row, widths) for row in rows]
    return "\n".join([text[0], "|".join(["", *("-" * (width + 2) for width in widths), "---", ""]), *text[1:]])


def as_data(lines: Iterable[Quality]) -> list[dict[str, Any]]:
    """Return the lines JSON-able."""
    return [{**asdict(line), "reached": line.reached} for line in lines]


def _row(cells: tuple[str, ...], widths: list[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells[:-1], widths, strict=True)]
    return f"| {' | '.join([*padded, cells[-1]])} |"


def _cells(line: Quality) -> tuple[str, ...]:
    beside = "" if line.baseline is None else f"{_number(line.baseline)} ({line.beside})"
    numbers = map(_number, (line.value, line.owed, line.moonshot))
    return (line.measure, *numbers, line.reached, beside, line.remark)


def _number(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 2 and value % 1 else f"{value:.3f}".rstrip("0").rstrip(".") or "0"
