"""Optional port of a planner, which the core asks for its rules, its models and its degraded mode."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from spar.clock import Clock
from spar.protocols import Context, Lent, WrittenCall
from spar.records.run_options import RunOptions
from spar.types import Perception


class RuleLook(Struct, frozen=True):
    """Answer of a rule about one perception, by id: whether it would fire, and why."""

    rule: str
    perception: str
    why: str
    matches: bool


class RecordedAnswer(Struct, frozen=True):
    """Answer of a model as a cycle recorded it: the text beside its calls, the calls on the wire, the output."""

    text: str = ""
    calls: tuple[Mapping[str, Any], ...] = ()
    output: Any = None


#: Function that gets a request as the record of a cycle has it, with its `digest`, and returns the answer to it; None
#: if there is none.
AnswerTo = Callable[[Mapping[str, Any]], RecordedAnswer | None]


class OptionalPlanner(Protocol):
    """Optional members of a planner."""

    def written_calls(self) -> Iterable[WrittenCall]:
        """Return the calls that its configuration spells out; their tools check them before anything runs."""

    def lends(self) -> Lent:
        """Return what the planner does for other modules: calls that need a model, questions to its model."""

    def degrade(self, reason: str, /) -> object:
        """Stop using what costs or fails, until `restore`. Idempotent; returns False when nothing changed."""

    def restore(self) -> object:
        """Use everything again. Idempotent; returns False when nothing changed."""

    @property
    def degraded_reason(self) -> str | None:
        """Return why it is degraded; None or "" while it is not."""

    def rule_schema(self) -> dict[str, Any]:
        """Return the JSON schema of one rule."""

    @property
    def rule_names(self) -> Sequence[str]:
        """Return the names of the rules, in their order."""

    def explain(self, perceptions: Sequence[Perception]) -> Iterable[RuleLook]:
        """Return what each rule says of each perception, without any consequence."""

    @property
    def reach(self) -> float:
        """Return the seconds until a firing of a rule has no effect."""

    def recall(self, rules: Collection[str], perceptions: Sequence[Perception], clock: Clock) -> object:
        """Take over that these rules fired for the perceptions, at the time of the clock; nothing is decided."""

    def answer_from(self, answer_to: AnswerTo, *, is_asked: bool = False) -> object:
        """Take answers from this function, from now on.

        Args: is_asked: whether the model is asked a request without an answer; if not, such a request fails.
        """

    async def check_options(self, options: RunOptions) -> object:
        """Check the options. Raises: ValueError for an option that it cannot apply, naming it and what is allowed."""

    @property
    def allowed_models(self) -> Sequence[str]:
        """Return the models that people may choose."""

    async def prompt(
        self, perceptions: Sequence[Perception], context: Context, *, with_text: bool = False
    ) -> dict[str, Any]:
        """Return the parts of the request with their sizes and origins; nothing is sent or stored."""
