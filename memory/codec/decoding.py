"""Decoding of texts that `memory.codec.encoding` wrote into values of a given type."""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar, get_args, get_origin
from zlib import crc32

import msgspec
from msgspec import Struct

from memory.codec.columns import AlteredError
from spar.decoding import convert

T = TypeVar("T")


def decode(text: str, kind: type[T]) -> T:
    """Return the value of a given type that `encode` wrote, sealed or not.

    Raises: ValueError (msgspec.ValidationError is one) saying where the text does not match the type.
    """
    return read(json.loads(unsealed(text), parse_constant=_no_constant), kind)


def read(plain: Any, kind: type[T]) -> T:
    """Return parsed JSON as a value of a type. Raises: ValueError."""
    try:
        return convert(plain, kind, strict=False)
    except msgspec.ValidationError:
        return convert(_with_numbers(plain, kind), kind, strict=False)


def unsealed(text: str) -> str:
    """Remove the checksum; a text without one is returned unchanged. Raises: AlteredError when it does not fit."""
    if text[-9:-8] != "\n":
        return text
    body = text[:-9]
    if f"{crc32(body.encode(errors='replace')):08x}" != text[-8:]:
        raise AlteredError("its checksum does not fit: it was altered")
    return body


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


@cache
def _fields(kind: type[Struct]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _with_numbers(value: Any, kind: Any) -> Any:
    """Return the value with NaN in the place of `null` where the type requires a float."""
    if kind is float:
        return math.nan if value is None else value
    origin, args = get_origin(kind), get_args(kind)
    if origin in (typing.Union, types.UnionType):
        others = [arg for arg in args if arg is not type(None)]
        return value if value is None or len(others) != 1 else _with_numbers(value, others[0])
    if origin is typing.Annotated:
        return _with_numbers(value, args[0])
    if isinstance(kind, type) and issubclass(kind, Struct) and isinstance(value, dict):
        hints = _fields(kind)
        fields = {name: _with_numbers(item, hints.get(name, Any)) for name, item in value.items()}
        restored = getattr(kind, "restored", None)  # the type has limits today that older rows may exceed
        return fields if restored is None else restored(fields)
    if origin in (tuple, Sequence) and isinstance(value, list):
        return [_with_numbers(item, args[0]) for item in value]
    if origin is dict and isinstance(value, dict):
        return {key: _with_numbers(item, args[1]) for key, item in value.items()}
    return value
