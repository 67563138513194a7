"""Records of the sessions of one agent, and checks of the options of runs and sessions.

With a memory that stores sessions the last used records are also kept here, so that a message need not read the store.
Without such a memory only the last used sessions are kept, here. A session without work has no task and no timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, time, timedelta, tzinfo
from typing import Any, Final, Literal

from msgspec.structs import asdict

from spar.clock import moment_of, time_of_day, zone_named
from spar.data.bounded import BoundedDict
from spar.errors import NotReadyError
from spar.journal.state.agent_state import AgentState
from spar.loop.core import Core
from spar.loop.setup import Setup
from spar.ports.any_part import has
from spar.ports.planners import OptionalPlanner
from spar.ports.store import DurableStore, SessionStore
from spar.records.run_options import RunOptions
from spar.records.session import Origin, Reset, SessionRecord, SessionUse, id_of
from spar.runs.transcripts import SessionTranscripts
from spar.types import Perception, replace

#: The most records that are kept here.
KNOWN: Final = 10_000
#: The records that are read at first. If the store has fewer, an unknown session is new and need not be looked up.
_FIRST: Final = 1_000
#: The most characters of a title.
LONGEST_TITLE: Final = 200

#: Seconds after which a refused message may be sent again.
_AGAIN_AFTER = 1.0


class Forgetting:
    """The sessions of one agent that are being deleted, and those that are accepting a message."""

    __slots__ = ("_accepting", "_changed", "_refusing")

    def __init__(self) -> None:
        self._refusing: dict[str, int] = {}
        self._accepting: dict[str, int] = {}
        #: Set when a message has been accepted; None while no deletion waits.
        self._changed: asyncio.Event | None = None

    @contextmanager
    def accepting(self, key: str) -> Iterator[None]:
        """Keep a session from being deleted while the context is open, since a message to it is accepted.

        Raises: NotReadyError while the session is being deleted.
        """
        if key in self._refusing:
            raise NotReadyError(f"session {key!r:.300} is being forgotten: send the message again",
                                retry_after=_AGAIN_AFTER)  # fmt: skip
        self._accepting[key] = self._accepting.get(key, 0) + 1
        try:
            yield
        finally:
            _decrement(self._accepting, key)
            if self._changed is not None:
                self._changed.set()

    @asynccontextmanager
    async def refusing(self, key: str) -> AsyncIterator[None]:
        """Refuse new messages to a session while the context is open. First wait for the messages that are being
        accepted."""
        self._refusing[key] = self._refusing.get(key, 0) + 1
        try:
            while key in self._accepting:
                self._changed = self._changed or asyncio.Event()
                self._changed.clear()
                await self._changed.wait()
            yield
        finally:
            _decrement(self._refusing, key)
            if not self._refusing:
                self._changed = None


class SessionRecords:
    """The records of the sessions of one agent.

    Args: setup: has the planner that checks options; state: has the store of sessions while its journal is open.
    """

    __slots__ = ("_are_all", "_core", "_journal", "_known", "_setup", "_state", "_store", "_transcripts", "forgetting",
                 "is_shared")  # fmt: skip

    def __init__(self, core: Core, setup: Setup, state: AgentState, transcripts: SessionTranscripts) -> None:
        self._core, self._setup, self._state, self._transcripts = core, setup, state, transcripts
        self.forgetting = Forgetting()
        self.is_shared = False  # whether other processes change the records, too
        self._known: BoundedDict[str, SessionRecord] | None = None
        self._store: SessionStore | None = None  # the store that the known records come from, and its journal
        self._journal: Any = None
        self._are_all: bool | None = None  # whether every record of the store is known; None before the first read

    @property
    def store(self) -> SessionStore | None:
        """Return the memory's sessions while its journal is open; None without them."""
        return self._current()[1]

    def begin(self) -> None:
        """Drop the known records, because the store was opened again and others may have changed it."""
        self._known = None

    # -- finding

    async def find(self, key: str) -> SessionRecord | None:
        """Return a session; None for one without messages. Raises: TransientError."""
        known, store = self._current()
        if (shared := self._core.shared) is not None and not shared.owns(key):  # its owner changes it
            known.pop(key, None)
        record = known.get(key)
        if record is None and store is not None and self._are_all is None:
            self._are_all = False
            for row in (rows := await store.page(self._core.name, _FIRST)):
                known.setdefault(row.key, row)
            self._are_all = len(rows) < _FIRST and known is self._known and not self.is_shared
            record = known.get(key)
        if record is None and store is not None and not (self._are_all and len(known) < KNOWN):
            record = await store.get(self._core.name, key)
            if record is not None and key not in known:  # no message has used it meanwhile
                known[key] = record
            record = known.get(key, record)
        return record

    async def conversation(self, key: str) -> str:
        """Return an id of the session's present conversation, or of the first one if none has begun.

        No other conversation of this key has or had this id, even if the session was deleted before. Raises:
        TransientError.
        """
        record = await self.find(key)
        return id_of(key, 1) if record is None else f"{record.id} {record.began_at.isoformat()[:19]}Z"

    async def get(self, key: str) -> SessionRecord:
        """Return a session. Raises: LookupError for a session without messages; TransientError."""
        if (record := await self.find(key)) is None:
            raise LookupError(f"no session {key!r:.300}; a session begins with its first message")
        return record

    async def page(self, limit: int, before: tuple[datetime, str] | None) -> Sequence[SessionRecord]:
        """Return sessions, the last used first. Args: before: time of use and key of the last session of the page
        before."""
        known, store = self._current()
        if store is not None:
            return await store.page(self._core.name, limit, before)
        records = sorted(known.values(), key=_by_use, reverse=True)
        return [record for record in records if before is None or _by_use(record) < before][:limit]

    # -- using

    async def use(self, key: str, origin: Origin, *, is_busy: bool) -> tuple[SessionRecord | None, SessionUse]:
        """Return the session of a message, None for a new one, and the use to record.

        The use contains a reset if the conversation is over by itself. Args: is_busy: the session has an open run.

        Raises: TransientError if the session cannot be read now.
        """
        record, now = await self.find(key), self._core.clock.now()
        reset = None
        if record is not None and not is_busy and (reason := await self._why_over(record, now)):
            reset = Reset(self._core.clock.new_id(), key, record.ordinal, now, reason)
        return record, SessionUse(now, origin, reset)

    async def _why_over(self, record: SessionRecord, now: datetime) -> Literal["", "idle", "daily"]:
        """Return why a conversation is over by itself; "" while it continues."""
        settings = self._core.settings.sessions
        at = None if settings.reset_at == "off" else time_of_day(settings.reset_at)
        if at is not None and record.began_at < last_time(at, now, zone_named(settings.timezone)):
            return "daily"
        if is_idle(record.used_at, now, settings.idle):
            last = await self._transcripts.last_at(record.key)  # a long run may have ended later
            return "idle" if last is None or is_idle(last, now, settings.idle) else ""
        return ""

    def used(self, key: str, record: SessionRecord | None, use: SessionUse) -> Reset | None:
        """Record that a message has used its session; return the reset that this caused, if any.

        Args: record: the session as `use` returned it.
        """
        known = self._known or self._current()[0]
        record = known.get(key, record)
        if record is None:
            known[key] = SessionRecord(key, use.at, use.at, use.at, origin=use.origin)
            return None
        reset = use.reset if use.reset is not None and use.reset.ordinal == record.ordinal else None
        if reset is not None:  # of two simultaneous messages only the first resets
            record = self.record_reset(record, reset)
        known[key] = replace(record, used_at=max(record.used_at, use.at))
        return reset

    # -- changing

    def record_reset(self, record: SessionRecord, reset: Reset) -> SessionRecord:
        """Record a reset; return the session with its new conversation."""
        known, _ = self._current()
        known[record.key] = record = replace(record, ordinal=reset.ordinal + 1, began_at=reset.at)
        return record

    async def set(self, key: str, *, title: str | None = None, defaults: Mapping[str, Any] | None = None,
                  origin: Origin | None = None) -> SessionRecord:  # fmt: skip
        """Set the title of a session, and the named options of its runs; an option with None returns to its default.

        A session without messages is created, with this origin.
        Raises: TransientError; ValueError, TypeError naming the option and what is allowed.
        """
        options: RunOptions | None = None
        if defaults is not None:
            record = await self.find(key)
            options = RunOptions.read({**({} if record is None else record.defaults.given), **defaults})
            await check_options(self._setup, options)
        if (owner := self._core.owner_of(key)) is not None:
            begun = None if origin is None else asdict(origin)
            await owner.ask(key, "change", title=title, defaults=defaults, origin=begun)
            return await self.get(key)
        return await self.change(key, title=title, defaults=options, origin=origin)

    async def change(self, key: str, *, title: str | None = None, defaults: RunOptions | None = None,
                     origin: Origin | None = None) -> SessionRecord:  # fmt: skip
        """Set the title or the default options of a session; None leaves them. A session without messages is created,
        with this origin.

        Raises: ValueError for an invalid title; TransientError.
        """
        now = self._core.clock.now()
        record = await self.find(key) or SessionRecord(key, now, now, now, origin=origin or Origin())
        changes: dict[str, Any] = {} if title is None else {"title": checked_title(title)}
        if defaults is not None:
            changes["defaults"] = defaults
        known, store = self._current()
        record = replace(known.get(key, record), **changes)
        if store is not None:
            await store.put(self._core.name, record)
        record = known[key] = replace(known.get(key, record), **changes)
        return record

    def forget(self, key: str) -> None:
        """Drop the record of a session."""
        known, _ = self._current()
        known.pop(key, None)

    def _current(self) -> tuple[BoundedDict[str, SessionRecord], SessionStore | None]:
        """Return the known records of the open store, and that store."""
        journal, memory = self._core.ledger.journal, self._state.memory
        if self._known is None or journal is not self._journal:
            self._known, self._are_all, self._journal = BoundedDict(KNOWN), None, journal
            self._store = memory.sessions if self._state.journal and has(memory, DurableStore.sessions) else None
        return self._known, self._store


