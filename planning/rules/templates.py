"""Templates of rules: `{content:.80}`, `{attributes.host.load|unknown}`; pure.

A placeholder is `{name}`, `{name|default}`, `{name:.80}` or `{name|default:.80}`; `{{` and `}}` are braces. The names
are those in `NAMES`, and paths behind them lead into mappings and lists only. `str.format` is not used, because it
reads Python attributes of values. A value that is filled in never becomes a reference to the state: where it begins
with a dagger (†), the dagger is doubled.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time
from difflib import get_close_matches
from typing import Any

from msgspec import Struct, field

from spar.data.paths import MARK, escape, is_reference
from spar.types import Perception

_PLACEHOLDER = re.compile(
    r"(?P<name>[^\s{}|:.]+)(?P<path>(?:\.[^\s{}|:.]+)*)(?:\|(?P<default>.*?))?(?::\.(?P<cut>\d{1,7}))?", re.DOTALL
)
_TOKEN = re.compile(r"\{\{|\}\}|\{(?P<inside>[^{}]*)\}|[{}]")


class Facts(Struct, frozen=True):
    """Values that a template may name. `slots` are those of the intent and of the pattern; `now` is aware UTC."""

    perception: Perception
    slots: Mapping[str, Any] = field(default_factory=dict)
    goal: str | None = None
    now: datetime | None = None


class AbsentError(LookupError):
    """A placeholder without a default names a value that this perception does not have."""


class Placeholder(Struct, frozen=True):
    """One `{name.path|default:.cut}`; `source` is its text in the template."""

    name: str
    path: str
    default: str | None
    cut: int | None
    source: str


class Template(Struct, frozen=True):
    """Template in its parts: texts and placeholders in turn; `is_escaped` if its text begins with two daggers."""

    parts: tuple[str | Placeholder, ...]
    is_escaped: bool = False

    @property
    def placeholders(self) -> tuple[Placeholder, ...]:
        return tuple(part for part in self.parts if isinstance(part, Placeholder))


def count_of(perception: Perception) -> int:
    """Return the number of things perceived: `attributes["count"]` if that is a number, else its evidence, or 1."""
    given = perception.attributes.get("count")
    if isinstance(given, int) and not isinstance(given, bool):
        return given
    return max(1, len(perception.evidence))


def incident_of(perception: Perception) -> dict[str, Any]:
    """Return the facts about a perception's incident, with the first entity of each kind; {} without an incident."""
    attributes = perception.attributes
    if not isinstance(attributes.get("incident"), str):
        return {}
    entities = attributes.get("entities")
    first = {
        kind: names[0] if isinstance(names, (list, tuple)) and names else None
        for kind, names in (entities.items() if isinstance(entities, Mapping) else ())
    }
    facts = {name: attributes.get(name) for name in _OF_INCIDENT}
    return {**facts, "id": attributes["incident"], "subject": perception.subject, "entities": first}


#: Attributes of a perception that are facts about its incident.
_OF_INCIDENT = ("severity", "count", "things", "reason", "state", "ordinal", "opened_at", "sources")


#: Every name that a template may use, and the function that returns its value.
NAMES: dict[str, Callable[[Facts], Any]] = {
    "content": lambda facts: facts.perception.content,
    "text": lambda facts: facts.perception.text,
    "source": lambda facts: facts.perception.source,
    "kind": lambda facts: facts.perception.kind,
    "id": lambda facts: facts.perception.id,
    "at": lambda facts: facts.perception.at,
    "key": lambda facts: facts.perception.key,
    "subject": lambda facts: facts.perception.subject,
    "session": lambda facts: facts.perception.session,
    "intent": lambda facts: facts.perception.intent,
    "priority": lambda facts: facts.perception.importance,
    "confidence": lambda facts: facts.perception.confidence,
    "trust": lambda facts: facts.perception.trust,
    "count": lambda facts: count_of(facts.perception),
    "attributes": lambda facts: facts.perception.attributes,
    "incident": lambda facts: incident_of(facts.perception),
    "slots": lambda facts: facts.slots,
    "run": lambda facts: {"goal": facts.goal},
    "now": lambda facts: facts.now,
}
_WITH_PARTS = ("attributes", "content", "incident", "run", "slots")
#: Names whose values the agent makes itself: ids, times, numbers, sources. Every other value may be a stranger's text.
_OWN = frozenset({"at", "confidence", "count", "id", "now", "priority", "source", "trust"})


def parse(text: str) -> Template:
    """Parse a template. Raises: ValueError with a sentence about the part that cannot be read."""
    parts: list[str | Placeholder] = []
    literal, position = "", 0
    for token in _TOKEN.finditer(text):
        literal += text[position : token.start()]
        position = token.end()
        sign = token.group()
        if sign in ("{{", "}}"):
            literal += sign[0]
        elif (inside := token.group("inside")) is None:
            raise ValueError(f"{sign!r} at character {token.start() + 1} stands alone; write {sign * 2!r} for a brace")
        else:
            if literal:
                parts.append(literal)
                literal = ""
            parts.append(_placeholder(inside))
    literal += text[position:]
    if literal:
        parts.append(literal)
    return Template(tuple(parts), text.startswith(MARK * 2))


