"""Values of a type from plain values and from JSON, why they are refused, and the schemas of types, in any thread; and
any value as JSON.

msgspec resolves the annotations of a class when it first decodes into it or describes it, and shows the class to other
threads before all of its fields are resolved: a second thread then reads a null pointer, and the process dies of
SIGSEGV. Here one thread at a time resolves a type, with all types inside it, and no thread uses it before. For that
reason no other module uses these functions and classes of msgspec (`tests/house/test_decoding.py`).
"""

from __future__ import annotations

import inspect
import json
import re
import threading
from collections.abc import Callable, Iterable
from types import NoneType, UnionType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Struct, ValidationError

T = TypeVar("T")

#: Types of which msgspec knows all fields. A type inside one of them need not be here: it is resolved as well.
_RESOLVED: set[Any] = set()
#: One lock for all types, since two types may share a third. The annotations of a class are Python expressions, hence
#: reentrant: they may run any code. No module decodes while it is imported: a thread that holds the import would wait
#: for the thread that resolves, and that one, for an annotation, for the import.
_RESOLVING = threading.RLock()


def convert(value: Any, kind: type[T], *, strict: bool = True, dec_hook: Callable[[type, Any], Any] | None = None) -> T:
    """Return plain values as a value of a type. Raises: msgspec.ValidationError."""
    if kind not in _RESOLVED:
        _resolve(kind)
    return msgspec.convert(value, kind, strict=strict, dec_hook=dec_hook)


def converted(value: Any, kind: type[T]) -> T | None:
    """Return plain values as a value of a type; None where they cannot be one."""
    try:
        return convert(value, kind)
    except ValidationError:
        return None


def decode(text: str | bytes, kind: type[T]) -> T:
    """Return JSON text as a value of a type. Raises: msgspec.DecodeError (msgspec.ValidationError is one)."""
    if kind not in _RESOLVED:
        _resolve(kind)
    return msgspec.json.decode(text, type=kind)


def encode(value: Any) -> bytes:
    """Return any value as JSON; a value without a JSON form becomes its repr(), and one that the encoder refuses its
    copy as plain values."""
    try:
        return msgspec.json.encode(value, enc_hook=repr)
    except Exception:  # a lone surrogate, a value that contains itself, an integer of 4,300 digits, a broken repr()
        from spar.data.json_safe import UNBOUNDED, plain  # not at the top: few answers need it

        return json.dumps(plain(value, UNBOUNDED), ensure_ascii=False, separators=(",", ":")).encode()


def json_schema(kind: Any) -> dict[str, Any]:
    """Return the JSON schema of a type."""
    _resolve(kind)
    return dict(_dedented(msgspec.json.schema(kind)))


def schema_components(kinds: Iterable[Any], *, ref_template: str) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """Return the JSON schemas of types, and those of the classes to which they refer, by name."""
    kinds = tuple(kinds)
    for kind in kinds:
        _resolve(kind)
    schemas, components = msgspec.json.schema_components(kinds, ref_template=ref_template)
    return tuple(map(_dedented, schemas)), _dedented(components)


def _dedented(schema: Any) -> Any:
    """Return a schema whose descriptions are docstrings without their indentation, which msgspec leaves before 0.23."""
    if isinstance(schema, dict):
        return {
            key: inspect.cleandoc(value) if key == "description" and isinstance(value, str) else _dedented(value)
            for key, value in schema.items()
        }
    return list(map(_dedented, schema)) if isinstance(schema, list) else schema


def _resolve(kind: Any) -> None:
    with _RESOLVING:
        if kind not in _RESOLVED:
            msgspec.msgpack.Decoder(kind)  # the cheapest way to let msgspec read all annotations of a type
            _RESOLVED.add(kind)


def convert_leniently(value: Any, kind: type[T]) -> tuple[T, list[str]]:
    """Return a value of a structure from plain values of any form, and the fields that these lack or that do not fit.

    Such a field has its default, else the empty value of its type; None stands for one without an empty value.
    """
    unsaid: dict[str, None] = {}
    return _fitted(value, kind, "", unsaid), list(unsaid)


def _fitted(value: Any, kind: Any, name: str, unsaid: dict[str, None]) -> Any:
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if kind is Any or (value is None and NoneType in kinds):
        return value
    plain = next(kind for kind in kinds if kind is not NoneType)
    origin, inner = get_origin(plain) or plain, get_args(plain)
    is_struct = isinstance(origin, type) and issubclass(origin, Struct)
    if is_struct or origin not in (list, dict):
        try:
            return convert(value, plain)
        except ValidationError:  # of a structure, the fields are looked at one by one
            if not is_struct:
                unsaid[name] = None
                return plain() if plain in (str, int, float, bool) else None
    if not isinstance(value, dict if is_struct else origin):
        unsaid[name] = None
        value, unsaid = {} if is_struct else origin(), {}  # one name says it of all fields inside
    if origin is list:
        return [_fitted(item, inner[0], name, unsaid) for item in value]
    if origin is dict:
        return {key: _fitted(item, inner[1], f"{name}.{key}", unsaid) for key, item in value.items()}
    fields = {}
    for field in msgspec.structs.fields(plain):
        path = f"{name}.{field.encode_name}".removeprefix(".")
        if field.encode_name in value:
            fields[field.name] = _fitted(value[field.encode_name], field.type, path, unsaid)
        elif field.required:
            unsaid[path] = None
            fields[field.name] = _fitted(None, field.type, path, unsaid)
    return plain(**fields)


class Misfit(Struct, frozen=True):
    """Value that msgspec refuses: the steps that lead to it, the reason, and the unknown or missing key.

    A step is a key or an index; `...` stands for a key of a table whose values are all of one type.
    """

    steps: tuple[Any, ...]
    message: str
    unknown: str | None = None
    missing: str | None = None

    def known_keys(self, kind: type[Struct]) -> tuple[str, ...]:
        """Return the keys of the innermost table around the value, in a structure of this type."""
        for step in self.steps:
            hint = get_type_hints(kind).get(step)
            kind = next((part for part in (hint, *get_args(hint)) if hasattr(part, "__struct_fields__")), kind)
        return kind.__struct_encode_fields__


_MISFIT = re.compile(r"(?P<message>.*?)(?: - at `(?P<place>[^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`", re.DOTALL)


def misfit(error: ValidationError) -> Misfit:
    """Return the parts of msgspec's message, such as ``Expected `int` >= 1 - at `$.dedup.window` ``."""
    parts = _MISFIT.fullmatch(str(error))
    message, place = (parts["message"], parts["place"] or "") if parts else (str(error), "")
    steps = tuple(name or (int(index) if index else ...) for name, index in _STEP.findall(place))
    unknown, missing = _UNKNOWN.fullmatch(message), _MISSING.fullmatch(message)
    return Misfit(steps, message, unknown and unknown[1], missing and missing[1])


#: Words of msgspec, and those of a configuration.
WORDS: Final = {"object": "a table", "array": "a list", "str": "text", "float": "a number", "int": "a whole number",
                "bool": "true or false"}  # fmt: skip


def worded(message: str) -> str:
    """Return a message of msgspec in the words of a configuration."""
    for name, word in WORDS.items():
        message = message.replace(f"`{name}`", word)
    return message