def checked_title(title: object) -> str:
    """Return a title in one line. Raises: ValueError for a title that is not text or too long."""
    if not isinstance(title, str):
        raise ValueError(f"a title is text, found {type(title).__name__}")
    line = " ".join(title.split())
    if len(line) > LONGEST_TITLE:
        raise ValueError(f"a title has at most {LONGEST_TITLE} characters, found {len(line)}")
    return line


def _by_use(record: SessionRecord) -> tuple[datetime, str]:
    return record.used_at, record.key


def _decrement(counter: dict[str, int], key: str) -> None:
    """Decrease a count by one, and drop it at zero."""
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


# -- times at which a conversation ends by itself: no timer waits for them, they are computed when a message comes


def is_idle(used_at: datetime, now: datetime, idle: float) -> bool:
    """Return whether the last use was at least `idle` seconds ago; 0 means never."""
    return idle > 0 and (now - used_at).total_seconds() >= idle


def last_time(at: time, now: datetime, zone: tzinfo | None) -> datetime:
    """Return the last moment, at or before `now`, when a wall clock showed this time of the day; see `moment_of`."""
    today = now.astimezone(zone).date()
    for days in (0, 1):
        moment = moment_of(datetime.combine(today - timedelta(days), at), zone)
        if moment <= now:
            return moment
    return moment_of(datetime.combine(today - timedelta(2), at), zone)  # the time zone set the date back


