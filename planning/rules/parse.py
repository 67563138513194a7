"""Parser of rules: tables of the configuration become rules that can be matched; pure.

    [[rules]]
    name = "restart what is down"
    when = { kind = "alert", pattern = "(?P<unit>[a-z]+) is down", attributes = { level = "critical" } }
    cooldown = 300                       # seconds, per subject
    answer = "I restart {slots.unit}"
    [[rules.calls]]
    name = "restart"
    tool = ["systemd", "shell_restart"]  # the one that worked best in situations like this one
    params = { unit = "{slots.unit}" }
    output = "†state.restarted"
    [[rules.calls]]
    tool = "note"
    params = { text = "{content:.200}", result = "†state.restarted" }

Every mistake that can be found without a perception is found here, at the start of the agent. Each is a `ConfigError`
whose `path` (`("rules", 2, "calls", 0, "params", "text")`) is the place of the value in the configuration.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from typing import Annotated, Any, get_args

from msgspec import Meta, Struct, ValidationError, field

from planning.dataflow import in_state, paths_of
from planning.rules.conditions import (
    Conditions,
    Matcher,
    Path,
    Share,
    compile_conditions,
)
from planning.rules.rule import CallRule, Rule, Verify
from planning.rules.templates import Template, compile_value, foreign_in, parse, placeholders_in
from spar.data.paths import MARK, Expression, is_reference, overlaps, parse_write, references, render
from spar.data.paths import Path as Place
from spar.data.patterns import glob
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


def read_rules(tables: Sequence[Mapping[str, Any]], tools: Collection[str] | None = None) -> tuple[Rule, ...]:
    """Return all rules, in order. Raises: ConfigError for the first one that cannot be read.

    Args: tools: the names of the tools that exist, None when not known.
    """
    rules = tuple(_rule(number, table, tools) for number, table in enumerate(tables))
    names = set[str]()
    for rule in rules:
        if rule.name in names:
            raise ConfigError(
                f"two rules are named {rule.name!r}; give each its own", path=("rules", rule.number, "name")
            )
        names.add(rule.name)
    return rules


def _rule(number: int, table: Mapping[str, Any], tools: Collection[str] | None) -> Rule:
    path: Path = ("rules", number)
    written = read_table(table, path)
    when = compile_conditions(written.when, (*path, "when"))
    unless = None if written.unless is None else compile_conditions(written.unless, (*path, "unless"))
    if unless is not None and unless.is_empty:
        raise ConfigError(
            f"'unless' of rule {written.name!r} has no condition, so the rule could never match; leave it out",
            path=(*path, "unless"),
        )
    if written.on_failure is not None and not written.calls:
        raise ConfigError(
            f"rule {written.name!r} makes no call that could fail; say it as its 'answer'", path=(*path, "on_failure")
        )
    if written.verify is not None and not written.calls:
        raise ConfigError(
            f"rule {written.name!r} makes no call that could be verified; drop 'verify'", path=(*path, "verify")
        )
    rule = Rule(
        number,
        written.name,
        when,
        unless,
        written.cooldown,
        written.stop,
        _text(written.answer, (*path, "answer")),
        _text(written.on_failure, (*path, "on_failure")),
        _text(written.goal, (*path, "goal")),
        written.next_look,
        tuple(_calls(written, path, tools)),
        written.learn,
        _verify(written.verify, when, (*path, "verify")),
    )
    _check_references(rule, path)
    _check_slots(rule, written, path)
    return rule


def _verify(written: VerifyTable | None, usual: Matcher, path: Path) -> Verify | None:
    if written is None:
        return None
    when = usual if written.when is None else compile_conditions(written.when, (*path, "when"))
    if written.is_good and written.when is None:
        raise ConfigError("'is_good' needs a 'when': the trouble itself is no good sign", path=(*path, "is_good"))
    return Verify(written.within, when, written.is_good)


def _text(text: str | None, path: Path) -> Template | None:
    if text is None:
        return None
    if is_reference(text):
        raise ConfigError(
            f"{text!r} is said before the calls run, so it cannot be a reference to what they give", path=path
        )
    with _at(path):
        return parse(text.removeprefix(MARK))  # `††` stands for one dagger; answers are escaped later, as a whole


@contextmanager
def _at(path: Path) -> Iterator[None]:
    """Raise a ValueError as the ConfigError of the value at a path."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(str(error), path=path) from error


# -- the calls of a rule -----------------------------------------------------------------------------------


def _calls(written: RuleTable, path: Path, tools: Collection[str] | None) -> Iterator[CallRule]:
    names: dict[str, int] = {}
    for number, table in enumerate(written.calls):
        if table.name in names:
            raise ConfigError(f"two calls of rule {written.name!r} are named {table.name!r}",
                              path=(*path, "calls", number, "name"))  # fmt: skip
        if table.name:
            names[table.name] = number
    for number, table in enumerate(written.calls):
        here = (*path, "calls", number)
        params = {key: _param(value, (*here, "params", key)) for key, value in table.params.items()}
        reads = _references(params, (*here, "params"))
        yield CallRule(
            table.name,
            _tools(table, here, written, tools),
            params,
            tuple(_named(name, names, (*here, "after")) for name in table.after),
            table.output,
            () if table.output is None else _places(table.output, (*here, "output")),
            tuple(chain.from_iterable(reads.values())),
            table.min_ability,
            {
                key: value
                for key, value in params.items()
                if key not in reads and next(placeholders_in(value), None) is None
            },
            foreign_in(params),
            tuple(glob(pattern) for pattern in _listed(table.any_of_tools)),
            _listed(table.any_of_tools),
        )


