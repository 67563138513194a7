"""Optional ports of a sense module, an actor with its approvals and tools, and a reflector.

The core does not call a port that a part lacks. A method may be a plain function where nothing else is stated; a method
that is awaited is declared `async`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from spar.ports.any_part import has
from spar.protocols import Context, Lent
from spar.records.journal import RowChange
from spar.types import Action, ActionResult, Call, CallResult, Feedback, Perception, Reflection, Trust

if TYPE_CHECKING:
    from spar.records.approvals import Approval
    from spar.records.perceived import Examined, Incident


class IncidentsKept(Protocol):
    """Incidents for people, who can list and close them; from any thread."""

    def list(self) -> Sequence[Incident]:
        """Return the known incidents, the oldest first."""

    def ask_closing(self, incident_id: str, by: str) -> Incident:
        """Request that an incident is closed in the next cycle. Raises: LookupError, ValueError saying why it cannot
        be."""

    def figures(self) -> Mapping[str, Any]:
        """Return the numbers of open and opened incidents by severity, and of closed ones by the way of closing."""


class OptionalSense(Protocol):
    """Optional members of a sense module."""

    def settled(self) -> Awaitable[None]:
        """Store what belongs to the cycle that has ended."""

    def perceive(self, pushed: Sequence[Perception], context: Context, /) -> Awaitable[Sequence[Perception]]:
        """Return the perceptions after the pipeline. When this raises, the pushed perceptions arrive unchanged."""

    def hear(self, text: str, session: str, /) -> Perception:
        """Return the perception of a message. Raises: ValueError to refuse it."""

    def cursors(self) -> Mapping[str, Any]:
        """Return the cursors after the perceptions that cycles have taken, by the keys under which they are loaded; the
        caller stores them."""

    def row_changes(self) -> Sequence[RowChange]:
        """Return the changes that belong to perceptions that cycles have taken, in order; the caller writes them."""

    def cycle_rows(self, cycle_id: str, /) -> Sequence[RowChange]:
        """Return the changes that belong to a cycle, in order, once; the caller writes them with the cycle."""

    def examine(self, batch: Sequence[Perception], /) -> Sequence[Examined]:
        """Return the result for each perception in order, as if they were those of one cycle; earlier batches are
        remembered."""

    def stage_counts(self) -> Mapping[str, Mapping[str, int]]:
        """Return by stage how many perceptions went in, were changed, and were removed."""

    @property
    def incidents(self) -> IncidentsKept:
        """Return the incidents."""

    def restore(self, sensor: str, /) -> object:
        """Try a sensor again now. Raises: LookupError for an unknown one."""

    async def teach(self, what: str, text: str, label: str, /, *, by: str = "") -> Mapping[str, Any]:
        """Store an example; it is on disk when this returns. `is_training` says whether similar texts count yet.

        Raises: ValueError for an invalid text, label or `what`; ConflictError when learning is turned off.
        """

    async def unteach(self, example: str, /, *, by: str = "") -> Mapping[str, Any]:
        """Delete an example by its id. Raises: LookupError for an unknown one."""

    def taught(self) -> Mapping[str, Any]:
        """Return the known labels, and the examples that people taught."""

    def read(self, text: str, /) -> Mapping[str, Any]:
        """Return the intent that a text would get."""

    async def stored_examples(self, agent: str, store: Any, /) -> Mapping[str, Any]:
        """Return what `taught` returns, from the rows in a store. Raises: the errors of the store."""


class ClosableStream(Protocol):
    """Stream of calls that releases resources when it is not read to its end."""

    def aclose(self) -> Awaitable[object]:
        """Close the stream; called once, also after its end."""


class HearsFeedback(Protocol):
    """Reflector that understands later feedback on actions."""

    async def hear_feedback(self, words: Sequence[Feedback], context: Context) -> Reflection:
        """Return the reflection on feedback about runs and cycles that have ended; it includes the feedback itself."""


class ListsAtOnce(Protocol):
    """Approvals that can be listed without awaiting."""

    def rows(self, status: str | None = "pending") -> list[Approval]:
        """Return the approvals of a status, the newest first; None: of any status. May be called from any thread."""


class OptionalActor(Protocol):
    """Optional members of an actor."""

    async def act_stream(self, action: Action, calls: AsyncIterator[Call], /) -> ActionResult:
        """Carry out a plan that is still being written."""

    def resumable(self, session: str, /) -> Action | None:
        """Return the action that the session's next cycle executes before anything new, until it was executed.

        It has calls of earlier cycles whose answer is there; its perceptions say why it continues.
        """

    def steer(self, run_id: str, /) -> object:
        """Skip the calls of this run that have not started, with the reason `steered`: somebody has said something new.

        Calls that run finish. This applies to the current act phase of the run, or else to its next one.
        """

    def objection(self, tool: str, params: Mapping[str, Any], unresolved: Collection[str] = ()) -> str:
        """Return why a tool cannot be called with these parameters; "" if it can, or if the tool is not known yet."""

    def borrow(self, lent: Lent, /) -> object:
        """Replace the former loan of the planner with this one; its own tools take precedence. Also of a reflector."""

    async def abandon(self, run_id: str) -> None:
        """Drop the held calls of this run: somebody ended it."""

    def waiting_runs(self) -> Collection[str]:
        """Return the ids of the runs with held calls."""

    async def close_questions(self) -> None:
        """Close the questions of cycles that do not go on: called at the start, once it is known which do."""

    def hold_questions(self, *, is_allowed: bool) -> None:
        """Let calls wait from now on; if not allowed, hold those that wait, and later ones, back for later cycles."""

    async def end_conversation(self, session: str) -> None:
        """Drop the held calls of this session's runs: the conversation is over."""

    @property
    def keeps_journal(self) -> bool:
        """Return whether it records its calls in `Host.journal` itself."""

    @property
    def effect(self) -> str:
        """Return whether its actions may be repeated; the default is "once"."""

    def interrupted(self, action_id: str, /) -> ActionResult | None:
        """Return the known results of the action's calls, once; None for an unknown action."""

    async def take_over(self) -> None:
        """Continue what the former actor left on disk; called again for each session that changes over."""

    @property
    def tools(self) -> Mapping[str, Any]:
        """Return what it can call, objects with `name` and `schema`, by name."""

    def ruling(self, call: Call, trust: Trust, session: str) -> tuple[str, str]:
        """Return "auto", "ask" or "deny" and the reason ("" for none); "" for an unknown tool.

        Args: trust: that of the call's plan.
        """

    @property
    def approvals(self) -> Any:
        """Return where people answer (`spar.records.approvals.Approver`), or None."""


