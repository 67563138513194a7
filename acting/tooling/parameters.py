"""Describes and validates the parameters of a tool: by its signature, or by a JSON schema that it brings.

A function's parameters are validated by pydantic's strict mode for JSON: no JSON type is converted into another one,
but an integer may stand for a float, and a text becomes a date, path, enum or UUID as the schema says. Extra parameters
are errors, and integers are exact or refused. Those of a schema are what JSON Schema says, with the same exceptions.
Everything is read and compiled once. Errors name tool, parameter, what was found and what is expected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from math import isfinite
from typing import Any

import msgspec
from pydantic import TypeAdapter, ValidationError
from pydantic.errors import PydanticUserError
from pydantic_core import SchemaError

from acting.tooling.signatures import Signature, first_line
from spar.checks import SCALARS, shorten
from spar.data.json_schema import JsonSchema, SchemaProblem, join_sentences, sentence
from spar.data.paths import MAX_DEPTH, MAX_VALUES, ValueTooLargeError
from spar.errors import ConfigError

_UNUSABLE = (PydanticUserError, SchemaError, TypeError, ValueError)  # what pydantic raises for a type
_SHOWN = 3  # errors in one message; a planner needs no more to see what it did wrong


class ParametersError(ValueError):
    """Parameters that a tool does not take; the message names the tool and each parameter."""


#: The parameters as the tool is given them; raises what `Objections` then reads, with the names not to judge.
Take = Callable[[Mapping[str, Any]], dict[str, Any]]
Schema = dict[str, Any]
Objections = Callable[[Any, Collection[str]], list[str]]


class Parameters:
    """The parameters of one tool: `schema` for who plans, `validate` for what comes; both made when first needed.

    `context` is the name of the parameter that wants the tool's context, or ""; `is_empty`: it takes none.
    """

    __slots__ = ("_make_schema", "_names", "_objections", "_required", "_some", "_take", "_tool",
                 "context", "is_empty")  # fmt: skip

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
        some: Callable[[], Take] | None = None,
    ) -> None:
        self._make_schema, self.context = schema, context
        #: Takes some of the parameters without missing the others.
        self._some = some
        self._required = frozenset(required) - {"_tool"}
        self._tool, self._names, self._take, self._objections = tool, dict.fromkeys(names).keys(), take, objections
        self.is_empty = not names and not is_open

    @property
    def schema(self) -> Schema:
        """The JSON schema of a call."""
        return self._make_schema()

    @classmethod
    def of_function(cls, tool: str, function: Callable[..., Any], *, context_type: type | None = None) -> Parameters:
        """Read a signature. Raises: ConfigError naming the tool and what about it cannot be called from JSON."""
        try:
            found = Signature.of(tool, function, context_type)
            adapter: Callable[[], TypeAdapter[Any]] = cache(lambda: TypeAdapter(found.exact))
            schema, take = cache(lambda: found.schema(adapter())), cache(lambda: _strictly(adapter().validator))
            if not found.is_sure:
                schema()
                take()
        except ConfigError:
            raise
        except _UNUSABLE as error:
            raise ConfigError(
                f"tool {tool!r}: a parameter's type cannot be given in JSON: {first_line(error)}"
            ) from error
        objections = partial(_of_types, found.names)
        some = cache(lambda: _strictly(TypeAdapter(found.loose).validator))
        return cls(tool, schema, found.names, take, objections, found.context, required=found.required,
                   is_open=found.is_open, some=some)  # fmt: skip

    @classmethod
    def of_schema(cls, tool: str, schema: Mapping[str, Any], *, context: str = "") -> Parameters:
        """Take a given JSON schema. More parameters than it names are errors unless it says otherwise itself.

        What begins with `_` is no parameter. Defaults are for who plans; they are not filled in.
        Raises: ConfigError naming the tool and the place in the schema.
        """
        about = f"tool {tool!r}: its schema"
        if not isinstance(schema, Mapping):
            raise ConfigError(f"{about} must be an object, found {shorten(schema)}")
        properties = schema.get("properties", {})
        if not isinstance(properties, Mapping):
            raise ConfigError(f"{about} cannot be used: properties is {shorten(properties)}: it is not an object")
        taken = {name: each for name, each in properties.items() if not str(name).startswith("_")}
        judged = {"type": "object", **schema, "properties": taken, "required": _parameters(schema.get("required"))}
        if not judged["required"]:
            del judged["required"]  # which draft 4 does not allow to be empty
        if not {"additionalProperties", "unevaluatedProperties"} & judged.keys():
            # Where further properties may be named beside, only this sees them.
            judged["unevaluatedProperties" if _BESIDE & judged.keys() else "additionalProperties"] = False
        whole = {"type": "object", "additionalProperties": judged.get("additionalProperties", True), **schema}
        integers = [name for name, each in taken.items() if isinstance(each, Mapping) and each.get("type") == "integer"]
        take = partial(_taken, JsonSchema(judged, about), integers)
        return cls(tool, lambda: whole, list(taken), lambda: take, partial(_of_schema, list(taken)), context,
                   required=whole.get("required", ()), is_open=whole["additionalProperties"] is not False)  # fmt: skip

    def validate(self, params: Mapping[str, Any], unresolved: Collection[str] = ()) -> dict[str, Any]:
        """The parameters as the tool is given them.

        Those named in `unresolved` still hold references and are not judged; what is returned is then of no use.
        Raises: ParametersError.
        """
        if unresolved:
            if len(unresolved) == len(params) and params.keys() == self._names:
                return {}
            if self._some is not None and self._required <= params.keys() and self._names >= set(unresolved):
                try:
                    self._some()({name: value for name, value in params.items() if name not in unresolved})
                    return {}
                except Exception:  # what is wrong is found out by the way that all take
                    pass
        try:
            return self._take()(params)
        except (ValidationError, _UnfitError) as error:
            objections = self._objections(error, unresolved)
        except Exception as error:  # a validator that belongs to one of the tool's own types
            objections = [f"the parameters {shorten(params)} cannot be validated: {shorten(error)}"]
        if objections:
            raise ParametersError(f"tool {self._tool!r}: {join_sentences(objections, _SHOWN)}")
        return {}


def check_finite(tool: str, params: Mapping[str, Any]) -> None:
    """Refuse NaN and infinities, which JSON has no word for, wherever they stand.

    Raises: ParametersError; ValueTooLargeError for a value without an end, or nested too deeply.
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


