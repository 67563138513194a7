"""Optional ports of any part."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

from spar.protocols import Host


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
