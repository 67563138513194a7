"""Signature of a constructor as the description of its options.

The annotations say which values an option may have; pydantic checks and converts them (a text to a path, a list to a
tuple). A number may be written as a duration (`"5m"` is 300). Parameters annotated `Home` or `Programs`, and those that
the composition root fills in, are not options.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import TypeAdapter, ValidationError, with_config
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema, PydanticOmit
from typing_extensions import TypedDict, is_protocol

from spar.config.lines import Problem, Refusal, refusal, refused, sentence_of
from spar.config.refusals import problems, shown
from spar.config.tables.fields import DURATION, Whole
from spar.config.toml_lines import KeyPath
from spar.errors import ConfigError
from spar.ports.programs import Programs
from spar.protocols import Home

typed_dict: Any = TypedDict  # type checkers know only those that are written out


class Signature:
    """Parameters of a part's constructor.

    Args: target: the class, or the function that makes the part; name: its name for errors; path: where it is
        configured.
    Raises: ConfigError if its parameters cannot be read.
    """

    def __init__(self, target: Callable[..., Any], name: str, path: KeyPath = ()) -> None:
        self._target, self._name, self._path = target, name, path
        try:
            parameters = inspect.signature(target).parameters
            # A class has its own __init__, or (a Struct, a dataclass) only annotated fields.
            init = inspect.getattr_static(target, "__init__") if isinstance(target, type) else None
            hints = typing.get_type_hints(init if inspect.isfunction(init) else target, include_extras=True)
        except Exception as error:
            raise refused(path, f"the parameters of the {name} cannot be read: {sentence_of(error)}") from error
        self._takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
        self._parameters = {
            key: parameter
            for key, parameter in parameters.items()
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        }
        #: Parameters that get the folders of the service, or the runner of programs.
        self._injected = {
            key: port for key in self._parameters for port in (Home, Programs) if _is_a(port, hints.get(key))
        }
        self._annotations = {key: hints.get(key, Any) for key in self._parameters}

    def make(
        self,
        options: Mapping[str, Any],
        where: KeyPath,
        home: Home | None = None,
        extra: Mapping[str, Any] | None = None,
        programs: Callable[[], Programs] | None = None,
    ) -> Any:
        """Make the part from the given options, checked and converted, and from the injected values.

        Args: where: the place of the options. Raises: ConfigError with one line for each wrong option, or with the
        reason why the part cannot be made.
        """
        if not isinstance(options, Mapping):
            raise Refusal([Problem(where, f" = {shown(options)}: must be a table")])
        given = {key: value for key, value in (extra or {}).items() if key in self._parameters}
        for key, port in self._injected.items():
            if (value := home if port is Home else programs and programs()) is not None:
                given[key] = value
            elif port is Home and self._is_required(key):
                raise refused(where, f"the {self._name} needs a home, and there is none here")
        values = self._validate(options, where, given) | given
        positional = [
            values.pop(key)
            for key, item in self._parameters.items()
            if item.kind is item.POSITIONAL_ONLY and key in values
        ]
        try:
            return self._target(*positional, **values)
        except ConfigError as error:
            # An argument of the composition root is not an option, and stands at its own place in the file.
            is_option = bool(error.path) and error.path[0] in {*self.options(given), *options}
            raise refusal(error, where if is_option else () if error.path else self._path) from error
        except Exception as error:
            raise refused(self._path, f"the {self._name} cannot be made: {sentence_of(error)}") from error

    def options(self, extra: Collection[str]) -> tuple[str, ...]:
        """Return the names of the options that can be configured."""
        ports = {key for key, hint in self._annotations.items() if _is_port(hint)}  # they come from code
        return tuple(key for key in self._annotations if key not in {*extra, *ports, *self._injected})

    def schema(self, extra: Collection[str]) -> dict[str, Any]:
        """Return the JSON schema of the options, without those in `extra`, which the composition root fills in."""
        schema = self._table(self.options(extra)).json_schema(schema_generator=_FileSchema)
        if required := [key for key in schema.pop("required", ()) if self._is_required(key)]:
            schema["required"] = required
        return schema

    def _validate(self, options: Mapping[str, Any], path: KeyPath, extra: Mapping[str, Any]) -> dict[str, Any]:
        known = {key: self._annotations[key] for key in self.options(extra)}
        names = [key for key in known if key in options or self._is_required(key)]
        if not names and not options:
            return {}
        try:
            return self._table(names).validate_python(dict(options))
        except ValidationError as error:
            wrong = problems(error, known, options)
            raise Refusal([Problem((*path, *problem.path), problem.tail) for problem in wrong]) from None
        except Exception as error:
            raise refused(path, f"the options of the {self._name} cannot be checked: {sentence_of(error)}") from error

    def _table(self, names: Iterable[str]) -> TypeAdapter[dict[str, Any]]:
        """Return the judge of a table that has all of these options."""
        table: Any = with_config(
            extra="allow" if self._takes_any else "forbid", allow_inf_nan=False, arbitrary_types_allowed=True
        )(typed_dict("Options", {key: _lenient(self._annotations[key]) for key in names}))
        return TypeAdapter(table)

    def _is_required(self, key: str) -> bool:
        return self._parameters[key].default is inspect.Parameter.empty


def _is_a(port: type, annotation: Any) -> bool:
    return annotation is port or port in get_args(annotation)


def _is_port(annotation: Any) -> bool:
    return any(is_protocol(kind) for kind in (annotation, *get_args(annotation)))


class _FileSchema(GenerateJsonSchema):
    """Generator of schemas that leaves out types that no file can hold, such as a callable."""

    def handle_invalid_for_json_schema(self, schema: CoreSchema, error_info: str) -> JsonSchemaValue:
        raise PydanticOmit


def _lenient(annotation: Any) -> Any:
    """Return the annotation whose numbers accept durations and refuse true and false."""
    if annotation is float:
        return Annotated[float, DURATION]
    if annotation is int:
        return Whole
    if get_origin(annotation) is Annotated:
        inner, *metadata = get_args(annotation)
        return Annotated[(_lenient(inner), *metadata)]
    if get_origin(annotation) in (Union, types.UnionType):
        return Union[tuple(_lenient(part) for part in get_args(annotation))]  # noqa: UP007
    return annotation