def _placeholder(inside: str) -> Placeholder:
    match = _PLACEHOLDER.fullmatch(inside)
    source = f"{{{inside}}}"
    if match is None:
        raise ValueError(
            f"{source!r} is not a placeholder such as '{{content:.80}}' or '{{slots.unit|none}}'; "
            "write '{{' and '}}' for braces"
        )
    name, path, cut = match["name"], match["path"][1:], match["cut"]
    if name not in NAMES:
        close = get_close_matches(name, NAMES, 1)
        hint = f"; did you mean {source.replace(name, close[0], 1)!r}?" if close else ""
        raise ValueError(f"{source!r} names nothing that is known; known: {', '.join(NAMES)}{hint}")
    if path and name not in _WITH_PARTS:
        raise ValueError(f"{source!r} names a part of {name!r}, which has none; parts have: {', '.join(_WITH_PARTS)}")
    if name == "run" and path != "goal":
        raise ValueError(f"{source!r} names nothing of a run; known: run.goal")
    return Placeholder(name, path, match["default"], int(cut) if cut else None, source)


def compile_value(value: Any) -> Any:
    """Return a nested value with its templates parsed: strings with placeholders become `Template`s, references stay.

    Raises: ValueError for a template that cannot be read, or placeholders in a reference.
    """
    if isinstance(value, str):
        if is_reference(value):
            if "{" in value:
                raise ValueError(f"the reference {value!r} passes as it is and takes no placeholders")
            return value
        template = parse(value)
        return template if template.placeholders else "".join(map(str, template.parts))
    if isinstance(value, Mapping):
        return {key: compile_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [compile_value(item) for item in value]
    return _plain(value)


def placeholders_in(compiled: Any) -> Iterator[Placeholder]:
    """Yield every placeholder of a compiled value."""
    if isinstance(compiled, Template):
        yield from compiled.placeholders
    elif isinstance(compiled, (dict, list)):
        for item in compiled.values() if isinstance(compiled, dict) else compiled:
            yield from placeholders_in(item)


def foreign_in(compiled: Any) -> tuple[Placeholder, ...]:
    """Return the placeholders of a compiled value whose values a stranger may have written."""
    return tuple(placeholder for placeholder in placeholders_in(compiled) if placeholder.name not in _OWN)


def brings_untrusted(placeholder: Placeholder, facts: Facts) -> bool:
    """Return whether a foreign placeholder brings in untrusted text when it is filled with these facts.

    A default is trusted: it stands in the rule. The goal of a run (`run.goal`) is the text of its first message. It is
    trusted only where this perception is that message, because the trust of earlier messages is not known here.
    """
    perception = facts.perception
    if perception.trust == "trusted" and (placeholder.name != "run" or facts.goal == perception.text):
        return False
    value = _value_of(placeholder, facts)
    return value is not None and (value != "" or placeholder.default is None)


def fill(compiled: Any, facts: Facts) -> Any:
    """Return a copy of a compiled value with every placeholder filled.

    A string that is exactly one placeholder becomes the value with its type (times become ISO text).
    Raises: AbsentError when a value without a default is absent.
    """
    if isinstance(compiled, Template):
        if len(compiled.parts) == 1:
            only = compiled.parts[0]
            if isinstance(only, Placeholder) and only.cut is None:
                return escape(_plain(_value(only, facts)))
        text = render(compiled, facts)
        return text if compiled.is_escaped else escape(text)
    if isinstance(compiled, dict):
        return {key: fill(item, facts) for key, item in compiled.items()}
    if isinstance(compiled, list):
        return [fill(item, facts) for item in compiled]
    return compiled


def render(template: Template, facts: Facts) -> str:
    """Return the filled template as text. Raises: AbsentError when a value without a default is absent."""
    return "".join(
        part if isinstance(part, str) else as_text(_value(part, facts))[: part.cut] for part in template.parts
    )


def _value(placeholder: Placeholder, facts: Facts) -> Any:
    value = _value_of(placeholder, facts)
    if placeholder.default is not None and (value is None or value == ""):
        return placeholder.default
    if value is None:
        raise AbsentError(f"{placeholder.source!r} has no value here and no default")
    return value


def _value_of(placeholder: Placeholder, facts: Facts) -> Any:
    value = NAMES[placeholder.name](facts)
    return lookup(value, placeholder.path) if placeholder.path else value


def lookup(value: Any, path: str) -> Any:
    """Return the value at a dotted path of nested mappings and lists, or None; a key with dots goes first."""
    while path:
        if isinstance(value, Mapping):
            if path in value:
                return value[path]
            head, _, path = path.partition(".")
            value = value.get(head)
        elif isinstance(value, (list, tuple)):
            head, _, path = path.partition(".")
            # Seven digits are more than any list here holds, and int() of a long text is refused.
            is_index = head.isascii() and head.isdigit() and len(head) < 8 and int(head) < len(value)
            value = value[int(head)] if is_index else None
        else:
            return None
    return value


def as_text(value: Any) -> str:
    """Return a value as text for a sentence: text as it is, `true`, `3`, ISO times, JSON for nested values."""
    value = _plain(value)
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, (datetime, date, time)) else value
