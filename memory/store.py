"""Public class of the memory: experiences, the cycle log and small state in one SQLite file.

No method blocks the event loop. Values to write are encoded at once and queued for the writer's thread
(`sqlite/writer`); reads run in a worker thread (`sqlite/readers`). The next recall finds what was stored before.
The file is opened when the memory is entered, and an idle memory writes nothing. This module makes, opens, maintains
and closes a memory; `stores` has the methods that write and read, one module for each kind of data.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, Self, get_args

import anyio
from annotated_types import Ge, Gt
from msgspec import structs

from memory import audit, counts, pieces, retention
from memory.care import losses, repair
from memory.engine.own_keys import OWN_KEYS
from memory.experiences.embedding import Embedding
from memory.journal import orphans, statements
from memory.journal.in_flight import InFlightFile
from memory.sessions import SessionRows
from memory.sqlite import database
from memory.sqlite.database import IN_MEMORY, SYNCHRONOUS, Durability
from memory.stores.cycles import CycleStore
from memory.stores.experiences import ExperienceStore
from memory.stores.state import StateStore
from memory.transcripts import Opened, Transcripts
from spar.errors import ConfigError, SparError, TransientError
from spar.ports.services import Embedder
from spar.protocols import Home, Host
from spar.types import Fault

if TYPE_CHECKING:
    from memory.engine.connection import Connection
    from memory.engine.session import DatabaseSession
    from memory.journal.journal import Journal
    from spar.ports.store import Care, DurableStore

#: Kinds of faults that lose stored or accepted data.
_LOSSES = ("damaged", "permanent")

_MOST_CASES = 50  # experiences shown for one decision


class Memory(ExperienceStore, CycleStore, StateStore):
    """Experiences, cycles and state in one file; `async with Memory.open(url) as memory`.

    Args:
        url: `sqlite:///relative` (to `home.state`, else the working directory), `sqlite:////absolute` or
            `sqlite://:memory:`, whose content is lost when it is closed.
        durability: what flushed data survives: "power" a power cut, "process" the death of the process, "off" neither
            for certain.
        keep_days, keep_cycles, keep_experiences, keep_bytes: limits of cycles and experiences; beyond a limit the
            oldest are deleted first, None keeps all.
        keep_fact_days, keep_facts: limits of the facts in the journal of cycles that have ended.
        keep_transcript_days, keep_transcripts, keep_transcript_bytes: limits of transcripts, by the age, number and
            size of their entries.
        keep_audit_days: the age limit of the audit log.
        max_bytes: the limit of the whole file; beyond it the oldest rows of the largest of cycles, experiences,
            transcript entries and facts are deleted.
        ballast: bytes reserved beside the file and freed when the disk is full, so that it can be cleaned; fewer on
            a small disk.
        on_damage: "restore" moves a damaged file away and restores the last good copy, "refuse" does not open it.
        read_only: read a file that another process may have open; this takes no lock and cannot write.
        embedder: embeds texts in idle time, so that recall also finds texts that say the same in other words.
    Raises: ConfigError when a value cannot be used.

    `on_fault` is called in the event loop with a Fault when writing begins to fail or an accepted item had to be set
    aside, and with None when writing works again. A memory may be entered more than once (an agent enters the memory
    that it is given). The last exit closes it, and a closed memory can be opened again.
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
        self._limits = retention.RetentionLimits(
            keep_days, keep_cycles, keep_experiences, keep_bytes, keep_fact_days, keep_facts, keep_transcript_days,
            keep_transcripts, keep_transcript_bytes, max_bytes, keep_audit_days,
        )  # fmt: skip
        self.path = self._locate(url, home.state if home is not None else None)
        if read_only and self.path == IN_MEMORY:
            raise ConfigError("a memory that is new and in memory cannot be read-only", path=("read_only",))
        self.read_only, self.durability = read_only, durability
        if on_damage not in get_args(repair.OnDamage):
            known = ", ".join(get_args(repair.OnDamage))
            raise ConfigError(f"on_damage cannot be {on_damage!r}; known: {known}", path=("on_damage",))
        if not ballast >= 0:
            raise ConfigError(f"ballast must be bytes, 0 or more, found {ballast!r}", path=("ballast",))
        self._ballast, self._on_damage = ballast, on_damage
        super().__init__()
        if embedder is not None:
            self.embedding = Embedding(embedder, lambda: self._clock, lambda: self._file, self._report)
        self.on_fault: Callable[[Fault | None], None] = _ignore
        self._opening, self._openings = anyio.Lock(), 0
        self._opened_mono = 0.0
        self._opened_at = 0.0  # wall time at which the monotonic clock was 0, computed when the file was opened
        opened = Opened(lambda: self._file, lambda: self._journal, lambda: self._clock, self._report)
        #: Transcripts of the sessions.
        self.transcripts = Transcripts(opened)
        #: Rows of the sessions, with their titles and defaults.
        self.sessions = SessionRows(opened)
        #: Audit log.
        self.audit = audit.AuditRows(opened)
        self._last: dict[str, Any] = {}

    def _locate(self, url: str, start: str | None) -> str:
        """Return the name of the database that a URL names. Raises: ConfigError."""
        return database.locate(url, start)

    @classmethod
    def open(cls, url: str = "sqlite:///memory.db", **options: Any) -> Self:
        """Return a memory made by the constructor, for `async with Memory.open(url) as memory`."""
        return cls(url, **options)

    def attach(self, host: Host) -> None:
        """Use the agent's clock. Called once, before the memory is opened."""
        self._clock = host.clock

    # -- opening and closing -----------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        async with self._opening:
            if self._opened is None:
                self._opened_mono = self._clock.monotonic()
                self._opened_at = self._clock.now().timestamp() - self._opened_mono
                self._opened = await self._open()
                if not self.read_only:
                    await self._begin_journal(self._opened)
                    if self.embedding is not None:
                        self.embedding.begin()
            self._openings += 1
        return self

    async def _open(self) -> DatabaseSession:
        from memory.care.opening import open_file  # commands that only look at the settings open nothing

        return await open_file(
            self.path,
            self.durability,
            self._clock,
            read_only=self.read_only,
            tend=self._tend,
            report=self._report,
            ballast=self._ballast,
            on_damage=self._on_damage,
        )

    @property
    def _in_flight_path(self) -> str | None:
        """Return the path of the file with the names of the current work; None for none."""
        return f"{self.path}.hand" if self._has_file else None

    async def _begin_journal(self, opened: DatabaseSession) -> None:
        try:
            self._journal = self._journal_of(opened, InFlightFile(self._in_flight_path, opened.epoch))
            await self._journal.load()
        except BaseException:
            self._forget_file(opened)
            await opened.close()
            raise

    def _journal_of(self, opened: DatabaseSession, hand: InFlightFile) -> Journal:
        from memory.journal.journal import Journal  # commands that only read or care for a file need none

        return Journal(opened, self._clock, hand, self._report)

    @property
    def care(self) -> Care:
        """Maintenance of the file: copies it, restores a copy, verifies it."""
        from memory.care.doctor import Doctor  # imported here, since most processes do not need it

        return Doctor(self.path, self._ballast)

    async def __aexit__(self, *exc: object) -> None:
        self._openings -= 1
        if self._openings <= 0:
            await self.close()

    async def close(self) -> None:
        """Write what was accepted, checkpoint, release the lock; within about ten seconds. May be called twice.

        Raises: TransientError when a failing disk did not store everything, with the number of items and the reason.
        """
        async with self._opening:
            opened = self._opened
            if opened is None:
                return
            if self.embedding is not None:
                await self.embedding.end()
            left = 0 if self._journal is None else self._journal.finish()
            try:
                await opened.close(left)
            except TransientError:
                self._forget_file(opened)
                raise
            self._forget_file(opened)

    def _forget_file(self, opened: DatabaseSession) -> None:
        self._last, self._opened, self._openings = opened.snapshot(), None, 0
        journal, self._journal = self._journal, None
        self.__dict__.pop("journal", None)
        if journal is not None:
            journal.hand.close()

    async def why(self, cycle_id: str) -> list[dict[str, Any]] | None:
        """Return the decisions of a cycle that memory changed or would have changed; None for an unknown cycle.

        `cases` are the experiences behind a decision, as far as they are still stored. Raises: LookupError.
        """
        record = await self.cycle(cycle_id)
        if record is None:
            return None
        decisions = []
        for learnt in record.action.learnt if record.action is not None else ():
            details = [await self._case(id) for id in learnt.cases[:_MOST_CASES]]
            decisions.append({**structs.asdict(learnt), "cases": details})
        return decisions

    async def _case(self, id: str) -> dict[str, Any]:
        try:
            detail = await self.detail(id)
        except LookupError:
            detail = None
        return {"id": id, "experience": None if detail is None else detail.experience}

    # -- all stores --------------------------------------------------------------------------------------------

    async def flush(self, within: float = 30.0) -> None:
        """Wait until everything accepted so far is as safe as `durability` says.

        Raises: TransientError when that takes more than `within` seconds, with the reason.
        """
        if self._journal is not None:
            self._journal.hand_over()
        if not await self._file.written(within):
            waiting = self.snapshot()
            raise TransientError(f"{waiting['queued']} accepted items are not written yet: {waiting['last_error']}")

    async def counts(self) -> dict[str, int]:
        """Return the numbers of rows: `experiences`, `cycles`, `state`."""

        def count(connection: Connection) -> dict[str, int]:
            tables = {"experiences": "experience", "cycles": "cycle", "state": "state"}
            rows = {name: int(str(connection.execute(f"SELECT count(*) FROM {t}").get)) for name, t in tables.items()}
            own = connection.execute(f"SELECT count(*) FROM state WHERE key IN {OWN_KEYS}").get
            return {**rows, "state": rows["state"] - int(str(own))}

        return await self._read(count)

    def snapshot(self) -> dict[str, Any]:
        """Return counts of queued and committed items, errors and sizes in bytes. Safe from any thread."""
        opened = self._opened
        size, wal = self._sizes()
        return {
            **(opened.snapshot() if opened is not None else self._last),
            "path": self.path,
            "is_open": opened is not None,
            "durability": self.durability,
            "bytes": size,
            "max_bytes": self._limits.max_bytes,
            "wal_bytes": wal,
            "unreadable": self._unreadable,
        }

    # -- inside ------------------------------------------------------------------------------------------------

    def _sizes(self) -> tuple[int, int]:
        """Return the bytes of the database and of its log. Safe from any thread."""
        return database.sizes(self.path)

    @property
    def _has_file(self) -> bool:
        return self.path != IN_MEMORY

    def _note_loss(self, opened: DatabaseSession, message: str) -> None:
        """Let the writer's thread note a loss beside the file, since the event loop must not wait for a disk."""

        def note(connection: Connection) -> None:
            with suppress(OSError):
                losses.note(self.path, [message])

        with suppress(SparError):  # the memory is being closed, or is read-only
            opened.writer.offer(note, len(message))

    def _tend(self, connection: Connection) -> bool:
        if pieces.trim(connection):  # first: while they take room, more cycles would go than must
            return True
        # A wall clock that has jumped ahead since the opening must not make rows look old.
        now = min(self._clock.now().timestamp(), self._opened_at + self._clock.monotonic())
        live = self._journal.live if self._journal is not None else None
        gone = counts.fold(connection) + retention.trim(connection, self._limits, now)
        gone += retention.trim_facts(connection, self._limits, now, live)
        if live and self._clock.monotonic() >= self._opened_mono + orphans.AFTER:
            self._bury(connection, live, now)
        gone += retention.trim_transcripts(connection, self._limits, now)
        gone += audit.trim(connection, self._limits.keep_audit_days, now)
        gone += retention.fit(connection, self._limits, now, live)
        gone += statements.forget(connection, now) + statements.trim_spent(connection)
        if gone or retention.tidy(connection, self._limits.max_bytes):
            return True
        if self.embedding is not None:
            self.embedding.wake()
        return False

    def _bury(self, connection: Connection, live: frozenset[str], now: float) -> None:
        """Put cycles of agents that no longer exist aside, and report each."""
        for message in orphans.bury(connection, live, now):
            self._file.writer.report(Fault("gone", message, "memory", retryable=False))

    def _report(self, fault: Fault | None) -> None:
        if fault is not None and fault.kind in _LOSSES and self._has_file and self._opened is not None:
            self._note_loss(self._opened, fault.message)
        try:
            self.on_fault(fault)
        except Exception:  # a callback that raises must not disturb the writing
            self.on_fault = _ignore


def _ignore(fault: Fault | None) -> None:
    return None


if TYPE_CHECKING:

    def _is_durable_store(memory: Memory) -> DurableStore:  # mypy compares the signatures of the port
        return memory
