"""Optional ports of a sense module, a planner, an actor with its approvals and tools, and a reflector.

The core does not call a port that a part lacks. A method may be a plain function where nothing else is stated; a method
that is awaited is declared `async`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from msgspec import Struct

from spar.clock import Clock
from spar.ports.any_part import offers
from spar.protocols import Context
from spar.records.journal import RowChange
from spar.records.run_options import RunOptions
from spar.types import ActionResult, Call, CallResult, Feedback, Perception, Reflection, Trust

if TYPE_CHECKING:
    from spar.records.approvals import Approval
    from spar.records.perceived import Examined, Incident


class IncidentsKept(Protocol):
    """Incidents for people, who can list and close them; from any thread."""

    def list(self) -> Sequence[Incident]:
        """Return the known incidents, the oldest first."""
        ...

    def ask_closing(self, incident_id: str, by: str) -> Incident:
        """Request that an incident is closed in the next cycle. Raises: LookupError, ValueError saying why it cannot
        be."""
        ...

    def figures(self) -> Mapping[str, Any]:
        """Return the numbers of open and opened incidents by severity, and of closed ones by the way of closing."""
        ...


@runtime_checkable
class Perceives(Protocol):
    """Sense module that sends pushed perceptions through its pipeline."""

    def perceive(self, pushed: Sequence[Perception], context: Context, /) -> Awaitable[Sequence[Perception]]:
        """Return the perceptions after the pipeline. When this raises, the pushed perceptions arrive unchanged."""
        ...


@runtime_checkable
class Settles(Protocol):
    """Sense module that stores something at the end of a cycle with perceptions."""

    def settled(self) -> Awaitable[None]:
        """Store what belongs to the cycle that has ended."""
        ...


@runtime_checkable
class Hears(Protocol):
    """Sense module that makes perceptions of messages."""

    def hear(self, text: str, session: str, /) -> Perception:
        """Return the perception of a message. Raises: ValueError to refuse it."""
        ...


@runtime_checkable
class KeepsCursors(Protocol):
    """Sense module whose sensors have cursors: positions up to which they have read."""

    def cursors(self) -> Mapping[str, Any]:
        """Return the cursors after the perceptions that cycles have taken, by the keys under which they are loaded; the
        caller stores them."""
        ...


@runtime_checkable
class ChangesRows(Protocol):
    """Sense module whose sensors store small rows."""

    def row_changes(self) -> Sequence[RowChange]:
        """Return the changes that belong to perceptions that cycles have taken, in order; the caller writes them."""
        ...


@runtime_checkable
class ChangesCycleRows(Protocol):
    """Sense module that stores small rows about its processing of a cycle's perceptions."""

    def cycle_rows(self, cycle_id: str, /) -> Sequence[RowChange]:
        """Return the changes that belong to a cycle, in order, once; the caller writes them with the cycle."""
        ...


@runtime_checkable
class Examines(Protocol):
    """Sense module that shows the effect of its pipeline on perceptions, without an agent."""

    def examine(self, batch: Sequence[Perception], /) -> Sequence[Examined]:
        """Return the result for each perception in order, as if they were those of one cycle; earlier batches are
        remembered."""
        ...

    def stage_counts(self) -> Mapping[str, Mapping[str, int]]:
        """Return by stage how many perceptions went in, were changed, and were removed."""
        ...


@runtime_checkable
class KeepsIncidents(Protocol):
    """Sense module with incidents."""

    @property
    def incidents(self) -> IncidentsKept:
        """Return the incidents."""
        ...


@runtime_checkable
class RestoresSensors(Protocol):
    """Sense module that puts sensors in quarantine."""

    def restore(self, sensor: str, /) -> object:
        """Try a sensor again now. Raises: LookupError for an unknown one."""


@runtime_checkable
class Learns(Protocol):
    """Sense module that learns from examples which intents texts have; only the owner can reach these methods."""

    async def teach(self, what: str, text: str, label: str, /, *, by: str = "") -> Mapping[str, Any]:
        """Store an example; it is on disk when this returns. `is_training` says whether similar texts count yet.

        Raises: ValueError for an invalid text, label or `what`; ConflictError when learning is turned off.
        """
        ...

    async def unteach(self, example: str, /, *, by: str = "") -> Mapping[str, Any]:
        """Delete an example by its id. Raises: LookupError for an unknown one."""
        ...

    def taught(self) -> Mapping[str, Any]:
        """Return the known labels, and the examples that people taught."""
        ...

    def read(self, text: str, /) -> Mapping[str, Any]:
        """Return the intent that a text would get."""
        ...


