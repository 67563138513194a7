"""Checks of what a plan says as calls, and of tools' values: whether they can be stored, have the promised shape, and
are what the call expects. Pure.

An item of a plan is a `Call`, a dict in wire form (`_tool`, `_id`, parameters), or anything else: that becomes a
stand-in call, so that it has a result like any other.

A call that has finished may still not have the expected result. `_expect` is a value that the result must contain: it
is equal, or, for an object, the result contains each of its entries. `_expectSchema` is a JSON Schema that the result
must satisfy. An object under `_expect` is always a value, even if it looks like a JSON Schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from types import NoneType
from typing import Any, Final

import msgspec
from msgspec.structs import asdict

from acting.tooling.bound_tool import BoundTool
from acting.tooling.context import MESSAGE_LIMIT, fault
from acting.tooling.parameters import ParametersError
from acting.tooling.registry import Catalog, UnknownToolError
from acting.tooling.tool_schema import BadCallError
from spar.checks import PLAIN, problem_of, shorten
from spar.data.json_safe import MAX_OUTPUT, NotJsonError, is_bounded, plain, shortened, text, whole
from spar.data.json_safe.canonical import canonical
from spar.data.json_safe.slices import Copying, whole_in_slices
from spar.data.json_schema import Output, is_schema
from spar.data.paths import MARK, BadReferenceError, ValueTooLargeError, parse, parse_write
from spar.types import Call, Fault, Message

_LONGEST_KIND = 200  # characters of the kind of a message

VALUE: Final = "_expect"
SCHEMA: Final = "_expectSchema"

#: Keywords of JSON Schema that restrict a value, though the schema of schemas of 2020-12 does not say so.
_JUDGING: Final = frozenset({"$dynamicRef", "$recursiveRef", "$ref", "additionalItems", "const"})
#: Keywords that only describe.
_DESCRIBING: Final = frozenset({
    "contentEncoding", "contentMediaType", "contentSchema", "default", "definitions", "deprecated", "description",
    "examples", "id", "readOnly", "title", "writeOnly",
})  # fmt: skip


def judged(value: Any, call: Call, entry: BoundTool) -> tuple[Fault | None, bool | None]:
    """Return the fault of a value that is not as its tool promised or as the call expects, None if it is.

    Returns: as second item, whether the value is as the call expects; None where the call expects nothing.
    """
    if entry.output is not None and type(value) is not Message and (wrong := entry.output.check(value)):
        message = f"tool {entry.name!r} returned what its '_output' does not allow: {wrong}"
        return Fault("bad_output", message, entry.name, "act", False, _beginning(value)), None
    if not (call.meta and (VALUE in call.meta or SCHEMA in call.meta)):
        return None, None
    data = value.data if type(value) is Message else value
    if wrong := unmet(call.meta, data):
        message = f"it finished, but its result is not what was expected: {wrong}"
        return Fault("unverified", message, entry.name, "act", True, _beginning(data)), False
    return None, True


def fit(value: Any, limit: int) -> Any:
    """Return a tool's whole value as a value of JSON; a `Message` stays a message.

    Raises: ValueTooLargeError for more than `limit` bytes; NotJsonError for a value that JSON cannot express.
    """
    if type(value) is Message:
        if not isinstance(value.kind, str) or not value.kind or len(value.kind) > _LONGEST_KIND:
            raise NotJsonError(f"a message's kind is a text of at most {_LONGEST_KIND} characters")
        return Message(text(value.kind), whole(value.data, limit), whole(value.instance, limit))
    return whole(value, limit)


def fit_in_slices(value: Any, limit: int) -> Copying:
    """Return what `fit` returns, and yield after each slice of it. Raises: as `fit`."""
    if type(value) is not Message:
        return (yield from whole_in_slices(value, limit))
    message = fit(Message(value.kind, None, value.instance), limit)
    return Message(message.kind, (yield from whole_in_slices(value.data, limit)), message.instance)


def unfit(error: Exception, value: Any, tool: str, limit: int) -> Fault:
    """Return the fault of a value that cannot be stored whole; its beginning is in the detail."""
    if isinstance(error, ValueTooLargeError):
        why = f"its result is too large: {error}; largest_result allows {limit} bytes"
        message = f"tool {tool!r} ran, but {why}: let it return less, or raise [acting] largest_result"
        return Fault("too_large", message, tool, "act", False, _beginning(value))
    message = plain(f"tool {tool!r} ran, but what it returned is no value of JSON: {error}", MESSAGE_LIMIT)
    return Fault("bad_output", message, tool, "act", False, _beginning(value))


def _beginning(value: Any) -> dict[str, Any]:
    """Return the beginning of a value for a fault's detail, with a mark if it was shortened."""
    shown, is_cut = shortened(value.data if type(value) is Message else value, 4 * MESSAGE_LIMIT)
    return {"output": shown, "truncated": True} if is_cut else {"output": shown}


def objection_to_value(expected: Any) -> str:
    """Return why results cannot be compared with this value; "" if they can."""
    if not is_bounded(expected, MAX_OUTPUT):  # an endless value cannot be compared
        return f"{VALUE!r} is not a JSON value that can be compared: {shorten(expected)}"
    try:
        msgspec.json.encode(expected)
    except Exception as error:
        return f"{VALUE!r} is not a JSON value that can be compared: {error}"
    return ""


