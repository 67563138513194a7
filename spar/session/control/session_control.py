"""Operations of people on the sessions of one agent: list, show, change, reset, delete."""

from __future__ import annotations

import shutil
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from spar.errors import ConflictError
from spar.ports.any_part import has
from spar.ports.planners import OptionalPlanner
from spar.protocols.host import Home, own_parts
from spar.records.run_options import RunOptions
from spar.records.session import Origin, SessionRecord
from spar.session.control.resets import Resets
from spar.session.control.session_records import SessionRecords, check_options
from spar.session.control.session_views import (
    LARGEST_PAGE,
    USUAL_PAGE,
    SessionPage,
    SessionView,
    page_of,
    read_token,
    stored_view,
    view_of,
)
from spar.session.parts import SessionParts
from spar.threads import Threads


class SessionControl:
    """Operations on the sessions of one agent.

    Args: forget: has what is attached delete what it keeps of a session, as channels the addresses it talked with.
    """

    __slots__ = ("_forget_attached", "_home", "_parts", "_records", "_resets")

    def __init__(self, parts: SessionParts, records: SessionRecords, resets: Resets, home: Home | None,
                 forget: Callable[[str], Awaitable[None]]) -> None:  # fmt: skip
        self._parts, self._records, self._resets, self._home = parts, records, resets, home
        self._forget_attached = forget

    async def list(self, limit: int = USUAL_PAGE, after: str = "", since: datetime | None = None) -> SessionPage:
        """Return a page of sessions, the last used first.

        Args: after: `next` of the page before; since: only those that were used at this time or later.

        Raises: ValueError for an invalid `limit` or `after`; TransientError.
        """
        if not 1 <= limit <= LARGEST_PAGE:
            raise ValueError(f"limit = {limit}: must be 1 to {LARGEST_PAGE}")
        records = await self._records.page(limit, read_token(after))
        return page_of(records, limit, since, await self._viewing(record.key for record in records))

    async def show(self, key: str) -> SessionView:
        """Return one session. Raises: LookupError for a session without messages; TransientError."""
        return (await self._viewing([key]))(await self._records.get(key))

    async def change(
        self, key: str, *, title: str | None = None, defaults: Mapping[str, Any] | None = None,
        origin: Origin | None = None,
    ) -> SessionView:  # fmt: skip
        """Set the title of a session, and the named options of its runs; an option with None returns to its default.

        A session without messages is created, with this origin.

        Raises: TransientError; ValueError, TypeError naming the option and what is allowed.
        """
        options: RunOptions | None = None
        if defaults is not None:
            record = await self._records.find(key)
            options = RunOptions.read({**({} if record is None else record.defaults.given), **defaults})
            await check_options(self._parts.setup, options)
        if (owner := self._parts.core.owner_of(key)) is not None:
            begun = None if origin is None else asdict(origin)
            await owner.ask(key, "change", title=title, defaults=defaults, origin=begun)
            return await self.show(key)
        return self._view(await self._records.change(key, title=title, defaults=options, origin=origin))

    async def reset(self, key: str, by: str = "") -> SessionView:
        """Reset a session. Raises: as `Agent.reset`."""
        return (await self._viewing([key]))(await self._resets.reset(key, by))

    async def forget(self, key: str, by: str = "") -> int:
        """End the work of a session and delete its data; return how many rows were deleted.

        A deletion that was interrupted, for example by a kill, continues when it is requested again. Messages that come
        meanwhile are refused. An answer that waits to be sent on a channel is sent first, and deleted then.
        Raises: LookupError for a session without messages; ConflictError if a symbolic link stands in the place of the
        folders of sessions; TransientError.
        """
        await self._records.get(key)
        if (owner := self._parts.core.owner_of(key)) is not None:
            deleted: int = await owner.ask(key, "forget", by=by)
            self._parts.runs.forget(key)
            return deleted
        async with self._records.forgetting.refusing(key):
            return await self._forget(await self._records.get(key), by)

    async def _forget(self, record: SessionRecord, by: str) -> int:
        """Delete a session while it refuses messages; return how many rows were deleted."""
        key = record.key
        if self._view(record).runs:
            await self._resets.reset(key, by)
        await self._resets.void_calls(key)
        await self._forget_attached(key)
        parts, store = self._parts, self._records.store
        if self._home is not None:  # also files from a time when each session had a folder
            folder = Path(self._home.workspace, *own_parts(key))
            await Threads("forgetting", parts.core.clock).run(_remove, folder)
        deleted = 0 if store is None else await store.forget(parts.core.name, key)
        self._records.forget(key)
        parts.conversations.transcripts.forget(key)
        parts.runs.forget(key)
        parts.core.log.info("session forgotten", agent=parts.core.name, session=key, by=by, rows=deleted)
        return deleted

    def models(self) -> tuple[str, ...]:
        """Return the names of the models that a session may choose; none if no model plans."""
        planner = self._parts.setup.modules["plan"].part
        return tuple(planner.allowed_models) if has(planner, OptionalPlanner.allowed_models) else ()

    async def _viewing(self, keys: Iterable[str]) -> Callable[[SessionRecord], SessionView]:
        """Return the function that shows these sessions: those of other processes as the store has them."""
        core = self._parts.core
        if all(map(core.owns, keys)):
            return self._view
        stored = await stored_view(self._parts.agent_state.memory, core.name, self._folder_of)
        return lambda record: self._view(record) if core.owns(record.key) else stored(record)

    def _folder_of(self, key: str) -> str:
        return "" if self._home is None else self._home.folder_of(key)

    def _view(self, record: SessionRecord) -> SessionView:
        runs = [(run.id, run.started_at is not None) for run in self._parts.runs.open_in(record.key)
                if not run.state.is_command]  # fmt: skip
        return view_of(record, runs, self._folder_of(record.key))


def _remove(folder: Path) -> None:
    """Remove a folder with its contents; links are removed, not followed. Raises: OSError, ConflictError."""
    if folder.parent.is_symlink():  # perhaps put there by a tool, to the sessions of others
        raise ConflictError(f"{folder.parent} is a symbolic link, which is not followed: take it away first")
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
