"""Settings and modules of an agent made by hand.

The tables of settings, the composition root and the validation are loaded when they are first needed: a program that
only imports the class of an agent needs none of them, and one that gives all four modules and no settings needs only
the tables. The standard actor and reflector are made by the first action, since none may ever come.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from inspect import isfunction
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar

from spar.errors import ConfigError
from spar.types import Action, ActionResult, Perception, Phase, Reflection, replace

if TYPE_CHECKING:
    from spar.config.tables.settings import Loaded, Settings
    from spar.parts.factory import Parts
    from spar.parts.registry import Registry
    from spar.protocols import Context, Host

    #: Settings as a caller gives them: a table, or valid ones that `load` returned.
    Given = Mapping[str, Any] | Settings | Loaded

#: Sections that describe parts, with the argument that gives the part itself.
_OF_PARTS = {
    "sense": "sense=", "sensors": "sense=", "perception": "sense=", "plan": "plan=", "rules": "plan=", "act": "act=",
    "tools": "tools=", "reflect": "reflect=", "plugins": "them the agent",
    "channels": "them the agent", "attachments": "attach=",
}  # fmt: skip
#: Sections that the built-in executor uses.
_OF_EXECUTOR = {"acting", "approval"}
#: Abilities of an actor without a call that need the actor itself. It has nothing to resume, abandon or take over.
_NEEDED = frozenset({"approvals", "objection", "ruling", "snapshot", "steer", "tools"})
_MAKING = Lock()  # metrics and status read from other threads


async def sense_nothing() -> Sequence[Perception]:
    return ()


async def plan_nothing(perceptions: Sequence[Perception]) -> Action | None:
    return None


async def act_nothing(action: Action) -> ActionResult:
    return ActionResult(action)


async def reflect_nothing(result: ActionResult) -> Reflection:
    return Reflection(result=result)


def settings(given: Given | None) -> Settings:
    """Return the validated settings, or the defaults if none are given. Raises: ConfigError."""
    if given is None:
        return _settings()
    from spar.config.load import from_mapping
    from spar.config.tables.settings import Loaded, Settings

    if isinstance(given, Loaded):
        return given.settings
    validated = from_mapping(given)
    return validated if isinstance(given, Settings) else _by_hand(validated, given)


@functools.cache
def _settings() -> Settings:
    from spar.config.tables.settings import Settings

    return _by_hand(Settings(), {})


def _by_hand(defaults: Settings, given: Mapping[str, Any]) -> Settings:
    """Return the settings without what only a service has by default, unless it is given: a program that makes an agent
    sets its own limits and rules, or none."""
    if "calls" not in (given.get("runs") or {}):
        defaults = replace(defaults, runs=replace(defaults.runs, calls="off"))
    if "approval" not in given:  # only tools and hooks ask
        defaults = replace(defaults, approval=replace(defaults.approval, untrusted="auto"))
    if "budgets" not in given:
        defaults = replace(defaults, budgets=type(defaults.budgets).off())
    return defaults


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


def modules(sense: Any, plan: Any, act: Any, reflect: Any, given: Iterable[Any], settings: Settings,
            caller_settings: Given | None, confirm: Any, *, has_memory: bool) -> dict[Phase, Any]:  # fmt: skip
    """Return the four modules, with defaults for those that are not given. An actor without tools, rules and memory,
    and its reflector, are made by the first action.

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
    for name, value in (("tools", tools), ("confirm", confirm)):
        if act is not None and value:
            raise ConfigError(f"{name}= is for the built-in executor: your act module has its own, or leave act= out")
    current: dict[Phase, Any] = {"sense": sense_nothing, "plan": plan_nothing}
    if plan is None:
        current["reflect"] = reflect_nothing
        if not (tools or confirm or table.keys() & _OF_EXECUTOR):
            current["act"] = act_nothing
    given_modules: dict[Phase, Any] = {"sense": sense, "plan": plan, "act": act, "reflect": reflect}
    current |= {phase: module for phase, module in given_modules.items() if module is not None}
    if missing := [phase for phase in given_modules if phase not in current]:
        loaded = caller_settings if caller_settings is not None and not isinstance(caller_settings, Mapping) else None
        has_rules = loaded or tools or confirm or has_memory or table.keys() & _OF_EXECUTOR
        make = partial(_parts, settings, loaded, tools)
        if has_rules or (not isfunction(plan) and _needs_others(plan)):
            current |= make().modules(missing, current)
        else:
            current |= {phase: {"act": ActorOnUse, "reflect": ReflectorOnUse}[phase](make) for phase in missing}
    if confirm is not None:
        current["act"].confirm = confirm
    return current


def _needs_others(plan: Any) -> bool:
    """Return whether a planner lends something to other modules, or has its calls checked by the actor."""
    from spar.ports.any_part import has
    from spar.ports.planners import OptionalPlanner

    return has(plan, OptionalPlanner.lends) or has(plan, OptionalPlanner.written_calls)


