"""Optional ports of a planner."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, Protocol, runtime_checkable

from spar.protocols import Context
from spar.records.run_options import RunOptions
from spar.types import Perception


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


@runtime_checkable
class ShowsPrompt(Protocol):
    """A planner by a model that says what stands in its next request."""

    async def prompt(
        self, perceptions: Sequence[Perception], context: Context, *, with_text: bool = False
    ) -> dict[str, Any]:
        """Return the parts of the request with their sizes and origins; nothing is sent or kept."""
        ...