class OptionalTool(Protocol):
    """Optional members of a tool in the form in which an actor holds it, of its source, and of its terms."""

    @property
    def name(self) -> str:
        """Return its name."""

    def accept(self, names: Sequence[str] = (), /) -> dict[str, str]:
        """Accept these tools, or all that wait if none is named; return for each what was accepted.

        Raises: LookupError for a tool that does not wait; SparError when the acceptance cannot be stored.
        """

    @property
    def terms(self) -> Any:
        """Return the terms of its calls."""

    def effect_of(self, params: Mapping[str, Any], /) -> str:
        """Return the effect of a call with these parameters: "read", "idempotent" or "once"."""

    @property
    def brings_untrusted(self) -> bool | None:
        """Return whether a result comes from outside; None: not stated."""


def is_tainted(results: Iterable[CallResult], tools: Mapping[str, Any]) -> bool:
    """Return whether a call returned anything from outside, which a model then reads."""
    for result in results:
        tool: Any = tools.get(result.call.tool)
        terms: Any = tool.terms if has(tool, OptionalTool.terms) else tool
        brings = tool is None or (has(terms, OptionalTool.brings_untrusted) and terms.brings_untrusted)
        if result.attempts and (brings or result.call.meta.get("_trust") == "untrusted"):
            return True
    return False
