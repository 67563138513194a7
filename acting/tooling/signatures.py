"""Reader of function signatures and docstrings: the parameters' types for pydantic, their JSON schema and descriptions.

A signature is read once, when the tool is registered. Integers are exact or refused: no `true`, and no float beyond
2**53, where one float stands for several integers.

The library `docstring-parser` reads a docstring in the Google, the numpy and the Sphinx style; the style that finds
most parameters counts. (`griffe`, which other agent libraries use, must be given the style and takes ten times as long
to import.) A docstring that cannot be read gives no descriptions.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from typing_extensions import TypedDict

from spar.data.json_safe import plain
from spar.errors import ConfigError

if TYPE_CHECKING:
    from pydantic import TypeAdapter


import re
from collections.abc import Iterable
from functools import cache


class Signature(Struct, frozen=True):
    """The parameters of a function: `fields` has the type and the default of each, by its name.

    `context` is the name of the parameter annotated `ToolContext`, or "". `is_open` says that the function takes any
    other names too (`**kwargs`). The types for pydantic cost more than all other work here, so they are made on demand.
    """

    tool: str
    fields: dict[str, tuple[Any, Any]]
    context: str
    is_open: bool
    description: str
    texts: Mapping[str, str]

    @property
    def required(self) -> list[str]:
        return [name for name, (_, default) in self.fields.items() if default is inspect.Parameter.empty]

    @property
    def is_sure(self) -> bool:
        """Return whether JSON can express each type for sure, so that no error can come from compiling them later."""
        return all(_is_sure(kind) for kind, _ in self.fields.values())

    @property
    def scalars(self) -> dict[str, frozenset[type]]:
        """Return the types of the JSON scalars that each parameter takes just as they are."""
        return {name: _scalars(kind) for name, (kind, _) in self.fields.items()}

    def adapter(self) -> TypeAdapter[Any]:
        """Return pydantic's adapter of a TypedDict of the parameters."""
        from pydantic import TypeAdapter  # heavy, and not needed for tools without parameters

        kinds = {name: _annotate(kind, self.texts.get(name), default) for name, (kind, default) in self.fields.items()}
        return TypeAdapter(_typed_dict(kinds, extra=self.is_open))

    def schema(self, adapter: Callable[[], TypeAdapter[Any]]) -> dict[str, Any]:
        """Return the JSON schema of a call. Args: adapter: returns that of the parameters."""
        return _call_schema(self.tool, self.description, adapter().json_schema() if self.fields else {}, self)

    @classmethod
    def of(cls, tool: str, function: Callable[..., Any], context_type: type | None) -> Signature:
        """Read a function. Raises: ConfigError for a required parameter that cannot be passed by name."""
        fields, context, is_open = _fields(tool, function, context_type)
        return cls(tool, fields, context, is_open, *read_docstring(function, fields))


#: Types that always have a schema, and containers of them.
_SURE = frozenset({str, int, float, bool, type(None), Any, object})
_SURE_CONTAINERS = (list, dict, Union, UnionType)


def _is_sure(kind: Any) -> bool:
    try:
        if kind in _SURE:
            return True
    except TypeError:  # it cannot be hashed
        return False
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return all(type(value) in (str, int, bool) for value in args)
    return origin in _SURE_CONTAINERS and bool(args) and all(map(_is_sure, args))


def _scalars(kind: Any) -> frozenset[type]:
    """Return the types of the JSON scalars that a type takes just as they are; a float may come from an integer."""
    if kind in (str, int, bool, type(None)):
        return frozenset({kind})
    members = get_args(kind) if get_origin(kind) in (Union, UnionType) else ()
    return frozenset() if float in members else frozenset().union(*map(_scalars, members))


def _fields(
    tool: str, function: Callable[..., Any], context_type: type | None
) -> tuple[dict[str, tuple[Any, Any]], str, bool]:
    """Return type and default of each parameter, the name of the context parameter, and whether any name is taken."""
    target: Any = function
    while isinstance(target, functools.partial):
        target = target.func
    target = target if inspect.isroutine(target) or isinstance(target, type) else target.__call__
    try:
        signature = inspect.signature(function)
        hints = get_type_hints(inspect.unwrap(target), include_extras=True)
    except Exception as error:
        raise ConfigError(f"tool {tool!r}: its signature cannot be read: {first_line(error)}") from error
    fields: dict[str, tuple[Any, Any]] = {}
    context, is_open = "", False
    for name, parameter in signature.parameters.items():
        kind = hints.get(name, Any)
        if parameter.kind is parameter.VAR_KEYWORD:
            is_open = True
        elif parameter.kind is parameter.VAR_POSITIONAL:
            continue
        elif context_type is not None and (kind is context_type or context_type in get_args(kind)):
            context = name
        elif parameter.kind is parameter.POSITIONAL_ONLY or name.startswith("_"):
            if parameter.default is parameter.empty:
                raise ConfigError(
                    f"tool {tool!r}: parameter {name!r} cannot be given by name: calls name their parameters"
                )
        else:
            fields[name] = (kind | None if parameter.default is None and kind is not Any else kind, parameter.default)
    return fields, context, is_open


