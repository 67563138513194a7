"""One line for each measure: what was owed, and what was seen with memory on, off and only observing.

`process` tells the two processes apart: the second one goes on with the memory that the first one kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

MODES = ("on", "off", "observe")


@dataclass(frozen=True)
class Gain:
    """One measure.

    `seen` holds the figure of each mode (`on off observe`), `again` those of the second process; a figure is the mean
    over the seeds. `owed` and `moonshot` are bounds: upper ones where `is_less_better`. `least` and `most` are the
    worst and best seed with memory on, `error` is the standard error of their mean.
    """

    measure: str
    owed: float | None = None
    moonshot: float | None = None
    today: str = ""
    seen: Mapping[str, float | None] = field(default_factory=dict)
    again: Mapping[str, float | None] = field(default_factory=dict)
    is_less_better: bool = False
    spread: tuple[float, float] | None = None
    error: float | None = None
    remark: str = ""

    @property
    def reached(self) -> str:
        """ "moonshot", "owed" or "no"; "" where there is nothing to judge."""
        value = self.seen.get("on")
        if value is None or self.owed is None:
            return ""
        for name, bound in (("moonshot", self.moonshot), ("owed", self.owed)):
            if bound is not None and (value <= bound if self.is_less_better else value >= bound):
                return name
        return "no"


HEAD = ("measure", "before", "owed, moonshot", "on, off, observe", "2nd process", "reached", "remark")


def rendered(lines: Iterable[Gain]) -> str:
    """Return the table as Markdown."""
    rows = [HEAD, *(_cells(line) for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEAD) - 1)]
    text = [_row(row, widths) for row in rows]
    return "\n".join([text[0], "|".join(["", *("-" * (width + 2) for width in widths), "---", ""]), *text[1:]])


def _row(cells: tuple[str, ...], widths: list[int]) -> str:
    padded = [cell.ljust(width) for cell, width in zip(cells[:-1], widths, strict=True)]
    return f"| {' | '.join([*padded, cells[-1]])} |"


def _cells(line: Gain) -> tuple[str, ...]:
    bound = "≤ " if line.is_less_better else ""
    bounds = bound + _listed((line.owed, line.moonshot)) if line.owed is not None else ""
    seen = [_listed(figures.get(mode) for mode in MODES) for figures in (line.seen, line.again)]
    spread = f"{number(line.spread[0])} to {number(line.spread[1])}" if len(set(line.spread or ())) > 1 else ""
    spread += f" ± {number(line.error)}" if line.error else ""
    return (line.measure, line.today, bounds, *seen, line.reached, "; ".join(filter(None, (spread, line.remark))))


def _listed(values: Iterable[float | None]) -> str:
    return ", ".join(filter(None, map(number, values)))


def number(value: float | None) -> str:
    """Return a figure with as many digits as it has meaning."""
    if value is None:
        return ""
    if value == float("inf"):
        return "never"
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 2 and value % 1 else f"{value:.3f}".rstrip("0").rstrip(".") or "0"
