"""The optional ports of parts: one Protocol of one to three members for each thing that a part may offer besides its
phase, and `offers`, by which the core asks for one.

A part that lacks a port is not asked. A method may be a plain function where nothing else is said; what is awaited is
declared `async`. The ports of a store are those of `spar.ports.store`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cache
from typing import Any, Protocol, TypeGuard, TypeVar, runtime_checkable

from spar.protocols import Context, Host
from spar.records.approvals import Approval
from spar.records.journal import RowChange
from spar.records.perceived.examined import Examined
from spar.records.perceived.incidents import Incident
from spar.records.run_options import RunOptions
from spar.types import ActionResult, Feedback, Perception, Reflection

P = TypeVar("P")


def offers(part: object, port: Callable[..., P]) -> TypeGuard[P]:
    """Return whether a part has all members of a port, its methods callable.

    Unlike `isinstance` it costs a few lookups, on any release of Python, and sees what a part passes on by
    `__getattr__`. What only exists (a property, an annotated attribute) may be None.

    Args:
        port: a Protocol of this file, of `spar.protocols` or of `spar.ports.store`.
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


# -- any part


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


# -- sense


class IncidentsKept(Protocol):
    """Incidents as people look at them, from any thread, and close them."""

    def list(self) -> Sequence[Incident]:
        """Return those that are known, the oldest first."""
        ...

    def ask_closing(self, incident_id: str, by: str) -> Incident:
        """Have one closed with the next cycle. Raises: LookupError, ValueError saying why that cannot be."""
        ...

    def figures(self) -> Mapping[str, Any]:
        """Return how many are open and were opened, by severity, and were closed, by how that came about."""
        ...


@runtime_checkable
class Perceives(Protocol):
    """A sense module that sends what was pushed through its pipeline."""

    def perceive(self, pushed: Sequence[Perception], context: Context, /) -> Awaitable[Sequence[Perception]]:
        """Return what becomes of it. When this raises, what was pushed arrives as it came."""
        ...


@runtime_checkable
class Settles(Protocol):
    """A sense module that keeps something at the end of a cycle which had perceptions."""

    def settled(self) -> Awaitable[None]:
        """Keep what belongs to the cycle that has ended."""
        ...


@runtime_checkable
class Hears(Protocol):
    """A sense module that makes the perceptions of messages."""

    def hear(self, text: str, session: str, /) -> Perception:
        """Return the perception that a message is. Raises: ValueError to refuse it."""
        ...


@runtime_checkable
class KeepsCursors(Protocol):
    """A sense module whose sensors keep cursors."""

    def cursors(self) -> Mapping[str, Any]:
        """Return the cursors of what cycles have taken, by the keys they are loaded by; who asks keeps them."""
        ...


@runtime_checkable
class ChangesRows(Protocol):
    """A sense module whose sensors keep small rows."""

    def row_changes(self) -> Sequence[RowChange]:
        """Return the changes of what cycles have taken, in order; who asks writes them."""
        ...


@runtime_checkable
class ChangesCycleRows(Protocol):
    """A sense module that keeps small rows of what it made of the perceptions of a cycle."""

    def cycle_rows(self, cycle_id: str, /) -> Sequence[RowChange]:
        """Return the changes that belong to a cycle, in order, once; who asks writes them with the cycle."""
        ...


@runtime_checkable
class Examines(Protocol):
    """A sense module that shows what its pipeline makes of perceptions, without an agent."""

    def examine(self, batch: Sequence[Perception], /) -> Sequence[Examined]:
        """Return what becomes of each, in order, as of those of one cycle; what came before is remembered."""
        ...

    def stage_counts(self) -> Mapping[str, Mapping[str, int]]:
        """Return by stage how many went in, were given something, and were taken out."""
        ...


@runtime_checkable
class KeepsIncidents(Protocol):
    """A sense module that keeps incidents."""

    @property
    def incidents(self) -> IncidentsKept:
        """The incidents."""
        ...


@runtime_checkable
class RestoresSensors(Protocol):
    """A sense module that puts sensors in quarantine."""

    def restore(self, sensor: str, /) -> object:
        """Try a sensor again now. Raises: LookupError for one that is not known."""


@runtime_checkable
class Learns(Protocol):
    """A sense module that learns from examples which intents texts have; only the owner's doors lead here."""

    async def teach(self, what: str, text: str, label: str, /, *, by: str = "") -> Mapping[str, Any]:
        """Keep an example; it is on disk when this returns. `is_training` says whether texts like it count yet.

        Raises: ValueError for a text, label or `what` out of bounds, ConflictError where learning is turned off.
        """
        ...

    async def unteach(self, example: str, /, *, by: str = "") -> Mapping[str, Any]:
        """Forget an example, by its id. Raises: LookupError for one that is not known."""
        ...

    def taught(self) -> Mapping[str, Any]:
        """Return the labels that are known, and the examples that people taught."""
        ...

    def read(self, text: str, /) -> Mapping[str, Any]:
        """Return what a text would be read as."""
        ...


# -- plan


@runtime_checkable
class Degradable(Protocol):
    """A planner that can make do with less."""

    def degrade(self, reason: str, /) -> object:
        """Do without what costs or fails, until it is restored. Idempotent; returns False when it did nothing."""


@runtime_checkable
class Restorable(Protocol):
    """A planner that can end making do with less."""

    def restore(self) -> object:
        """Plan with everything again. Idempotent; returns False when it did nothing."""


@runtime_checkable
class StatesDegradation(Protocol):
    """A planner that states why it makes do with less: `degraded_reason`, None or "" while it does not."""

    @property
    def degraded_reason(self) -> str | None: ...


@runtime_checkable
class StatesRules(Protocol):
    """A planner's class that states the form of the `[[rules]]` it takes."""

    def rule_schema(self) -> dict[str, Any]:
        """Return the JSON schema of one rule."""
        ...


@runtime_checkable
class TakesOptions(Protocol):
    """A planner that goes by the options of a run: the model, its thinking, instructions of the sender."""

    async def check_options(self, options: RunOptions) -> object:
        """Raises: ValueError for an option that it cannot go by, naming it and what is allowed."""


@runtime_checkable
class NamesModels(Protocol):
    """A planner that names the models that people may choose from."""

    @property
    def allowed_models(self) -> Sequence[str]: ...


@runtime_checkable
class ClosableStream(Protocol):
    """A stream of calls that releases something when it is not read to its end."""

    def aclose(self) -> Awaitable[object]:
        """End it; called once, also after its end."""
        ...


# -- act


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
class ShowsPrompt(Protocol):
    """A planner by a model that says what stands in its next request."""

    async def prompt(
        self, perceptions: Sequence[Perception], context: Context, *, with_text: bool = False
    ) -> dict[str, Any]:
        """Return the parts of the request with their sizes and origins; nothing is sent or kept."""
        ...


# -- tools


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
