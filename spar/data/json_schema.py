"""Values judged by a JSON schema that was given: a tool's parameters, what a tool returns, or the output of a run.

The judging is `jsonschema-rs`: all of the drafts from 4 to 2020-12, `format` included, at a hundredth of the cost of
`jsonschema`. A schema comes from strangers (MCP servers), and so does the value; what they could do together is
bounded here: nothing is ever fetched for a `$ref`, a pattern that backtracks too much counts as not matched, schemas
that explode are refused, and values are only as deep as the compiled schema has stack for.
Defaults are not filled in: what a tool does without a parameter is the tool's affair.
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

_EXACT: Final = 2**53  # beyond it a float no longer says which integer was meant
_STACK: Final = 8000  # steps from schema to schema that fit the stack; measured: 25,000 do
_STEPS: Final = 100_000  # judgements of one and the same value
_BACKTRACKS: Final = 100_000  # a few milliseconds
_SHOW_ALL: Final = 1000  # values up to which every error is looked for; it costs 10 µs for each
_DATA: Final = frozenset({"const", "enum", "default", "examples"})
_DIGITS: Final = 4000  # of an integer; the library cannot judge one that Python does not print (4300)
_DRAFTS: Final = {"draft-04": "Draft4", "draft-06": "Draft6", "draft-07": "Draft7", "2019-09": "Draft201909"}
_LONGEST: Final = 300  # characters of a message, which may quote the schema
_LONGEST_INDEX: Final = 8  # digits of an index in a pointer
_EXPLAINED: Final = 3  # alternatives of an `anyOf` that are told apart


class SchemaProblem(Struct, frozen=True):
    """One thing that is wrong: at `path` in the value, by the schema's `keyword`, reached over `via`."""

    path: tuple[str | int, ...]
    keyword: str
    via: tuple[str | int, ...]
    found: Any
    message: str
    names: tuple[str, ...] = ()  # the properties that are missing or too many


class JsonSchema:
    """A schema, compiled. `about` begins the message when it cannot be used.

    Raises: ConfigError that names the place in the schema.
    """

    __slots__ = ("_compiled", "_deepest", "_exact", "_make")

    def __init__(self, schema: Mapping[str, Any] | bool, about: str) -> None:
        made, self._deepest = _copied(schema, about)
        self._make = partial(_compile, made, about)
        self._compiled = self._make({})
        self._exact: Any = None

    def problems(self, value: Any) -> list[SchemaProblem]:
        """Return the problems of the value; none if it fits. Never raises."""
        try:
            is_easy = type(value) is dict and all(map(_is_easy, value.values()))
            count, is_vague = (len(value), False) if is_easy else _survey(value, self._deepest)
            if self._compiled.is_valid(value) and not is_vague:
                return []
            judge = self._exactly if is_vague else self._compiled
            if count <= _SHOW_ALL:
                return [_problem(each) for each in judge.iter_errors(value)]
            judge.validate(value)
        except _TooLargeError as error:
            return [SchemaProblem((), "", (), value, str(error))]
        except UnicodeEncodeError:  # a lone surrogate, for which any other character can stand
            return self.problems(plain(value, 1 << 62))
        except Exception as error:
            if hasattr(error, "instance_path"):
                return [_problem(error)]
            return [SchemaProblem((), "", (), value, f"it cannot be judged: {error}")]
        return []

    @property
    def _exactly(self) -> Any:
        # Compiled when a large float first comes: asking Python for each integer costs several times as much.
        if self._exact is None:
            self._exact = self._make({"keywords": {_MARK: _ExactInteger}})
        return self._exact


class Output:
    """The schema of what a tool returns (`_output`)."""

    __slots__ = ("_schema",)

    def __init__(self, tool: str, schema: Mapping[str, Any] | bool) -> None:
        self._schema = JsonSchema(schema, f"tool {tool!r}: its _output")

    def check(self, value: Any) -> str | None:
        """Return the problem of a result as a clause, or None. Never raises."""
        found = self._schema.problems(value)
        return None if not found else told([sentence(each, "output", "output") for each in found])


def sentence(problem: SchemaProblem, noun: str, whole: str) -> str:
    """A problem as it is told: where, what was found, what is expected."""
    path = (*problem.path, *(problem.names if problem.keyword == "required" else ()))
    where = f"{noun} {shorten('.'.join(map(str, path)))}" if path else whole
    if problem.keyword == "required":
        return f"{where} is missing"
    return f"{where} is {shorten(problem.found)}: {problem.message}" if path else f"{whole}: {problem.message}"


def told(sentences: list[str], most: int = 3) -> str:
    """The first few sentences and how many more there are."""
    more = f"; and {len(sentences) - most} more" if len(sentences) > most else ""
    return "; ".join(sentences[:most]) + more


class _TooLargeError(Exception):
    pass


def _is_easy(value: Any) -> bool:
    kind = type(value)
    return kind is str or value is None or kind is bool or (kind is int and -_EXACT <= value <= _EXACT)


def _survey(value: Any, deepest: int) -> tuple[int, bool]:
    """Return how many values there are, and whether one is a float that stands for no single integer."""
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
    """Why each alternative was not it, without repetition."""
    return iter(dict.fromkeys(errors[0].message for errors in context if errors))