def _parts(settings: Settings, given: Settings | Loaded | None, tools: Iterable[Any]) -> Parts:
    from spar.config.lines import Sources
    from spar.config.tables.settings import Loaded
    from spar.parts.factory import Parts

    loaded = given if isinstance(given, Loaded) else Loaded(settings, Sources())
    return Parts(loaded, _registry(), tools)


def attachment(name: str) -> Any:
    """Return the attachment of a name. Raises: ConfigError."""
    return _registry().build("spar.attachments", ("attach",), name)


def attach(name: str, add: Callable[[Any, str, str], object]) -> None:
    """Attach a built-in attachment. Raises: ConfigError if it is not installed."""
    from spar.parts.registry import OWN

    if not is_installed(name):
        from spar.parts.factory import not_installed

        raise not_installed(name)
    add(attachment(name), OWN, name)


def is_installed(name: str) -> bool:
    """Return whether there is an attachment of this name."""
    return name in _registry().names("spar.attachments")


def of_memory(memory: Any) -> list[str]:
    """Return the attachments that an agent with this open memory needs, which may be shared with other nodes."""
    if memory is None:
        return []
    from spar.parts.registry import OF_MEMORY
    from spar.ports.nodes import nodes_of

    names = [name for name in OF_MEMORY if is_installed(name)]
    # Without the second one, nodes would do each other's work: if it is not installed, attaching it is an error.
    return [*names, "nodes"] if nodes_of(memory) is not None else names


@functools.cache
def _registry() -> Registry:
    """Return the registry of all programs' parts: to read the entry points takes longer than to make an agent."""
    from spar.parts.registry import Registry

    return Registry()


# -- modules that the first action makes


class MadeOnUse:
    """Module of a phase that is made when it is first needed, and then gets the services of its agent.

    Args: make: makes the parts, among them the module.
    """

    __slots__ = ("_host", "_make", "_may_hold", "_part")
    phase: ClassVar[Phase]

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make, self._may_hold = make, True
        self._host: Callable[[], Host] | None = None
        self._part: Any = None

    @property
    def part(self) -> Any:
        """Return the module itself, which is made now at the latest."""
        with _MAKING:
            if self._part is None:
                part = self._make().module(self.phase)
                if self._host is not None:
                    part.attach(self._host())
                if not self._may_hold:
                    part.hold_questions(is_allowed=False)
                self._part = part
        return self._part

    def attach_later(self, host: Callable[[], Host]) -> None:
        """Use the services of an agent, which `host` returns, once the module is needed."""
        self._host = host
        if self._part is not None:
            self._part.attach(host())


class ReflectorOnUse(MadeOnUse):
    """Reflector that the first result makes."""

    __slots__ = ()
    phase = "reflect"
    __qualname__ = "Reflect"  # errors and logs name the module that it stands for

    async def reflect(self, result: ActionResult, context: Context | None = None) -> Any:
        """Reflect on a result; see `Reflector`."""
        return await self.part.reflect(result, context)

    async def hear_feedback(self, words: Any, context: Context) -> Any:
        """Apply later feedback; see `HearsFeedback`."""
        return await self.part.hear_feedback(words, context)


class ActorOnUse(MadeOnUse):
    """Actor that the first action makes and opens. It offers what the actor offers, once that is made."""

    __slots__ = ("_is_open", "_opening")
    phase = "act"
    __qualname__ = "Executor"

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__(make)
        self._is_open, self._opening = False, asyncio.Lock()

    def __getattr__(self, name: str) -> Any:
        if name in _NEEDED or (not name.startswith("_") and self._part is not None):
            return getattr(self.part, name)
        raise AttributeError(name)

    def hold_questions(self, *, is_allowed: bool) -> None:
        """Let calls wait for people, or let none wait any more; see `OptionalActor`."""
        self._may_hold = is_allowed
        if self._part is not None:
            self._part.hold_questions(is_allowed=is_allowed)

    async def __aenter__(self) -> ActorOnUse:
        self._opening = asyncio.Lock()
        if self._part is not None:
            await self._opened()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._is_open:
            self._is_open = False
            await self._part.__aexit__(*exc)

    async def act(self, action: Action, context: Context | None = None) -> Any:
        """Carry out an action; see `Actor`."""
        return await (await self._opened()).act(action, context)

    async def act_stream(self, action: Action, calls: Any, context: Context | None = None) -> Any:
        """Carry out the calls of a plan that is still being written; see `OptionalActor`."""
        return await (await self._opened()).act_stream(action, calls, context)

    async def _opened(self) -> Any:
        """Return the actor, open."""
        actor = self.part
        async with self._opening:
            if not self._is_open:
                await actor.__aenter__()
                self._is_open = True
        return actor
