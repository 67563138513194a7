"""What an agent made by hand does where nothing was given.

The settings and the registry are loaded when they are first needed: who gives all four modules needs no registry.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spar.errors import ConfigError
from spar.types import Action, ActionResult, Perception, Phase, Reflection

if TYPE_CHECKING:
    from spar.settings import Settings


async def sense_nothing() -> Sequence[Perception]:
    return ()


async def plan_nothing(perceptions: Sequence[Perception]) -> Action | None:
    return None


async def act_nothing(action: Action) -> ActionResult:
    return ActionResult(action)


async def reflect_nothing(result: ActionResult) -> Reflection:
    return Reflection(result=result)


def hear(text: str, session: str) -> Perception:
    """The perception that a message is."""
    return Perception(text, source="message", kind="message", session=session, trust="trusted")


def settings(given: Mapping[str, Any] | Settings | None) -> Settings:
    """The settings that were given, validated; without any those that everything has. Raises: ConfigError."""
    if given is None:
        return _settings()
    from spar.settings import Settings, from_mapping

    if isinstance(given, Settings):
        return given
    made = from_mapping(given)
    if "calls" not in (given.get("runs") or {}):
        made = made.model_copy(update={"runs": made.runs.model_copy(update={"calls": "off"})})
    return made if "budgets" in given else without_budgets(made)


@functools.cache
def _settings() -> Settings:
    return settings({})


def without_budgets(settings: Settings) -> Settings:
    """The same without limits: who makes an agent by hand says what it may use, or it may use all."""
    from spar.sections import BudgetSettings

    return settings.model_copy(update={"budgets": BudgetSettings.off()})


def modules(sense: Any, plan: Any, act: Any, reflect: Any, given: Iterable[Any]) -> dict[Phase, Any]:
    """The four parts, with what stands in for those that were not given. Raises: ConfigError for impossible tools."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(f"tools= must be a list of tools, found {given!r}")
    tools = tuple(given)
    if act is None:
        act = _executor(tools) if plan is not None or tools else act_nothing
    elif tools:
        raise ConfigError("tools= belong to the built-in executor: give them to your act module, or leave act= out")
    if reflect is None:
        reflect = _reflector() if plan is not None else reflect_nothing
    return {
        "sense": sense if sense is not None else sense_nothing,
        "plan": plan if plan is not None else plan_nothing,
        "act": act,
        "reflect": reflect,
    }


def _executor(tools: tuple[Any, ...]) -> Any:
    from spar.registry import Registry

    return Registry().resolve("spar.actors", "executor")(tools)


def _reflector() -> Any:
    from spar.registry import Registry

    return Registry().resolve("spar.reflectors", "standard")()
