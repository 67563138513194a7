"""One table: what spar costs, against what, how many times that, and which goal is reached.

Every goal is an upper bound. A ratio is "spar / the other"; one far below 1 is written 1/35: thirty-five times cheaper.
Each row has a line beside its limit, the least that its work can cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from benchmarks.harness import Measured

#: The kind of time that is judged: processor time where nobody waits for a disk or a timer, or else wall time.
Judged = Literal["cpu", "wall"]
#: What is owed, and the moonshot.
Goals = tuple[float | None, float | None]


@dataclass(frozen=True)
class Line:
    """One goal of one measure.

    `value` is a ratio of wall time (`unit` "x") or an amount, `cpu` the ratio of processor time; `by` says which of the
    two the goals bound. `owed` is the goal that has to be reached, `moonshot` the one that may be possible.
    `is_limit`: the other is the least that the work can cost. `remark` says why there is no value; a goal of our own
    has no `row`.
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
    owed: float | None = None
    moonshot: float | None = None
    remark: str = ""
    is_limit: bool = False
    by: Judged = "wall"

    @property
    def judged(self) -> float | None:
        """The number that the goals bound."""
        return self.cpu if self.by == "cpu" and self.cpu is not None else self.value

    @property
    def reached(self) -> str:
        """ "moonshot", "owed" or "no"; "" where there is nothing to judge."""
        if self.judged is None or (self.owed is None and self.moonshot is None):
            return ""
        if self.moonshot is not None and self.judged <= self.moonshot:
            return "moonshot"
        return "owed" if self.owed is not None and self.judged <= self.owed else "no"


def compared(
    row: int | None,
    measure: str,
    spar: Measured,
    against: str,
    other: Measured,
    *,
    is_limit: bool = False,
    owed: float | None = None,
    moonshot: float | None = None,
    by: Judged = "cpu",
) -> Line:
    """Return the line of spar's cost as a multiple of another's.

    Args:
        is_limit: The other is the least that the work can cost, and ran before and after spar in each round.
        by: "wall" where either of them waits for a disk or a timer.
    """
    if spar.error:
        raise RuntimeError(f"spar itself could not be measured ({measure}): {spar.error}")
    if other.error:
        return Line(row, measure, times_of(spar), against, owed=owed, moonshot=moonshot, remark=other.error, by=by)
    ratio = spar.against_limit() if is_limit else spar.against(other)
    spread = f"{shown(ratio.low)}–{shown(ratio.high)}"
    times = times_of(spar), against, times_of(other)
    return Line(row, measure, *times, ratio.wall, "x", spread, ratio.cpu, owed, moonshot, "", is_limit, by)


def amount(
    row: int | None,
    measure: str,
    value: float,
    unit: str,
    *,
    owed: float | None = None,
    moonshot: float | None = None,
    against: str = "",
    other: str = "",
    is_limit: bool = False,
    by: Judged = "wall",
) -> Line:
    """Return the line of a goal that is an amount."""
    text = f"{number(value)} {unit}"
    return Line(row, measure, text, against, other, value, unit, owed=owed, moonshot=moonshot, is_limit=is_limit, by=by)


def without_limit(lines: Iterable[Line]) -> list[str]:
    """Return the rows that have no line beside the least that their work can cost, by number or else by measure."""
    is_limited: dict[str, bool] = {}
    for line in lines:
        row = str(line.row) if line.row is not None else line.measure.partition(":")[0].partition(",")[0]
        is_limited[row] = is_limited.get(row, False) or line.is_limit
    return [row for row, limited in is_limited.items() if not limited]


def missed(lines: Iterable[Line]) -> str:
    """Return how many of the owed figures are reached, and a table of those that are not, what is owed beside seen."""
    owed = [line for line in lines if line.owed is not None and line.reached]
    rows = [
        ("" if line.row is None else str(line.row), line.measure, line.against, line.by,
         shown(line.judged, line.unit), f"≤ {shown(line.owed, line.unit)}")
        for line in owed if line.reached == "no"
    ]  # fmt: skip
    said = f"{len(owed) - len(rows)} of {len(owed)} owed figures are reached"
    return f"{said}; these are not:\n\n{columns([MISSED, *rows])}" if rows else said


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


HEAD = (
    "row", "measure", "spar", "against", "other", "ratio", "range", "cpu",
    "by", "seen", "owed", "moonshot", "reached",
)  # fmt: skip
MISSED = ("row", "measure", "against", "by", "seen", "owed")


def rendered(lines: Iterable[Line]) -> str:
    """The table as text, Markdown too: a missing peer has a line like any other, with the reason in it."""
    return columns([HEAD, *(_cells(line) for line in lines)])


def columns(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as a table of Markdown whose columns stand below one another; the first row is its head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    text = [" | ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    rule = "-|-".join("-" * width for width in widths)
    return "\n".join(f"| {line} |" for line in (text[0], rule, *text[1:])).replace(f"| {rule} |", f"|-{rule}-|")


def _cells(line: Line) -> tuple[str, ...]:
    return (
        "" if line.row is None else str(line.row),
        line.measure,
        line.spar,
        f"limit: {line.against}" if line.is_limit else line.against,
        line.other or line.remark,
        shown(line.value, line.unit),
        line.spread,
        "" if line.cpu is None else shown(line.cpu, line.unit),
        line.by if line.reached else "",
        shown(line.judged, line.unit) if line.reached else "",
        *("" if goal is None else f"≤ {shown(goal, line.unit)}" for goal in (line.owed, line.moonshot)),
        line.reached,
    )


def as_data(lines: Iterable[Line]) -> list[dict[str, Any]]:
    return [{**asdict(line), "judged": line.judged, "reached": line.reached} for line in lines]
