"""Decoder of a plan's items into calls. Pure.

An item is a `Call`, a dict in wire form (`_tool`, `_id`, parameters), or anything else: that becomes a stand-in call,
so that it has a result like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import asdict

from acting.run.call.normalize import SCHEMA, VALUE, objection_to_schema, objection_to_value
from acting.tooling.bound_tool import BoundTool
from acting.tooling.context import fault
from acting.tooling.parameters import ParametersError
from acting.tooling.registry import Catalog, UnknownToolError
from acting.tooling.tool_schema import BadCallError
from spar.checks import problem_of, shorten
from spar.data.json_safe import plain
from spar.data.paths import MARK, BadReferenceError, ValueTooLargeError, parse, parse_write
from spar.data.reducers import METHODS
from spar.types import Call, Fault

_TEXT, _TEXT_OR_NONE = frozenset({str}), frozenset({str, type(None)})


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
    is_usual = (type(call.tool) is type(call.id) is type(call.reason) is str and call.tool and call.id
                and type(call.params) is type(call.meta) is dict and type(call.after) is tuple
                and _TEXT.issuperset(map(type, call.after)) and call.output_method in METHODS
                and _TEXT_OR_NONE.issuperset((type(call.output_path), type(call.instance)))
                and call.instance != "")  # fmt: skip
    if not is_usual:
        raise BadCallError(problem_of(call) or "a call names a tool, has an id, and no empty instance, "
                           f"found {shorten(asdict(call))}")  # fmt: skip
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
    if not isinstance(value, (list, tuple)) or not all(isinstance(kind, str) and kind for kind in value):
        return f"'_scopes' must be a list of kinds, found {shorten(value)}"
    for kind in value:
        if kind[:1] == MARK:
            try:
                parse(kind)
            except BadReferenceError as error:
                return f"'_scopes': {error}"
    return ""


def _name(key: str) -> Callable[[Any], str]:
    return lambda value: (
        "" if value is None or isinstance(value, str) else f"{key!r} must be text, found {shorten(value)}"
    )


# The checks of the keys in a call's meta; other keys may hold anything.
_META: dict[str, Callable[[Any], str]] = {
    "_detach": _flag,
    "_scopes": _scopes,
    "_activity": _name("_activity"),
    "_delegate": _name("_delegate"),
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
