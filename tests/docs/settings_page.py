"""The page of settings, from the models of `config.toml` and the constructors of the built-in parts."""

from __future__ import annotations

import inspect
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le, Len
from msgspec import NODEFAULT
from msgspec.structs import FieldInfo

from spar.config.load import Settings, reloads
from spar.config.registry import Registry, Signature
from spar.config.schema import OfFile
from spar.config.tables.descriptions import describe
from spar.config.tables.section import DURATION, OrOff, Section, default_of, settings_of
from spar.ports.budgets import MOST
from tests.docs.page_parts import begin, code, one_line, table

ROOT = Path(__file__).parents[2]


def settings() -> str:
    """Return the page of all settings and of the options of built-in parts."""
    lines, meanings = begin("settings"), describe(Settings)
    for name, field in settings_of(Settings).items():
        lines += list(_section(name, field, meanings[name]))
    lines += list(_options_of_parts())
    return "\n".join(lines) + "\n"


def _section(path: str, field: FieldInfo, meaning: str) -> Iterator[str]:
    """Yield a table of the configuration, then the tables inside it."""
    table_of = _table_in(field.type)
    if table_of is None:
        yield from (f"## `{path}`", "", one_line(meaning), "")
        yield from table(("type", "default", "change"), [(_type(field), _default(field), reloads(path))])
        yield ""
        return
    is_list, meanings = table_of is not field.type, describe(table_of)
    yield from (f"## `[[{path}]]`" if is_list else f"## `[{path}]`", "", one_line(meaning), "")
    plain, inner = [], []
    for name, each in settings_of(table_of).items():
        (plain if _table_in(each.type) is None else inner).append((name, each))
    if plain:
        rows = [(code(name), _type(each), _default(each), one_line(meanings[name]), reloads(f"{path}.{name}"))
                for name, each in plain]  # fmt: skip
        yield from table(("key", "type", "default", "meaning", "change"), rows)
        yield ""
    for name, each in inner:
        yield from _section(f"{path}.{name}", each, meanings[name])


def _table_in(annotation: Any) -> type[Section] | None:
    annotation = _unmarked(annotation)
    if isinstance(annotation, type) and get_origin(annotation) is None:
        return annotation if issubclass(annotation, Section) else None
    inner = get_args(annotation)[0] if get_origin(annotation) is tuple else None
    return _table_in(inner) if inner is not None else None


def _unmarked(annotation: Any) -> Any:
    """Return the type of an annotation without its marks."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


#: Bounds that nobody reaches.
ENDLESS = (Le(MOST), Le(MOST // 10**6))
#: Types as a person who writes TOML calls them.
NAMES = {str: "text", bool: "true or false", int: "whole number", float: "number", Decimal: "number", dict: "table"}


def _type(field: FieldInfo) -> str:
    """Return the type of a setting in words, with its bounds."""
    return _in_words(field.type)


def _bounds(marks: Iterable[Any]) -> str:
    words = []
    for mark in marks:
        match mark:
            case Ge():
                words.append(f"at least {mark.ge}")
            case Gt():
                words.append(f"above {mark.gt}")
            case Le():
                words.append(f"at most {mark.le}")
            case Len(min_length=1, max_length=int()):
                words.append(f"at most {mark.max_length} characters")
    return "".join(f", {word}" for word in words)


def _in_words(annotation: Any) -> str:
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return " or ".join(code(f'"{word}"' if isinstance(word, str) else str(word)) for word in inner)
    if origin in (Union, UnionType):
        return " or ".join(_in_words(each) for each in inner if each is not NoneType)
    if origin is tuple:
        return f"list of {_in_words(inner[0])}"
    if annotation_marks := getattr(annotation, "__metadata__", ()):
        if DURATION in annotation_marks:  # its other bounds are 0 and a hundred years
            above = " above 0" if Gt(0) in annotation_marks else ""
            return f"seconds{above}" + (' or `"off"`' if OrOff() in annotation_marks else "")
        return _in_words(inner[0]) + _bounds(mark for mark in annotation_marks if mark not in ENDLESS)
    return NAMES.get(origin or annotation, str(annotation))


def _default(field: FieldInfo) -> str:
    return "required" if default_of(field) is NODEFAULT else code(_toml(default_of(field)))


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
        case float():
            return f"{value:g}" if value < 1e6 else f"{value:.0f}"
        case _:
            return str(value)


#: The groups of parts whose options stand in the configuration, and what the composition root gives them.
GROUPS: tuple[tuple[str, str, frozenset[str]], ...] = (
    ("spar.sensors", "under `[[sensors]]`", frozenset()),
    ("spar.tools", "under `[[tools]]`", frozenset()),
    ("spar.planners", "under `[plan]`", frozenset({"rules", "tools"})),
    ("spar.reflectors", "under `[reflect]`", frozenset()),
    ("spar.stores", "in `[memory]` itself", frozenset({"read_only"})),
    ("spar.channels", "under `[[channels]]`", frozenset()),
    ("spar.notifiers", "in `via` of the tool `notify`", frozenset()),
)


def _options_of_parts() -> Iterator[str]:
    registry = Registry(allow_plugins=False)
    # As the repository has them: what is installed may be older.
    shipped = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    yield from ("# Options of the built-in parts", "", "`spar config schema` prints the same for editors.", "")
    for group, where, given in GROUPS:
        for name, target in sorted(shipped[group].items()):
            part = registry.resolve(group, target)
            properties = Signature(part, name).judge(given).json_schema(schema_generator=OfFile).get("properties", {})
            if not properties:
                continue
            parameters = inspect.signature(part).parameters
            text, meanings = _described(part, parameters)
            heads = ("option", "type", "default", *(["meaning"] if meanings else []))
            rows = [(code(key), _of_schema(schema), _of_parameter(parameters[key]), meanings.get(key, ""))[: len(heads)]
                    for key, schema in properties.items()]  # fmt: skip
            yield from (f"## `{name}`, {where}", "", text, "", *table(heads, rows), "")


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
        return " or ".join(code(_toml(value)) for value in schema["enum"])
    if "anyOf" in schema:
        words = (_of_schema(each) for each in schema["anyOf"] if each.get("type") != "null")
        return " or ".join(dict.fromkeys(word for word in words if word))
    if "$ref" in schema:
        return "table"
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if "array" in kinds:
        return f"list of {_of_schema(schema.get('items', {})) or 'values'}"
    bounds = {"minimum": "at least", "ge": "at least", "gt": "above", "exclusiveMinimum": "above", "maximum": "at most",
              "le": "at most"}  # fmt: skip
    said = "".join(f", {word} {schema[key]}" for key, word in bounds.items() if key in schema)
    if set(kinds) == {"number", "string"}:
        return "number" + said
    return " or ".join(JSON_NAMES[kind] for kind in kinds) + said
