"""Parameters of a tool: describes and validates them, by the tool's signature or by its own JSON schema.

A function's parameters are validated by pydantic's strict mode for JSON: no JSON type is converted into another one,
but an integer may stand for a float, and a text becomes a date, path, enum or UUID as the schema says. Extra parameters
are errors, and integers are exact or refused. A JSON schema is applied as the standard says, but for the same rules
about extra parameters and integers. Both are read and compiled once. Errors name the tool, the parameter, what was
found and what is expected.

The first adapter of a process takes pydantic some 35 ms, in which it reads the entry points of all packages, and 0.1 s
where pydantic is not imported yet: `compile` makes it ahead, in a thread.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import cache, partial
from math import isfinite
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec
from msgspec import Struct

from acting.tooling.signatures import Signature, first_line
from spar.checks import SCALARS, shorten
from spar.data.json_schema import JsonSchema, SchemaProblem, join_sentences, sentence
from spar.data.paths import MARK, MAX_DEPTH, MAX_VALUES, NOTHING, ValueTooLargeError
from spar.decoding import convert, misfit, worded
from spar.errors import ConfigError

_SHORT, _LARGE, _LEAST = 256, 1 << 63, -1 << 63  # most characters of a short text; bounds of integers of 64 bits
_SHOWN = 3  # errors in one message; a planner needs no more to see what it did wrong


class ParametersError(ValueError):
    """Parameters that a tool does not take; the message names the tool and each parameter."""


#: Returns the parameters as the tool receives them, or raises an error.
Take = Callable[[Mapping[str, Any]], dict[str, Any]]
Schema = dict[str, Any]
#: Returns the error of a `Take` as sentences; leaves out the parameters with these names.
Objections = Callable[["_UnfitError", Collection[str]], list[str]]


class Parameters:
    """The parameters of one tool: `schema` for planners, `validate` for calls; both compiled when first needed.

    `context` is the name of the parameter annotated `ToolContext`, or "". `is_empty` says that the tool takes none.
    `is_compiled` says that a call need not wait for `compile`. `scalars` has the types of the JSON scalars that a
    parameter takes just as they are, by its name.
    """

    __slots__ = ("_make_schema", "_names", "_objections", "_partial_take", "_required", "_take", "_tool", "context",
                 "is_compiled", "is_empty", "scalars")  # fmt: skip

    def __init__(
        self,
        tool: str,
        schema: Callable[[], Schema],
        names: Collection[str],
        take: Callable[[], Take],
        objections: Objections,
        context: str,
        *,
        required: Collection[str],
        is_open: bool,
        partial_take: Callable[[], Take] | None = None,
        scalars: Mapping[str, frozenset[type]] = NOTHING,
    ) -> None:
        self._make_schema, self.context, self.scalars = schema, context, scalars
        #: Validates some of the parameters; the others may be absent.
        self._partial_take = partial_take
        self._required = frozenset(required) - {"_tool"}
        self._tool, self._names, self._take, self._objections = tool, dict.fromkeys(names).keys(), take, objections
        self.is_empty = not names and not is_open
        self.is_compiled = self.is_empty or partial_take is None

    @property
    def schema(self) -> Schema:
        """Return the JSON schema of a call."""
        return self._make_schema()

    @classmethod
    def of_function(cls, tool: str, function: Callable[..., Any], *, context_type: type | None = None) -> Parameters:
        """Read a signature. Raises: ConfigError naming the tool and the parameter that JSON cannot express."""
        try:
            signature = Signature.of(tool, function, context_type)
            adapter = cache(signature.adapter)
            core = cache(lambda: _exact(adapter().core_schema))
            schema, take = cache(lambda: signature.schema(adapter)), cache(lambda: _strict_take(core()))
            if not signature.fields and not signature.is_open:
                take = cache(lambda: _take_nothing)
            if not signature.is_sure:
                _try_out(schema, take)
        except ConfigError:
            raise
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"tool {tool!r}: a parameter's type cannot be given in JSON: {first_line(error)}"
            ) from error
        objections = partial(_sentences_of_types, tuple(signature.fields))
        partial_take = cache(lambda: _strict_take(_undemanding(core())))
        return cls(tool, schema, signature.fields, take, objections, signature.context, required=signature.required,
                   is_open=signature.is_open, partial_take=partial_take, scalars=signature.scalars)  # fmt: skip

    @classmethod
    def of_schema(cls, tool: str, schema: Mapping[str, Any], *, context: str = "") -> Parameters:
        """Read a JSON schema. Parameters that it does not name are errors unless the schema allows them.

        A property whose name begins with `_` is no parameter. Defaults are for planners and are not filled in.
        Raises: ConfigError naming the tool and the place in the schema.
        """
        about = f"tool {tool!r}: its schema"
        if not isinstance(schema, Mapping):
            raise ConfigError(f"{about} must be an object, found {shorten(schema)}")
        properties = schema.get("properties", {})
        if not isinstance(properties, Mapping):
            raise ConfigError(f"{about} cannot be used: properties is {shorten(properties)}: it is not an object")
        parameters = {name: value for name, value in properties.items() if not str(name).startswith("_")}
        judged = {"type": "object", **schema, "properties": parameters}
        if isinstance(required := judged.pop("required", None), list):
            required = [name for name in required if not str(name).startswith("_")]
        if required:  # draft 4 does not allow an empty list
            judged["required"] = required
        if not {"additionalProperties", "unevaluatedProperties"} & judged.keys():
            # Where keywords such as `allOf` name more properties, only `unevaluatedProperties` takes those into
            # account.
            judged["unevaluatedProperties" if _BESIDE & judged.keys() else "additionalProperties"] = False
        whole = {"type": "object", "additionalProperties": judged.get("additionalProperties", True), **schema}
        integers = [
            name for name, value in parameters.items() if isinstance(value, Mapping) and value.get("type") == "integer"
        ]
        take = partial(_take_by_schema, JsonSchema(judged, about), integers)
        return cls(tool, lambda: whole, list(parameters), lambda: take,
                   partial(_sentences_of_schema, list(parameters)), context,
                   required=whole.get("required", ()), is_open=whole["additionalProperties"] is not False)  # fmt: skip

    def inspect(self, params: dict[str, Any]) -> tuple[bool, list[str], bool]:
        """Return whether all parameters are short scalars, which can be stored as they are; the names of those that may
        be or hold a reference; and whether the tool takes all just as they are, if those have values that it takes."""
        referring: list[str] = []
        is_small, fits, scalars = True, params.keys() >= self._required, self.scalars
        for name, value in params.items():
            kind = type(value)
            if kind is str and value[:1] == MARK:
                referring.append(name)
                fits = fits and name in scalars
            elif kind not in scalars.get(name, ()):
                fits = False
            if kind is str:
                if len(value) > _SHORT or not (value.isascii() or value.isprintable()):  # a lone surrogate is not
                    is_small = False
            elif kind is int:
                if not _LEAST < value < _LARGE:
                    is_small = False
            elif kind is float:
                is_small = False
            elif kind not in SCALARS:
                is_small = False
                referring.append(name)
        return is_small, referring, fits and is_small

    def compile(self) -> None:
        """Make what validates calls. An error comes again, and is told, when a call is validated."""
        with suppress(Exception):
            self._take()
        self.is_compiled = True

    def validate(self, params: Mapping[str, Any], unresolved: Collection[str] = ()) -> dict[str, Any]:
        """Return the parameters as the tool receives them.

        Parameters in `unresolved` still hold references and are not judged; the returned value is then not to be used.
        Raises: ParametersError.
        """
        if unresolved:
            if len(unresolved) == len(params) and params.keys() == self._names:
                return {}
            if self._partial_take is not None and self._required <= params.keys() and self._names >= set(unresolved):
                try:
                    self._partial_take()({name: value for name, value in params.items() if name not in unresolved})
                    return {}
                except Exception:  # the full validation below finds the error and names it
                    pass
        try:
            return self._take()(params)
        except _UnfitError as error:
            objections = self._objections(error, unresolved)
        except Exception as error:  # raised by a validator in one of the tool's own types
            objections = [f"the parameters {shorten(params)} cannot be validated: {shorten(error)}"]
        if objections:
            raise ParametersError(f"tool {self._tool!r}: {join_sentences(objections, _SHOWN)}")
        return {}


def check_finite(tool: str, params: Mapping[str, Any]) -> None:
    """Refuse NaN and infinities, which JSON cannot express, at any depth.

    Raises: ParametersError; ValueTooLargeError for too many values, or values nested too deeply.
    """
    count = 0
    for name, value in params.items():
        level, depth = [value], 0
        while level:
            if depth > MAX_DEPTH:
                raise ValueTooLargeError(f"a parameter is nested more than {MAX_DEPTH} levels deep")
            depth += 1
            count += len(level)
            if count > MAX_VALUES:
                raise ValueTooLargeError(f"the parameters hold more than {MAX_VALUES} values")
            below: list[Any] = []
            for item in level:
                if isinstance(item, float):
                    if not isfinite(item):
                        sentence = f"parameter {shorten(name)} holds {item!r}, which is no number of JSON"
                        raise ParametersError(f"tool {tool!r}: {sentence}")
                elif type(item) not in SCALARS:
                    if isinstance(item, Mapping):
                        below.extend(item.values())
                    elif isinstance(item, (list, tuple)):
                        below.extend(item)
            level = below


# -- by types


def _try_out(*functions: Callable[[], object]) -> None:
    """Call what compiles a type. Raises: ValueError for a type that pydantic cannot use, TypeError."""
    from pydantic import PydanticUserError
    from pydantic_core import SchemaError

    try:
        for function in functions:
            function()
    except (PydanticUserError, SchemaError) as error:
        raise ValueError(first_line(error)) from error


#: Keys of a schema of pydantic whose values stay: they hold no schemas that validate, or those of keys, which are texts
#: in JSON.
_AS_IS = ("default", "expected", "keys_schema", "metadata", "serialization")


def _exact(core: Any) -> Any:
    """Return a schema of pydantic-core in which each integer is exact."""
    if isinstance(core, (list, tuple)):
        return type(core)(map(_exact, core))
    if not isinstance(core, dict):
        return core
    kind = core.get("type")  # no text in a table of fields that has one of this name
    if kind == "int":
        from pydantic_core import core_schema  # heavy, and not needed for tools without parameters

        return core_schema.no_info_before_validator_function(_exact_integer, core)
    is_schema = isinstance(kind, str)
    return {key: value if is_schema and key in _AS_IS else _exact(value) for key, value in core.items()}


def _exact_integer(value: Any) -> Any:
    if type(value) is int:
        return value
    if isinstance(value, bool):
        raise ValueError("should be an integer, not true or false")
    if isinstance(value, float):
        if abs(value) > 2**53:
            raise ValueError("should be an exact integer: a float this large does not say which")
        return int(value) if value.is_integer() else value  # JSON and JSON Schema do not distinguish 5.0 from 5
    return value


def _undemanding(core: Any) -> Any:
    """Return the schema of a TypedDict with the same fields, of which it demands none."""
    whole = core["schema"] if core["type"] == "definitions" else core
    fields = {name: {**field, "required": False} for name, field in whole["fields"].items()}
    part = {**whole, "fields": fields}
    return part if whole is core else {**core, "schema": part}


def _strict_take(core: Any) -> Take:
    """Return a `Take` that validates by a schema, by pydantic's strict rules for JSON."""
    from pydantic import ValidationError
    from pydantic_core import SchemaValidator

    validator = SchemaValidator(core)

    def take(params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            values: dict[str, Any] = validator.validate_python(params, strict=True)
            return values
        except ValidationError as error:
            # Dates, enums and tuples stand as texts and lists in JSON; pydantic takes those only from JSON input.
            try:
                values = validator.validate_json(_encode(params), strict=True)
                return values
            except ValidationError as other:
                problems = other.errors(include_url=False, include_context=False)
                if problems[0]["type"] == "json_invalid":
                    problems = error.errors(include_url=False, include_context=False)
            except (TypeError, ValueError):
                problems = error.errors(include_url=False, include_context=False)
            raise _UnfitError(problems) from None

    return take


def _take_nothing(params: Mapping[str, Any]) -> dict[str, Any]:
    if params:
        raise _UnfitError([{"type": "extra_forbidden", "loc": (name,)} for name in params])
    return {}


def _encode(params: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(params)
    except Exception:  # an integer of more than 64 bits
        return json.dumps(params, allow_nan=False).encode()


def _sentences_of_types(names: Collection[str], error: _UnfitError, unresolved: Collection[str]) -> list[str]:
    """Return pydantic's errors as sentences."""
    return [_error_sentence(names, problem) for problem in error.problems if _is_judged(problem, unresolved)]


def _is_judged(error: Any, unresolved: Collection[str]) -> bool:
    where = error["loc"]
    return not where or where[0] not in unresolved or (error["type"] == "extra_forbidden" and len(where) == 1)


def _error_sentence(names: Collection[str], error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
        return _unknown_sentence(where, names)
    if error["type"] == "missing":
        return f"parameter {shorten(where)} is missing"
    expected = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"parameter {shorten(where)} is {shorten(error['input'])}, it {expected[:1].lower()}{expected[1:]}"


def _unknown_sentence(name: str, names: Collection[str]) -> str:
    return f"no parameter {shorten(name)}; known: {', '.join(names) or 'none'}"


# -- by a schema


class _UnfitError(Exception):
    """Error of a `Take`: the problems as pydantic or a JSON schema tells them."""

    def __init__(self, problems: list[Any]) -> None:
        self.problems = problems


def _take_by_schema(schema: JsonSchema, integers: Collection[str], params: Mapping[str, Any]) -> dict[str, Any]:
    if problems := schema.problems(params):
        raise _UnfitError(problems)
    values = dict(params)
    for name in integers:
        if type(values.get(name)) is float:
            values[name] = int(values[name])  # 5.0 is an integer in JSON, but not to Python
    return values


def _sentences_of_schema(names: Collection[str], error: _UnfitError, unresolved: Collection[str]) -> list[str]:
    """Return the errors of a JSON schema as sentences, without those that depend on an unresolved parameter."""
    sentences = []
    for problem in error.problems:
        if problem.keyword in _EXTRA and not problem.path:
            if problem.keyword != "unevaluatedProperties" or not unresolved:
                sentences += [_unknown_sentence(name, names) for name in problem.names]
        elif not unresolved or _is_certain(problem, unresolved):
            sentences.append(sentence(problem, "parameter", "the parameters"))
    return sentences


def _is_certain(problem: SchemaProblem, unresolved: Collection[str]) -> bool:
    if problem.path:
        return problem.path[0] not in unresolved and problem.via[0] in ("properties", *_EXTRA, "patternProperties")
    return not problem.via or problem.via[0] in _ABOUT_NAMES


_EXTRA = ("additionalProperties", "unevaluatedProperties")
_ABOUT_NAMES = ("required", "dependentRequired", "minProperties", "maxProperties", "propertyNames")
_BESIDE = {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas"}


S = TypeVar("S", bound=Struct)


def settings_of(kind: type[S], values: Any, about: str, path: tuple[str | int, ...] = ()) -> S:
    """Return the settings that a program gives as a value of a flat structure; the description of a field says what it
    must be where its type does not.

    Args: about: what they are for; path: their place in the configuration. Raises: ConfigError that names the setting,
        what was found and what is allowed.
    """
    try:
        return convert(values, kind)
    except msgspec.ValidationError as error:
        wrong, fields = misfit(error), {field.name: field.type for field in msgspec.structs.fields(kind)}
    if wrong.unknown is not None:
        sentence = f"no setting {wrong.unknown!r} for {about}; known: {', '.join(fields)}"
        raise ConfigError(sentence, path=(*path, wrong.unknown))
    name = str(wrong.steps[0]) if wrong.steps else wrong.missing
    place, value = (path, values) if name is None else ((*path, name), values.get(name))
    expected, annotation = (
        worded(wrong.message.removeprefix("Expected ").partition(", got ")[0]),
        fields.get(name or ""),
    )
    described = [meta.description for meta in getattr(annotation, "__metadata__", ()) if meta.description]
    choices = " or ".join(map(repr, get_args(annotation))) if get_origin(annotation) is Literal else ""
    where = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place).lstrip(".")
    raise ConfigError(f"{where} is {shorten(value)}, expected {choices or (*described, expected)[0]}", path=place)
