"""Validation of values by a JSON schema: a tool's parameters, a tool's result, or the output of a run.

`jsonschema-rs` validates: all drafts from 4 to 2020-12, `format` included, at a hundredth of the cost of `jsonschema`.
Schemas come from strangers (MCP servers), and so do the values. This module bounds the harm that they could do
together: a `$ref` is never fetched, a pattern that backtracks too much counts as not matched, schemas that explode are
refused, and values are only as deep as the stack of the compiled schema allows.
Defaults are not filled in: each tool decides itself what a missing parameter means.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, Final

from msgspec import Struct

from spar.checks import shorten
from spar.data.json_safe import plain
from spar.data.paths import MAX_DEPTH, MAX_VALUES
from spar.errors import ConfigError

_EXACT: Final = 2**53  # a larger float does not identify one integer
_STACK: Final = 8000  # steps from schema to schema that fit into the stack; measured: 25,000 do
_STEPS: Final = 100_000  # schemas that validate one value
_BACKTRACKS: Final = 100_000  # a few milliseconds
_SHOW_ALL: Final = 1000  # most values for which all errors are listed; this costs 10 µs a value
_DATA: Final = frozenset({"const", "enum", "default", "examples"})
_DIGITS: Final = 4000  # digits of an integer; the library cannot validate one that Python does not print (4300)
_DRAFTS: Final = {"draft-04": "Draft4", "draft-06": "Draft6", "draft-07": "Draft7", "2019-09": "Draft201909"}
_LONGEST: Final = 300  # characters of a message, which may quote the schema
_LONGEST_INDEX: Final = 8  # digits of an index in a pointer
_EXPLAINED: Final = 3  # alternatives of an `anyOf` that a message explains


class SchemaProblem(Struct, frozen=True):
    """Violation of a schema: at `path` in the value, by the schema's `keyword`, at `via` in the schema."""

    path: tuple[str | int, ...]
    keyword: str
    via: tuple[str | int, ...]
    value: Any
    message: str
    names: tuple[str, ...] = ()  # the properties that are missing or not allowed


class JsonSchema:
    """Compiled schema. `about` begins the message when it cannot be used.

    Raises: ConfigError that names the place in the schema.
    """

    __slots__ = ("_compiled", "_deepest", "_exact", "_make")

    def __init__(self, schema: Mapping[str, Any] | bool, about: str) -> None:
        schema_copy, self._deepest = _copy_schema(schema, about)
        self._make = partial(_compile, schema_copy, about)
        self._compiled = self._make({})
        self._exact: Any = None

    def problems(self, value: Any) -> list[SchemaProblem]:
        """Return the problems of the value; none if it is valid. Never raises."""
        try:
            is_easy = type(value) is dict and all(map(_is_easy, value.values()))
            count, is_vague = (len(value), False) if is_easy else _survey(value, self._deepest)
            if self._compiled.is_valid(value) and not is_vague:
                return []
            judge = self._exactly if is_vague else self._compiled
            if count <= _SHOW_ALL:
                return [_problem(item) for item in judge.iter_errors(value)]
            judge.validate(value)
        except _TooLargeError as error:
            return [SchemaProblem((), "", (), value, str(error))]
        except UnicodeEncodeError:  # a lone surrogate, which any other character can replace
            return self.problems(plain(value, 1 << 62))
        except Exception as error:
            if hasattr(error, "instance_path"):
                return [_problem(error)]
            return [SchemaProblem((), "", (), value, f"it cannot be judged: {error}")]
        return []

    @property
    def _exactly(self) -> Any:
        # Compiled for the first large float: asking Python for each integer costs several times as much.
        if self._exact is None:
            self._exact = self._make({"keywords": {_MARK: _ExactInteger}})
        return self._exact


class Output:
    """Schema of the result of a tool (`_output`)."""

    __slots__ = ("_schema",)

    def __init__(self, tool: str, schema: Mapping[str, Any] | bool) -> None:
        self._schema = JsonSchema(schema, f"tool {tool!r}: its _output")

    def check(self, value: Any) -> str | None:
        """Return the problem of a result as a clause, or None. Never raises."""
        problems = self._schema.problems(value)
        return None if not problems else join_sentences([sentence(item, "output", "output") for item in problems])


def sentence(problem: SchemaProblem, noun: str, whole: str) -> str:
    """Return a problem as a sentence: where, what was found, what is expected."""
    path = (*problem.path, *(problem.names if problem.keyword == "required" else ()))
    where = f"{noun} {shorten('.'.join(map(str, path)))}" if path else whole
    if problem.keyword == "required":
        return f"{where} is missing"
    return f"{where} is {shorten(problem.value)}: {problem.message}" if path else f"{whole}: {problem.message}"