def _tools(table: CallTable, path: Path, rule: RuleTable, known: Collection[str] | None) -> tuple[str, ...]:
    """Return the tools that a call names; none where it has `any_of_tools`."""
    if (table.tool is None) == (table.any_of_tools is None):
        wanted = (
            "must have 'tool' or 'any_of_tools'" if table.tool is None else "has 'tool' and 'any_of_tools': take one"
        )
        raise ConfigError(f"a call of rule {rule.name!r} {wanted}; write for example: {EXAMPLES['tool']}", path=path)
    for key in ("any_of_tools", "min_ability"):
        if getattr(table, key) is not None and not rule.learn:
            raise ConfigError(f"rule {rule.name!r} has 'learn = false', so {key!r} means nothing", path=(*path, key))
    tools = _listed(table.tool)
    for tool in tools:
        if known is not None and tool not in known and f"{tool.partition('__')[0]}__*" not in known:
            listed = ", ".join(sorted(known)) or "none"
            raise ConfigError(f"no tool named {tool!r}; known: {listed}", path=(*path, "tool"))
    return tuple(dict.fromkeys(tools))


def _listed(written: str | tuple[str, ...] | None) -> tuple[str, ...]:
    return () if written is None else (written,) if isinstance(written, str) else written


def _named(name: str, names: Mapping[str, int], path: Path) -> int:
    if name not in names:
        raise ConfigError(f"no call named {name!r} in this rule; known: {', '.join(names) or 'none'}", path=path)
    return names[name]


def _param(value: Any, path: Path) -> Any:
    """Return a parameter with its templates parsed. Raises: ConfigError with the path of the string that is wrong."""
    if isinstance(value, Mapping):
        return {key: _param(item, (*path, key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_param(item, (*path, number)) for number, item in enumerate(value)]
    with _at(path):
        return compile_value(value)


def _places(output: str, path: Path) -> tuple[Place, ...]:
    """Return the places in the state that a call with this `output` may write."""
    with _at(path):
        return tuple(paths_of(parse_write(output)))


def _references(params: Mapping[str, Any], path: Path) -> dict[str, tuple[Expression, ...]]:
    """Return the references of each parsed parameter in which a text begins with a dagger."""
    reads: dict[str, tuple[Expression, ...]] = {}
    for key, param in params.items():
        with _at((*path, key)):
            reads |= references({key: param})
    return reads


def _check_references(rule: Rule, path: Path) -> None:
    """Check that each place in the state that a call reads is written by another call, and no call waits for itself.

    Raises: ConfigError.
    """
    waits: dict[int, set[int]] = {}
    for number, call in enumerate(rule.calls):
        waits[number] = set(call.after)
        for reference in call.reads:
            for place in filter(in_state, paths_of(reference)):
                waits[number] |= _writers(rule, number, place, (*path, "calls", number, "params"))
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        circle = [rule.calls[number].name or f"number {number}" for number in error.args[1]]
        raise ConfigError(f"the calls of rule {rule.name!r} wait for one another: {' ← '.join(circle)}",
                          path=(*path, "calls", error.args[1][0])) from error  # fmt: skip


def _writers(rule: Rule, reader: int, place: Place, path: Path) -> set[int]:
    """Return the calls that write a place that another call reads: the earlier ones, else the later ones.

    The executor waits for them in the same way. Raises: ConfigError when no call writes the place.
    """
    writers = {
        number
        for number, call in enumerate(rule.calls)
        if number != reader and any(overlaps(place, written) for written in call.writes)
    }
    if not writers:
        known = ", ".join(call.output for call in rule.calls if call.output) or "none"
        raise ConfigError(f"no other call of rule {rule.name!r} writes {render(place)!r}; outputs: {known}", path=path)
    return {number for number in writers if number < reader} or writers


def _check_slots(rule: Rule, written: RuleTable, path: Path) -> None:
    """Check that the pattern of a rule fills each slot that its templates name without a default.

    A rule without a pattern or with an intent is not checked: intents have slots of their own. Raises: ConfigError.
    """
    groups = rule.when.groups
    if not groups or written.when.intent is not None:
        return
    compiled: list[tuple[Path, Any]] = [
        ((*path, "answer"), rule.answer), ((*path, "on_failure"), rule.on_failure), ((*path, "goal"), rule.goal)
    ]  # fmt: skip
    compiled += [((*path, "calls", number, "params"), call.params) for number, call in enumerate(rule.calls)]
    for here, value in compiled:
        for placeholder in placeholders_in(value):
            slot = placeholder.path.partition(".")[0]
            if placeholder.name == "slots" and slot and placeholder.default is None and slot not in groups:
                raise ConfigError(
                    f"{placeholder.source!r} is no group of the pattern of rule {rule.name!r}; known: "
                    f"{', '.join(sorted(groups))}; give a default if an intent may fill it",
                    path=here,
                )


# -- the tables as they are written -----------------------------------------------------------------------


def rule_schema() -> dict[str, Any]:
    """Return the JSON schema of a rule as it is written, for editors."""
    schema: dict[str, Any] = json_schema(RuleTable)
    schema["$defs"]["CallTable"]["oneOf"] = [{"required": ["tool"]}, {"required": ["any_of_tools"]}]
    return {"allOf": [{"$ref": schema.pop("$ref")}], **schema}


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
        known = wrong.known_keys(RuleTable)
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
