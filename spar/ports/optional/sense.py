"""Optional ports of a sense module."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from spar.protocols import Context
from spar.records.journal import RowChange
from spar.records.perceived.examined import Examined
from spar.records.perceived.incidents import Incident
from spar.types import Perception


class IncidentsKept(Protocol):
    """Incidents as people look at them, from any thread, and close them."""

    def list(self) -> Sequence[Incident]:
        """Return those that are known, the oldest first."""
        ...

    def ask_closing(self, incident_id: str, by: str) -> Incident:
        """Have one closed with the next cycle. Raises: LookupError, ValueError saying why that cannot be."""
        ...

    def figures(self) -> Mapping[str, Any]:
        """Return how many are open and were opened, by severity, and were closed, by how that came about."""
        ...


@runtime_checkable
class Perceives(Protocol):
    """A sense module that sends what was pushed through its pipeline."""

    def perceive(self, pushed: Sequence[Perception], context: Context, /) -> Awaitable[Sequence[Perception]]:
        """Return what becomes of it. When this raises, what was pushed arrives as it came."""
        ...


@runtime_checkable
class Settles(Protocol):
    """A sense module that keeps something at the end of a cycle which had perceptions."""

    def settled(self) -> Awaitable[None]:
        """Keep what belongs to the cycle that has ended."""
        ...


@runtime_checkable
class Hears(Protocol):
    """A sense module that makes the perceptions of messages."""

    def hear(self, text: str, session: str, /) -> Perception:
        """Return the perception that a message is. Raises: ValueError to refuse it."""
        ...


@runtime_checkable
class KeepsCursors(Protocol):
    """A sense module whose sensors keep cursors."""

    def cursors(self) -> Mapping[str, Any]:
        """Return the cursors of what cycles have taken, by the keys they are loaded by; who asks keeps them."""
        ...


@runtime_checkable
class ChangesRows(Protocol):
    """A sense module whose sensors keep small rows."""

    def row_changes(self) -> Sequence[RowChange]:
        """Return the changes of what cycles have taken, in order; who asks writes them."""
        ...


@runtime_checkable
class ChangesCycleRows(Protocol):
    """A sense module that keeps small rows of what it made of the perceptions of a cycle."""

    def cycle_rows(self, cycle_id: str, /) -> Sequence[RowChange]:
        """Return the changes that belong to a cycle, in order, once; who asks writes them with the cycle."""
        ...


@runtime_checkable
class Examines(Protocol):
    """A sense module that shows what its pipeline makes of perceptions, without an agent."""

    def examine(self, batch: Sequence[Perception], /) -> Sequence[Examined]:
        """Return what becomes of each, in order, as of those of one cycle; what came before is remembered."""
        ...

    def stage_counts(self) -> Mapping[str, Mapping[str, int]]:
        """Return by stage how many went in, were given something, and were taken out."""
        ...


@runtime_checkable
class KeepsIncidents(Protocol):
    """A sense module that keeps incidents."""

    @property
    def incidents(self) -> IncidentsKept:
        """The incidents."""
        ...


@runtime_checkable
class RestoresSensors(Protocol):
    """A sense module that puts sensors in quarantine."""

    def restore(self, sensor: str, /) -> object:
        """Try a sensor again now. Raises: LookupError for one that is not known."""


@runtime_checkable
class Learns(Protocol):
    """A sense module that learns from examples which intents texts have; only the owner's doors lead here."""

    async def teach(self, what: str, text: str, label: str, /, *, by: str = "") -> Mapping[str, Any]:
        """Keep an example; it is on disk when this returns. `is_training` says whether texts like it count yet.

        Raises: ValueError for a text, label or `what` out of bounds, ConflictError where learning is turned off.
        """
        ...

    async def unteach(self, example: str, /, *, by: str = "") -> Mapping[str, Any]:
        """Forget an example, by its id. Raises: LookupError for one that is not known."""
        ...

    def taught(self) -> Mapping[str, Any]:
        """Return the labels that are known, and the examples that people taught."""
        ...

    def read(self, text: str, /) -> Mapping[str, Any]:
        """Return what a text would be read as."""
        ...
