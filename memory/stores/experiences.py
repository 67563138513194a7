"""Experiences of a memory that is open: stored, recalled, judged, forgotten, exchanged.

The statements are those of `memory.experiences`.
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
    from apsw import Connection

    from memory.experiences.inspect import ExperienceDetail

_EXPORT_BATCH = 500  # rows of one short read
_EXPORT_WAIT = 60.0  # seconds for one batch


class ExperienceStore(OpenMemory):
    """The experiences of a memory."""

    def __init__(self) -> None:
        super().__init__()
        #: What embeds in idle time; None without an embedder.
        self.embedding: Embedding | None = None

    async def store(self, experience: Experience) -> None:
        """Accept an experience; waits only while the queue is full. One whose id is known changes nothing.

        Raises: ContractError when it cannot be an experience; SparError when closed or read-only.
        """
        row = experiences.row(experience)
        self._file.demand_room()
        await self._file.put(lambda connection: experiences.insert(connection, (row,)), row.size)

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
        """Return the `k` experiences that fit best, as `search` finds them.

        Args: query, k, session, task, success, since, more: as of `search`.
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
        situation: str | None = None,
    ) -> list[Recalled]:
        """Return the `k` experiences that fit best, the best first, each with how well it fits and why: by their words,
        by their meaning where there is an embedder, and by what stands beside them in their session; of equals the more
        useful one comes first, then the newer.

        Any text is a legal query; one without words asks for the most recent. `k` is at most 10,000.

        Args: session, task, key, success, trust: must be equal; since, before: when it was made last; as_of: only what
            was known then; situation: the name of the one that is decided on: the words of situations count
            alone, nothing comes along, and where there is an embedder, what was lived there last is looked through by
            its meaning alone, too.
        Raises: TransientError when the file cannot be read now.
        """
        where = ExperienceFilter(None, session, task, success, since, before, key, trust, as_of)
        number = max(0, min(k, MOST_ROWS))
        near = None
        if self.embedding is not None and query.strip() and number:
            near = await self.embedding.nearness(query)
        hits, unreadable = await self._read(lambda c: search.search(c, query, number, where, near, situation))
        self._unreadable += unreadable
        return hits

    async def detail(self, id: str) -> ExperienceDetail | None:
        """Return an experience in full, by its id or a unique beginning of one; None where there is none.

        Raises: LookupError when several begin so.
        """
        from memory.experiences import inspect  # for who looks

        return await self._read(lambda connection: inspect.detail(connection, id))

    async def figures(self) -> Mapping[str, Any]:
        """Return how many experiences there are, and how many were merged, used, are useless or of strangers."""
        from memory.experiences import inspect

        return await self._read(inspect.figures)

    async def apply(self, credits: Iterable[Credit] = (), feedback: Iterable[Feedback] = ()) -> int:
        """Count what helped and what harmed, and take later words on how something went; safe when this returns.

        What a cycle has of this comes with its end, through the journal.
        Returns: how many experiences the words changed.
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
        """Delete the experiences that fit all that is given; returns how many, once that is safe.

        Raises: ValueError when nothing is given: all of them is never meant by accident.
        """
        where = ExperienceFilter(id, session, task, success, since, before)
        if where == ExperienceFilter():
            raise ValueError("forget needs an id or a filter; known: session, task, success, since, before")

        def delete(connection: Connection) -> int:
            return experiences.delete(connection, where)

        return await self._file.commit(audit.audited(delete, "experience", self._clock))

    async def export(self, target: str | os.PathLike[str] | IO[str]) -> int:
        """Write all experiences as JSON lines, in order of arrival, to a path or an open text file; returns how many.

        Raises: OSError; TransientError when the memory cannot be read now.
        """
        loop = asyncio.get_running_loop()

        def bodies() -> Iterator[str]:
            seq, batch = 0, [(0, "")]
            while batch:
                read = self._read(partial(experiences.after, seq=seq, limit=_EXPORT_BATCH))
                batch = asyncio.run_coroutine_threadsafe(read, loop).result(_EXPORT_WAIT)
                yield from (body for _, body in batch)
                seq = batch[-1][0] if batch else seq

        from memory.experiences import jsonl  # few processes exchange experiences

        return await Threads("memory export", self._clock, limit=1).run(jsonl.write_lines, target, bodies())

    async def import_(self, source: str | os.PathLike[str] | IO[Any], *, trust: bool = False) -> int:
        """Keep the experiences of a JSON lines file, all or none; returns how many were new. None that is here is
        changed.

        Args: trust: believe what the file claims of their trust, and of how often they were made and helped; else they
            are untrusted, and counted apart from what was lived.
        Raises: SparError naming each bad line; OSError.
        """
        _ = self._file.writer  # refuses at once when read-only
        self._file.demand_room()
        from memory.experiences import jsonl

        rows = await Threads("memory import", self._clock, limit=1).run(partial(jsonl.read_lines, trust=trust), source)

        def insert(connection: Connection) -> int:
            return experiences.insert(connection, rows)

        work = audit.audited(insert, "experience", self._clock)
        return await self._file.commit(work, sum(row.size for row in rows))
