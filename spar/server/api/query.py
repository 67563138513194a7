"""Query of a request, read into the fields of a structure: typed, bounded, and without unknown parameters.

Each field is a parameter: its type defines the accepted values, its default holds without the parameter, its `Meta`
has the description. The types are `str`, `int`, `float`, `bool`, `datetime` and `Literal`; a parameter of the type
`list[str]` may be repeated.
"""

from __future__ import annotations

from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import FieldInfo
from starlette.datastructures import QueryParams

from spar.decoding import convert, json_schema


class NoQuery(Struct, frozen=True):
    """Query without parameters."""


Q = TypeVar("Q", bound=Struct)
#: A parameter that several routes have.
Session = Annotated[str | None, Meta(description="Only of this session.")]
#: Characters of a wrong value that the error shows.
_SHOWN = 60


def read_query(params: QueryParams, kind: type[Q]) -> Q:
    """Return the query of a request as a structure. Raises: ValueError that names the parameter and accepted values."""
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    for name in params:
        field = fields.get(name)
        if field is None:
            raise ValueError(f"no parameter {name[:40]!r}; known: {', '.join(fields) or 'none'}")
        texts = params.getlist(name)
        if is_list(field):
            values[field.name] = texts
        elif len(texts) > 1:
            raise ValueError(f"{name} is given {len(texts)} times, it is one value")
        else:
            values[field.name] = _value(name, texts[0], field)
    return kind(**values)


def is_list(field: FieldInfo) -> bool:
    """Return whether a parameter may be repeated."""
    return get_origin(_plain(field.type)[0]) is list


def meaning(field: FieldInfo) -> str:
    """Return the description of a parameter."""
    return next((meta.description for meta in _metas(field.type) if meta.description), "")


def accepted_values(field: FieldInfo) -> str:
    """Return the accepted values of a parameter in words, such as `1 to 1000` or `one of open, closed`."""
    plain, metas = _plain(field.type)
    if get_origin(plain) is Literal:
        return f"one of {', '.join(map(str, get_args(plain)))}"
    if plain in (int, float):
        least = next((meta.ge for meta in metas if meta.ge is not None), None)
        most = next((meta.le for meta in metas if meta.le is not None), None)
        noun = "a whole number of at most 64 bits" if plain is int else "a number"
        return (
            noun
            if least is None and most is None
            else f"{noun} from {least:g}"
            if most is None
            else f"{least:g} to {most:g}"
        )
    if plain is bool:
        return "1 or 0"
    if plain is datetime:
        return "a time such as 2026-11-22T18:00:00+00:00"
    most = next((meta.max_length for meta in metas if meta.max_length is not None), None)
    return "a text" if most is None else f"a text of at most {most} characters"


def schema_of(field: FieldInfo) -> dict[str, Any]:
    """Return the JSON schema of a parameter's value."""
    plain, _ = _plain(field.type)
    schema = dict(json_schema(_bounded(field.type)))
    schema.pop("description", None)
    if get_origin(plain) is Literal:
        schema.setdefault("type", "string")
    if field.default is not msgspec.NODEFAULT and field.default is not None:
        schema["default"] = field.default
    return schema


def _value(name: str, text: str, field: FieldInfo) -> Any:
    """Return the text of a parameter as a value of its type. Raises: ValueError."""
    plain, _ = _plain(field.type)
    try:
        if plain is datetime:
            at = datetime.fromisoformat(text)
            return at if at.tzinfo is not None else at.astimezone()
        value = convert(text, _bounded(field.type), strict=False)
        if plain is int and not -(2**63) <= value < 2**63:
            raise ValueError
        return value
    except (msgspec.ValidationError, ValueError):
        wrong = f"{name} has {len(text)} characters" if len(text) > 1_000 else f"{name} = {text[:_SHOWN]!r}"
        raise ValueError(f"{wrong}: must be {accepted_values(field)}") from None


def _plain(annotation: Any) -> tuple[Any, list[Meta]]:
    """Return a type without its annotations and without None, and the `Meta` annotations."""
    metas: list[Meta] = []
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *more = get_args(annotation)
            metas += [meta for meta in more if isinstance(meta, Meta)]
        elif get_origin(annotation) in (Union, UnionType):
            (annotation,) = (member for member in get_args(annotation) if member is not NoneType)
        else:
            return annotation, metas


def _metas(annotation: Any) -> list[Meta]:
    return _plain(annotation)[1]


def _bounded(annotation: Any) -> Any:
    """Return a type with its bounds but without None, so that the text `null` stays a text."""
    plain, metas = _plain(annotation)
    for meta in metas:
        plain = Annotated[plain, meta]
    return plain
