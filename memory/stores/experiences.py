"""Experiences of an open memory: stores, recalls, judges, deletes, exports and imports them.

`memory.experiences` has the statements.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from memory import audit
from memory.experiences import credit, search
from memory.experiences import rows as experiences
from memory.experiences.embedding import Embedding
from memory.experiences.rows import ExperienceFilter
from memory.experiences.search import Recalled
from memory.stores.open_memory import MOST_ROWS, OpenMemory
from spar.threads import Threads
from spar.types import Credit, Experience, Feedback, Trust

if TYPE_CHECKING:
    from memory.engine.connection import Connection
    from spar.types.cycle import ExperienceDetail

_EXPORT_BATCH = 500  # rows of one short read
_EXPORT_WAIT = 60.0  # seconds for one batch


class ExperienceStore(OpenMemory):
    """Store of the experiences of a memory."""

    def __init__(self) -> None:
        super().__init__()
        #: Embedding of texts in idle time; None without an embedder.
        self.embedding: Embedding | None = None

    async def store(self, experience: Experience) -> None:
        """Accept an experience. An experience with a known id changes nothing. Waits only while the queue is full.

        Raises: ContractError when it is no valid experience; SparError when the memory is closed or read-only.
        """
        row = experiences.row(experience)
        self._file.demand_room()
        await self._file.put(lambda connection: experiences.insert(connection, (row,)), row.bytes)

    async def recall(
        self,
        query: str = "",
        k: int = 5,
        *,
        session: str | None = None,
        task: str | None = None,
        success: bool | None = None,
        since: datetime | None = None,
        **more: Any,
    ) -> list[Experience]:
        """Return the `k` experiences that fit best, as `search` does but without scores and reasons.

        Args: query, k, session, task, success, since, more: as for `search`.
        Raises: TransientError when the file cannot be read now.
        """
        hits = await self.search(query, k, session=session, task=task, success=success, since=since, **more)
        return [hit.experience for hit in hits]

    async def search(
        self,
        query: str = "",
        k: int = 5,
        *,
        session: str | None = None,
        task: str | None = None,
        key: str | None = None,
        success: bool | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
        as_of: datetime | None = None,
        trust: Trust | None = None,
        lesson: bool | None = None,
        situation: str | None = None,
    ) -> list[Recalled]:
        """Return the `k` experiences that fit best, the best first, each with its score and the reasons.

        Experiences fit by their words, by their meaning if there is an embedder, and by their neighbours in the
        session. Of equal ones the more useful comes first, then the newer. Any text is a legal query; a query without
        words returns the newest. `k` is at most 10,000.

        Args: session, task, key, success, trust: must be equal; since, before: limits of the time when it was made
            last; as_of: only what was known at this time; lesson: whether it has a lesson; situation: the key of the
            situation of a decision. With it only the words of situations count, neighbours are left out, and an
            embedder also compares the meaning of the newest experiences of this situation.
        Raises: TransientError when the file cannot be read now.
        """
        where = ExperienceFilter(None, session, task, success, since, before, key, trust, as_of, lesson)
        number = max(0, min(k, MOST_ROWS))
        near = None
        if self.embedding is not None and query.strip() and number:
            near = await self.embedding.nearness(query)
        hits, unreadable = await self._read(lambda c: search.search(c, query, number, where, near, situation))
        self._unreadable += unreadable
        return hits

    async def detail(self, id: str) -> ExperienceDetail | None:
        """Return an experience in full, by its id or a unique beginning of an id; None for an unknown one.

        Raises: LookupError when several ids begin so.
        """
        from memory.experiences import inspect  # imported here, since few processes inspect experiences

        return await self._read(lambda connection: inspect.detail(connection, id))

    async def figures(self) -> Mapping[str, Any]:
        """Return counts of all experiences, and of those that were merged, used, seem useless or are untrusted."""
        from memory.experiences import inspect

        return await self._read(inspect.figures)

    async def apply(self, credits: Iterable[Credit] = (), feedback: Iterable[Feedback] = ()) -> int:
        """Count which experiences helped or harmed, and apply later feedback on results; durable when this returns.

        The journal writes the credits and the feedback of a cycle with its end.
        Returns: how many experiences the feedback changed.
        """
        given, words = credit.checked(credits), credit.checked(feedback)

        def apply(connection: Connection) -> int:
            credit.count(connection, given)
            return credit.take(connection, words)

        return await self._file.commit(audit.audited(apply, "experience", self._clock))

    async def forget(
        self,
        id: str | None = None,
        *,
        session: str | None = None,
        task: str | None = None,
        success: bool | None = None,
        since: datetime | None = None,
        before: datetime | None = None,
    ) -> int:
        """Delete the experiences that fit all arguments. Return their number when that is durable.

        Raises: ValueError without an argument, so that nobody deletes all experiences by accident.
        """
        where = ExperienceFilter(id, session, task, success, since, before)
        if where == ExperienceFilter():
            raise ValueError("forget needs an id or a filter; known: session, task, success, since, before")

        def delete(connection: Connection) -> int:
            return experiences.delete(connection, where)

        return await self._file.commit(audit.audited(delete, "experience", self._clock))

    async def export(self, target: str | os.PathLike[str] | IO[str]) -> int:
        """Write all experiences as JSON lines, in order of arrival, to a path or open text file. Return their number.

        Raises: OSError; TransientError when the memory cannot be read now.
        """
        loop = asyncio.get_running_loop()

        async def read_after(seq: int) -> list[tuple[int, str]]:
            return await self._read(partial(experiences.after, seq=seq, limit=_EXPORT_BATCH))

        def bodies() -> Iterator[str]:
            seq, batch = 0, [(0, "")]
            while batch:
                batch = asyncio.run_coroutine_threadsafe(read_after(seq), loop).result(_EXPORT_WAIT)
                yield from (body for _, body in batch)
                seq = batch[-1][0] if batch else seq

        from memory.experiences import jsonl  # few processes exchange experiences

        return await Threads("memory export", self._clock, limit=1).run(jsonl.write_lines, target, bodies())

    async def import_(self, source: str | os.PathLike[str] | IO[Any], *, trust: bool = False) -> int:
        """Store the experiences of a JSON lines file, all or none. Return how many were new.

        Experiences that are stored already stay unchanged.
        Args: trust: accept the trust and the counts that the file gives; otherwise the experiences are untrusted, and
            counted apart from the agent's own.
        Raises: SparError naming each bad line; OSError.
        """
        _ = self._file.writer  # raises at once when read-only
        self._file.demand_room()
        from memory.experiences import jsonl

        rows = await Threads("memory import", self._clock, limit=1).run(partial(jsonl.read_lines, trust=trust), source)

        def insert(connection: Connection) -> int:
            return experiences.insert(connection, rows)

        work = audit.audited(insert, "experience", self._clock)
        return await self._file.commit(work, sum(row.bytes for row in rows))
