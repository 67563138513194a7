"""The page of settings, from the models of `config.toml` and the constructors of the built-in parts."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import groupby
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Len
from msgspec import NODEFAULT

from spar.config.load import Settings, reloads
from spar.config.tables.section import DURATION, Also, Section, defaults_of, describe, settings_of
from spar.evals.cases import (
    AnsweringTool,
    CaseMessage,
    EvalCase,
    Expected,
    ExpectedCall,
    PastCall,
    PastExperience,
    PastTurn,
    ToolAnswer,
)
from spar.evals.conditions import TextRule
from spar.parts.factory import GIVEN
from spar.parts.registry import Registry, Signature
from spar.parts.schema import OfFile
from spar.ports.budgets import MOST
from tests.docs.page_parts import begin, code, one_line

ROOT = Path(__file__).parents[2]


#: A key or an option: its name, its type in words, its default and its meaning.
Entry = tuple[str, str, str, str]


class Table(NamedTuple):
    """A table of the configuration. Its keys at `restarts` take effect at the next start."""

    head: str
    meaning: str
    entries: list[Entry]
    restarts: set[str]


def settings() -> str:
    """Return the page of all settings and of the options of built-in parts."""
    sections = [list(alike) for _, alike in groupby(_tables(Settings, ""), key=_alike)]
    alone = Counter(entry for tables in sections if len(tables) == 1 for entry in tables[0].entries)
    common = [entry for entry, times in alone.items() if times > 1]
    lines = [*begin("settings"), "## Keys of several tables", "", *_items(common), ""]
    for tables in sections:
        lines += list(_section(tables[0], common) if len(tables) == 1 else _together(tables))
    return "\n".join([*lines, *_options_of_parts()]) + "\n"


def cases() -> str:
    """Return the page of the form of cases."""
    lines = begin("cases")
    for title, form in (
        ("A case", EvalCase), ("`messages`", CaseMessage), ("`tools`", AnsweringTool), ("`answers`", ToolAnswer),
        ("`expect`", Expected), ("`calls`", ExpectedCall), ("`answer`", TextRule), ("`history`", PastTurn),
        ("`calls` of the past", PastCall), ("`experiences`", PastExperience),
    ):  # fmt: skip
        meanings = describe(form)
        defaults = defaults_of(form)
        entries = [(name, _in_words(field.type), _default(defaults[name]), one_line(meanings[name]))
                   for name, field in settings_of(form).items()]  # fmt: skip
        lines += [f"## {title}", "", one_line(form.__doc__), "", *_items(entries), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _tables(of: type[Section], path: str, usual: Section | None = None) -> Iterator[Table]:
    """Yield each table of the configuration, and the lists that parts check themselves.

    Args: usual: the table with the defaults, if they are not those of its class.
    """
    meanings, tables = describe(of), defaults_of(of, usual)
    for name, field in settings_of(of).items():
        where = f"{path}.{name}" if path else name
        table_of = table_in(field.type)
        if table_of is not None:
            inner = describe(table_of)
            plain = {key: each for key, each in settings_of(table_of).items() if table_in(each.type) is None}
            usual_inside = tables[name] if isinstance(tables[name], Section) else None
            defaults = defaults_of(table_of, usual_inside)
            entries = [(key, _in_words(each.type), _default(defaults[key]), one_line(inner[key]))
                       for key, each in plain.items()]  # fmt: skip
            restarts = {key for key in plain if reloads(f"{where}.{key}") == "restart"}
            head = f"[{where}]" if table_of is field.type else f"[[{where}]]"
            yield Table(head, one_line(meanings[name]), entries, restarts)
            yield from _tables(table_of, where, usual_inside)
        elif not path:
            yield Table(name, f"{one_line(meanings[name])} A {_in_words(field.type)}.", [], set())


def _alike(table: Table) -> object:
    """Return the key by which tables that differ in their defaults alone stand together."""
    names = [name for name, *_ in table.entries]
    return (table.head.rpartition(".")[0], names) if names and re.match(r"\[\w", table.head) else table.head


def _section(table: Table, common: list[Entry]) -> Iterator[str]:
    """Yield the section of one table."""
    whole = len(table.restarts) == len(table.entries)
    own = [(*entry[:3], entry[3] + " *Restart.*" * (entry[0] in table.restarts and not whole))
           for entry in table.entries if entry not in common]  # fmt: skip
    also = ", ".join(code(entry[0]) for entry in table.entries if entry in common)
    text = [table.meaning, "*Restart.*" if whole and own else "", f"Also {also}." if also else ""]
    yield from (f"## `{table.head}`", "", " ".join(filter(None, text)), "")
    yield from (*_items(own), "") if own else ()


def _together(tables: list[Table]) -> Iterator[str]:
    """Yield the section of tables that have the same keys."""
    names = [table.head.strip("[]").rpartition(".")[2] for table in tables]
    yield from (f"## {', '.join(code(table.head) for table in tables)}", "")
    meanings = dict.fromkeys(table.meaning for table in tables)
    yield from (" ".join(meanings), "") if len(meanings) > 1 else ()
    for column in zip(*(table.entries for table in tables), strict=True):
        if len({entry[2:] for entry in column}) == 1:
            yield from _items(column[:1])
            continue
        ways: dict[tuple[str, str], list[str]] = {}
        for of, (_, _, default, meaning) in zip(names, column, strict=True):
            ways.setdefault((default, meaning), []).append(of)
        same = {meaning for _, meaning in ways}
        shown = [
            f"{' '.join(of)} {default}" + (f": {meaning}" if len(same) > 1 else ",")
            for (default, meaning), of in ways.items()
        ]
        end = f": {same.pop()}" if len(same) == 1 else ""
        yield f"- {code(column[0][0])} ({column[0][1]}): {' '.join(shown).removesuffix(',')}{end}"
    yield ""


def _items(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield a line for each entry, and one for several with the same meaning."""
    for meaning, alike in groupby(entries, key=lambda entry: entry[3]):
        yield f"- {', '.join(_named(*entry) for entry in alike)}{f': {meaning}' if meaning else ''}"


