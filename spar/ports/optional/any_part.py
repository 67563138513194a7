"""The question whether a part has a port, and the optional ports of any part."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Protocol, TypeGuard, TypeVar, runtime_checkable

from spar.protocols import Host

P = TypeVar("P")


def offers(part: object, port: Callable[..., P]) -> TypeGuard[P]:
    """Return whether a part has all members of a port, its methods callable.

    Unlike `isinstance` it costs a few lookups, on any release of Python, and sees what a part passes on by
    `__getattr__`. What only exists (a property, an annotated attribute) may be None.

    Args:
        port: a Protocol of this folder, of `spar.protocols` or of `spar.ports.store`.
    Raises: what a property of the part raises, but for AttributeError.
    """
    for name, is_method in _members(port):
        if not (callable(getattr(part, name, None)) if is_method else hasattr(part, name)):
            return False
    return True


@cache
def _members(port: Any) -> tuple[tuple[str, bool], ...]:
    """The public members of a Protocol, each with whether it is a method."""
    members: dict[str, bool] = {}
    for base in port.__mro__:
        if Protocol in base.__bases__:
            names = (*inspect.get_annotations(base), *vars(base))
            members |= {name: inspect.isfunction(vars(base).get(name)) for name in names if not name.startswith("_")}
    return tuple(members.items())


@runtime_checkable
class Attachable(Protocol):
    """A part that lives with its agent."""

    def attach(self, host: Host) -> object:
        """Take what the agent lends; called once, before the part is opened."""


@runtime_checkable
class Watchable(Protocol):
    """A part that can say how it is doing."""

    def snapshot(self) -> Mapping[str, Any]:
        """Return JSON-able values by name, from any thread. What it raises is shown in their place."""
        ...


@runtime_checkable
class Sheddable(Protocol):
    """A part with a cache that it can give up for want of memory."""

    def shed(self) -> int | None:
        """Give up what can be had again; return how many entries that were."""


@runtime_checkable
class Named(Protocol):
    """A part that states its name."""

    @property
    def name(self) -> str: ...


@runtime_checkable
class Plugin(Protocol):
    """An object that is handed the agent before it starts."""

    def register(self, agent: Any) -> object:
        """Subscribe, register hooks, add what it adds."""
