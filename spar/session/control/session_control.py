"""Control of the sessions of one agent by people: listed, shown, set, begun anew, forgotten."""

from __future__ import annotations

import base64
import binascii
import json
import shutil
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from spar.errors import ConflictError
from spar.ports.optional import NamesModels, offers
from spar.protocols.host import Home, own_parts
from spar.records.run_options import RunOptions
from spar.records.session import Origin, SessionRecord
from spar.runs.commands import is_command
from spar.session.control.option_checks import check_options
from spar.session.control.resets import Resets
from spar.session.control.session_records import SessionRecords
from spar.session.parts import SessionParts
from spar.threads import Threads

#: Sessions on a page, usually and at most.
USUAL_PAGE: Final = 50
LARGEST_PAGE: Final = 1_000


class SessionView(Struct, frozen=True):
    """One session as people are shown it; `runs` are those that have not ended, `state` says what becomes of them."""

    key: str
    id: str
    ordinal: int
    title: str
    defaults: dict[str, Any]
    origin: Origin
    created_at: datetime
    began_at: datetime
    used_at: datetime
    state: Literal["resting", "waiting", "running"] = "resting"
    runs: tuple[str, ...] = ()
    workspace: str = ""


class SessionPage(Struct, frozen=True):
    """Some sessions, the one that was used last first; `next` asks for those that follow, "" where there are none."""

    sessions: tuple[SessionView, ...]
    next: str = ""


class SessionControl:
    """Control of the sessions of one agent."""

    __slots__ = ("_home", "_parts", "_records", "_resets", "forgets")

    def __init__(self, parts: SessionParts, records: SessionRecords, resets: Resets, home: Home | None) -> None:
        self._parts, self._records, self._resets, self._home = parts, records, resets, home
        #: Has the channels forget with whom a session talked.
        self.forgets: Callable[[str], Awaitable[None]] = _keeps_nothing

    async def list(self, limit: int = USUAL_PAGE, after: str = "") -> SessionPage:
        """Return sessions, the one that was used last first. Args: after: `next` of the page before.

        Raises: ValueError for a limit or an `after` that is none; TransientError.
        """
        if not 1 <= limit <= LARGEST_PAGE:
            raise ValueError(f"limit = {limit}: must be 1 to {LARGEST_PAGE}")
        records = await self._records.page(limit, _read_place(after) if after else None)
        place = _place(records[-1]) if len(records) == limit else ""
        return SessionPage(tuple(self._view(record) for record in records), place)

    async def show(self, key: str) -> SessionView:
        """Return one session. Raises: LookupError for one that nothing was said in; TransientError."""
        return self._view(await self._records.get(key))

    async def change(
        self, key: str, *, title: str | None = None, defaults: Mapping[str, Any] | None = None,
        origin: Origin | None = None,
    ) -> SessionView:  # fmt: skip
        """Set the title of a session, and options of its runs: those that are named, None takes one back. One that
        nothing was said in yet is made, with this origin.

        Raises: TransientError; ValueError, TypeError naming the option and what is allowed.
        """
        options: RunOptions | None = None
        if defaults is not None:
            record = await self._records.find(key)
            options = RunOptions.read({**({} if record is None else record.defaults.given), **defaults})
            await check_options(self._parts.setup, options)
        return self._view(await self._records.change(key, title=title, defaults=options, origin=origin))

    async def reset(self, key: str, by: str = "") -> SessionView:
        """Begin a session anew. Raises: as `Agent.reset`."""
        return self._view(await self._resets.reset(key, by))

    async def forget(self, key: str, by: str = "") -> int:
        """End what goes on in a session and delete what is kept of it; return how many rows went.

        One that was cut off, by a kill say, is gone on with when it is asked for again. Messages that come meanwhile
        are refused; an answer that waits to be sent on a channel is sent, and forgotten then.
        Raises: LookupError for a session that nothing was said in; ConflictError where a link stands in the place of
        the folders of sessions; TransientError.
        """
        await self._records.get(key)
        async with self._records.forgetting.going(key):
            return await self._forget(await self._records.get(key), by)

    async def _forget(self, record: SessionRecord, by: str) -> int:
        key = record.key
        if self._view(record).runs:
            await self._resets.reset(key, by)
        await self._resets.make_void(key)
        await self.forgets(key)
        parts, store = self._parts, self._parts.agent_state.sessions
        if self._home is not None:  # also what was made while each had one
            folder = Path(self._home.workspace, *own_parts(key))
            await Threads("forgetting", parts.core.clock).run(_remove, folder)
        gone = 0 if store is None else await store.forget(parts.core.name, key)
        self._records.forget(key)
        parts.transcripts.forget(key)
        parts.runs.forget(key)
        parts.core.log.info("session forgotten", agent=parts.core.name, session=key, by=by, rows=gone)
        return gone

    def models(self) -> tuple[str, ...]:
        """Return the names of the models that a session may choose from; none where no model plans."""
        planner = self._parts.setup.modules["plan"].part
        return tuple(planner.allowed_models) if offers(planner, NamesModels) else ()

    def _view(self, record: SessionRecord) -> SessionView:
        runs = [run for run in self._parts.runs.open_in(record.key) if not is_command(run.message)]
        state: Literal["resting", "waiting", "running"] = "waiting" if runs else "resting"
        if any(run.started_at is not None for run in runs):
            state = "running"
        return SessionView(record.key, record.id, record.ordinal, record.title, record.defaults.given, record.origin,
                           record.created_at, record.began_at, record.used_at, state,
                           tuple(run.id for run in runs), self._workspace(record.key))  # fmt: skip

    def _workspace(self, key: str) -> str:
        """Return the folder that is the session's own; "" where all share the workspace."""
        parts = () if self._home is None else self._home.parts_of(key)
        return str(Path(self._home.workspace, *parts)) if self._home is not None and parts else ""


async def _keeps_nothing(key: str) -> None:
    """Nothing is kept of a session elsewhere."""


def _remove(folder: Path) -> None:
    """Remove a folder with all that is in it; links are removed, not followed. Raises: OSError, ConflictError."""
    if folder.parent.is_symlink():  # put there by a tool: it may lead to the sessions of somebody else
        raise ConflictError(f"{folder.parent} is a symbolic link, which is not followed: take it away first")
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def _place(record: SessionRecord) -> str:
    """Return a word for the place behind a session in the list."""
    place = json.dumps([record.used_at.isoformat(), record.key])
    return base64.urlsafe_b64encode(place.encode("ascii")).decode("ascii").rstrip("=")


def _read_place(word: str) -> tuple[datetime, str]:
    """Return the place that a word stands for. Raises: ValueError."""
    try:
        at, key = json.loads(base64.urlsafe_b64decode(word + "=" * (-len(word) % 4)))
        found = datetime.fromisoformat(at), str(key)
    except (binascii.Error, ValueError, TypeError, RecursionError):
        found = None
    if found is None or found[0].tzinfo is None:
        raise ValueError(f"after = {word[:60]!r}: must be the 'next' of the page before")
    return found
