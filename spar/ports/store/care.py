"""Ports for the care of a store's file: copies, checks, what was left behind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from spar.records.journal import DeadLetter, Doubt


class CareLine(Protocol):
    """One line of an examination; `state` is ok, warn or bad."""

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def found(self) -> str: ...
    @property
    def advice(self) -> str: ...


class CareCopy(Protocol):
    """A copy that was made: where, of how many bytes, up to which fact."""

    @property
    def path(self) -> str: ...
    @property
    def bytes(self) -> int: ...
    @property
    def last_fact(self) -> int: ...


class CareFinding(Protocol):
    """One thing that does not fit."""

    @property
    def table(self) -> str: ...
    @property
    def row(self) -> str: ...
    @property
    def what(self) -> str: ...


class CareReport(Protocol):
    """Result of an integrity check: rows looked at by table, and what did not fit."""

    @property
    def path(self) -> str: ...
    @property
    def rows(self) -> Mapping[str, int]: ...
    @property
    def findings(self) -> Sequence[CareFinding]: ...
    @property
    def is_whole(self) -> bool: ...


class Care(Protocol):
    """Looks after the file of a store that nobody has to have opened. Everything here blocks.

    Raises, in all methods: ConfigError where there is no file; SparError, OSError.
    """

    @property
    def path(self) -> str: ...

    def back_up(self, target: str) -> CareCopy:
        """Copy what is committed now, checked as a whole before it gets its name."""
        ...

    def restore(self, source: str) -> str | None:
        """Put a copy in the place of the file; return under which name that was set aside."""
        ...

    def verify(self) -> CareReport:
        """Look at every row."""
        ...

    def acknowledge(self) -> int:
        """Note that somebody has seen what was lost; return how many losses that were."""
        ...

    def examine(self) -> Sequence[CareLine]:
        """Return how the file is and what is around it; raises nothing for what it finds."""
        ...


@runtime_checkable
class HasCare(Protocol):
    """A store whose file can be looked after from outside."""

    @property
    def care(self) -> Care: ...


@runtime_checkable
class ReadsLeftWork(Protocol):
    """A store that says what recovery has left to people, also while it is open read-only."""

    async def left(self, agent: str) -> tuple[Sequence[Doubt], Sequence[DeadLetter]]:
        """Return an agent's calls that are or were in doubt and its dead letters, the oldest first."""
        ...
