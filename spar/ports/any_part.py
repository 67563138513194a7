"""Test whether a part has a port, the optional ports of any part, and the port to the agent for parts that ask it to
change its state."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, TypeVar

if TYPE_CHECKING:
    from spar.protocols import Host
    from spar.types import Phase

P = TypeVar("P")


def offers(part: object, port: Callable[..., P]) -> TypeGuard[P]:
    """Return whether a part has all members of a port, with callable methods.

    Unlike `isinstance`, it costs a few lookups on any release of Python, and sees members that a part forwards by
    `__getattr__`. A member that is not a method (a property, an annotated attribute) may be None.

    Args: port: a Protocol of this folder, of `spar.protocols` or of `spar.ports.store`.
    Raises: what a property of the part raises, except AttributeError.
    """
    return all(_has(part, name, is_method=is_method) for name, is_method in _members(port))


def has(part: object, *members: Any) -> bool:
    """Return whether a part has these members of an optional port: `has(actor, OptionalActor.abandon)`; see `offers`.

    Args: members: methods and properties of a Protocol.
    """
    for member in members:
        is_method = not isinstance(member, property)
        function: Any = member if is_method else member.fget
        if not _has(part, function.__name__, is_method=is_method):
            return False
    return True


def _has(part: object, name: str, *, is_method: bool) -> bool:
    return callable(getattr(part, name, None)) if is_method else hasattr(part, name)


@cache
def _members(port: Any) -> tuple[tuple[str, bool], ...]:
    """Return the public members of a Protocol, each with whether it is a method."""
    members: dict[str, bool] = {}
    for base in port.__mro__:
        if Protocol in base.__bases__:
            names = (*inspect.get_annotations(base), *vars(base))
            members |= {name: inspect.isfunction(vars(base).get(name)) for name in names if not name.startswith("_")}
    return tuple(members.items())


class Attachable(Protocol):
    """Part that uses services of its agent."""

    def attach(self, host: Host) -> object:
        """Store the services that the agent lends; called once, before the part is opened."""


class Watchable(Protocol):
    """Part that can report its condition."""

    def snapshot(self) -> Mapping[str, Any]:
        """Return JSON-able values by name, from any thread. An exception is shown in their place."""


class Sheddable(Protocol):
    """Part with a cache that it can give up to free memory."""

    def shed(self) -> int | None:
        """Drop entries that can be made again; return their number."""


class KeepsSessions(Protocol):
    """Part that keeps something of single sessions."""

    async def forget_session(self, session: str) -> None:
        """Delete what it keeps of a session that people forget; its work has ended. Raises: errors of the store."""


class Named(Protocol):
    """Part that states its name."""

    @property
    def name(self) -> str: ...


class TellsListeners(Protocol):
    """Bus that can tell whether anybody hears a class of events, so that no other is made."""

    def listeners(self, kind: type[Any]) -> bool: ...


class AgentControl(Protocol):
    """State changes of an agent, for parts that see a reason for one. All but the last three return at once."""

    @property
    def learning(self) -> Any:
        """Return what it learns of its tools; None where that is not installed."""

    def request_pause(self, *, outlives_process: bool = True) -> None:
        """Request a pause at the end of the current cycles; False: the next process decides for itself."""

    def request_stop(self) -> object:
        """Request a stop."""

    def resume_renewed(self) -> None:
        """Continue: the budget that caused the pause is renewed. A pause that outlives the process stays."""

    def fail(self, why: str) -> None:
        """Set the state to failed: no cycle runs until somebody starts or stops the agent."""

    async def follow_pause(self) -> None:
        """Pause or resume as another process of this agent has. Raises: errors of the store."""

    async def take_over(self) -> None:
        """Have the present actor read the open calls and questions that another one has left."""

    async def restart_module(self, phase: Phase, *, is_anew: bool = False) -> None:
        """Replace a failing module with a new one, or open it again.

        Args: is_anew: it forgets what it has in hand: another process has gone on with that.
        """
