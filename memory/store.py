"""The memory's public face: experiences, the tape of cycles and small state, in one SQLite file.

Nothing here blocks the event loop: what is written is encoded at once and queued for the writer's thread
(`sqlite/writer`), what is read is read in a worker thread (`sqlite/readers`). What was stored is found by the next
recall. It opens nothing until it is entered, and an idle memory writes nothing.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import IO, TYPE_CHECKING, Annotated, Any, TypeVar, get_args

import anyio
from annotated_types import Ge, Gt
from msgspec import structs

from memory import audit, cycle_log, events, own_rows, pieces, records, retention
from memory.care import losses, repair
from memory.care.doctor import Doctor
from memory.care.opening import open_file
from memory.codec import decode, encode, exactly, safe, sealed
from memory.experiences import credit, inspect, jsonl, search
from memory.experiences import rows as experiences
from memory.experiences.embedding import Embedding
from memory.experiences.inspect import ExperienceDetail
from memory.experiences.rows import ExperienceFilter
from memory.experiences.search import Recalled
from memory.journal import budgets, counts, orphans, replay
from memory.journal.in_flight import InFlightFile
from memory.journal.journal import Journal
from memory.session_store import SessionRows
from memory.sqlite import database
from memory.sqlite.database import IN_MEMORY, SYNCHRONOUS, Durability
from memory.sqlite.session import DatabaseSession
from memory.transcript_store import Transcripts
from spar.clock import Clock, SystemClock
from spar.errors import ConfigError, ConflictError, SparError, TransientError
from spar.ports.embedder import Embedder
from spar.protocols import Home, Host, Record
from spar.records.audit import STATE
from spar.records.journal import DeadLetter, Doubt, RowChange
from spar.threads import Threads
from spar.types import Credit, CycleRecord, Experience, Fault, Feedback, Trust, replace

if TYPE_CHECKING:
    from apsw import Connection

    from spar.ports.store import DurableStore

R = TypeVar("R")

#: Kinds of faults by which something that was kept, or was to be, is lost.
_LOSSES = ("damaged", "permanent")

_MOST = 10_000  # rows of one answer: more is an export
_MOST_CASES = 50  # of one decision that are shown
_EXPORT_BATCH = 500  # rows of one short read
_EXPORT_WAIT = 60.0  # seconds for one batch


class Memory:
    """Experiences, cycles and state in one file; `async with Memory.open(url) as memory`.

    Args:
        url: `sqlite:///relative` (to `home.state`, else the working directory), `sqlite:////absolute` or
            `sqlite://:memory:`, which is gone when it is closed.
        durability: what survives of what `flush` acknowledged: "power" a power cut, "process" the death of the
            process, "off" neither for sure.
        keep_days, keep_cycles, keep_experiences, keep_bytes: what is kept, the oldest goes first; None keeps all.
        keep_fact_days, keep_facts: what is kept of the journal of cycles that have ended.
        keep_transcript_days, keep_transcripts, keep_transcript_bytes: what is kept of transcripts, by the age, number
            and size of their entries.
        keep_audit_days: what is kept of the audit log.
        max_bytes: what the whole file may take; beyond it the oldest cycles, experiences, entries and facts go, of what
            takes most.
        ballast: bytes that are held beside the file and given up when the disk is full, so that it can be cleaned; less
            where the disk is small.
        on_damage: "restore" sets a damaged file aside and takes the last good copy, "refuse" leaves it to you.
        read_only: reads a file that another process may have open; takes no lock and cannot write.
        embedder: embeds texts in idle time, so that recall finds what is meant where other words say it.
    Raises: ConfigError when a value cannot be used.

    `on_fault` is called in the event loop with a Fault when writing begins to fail or an accepted item had to be set
    aside, and with None when writing works again. It may be entered more than once (an agent enters the memory that
    it is given) and closes with the last exit; once closed it can be opened again.
    """

    def __init__(
        self,
        url: str = "sqlite:///memory.db",
        *,
        durability: Durability = "power",
        keep_days: Annotated[float, Gt(0)] | None = 365,
        keep_cycles: Annotated[int, Gt(0)] | None = 100_000,
        keep_experiences: Annotated[int, Gt(0)] | None = 100_000,
        keep_bytes: Annotated[int, Gt(0)] | None = 1 << 30,
        keep_fact_days: Annotated[float, Gt(0)] | None = 7,
        keep_facts: Annotated[int, Gt(0)] | None = 1_000_000,
        keep_transcript_days: Annotated[float, Gt(0)] | None = 90,
        keep_transcripts: Annotated[int, Gt(0)] | None = 200_000,
        keep_transcript_bytes: Annotated[int, Gt(0)] | None = 100 << 20,
        keep_audit_days: Annotated[float, Gt(0)] | None = 400,
        max_bytes: Annotated[int, Gt(0)] | None = 4 << 30,
        ballast: Annotated[int, Ge(0)] = 64 << 20,
        on_damage: repair.OnDamage = "restore",
        read_only: bool = False,
        home: Home | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        if durability not in SYNCHRONOUS:
            raise ConfigError(
                f"durability cannot be {durability!r}; known: {', '.join(SYNCHRONOUS)}", path=("durability",)
            )
        limits = {
            "keep_days": keep_days,
            "keep_cycles": keep_cycles,
            "keep_experiences": keep_experiences,
            "keep_bytes": keep_bytes,
            "keep_fact_days": keep_fact_days,
            "keep_facts": keep_facts,
            "keep_transcript_days": keep_transcript_days,
            "keep_transcripts": keep_transcripts,
            "keep_transcript_bytes": keep_transcript_bytes,
            "keep_audit_days": keep_audit_days,
            "max_bytes": max_bytes,
        }
        for name, limit in limits.items():
            if limit is not None and not limit > 0:
                raise ConfigError(f"{name} must be more than 0, or left out to keep all, found {limit!r}", path=(name,))
        self.path = database.locate(url, home.state if home is not None else None)
        if read_only and self.path == IN_MEMORY:
            raise ConfigError("a memory that is new and in memory cannot be read-only", path=("read_only",))
        self.read_only, self.durability = read_only, durability
        if on_damage not in get_args(repair.OnDamage):
            known = ", ".join(get_args(repair.OnDamage))
            raise ConfigError(f"on_damage cannot be {on_damage!r}; known: {known}", path=("on_damage",))
        if not ballast >= 0:
            raise ConfigError(f"ballast must be bytes, 0 or more, found {ballast!r}", path=("ballast",))
        self._ballast, self._on_damage = ballast, on_damage
        self._limits = retention.RetentionLimits(
            keep_days,
            keep_cycles,
            keep_experiences,
            keep_bytes,
            keep_fact_days,
            keep_facts,
            keep_transcript_days,
            keep_transcripts,
            keep_transcript_bytes,
            max_bytes,
        )
        self._audit_days = keep_audit_days
        #: What embeds in idle time; None without an embedder.
        self.embedding = None if embedder is None else self._made(embedder)
        self.on_fault: Callable[[Fault | None], None] = _ignore
        self._clock: Clock = SystemClock()
        self._opening, self._openings = anyio.Lock(), 0
        self._opened: DatabaseSession | None = None
        self._opened_mono = 0.0
        self._opened_at = 0.0  # wall time of the monotonic clock's beginning, as it was when the file was opened
        self._journal: Journal | None = None
        #: What was said and done in each session.
        self.transcripts = Transcripts(lambda: self._file, lambda: self._journal, self._told)
        #: The keys under which they were said, with their titles and defaults.
        self.sessions = SessionRows(lambda: self._file, lambda: self._journal, self._told, lambda: self._clock)
        #: Who changed what.
        self.audit = audit.AuditRows(lambda: self._file, lambda: self._clock, lambda work: self._read(work))
        self._unsaved: dict[str, str] = {}
        self._last: dict[str, Any] = {}
        self._unreadable = 0

    @classmethod
    def open(cls, url: str = "sqlite:///memory.db", **options: Any) -> Memory:
        """Make a memory as the constructor does, for `async with Memory.open(url) as memory`."""
        return cls(url, **options)

    def attach(self, host: Host) -> None:
        """Live by the agent's clock. Called once, before the memory is opened."""
        self._clock = host.clock

    # -- opening and closing -----------------------------------------------------------------------------------

    async def __aenter__(self) -> Memory:
        async with self._opening:
            if self._opened is None:
                self._opened_mono = self._clock.monotonic()
                self._opened_at = self._clock.now().timestamp() - self._opened_mono
                self._opened = await open_file(
                    self.path,
                    self.durability,
                    self._clock,
                    read_only=self.read_only,
                    tend=self._tend,
                    told=self._told,
                    ballast=self._ballast,
                    on_damage=self._on_damage,
                )
                if not self.read_only:
                    await self._begin_journal(self._opened)
                    if self.embedding is not None:
                        self.embedding.begin()
            self._openings += 1
        return self

    async def _begin_journal(self, opened: DatabaseSession) -> None:
        try:
            hand = InFlightFile(None if self.path == IN_MEMORY else f"{self.path}.hand", opened.epoch)
            self._journal = Journal(opened, self._clock, hand, self._told)
            await self._journal.load()
        except BaseException:
            self._forget_file(opened)
            await opened.close()
            raise

    @property
    def care(self) -> Doctor:
        """The maintenance of the file: copy it, restore a copy, verify it."""
        return Doctor(self.path, self._ballast)

    @property
    def journal(self) -> Journal:
        """The journal of an agent's work, so that the next process goes on with it. Raises: SparError when the memory
        is not open, or read-only."""
        if self._journal is None:
            raise SparError("the journal is there while the memory is open, and can be written")
        return self._journal

    async def __aexit__(self, *exc: object) -> None:
        self._openings -= 1
        if self._openings <= 0:
            await self.close()

    async def close(self) -> None:
        """Write what was accepted, checkpoint, release the lock; within about ten seconds. Closing twice is fine.

        Raises: TransientError when a failing disk did not take everything, with how much and why.
        """
        async with self._opening:
            opened = self._opened
            if opened is None:
                return
            if self.embedding is not None:
                await self.embedding.end()
            if self._journal is not None:
                self._journal.hand_over()
            try:
                await opened.close()
            except TransientError:
                self._forget_file(opened)
                raise
            self._forget_file(opened)

    def _forget_file(self, opened: DatabaseSession) -> None:
        self._last, self._opened, self._openings = opened.snapshot(), None, 0
        journal, self._journal = self._journal, None
        if journal is not None:
            journal.hand.close()

    # -- experiences -------------------------------------------------------------------------------------------

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
        found = await self.search(query, k, session=session, task=task, success=success, since=since, **more)
        return [each.experience for each in found]

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
        number = max(0, min(k, _MOST))
        near = None
        if self.embedding is not None and query.strip() and number:
            near = await self.embedding.nearness(query)
        found, unreadable = await self._read(lambda c: search.search(c, query, number, where, near, situation))
        self._unreadable += unreadable
        return found

    async def detail(self, id: str) -> ExperienceDetail | None:
        """Return an experience in full, by its id or a unique beginning of one; None where there is none.

        Raises: LookupError when several begin so.
        """
        return await self._read(lambda connection: inspect.detail(connection, id))

    async def figures(self) -> Mapping[str, Any]:
        """Return how many experiences there are, and how many were merged, used, are useless or of strangers."""
        return await self._read(inspect.figures)

    async def why(self, cycle_id: str) -> list[dict[str, Any]] | None:
        """Return the decisions of a cycle that memory changed, or would have, each with the experiences that it went
        by, as far as they are kept; None for a cycle that is not on the tape. Raises: LookupError."""
        record = await self.cycle(cycle_id)
        if record is None:
            return None
        found = []
        for learnt in record.action.learnt if record.action is not None else ():
            details = [await self._case(id) for id in learnt.cases[:_MOST_CASES]]
            found.append({**structs.asdict(learnt), "cases": details})
        return found

    async def _case(self, id: str) -> dict[str, Any]:
        try:
            found = await self.detail(id)
        except LookupError:
            found = None
        return {"id": id, "experience": None if found is None else found.experience}

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
        rows = await Threads("memory import", self._clock, limit=1).run(partial(jsonl.read_lines, trust=trust), source)

        def insert(connection: Connection) -> int:
            return experiences.insert(connection, rows)

        work = audit.audited(insert, "experience", self._clock)
        return await self._file.commit(work, sum(row.size for row in rows))

    # -- the tape ----------------------------------------------------------------------------------------------

    async def record(self, cycle: CycleRecord) -> None:
        """Accept a cycle for the tape; waits only while the queue is full. One with a known id replaces it.

        Raises: ContractError when it is no cycle; SparError when closed or read-only.
        """
        row = cycle_log.row(cycle)
        self._file.demand_room()
        await self._file.put(lambda connection: cycle_log.insert(connection, row), cycle_log.size_of(row))

    async def cycles(
        self,
        limit: int = 20,
        before: str | datetime | None = None,
        outcome: str | None = None,
        session: str | None = None,
        failed: bool = False,
    ) -> list[dict[str, Any]]:
        """Summaries, the newest first; `before` a time, or the id of the last one that was seen; `failed`: only cycles
        that failed or of whose calls one did."""
        most = max(0, min(limit, _MOST))
        return await self._read(
            lambda connection: cycle_log.summaries(connection, most, before, outcome, session, is_failed=failed)
        )

    async def cycle(self, cycle_id: str) -> CycleRecord | None:
        """Return the cycle with this id or unique beginning of one. Raises: LookupError when several begin so."""
        found = await self._read(lambda connection: cycle_log.find(connection, cycle_id))
        if found is not None:
            self._unreadable += sum(fault.kind == "unreadable" for fault in found.faults)
        return found

    # -- what was cut off --------------------------------------------------------------------------------------

    async def left(self, agent: str) -> tuple[list[Doubt], list[DeadLetter]]:
        """Return what recovery has left to people, also when read-only: the calls of an agent that are or were in
        doubt, and what was put aside; the oldest first."""

        missed: list[str] = []

        def look(connection: Connection) -> tuple[list[Doubt], list[DeadLetter]]:
            doubts = replay.doubts(connection, agent, missed, is_open=False)
            started = [replace(doubt, call=replay.call(connection, doubt)) for doubt in doubts]
            return started, replay.dead_letters(connection, agent, missed)

        found = await self._read(look)
        self._unreadable += len(missed)
        return found

    # -- state -------------------------------------------------------------------------------------------------

    async def save(self, key: str, value: Any) -> None:
        """Accept a small JSON-able value under a key; the next `load` sees it.

        Raises: TooLargeError for more than a megabyte; ValueError for what is not JSON-able.
        """
        name, text = _own(key), sealed(exactly(value, f"state {key!r:.100}"))

        def write(connection: Connection) -> None:
            connection.execute("INSERT OR REPLACE INTO state (key, value) VALUES (?, ?)", (name, text))

        self._file.demand_room()
        if self._journal is not None:  # what was told before must not come after it
            self._journal.hand_over()
        probe = ("SELECT value FROM state WHERE key = ?", (name,))
        work = audit.audited(write, STATE + key.partition(":")[0], self._clock, probe)
        if work is write:
            await self._file.put(write, len(text))
        else:  # somebody wants this: row and entry are safe together when it is answered
            await self._file.commit(work, len(text))
        self._unsaved[name] = text  # a load finds it here while a failing disk holds it up

    async def load(self, key: str) -> Any:
        """Return the value that was last saved under a key, or None."""
        name = _own(key)
        if not self._file.pending:
            self._unsaved.clear()
        if (unsaved := self._unsaved.get(name)) is not None:
            return decode(unsaved, object)

        def read(connection: Connection) -> Any:
            text = connection.execute("SELECT value FROM state WHERE key = ?", (name,)).get
            return None if text is None else decode(str(text), object)

        return await self._read(read)

    async def rows(self, owner: str) -> dict[str, Any]:
        """Return the values of all small rows of an owner, by key."""
        return await self._read(lambda connection: own_rows.all_of(connection, owner))

    async def change(self, changes: Iterable[RowChange]) -> None:
        """Accept changes of small rows, all or none; the next `rows` sees them.

        Raises: TooLargeError for a value of more than a megabyte; ValueError for one that is not JSON-able.
        """
        self._file.demand_room()
        self.journal.change(changes)

    # -- records -----------------------------------------------------------------------------------------------

    async def records(self, kind: str) -> list[Record]:
        """Return all rows of a kind, by id."""
        return await self._read(lambda connection: records.all_of(connection, safe(kind)))

    async def keep(self, kind: str, id: str, value: Any, *, expect: int | None = None) -> int:
        """Write a row and return its new version; on disk as `durability` says when this returns, in one transaction
        with what the journal was told before.

        `expect` is the version that it must have now, 0 that it must not exist. Cancelling stops the waiting, not the
        writing. Raises: ConflictError when it has another one; ValueError when the value is not JSON-able or larger
        than a megabyte.
        """
        text, at = sealed(encode(value, exact=True)), self._clock.now().timestamp()
        self._file.demand_room()
        told = self._journal.taken() if self._journal is not None else _nothing

        def write(connection: Connection) -> int | ConflictError:
            try:
                return records.keep(connection, safe(kind), safe(id), text, expect, at)
            except ConflictError as error:  # what was told before is true all the same
                return error
            finally:
                told(connection)

        probe = "SELECT value FROM record WHERE kind = ? AND id = ?", (safe(kind), safe(id))
        found = await self._file.commit(audit.audited(write, kind, self._clock, probe), len(text))
        if isinstance(found, ConflictError):
            raise found
        return found

    async def drop(self, kind: str, id: str) -> bool:
        """Delete a row, on disk as `durability` says when this returns; False if there was none."""
        at = self._clock.now().timestamp()
        probe = "SELECT value FROM record WHERE kind = ? AND id = ?", (safe(kind), safe(id))

        def drop(connection: Connection) -> bool:
            return records.drop(connection, safe(kind), safe(id), at)

        return await self._file.commit(audit.audited(drop, kind, self._clock, probe))

    # -- the whole ---------------------------------------------------------------------------------------------

    async def flush(self, within: float = 30.0) -> None:
        """Return when everything accepted so far is as safe as `durability` says.

        Raises: TransientError when that took more than `within` seconds, with what is in the way.
        """
        if self._journal is not None:
            self._journal.hand_over()
        if not await self._file.written(within):
            waiting = self.snapshot()
            raise TransientError(f"{waiting['queued']} accepted items are not written yet: {waiting['last_error']}")

    async def counts(self) -> dict[str, int]:
        """Return how many rows there are: `experiences`, `cycles`, `state`."""

        def count(connection: Connection) -> dict[str, int]:
            tables = {"experiences": "experience", "cycles": "cycle", "state": "state"}
            found = {name: int(str(connection.execute(f"SELECT count(*) FROM {t}").get)) for name, t in tables.items()}
            own = connection.execute(f"SELECT count(*) FROM state WHERE key IN {database.OWN_KEYS}").get
            return {**found, "state": found["state"] - int(str(own))}

        return await self._read(count)

    def snapshot(self) -> dict[str, Any]:
        """Return counts and states, from any thread: what is queued, committed, failing, and the sizes in bytes."""
        opened = self._opened
        size, wal = database.sizes(self.path)
        return {
            **(opened.snapshot() if opened is not None else self._last),
            "path": self.path,
            "is_open": opened is not None,
            "durability": self.durability,
            "bytes": size,
            "wal_bytes": wal,
            "unreadable": self._unreadable,
        }

    # -- inside ------------------------------------------------------------------------------------------------

    @property
    def _file(self) -> DatabaseSession:
        if self._opened is None:
            raise SparError("the memory is not open; use 'async with Memory.open(url) as memory'")
        return self._opened

    def _made(self, embedder: Embedder) -> Embedding:
        return Embedding(embedder, lambda: self._clock, lambda: self._file, self._told)

    def _note_loss(self, opened: DatabaseSession, message: str) -> None:
        """Have the writer's thread note it beside the file: the event loop waits for no disk."""

        def note(connection: Connection) -> None:
            with suppress(OSError):
                losses.note(self.path, [message])

        with suppress(SparError):  # it is being closed, or read-only
            opened.writer.offer(note, len(message))

    async def _read(self, work: Callable[[Connection], R]) -> R:
        """Do the work on the file with all rows told before, and return its result."""
        if self._journal is not None:
            self._journal.hand_over()
        return await self._file.read(work)

    def _tend(self, connection: Connection) -> bool:
        # A wall clock that has jumped ahead since the opening makes nothing old.
        now = min(self._clock.now().timestamp(), self._opened_at + self._clock.monotonic())
        live = self._journal.live if self._journal is not None else None
        gone = counts.fold(connection) + retention.trim(connection, self._limits, now)
        gone += retention.trim_facts(connection, self._limits, now, live)
        if live and self._clock.monotonic() >= self._opened_mono + orphans.AFTER:
            self._bury(connection, live, now)
        gone += retention.trim_transcripts(connection, self._limits, now)
        gone += audit.trim(connection, self._audit_days, now)
        gone += retention.fit(connection, self._limits, now, live)
        gone += pieces.trim(connection) + events.forget(connection, now) + budgets.trim(connection)
        if gone or retention.tidy(connection, self._limits.file_bytes):
            return True
        if self.embedding is not None:
            self.embedding.wake()
        return False

    def _bury(self, connection: Connection, live: frozenset[str], now: float) -> None:
        """Put cycles of agents that are gone aside, and say so."""
        for told in orphans.bury(connection, live, now):
            self._file.writer.tell(Fault("gone", told, "memory", retryable=False))

    def _told(self, fault: Fault | None) -> None:
        if fault is not None and fault.kind in _LOSSES and self.path != IN_MEMORY and self._opened is not None:
            self._note_loss(self._opened, fault.message)
        try:
            self.on_fault(fault)
        except Exception:  # who listens badly must not disturb the writing
            self.on_fault = _ignore


def _own(key: str) -> str:
    """Return the key as a column takes it. Raises: ValueError for one that the file keeps for itself."""
    if key in database.OWN_KEYS:
        raise ValueError(f"the key {key!r} is the memory's own; use another one")
    return safe(key)


def _nothing(connection: Connection) -> None:
    return None


def _ignore(fault: Fault | None) -> None:
    return None


if TYPE_CHECKING:

    def _is_durable_store(memory: Memory) -> DurableStore:  # mypy compares the signatures of the port
        return memory
