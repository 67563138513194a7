"""Optional ports of an actor, its approvals and its tools, and of a reflector."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from spar.protocols import Context
from spar.records.approvals import Approval
from spar.types import ActionResult, Feedback, Reflection


@runtime_checkable
class HearsFeedback(Protocol):
    """A reflector that understands later words on what was done."""

    async def hear_feedback(self, words: Sequence[Feedback], context: Context) -> Reflection:
        """Return what follows from words on runs and cycles that have ended, the words themselves included."""
        ...


@runtime_checkable
class Abandonable(Protocol):
    """An actor that holds calls back for later cycles."""

    async def abandon(self, run_id: str) -> None:
        """Forget what of this run is still to come: somebody ended it."""


@runtime_checkable
class HoldsCalls(Abandonable, Protocol):
    """An actor that keeps what it holds back beyond the end of its process."""

    def waiting_runs(self) -> Collection[str]:
        """Return the ids of the runs that calls are held back of."""


@runtime_checkable
class EndsConversations(Protocol):
    """An actor that holds calls back also beyond the end of their run."""

    async def end_conversation(self, session: str) -> None:
        """Forget what of this session's runs is still to come: the conversation is over."""


@runtime_checkable
class StatesJournal(Protocol):
    """An actor that writes its calls down in `Host.journal` itself, while `keeps_journal` is true."""

    @property
    def keeps_journal(self) -> bool: ...


@runtime_checkable
class StatesEffect(Protocol):
    """An actor that states by `effect` whether its actions may be repeated; one that does not is taken for "once"."""

    @property
    def effect(self) -> str: ...


@runtime_checkable
class TellsInterrupted(Protocol):
    """An actor that knows what became of an action that was cut off."""

    def interrupted(self, action_id: str, /) -> ActionResult | None:
        """Return the ends of its calls as far as they are known, once; None for an action that is not known."""
        ...


@runtime_checkable
class TakesOver(Protocol):
    """An actor that follows another one side by side."""

    async def take_over(self) -> None:
        """Take up what the former one has left on disk; called again for each session that changes over."""


@runtime_checkable
class HasTools(Protocol):
    """An actor that says what it can call: `tools`, objects with `name` and `schema` by name."""

    @property
    def tools(self) -> Mapping[str, Any]: ...


@runtime_checkable
class HasApprovals(Protocol):
    """An actor that asks people: `approvals` is where they answer (`spar.records.approvals.Approver`), None for
    nowhere."""

    @property
    def approvals(self) -> Any: ...


@runtime_checkable
class ListsAtOnce(Protocol):
    """Approvals that can be listed without being awaited."""

    def rows(self, status: str | None = "pending") -> list[Approval]:
        """Return the approvals of a status, the newest first; None: of any status."""
        ...


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
