"""Registry of tools: name → tool, given by hand or offered by sources. Of two with one name the later one counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from acting.tooling.bound_tool import Activity, BoundTool, SchemaTool, entry_of, entry_of_schema, is_generator
from acting.tooling.tool_schema import ToolSchema, named_schemas
from spar.checks import shorten
from spar.errors import ConfigError
from spar.protocols import Lent


class Catalog(Mapping[str, BoundTool]):
    """The tools of one executor, by name.

    A *source* offers tools that may change while it is open: it has a `name`, `tools()` and an `on_change` that is
    called with no argument after they did; if it has `absence(name)`, that says why one of its tools is not offered, ""
    if there is nothing to say. What was given by hand keeps its name before a source's tool.
    """

    __slots__ = ("_fixed", "_known", "_lent", "_others", "_own", "activities", "entries", "refused", "sources")

    def __init__(self, tools: Iterable[Any] = (), activities: Mapping[str, Activity] | None = None) -> None:
        self.activities = self._own = _checked(activities or {})
        self._fixed: dict[str, BoundTool] = {}
        self.sources: list[Any] = []
        for each in tools:
            if is_source(each):
                self.sources.append(each)
                each.on_change = self.refresh
            else:
                for entry in self._entries_of(each):
                    self._fixed.pop(entry.name, None)
                    self._fixed[entry.name] = entry
        self._lent: dict[str, BoundTool] = {}
        #: The tools that can be called now, by name.
        self.entries: dict[str, BoundTool] = {}
        #: What sources offer and cannot be used: a sentence by the tool's name.
        self.refused: dict[str, str] = {}
        self.refresh()

    def refresh(self) -> None:
        """Take in what the sources offer now; a tool that is the same object as before stays as it is."""
        entries, self.refused = {**self._lent, **self._fixed}, {}
        for source in self.sources:
            for each in source.tools():
                name = str(getattr(each, "name", ""))
                if name in entries:
                    self.refused[name] = f"{source.name!r} offers a tool under a name that is taken"
                    continue
                old = self.entries.get(name)
                try:
                    entries[name] = old if old is not None and old.target is each else entry_of(each)
                except ConfigError as error:
                    self.refused[name] = str(error)
        self.entries = entries
        self._others: dict[tuple[BoundTool, str], BoundTool] = {}
        names = sorted(entries)
        self._known = ", ".join(names[:20]) + (", …" if len(names) > 20 else "")

    def borrow(self, lent: Lent) -> None:
        """Take what a planner lends in the place of what it lent before; names of its own stay its own."""
        self.activities = {**_checked(lent.activities), **self._own}
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

    def carried_out_by(self, entry: BoundTool, activity: str) -> BoundTool | None:
        """The tool, carried out by another activity; None when there is no such."""
        handler = self.activities.get(activity)
        if handler is None:
            return None
        found = self._others.get((entry, activity))
        if found is None:  # made once: its calls share its threads and its slots
            rules = entry.rules or ToolSchema(entry.name, entry.parameters, entry.terms)
            found = self._others[entry, activity] = SchemaTool(rules, activity, handler)
            if entry.slots.limit:
                found.slots = entry.slots
        return found

    def __getitem__(self, name: str) -> BoundTool:
        return self.entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def parts(self) -> list[Any]:
        """Return the registered objects, each once: sources and the targets of tools given by hand."""
        return [*self.sources, *(entry.target for entry in self._fixed.values())]

    def unknown(self, name: str) -> str:
        """Return the sentence about a tool that is not here."""
        reason = self.refused.get(name) or next(filter(None, (_absence(each, name) for each in self.sources)), "")
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


def _absence(source: Any, name: str) -> str:
    """Why a source does not offer this tool, if it is one of its own and the source can say."""
    told = getattr(source, "absence", None)
    return str(told(name)) if callable(told) else ""


def is_source(item: Any) -> bool:
    """Return whether this offers tools rather than being one."""
    return callable(getattr(item, "tools", None)) and not isinstance(item, Mapping)
