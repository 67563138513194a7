"""Tables of rules as they are written in the configuration: their keys, their schema, and errors about them; pure."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, get_args

from msgspec import Meta, Struct, ValidationError, field

from planning.rules.conditions import Conditions, EvidenceConditions, IncidentConditions, Path, Share
from spar.decoding import Misfit, convert, json_schema, misfit
from spar.errors import ConfigError
from spar.types import Trust

Seconds = Annotated[float, Meta(ge=0, lt=1e9)]
Name = Annotated[str, Meta(min_length=1)]


class CallTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[rules.calls]]` as it is written."""

    tool: Name | Annotated[tuple[Name, ...], Meta(min_length=1)] | None = None
    any_of_tools: Name | Annotated[tuple[Name, ...], Meta(min_length=1)] | None = None
    name: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    after: tuple[str, ...] = ()
    output: str | None = None
    min_ability: Share | None = None


class VerifyTable(Struct, frozen=True, forbid_unknown_fields=True):
    """`verify` of a rule as it is written: the rule waits `within` so many seconds for a perception of the same thing.

    `when`: conditions of that perception; None: those of the rule. `is_good`: whether the perception is a good sign.
    """

    within: Annotated[float, Meta(gt=0, lt=1e9)]
    when: Conditions | None = None
    is_good: bool = False


class RuleTable(Struct, frozen=True, forbid_unknown_fields=True):
    """One `[[rules]]` as it is written; times in seconds."""

    name: Name
    when: Conditions = Conditions()
    unless: Conditions | None = None
    cooldown: Seconds = 0.0
    stop: bool = True
    answer: str | None = None
    on_failure: str | None = None
    goal: str | None = None
    next_look: Seconds | None = None
    learn: bool = True
    verify: VerifyTable | None = None
    calls: tuple[CallTable, ...] = ()


def rule_schema() -> dict[str, Any]:
    """Return the JSON schema of a rule as it is written, for editors."""
    schema: dict[str, Any] = json_schema(RuleTable)
    schema["$defs"]["CallTable"]["oneOf"] = [{"required": ["tool"]}, {"required": ["any_of_tools"]}]
    return {"allOf": [{"$ref": schema.pop("$ref")}], **schema}


_KNOWN: dict[str, type[Struct]] = {
    "when": Conditions,
    "unless": Conditions,
    "incident": IncidentConditions,
    "evidence": EvidenceConditions,
    "verify": VerifyTable,
    "calls": CallTable,
}


def read_table(table: Mapping[str, Any], path: Path) -> RuleTable:
    if not isinstance(table, Mapping):
        raise ConfigError(f"a rule is a table, found {table!r}", path=path)
    try:
        return convert(table, RuleTable)
    except ValidationError as error:
        raise _misread(table, misfit(error), path) from error


def _misread(table: Mapping[str, Any], wrong: Misfit, path: Path) -> ConfigError:
    """Turn msgspec's error into a sentence with the value found and those known."""
    rule = f"rule {table['name']!r}" if isinstance(table.get("name"), str) and table["name"] else f"rules[{path[-1]}]"
    steps, message = tuple(step for step in wrong.steps if step is not ...), wrong.message
    if (key := wrong.unknown) is not None:
        table_of = next(
            (_KNOWN[step] for step in reversed(steps) if isinstance(step, str) and step in _KNOWN), RuleTable
        )
        known = table_of.__struct_fields__
        close = get_close_matches(key, known, 1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        return ConfigError(f"{rule} has no key {key!r}; known: {', '.join(known)}{hint}", path=(*path, *steps, key))
    if (key := wrong.missing) is not None:
        example = f"; write for example: {EXAMPLES[key]}" if key in EXAMPLES else ""
        return ConfigError(f"{rule} must have {key!r}{example}", path=(*path, *steps))
    if "enum value" in message:
        message = f"Expected one of {', '.join(get_args(Trust))}"
    wanted = message[:1].lower() + message[1:].partition(", got ")[0]
    for word, plain in _PLAIN_WORDS.items():
        wanted = wanted.replace(word, plain)
    where = ".".join(map(str, steps))
    return ConfigError(f"{where!r} of {rule}: {wanted}, found {_value_at(table, steps)!r}", path=(*path, *steps))


#: Examples of the keys that every rule or call must have.
EXAMPLES = {"name": 'name = "file what was dropped"', "when": 'when = { kind = "message" }', "tool": 'tool = "note"'}
_PLAIN_WORDS = {"`": "", "str": "text", "array": "list", "object": "table", "bool": "true or false", "float": "number",
                "int": "whole number", " | null": "", "|": "or"}  # fmt: skip


def _value_at(value: Any, steps: Path) -> Any:
    """Return the value at a path of a table, as far down as the path exists."""
    for step in steps:
        try:
            value = value[step]
        except (LookupError, TypeError):
            break
    return value
