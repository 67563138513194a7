"""Sessions as people see them, and the pages of their list."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, Final, Literal

from msgspec import Struct

from spar.records.session import Origin, SessionRecord

#: State of a session: whether it has an open run, and whether one of these has begun.
SessionState = Literal["resting", "waiting", "running"]
#: Sessions on a page: the default and the maximum.
USUAL_PAGE: Final = 50
LARGEST_PAGE: Final = 1_000


class SessionView(Struct, frozen=True):
    """One session as people see it. `runs` are its open runs, `state` says whether one of them has begun."""

    key: str
    id: str
    ordinal: int
    title: str
    defaults: dict[str, Any]
    origin: Origin
    created_at: datetime
    began_at: datetime
    used_at: datetime
    state: SessionState = "resting"
    runs: tuple[str, ...] = ()
    workspace: str = ""


class SessionPage(Struct, frozen=True):
    """A page of sessions, the last used first. `next` asks for the page after it; "" on the last page."""

    sessions: tuple[SessionView, ...]
    next: str = ""


def view_of(record: SessionRecord, runs: Sequence[tuple[str, bool]], workspace: str) -> SessionView:
    """Return a session as people see it.

    Args: runs: the ids of its open runs, each with whether it has begun; workspace: its own folder, "" for none.
    """
    state: SessionState = "running" if any(begun for _, begun in runs) else "waiting" if runs else "resting"
    return SessionView(record.key, record.id, record.ordinal, record.title, record.defaults.given, record.origin,
                       record.created_at, record.began_at, record.used_at, state, tuple([id for id, _ in runs]),
                       workspace)  # fmt: skip


async def stored_view(
    memory: Any, agent: str, folder_of: Callable[[str], str]
) -> Callable[[SessionRecord], SessionView]:
    """Return the function that shows a session by the open runs of an agent in its store."""
    from spar.ports.any_part import has
    from spar.ports.store import DurableStore

    rows = (
        await memory.run_rows(agent, 10_000, is_open=True)
        if has(memory, DurableStore.run_rows, DurableStore.run_record)
        else ()
    )
    runs: dict[str, list[tuple[str, bool]]] = {}
    for row in reversed(rows):
        runs.setdefault(row.session, []).append((row.run_id, row.status == "running"))
    return lambda record: view_of(record, runs.get(record.key, ()), folder_of(record.key))


def page_of(records: Sequence[SessionRecord], limit: int, since: datetime | None,
            view: Callable[[SessionRecord], SessionView]) -> SessionPage:  # fmt: skip
    """Return a page of at most `limit` sessions, which were used at `since` or later."""
    recent = [record for record in records if since is None or record.used_at >= since]
    return SessionPage(tuple(map(view, recent)), _token(recent[-1]) if len(recent) == limit else "")


def _token(record: SessionRecord) -> str:
    """Return a page token: the position of a session in the list, encoded."""
    position = json.dumps([record.used_at.isoformat(), record.key])
    return base64.urlsafe_b64encode(position.encode("ascii")).decode("ascii").rstrip("=")


def read_token(token: str) -> tuple[datetime, str] | None:
    """Return the position that a page token encodes, None for no token. Raises: ValueError."""
    if not token:
        return None
    try:
        at, key = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        position = datetime.fromisoformat(at), str(key)
    except (binascii.Error, ValueError, TypeError, RecursionError):
        position = None
    if position is None or position[0].tzinfo is None:
        raise ValueError(f"after = {token[:60]!r}: must be the 'next' of the page before")
    return position
