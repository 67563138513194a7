"""Ports for the care of a store's file, and for reading what an agent's work left in it: runs, doubts, dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct


class CareLine(Struct, frozen=True):
    """Line of an examination: the name of the subject, its state, the finding, and the advice ("" if all is well)."""

    name: str
    state: Literal["ok", "warn", "bad"]
    found: str
    advice: str = ""


class CareCopy(Struct, frozen=True):
    """Copy of the file: its path, its size in bytes, its time in seconds since 1970, and the number of its last
    fact."""

    path: str
    bytes: int
    at: float
    last_fact: int


class CareFinding(Struct, frozen=True):
    """Row that violates a rule: its table, its key and a description."""

    table: str
    row: str
    what: str

    def __str__(self) -> str:
        where = " ".join(filter(None, [self.table, self.row]))
        return f"{where}: {self.what}"


class CareReport(Struct, frozen=True):
    """Result of an integrity check: the number of rows by table, and the first hundred findings."""

    path: str
    rows: dict[str, int]
    findings: tuple[CareFinding, ...]

    @property
    def is_whole(self) -> bool:
        return not self.findings


class Care(Protocol):
    """Care of a store's file, which need not be open. All methods block.

    Raises, in all methods: ConfigError if there is no file; SparError, OSError.
    """

    @property
    def path(self) -> str: ...

    def back_up(self, target: str) -> CareCopy:
        """Copy what is committed now; the copy is checked wholly before it gets its name."""

    def restore(self, source: str) -> str | None:
        """Replace the file with a copy; return the name under which the old file was set aside."""

    def verify(self) -> CareReport:
        """Check every row."""

    def acknowledge(self) -> int:
        """Record that somebody has seen the losses; return their number."""

    def examine(self) -> Sequence[CareLine]:
        """Return the condition of the file and its surroundings; problems are lines, not exceptions."""
