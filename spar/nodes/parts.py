"""Parts of an agent that run on one of its nodes, such as channels: on the one that owns a session of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from spar.loop.core import PartOfOneNode

#: Runs work in a task, whose failure is logged under a name.
InBackground = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]


class NodeParts:
    """Parts that run on one node, with their sessions."""

    def __init__(self) -> None:
        self._parts: list[tuple[str, PartOfOneNode]] = []
        self._ending: dict[PartOfOneNode, asyncio.Task[None]] = {}
        self._turn = asyncio.Lock()

    async def hold(self, session: str, part: PartOfOneNode, owns: Callable[[str], bool]) -> None:
        """Have a part run where its session is, now if that is here. Raises: as `PartOfOneNode.begin`."""
        if (session, part) not in self._parts:
            self._parts.append((session, part))
        await self._follow(session, part, owns)

    async def follow(self, owns: Callable[[str], bool]) -> None:
        """Begin the parts whose sessions are here, and end the others. Raises: as `PartOfOneNode.begin`."""
        for session, part in self._parts:
            await self._follow(session, part, owns)

    async def _follow(self, session: str, part: PartOfOneNode, owns: Callable[[str], bool]) -> None:
        async with self._turn:
            if owns(session):
                self._ending.pop(part, None)
                await part.begin()
            else:
                await part.end()

    def lose(self, has: Callable[[str], bool]) -> None:
        """Stop parts at once whose sessions were lost: they may be running on another node already."""
        for session, part in self._parts:
            if not has(session):
                part.lose()

    def leave(self, has: Callable[[str], bool], owns: Callable[[str], bool], in_background: InBackground) -> set[str]:
        """Begin to end the parts whose sessions are to be handed over. Return the sessions whose parts still run."""
        leaving = [(session, part) for session, part in self._parts if has(session) and not owns(session)]
        for session, part in leaving:
            if part not in self._ending:
                self._ending[part] = in_background(self._follow(session, part, owns), f"end of {session} of")
        return {session for session, part in leaving if not self._ending[part].done()}
