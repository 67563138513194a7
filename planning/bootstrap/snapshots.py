"""Snapshots of the skills that each session began with: a later change of a skill does not reach a running session.

A snapshot is taken with a session's first request and kept, also over restarts, until the session is reset. It has a
digest for each skill. A skill's content is kept once for all sessions that use it.
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
from spar.decoding import convert
from spar.protocols import ModuleRows
from spar.threads import Threads

R = TypeVar("R")
#: Largest number of sessions with a snapshot. Above it the oldest snapshot is dropped, and its session gets a new one.
MOST_SESSIONS: Final = 2_000
_SESSION, _SKILL = "session ", "skill "


class _Snapshot(Struct, frozen=True):
    """Digests of the skills of a session; `id` is the id of its conversation."""

    id: str
    skills: tuple[str, ...]


class Snapshots:
    """The snapshots of all sessions. Args: skills: the current skills."""

    def __init__(self, skills: Skills) -> None:
        self.skills = skills
        self._rows: ModuleRows | None = None
        self._threads: Threads | None = None
        self._is_loaded = False
        self._loading = asyncio.Lock()
        self._sessions: dict[str, _Snapshot] = {}
        self._skills: dict[str, Skill] = {}
        self._used: Counter[str] = Counter()

    def attach(self, rows: ModuleRows | None, clock: Clock) -> None:
        """Keep the rows for the snapshots; without rows a snapshot lasts as long as the process."""
        self._rows, self._is_loaded = rows, False
        self._threads = Threads("skills", clock, limit=2)

    async def look(self) -> None:
        """Read the changed skills in their folder."""
        await self.in_thread(self.skills.look)

    async def in_thread(self, function: Callable[..., R], *args: Any) -> R:
        """Call a blocking function in a thread and return its result; before `attach` it is called directly."""
        return function(*args) if self._threads is None else await self._threads.run(function, *args)

    async def of(self, session: str, id: str = "", *, cycle_id: str = "", keep: bool = True) -> tuple[Skill, ...]:
        """Return the skills of a session's snapshot; take a new snapshot if it has none for this conversation.

        Args: id: the id of the conversation; cycle_id: the cycle that new rows belong to; keep: whether a new snapshot
            is kept. Raises: the errors of the store.
        """
        async with self._loading:
            await self._load()
        known = self._sessions.get(session)
        if known is not None and known.id == id:
            if self.skills.unavailable:  # their problems may be repaired by now
                await self.look()
            return tuple(self._skills[digest] for digest in known.skills)
        await self.look()
        skills = tuple(self.skills.usable.values())
        if keep:
            self._keep(session, id, skills, cycle_id)
        return skills

    def _keep(self, session: str, id: str, skills: tuple[Skill, ...], cycle_id: str) -> None:
        digests = tuple(_digest(skill) for skill in skills)
        for digest, skill in zip(digests, skills, strict=True):
            if digest not in self._skills:
                self._skills[digest] = skill
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
        """Drop the skills of this snapshot that no other session uses."""
        self._used.subtract(snapshot.skills)
        for digest in snapshot.skills:
            if self._used[digest] <= 0:
                del self._used[digest]
                self._skills.pop(digest, None)
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
        skills = {key.removeprefix(_SKILL): convert(row, Skill) for key, row in rows.items() if key.startswith(_SKILL)}
        sessions = {
            key.removeprefix(_SESSION): convert(row, _Snapshot)
            for key, row in rows.items()
            if key.startswith(_SESSION) and all(digest in skills for digest in row["skills"])
        }
        self._skills, self._sessions = skills, sessions
        self._used = Counter(digest for snapshot in sessions.values() for digest in snapshot.skills)
        self._is_loaded = True


def _digest(skill: Skill) -> str:
    return hashlib.blake2b(msgspec.json.encode(skill), digest_size=12).hexdigest()
