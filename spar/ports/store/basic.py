"""Ports of any store: experiences, cycles, small state; without a journal."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import IO, Any, Protocol, runtime_checkable

from spar.records.transcript import FoundEntry
from spar.types import CycleRecord, Experience, Fault
from spar.types.cycle import ExperienceDetail


@runtime_checkable
class KeepsExperiences(Protocol):
    """Store of experiences: the least that an agent accepts as its memory."""

    def store(self, experience: Experience, /) -> Awaitable[None] | None:
        """Accept an experience; one with a known id changes nothing. A plain function is called in a thread.

        Raises: PermanentError for one that can never be stored; any other error leads to another attempt.
        """


@runtime_checkable
class Recalls(Protocol):
    """Store whose experiences can be searched."""

    async def recall(
        self, query: str, k: int = 5, *, session: str | None = None, task: str | None = None,
        success: bool | None = None, since: datetime | None = None,
    ) -> Sequence[Experience]:  # fmt: skip
        """Return the experiences that match best, the best first.

        Args:
            query: any text; without words the newest are returned.
            k: the most experiences.
            session, task, success, since: conditions that must hold exactly.
        """
        ...


@runtime_checkable
class InspectsExperiences(Protocol):
    """Store that explains its recalls, and lets its owner inspect and change it."""

    async def search(self, query: str, k: int = 5, **filters: Any) -> Sequence[Any]:
        """Return the best matches as objects with `experience`, `score`, `reasons` and `nearness`.

        Args: filters: conditions that must hold exactly, except `situation`: the name of the present situation, or
            None. Experiences of that situation may come first if a store can tell that the meaning is similar.
        """
        ...

    async def detail(self, id: str) -> ExperienceDetail | None:
        """Return an experience in full; None for an unknown one. Raises: LookupError when several ids begin so."""
        ...

    async def figures(self) -> Mapping[str, Any]:
        """Return the number of experiences, and how many were merged, used, are useless or come from strangers."""
        ...

    async def why(self, cycle_id: str) -> Sequence[Mapping[str, Any]] | None:
        """Return the decisions of a cycle that memory changed; None for an unknown cycle."""
        ...

    async def forget(self, id: str | None = None, **filters: Any) -> int:
        """Delete the experiences that match all conditions; return their number. Raises: ValueError without a
        condition."""
        ...

    async def import_(self, source: Any, *, trust: bool = False) -> int:
        """Store the experiences of a file of JSON lines, all or none; return how many were new.

        Raises: SparError naming each bad line.
        """
        ...


@runtime_checkable
class SearchesTranscripts(Protocol):
    """Transcripts that can be searched."""

    async def search(
        self, agent: str, text: str, limit: int = 20, *, session: str | None = None
    ) -> Sequence[FoundEntry]:
        """Return the newest entries that contain all words."""
        ...


@runtime_checkable
class Exports(Protocol):
    """Store whose experiences can be written to a file."""

    async def export(self, target: str | os.PathLike[str] | IO[str]) -> int:
        """Write all experiences as JSON lines, in order of arrival; return how many. Raises: OSError."""
        ...


@runtime_checkable
class KeepsCycles(Protocol):
    """Store of records of cycles."""

    def record(self, cycle: CycleRecord, /) -> Awaitable[None] | None:
        """Accept a cycle; one with a known id replaces the old record. A plain function is called in a thread."""


@runtime_checkable
class ReadsCycles(Protocol):
    """Store whose records of cycles can be read, also while it is open read-only."""

    async def cycles(
        self, limit: int = 20, before: str | datetime | None = None, outcome: str | None = None,
        session: str | None = None, failed: bool = False, since: datetime | None = None,
    ) -> Sequence[Mapping[str, Any]]:  # fmt: skip
        """Return summaries, the newest first.

        Args:
            limit: the most summaries.
            before: a time, or the id of the last cycle that was read.
            outcome, session: values that must be equal.
            failed: only cycles that failed or had a failed call.
            since: only cycles that began at this time or later.
        """
        ...

    async def cycle(self, cycle_id: str) -> CycleRecord | None:
        """Return the cycle with this id or unique beginning of an id. Raises: LookupError when several ids begin so."""
        ...


@runtime_checkable
class ReadsCycleRecords(Protocol):
    """Store whose records of cycles can be read whole, many at once."""

    async def cycle_records(
        self, limit: int, *, after: str | None = None, before: str | None = None, since: datetime | None = None
    ) -> Sequence[CycleRecord]:
        """Return records, the oldest first.

        Args:
            limit: the most records.
            after: the id of the cycle that they follow.
            before: the id of a cycle: the newest before it.
            since: only of cycles that began at this time or later.
        Raises: LookupError for an id that is no cycle.
        """
        ...


@runtime_checkable
class Flushes(Protocol):
    """Store that writes later than it accepts."""

    def flush(self) -> Awaitable[None] | None:
        """Return when everything accepted so far is durable. A plain function is called in a thread.

        Raises: TransientError when that takes too long, with the cause.
        """


@runtime_checkable
class KeepsState(Protocol):
    """Store of small values by key."""

    async def load(self, key: str) -> Any:
        """Return the last value saved under a key, even if it is not written yet; None for an unknown key."""
        ...

    async def save(self, key: str, value: Any) -> None:
        """Accept a JSON-able value.

        Raises: TooLargeError for more than a megabyte; ValueError for a value that is not JSON-able. The former value
            stays.
        """
        ...


@runtime_checkable
class TellsFaults(Protocol):
    """Store that reports when writing begins to fail, when something was lost, when it was fenced, and (None) when it
    writes again.

    It calls `on_fault` in the event loop. The agent sets this attribute before it opens the store.
    """

    on_fault: Callable[[Fault | None], None]


@runtime_checkable
class StatesDurability(Protocol):
    """Store that states which event its acknowledged writes survive.

    "power": a power cut, "process": the death of the process, "off": neither for sure. The default is "power".
    """

    @property
    def durability(self) -> str: ...


@runtime_checkable
class StatesReadOnly(Protocol):
    """Store that states whether it was opened read-only: then it has no journal."""

    @property
    def read_only(self) -> bool: ...
