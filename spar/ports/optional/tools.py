"""Optional ports of tools and of what brings them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class ToolSource(Protocol):
    """A part that offers tools rather than being one; they may change while it is open."""

    def tools(self) -> Sequence[Any]:
        """Return the tools that it has now."""
        ...


@runtime_checkable
class AcceptsTools(Protocol):
    """A source whose tools people accept by name before they can be called."""

    name: str

    def accept(self, names: Sequence[str] = (), /) -> dict[str, str]:
        """Accept these, all that wait when none is named; return each with what was accepted of it.

        Raises: LookupError for a tool that does not wait; SparError when that cannot be kept.
        """
        ...


@runtime_checkable
class HasTerms(Protocol):
    """A tool as an actor holds it, with the terms of its calls."""

    @property
    def terms(self) -> Any: ...


@runtime_checkable
class BringsUntrusted(Protocol):
    """Terms that say by `brings_untrusted` whether what a call returns comes from outside."""

    @property
    def brings_untrusted(self) -> bool: ...
