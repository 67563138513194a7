"""Skills as each session began with them: one that changes meanwhile does not change for a session that goes on.

A snapshot is made with a session's first request and kept, over restarts too, until the session is reset. It names the
skills by a digest of what they say; what they say is kept once for all sessions that go by it.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from planning.bootstrap.skills import Skill, Skills
from spar.clock import Clock
from spar.protocols import ModuleRows
from spar.threads import Threads

R = TypeVar("R")
#: Sessions whose snapshots are kept; of more the one that began longest ago begins anew.
MOST_SESSIONS: Final = 2_000
_SESSION, _SKILL = "session ", "skill "


class _Snapshot(Struct, frozen=True):
    """The skills of a session by their digests; `id` is which conversation of its key it is."""

    id: str
    skills: tuple[str, ...]


class Snapshots:
    """The snapshots of all sessions. Args: skills: those that there are now."""

    def __init__(self, skills: Skills) -> None:
        self.skills = skills
        self._rows: ModuleRows | None = None
        self._threads: Threads | None = None
        self._is_loaded = False
        self._loading = asyncio.Lock()
        self._sessions: dict[str, _Snapshot] = {}
        self._said: dict[str, Skill] = {}
        self._used: Counter[str] = Counter()

    def attach(self, rows: ModuleRows | None, clock: Clock) -> None:
        """Take where snapshots are kept; without rows they last as long as the process."""
        self._rows, self._is_loaded = rows, False
        self._threads = Threads("skills", clock, limit=2)

    async def look(self) -> None:
        """Read what has changed in the folder of skills."""
        await self.in_thread(self.skills.look)

    async def in_thread(self, function: Callable[..., R], *args: Any) -> R:
        """Return what a blocking function returns; until there is an agent it is called at once."""
        return function(*args) if self._threads is None else await self._threads.run(function, *args)

    async def of(self, session: str, id: str = "", *, cycle_id: str = "", keep: bool = True) -> tuple[Skill, ...]:
        """Return the skills of a session, by name; made and kept for a cycle where it has none yet.

        Args: id: which conversation of its key it is; keep: whether what is new is kept, else it is only returned.
        Raises: what the store raises.
        """
        async with self._loading:
            await self._load()
        known = self._sessions.get(session)
        if known is not None and known.id == id:
            if self.skills.unavailable:  # what was wrong may be mended
                await self.look()
            return tuple(self._said[each] for each in known.skills)
        await self.look()
        skills = tuple(self.skills.found.values())
        if keep:
            self._keep(session, id, skills, cycle_id)
        return skills

    def _keep(self, session: str, id: str, skills: tuple[Skill, ...], cycle_id: str) -> None:
        digests = tuple(_digest(each) for each in skills)
        for digest, skill in zip(digests, skills, strict=True):
            if digest not in self._said:
                self._said[digest] = skill
                self._write(f"{_SKILL}{digest}", msgspec.to_builtins(skill), cycle_id)
        self._used.update(digests)
        former = self._sessions.pop(session, None)
        self._sessions[session] = _Snapshot(id, digests)
        self._write(f"{_SESSION}{session}", {"id": id, "skills": list(digests)}, cycle_id)
        if former is not None:
            self._forget(former, cycle_id)
        while len(self._sessions) > MOST_SESSIONS:
            oldest = next(iter(self._sessions))
            self._write(f"{_SESSION}{oldest}", None, cycle_id)
            self._forget(self._sessions.pop(oldest), cycle_id)

    def _forget(self, snapshot: _Snapshot, cycle_id: str) -> None:
        """Keep no longer what no session goes by any more."""
        self._used.subtract(snapshot.skills)
        for digest in snapshot.skills:
            if self._used[digest] <= 0:
                del self._used[digest]
                self._said.pop(digest, None)
                self._write(f"{_SKILL}{digest}", None, cycle_id)

    def _write(self, key: str, value: Mapping[str, Any] | None, cycle_id: str) -> None:
        if self._rows is None:
            return
        if value is None:
            self._rows.drop(key, cycle_id=cycle_id)
        else:
            self._rows.keep(key, value, cycle_id=cycle_id)

    async def _load(self) -> None:
        if self._is_loaded:
            return
        rows = await self._rows.list() if self._rows is not None else {}
        said = {
            key.removeprefix(_SKILL): msgspec.convert(row, Skill) for key, row in rows.items() if key.startswith(_SKILL)
        }
        sessions = {
            key.removeprefix(_SESSION): msgspec.convert(row, _Snapshot)
            for key, row in rows.items()
            if key.startswith(_SESSION) and all(each in said for each in row["skills"])
        }
        self._said, self._sessions = said, sessions
        self._used = Counter(digest for each in sessions.values() for digest in each.skills)
        self._is_loaded = True


def _digest(skill: Skill) -> str:
    return hashlib.blake2b(msgspec.json.encode(skill), digest_size=12).hexdigest()
