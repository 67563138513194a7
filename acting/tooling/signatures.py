"""Reads the parameters of a function's signature: their types for pydantic, and their JSON schema.

Read once, when the tool is registered. Integers are exact or refused (no `true`, no float beyond 2**53, where it no
longer says which integer was meant).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter
from typing_extensions import TypedDict

from acting.tooling import docstrings
from spar.data.json_safe import plain
from spar.errors import ConfigError


class Signature(Struct, frozen=True):
    """The parameters of a function: `fields`, its parameters with type and default.

    `context` is the name of the parameter that wants the tool's context, or ""; `is_open` says that it takes any more.
    What is made of them for pydantic costs more than all the rest together, so it is made when it is asked for.
    """

    tool: str
    fields: dict[str, tuple[Any, Any]]
    context: str
    is_open: bool
    description: str
    texts: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.fields)

    @property
    def required(self) -> list[str]:
        return [name for name, (_, default) in self.fields.items() if default is inspect.Parameter.empty]

    @property
    def is_sure(self) -> bool:
        """Return whether each of the types is one that JSON has, so that nothing is found out by making them."""
        return all(_is_sure(kind) for kind, _ in self.fields.values())

    @property
    def exact(self) -> Any:
        """A TypedDict of the parameters, each integer exact."""
        kinds = {name: _described(kind, self.texts.get(name), default) for name, (kind, default) in self.fields.items()}
        return _typed_dict(kinds, extra=self.is_open)

    @property
    def loose(self) -> Any:
        """A TypedDict of the parameters, each integer exact and each field optional."""
        kinds = {name: NotRequired[_exact(kind)] for name, (kind, _) in self.fields.items()}
        return _typed_dict(kinds, extra=self.is_open)

    def schema(self, adapter: TypeAdapter[Any]) -> dict[str, Any]:
        """Return the JSON schema of a call; `adapter` is that of the exact type."""
        return _schema(self.tool, self.description, adapter.json_schema(), self)

    @classmethod
    def of(cls, tool: str, function: Callable[..., Any], context_type: type | None) -> Signature:
        """Read it. Raises: ConfigError for what cannot be called by name."""
        fields, context, is_open = _fields(tool, function, context_type)
        return cls(tool, fields, context, is_open, *docstrings.read_docstring(function, fields))


#: Types of which a schema can always be made, and containers of such.
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
        return all(type(each) in (str, int, bool) for each in args)
    return origin in _SURE_CONTAINERS and bool(args) and all(map(_is_sure, args))


def _fields(
    tool: str, function: Callable[..., Any], context_type: type | None
) -> tuple[dict[str, tuple[Any, Any]], str, bool]:
    """Type and default of each parameter, the name of the one that takes the context, and whether it takes any more."""
    target = function if inspect.isroutine(function) or isinstance(function, type) else function.__call__  # type: ignore[operator]
    while hasattr(target, "func"):  # functools.partial
        target = target.func
    try:
        signature = inspect.signature(function)
        hints = get_type_hints(inspect.unwrap(target), include_extras=True)
    except Exception as error:
        raise ConfigError(f"tool {tool!r}: its signature cannot be read: {first_line(error)}") from error
    fields: dict[str, tuple[Any, Any]] = {}
    context, is_open = "", False
    for name, each in signature.parameters.items():
        kind = hints.get(name, Any)
        if each.kind is each.VAR_KEYWORD:
            is_open = True
        elif each.kind is each.VAR_POSITIONAL:
            continue
        elif context_type is not None and (kind is context_type or context_type in get_args(kind)):
            context = name
        elif each.kind is each.POSITIONAL_ONLY or name.startswith("_"):
            if each.default is each.empty:
                raise ConfigError(
                    f"tool {tool!r}: parameter {name!r} cannot be given by name: calls name their parameters"
                )
        else:
            fields[name] = (kind | None if each.default is None and kind is not Any else kind, each.default)
    return fields, context, is_open


def _described(kind: Any, description: str | None, default: Any) -> Any:
    kind = _exact(kind)
    if description:
        kind = Annotated[kind, Field(description=description)]
    return kind if default is inspect.Parameter.empty else NotRequired[kind]


def _schema(tool: str, description: str, found: dict[str, Any], signature: Signature) -> dict[str, Any]:
    properties: dict[str, Any] = {"_tool": {"const": tool}}
    for name, each in found.get("properties", {}).items():
        each.pop("title", None)
        default = signature.fields[name][1]
        properties[name] = each if default is inspect.Parameter.empty else {**each, "default": plain(default)}
    schema = {
        "type": "object",
        "properties": properties,
        "required": ["_tool", *signature.required],
        "additionalProperties": signature.is_open,
    }
    if description:
        schema["description"] = description
    if "$defs" in found:
        schema["$defs"] = found["$defs"]
    return schema


def _exact(kind: Any) -> Any:
    """The type with every `int` in it made exact."""
    if kind is int:
        return _EXACT_INT
    if isinstance(kind, type) and hasattr(kind, "__pydantic_config__") and hasattr(kind, "__required_keys__"):
        fields = {name: _exact(each) for name, each in get_type_hints(kind, include_extras=True).items()}
        return _typed_dict(
            {name: each if name in kind.__required_keys__ or get_origin(each) is NotRequired else NotRequired[each]
             for name, each in fields.items()},
            extra=kind.__pydantic_config__.get("extra") == "allow",
        )  # fmt: skip
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        inner, *notes = args
        return Annotated[(_exact(inner) if inner is not int else int, *notes, *([_EXACT] if inner is int else []))]
    if origin in (Union, UnionType):
        return Union[tuple(_exact(each) for each in args)]  # noqa: UP007 - the members are only known here
    if origin is dict and len(args) == 2:
        return origin[args[0], _exact(args[1])]  # keys are texts in JSON, exact as they stand
    if origin is NotRequired or origin in (list, dict, set, frozenset, tuple):
        made = tuple(_exact(each) for each in args)
        return origin[made if len(made) > 1 else made[0]] if made else kind
    return kind


def _exact_integer(value: Any) -> Any:
    if type(value) is int:
        return value
    if isinstance(value, bool):
        raise ValueError("should be an integer, not true or false")
    if isinstance(value, float):
        if abs(value) > 2**53:
            raise ValueError("should be an exact integer: a float this large does not say which")
        return int(value) if value.is_integer() else value  # JSON tells 5.0 from 5 no more than its schema does
    return value


_EXACT = BeforeValidator(_exact_integer)
_EXACT_INT = Annotated[int, _EXACT]


def _typed_dict(fields: Mapping[str, Any], *, extra: bool) -> Any:
    """A TypedDict of these fields; any name will do, unlike a model's. `extra` allows more than the fields."""
    make: Any = TypedDict  # named only here: its fields are not known to whoever reads the source
    made = make("Parameters", dict(fields))
    made.__pydantic_config__ = ConfigDict(extra="allow" if extra else "forbid")
    return made


def first_line(error: BaseException) -> str:
    """Return an exception's message, in a line."""
    return (str(error) or type(error).__name__).partition("\n")[0]
