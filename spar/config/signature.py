"""Signature of a constructor as the description of its options.

The annotations say which values an option may have; pydantic checks and converts them (a text to a path, a list to a
tuple). A number may be written as a duration (`"5m"` is 300). Parameters annotated `Home` or `Programs`, and those that
the composition root fills in, are not options.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError, WithJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, PydanticOmit, SchemaError

from spar.config.lines import Problem, Refusal
from spar.config.refusals import problems, shown
from spar.config.tables.fields import Before, Whole, not_a_flag, seconds
from spar.config.tables.section import Keys
from spar.config.toml_lines import KeyPath
from spar.ports.programs import Programs
from spar.protocols import Home


class Signature:
    """Parameters of a part's constructor."""

    def __init__(self, signature: inspect.Signature, hints: Mapping[str, Any], name: str) -> None:
        self._signature, self._name = signature, name
        kinds = {parameter.name: parameter.kind for parameter in signature.parameters.values()}
        self._takes_any = inspect.Parameter.VAR_KEYWORD in kinds.values()
        named = [key for key, kind in kinds.items() if kind not in (_STAR, _STARS)]
        self._home = {key for key in named if _is_a(Home, hints.get(key))}
        #: Names of the parameters that get the runner of programs.
        self.programs = tuple(key for key in named if _is_a(Programs, hints.get(key)))
        is_given = {*self._home, *self.programs}
        self._annotations = {key: hints.get(key, Any) for key in named if key not in is_given}
        self._writable: dict[str, bool] = {}

    @classmethod
    def of(cls, target: Callable[..., Any], name: str, path: KeyPath) -> Signature:
        """Return the signature of a class or a function. Raises: ConfigError if it cannot be read."""
        try:
            signature = inspect.signature(target)
            # A class has its own __init__, or (a Struct, a dataclass) only annotated fields.
            init = inspect.getattr_static(target, "__init__") if isinstance(target, type) else None
            source = init if inspect.isfunction(init) else target
            hints = typing.get_type_hints(source, include_extras=True)
        except Exception as error:
            sentence = f": the parameters of the {name} cannot be read: {type(error).__name__}: {error}"
            raise Refusal([Problem(path, sentence)]) from error
        return cls(signature, hints, name)

    def options(self, extra: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the names of the options that can be configured."""
        return tuple(key for key in self._annotations if key not in extra and self._is_writable(key))

    def read(
        self, options: Mapping[str, Any], path: KeyPath, *, home: Home | None, extra: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the arguments for a call: the given options, checked and converted, and the injected values.

        Raises: ConfigError with one line for each wrong option.
        """
        if self._home and home is None and any(self._is_required(key) for key in self._home):
            raise Refusal([Problem(path, f": the {self._name} needs a home, and there is none here")])
        if not isinstance(options, Mapping):
            raise Refusal([Problem(path, f" = {shown(options)}: must be a table")])
        given = {key: value for key, value in extra.items() if key in self._annotations or key in self.programs}
        return {**self._validate(options, path, extra), **given, **(dict.fromkeys(self._home, home) if home else {})}

    def call(self, target: Callable[..., Any], values: Mapping[str, Any]) -> Any:
        """Call with these arguments, also if parameters are positional-only."""
        positional = [key for key, parameter in self._signature.parameters.items() if parameter.kind is _POSITIONAL]
        others = {key: value for key, value in values.items() if key not in positional}
        return target(*(values[key] for key in positional if key in values), **others)

    def schema(self, extra: Collection[str]) -> dict[str, Any]:
        """Return the JSON schema of the options, without those in `extra`, which the composition root fills in."""
        return self._table(self.options(dict.fromkeys(extra))).json_schema(schema_generator=_FileSchema)

    def _validate(self, options: Mapping[str, Any], path: KeyPath, extra: Mapping[str, Any]) -> dict[str, Any]:
        names = self._relevant(options, extra)
        if not names and not options:
            return {}
        try:
            return self._table(names).validate_python(dict(options))
        except ValidationError as error:
            wrong = problems(error, {key: self._annotations[key] for key in names}, options)
            raise Refusal([Problem((*path, *problem.path), problem.tail) for problem in wrong]) from None
        except Exception as error:
            sentence = f"the options of the {self._name} cannot be checked: {type(error).__name__}: {error}"
            raise Refusal([Problem(path, f": {sentence}")]) from error

    def _relevant(self, options: Mapping[str, Any], extra: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the options that are given or required; all options if an unknown one is given."""
        names = [key for key in self._annotations if key in options or self._is_required(key)]
        names = [key for key in names if key not in extra and self._is_writable(key)]
        is_known = self._takes_any or set(options) <= set(names)
        return tuple(names) if is_known else self.options(extra)

    def _table(self, names: Iterable[str]) -> TypeAdapter[dict[str, Any]]:
        required = frozenset(filter(self._is_required, names))
        return _adapter(Keys({key: _lenient(self._annotations[key]) for key in names}, required, self._takes_any))

    def _is_writable(self, key: str) -> bool:
        """Return whether a file can hold such a value; a port (for example a clock) has a default and comes from
        code."""
        if key not in self._writable:
            hint = self._annotations[key]
            self._writable[key] = self._is_required(key) or _is_plain(hint) or _has_schema(hint)
        return self._writable[key]

    def _is_required(self, key: str) -> bool:
        return self._signature.parameters[key].default is inspect.Parameter.empty


_STAR, _STARS = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
_POSITIONAL = inspect.Parameter.POSITIONAL_ONLY


def _adapter(table: Keys) -> TypeAdapter[dict[str, Any]]:
    return TypeAdapter(Annotated[dict[str, Any], table], config=ConfigDict(arbitrary_types_allowed=True))


#: Types of plain TOML values.
_PLAIN = (str, int, float, bool, types.NoneType, Any)


def _is_plain(annotation: Any) -> bool:
    """Return whether a file can surely hold such a value; this test is cheaper than making a model."""
    if get_origin(annotation) in (Union, types.UnionType, list, tuple, dict, Mapping, Sequence):
        return all(_is_plain(part) for part in get_args(annotation) if part is not ...)
    return annotation in _PLAIN or get_origin(annotation) is Literal


def _has_schema(annotation: Any) -> bool:
    try:
        _adapter(Keys({"value": _lenient(annotation)}, frozenset()))
    except (PydanticUserError, SchemaError, TypeError):
        return False
    return True


def _is_a(port: type, annotation: Any) -> bool:
    return annotation is port or port in get_args(annotation)


def _duration_or_number(value: Any) -> Any:
    number = seconds(value) if isinstance(value, str) else None
    return value if number is None else number


_NUMBER = Annotated[float, not_a_flag, Before(_duration_or_number), WithJsonSchema({"type": ["number", "string"]})]


class _FileSchema(GenerateJsonSchema):
    """Generator of schemas that leaves out types that no file can hold, such as a callable."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

    def handle_invalid_for_json_schema(self, schema: CoreSchema, error_info: str) -> JsonSchemaValue:
        raise PydanticOmit


def _lenient(annotation: Any) -> Any:
    """Return the annotation whose numbers accept durations and refuse true and false."""
    if annotation is float:
        return _NUMBER
    if annotation is int:
        return Whole
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        return Annotated[(_lenient(inner), *metadata)]
    if get_origin(annotation) in (Union, types.UnionType):
        return Union[tuple(_lenient(part) for part in get_args(annotation))]  # noqa: UP007
    return annotation
