"""Input of an operation, read from its request into a structure: typed, bounded, and without unknown fields.

The path has the fields that it names. The others come from the query of a GET, and from the JSON body of any other
request. A field's type defines the accepted values, its default holds without it, its `Meta` has the description. In a
query the types are `str`, `int`, `float`, `bool`, `datetime` and `Literal`; a parameter of the type `list[str]` may be
repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo
from starlette.datastructures import QueryParams

from spar.decoding import decode
from spar.operations.fields import is_list, value_of
from spar.operations.operation import Operation

In = TypeVar("In", bound=Struct)


def read_input(operation: Operation[In, Any], path: Mapping[str, Any], query: QueryParams, body: bytes) -> In:
    """Return the input of an operation.

    Raises: ValueError that names the field and the accepted values; LookupError for a word of the path that is none of
        the known ones.
    """
    is_read = operation.method == "GET"
    values = {name: str(path[name]) for name in operation.path_fields}
    values |= _query_values(query, operation.other_fields if is_read else ())
    if not is_read:
        values |= _body_values(operation, body)
    return operation.given(**values)


def _query_values(params: QueryParams, known: Sequence[FieldInfo]) -> dict[str, Any]:
    """Return the parameters of a query as values of their fields. Raises: ValueError."""
    fields = {field.encode_name: field for field in known}
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
            values[field.name] = value_of(name, texts[0], field)
    return values


def _body_values(operation: Operation[Any, Any], body: bytes) -> dict[str, Any]:
    """Return the values of a body. Raises: ValueError."""
    fields = operation.other_fields
    if operation.is_free:
        return {fields[0].name: msgspec.Raw(body)}
    if not body and not any(field.required for field in fields):
        return {}
    kind = body_type(operation)
    try:
        value = decode(body, kind)
    except RecursionError:
        raise ValueError("the body cannot be read: it is nested too deeply") from None
    except msgspec.DecodeError as error:
        names = ", ".join(field.encode_name for field in fields) or "none"
        known = f"; known: {names}" if "unknown field" in str(error) else ""
        raise ValueError(f"the body cannot be read: {error}{known}") from None
    return {field.name: getattr(value, field.name) for field in fields}


@cache
def body_type(operation: Operation[Any, Any]) -> type[Struct]:
    """Return the structure of an operation's body: its input without the fields that the path has."""
    if not operation.path_fields:
        return operation.given
    fields = [
        (field.name, field.type) if field.required
        else (field.name, field.type, msgspec.field(default_factory=field.default_factory))
        if field.default is NODEFAULT else (field.name, field.type, field.default)
        for field in operation.other_fields
    ]  # fmt: skip
    given = operation.given
    kind: type[Struct] = msgspec.defstruct(
        given.__name__, fields, frozen=True, forbid_unknown_fields=True, namespace={"__doc__": given.__doc__}
    )
    return kind
