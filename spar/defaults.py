"""What an agent made by hand does where nothing was given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from spar.registry import Registry
from spar.types import Action, ActionResult, Perception, Reflection


async def sense_nothing() -> Sequence[Perception]:
    return ()


async def plan_nothing(perceptions: Sequence[Perception]) -> Action | None:
    return None


async def act_nothing(action: Action) -> ActionResult:
    return ActionResult(action)


async def reflect_nothing(result: ActionResult) -> Reflection:
    return Reflection(result=result)


def hear(text: str, session: str) -> Perception:
    """The perception that a message is."""
    return Perception(text, source="message", kind="message", session=session, trust="trusted", priority=0.7)


def executor(tools: tuple[Any, ...]) -> Any:
    """The registered executor with these tools."""
    return Registry().resolve("spar.actors", "executor")(tools)


def reflector() -> Any:
    """The registered reflector."""
    return Registry().resolve("spar.reflectors", "standard")()
