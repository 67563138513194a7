"""Optional ports of a sense module."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from spar.protocols import Context
from spar.records.journal import RowChange
from spar.types import Perception

if TYPE_CHECKING:
    from spar.records.perceived import Examined, Incident


class IncidentsKept(Protocol):
    """Incidents for people, who can list and close them; from any thread."""

    def list(self) -> Sequence[Incident]:
        """Return the known incidents, the oldest first."""
        ...

    def ask_closing(self, incident_id: str, by: str) -> Incident:
        """Request that an incident is closed in the next cycle. Raises: LookupError, ValueError saying why it cannot
        be."""
        ...

    def figures(self) -> Mapping[str, Any]:
        """Return the numbers of open and opened incidents by severity, and of closed ones by the way of closing."""
        ...


@runtime_checkable
class Perceives(Protocol):
    """Sense module that sends pushed perceptions through its pipeline."""

    def perceive(self, pushed: Sequence[Perception], context: Context, /) -> Awaitable[Sequence[Perception]]:
        """Return the perceptions after the pipeline. When this raises, the pushed perceptions arrive unchanged."""
        ...


@runtime_checkable
class Settles(Protocol):
    """Sense module that stores something at the end of a cycle with perceptions."""

    def settled(self) -> Awaitable[None]:
        """Store what belongs to the cycle that has ended."""
        ...


@runtime_checkable
class Hears(Protocol):
    """Sense module that makes perceptions of messages."""

    def hear(self, text: str, session: str, /) -> Perception:
        """Return the perception of a message. Raises: ValueError to refuse it."""
        ...


@runtime_checkable
class KeepsCursors(Protocol):
    """Sense module whose sensors have cursors: positions up to which they have read."""

    def cursors(self) -> Mapping[str, Any]:
        """Return the cursors after the perceptions that cycles have taken, by the keys under which they are loaded; the
        caller stores them."""
        ...


@runtime_checkable
class ChangesRows(Protocol):
    """Sense module whose sensors store small rows."""

    def row_changes(self) -> Sequence[RowChange]:
        """Return the changes that belong to perceptions that cycles have taken, in order; the caller writes them."""
        ...


@runtime_checkable
class ChangesCycleRows(Protocol):
    """Sense module that stores small rows about its processing of a cycle's perceptions."""

    def cycle_rows(self, cycle_id: str, /) -> Sequence[RowChange]:
        """Return the changes that belong to a cycle, in order, once; the caller writes them with the cycle."""
        ...


@runtime_checkable
class Examines(Protocol):
    """Sense module that shows the effect of its pipeline on perceptions, without an agent."""

    def examine(self, batch: Sequence[Perception], /) -> Sequence[Examined]:
        """Return the result for each perception in order, as if they were those of one cycle; earlier batches are
        remembered."""
        ...

    def stage_counts(self) -> Mapping[str, Mapping[str, int]]:
        """Return by stage how many perceptions went in, were changed, and were removed."""
        ...


@runtime_checkable
class KeepsIncidents(Protocol):
    """Sense module with incidents."""

    @property
    def incidents(self) -> IncidentsKept:
        """Return the incidents."""
        ...


@runtime_checkable
class RestoresSensors(Protocol):
    """Sense module that puts sensors in quarantine."""

    def restore(self, sensor: str, /) -> object:
        """Try a sensor again now. Raises: LookupError for an unknown one."""


@runtime_checkable
class Learns(Protocol):
    """Sense module that learns from examples which intents texts have; only the owner can reach these methods."""

    async def teach(self, what: str, text: str, label: str, /, *, by: str = "") -> Mapping[str, Any]:
        """Store an example; it is on disk when this returns. `is_training` says whether similar texts count yet.

        Raises: ValueError for an invalid text, label or `what`; ConflictError when learning is turned off.
        """
        ...

    async def unteach(self, example: str, /, *, by: str = "") -> Mapping[str, Any]:
        """Delete an example by its id. Raises: LookupError for an unknown one."""
        ...

    def taught(self) -> Mapping[str, Any]:
        """Return the known labels, and the examples that people taught."""
        ...

    def read(self, text: str, /) -> Mapping[str, Any]:
        """Return the intent that a text would get."""
        ...


@runtime_checkable
class ListsStoredExamples(Protocol):
    """Sense module that lists the taught examples of an agent that does not run."""

    async def stored_examples(self, agent: str, store: Any, /) -> Mapping[str, Any]:
        """Return what `Learns.taught` returns, from the rows in a store. Raises: the errors of the store."""
        ...