def at_pointer(document: Any, pointer: str) -> Any:
    """Return what a JSON pointer (`/$defs/name`) names inside a document; None where there is nothing."""
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


def alone(schema: Mapping[str, Any], part: Any) -> Any:
    """Return a part of a schema as a schema of its own, with the dialect and the definitions that it may refer to."""
    if not isinstance(part, Mapping):
        return part
    return {**{key: schema[key] for key in ("$schema", "$defs", "definitions") if key in schema}, **part}


# -- taking a schema in


def _copied(schema: Any, about: str) -> tuple[Any, int]:
    """A copy of the schema that is ours, and how deep the values may be that it judges."""
    if isinstance(schema, bool):
        return schema, MAX_DEPTH
    if not isinstance(schema, Mapping):
        raise ConfigError(f"{about} must be an object, found {shorten(schema)}")
    try:
        _survey(schema, MAX_DEPTH)
        made = plain(schema, 1 << 62)
        chain, steps = _Extent(made).most()
    except (_TooLargeError, _EndlessError) as error:
        raise ConfigError(f"{about} cannot be used: {error}") from None
    except RecursionError:
        chain, steps = _STACK, 0
    if steps > _STEPS or chain > _STACK // 8:
        raise ConfigError(f"{about} cannot be used: its $refs and alternatives multiply to too many")
    return made, min(MAX_DEPTH, _STACK // chain)


class _EndlessError(Exception):
    pass


class _Extent:
    """The longest chain and the number of schemas by which one value is judged, following `$ref`, `allOf` and the like.

    What steps into the value (`properties`, `items`) is not followed: the next value begins there.
    """

    def __init__(self, root: dict[str, Any]) -> None:
        self._root, self._all = root, list(_objects(root))
        self._known: dict[int, tuple[int, int] | None] = {}
        self._named: dict[str, Any] = {}
        for each in self._all:
            for key in ("$anchor", "$dynamicAnchor", "$id"):
                if isinstance(name := each.get(key), str):
                    self._named[name.rpartition("/")[2].removesuffix("#")] = each

    def most(self) -> tuple[int, int]:
        """Chain and number, for whichever place in the schema has the most."""
        found = [self._at(each) for each in self._all]
        return max(chain for chain, _ in found), max(steps for _, steps in found)

    def _at(self, schema: dict[str, Any]) -> tuple[int, int]:
        key = id(schema)
        if key in self._known:
            found = self._known[key]
            if found is None:
                raise _EndlessError("a $ref leads back to itself without going into the value")
            return found
        self._known[key] = None
        chain, steps = 0, 1
        for each in self._beside(schema):
            below = self._at(each)
            chain, steps = max(chain, below[0]), min(steps + below[1], _STEPS + 1)
        self._known[key] = found = (chain + 1, steps)
        return found

    def _beside(self, schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
        for key in ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies"):
            found = schema.get(key)
            many = found if isinstance(found, list) else [found]
            if key.startswith("depend") and isinstance(found, dict):
                many = list(found.values())
            yield from (each for each in many if isinstance(each, dict))
        for key in ("$ref", "$dynamicRef", "$recursiveRef"):
            found = schema.get(key)
            if isinstance(found, str) and isinstance(target := self._target(found), dict):
                yield target

    def _target(self, reference: str) -> Any:
        """Return the target of a reference; one out of the schema is left to the library, which fetches nothing."""
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
            waiting.extend(each for key, each in here.items() if key not in _DATA)
        elif isinstance(here, list):
            waiting.extend(here)


_MARK: Final = "spar:exact"


class _ExactInteger:
    """The keyword that refuses a float beyond 2**53 where an integer is wanted."""

    def __init__(self, parent: Any, value: Any, path: Any) -> None:
        pass

    def validate(self, value: Any) -> None:
        if isinstance(value, float) and not -_EXACT <= value <= _EXACT:
            raise ValueError("it should be an exact integer: a float this large does not say which")


def _marked(schema: Any) -> Any:
    """The schema with `_MARK` wherever an integer, and no other number, is wanted."""
    if isinstance(schema, list):
        return [_marked(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: each if key in _DATA else _marked(each) for key, each in schema.items()}
    kind = schema.get("type")
    kinds = kind if isinstance(kind, list) else [kind]
    if "integer" in kinds and "number" not in kinds:
        made[_MARK] = True
    return made


def _compile(schema: Any, about: str, more: Mapping[str, Any]) -> Any:
    import jsonschema_rs  # 20 ms that a service without such tools need not spend

    dialect = str(schema.get("$schema", "")) if isinstance(schema, dict) else ""
    draft = next((made for name, made in _DRAFTS.items() if name in dialect), "Draft202012")
    if isinstance(schema, dict):
        schema = {key: each for key, each in schema.items() if key != "$schema"}
    try:
        return getattr(jsonschema_rs, f"{draft}Validator")(
            _marked(schema) if more else schema,
            offline=True,
            validate_formats=True,
            mask="it",
            pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=_BACKTRACKS),
            **more,
        )
    except Exception as error:
        place = ".".join(map(str, getattr(error, "instance_path", ())))
        found = f": {place} is {shorten(error.instance)}" if place else ""  # type: ignore[attr-defined]
        why = getattr(error, "message", "") or str(error).partition("\n")[0]
        raise ConfigError(f"{about} cannot be used{found}: {why}") from error
