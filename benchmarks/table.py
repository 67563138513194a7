"""One table: what spar costs, against what, how many times that, and which goal is reached.

Every goal is an upper bound. A ratio is "spar / the other"; one far below 1 is written 1/35: thirty-five times cheaper.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.harness import Measured


@dataclass(frozen=True)
class Line:
    """One goal of one measure.

    `value` is what the goal bounds, a ratio (`unit` "x") or an amount; `first` is the goal that a careful build
    reaches, `then` the one that is shown to be possible. `remark` says why there is no value; a goal of our own has no
    `row`.
    """

    row: int | None
    measure: str
    spar: str
    against: str
    other: str = ""
    value: float | None = None
    unit: str = "x"
    spread: str = ""
    cpu: float | None = None
    first: float | None = None
    then: float | None = None
    remark: str = ""

    @property
    def reached(self) -> str:
        """ "then", "first" or "no"; "" where there is nothing to judge."""
        if self.value is None or (self.first is None and self.then is None):
            return ""
        if self.then is not None and self.value <= self.then:
            return "then"
        return "first" if self.first is not None and self.value <= self.first else "no"


def compared(
    row: int | None,
    measure: str,
    spar: Measured,
    against: str,
    other: Measured,
    *,
    is_limit: bool = False,
    first: float | None = None,
    then: float | None = None,
) -> Line:
    """The line of spar's cost as a multiple of another's, or of the limit's that it ran between."""
    if spar.error:
        raise RuntimeError(f"spar itself could not be measured ({measure}): {spar.error}")
    if other.error:
        return Line(row, measure, times_of(spar), against, first=first, then=then, remark=other.error)
    ratio = spar.against_limit() if is_limit else spar.against(other)
    spread = f"{shown(ratio.low)}–{shown(ratio.high)}"
    times = times_of(spar), against, times_of(other)
    return Line(row, measure, *times, ratio.wall, "x", spread, ratio.cpu, first, then)


def amount(
    row: int | None,
    measure: str,
    value: float,
    unit: str,
    *,
    first: float | None = None,
    then: float | None = None,
    against: str = "",
    other: str = "",
) -> Line:
    """The line of a goal that is an amount."""
    return Line(row, measure, f"{number(value)} {unit}", against, other, value, unit, first=first, then=then)


def times_of(measured: Measured) -> str:
    """Wall time, and processor time in brackets."""
    factor, unit = (1e6, "µs") if measured.wall < 0.05 else (1e3, "ms")
    return f"{number(measured.wall * factor)} ({number(measured.cpu * factor)}) {unit}"


def number(value: float) -> str:
    """Three digits, as people write them."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def shown(value: float | None, unit: str = "x") -> str:
    if value is None:
        return "–"
    if unit != "x":
        return f"{number(value)} {unit}"
    return f"1/{1 / value:.0f}" if 0 < value < 0.1 else f"{value:.2f}x"


HEAD = ("row", "measure", "spar", "against", "other", "ratio", "range", "cpu", "first", "then", "reached")


def rendered(lines: Iterable[Line]) -> str:
    """The table as text, Markdown too: a missing peer has a line like any other, with the reason in it."""
    rows = [HEAD, *(_cells(line) for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD))]
    text = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    rule = "-|-".join("-" * width for width in widths)
    return "\n".join(f"| {line} |" for line in (text[0], rule, *text[1:])).replace(f"| {rule} |", f"|-{rule}-|")


def _cells(line: Line) -> tuple[str, ...]:
    return (
        "" if line.row is None else str(line.row),
        line.measure,
        line.spar,
        line.against,
        line.other or line.remark,
        shown(line.value, line.unit),
        line.spread,
        "" if line.cpu is None else shown(line.cpu),
        *("" if goal is None else f"≤ {shown(goal, line.unit)}" for goal in (line.first, line.then)),
        line.reached,
    )


def as_data(lines: Iterable[Line]) -> list[dict[str, Any]]:
    return [{**asdict(line), "reached": line.reached} for line in lines]
