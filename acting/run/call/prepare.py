"""What a planner hands over, read as calls: a `Call`, a wire dict, or something that is neither. Pure.

Whatever cannot be read gets a stand-in call, so that it has a result like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict

from acting.run.call.postconditions import SCHEMA, VALUE, objection_to_schema, objection_to_value
from spar.data.json_safe import plain
from spar.data.paths import MARK, BadReferenceError, parse, shorten
from spar.data.reducers import METHODS
from spar.types import Call


class BadCallError(ValueError):
    """What was handed over is no call that can be executed."""


def read(item: Any) -> tuple[Call, str]:
    """The call, and what is wrong with it ("" if nothing is)."""
    try:
        if type(item) is not Call and not isinstance(item, Call):
            item = Call.from_wire(item)
        return item, _objection(item)
    except Exception as error:
        return _stand_in(item), _sentence(error)


def _objection(call: Call) -> str:
    """Why a call cannot be executed as it is. `Call` does not check what Python programs put into it."""
    if not (type(call.tool) is str and call.tool and type(call.params) is dict and type(call.id) is str and call.id
            and type(call.after) is tuple and type(call.meta) is dict and type(call.reason) is str):  # fmt: skip
        # Says which of these, if it is one of the wire's.
        Call.from_wire({"_tool": call.tool, "_id": call.id, "_after": call.after, "_reasoningForCall": call.reason})
        raise BadCallError(
            f"a call's params and meta must be objects and its id not empty, found {shorten(asdict(call))}"
        )
    if not (
        (call.output_path is None or type(call.output_path) is str)
        and call.output_method in METHODS
        and (call.instance is None or (type(call.instance) is str and call.instance))
        and (not call.after or all(type(id) is str for id in call.after))
    ):
        Call.from_wire({"_tool": call.tool, "_after": call.after, "_outputPath": call.output_path,
                        "_outputMethod": call.output_method, "_instance": call.instance})  # fmt: skip
        raise BadCallError(f"a call's '_instance' must be text that is not empty, found {shorten(call.instance)}")
    for key in call.params:
        if type(key) is not str:
            raise BadCallError(f"a call's parameters are named by text, found {shorten(key)}")
    for key in call.meta:
        if type(key) is not str:
            raise BadCallError(f"what a call's meta holds is named by text, found {shorten(key)}")
        if wrong := _META[key](call.meta[key]) if key in _META else "":
            return wrong
    return ""


def _flag(value: Any) -> str:
    return "" if isinstance(value, bool) else f"'_detach' must be true or false, found {shorten(value)}"


def _scopes(value: Any) -> str:
    if not isinstance(value, (list, tuple)) or not all(isinstance(each, str) and each for each in value):
        return f"'_scopes' must be a list of kinds, found {shorten(value)}"
    for each in value:
        if each[:1] == MARK:
            try:
                parse(each)
            except BadReferenceError as error:
                return f"'_scopes': {error}"
    return ""


def _name(key: str) -> Callable[[Any], str]:
    return lambda value: (
        "" if value is None or isinstance(value, str) else f"{key!r} must be text, found {shorten(value)}"
    )


# What the keys of a call's meta may hold; of those that are not here nothing is asked.
_META: dict[str, Callable[[Any], str]] = {
    "_detach": _flag,
    "_scopes": _scopes,
    "_activity": _name("_activity"),
    "_delegate": _name("_delegate"),
    VALUE: objection_to_value,
    SCHEMA: objection_to_schema,
    # Who wrote the call down could not read its arguments, and says so in their place.
    "_bad": lambda value: f"its arguments cannot be read: {shorten(value, 400)}",
}


def _sentence(error: Exception) -> str:
    try:
        return str(error) or type(error).__name__
    except Exception:
        return type(error).__name__


def _stand_in(item: Any) -> Call:
    """A call that keeps what can be kept of an unreadable one."""
    meta = {"_found": plain(shorten(asdict(item) if isinstance(item, Call) else item, 200))}
    try:
        tool, id = (item.tool, item.id) if isinstance(item, Call) else (item.get("_tool"), item.get("_id"))
    except Exception:  # it is neither, or an object that cannot even be looked at
        tool = id = None
    name = tool if type(tool) is str else ""
    return Call(name, id=id, meta=meta) if type(id) is str and id else Call(name, meta=meta)
