"""Ports of any store: experiences, cycles, small state; without a journal."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import IO, Any, Protocol, runtime_checkable

from spar.types import CycleRecord, Experience, Fault


@runtime_checkable
class KeepsExperiences(Protocol):
    """A store of experiences: the least that an agent takes as its memory."""

    def store(self, experience: Experience, /) -> Awaitable[None] | None:
        """Accept an experience; one whose id is known changes nothing. A plain function is called in a thread.

        Raises: PermanentError for one that can never be kept; anything else is tried again.
        """


@runtime_checkable
class Recalls(Protocol):
    """A store whose experiences can be found again."""

    async def recall(
        self, query: str, k: int = 5, *, session: str | None = None, task: str | None = None,
        success: bool | None = None, since: datetime | None = None,
    ) -> Sequence[Experience]:  # fmt: skip
        """Return the experiences that fit best, the best first.

        Args:
            query: any text; without words the newest are asked for.
            k: how many at most.
            session, task, success, since: must hold exactly.
        """
        ...


@runtime_checkable
class InspectsExperiences(Protocol):
    """A store that says why it recalls what it does, and lets its owner look into it and change it."""

    async def search(self, query: str, k: int = 5, **filters: Any) -> Sequence[Any]:
        """Return what fits best as objects with `experience`, `score`, `reasons` and `nearness`.

        Args: filters: must hold exactly, but for `situation`: the name of the one that is decided on, or None. What was
        lived there may come first, where a store can tell that it is meant alike.
        """
        ...

    async def detail(self, id: str) -> Any:
        """Return an experience in full; None where there is none. Raises: LookupError when several begin so."""
        ...

    async def figures(self) -> Mapping[str, Any]:
        """Return how many there are, and how many were merged, used, are useless or of strangers."""
        ...

    async def why(self, cycle_id: str) -> Sequence[Mapping[str, Any]] | None:
        """Return the decisions of a cycle that memory changed; None for a cycle that is not known."""
        ...

    async def forget(self, id: str | None = None, **filters: Any) -> int:
        """Delete what fits all that is given; return how many. Raises: ValueError when nothing is given."""
        ...

    async def import_(self, source: Any, *, trust: bool = False) -> int:
        """Keep the experiences of a file of JSON lines, all or none; return how many were new.

        Raises: SparError naming each bad line.
        """
        ...


@runtime_checkable
class SearchesTranscripts(Protocol):
    """Transcripts that can be searched."""

    async def search(self, agent: str, text: str, limit: int = 20, *, session: str | None = None) -> Sequence[Any]:
        """Return the newest entries that hold all words, as objects with `session` and `entry`."""
        ...


@runtime_checkable
class Exports(Protocol):
    """A store whose experiences can be written to a file."""

    async def export(self, target: str | os.PathLike[str] | IO[str]) -> int:
        """Write all experiences as JSON lines, in order of arrival; return how many. Raises: OSError."""
        ...


@runtime_checkable
class KeepsCycles(Protocol):
    """A store of records of cycles."""

    def record(self, cycle: CycleRecord, /) -> Awaitable[None] | None:
        """Accept a cycle; one with a known id replaces it. A plain function is called in a thread."""


@runtime_checkable
class ReadsCycles(Protocol):
    """A store whose records of cycles can be read, also while it is open read-only."""

    async def cycles(
        self, limit: int = 20, before: str | datetime | None = None, outcome: str | None = None,
        session: str | None = None, failed: bool = False,
    ) -> Sequence[Mapping[str, Any]]:  # fmt: skip
        """Return summaries, the newest first.

        Args:
            limit: how many at most.
            before: a time, or the id of the last one that was seen.
            outcome, session: must be equal.
            failed: only cycles that failed or of whose calls one did.
        """
        ...

    async def cycle(self, cycle_id: str) -> CycleRecord | None:
        """Return the cycle with this id or unique beginning of one. Raises: LookupError when several begin so."""
        ...


@runtime_checkable
class Flushes(Protocol):
    """A store that writes later than it accepts."""

    def flush(self) -> Awaitable[None] | None:
        """Return when everything accepted so far is durable. A plain function is called in a thread.

        Raises: TransientError when that takes too long, with what is in the way.
        """


@runtime_checkable
class KeepsState(Protocol):
    """A store of small values by key."""

    async def load(self, key: str) -> Any:
        """Return what was last saved under a key, also what is not written yet; None for an unknown key."""
        ...

    async def save(self, key: str, value: Any) -> None:
        """Accept a JSON-able value.

        Raises: TooLargeError for more than a megabyte; ValueError for what is not JSON-able. The former value stays.
        """
        ...


@runtime_checkable
class TellsFaults(Protocol):
    """A store that says when writing begins to fail, when something was lost, when it was fenced, and (None) when it
    writes again: it calls `on_fault` in the event loop. The agent sets it before it opens the store."""

    on_fault: Callable[[Fault | None], None]


@runtime_checkable
class StatesDurability(Protocol):
    """A store that states what survives of what it acknowledged: "power" a power cut, "process" the death of the
    process, "off" neither for sure. One that does not is taken for "power"."""

    @property
    def durability(self) -> str: ...


@runtime_checkable
class StatesReadOnly(Protocol):
    """A store that states whether it was opened to be read only: then it keeps no journal."""

    @property
    def read_only(self) -> bool: ...
