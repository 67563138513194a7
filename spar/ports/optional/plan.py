"""Optional ports of a planner."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct

from spar.clock import Clock
from spar.protocols import Context
from spar.records.run_options import RunOptions
from spar.types import Perception


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
