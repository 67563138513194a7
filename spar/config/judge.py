"""Validation of tables by pydantic models, which are made from their annotations when they are first needed.

A table is plain values (`spar.config.tables`). For each table this module makes one model, which validates given values
and describes valid ones for editors. Valid values become the table again, whose own checks come last.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

from msgspec import NODEFAULT
from msgspec.structs import FieldInfo
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    WithJsonSchema,
    create_model,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from spar.config.tables.fields import After, Before, Matching, Reading
from spar.config.tables.section import Section, Unfit, as_table, default_of, settings_of

S = TypeVar("S", bound=Section)


def judged(table: type[S], given: Any) -> S:
    """Return the validated table. Raises: ValidationError."""
    return _build(table, model_of(table).model_validate(given))


def schema_of(table: type[Section]) -> dict[str, Any]:
    """Return the JSON schema of a table, with its descriptions."""
    return model_of(table, is_described=True).model_json_schema()


@functools.cache
def model_of(table: type[Section], *, is_described: bool = False) -> type[BaseModel]:
    """Return the model that validates a table."""
    texts: dict[str, str] = {}
    if is_described:
        from spar.config.tables.descriptions import describe

        texts = describe(table)
    fields: dict[str, Any] = {
        name: (_convert(field.type, is_described), Field(_shown_default(field), description=texts.get(name)))
        for name, field in settings_of(table).items()
    }
    config = ConfigDict(extra="allow" if table.rest else "forbid", allow_inf_nan=False, defer_build=True)
    return create_model(table.__name__, __config__=config, __doc__=table.__doc__, __module__=__name__, **fields)


def followed(annotation: Any) -> Any:
    """Return an annotation with pydantic's marks in place of ours."""
    return _convert(annotation, False)


def _convert(annotation: Any, is_described: bool) -> Any:
    origin, parts = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Section):
        model = model_of(annotation, is_described=is_described)
        return Annotated[model, AfterValidator(functools.partial(_build, annotation))]
    if origin is Annotated:
        marks = [pydantic_mark for mark in parts[1:] for pydantic_mark in _pydantic_marks(mark)]
        return Annotated[(_convert(parts[0], is_described), *marks)]
    if origin in (Union, UnionType):
        return Union[tuple(_convert(part, is_described) for part in parts)]  # noqa: UP007
    if origin is tuple:
        return tuple[_convert(parts[0], is_described), ...]  # type: ignore[misc]
    return annotation


def _pydantic_marks(mark: Any) -> tuple[Any, ...]:
    match mark:
        case Reading():
            return PlainValidator(mark.read), WithJsonSchema(mark.schema)
        case Before(read):
            return (BeforeValidator(read),)
        case After(read):
            return (AfterValidator(functools.partial(_call, read)),)
        case Matching(text):
            return (Field(pattern=text),)
    return (mark,)


def _build(table: type[S], model: BaseModel) -> S:
    settings = {name: getattr(model, name) for name in type(model).model_fields if name in model.model_fields_set}
    other_keys = {table.rest: model.model_extra} if table.rest else {}
    section: S = _call(lambda values: table(**values), {**settings, **other_keys})
    return section


def _call(read: Callable[[Any], Any], value: Any) -> Any:
    """Return `read(value)`; turn an `Unfit` error for a place inside the value into an error of pydantic."""
    try:
        return read(value)
    except Unfit as error:
        problem = PydanticCustomError("allowed", "{sentence}", {"sentence": str(error)})
        wrong = InitErrorDetails(type=problem, loc=error.path, input=error.value)
        raise ValidationError.from_exception_data("settings", [wrong]) from None


def _shown_default(field: FieldInfo) -> Any:
    """Return a default in the form for editors; the table itself applies the real one."""
    default = default_of(field)
    if default is NODEFAULT:
        return ...
    return as_table(default) if isinstance(default, Section) else default
