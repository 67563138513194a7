"""Numbers of decisions that were made again: plain values, which can be written into a file and continued."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

from msgspec import Struct, field

#: File in the state folder with the last backtest that was stored.
KEPT_BACKTEST: Final = "backtest.json"

#: Part of a cycle in which a decision differs.
Part = Literal["perceptions", "request", "plan", "calls", "outcome"]


class First(Struct, frozen=True):
    """First example of a disagreement: its cycle, and the values of the difference."""

    cycle_id: str
    at: datetime
    session: str
    recorded: Any = None
    now: Any = None


class Disagreement(Struct):
    """Kind of a difference: how often it came, and its first example."""

    part: Part
    what: str
    first: First
    count: int = 0
    rule: str = ""
    tool: str = ""


class CallNumbers(Struct):
    """Numbers of calls: as decided now, those that are new, saved, or made with other parameters."""

    same: int = 0
    added: int = 0
    saved: int = 0
    changed: int = 0


class Twice(Struct):
    """Number for the recorded calls, and for those as decided now."""

    recorded: int = 0
    now: int = 0


class CycleNumbers(Struct):
    """Numbers of cycles: all, and those that differ."""

    cycles: int = 0
    differ: int = 0


class Tally(Struct):
    """Numbers of a backtest so far. `last` is the id of the last cycle that was decided, "" for none.

    `unknown` counts the cycles that cannot be decided again, by reason. `days` has for each day the cycles that are the
    same, differ, and are unknown. `asked` counts questions to people, `refused` calls that meet a budget. `rows` are
    those of the planner, such as cooldowns; `used` are the budgets of the recorded calls and of the new ones.
    """

    last: str = ""
    cycles: int = 0
    same: int = 0
    differs: int = 0
    unknown: dict[str, int] = field(default_factory=dict)
    calls: CallNumbers = field(default_factory=CallNumbers)
    asked: Twice = field(default_factory=Twice)
    denied: Twice = field(default_factory=Twice)
    refused: Twice = field(default_factory=Twice)
    rules: dict[str, CallNumbers] = field(default_factory=dict)
    tools: dict[str, CallNumbers] = field(default_factory=dict)
    sessions: dict[str, CycleNumbers] = field(default_factory=dict)
    days: dict[str, list[int]] = field(default_factory=dict)
    disagreements: dict[str, Disagreement] = field(default_factory=dict)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    used: tuple[dict[str, tuple[str, int]], dict[str, tuple[str, int]]] = field(default_factory=lambda: ({}, {}))

    @property
    def by_frequency(self) -> list[Disagreement]:
        """Return the disagreements, the most frequent first."""
        return sorted(self.disagreements.values(), key=lambda one: -one.count)


class BacktestReport(Struct, frozen=True):
    """Result of a backtest as it is stored: when it was made, by which configuration, and the numbers of `Tally`. Of
    the disagreements it has the most frequent ones."""

    at: datetime
    configuration: str
    about: str
    whole: bool
    cycles: int
    same: int
    differs: int
    unknown: dict[str, int]
    calls: CallNumbers
    asked: Twice
    denied: Twice
    refused: Twice
    rules: dict[str, CallNumbers]
    tools: dict[str, CallNumbers]
    sessions: dict[str, CycleNumbers]
    days: dict[str, list[int]]
    disagreements: list[Disagreement]


class ShadowState(Struct, frozen=True):
    """State of a shadow: how often it agreed (`yes`, `no`, `unknown`: it would have asked a model, or the record has
    gaps), and the cycles that were dropped. `trouble` says why it does not decide now, "" while it does."""

    configuration: str
    agree: dict[str, int]
    dropped: int
    trouble: str

    @property
    def line(self) -> str:
        """Return the agreement in one line."""
        agree = self.agree
        known = agree.get("yes", 0) + agree.get("no", 0)
        share = f"{agree.get('yes', 0) / known:.1%} of {known} decisions agree" if known else "no decision yet"
        parts = [share, f"{agree['unknown']} unknown" if agree.get("unknown") else "",
                 f"{self.dropped} dropped" if self.dropped else "", self.trouble]  # fmt: skip
        return f"{self.configuration}: {', '.join(filter(None, parts))}"


class ShadowReport(ShadowState, frozen=True):
    """Report of a shadow: its state, the cycles that wait, and the disagreements by frequency."""

    waiting: int = 0
    calls: CallNumbers = field(default_factory=CallNumbers)
    asked: Twice = field(default_factory=Twice)
    refused: Twice = field(default_factory=Twice)
    rules: dict[str, CallNumbers] = field(default_factory=dict)
    unknown: dict[str, int] = field(default_factory=dict)
    disagreements: list[Disagreement] = field(default_factory=list)
