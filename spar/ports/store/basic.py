"""Port of a store in full, and its optional members."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import IO, Any, Protocol, runtime_checkable

from spar.ports.store.care import Care
from spar.ports.store.journal import Journal
from spar.ports.store.sessions import SessionStore, TranscriptStore
from spar.protocols import Records, Rows
from spar.records.audit import AuditDraft, AuditLog
from spar.records.journal import DeadLetter, Doubt, Item
from spar.records.runs import RunRow
from spar.records.transcript import FoundEntry
from spar.types import CycleRecord, Experience, Fault
from spar.types.cycle import ExperienceDetail


@runtime_checkable
class SearchesTranscripts(Protocol):
    """Transcripts that can be searched."""

    async def search(
        self, agent: str, text: str, limit: int = 20, *, session: str | None = None
    ) -> Sequence[FoundEntry]:
        """Return the newest entries that contain all words."""


@runtime_checkable
class DurableStore(Rows, Records, Protocol):
    """Store in full; an async context manager that may be entered more than once.

    An agent works with any object that has `store`; it asks for each other member (`spar.ports.any_part.has`).
    """

    def store(self, experience: Experience, /) -> Awaitable[None] | None:
        """Accept an experience; one with a known id changes nothing. A plain function is called in a thread.

        Raises: PermanentError for one that can never be stored; any other error leads to another attempt.
        """

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

    async def export(self, target: str | os.PathLike[str] | IO[str]) -> int:
        """Write all experiences as JSON lines, in order of arrival; return how many. Raises: OSError."""

    def record(self, cycle: CycleRecord, /) -> Awaitable[None] | None:
        """Accept a cycle; one with a known id replaces the old record. A plain function is called in a thread."""

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

    async def cycle(self, cycle_id: str) -> CycleRecord | None:
        """Return the cycle with this id or unique beginning of an id. Raises: LookupError when several ids begin so."""

    def flush(self) -> Awaitable[None] | None:
        """Return when everything accepted so far is durable. A plain function is called in a thread.

        Raises: TransientError when that takes too long, with the cause.
        """

    async def load(self, key: str) -> Any:
        """Return the last value saved under a key, even if it is not written yet; None for an unknown key."""

    async def save(self, key: str, value: Any) -> None:
        """Accept a JSON-able value.

        Raises: TooLargeError for more than a megabyte; ValueError for a value that is not JSON-able. The former value
            stays.
        """

    @property
    def on_fault(self) -> Callable[[Fault | None], None]:
        """Return the function that it calls in the event loop when writing begins to fail, when something was lost,
        when it was fenced, and (with None) when it writes again. The agent sets it before it opens the store."""

    @property
    def durability(self) -> str:
        """Return which event its acknowledged writes survive.

        "power": a power cut, "process": the death of the process, "off": neither for sure. The default is "power".
        """

    @property
    def read_only(self) -> bool:
        """Return whether it was opened read-only: then it has no journal."""

    @property
    def care(self) -> Care:
        """Return the care of its file, which need not be open."""

    async def left(self, agent: str) -> tuple[Sequence[Doubt], Sequence[DeadLetter]]:
        """Return an agent's calls that are or were in doubt and its dead letters, the oldest first.

        Calls that an open cycle has begun, and that may have had their effect, may be among them.
        """

    async def run_rows(
        self, agent: str, limit: int, before: str | None = None, since: datetime | None = None, *, is_open: bool = False
    ) -> Sequence[RunRow]:
        """Return runs, the newest first; one that waits is `running` if cycles have worked on it.

        Args: before: the id of the last run that was read; is_open: only those that have not ended.
        """

    async def run_record(self, agent: str, run_id: str) -> tuple[Item | None, Mapping[str, Any] | None]:
        """Return a run's item while it waits, its answer once it has ended; None twice for an unknown run."""

    @property
    def journal(self) -> Journal:
        """Return the journal while the store is open and can be written. Raises: SparError at other times."""

    @property
    def transcripts(self) -> TranscriptStore:
        """Return the transcripts of sessions."""

    @property
    def sessions(self) -> SessionStore:
        """Return the records of sessions."""

    def snapshot(self) -> Mapping[str, Any]:
        """Return its condition, from any thread; JSON-able. The core reads `queued`, `commit_seconds`, `bytes`,
        `wal_bytes`."""


class InspectsExperiences(Protocol):
    """Store that explains its recalls, and lets its owner inspect and change it."""

    async def search(self, query: str, k: int = 5, **filters: Any) -> Sequence[Any]:
        """Return the best matches as objects with `experience`, `score`, `reasons` and `nearness`.

        Args: filters: conditions that must hold exactly, except `situation`: the name of the present situation, or
            None. Experiences of that situation may come first if a store can tell that the meaning is similar.
        """

    async def detail(self, id: str) -> ExperienceDetail | None:
        """Return an experience in full; None for an unknown one. Raises: LookupError when several ids begin so."""

    async def figures(self) -> Mapping[str, Any]:
        """Return the number of experiences, and how many were merged, used, are useless or come from strangers."""

    async def why(self, cycle_id: str) -> Sequence[Mapping[str, Any]] | None:
        """Return the decisions of a cycle that memory changed; None for an unknown cycle."""

    async def forget(self, id: str | None = None, **filters: Any) -> int:
        """Delete the experiences that match all conditions; return their number. Raises: ValueError without a
        condition."""

    async def import_(self, source: Any, *, trust: bool = False) -> int:
        """Store the experiences of a file of JSON lines, all or none; return how many were new.

        Raises: SparError naming each bad line.
        """


class OptionalStore(Protocol):
    """Optional members of a store besides those of `DurableStore`."""

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

    @property
    def audit(self) -> AuditLog:
        """Return the audit log."""

    def copy_from_file(self, path: str, draft: AuditDraft, /) -> Mapping[str, int]:
        """Copy all rows of a file into the store. Like `copy_to_file` a member of the care of a store without a file.

        The store must not be open. Args: draft: the entry of the target's audit log.
        Returns: the number of rows by table.
        Raises: ConfigError if one end is in use, or the target is not empty; SparError, OSError; the target is then as
        it was.
        """

    def copy_to_file(self, path: str, draft: AuditDraft, /) -> Mapping[str, int]:
        """Copy all rows of the store into a new file, as `copy_from_file` does."""
