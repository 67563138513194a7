"""Fields of an operation's input: their texts as values, and the accepted values as text.

A query has them as parameters, a command as options and arguments. The types are `str`, `int`, `float`, `bool`,
`datetime` and `Literal`; a field of the type `list[str]` may be repeated.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
from msgspec import Meta, UnsetType
from msgspec.structs import FieldInfo

from spar.data.text import one_line
from spar.decoding import convert, decode, json_schema

#: Characters of a wrong value that the error shows.
_SHOWN = 60


def is_list(field: FieldInfo) -> bool:
    """Return whether a field may be repeated."""
    return get_origin(plain_type(field.type)[0]) is list


def meaning(field: FieldInfo) -> str:
    """Return the description of a field."""
    return next((meta.description for meta in _metas(field.type) if meta.description), "")


def accepted_values(field: FieldInfo) -> str:
    """Return the accepted values of a field in words, such as `1 to 1000` or `one of open, closed`."""
    plain, metas = plain_type(field.type)
    if get_origin(plain) is Literal:
        return f"one of {', '.join(map(str, get_args(plain)))}"
    if get_origin(plain) is list and (words := get_args(get_args(plain)[0])):
        return f"of {', '.join(words)}"
    if plain in (int, float):
        least, above, most = (
            next((bound for meta in metas if (bound := getattr(meta, name)) is not None), None)
            for name in ("ge", "gt", "le")
        )
        noun = "a whole number of at most 64 bits" if plain is int else "a number"
        if least is not None and most is not None:
            return f"{least:g} to {most:g}"
        bounds = [
            *([] if least is None else [f"from {least:g}"]),
            *([] if above is None else [f"above {above:g}"]),
            *([] if most is None else [f"up to {most:g}"]),
        ]
        return " ".join([noun, *bounds])
    if plain is bool:
        return "1 or 0"
    if plain is datetime:
        return "a time such as 2026-11-22T18:00:00+00:00"
    most = next((meta.max_length for meta in metas if meta.max_length is not None), None)
    return "a text" if most is None else f"a text of at most {most} characters"


def schema_of(field: FieldInfo) -> dict[str, Any]:
    """Return the JSON schema of a field's value."""
    plain, _ = plain_type(field.type)
    schema = dict(json_schema(_bounded(field.type)))
    schema.pop("description", None)
    if get_origin(plain) is Literal:
        schema.setdefault("type", "string")
    if plain is datetime:
        schema["format"] = "date-time"
    if field.default is not msgspec.NODEFAULT and field.default is not None:
        schema["default"] = field.default
    return schema


def value_of(name: str, text: str, field: FieldInfo) -> Any:
    """Return the text of a field as a value of its type; that of a list has commas.

    Args: name: its name in the error, "" for none.

    Raises: ValueError.
    """
    plain, _ = plain_type(field.type)
    try:
        if plain is datetime:
            at = datetime.fromisoformat(text)
            return at if at.tzinfo is not None else at.astimezone()
        given: Any = text
        if get_origin(plain) is list and not (given := [word.strip() for word in text.split(",") if word.strip()]):
            raise ValueError
        value = convert(given, _bounded(field.type), strict=False)
        if plain is int and not -(2**63) <= value < 2**63:
            raise ValueError
        return value
    except (msgspec.ValidationError, ValueError):
        wrong = f"{name} = {text[:_SHOWN]!r}" if name else repr(text[:_SHOWN])
        if len(text) > 1_000:
            wrong = f"{name or 'it'} has {len(text)} characters"
        raise ValueError(f"{wrong}: must be {accepted_values(field)}") from None


def changed_params(planned: Mapping[str, Any], texts: Iterable[str]) -> dict[str, Any]:
    """Return the parameters of a call with typed changes: KEY=VALUE changes one, a JSON object replaces all.

    A value that is JSON is read as JSON, any other one is a text. Raises: ValueError.
    """
    params = dict(planned)
    for text in texts:
        key, equals, value = text.partition("=")
        if text.startswith("{"):
            params = decode(text.encode(), dict[str, Any])
        elif not key or not equals:
            raise ValueError(f"{text!r}: must be KEY=VALUE, or a JSON object with all parameters")
        else:
            params[key] = _json_or_text(value)
    return params


def _json_or_text(text: str) -> Any:
    try:
        return decode(text.encode(), Any)
    except (ValueError, RecursionError):
        return text


def word_of(value: Any, limit: int = 80) -> str:
    """Return an option of runs in the form of `spar sessions set`: true instead of Python's True."""
    return str(value).lower() if isinstance(value, bool) else one_line(str(value), limit)


def hook_line(entry: Mapping[str, Any]) -> str:
    """Return the line that says how a hook changed the prompt of a request."""
    changes = [f"{name.replace('_', ' ')}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
               for name, value in entry.items() if name not in ("hook", "point")]  # fmt: skip
    return one_line(f"hook {entry['hook']} at {entry['point']}: {'; '.join(changes)}", 300)


def plain_type(annotation: Any) -> tuple[Any, list[Meta]]:
    """Return a type without its annotations, without None and the absence of a value, and the `Meta` annotations."""
    metas: list[Meta] = []
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *more = get_args(annotation)
            metas += [meta for meta in more if isinstance(meta, Meta)]
        elif get_origin(annotation) in (Union, UnionType):
            (annotation,) = (kind for kind in get_args(annotation) if kind not in (NoneType, UnsetType))
        else:
            return annotation, metas


def _metas(annotation: Any) -> list[Meta]:
    return plain_type(annotation)[1]


def _bounded(annotation: Any) -> Any:
    """Return a type with its bounds but without None, so that the text `null` stays a text."""
    plain, metas = plain_type(annotation)
    for meta in metas:
        plain = Annotated[plain, meta]
    return plain
