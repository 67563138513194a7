"""Standard actor and reflector of an agent made by hand: the first action makes them, since none may ever come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Lock
from typing import Any, ClassVar

from spar.protocols import Context, Host
from spar.types import Action, ActionResult, Phase

#: Abilities of an actor without a call that need the actor itself. It has nothing to resume, abandon or take over.
_NEEDED = frozenset({"approvals", "objection", "ruling", "snapshot", "steer", "tools"})
_MAKING = Lock()  # metrics and status read from other threads


class MadeOnUse:
    """Module of a phase that is made when it is first needed, and then gets the services of its agent.

    Args: make: makes the parts, among them the module.
    """

    __slots__ = ("_host", "_make", "_part")
    phase: ClassVar[Phase]

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._host: Callable[[], Host] | None = None
        self._part: Any = None

    @property
    def part(self) -> Any:
        """Return the module itself, which is made now at the latest."""
        with _MAKING:
            if self._part is None:
                part = self._make().module(self.phase)
                self._prepare(part)
                self._part = part
        return self._part

    def _prepare(self, part: Any) -> None:
        """Make up for what the agent has asked of the module before."""
        if self._host is not None:
            part.attach(self._host())

    def attach_later(self, host: Callable[[], Host]) -> None:
        """Use the services of an agent, which `host` returns, once the module is needed."""
        self._host = host
        if self._part is not None:
            self._part.attach(host())


class ReflectorOnUse(MadeOnUse):
    """Reflector that the first result makes."""

    __slots__ = ()
    phase = "reflect"
    __qualname__ = "Reflect"  # errors and logs name the module that it stands for

    async def reflect(self, result: ActionResult, context: Context | None = None) -> Any:
        """Reflect on a result; see `Reflector`."""
        return await self.part.reflect(result, context)

    async def hear_feedback(self, words: Any, context: Context) -> Any:
        """Apply later feedback; see `HearsFeedback`."""
        return await self.part.hear_feedback(words, context)


class ActorOnUse(MadeOnUse):
    """Actor that the first action makes and opens. It offers what the actor offers, once that is made."""

    __slots__ = ("_is_open", "_may_hold", "_opening")
    phase = "act"
    __qualname__ = "Executor"

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__(make)
        self._is_open, self._may_hold, self._opening = False, True, asyncio.Lock()

    def __getattr__(self, name: str) -> Any:
        if name in _NEEDED or (not name.startswith("_") and self._part is not None):
            return getattr(self.part, name)
        raise AttributeError(name)

    def _prepare(self, part: Any) -> None:
        super()._prepare(part)
        part.hold_questions(is_allowed=self._may_hold)

    def hold_questions(self, *, is_allowed: bool) -> None:
        """Let calls wait for people, or let none wait any more; see `HoldsQuestions`."""
        self._may_hold = is_allowed
        if self._part is not None:
            self._part.hold_questions(is_allowed=is_allowed)

    async def __aenter__(self) -> ActorOnUse:
        self._opening = asyncio.Lock()
        if self._part is not None:
            await self._opened()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._is_open:
            self._is_open = False
            await self._part.__aexit__(*exc)

    async def act(self, action: Action, context: Context | None = None) -> Any:
        """Carry out an action; see `Actor`."""
        return await (await self._opened()).act(action, context)

    async def act_stream(self, action: Action, calls: Any, context: Context | None = None) -> Any:
        """Carry out the calls of a plan that is still being written; see `StreamingActor`."""
        return await (await self._opened()).act_stream(action, calls, context)

    async def _opened(self) -> Any:
        """Return the actor, open."""
        actor = self.part
        async with self._opening:
            if not self._is_open:
                await actor.__aenter__()
                self._is_open = True
        return actor
