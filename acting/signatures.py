"""What a function's signature says of its parameters: their types for pydantic, and their JSON schema.

Read once, when the tool is registered. Integers are exact or refused (no `true`, no float beyond 2**53, where it no
longer says which integer was meant).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from types import UnionType
from typing import Annotated, Any, NotRequired, Union, get_args, get_origin, get_type_hints

from msgspec import Struct
from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter
from typing_extensions import TypedDict

from acting import docstrings
from spar.errors import ConfigError
from spar.plain import plain


class Signature(Struct, frozen=True):
    """What can be given to a function: `names` of its parameters, `typed` (a TypedDict of them), their JSON `schema`.

    `context` is the name of the parameter that wants the tool's context, or "".
    """

    names: tuple[str, ...]
    typed: Any
    schema: dict[str, Any]
    context: str = ""

    @property
    def loose(self) -> Any:
        """The same, of which each may be left out."""
        fields = get_type_hints(self.typed, include_extras=True)
        extra = self.typed.__pydantic_config__.get("extra") == "allow"
        return _typed_dict(
            {name: kind if get_origin(kind) is NotRequired else NotRequired[kind] for name, kind in fields.items()},
            extra=extra,
        )

    @classmethod
    def of(cls, tool: str, function: Callable[..., Any], context_type: type | None) -> Signature:
        """Read it. Raises: ConfigError for what cannot be called by name; what pydantic raises for a type."""
        fields, context, is_open = _fields(tool, function, context_type)
        description, texts = docstrings.read(function, fields)
        kinds = {name: _described(kind, texts.get(name), default) for name, (kind, default) in fields.items()}
        typed = _typed_dict(kinds, extra=is_open)
        found = TypeAdapter(typed).json_schema()
        return cls(tuple(fields), _exact(typed), _schema(tool, description, found, fields, is_open), context)


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
    if description:
        kind = Annotated[kind, Field(description=description)]
    return kind if default is inspect.Parameter.empty else NotRequired[kind]


def _schema(
    tool: str, description: str, found: dict[str, Any], fields: Mapping[str, Any], is_open: bool
) -> dict[str, Any]:
    properties: dict[str, Any] = {"_tool": {"const": tool}}
    for name, each in found.get("properties", {}).items():
        each.pop("title", None)
        default = fields[name][1]
        properties[name] = each if default is inspect.Parameter.empty else {**each, "default": plain(default)}
    required = [name for name, (_, default) in fields.items() if default is inspect.Parameter.empty]
    schema = {
        "type": "object",
        "properties": properties,
        "required": ["_tool", *required],
        "additionalProperties": is_open,
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
    if origin is NotRequired or origin in (list, dict, set, frozenset, tuple):
        made = tuple(_exact(each) for each in args)
        return origin[made if len(made) > 1 else made[0]] if made else kind
    return kind


def _exact_integer(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("should be an integer, not true or false")
    if isinstance(value, float) and abs(value) > 2**53:
        raise ValueError("should be an exact integer: a float this large does not say which")
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
    """What an exception says, in a line."""
    return (str(error) or type(error).__name__).partition("\n")[0]
