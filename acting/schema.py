"""What parameters a tool takes: its JSON schema, read off its signature and docstring, and their validation.

Validation is pydantic's lax mode with two exceptions: extra parameters are errors, and integers are exact or
refused (no `true`, no float beyond 2**53, where it no longer says which integer was meant). A signature is
read once, when the tool is registered. Errors name tool, parameter, what was found and what is expected.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from types import UnionType
from typing import Annotated, Any, NotRequired, Union, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError

from acting import docstrings
from acting.json_types import object_type, typed_dict
from acting.outputs import plain
from acting.paths import shorten
from spar.errors import ConfigError

_UNUSABLE = (PydanticUserError, SchemaError, TypeError, ValueError)  # what pydantic raises for a type or schema
_SHOWN = 3  # errors in one message; a planner needs no more to see what it did wrong


class ParametersError(ValueError):
    """Parameters that a tool does not take; the message names the tool and each parameter."""


class Parameters:
    """The parameters of one tool: `schema` for who plans, `validate` for what comes.

    `context` is the name of the parameter that wants the tool's context, or "".
    """

    __slots__ = ("_is_empty", "_names", "_tool", "_validate", "context", "schema")

    def __init__(
        self, tool: str, schema: dict[str, Any], typed: Any, names: Collection[str], context: str = ""
    ) -> None:
        self.schema, self.context = schema, context
        self._tool, self._names = tool, dict.fromkeys(names).keys()
        self._is_empty = not names and schema.get("additionalProperties") is False
        self._validate: Callable[[Any], dict[str, Any]] = TypeAdapter(_exact(typed)).validator.validate_python

    @classmethod
    def of_function(cls, tool: str, function: Callable[..., Any], *, context_type: type | None = None) -> Parameters:
        """Read a signature. Raises: ConfigError naming the tool and what about it cannot be called from JSON."""
        fields, context, is_open = _fields(tool, function, context_type)
        description, texts = docstrings.read(function, fields)
        typed = typed_dict(
            {name: _described(kind, texts.get(name), default) for name, (kind, default) in fields.items()},
            extra=is_open,
        )
        try:
            found = TypeAdapter(typed).json_schema()
            return cls(tool, _schema(tool, description, found, fields, is_open), typed, fields, context)
        except _UNUSABLE as error:
            raise ConfigError(
                f"tool {tool!r}: a parameter's type cannot be given in JSON: {_first_line(error)}"
            ) from error

    @classmethod
    def of_schema(cls, tool: str, schema: Mapping[str, Any], *, context: str = "") -> Parameters:
        """Take a given JSON schema. More parameters than it names are errors unless it says otherwise itself."""
        names = [name for name in schema.get("properties", {}) if not name.startswith("_")]
        extra = schema.get("additionalProperties", False)
        whole = {"type": "object", "additionalProperties": extra, **schema}
        try:
            return cls(tool, whole, object_type(schema, extra=extra), names, context)
        except _UNUSABLE as error:
            raise ConfigError(f"tool {tool!r}: its schema cannot be used: {_first_line(error)}") from error

    def validate(self, params: Mapping[str, Any], unresolved: Collection[str] = ()) -> dict[str, Any]:
        """The parameters as the tool is given them.

        Those named in `unresolved` still hold references and are not judged; what is returned is then of no use.
        Raises: ParametersError.
        """
        if self._is_empty and not params:
            return {}
        if unresolved and len(unresolved) == len(params) and params.keys() == self._names:
            return {}
        try:
            return self._validate(params)
        except ValidationError as error:
            found = [each for each in error.errors(include_url=False, include_context=False)
                     if not each["loc"] or each["loc"][0] not in unresolved
                     or (each["type"] == "extra_forbidden" and len(each["loc"]) == 1)]  # fmt: skip
        if not found:
            return {}
        told = "; ".join(self._sentence(each) for each in found[:_SHOWN])
        more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise ParametersError(f"tool {self._tool!r}: {told}{more}")

    def _sentence(self, error: Any) -> str:
        where = ".".join(str(part) for part in error["loc"])
        where = shorten(where)
        if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
            return f"no parameter {where}; known: {', '.join(self._names) or 'none'}"
        if error["type"] == "missing":
            return f"parameter {where} is missing"
        expected = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
        return f"parameter {where} is {shorten(error['input'])}, it {expected[:1].lower()}{expected[1:]}"


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
        raise ConfigError(f"tool {tool!r}: its signature cannot be read: {_first_line(error)}") from error
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
        return typed_dict(
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


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]