def join_sentences(sentences: list[str], most: int = 3) -> str:
    """Return the first `most` sentences and how many more there are."""
    more = f"; and {len(sentences) - most} more" if len(sentences) > most else ""
    return "; ".join(sentences[:most]) + more


class _TooLargeError(Exception):
    pass


def _is_easy(value: Any) -> bool:
    kind = type(value)
    return kind is str or value is None or kind is bool or (kind is int and -_EXACT <= value <= _EXACT)


def _survey(value: Any, deepest: int) -> tuple[int, bool]:
    """Return the number of values, and whether one is a float that does not identify one integer. Raises:
    _TooLargeError."""
    level, count, is_vague = [value], 0, False
    for _ in range(deepest + 1):
        below: list[Any] = []
        for item in level:
            if isinstance(item, Mapping):
                below.extend(item.values())
            elif isinstance(item, (list, tuple)):
                below.extend(item)
            elif type(item) is float and not -_EXACT <= item <= _EXACT:
                is_vague = True
            elif isinstance(item, int) and item.bit_length() > _DIGITS * 3.3:
                raise _TooLargeError(f"it holds an integer of more than {_DIGITS} digits")
        count += len(level)
        if count > MAX_VALUES:
            raise _TooLargeError(f"it holds more than {MAX_VALUES} values")
        if not below:
            return count, is_vague
        level = below
    raise _TooLargeError(f"it is nested more than {deepest} levels deep")


def _problem(error: Any) -> SchemaProblem:
    kind = error.kind
    names = getattr(kind, "unexpected", None) or ([kind.property] if kind.name == "required" else [])
    message = error.message
    if kind.name in ("anyOf", "oneOf") and (reasons := list(_reasons(kind.context))):
        message = ", and ".join(reasons[:_EXPLAINED]) + (", and so on" if len(reasons) > _EXPLAINED else "")
    return SchemaProblem(
        tuple(error.instance_path),
        kind.name,
        tuple(error.evaluation_path),
        error.instance,
        message if len(message) <= _LONGEST else f"{message[:_LONGEST]}…",
        tuple(map(str, names)),
    )


def _reasons(context: list[list[Any]]) -> Iterator[str]:
    """Yield why each alternative did not match, without repetition."""
    return iter(dict.fromkeys(errors[0].message for errors in context if errors))


def at_pointer(document: Any, pointer: str) -> Any:
    """Return the part of a document that a JSON pointer (`/$defs/name`) names; None if there is none."""
    here = document
    for step in pointer[1:].split("/"):
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(here, Mapping):
            here = here.get(step)
        elif isinstance(here, (list, tuple)) and step.isascii() and step.isdigit() and len(step) < _LONGEST_INDEX:
            here = here[int(step)] if int(step) < len(here) else None
        else:
            return None
    return here


def is_schema(value: Any) -> bool:
    """Return whether a value is an object that is a schema of 2020-12, by the schema of schemas. Never raises."""
    import jsonschema_rs

    try:
        return jsonschema_rs.meta.is_valid({**value, "$schema": "https://json-schema.org/draft/2020-12/schema"})
    except Exception:  # no object, a lone surrogate, too many levels
        return False


def alone(schema: Mapping[str, Any], part: Any) -> Any:
    """Return a part of a schema as a separate schema, with the dialect and the definitions that it may refer to."""
    if not isinstance(part, Mapping):
        return part
    return {**{key: schema[key] for key in ("$schema", "$defs", "definitions") if key in schema}, **part}


# -- reading a schema