def objection_to_schema(expected: Any) -> str:
    """Return why this cannot be used to check a result; "" if it can. A schema that allows every result cannot."""
    if not isinstance(expected, Mapping):
        return f"{SCHEMA!r} must be a JSON Schema, an object, found {shorten(expected)}; a value stands in {VALUE!r}"
    if not is_bounded(expected, MAX_OUTPUT):
        return f"{SCHEMA!r} is not a JSON Schema that can be used: {shorten(expected)}"
    judging = {key for key in expected if _is_judging(key)}
    if unknown := [key for key in expected if key not in judging | _DESCRIBING and not key.startswith(("$", "x-"))]:
        return f"{SCHEMA!r}: {shorten(unknown[0])} is no word of JSON Schema; a value to compare stands in {VALUE!r}"
    if not judging:
        return f"{SCHEMA!r} allows any result: say which with words like type, const, properties, required"
    try:
        _checker(msgspec.json.encode(expected))
    except Exception as error:
        return f"{SCHEMA!r} is not a JSON Schema that can be used: {error}"
    return ""


def _is_judging(key: str) -> bool:
    """Return whether a word is a keyword of JSON Schema that restricts a value."""
    return key in _JUDGING or not (key.startswith("$") or key in _DESCRIBING or is_schema({key: None}))


def unmet(meta: Mapping[str, Any], result: Any) -> str:
    """Return the difference between a result and the expectations in a call's meta; "" for none."""
    if VALUE in meta and (difference := _difference(meta[VALUE], result, "")):
        return difference
    return _checker(msgspec.json.encode(meta[SCHEMA])).check(result) or "" if SCHEMA in meta else ""


def _difference(expected: Any, result: Any, where: str) -> str:
    if isinstance(expected, Mapping) and isinstance(result, Mapping):
        for key, value in expected.items():
            if key not in result:
                return f"{where}{key!r} is not there"
            if difference := _difference(value, result[key], f"{where}{key}."):
                return difference
        return ""
    with suppress(ValueError):
        if canonical(expected) == canonical(result):  # unlike in Python, true is not 1
            return ""
    return f"{where.rstrip('.') or 'it'} is {shorten(result)}, not {shorten(expected)}"


@lru_cache(256)
def _checker(encoded: bytes) -> Output:
    return Output(SCHEMA, msgspec.json.decode(encoded))


#: The errors of a call that cannot run.
STRUCTURAL = (BadReferenceError, ValueTooLargeError, ParametersError, BadCallError)


_KINDS: dict[type[Exception], str] = {
    BadReferenceError: "bad_reference",
    ParametersError: "bad_parameters",
    UnknownToolError: "unknown_tool",
}


def structural(error: Exception, tool: str) -> Fault:
    """Return the fault for an error in `STRUCTURAL`."""
    return fault(_KINDS.get(type(error), "bad_call"), str(error), tool)


def decode(item: Any) -> tuple[Call, str]:
    """Return an item of a plan as a call, and what is wrong with it ("" if nothing is)."""
    try:
        call = item if isinstance(item, Call) else Call.from_wire(item)
        return call, _objection(call)
    except Exception as error:
        return _stand_in(item), _sentence(error)


def _objection(call: Call) -> str:
    """Return why a call cannot be executed, or "". A program may have put anything into the fields of a `Call`.

    Raises: BadCallError for fields that cannot be used at all.
    """
    if not (PLAIN[Call](call) and call.tool and call.id and call.instance != ""):
        raise BadCallError(problem_of(call) or "a call names a tool, has an id, and no empty instance, "
                           f"found {shorten(asdict(call))}")  # fmt: skip
    wrong = (check(call.meta[key]) for key, check in _META.items() if key in call.meta)
    return next(filter(None, wrong), "") if call.meta else ""


def _typed(key: str, expected: str, *kinds: type) -> Callable[[Any], str]:
    return lambda value: "" if isinstance(value, kinds) else f"{key!r} must be {expected}, found {shorten(value)}"


def _scopes(value: Any) -> str:
    if not isinstance(value, (list, tuple)) or not all(isinstance(kind, str) and kind for kind in value):
        return f"'_scopes' must be a list of kinds, found {shorten(value)}"
    for kind in value:
        if kind[:1] == MARK:
            try:
                parse(kind)
            except BadReferenceError as error:
                return f"'_scopes': {error}"
    return ""


# The checks of the keys in a call's meta; other keys may hold anything.
_META: dict[str, Callable[[Any], str]] = {
    "_detach": _typed("_detach", "true or false", bool),
    "_scopes": _scopes,
    "_activity": _typed("_activity", "text", str, NoneType),
    "_delegate": _typed("_delegate", "text", str, NoneType),
    VALUE: objection_to_value,
    SCHEMA: objection_to_schema,
    # The planner could not read the arguments that a model wrote, and put this text in their place.
    "_bad": lambda value: f"its arguments cannot be read: {shorten(value, 400)}",
}


def _sentence(error: Exception) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def _stand_in(item: Any) -> Call:
    """Return a call with the readable parts of an item that is no valid call."""
    meta = {"_found": plain(shorten(asdict(item) if isinstance(item, Call) else item, 200))}
    try:
        tool, id = (item.tool, item.id) if isinstance(item, Call) else (item.get("_tool"), item.get("_id"))
    except Exception:  # the item is neither a call nor a dict, or cannot be read at all
        tool = id = None
    name = tool if type(tool) is str else ""
    return Call(name, id=id, meta=meta) if type(id) is str and id else Call(name, meta=meta)


def checked(call: Call, catalog: Catalog) -> tuple[Call, BoundTool]:
    """Check a call that people decided on. Return it with the values that its tool prescribes, and that tool.

    Raises: ValueError that says what is wrong with the call.
    """
    _, wrong = decode(call)
    if wrong:
        raise ValueError(wrong)
    call, entry = catalog.bound(call)
    if entry.terms.approval == "deny":
        raise ValueError(f"tool {entry.name!r} may not be called: its approval is 'deny'")
    if call.output_path is not None:
        parse_write(call.output_path)
    entry.parameters.validate(call.params)
    return call, entry
