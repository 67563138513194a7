"""What a planner hands over, read as calls: a `Call`, a wire dict, or something that is neither. Pure.

Whatever cannot be read gets a stand-in call, so that it has a result like any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from acting.outputs import plain
from acting.paths import shorten
from spar.types import Call

# Keys of the wire form whose meaning this executor does not have: acting as if they were absent would be wrong.
_UNSUPPORTED = ("_activity", "_delegate", "_scopes", "_output", "_expect")


class BadCallError(ValueError):
    """What was handed over is no call that can be executed."""


def read(item: Any) -> tuple[Call, str]:
    """The call, and what is wrong with it ("" if nothing is)."""
    try:
        if type(item) is not Call and not isinstance(item, Call):
            item = Call.from_wire(item)
        return item, _objection(item)
    except Exception as error:
        return _stand_in(item), str(error)


def _objection(call: Call) -> str:
    """Why a call cannot be executed as it is. `Call` does not check what Python programs put into it."""
    if not (type(call.tool) is str and call.tool and type(call.params) is dict and type(call.id) is str and call.id
            and type(call.after) is tuple and type(call.meta) is dict):  # fmt: skip
        Call.from_wire({"_tool": call.tool, "_id": call.id, "_after": call.after})  # says which of these
        raise BadCallError(f"a call's params and meta must be objects and its id not empty, found {shorten(call)}")
    if not (
        (call.output_path is None or type(call.output_path) is str)
        and call.output_method == "set"
        and call.instance is None
        and (not call.after or all(type(id) is str for id in call.after))
    ):
        Call.from_wire({"_tool": call.tool, "_after": call.after, "_outputPath": call.output_path,
                        "_outputMethod": call.output_method, "_instance": call.instance})  # fmt: skip
        if call.instance is not None:
            return "'_instance' is not supported yet: leave it out to use the global state"
    for key in call.params:
        if type(key) is not str:
            return f"a call's parameters are named by text, found {shorten(key)}"
    if call.meta:
        for key in _UNSUPPORTED:
            if call.meta.get(key):
                return f"{key!r} is not supported yet"
        if not isinstance(call.meta.get("_detach", False), bool):
            return f"'_detach' must be true or false, found {shorten(call.meta['_detach'])}"
    return ""


def _stand_in(item: Any) -> Call:
    """A call that keeps what can be kept of an unreadable one."""
    found: dict[str, Any] = {}
    if isinstance(item, Call):
        found = {"_tool": item.tool, "_id": item.id}
    elif isinstance(item, Mapping):
        found = {"_tool": item.get("_tool"), "_id": item.get("_id")}
    tool, id = found.get("_tool"), found.get("_id")
    call = Call(tool if isinstance(tool, str) else "", meta={"_found": plain(shorten(item, 200))})
    if isinstance(id, str) and id:
        call = Call(call.tool, id=id, meta=call.meta)
    return call