def _copy_schema(schema: Any, about: str) -> tuple[Any, int]:
    """Return a copy of the schema, and the depth up to which it can validate values. Raises: ConfigError."""
    if isinstance(schema, bool):
        return schema, MAX_DEPTH
    if not isinstance(schema, Mapping):
        raise ConfigError(f"{about} must be an object, found {shorten(schema)}")
    try:
        _survey(schema, MAX_DEPTH)
        schema_copy = plain(schema, 1 << 62)
        chain, steps = _Extent(schema_copy).most()
    except (_TooLargeError, _EndlessError) as error:
        raise ConfigError(f"{about} cannot be used: {error}") from None
    except RecursionError:
        chain, steps = _STACK, 0
    if steps > _STEPS or chain > _STACK // 8:
        raise ConfigError(f"{about} cannot be used: its $refs and alternatives multiply to too many")
    return schema_copy, min(MAX_DEPTH, _STACK // chain)


class _EndlessError(Exception):
    pass


class _Extent:
    """Longest chain and number of schemas that validate one value, following `$ref`, `allOf` and the like.

    Keywords that lead into the value (`properties`, `items`) are not followed: the next value begins there.
    """

    def __init__(self, root: dict[str, Any]) -> None:
        self._root, self._all = root, list(_objects(root))
        self._known: dict[int, tuple[int, int] | None] = {}
        self._named: dict[str, Any] = {}
        for schema in self._all:
            for key in ("$anchor", "$dynamicAnchor", "$id"):
                if isinstance(name := schema.get(key), str):
                    self._named[name.rpartition("/")[2].removesuffix("#")] = schema

    def most(self) -> tuple[int, int]:
        """Return the longest chain and the greatest number of all places in the schema."""
        extents = [self._extent_at(schema) for schema in self._all]
        return max(chain for chain, _ in extents), max(steps for _, steps in extents)

    def _extent_at(self, schema: dict[str, Any]) -> tuple[int, int]:
        key = id(schema)
        if key in self._known:
            extent = self._known[key]
            if extent is None:
                raise _EndlessError("a $ref leads back to itself without going into the value")
            return extent
        self._known[key] = None
        chain, steps = 0, 1
        for neighbour in self._beside(schema):
            below = self._extent_at(neighbour)
            chain, steps = max(chain, below[0]), min(steps + below[1], _STEPS + 1)
        self._known[key] = extent = (chain + 1, steps)
        return extent

    def _beside(self, schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for key in ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"):
            content = schema.get(key)
            parts = content if isinstance(content, list) else [content]
            if key.startswith("depend") and isinstance(content, dict):
                parts = list(content.values())
            yield from (part for part in parts if isinstance(part, dict))
        for key in ("$ref", "$dynamicRef", "$recursiveRef"):
            content = schema.get(key)
            if isinstance(content, str) and isinstance(target := self._target(content), dict):
                yield target

    def _target(self, reference: str) -> Any:
        """Return the target of a reference; the library handles one outside of the schema, and fetches nothing."""
        name, _, fragment = reference.partition("#")
        here: Any = self._named.get(name.rpartition("/")[2]) if name else self._root
        if not fragment.startswith("/"):
            return self._named.get(fragment) if fragment else here
        return at_pointer(here, fragment)


def _objects(schema: Any) -> Iterator[dict[str, Any]]:
    waiting = [schema]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            yield here
            waiting.extend(item for key, item in here.items() if key not in _DATA)
        elif isinstance(here, list):
            waiting.extend(here)


_MARK: Final = "spar:exact"


class _ExactInteger:
    """Keyword that refuses a float beyond 2**53 where an integer is expected."""

    def __init__(self, parent: Any, value: Any, path: Any) -> None:
        pass

    def validate(self, value: Any) -> None:
        if isinstance(value, float) and not -_EXACT <= value <= _EXACT:
            raise ValueError("it should be an exact integer: a float this large does not say which")


def _mark_integers(schema: Any) -> Any:
    """Return the schema with `_MARK` at each place that expects an integer and no other number."""
    if isinstance(schema, list):
        return [_mark_integers(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    marked = {key: item if key in _DATA else _mark_integers(item) for key, item in schema.items()}
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if "integer" in kinds and "number" not in kinds:
        marked[_MARK] = True
    return marked


def _compile(schema: Any, about: str, more: Mapping[str, Any]) -> Any:
    import jsonschema_rs  # 20 ms that a service without such tools saves

    dialect = str(schema.get("$schema", "")) if isinstance(schema, dict) else ""
    draft = next((validator for name, validator in _DRAFTS.items() if name in dialect), "Draft202012")
    if isinstance(schema, dict):
        schema = {key: item for key, item in schema.items() if key != "$schema"}
    try:
        return getattr(jsonschema_rs, f"{draft}Validator")(
            _mark_integers(schema) if more else schema,
            offline=True,
            validate_formats=True,
            mask="it",
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS),
            **more,
        )
    except Exception as error:
        place = ".".join(map(str, getattr(error, "instance_path", ())))
        at_place = f": {place} is {shorten(error.instance)}" if place else ""  # type: ignore[attr-defined]
        why = getattr(error, "message", "") or str(error).partition("\n")[0]
        raise ConfigError(f"{about} cannot be used{at_place}: {why}") from error
