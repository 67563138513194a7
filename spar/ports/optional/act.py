"""Optional ports of an actor, its approvals and its tools, and of a reflector."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from spar.ports.optional.any_part import offers
from spar.protocols import Context
from spar.records.approvals import Approval
from spar.types import ActionResult, Call, CallResult, Feedback, Reflection, Trust


@runtime_checkable
class HearsFeedback(Protocol):
    """Reflector that understands later feedback on actions."""

    async def hear_feedback(self, words: Sequence[Feedback], context: Context) -> Reflection:
        """Return the reflection on feedback about runs and cycles that have ended; it includes the feedback itself."""
        ...


@runtime_checkable
class Abandonable(Protocol):
    """Actor that holds calls back for later cycles."""

    async def abandon(self, run_id: str) -> None:
        """Drop the held calls of this run: somebody ended it."""


@runtime_checkable
class HoldsCalls(Abandonable, Protocol):
    """Actor that keeps held calls and questions to people beyond the end of its process."""

    def waiting_runs(self) -> Collection[str]:
        """Return the ids of the runs with held calls."""

    async def close_questions(self) -> None:
        """Close the questions of cycles that do not go on: called at the start, once it is known which do."""


@runtime_checkable
class HoldsQuestions(Protocol):
    """Actor whose calls may wait in their cycle for the answers of people."""

    def hold_questions(self, *, is_allowed: bool) -> None:
        """Let calls wait from now on; if not allowed, hold those that wait, and later ones, back for later cycles."""


@runtime_checkable
class EndsConversations(Protocol):
    """Actor that holds calls back also beyond the end of their run."""

    async def end_conversation(self, session: str) -> None:
        """Drop the held calls of this session's runs: the conversation is over."""


@runtime_checkable
class StatesJournal(Protocol):
    """Actor that records its calls in `Host.journal` itself while `keeps_journal` is true."""

    @property
    def keeps_journal(self) -> bool: ...


@runtime_checkable
class StatesEffect(Protocol):
    """Actor that states by `effect` whether its actions may be repeated; the default is "once"."""

    @property
    def effect(self) -> str: ...


@runtime_checkable
class TellsInterrupted(Protocol):
    """Actor that knows the results of an action that was cut off."""

    def interrupted(self, action_id: str, /) -> ActionResult | None:
        """Return the known results of the action's calls, once; None for an unknown action."""
        ...


@runtime_checkable
class TakesOver(Protocol):
    """Actor that replaces another one while both are open."""

    async def take_over(self) -> None:
        """Continue what the former actor left on disk; called again for each session that changes over."""


@runtime_checkable
class HasTools(Protocol):
    """Actor that states what it can call: `tools`, objects with `name` and `schema`, by name."""

    @property
    def tools(self) -> Mapping[str, Any]: ...


@runtime_checkable
class RulesOnCalls(Protocol):
    """Actor that says what its policy decides about a call, without any consequence."""

    def ruling(self, call: Call, trust: Trust, session: str) -> tuple[str, str]:
        """Return "auto", "ask" or "deny" and the reason ("" for none); "" for an unknown tool.

        Args: trust: that of the call's plan.
        """
        ...


@runtime_checkable
class HasApprovals(Protocol):
    """Actor that asks people: `approvals` is where they answer (`spar.records.approvals.Approver`), or None."""

    @property
    def approvals(self) -> Any: ...


@runtime_checkable
class ListsAtOnce(Protocol):
    """Approvals that can be listed without awaiting."""

    def rows(self, status: str | None = "pending") -> list[Approval]:
        """Return the approvals of a status, the newest first; None: of any status."""
        ...


@runtime_checkable
class AcceptsTools(Protocol):
    """Source of tools that people must accept by name before they can be called."""

    name: str

    def accept(self, names: Sequence[str] = (), /) -> dict[str, str]:
        """Accept these tools, or all that wait if none is named; return for each what was accepted.

        Raises: LookupError for a tool that does not wait; SparError when the acceptance cannot be stored.
        """
        ...


@runtime_checkable
class HasTerms(Protocol):
    """Tool in the form in which an actor holds it, with the terms of its calls."""

    @property
    def terms(self) -> Any: ...


@runtime_checkable
class StatesEffects(Protocol):
    """Tool in the form in which an actor holds it, with the effect of each of its calls."""

    def effect_of(self, params: Mapping[str, Any], /) -> str:
        """Return the effect of a call with these parameters: "read", "idempotent" or "once"."""
        ...


@runtime_checkable
class BringsUntrusted(Protocol):
    """Tool or terms that state by `brings_untrusted` whether a result comes from outside; None: not stated."""

    @property
    def brings_untrusted(self) -> bool | None: ...


def is_tainted(results: Iterable[CallResult], tools: Mapping[str, Any]) -> bool:
    """Return whether a call returned anything from outside, which a model then reads."""
    for result in results:
        tool = tools.get(result.call.tool)
        terms: Any = tool.terms if offers(tool, HasTerms) else tool
        brings = tool is None or (offers(terms, BringsUntrusted) and terms.brings_untrusted)
        if result.attempts and (brings or result.call.meta.get("_trust") == "untrusted"):
            return True
    return False