def _annotate(kind: Any, description: str | None, default: Any) -> Any:
    if description:
        from pydantic import Field  # heavy, and not needed for tools without parameters

        kind = Annotated[kind, Field(description=description)]
    return kind if default is inspect.Parameter.empty else NotRequired[kind]


def _call_schema(tool: str, description: str, generated: dict[str, Any], signature: Signature) -> dict[str, Any]:
    properties: dict[str, Any] = {"_tool": {"const": tool}}
    for name, property_schema in generated.get("properties", {}).items():
        property_schema.pop("title", None)
        default = signature.fields[name][1]
        properties[name] = (
            property_schema if default is inspect.Parameter.empty else {**property_schema, "default": plain(default)}
        )
    schema = {
        "type": "object",
        "properties": properties,
        "required": ["_tool", *signature.required],
        "additionalProperties": signature.is_open,
    }
    if description:
        schema["description"] = description
    if "$defs" in generated:
        schema["$defs"] = generated["$defs"]
    return schema


def _typed_dict(fields: Mapping[str, Any], *, extra: bool) -> Any:
    """Return a TypedDict of these fields; unlike a pydantic model it takes any field name.

    `extra` allows more fields.
    """
    make: Any = TypedDict  # Any, because a type checker refuses fields that are not written in the source
    typed_dict = make("Parameters", dict(fields))
    typed_dict.__pydantic_config__ = {"extra": "allow" if extra else "forbid"}
    return typed_dict


def first_line(error: BaseException) -> str:
    """Return the first line of an exception's message, or the name of its type."""
    return (str(error) or type(error).__name__).partition("\n")[0]


_TITLES = "Args|Arguments|Parameters|Params"
_OTHERS = "Return|Returns|Yield|Yields|Raises|Example|Examples|Note|Notes|Attributes|See Also|Source"
# Our own short form, `Args: city: its name`: the parser wants a line break behind the title.
_ONE_LINE = re.compile(rf"^({_TITLES}|{_OTHERS}):[ \t]+(?=\S)", re.MULTILINE)
_BARE = re.compile(rf"({_TITLES}):\n(?=\S)(?!(?:{_TITLES}|{_OTHERS}):$)", re.MULTILINE)


def read_docstring(function: Any, names: Iterable[str]) -> tuple[str, dict[str, str]]:
    """Return the description (the text before the first section) and the text of each parameter in `names`."""
    try:
        text = inspect.getdoc(function) or ""
        if _BARE.match(text):  # the first line is a title: `getdoc` removed the indentation of the lines below it
            text = text.replace("\n", "\n    ")
        text = _ONE_LINE.sub(r"\1:\n    ", text)
    except Exception:  # a __doc__ that is no text
        return "", {}
    if not text:
        return "", {}
    known, best = set(names), (0, 0)
    description, texts = text.strip(), {}
    for parse in _styles():
        try:
            parsed = parse(f"\n{text}")  # with the line break, the parser counts the indentation of the first line too
            by_name = {
                param.arg_name.lstrip("*"): " ".join((param.description or "").split()) for param in parsed.params
            }
        except Exception:  # this style cannot read it
            continue
        by_name = {name: text for name, text in by_name.items() if text and name in known}
        if (len(by_name), len(parsed.meta)) > best:
            best, description, texts = (len(by_name), len(parsed.meta)), (parsed.description or "").strip(), by_name
    return description, texts


@cache
def _styles() -> tuple[Callable[[str], Any], ...]:
    from docstring_parser import google, numpydoc, rest  # 4 ms

    # The parser splits only the sections of parameters into entries; other sections may hold any text.
    titles = [*((title, google.SectionType.MULTIPLE) for title in _TITLES.split("|")),
              *((title, google.SectionType.SINGULAR) for title in _OTHERS.split("|"))]  # fmt: skip
    sections = [google.Section(title, "param" if kind else "examples", kind) for title, kind in titles]
    return rest.parse, google.GoogleParser(sections).parse, numpydoc.parse
