"""The memory's public face: experiences, the tape of cycles and small state, in one SQLite file.

Nothing here blocks the event loop: what is written is encoded at once and queued for the writer's thread
(`sqlite/writer`), what is read is read in a worker thread (`sqlite/readers`). What was stored is found by the next
recall. It opens nothing until it is entered, and an idle memory writes nothing. Here it is made, opened, tended and
closed; what may be asked of it stands in `stores`, kind by kind.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any, get_args

import anyio
from annotated_types import Ge, Gt
from msgspec import structs

from memory import audit, pieces, retention
from memory.care import losses, repair
from memory.care.opening import open_file
from memory.experiences.embedding import Embedding
from memory.journal import budgets, counts, orphans, statements
from memory.journal.in_flight import InFlightFile
from memory.journal.journal import Journal
from memory.sqlite import database
from memory.sqlite.database import IN_MEMORY, SYNCHRONOUS, Durability
from memory.sqlite.session import DatabaseSession
from memory.stores.cycles import CycleStore
from memory.stores.experiences import ExperienceStore
from memory.stores.sessions import SessionRows
from memory.stores.state import StateStore
from memory.stores.transcripts import Transcripts
from spar.errors import ConfigError, SparError, TransientError
from spar.ports.embedder import Embedder
from spar.protocols import Home, Host
from spar.types import Fault

if TYPE_CHECKING:
    from apsw import Connection

    from memory.care.doctor import Doctor
    from spar.ports.store import DurableStore

#: Kinds of faults by which something that was kept, or was to be, is lost.
_LOSSES = ("damaged", "permanent")

_MOST_CASES = 50  # of one decision that are shown


class Memory(ExperienceStore, CycleStore, StateStore):
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
        super().__init__()
        if embedder is not None:
            self.embedding = Embedding(embedder, lambda: self._clock, lambda: self._file, self._report)
        self.on_fault: Callable[[Fault | None], None] = _ignore
        self._opening, self._openings = anyio.Lock(), 0
        self._opened_mono = 0.0
        self._opened_at = 0.0  # wall time of the monotonic clock's beginning, as it was when the file was opened
        #: What was said and done in each session.
        self.transcripts = Transcripts(lambda: self._file, lambda: self._journal, self._report)
        #: The keys under which they were said, with their titles and defaults.
        self.sessions = SessionRows(lambda: self._file, lambda: self._journal, self._report, lambda: self._clock)
        #: Who changed what.
        self.audit = audit.AuditRows(lambda: self._file, lambda: self._clock, lambda work: self._read(work))
        self._last: dict[str, Any] = {}

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
                    report=self._report,
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
            self._journal = Journal(opened, self._clock, hand, self._report)
            await self._journal.load()
        except BaseException:
            self._forget_file(opened)
            await opened.close()
            raise

    @property
    def care(self) -> Doctor:
        """The maintenance of the file: copy it, restore a copy, verify it."""
        from memory.care.doctor import Doctor  # most processes look after no file from outside

        return Doctor(self.path, self._ballast)

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

    async def why(self, cycle_id: str) -> list[dict[str, Any]] | None:
        """Return the decisions of a cycle that memory changed, or would have, each with the experiences that it went
        by, as far as they are kept; None for a cycle that is not on the tape. Raises: LookupError."""
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
            rows = {name: int(str(connection.execute(f"SELECT count(*) FROM {t}").get)) for name, t in tables.items()}
            own = connection.execute(f"SELECT count(*) FROM state WHERE key IN {database.OWN_KEYS}").get
            return {**rows, "state": rows["state"] - int(str(own))}

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

    def _note_loss(self, opened: DatabaseSession, message: str) -> None:
        """Have the writer's thread note it beside the file: the event loop waits for no disk."""

        def note(connection: Connection) -> None:
            with suppress(OSError):
                losses.note(self.path, [message])

        with suppress(SparError):  # it is being closed, or read-only
            opened.writer.offer(note, len(message))

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
        gone += pieces.trim(connection) + statements.forget(connection, now) + budgets.trim(connection)
        if gone or retention.tidy(connection, self._limits.file_bytes):
            return True
        if self.embedding is not None:
            self.embedding.wake()
        return False

    def _bury(self, connection: Connection, live: frozenset[str], now: float) -> None:
        """Put cycles of agents that are gone aside, and say so."""
        for message in orphans.bury(connection, live, now):
            self._file.writer.report(Fault("gone", message, "memory", retryable=False))

    def _report(self, fault: Fault | None) -> None:
        if fault is not None and fault.kind in _LOSSES and self.path != IN_MEMORY and self._opened is not None:
            self._note_loss(self._opened, fault.message)
        try:
            self.on_fault(fault)
        except Exception:  # who listens badly must not disturb the writing
            self.on_fault = _ignore


def _ignore(fault: Fault | None) -> None:
    return None


if TYPE_CHECKING:

    def _is_durable_store(memory: Memory) -> DurableStore:  # mypy compares the signatures of the port
        return memory
