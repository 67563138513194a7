"""Registry of tools by name. Tools are registered one by one or offered by sources; a later one replaces an earlier."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from acting.tooling.bound_tool import (
    Activity,
    BoundTool,
    LatentTool,
    SchemaTool,
    entry_of,
    entry_of_schema,
    is_generator,
)
from acting.tooling.parameters import Parameters
from acting.tooling.tool_schema import BadCallError, ToolSchema, named_schemas
from spar.checks import shorten
from spar.clock import Clock
from spar.errors import ConfigError
from spar.protocols import Lent
from spar.protocols.tools import is_source
from spar.threads import Threads
from spar.types import Call

#: Names of activities that ask a model. A planner lends them to the executor; without them such a call is an error.
DELEGATE = "_delegate"  # for calls with `_delegate`: a separate request to a model
LATENT = "_latent"  # for latent calls whose result was written before the values that it refers to were known


class UnknownToolError(BadCallError):
    """Error of a call of a tool that does not exist."""


class Catalog(Mapping[str, BoundTool]):
    """The tools of one executor, by name.

    A *source* offers tools that may change while it is open. It has a `name`, `tools()` and `on_change`, which it calls
    without arguments after a change. It may have `absence(name)`, which returns why it does not offer one of its tools
    now, or "". A tool that was registered itself keeps its name when a source offers another tool of that name.
    """

    __slots__ = ("_compiling", "_fixed", "_known", "_lent", "_own_activities", "_variants", "activities", "entries",
                 "is_compiled", "refused", "sources")  # fmt: skip

    def __init__(self, tools: Iterable[Any] = (), activities: Mapping[str, Activity] | None = None) -> None:
        self.activities = self._own_activities = _checked(activities or {})
        self._compiling: asyncio.Task[None] | None = None
        self._fixed: dict[str, BoundTool] = {}
        self.sources: list[Any] = []
        for tool in tools:
            if is_source(tool):
                self.sources.append(tool)
                tool.on_change = self.refresh
            else:
                for entry in self._entries_of(tool):
                    self._fixed.pop(entry.name, None)
                    self._fixed[entry.name] = entry
        self._lent: dict[str, BoundTool] = {}
        #: The tools that can be called now, by name.
        self.entries: dict[str, BoundTool] = {}
        #: The offered tools that cannot be used: the reason by the tool's name.
        self.refused: dict[str, str] = {}
        self.refresh()

    def refresh(self) -> None:
        """Read the tools that the sources offer now. The entry of a tool that is the same object as before stays."""
        entries, self.refused = {**self._lent, **self._fixed}, {}
        for source in self.sources:
            for tool in source.tools():
                name = str(getattr(tool, "name", ""))
                if name in entries:
                    self.refused[name] = f"{source.name!r} offers a tool under a name that is taken"
                    continue
                old = self.entries.get(name)
                try:
                    entries[name] = old if old is not None and old.target is tool else entry_of(tool, is_foreign=True)
                except ConfigError as error:
                    self.refused[name] = str(error)
        self.entries = entries
        #: Whether the tools that can be called now can validate a call at once.
        self.is_compiled = all(entry.parameters.is_compiled for entry in entries.values())
        self._variants: dict[tuple[BoundTool, str], BoundTool] = {}
        names = sorted(entries)
        self._known = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")

    async def compile(self, clock: Clock) -> None:
        """Return when the tools that can be called now can validate a call at once. A thread makes what they need."""
        while not self.is_compiled:
            if self._compiling is None or self._compiling.done():
                self._compiling = asyncio.get_running_loop().create_task(self._compile(clock), name="compile tools")
            await asyncio.shield(self._compiling)  # others wait for it, too

    async def _compile(self, clock: Clock) -> None:
        entries = self.entries
        waiting = [entry.parameters for entry in entries.values() if not entry.parameters.is_compiled]
        await Threads("parameters of tools", clock).run(_compile, waiting)
        self.is_compiled = entries is self.entries

    def borrow(self, lent: Lent) -> None:
        """Take the tools and activities that a planner lends, instead of those that it lent before.

        Names that are registered here stay as they are.
        """
        self.activities = {**_checked(lent.activities), **self._own_activities}
        self._lent = {entry.name: entry for tool in lent.tools for entry in self._entries_of(tool)}
        self.refresh()

    def _entries_of(self, item: Any) -> list[BoundTool]:
        if not isinstance(item, (str, Mapping)):
            return [entry_of(item)]
        entries = []
        for name, schema in named_schemas(item):
            if schema is None:
                raise ConfigError(f"tool {name!r} is only a name: give its schema, a function or an object")
            entries.append(entry_of_schema(ToolSchema.of(name, schema), self.activities))
        return entries

    def bound(self, call: Call) -> tuple[Call, BoundTool]:
        """Return the call with the values that its tool prescribes, and the tool that carries it out.

        A call may be *delegated*: an activity that asks a model carries it out. A call never chooses its activity
        itself, because approval, effect and parameters are checked by the terms of its tool.
        Raises: BadCallError, UnknownToolError, BadReferenceError.
        """
        entry = self.entries.get(call.tool)
        if entry is None:
            raise UnknownToolError(self.unknown(call.tool))
        if entry.rules is not None:
            call = entry.rules.fill_in(call)
        meta = call.meta
        if meta.get("_delegate"):
            return call, self.carried_out_by(entry, DELEGATE, "be delegated")
        wanted = meta.get("_activity")
        if isinstance(entry, LatentTool) and wanted == LATENT:
            return call, self.rewritten(entry)
        # A call that chose its handler would run that handler under the terms of another tool.
        if wanted is not None and wanted != entry.activity:
            by = f"by {entry.activity!r}" if entry.activity else "by no activity"
            raise BadCallError(f"tool {call.tool!r} is carried out {by}, not by {shorten(wanted)}")
        if isinstance(entry, LatentTool) and "_output" not in meta:
            if LATENT not in self.activities:
                sentence = f"nothing carries out tool {call.tool!r}: its call must bring the result as '_output'"
                raise BadCallError(sentence)
            return call, self.rewritten(entry)
        return call, entry

    def rewritten(self, entry: BoundTool) -> BoundTool:
        """Return the tool for a latent call whose result refers to values that were not there when the planner wrote
        it: its activity has a model write the result again, once these are there. Raises: BadCallError."""
        return self.carried_out_by(entry, LATENT, "be written once what it refers to is there")

    def carried_out_by(self, entry: BoundTool, activity: str, purpose: str = "be carried out") -> BoundTool:
        """Return the tool with another activity to carry it out. Raises: BadCallError when there is none such."""
        handler = self.activities.get(activity)
        if handler is None:
            known = ", ".join(sorted(self.activities)) or "none"
            raise BadCallError(f"it is to {purpose}, and there is no activity {activity!r}; known: {known}")
        variant = self._variants.get((entry, activity))
        if variant is None:  # stored, because all its calls share its threads and its slots
            rules = entry.rules or ToolSchema(entry.name, entry.parameters, entry.terms)
            variant = self._variants[entry, activity] = SchemaTool(rules, activity, handler)
            if entry.slots.limit:
                variant.slots = entry.slots
        return variant

    def __getitem__(self, name: str) -> BoundTool:
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def parts(self) -> list[Any]:
        """Return the registered objects, each once: the sources, and the targets of the other tools."""
        return [*self.sources, *(entry.target for entry in self._fixed.values())]

    def unknown(self, name: str) -> str:
        """Return the sentence about a tool that is not in this catalog."""
        reason = self.refused.get(name) or next(filter(None, (_absence(source, name) for source in self.sources)), "")
        why = f" ({reason})" if reason else ""
        return f"no tool named {shorten(name)}{why}; known: {self._known or 'none'}"


def _checked(activities: Mapping[str, Activity]) -> dict[str, Activity]:
    for name, handler in activities.items():
        if callable(handler) and is_generator(handler):
            sentence = f"activity {name!r:.100} is a generator, which returns no value: collect what it yields"
            raise ConfigError(sentence, path=("activities",))
        if not isinstance(name, str) or not name or not callable(handler):
            raise ConfigError(
                f"an activity is a function by its name, found {shorten(handler)} under {shorten(name)}",
                path=("activities",),
            )
    return dict(activities)


def _compile(waiting: Iterable[Parameters]) -> None:
    for parameters in waiting:
        parameters.compile()


def _absence(source: Any, name: str) -> str:
    """Return why a source does not offer this tool; "" where the source does not know the tool or the reason."""
    absence = getattr(source, "absence", None)
    return str(absence(name)) if callable(absence) else ""