#: The options of a run that concern its planner.
_PLANNED = frozenset({"model", "instructions", "thinking"})


async def check_options(setup: Setup, options: RunOptions) -> None:
    """Check that the planner in force supports these options. Raises: ValueError naming an option that it does not
    support."""
    if options.is_empty:
        return
    names = [name for name in options.given if name in _PLANNED]
    planner = setup.modules["plan"].part
    if names and not has(planner, OptionalPlanner.check_options):
        raise ValueError(f"option {names[0]} means nothing here: {type(planner).__name__} plans, which asks no model")
    if names and has(planner, OptionalPlanner.check_options):
        await planner.check_options(options)


async def check_message(setup: Setup, options: RunOptions, message: Perception) -> None:
    """Check the options of a message.

    Raises: ValueError for options that the planner does not support; PermissionError for instructions from an untrusted
    source, since they would have the authority of the configured instructions.
    """
    if options.instructions is not None and message.trust == "untrusted":
        raise PermissionError("option instructions is refused: the message comes from an untrusted source")
    await check_options(setup, options)


async def fitting(setup: Setup, options: RunOptions, defaults: RunOptions) -> tuple[RunOptions, str]:
    """Return the defaults of a session that hold for a message with these options, and the reason if some do not.

    The defaults were valid when they were set. Since then the configuration may have changed, and the message may
    choose another model.
    Raises: ValueError if the message asks for thinking and the session's own model does not support it.
    """
    first_reason = ""
    for left_out in ((), ("thinking",), ("model", "thinking"), ("model", "thinking", "instructions")):
        remaining = replace(defaults, **dict.fromkeys(left_out))
        if not (reason := await _why_not(setup, options.over(remaining))):
            return remaining, first_reason
        first_reason = first_reason or reason
        is_about_thinking = options.thinking and not options.model and remaining.model
        if is_about_thinking and not await _why_not(setup, RunOptions(model=remaining.model)):
            raise ValueError(reason)
    return RunOptions(timeout=defaults.timeout, verbose=defaults.verbose), first_reason


async def _why_not(setup: Setup, options: RunOptions) -> str:
    """Return why the planner does not support these options; "" if it does."""
    try:
        await check_options(setup, options)
    except ValueError as error:
        return str(error)
    return ""
