"""Defaults of an agent made by hand.

The tables of settings, the registry and the validation are loaded when they are first needed: a program that only
imports the class of an agent needs none of them, and one that gives all four modules and no settings needs only the
tables.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spar.errors import ConfigError
from spar.types import Action, ActionResult, Perception, Phase, Reflection, replace

if TYPE_CHECKING:
    from spar.config.load import Loaded
    from spar.config.tables.settings import Settings

    #: Settings as a caller gives them: a table, or valid ones that `load` returned.
    Given = Mapping[str, Any] | Settings | Loaded

#: Sections that describe parts, with the argument that gives the part itself.
_OF_PARTS = {
    "sense": "sense=", "sensors": "sense=", "perception": "sense=", "plan": "plan=", "rules": "plan=", "act": "act=",
    "tools": "tools=", "reflect": "reflect=", "plugins": "them the agent",
    "channels": "them the agent",
}  # fmt: skip
#: Sections that the built-in executor uses.
_OF_EXECUTOR = {"acting", "approval"}


async def sense_nothing() -> Sequence[Perception]:
    return ()


async def plan_nothing(perceptions: Sequence[Perception]) -> Action | None:
    return None


async def act_nothing(action: Action) -> ActionResult:
    return ActionResult(action)


async def reflect_nothing(result: ActionResult) -> Reflection:
    return Reflection(result=result)


def hear(text: str, session: str) -> Perception:
    """Return the perception of a message."""
    return Perception(text, source="message", kind="message", session=session, trust="trusted")


def settings(given: Given | None) -> Settings:
    """Return the validated settings, or the defaults if none are given. Raises: ConfigError."""
    if given is None:
        return _settings()
    from spar.config.load import Loaded, from_mapping
    from spar.config.tables.settings import Settings

    if isinstance(given, Loaded):
        return given.settings
    validated = from_mapping(given)
    return validated if isinstance(given, Settings) else _by_hand(validated, given)


@functools.cache
def _settings() -> Settings:
    from spar.config.tables.settings import Settings

    return _by_hand(Settings(), {})


def _by_hand(defaults: Settings, given: Mapping[str, Any]) -> Settings:
    """Return the settings without the limits that only a service has by default, unless they are given."""
    if "calls" not in (given.get("runs") or {}):
        defaults = replace(defaults, runs=replace(defaults.runs, calls="off"))
    return defaults if "budgets" in given else without_budgets(defaults)


def without_budgets(settings: Settings) -> Settings:
    """Return the settings with budgets without limits: a program that makes an agent sets its own limits, or none."""
    from spar.config.tables.budgets import BudgetSettings

    return replace(settings, budgets=BudgetSettings.off())


def _check_applicable(given: Mapping[str, Any], act: Any) -> None:
    """Check that an agent made from parts can apply these settings to them. Raises: ConfigError."""
    for section in given:
        if argument := _OF_PARTS.get(section):
            hint = f": give {argument}, or make the agent by Agent.from_config"
        elif act is not None and section in _OF_EXECUTOR:
            hint = " to your own act=: give them to it, or give tools= instead"
        else:
            continue
        raise ConfigError(f"settings= cannot apply [{section}]{hint}", path=(section,))


def acting(settings: Settings) -> dict[str, Any]:
    """Return the arguments of the built-in executor: `settings` and `approval_timeout`."""
    from spar.config.tables.section import as_table

    approval = settings.approval
    values = {**as_table(settings.acting), "approval": as_table(approval, without_none=True)}
    del values["workspace"]
    return {"settings": values, "approval_timeout": approval.expires}


def modules(sense: Any, plan: Any, act: Any, reflect: Any, given: Iterable[Any], settings: Settings,
            caller_settings: Given | None, confirm: Any) -> dict[Phase, Any]:  # fmt: skip
    """Return the four modules, with defaults for those that are not given.

    Args: given: the tools; caller_settings: the settings as the caller gave them; confirm: function that the executor
        asks instead of storing questions for people.
    Raises: ConfigError for tools, settings or a `confirm` that no module here can use.
    """
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise ConfigError(f"tools= must be a list of tools, found {given!r}")
    tools = tuple(given)
    table = caller_settings if isinstance(caller_settings, Mapping) else {}
    _check_applicable(table, act)
    if confirm is not None and not callable(confirm):
        raise ConfigError(
            f"confirm= must be a function that takes a call and returns a verdict, found {confirm!r:.100}"
        )
    if act is None:
        has_calls = plan is not None or tools or confirm is not None or table.keys() & _OF_EXECUTOR
        act = _executor(tools, settings, caller_settings, confirm) if has_calls else act_nothing
    elif tools:
        raise ConfigError("tools= belong to the built-in executor: give them to your act module, or leave act= out")
    elif confirm is not None:
        raise ConfigError(
            "confirm= belongs to the built-in executor: your act module asks by itself, or leave act= out"
        )
    if reflect is None:
        reflect = _reflector() if plan is not None else reflect_nothing
    return {
        "sense": sense if sense is not None else sense_nothing,
        "plan": plan if plan is not None else plan_nothing,
        "act": act,
        "reflect": reflect,
    }


def _executor(tools: tuple[Any, ...], settings: Settings, caller_settings: Given | None,
              confirm: Any) -> Any:  # fmt: skip
    from spar.config.registry import Registry

    terms = acting(settings)
    if caller_settings is None or (isinstance(caller_settings, Mapping) and "approval" not in caller_settings):
        # As with budgets: a program that makes an agent sets its own rules; otherwise only tools and hooks ask.
        terms["settings"]["approval"]["untrusted"] = "auto"
    executor = Registry().resolve("spar.actors", "executor")(tools, **terms)
    executor.confirm = confirm
    return executor


def _reflector() -> Any:
    from spar.config.registry import Registry

    return Registry().resolve("spar.reflectors", "standard")()