def _strictly(validator: Any) -> Take:
    """Return what validates as JSON, without conversion from one type of it to another."""

    def take(params: Mapping[str, Any]) -> dict[str, Any]:
        try:
            found: dict[str, Any] = validator.validate_python(params, strict=True)
            return found
        except ValidationError as error:
            # Only of JSON does pydantic know that a date, an enum or a tuple is written as something else.
            try:
                found = validator.validate_json(_json(params), strict=True)
                return found
            except ValidationError as other:
                raise (error if other.errors(include_url=False)[0]["type"] == "json_invalid" else other) from None
            except (TypeError, ValueError):
                raise error from None

    return take


def _json(params: Mapping[str, Any]) -> bytes:
    try:
        return msgspec.json.encode(params)
    except Exception:  # an integer of more than 64 bits
        return json.dumps(params, allow_nan=False).encode()


def _of_types(names: Collection[str], error: ValidationError, unresolved: Collection[str]) -> list[str]:
    """Return pydantic's errors, in sentences."""
    found = error.errors(include_url=False, include_context=False)
    return [_told(names, each) for each in found if _counts(each, unresolved)]


def _counts(error: Any, unresolved: Collection[str]) -> bool:
    where = error["loc"]
    return not where or where[0] not in unresolved or (error["type"] == "extra_forbidden" and len(where) == 1)


def _told(names: Collection[str], error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
        return _unknown(where, names)
    if error["type"] == "missing":
        return f"parameter {shorten(where)} is missing"
    expected = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"parameter {shorten(where)} is {shorten(error['input'])}, it {expected[:1].lower()}{expected[1:]}"


def _unknown(name: str, names: Collection[str]) -> str:
    return f"no parameter {shorten(name)}; known: {', '.join(names) or 'none'}"


# -- by a schema


class _UnfitError(Exception):
    def __init__(self, problems: list[SchemaProblem]) -> None:
        self.problems = problems


def _taken(schema: JsonSchema, integers: Collection[str], params: Mapping[str, Any]) -> dict[str, Any]:
    if problems := schema.problems(params):
        raise _UnfitError(problems)
    found = dict(params)
    for name in integers:
        if type(found.get(name)) is float:
            found[name] = int(found[name])  # 5.0 is an integer in JSON, but not to Python
    return found


def _of_schema(names: Collection[str], error: _UnfitError, unresolved: Collection[str]) -> list[str]:
    """Return the schema's errors, in sentences; what hangs on an unresolved parameter is left out."""
    sentences = []
    for each in error.problems:
        if each.keyword in _EXTRA and not each.path:
            if each.keyword != "unevaluatedProperties" or not unresolved:
                sentences += [_unknown(name, names) for name in each.names]
        elif not unresolved or _is_certain(each, unresolved):
            sentences.append(sentence(each, "parameter", "the parameters"))
    return sentences


def _is_certain(problem: SchemaProblem, unresolved: Collection[str]) -> bool:
    if problem.path:
        return problem.path[0] not in unresolved and problem.via[0] in ("properties", *_EXTRA, "patternProperties")
    return not problem.via or problem.via[0] in _ABOUT_NAMES


_EXTRA = ("additionalProperties", "unevaluatedProperties")
_ABOUT_NAMES = ("required", "dependentRequired", "minProperties", "maxProperties", "propertyNames")
_BESIDE = {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "then", "else", "dependentSchemas"}


def _parameters(required: Any) -> Any:
    return [name for name in required if not str(name).startswith("_")] if isinstance(required, list) else required