@runtime_checkable
class ListsStoredExamples(Protocol):
    """Sense module that lists the taught examples of an agent that does not run."""

    async def stored_examples(self, agent: str, store: Any, /) -> Mapping[str, Any]:
        """Return what `Learns.taught` returns, from the rows in a store. Raises: the errors of the store."""
        ...


@runtime_checkable
class Degradable(Protocol):
    """Planner that can work with less."""

    def degrade(self, reason: str, /) -> object:
        """Stop using what costs or fails, until `restore`. Idempotent; returns False when nothing changed."""


@runtime_checkable
class Restorable(Protocol):
    """Planner that can return to full operation."""

    def restore(self) -> object:
        """Use everything again. Idempotent; returns False when nothing changed."""


@runtime_checkable
class StatesDegradation(Protocol):
    """Planner that states why it is degraded: `degraded_reason`, None or "" while it is not."""

    @property
    def degraded_reason(self) -> str | None: ...


@runtime_checkable
class StatesRules(Protocol):
    """Planner class that states the form of the `[[rules]]` it accepts."""

    def rule_schema(self) -> dict[str, Any]:
        """Return the JSON schema of one rule."""
        ...


class RuleLook(Struct, frozen=True):
    """Answer of a rule about one perception, by id: whether it would fire, and why."""

    rule: str
    perception: str
    why: str
    matches: bool


@runtime_checkable
class ExplainsRules(Protocol):
    """Planner that says of its rules why they do or do not match."""

    @property
    def rule_names(self) -> Sequence[str]:
        """Return the names of the rules, in their order."""
        ...

    def explain(self, perceptions: Sequence[Perception]) -> Iterable[RuleLook]:
        """Return what each rule says of each perception, without any consequence."""
        ...


@runtime_checkable
class RecallsRules(Protocol):
    """Planner whose rules may be at rest after they fired. `reach` are the seconds until a firing has no effect."""

    @property
    def reach(self) -> float: ...

    def recall(self, rules: Collection[str], perceptions: Sequence[Perception], clock: Clock) -> object:
        """Take over that these rules fired for the perceptions, at the time of the clock; nothing is decided."""


class RecordedAnswer(Struct, frozen=True):
    """Answer of a model as a cycle recorded it: the text beside its calls, the calls on the wire, the output."""

    text: str = ""
    calls: tuple[Mapping[str, Any], ...] = ()
    output: Any = None


#: Function that gets a request as the record of a cycle has it, with its `digest`, and returns the answer to it; None
#: if there is none.
AnswerTo = Callable[[Mapping[str, Any]], RecordedAnswer | None]


@runtime_checkable
class TakesAnswers(Protocol):
    """Planner with a model that can be given answers instead of asking for them."""

    def answer_from(self, answer_to: AnswerTo, *, is_asked: bool = False) -> object:
        """Take answers from this function, from now on.

        Args: is_asked: whether the model is asked a request without an answer; if not, such a request fails.
        """


@runtime_checkable
class TakesOptions(Protocol):
    """Planner that applies the options of a run: the model, its reasoning, instructions of the sender."""

    async def check_options(self, options: RunOptions) -> object:
        """Check the options. Raises: ValueError for an option that it cannot apply, naming it and what is allowed."""


@runtime_checkable
class NamesModels(Protocol):
    """Planner that names the models that people may choose."""

    @property
    def allowed_models(self) -> Sequence[str]: ...


@runtime_checkable
class ClosableStream(Protocol):
    """Stream of calls that releases resources when it is not read to its end."""

    def aclose(self) -> Awaitable[object]:
        """Close the stream; called once, also after its end."""
        ...


@runtime_checkable
class ShowsPrompt(Protocol):
    """Planner with a model that shows the content of its next request."""

    async def prompt(
        self, perceptions: Sequence[Perception], context: Context, *, with_text: bool = False
    ) -> dict[str, Any]:
        """Return the parts of the request with their sizes and origins; nothing is sent or stored."""
        ...


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