#: Types that a default shows.
SHOWN = re.compile(r"^(?:text|true or false|whole number|number|table|list of text)(?:, |$)")


def _named(name: str, kind: str, default: str, meaning: str) -> str:
    """Return a key as it is written with its default, and what else it takes."""
    takes = re.sub("^seconds ?(?:or )?", "", kind) if "econds" in meaning else kind
    if re.fullmatch(r'`"\w+"`(?:, `"\w+"`)*', takes) and all(word in meaning for word in re.findall(r'"\w+"', takes)):
        takes = ""  # the meaning says it of each
    if default == "required" or not default:
        return code(name) + (f" ({', '.join(filter(None, (takes, default)))})" if takes or default else "")
    takes = takes if default == "`[]`" else SHOWN.sub("", takes, count=1)
    return code(f"{name} = {default.strip('`')}") + (f" ({takes})" if takes else "")


def table_in(annotation: Any) -> type[Section] | None:
    annotation = _unmarked(annotation)
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation if issubclass(annotation, Section) else None
    inner = get_args(annotation)[0] if get_origin(annotation) is tuple else None
    return table_in(inner) if inner is not None else None


def _unmarked(annotation: Any) -> Any:
    """Return the type of an annotation without its marks."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


#: Bounds that nobody reaches.
ENDLESS = (MOST, MOST // 10**6)
#: Types as a person who writes TOML calls them.
NAMES = {str: "text", bool: "true or false", int: "whole number", float: "number", Decimal: "number", dict: "table",
         Any: "any value"}  # fmt: skip


def _bounds(marks: Iterable[Any]) -> str:
    bounds: dict[str, Any] = {}
    for mark in marks:
        match mark:
            case Also():
                bounds |= mark.constraints
            case Ge() | Gt() | Le():
                bounds |= {name: getattr(mark, name) for name in ("ge", "gt", "le") if hasattr(mark, name)}
            case Len(min_length=1, max_length=int()):
                bounds["max_length"] = mark.max_length
    if "max_length" in bounds:
        return f", up to {bounds['max_length']} characters"
    most = bounds.get("le")
    return _range(bounds.get("ge", 0), bounds.get("gt"), None if most in ENDLESS else most)


def _range(least: Any, above: Any, most: Any) -> str:
    """Return in words what a number is bound by, after a comma; the page says that it may not be senseless."""
    if most is not None:
        return f", up to {most}" if least in (0, 1) or above is not None else f", {least} to {most}"
    return f", from {least}" if least not in (0, 1) else f", above {above}" if above else ""


def _in_words(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(code(f'"{word}"' if isinstance(word, str) else str(word)) for word in inner)
    if origin in (Union, UnionType):
        return " or ".join(_in_words(each) for each in inner if each is not NoneType)
    if origin is tuple:
        return f"list of {_in_words(inner[0])}"
    if annotation_marks := getattr(annotation, "__metadata__", ()):
        if DURATION in annotation_marks:  # its other bounds are 0 and a hundred years
            return "seconds"
        return _in_words(inner[0]) + _bounds(annotation_marks)
    return NAMES.get(origin or annotation, "table" if table_in(annotation) else str(annotation))


def _default(usual: Any) -> str:
    return "required" if usual is NODEFAULT else code(_toml(usual))


def _toml(value: Any) -> str:
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case tuple() | list():
            return f"[{', '.join(map(_toml, value))}]"
        case Mapping():
            return (
                "{}" if not value else "{ " + ", ".join(f"{key} = {_toml(each)}" for key, each in value.items()) + " }"
            )
        case Section():
            return ""  # what it contains has a default of its own
        case float():
            return f"{value:g}" if value < 1e6 else f"{value:.0f}"
        case _:
            return str(value)


#: The groups of parts whose options stand in the configuration, each with their place.
GROUPS = {
    "spar.sensors": "under `[[sensors]]`",
    "spar.tools": "under `[[tools]]`",
    "spar.planners": "under `[plan]`",
    "spar.reflectors": "under `[reflect]`",
    "spar.stores": "in `[memory]` itself",
    "spar.channels": "under `[[channels]]`",
    "spar.notifiers": "in `via` of the tool `notify`",
}


def _options_of_parts() -> Iterator[str]:
    registry = Registry(allow_plugins=False)
    # As the repository has them: what is installed may be older.
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    yield from ("# Options of the built-in parts", "", "`spar config schema` prints the same for editors.", "")
    for group, where in GROUPS.items():
        given = {*GIVEN.get(group, ()), "read_only"}  # commands set the last one
        for name, target in sorted(shipped[group].items()):
            part = registry.resolve(group, target)
            properties = Signature(part, name).judge(given).json_schema(schema_generator=OfFile).get("properties", {})
            if not properties:
                continue
            parameters = inspect.signature(part).parameters
            text, meanings = _described(part, parameters)
            entries = [(key, _of_schema(schema), _of_parameter(parameters[key]), meanings.get(key, ""))
                       for key, schema in properties.items()]  # fmt: skip
            yield from (f"## `{name}`, {where}", "", text, "", *_items(entries), "")


def _described(part: Any, parameters: Iterable[str]) -> tuple[str, dict[str, str]]:
    """Return the description of a part and the meaning of each option, from "Args: name, name: meaning; …"."""
    text, _, arguments = one_line(part.__doc__).partition(" Args: ")
    arguments = re.split(r" (?:Raises|Returns): ", arguments)[0]
    names = "|".join(parameters)
    pieces = re.split(rf"(?:^|(?<=[;.?)]) )((?:{names})(?:, (?:{names}))*): ", arguments)[1:]
    meanings = zip(pieces[::2], pieces[1::2], strict=True)
    return text, {name: meaning.strip(" ;.") for names, meaning in meanings for name in names.split(", ")}


def _of_parameter(parameter: inspect.Parameter) -> str:
    return "required" if parameter.default is inspect.Parameter.empty else code(_toml(parameter.default))


JSON_NAMES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false",
              "object": "table", "null": "left out"}  # fmt: skip


def _of_schema(schema: Mapping[str, Any]) -> str:
    """Return in words what a JSON schema of an option takes."""
    if "enum" in schema:
        return ", ".join(code(_toml(value)) for value in schema["enum"])
    if "anyOf" in schema:
        words = (_of_schema(each) for each in schema["anyOf"] if each.get("type") != "null")
        return " or ".join(dict.fromkeys(word for word in words if word))
    if "$ref" in schema:
        return "table"
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "array" in kinds:
        return f"list of {_of_schema(schema.get('items', {})) or 'values'}"
    least, above, most = (
        next((schema[key] for key in keys if key in schema), None)
        for keys in (("minimum", "ge"), ("gt", "exclusiveMinimum"), ("maximum", "le"))
    )
    said = _range(least or 0, above, most)
    if set(kinds) == {"number", "string"}:
        return "number" + said
    return " or ".join(JSON_NAMES[kind] for kind in kinds) + said
