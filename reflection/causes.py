"""Causes of calls that did not end well, and what could help: a table from the fault taxonomy; pure.

Looked up by the result's reason, then the exception's type, then the fault's kind, then the status: the most precise
that is known wins. What is not in the table is said honestly to be unknown. No text of a tool is interpreted; its
message is only quoted, on one line and cut. The remedy is told twice: as a sentence for people, and as a `Remedy` that
a planner can carry out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from msgspec import Struct

from spar.data.text import safe_line
from spar.types import CallFailure, CallResult, Fault, Remedy, RemedyAction

LONGEST_LOOK = 3600.0
#: Characters of a fault's message, and parameters, that are looked at for the one at fault.
_LOOKED_AT, _MOST_PARAMETERS, _NAME_LIMIT = 2_000, 20, 80


class Cause(Struct, frozen=True):
    """A sentence each for cause and remedy; `may_pass` says whether trying again later can help.

    `action` is what a planner can do about it; left out: try again where it may pass, else take another tool.
    """

    cause: str
    remedy: str
    may_pass: bool = False
    action: RemedyAction = "other_tool"


_TIMEOUT = Cause(
    "it took longer than it may", "try again later, ask for less at once, or raise the tool's timeout", True
)
_REFUSED = Cause(
    "the other side took no connection", "check that it runs and that the address is right; try again later", True
)
_BROKEN = Cause("the connection broke", "try again later", True)
_NAME = Cause(
    "the name of the other side was not found", "check the address and the name service; try again later", True
)
_BAD_INPUT = Cause("the tool did not accept what it was given", "give it other values", action="other_parameter")
_TOO_LARGE = Cause(
    "the output was too large", "ask for less at once, or have the tool write to a file", action="other_parameter"
)
_NOT_FOUND = Cause(
    "what it asked for does not exist",
    "check the name or path before the call, or make it first",
    action="other_parameter",
)
_PERMISSION = Cause("it was not permitted", "grant the right to it or use another tool; trying again will not help")
_RESOURCES = Cause("the machine ran out of a resource", "free memory or disk, run less at once, try again later", True)
_CONTRACT = Cause("a part does not keep its contract", "correct the part; trying again will not help")
_IN_DOUBT = Cause("nobody knows whether it took effect", "look at the target before doing it again", action="ask")
_DENIED = Cause("it was denied", "do it another way, or say why it is needed and ask again", action="ask")
_EXPIRED = Cause("nobody answered the request for approval in time", "ask again when somebody is there", action="ask")
_DEPENDENCY = Cause(
    "a call that it needed did not end well", "see to that call first; this one was never tried", action="none"
)
_UNVERIFIED = Cause("it finished, but what was expected of it did not hold", "check the effect and try another way")

BY_REASON: Mapping[str, Cause] = {
    "dep_failed": _DEPENDENCY,
    "denied": _DENIED,
    "expired": _EXPIRED,
}

#: By the name of the exception's class, where that says more than the fault's kind.
BY_TYPE: Mapping[str, Cause] = {
    "ConnectionRefusedError": _REFUSED,
    "ConnectError": _REFUSED,
    "ConnectionResetError": _BROKEN,
    "ConnectionAbortedError": _BROKEN,
    "BrokenPipeError": _BROKEN,
    "RemoteProtocolError": _BROKEN,
    "ReadError": _BROKEN,
    "gaierror": _NAME,
    "ConnectTimeout": _TIMEOUT,
    "ReadTimeout": _TIMEOUT,
    "PoolTimeout": _TIMEOUT,
    "FileExistsError": Cause(
        "it exists already", "choose another name, or replace it on purpose", action="other_parameter"
    ),
    "IsADirectoryError": Cause("it is a folder, not a file", "name a file in it", action="other_parameter"),
    "NotADirectoryError": Cause("a part of the path is not a folder", "check the path", action="other_parameter"),
    "UnicodeDecodeError": Cause(
        "the text is not in the expected encoding", "read it as bytes or name its encoding", action="other_parameter"
    ),
    "JSONDecodeError": Cause(
        "what came back is not JSON", "check the address and what it answers", action="other_parameter"
    ),
    "SSLCertVerificationError": Cause(
        "the certificate of the other side is not trusted", "install its authority", action="ask"
    ),
    "InboxFullError": Cause("the inbox was full", "try again later", True),
}

BY_KIND: Mapping[str, Cause] = {
    "transient": Cause("a passing trouble", "try again later", True),
    "permanent": Cause("it will fail in the same way every time", "do it another way; trying again will not help"),
    "timeout": _TIMEOUT,
    "not_found": _NOT_FOUND,
    "permission": _PERMISSION,
    "bad_input": _BAD_INPUT,
    "io": Cause("the system could not read or write", "check path, disk and device; try again later", True),
    "resources": _RESOURCES,
    "contract": _CONTRACT,
    "output_too_large": _TOO_LARGE,
    "too_large": _TOO_LARGE,
    "bad_output": Cause("its tool returned what it may not return", "mend the tool, or its '_output'"),
    "unknown_tool": Cause("there is no tool of this name", "use one of the tools that exist, or register it"),
    "bad_parameters": Cause(
        "the parameters do not fit the tool's schema",
        "give the parameters that its schema names",
        action="other_parameter",
    ),
    "bad_reference": Cause(
        "it refers to a value that nobody gives", "refer to the output path of another call", action="other_parameter"
    ),
    "bad_call": Cause("it cannot be read as a call", "write the tool's name and its parameters", action="none"),
    "duplicate_id": Cause("another call has the same id", "give each call its own id", action="none"),
    "cycle": Cause("the calls wait for one another", "break the circle of references", action="none"),
    "dep_failed": _DEPENDENCY,
    "denied": _DENIED,
    "expired": _EXPIRED,
    "in_doubt": _IN_DOUBT,
    "cancelled": Cause("it was cancelled before it ended", "run it again if it is still wanted", action="retry"),
    "expect": _UNVERIFIED,
    "postcondition": _UNVERIFIED,
    "unverified": _UNVERIFIED,
}

#: Faults of the plan: such a call never ran, so its tool has not failed.
STRUCTURAL = frozenset({"unknown_tool", "bad_parameters", "bad_reference", "bad_call", "duplicate_id", "cycle"})

_UNKNOWN = Cause(
    "it failed for a reason that is not known here", "read the message; try once more or another way", True
)


def explain(item: CallResult, *, soon: float = 5.0, incident: str = "", better: str = "") -> CallFailure | None:
    """Return the cause of a call that did not end well, with a remedy; None when it did, or was not meant to run,
    or when a branch of the plan took care of it. Never raises.

    Args: soon: seconds until it may work again, where nobody has asked for another time; incident: the id of an open
    one that the call was about; better: a tool that is known to do well at the task.
    """
    if item.status == "ok" or (item.status == "skipped" and item.reason not in BY_REASON):
        return None
    if item.reason in ("steered", "parked", "handled"):
        return None
    found = cause_of(item)
    advice = advise(item, found, soon=soon, incident=incident, better=better)
    return CallFailure(item.call, _quoted(found.cause, item), found.remedy, kind_of(item), advice)


def kind_of(item: CallResult) -> str:
    """Return the kind of the taxonomy that a result which is not ok is of: one of `BY_KIND`, else "error"."""
    if item.is_in_doubt:
        return "in_doubt"
    kind = item.reason if item.reason in BY_REASON else item.fault.kind if item.fault is not None else item.status
    return kind if kind in BY_KIND else "error"


def advise(item: CallResult, cause: Cause, *, soon: float, incident: str = "", better: str = "") -> Remedy:
    """Return the remedy of a failure as a planner can carry it out.

    Something that may pass is tried again later; once that was in vain and the trouble is part of an incident, when
    that is over. A fault that says that it lasts is believed.
    """
    after = retry_after(item.fault, "timeout" if item.fault is None else item.status, soon) if cause.may_pass else None
    if after is not None:
        if incident and item.attempts > 1:
            return Remedy("wait", cause.remedy, after=after, until=incident)
        return Remedy("retry", cause.remedy, after=after)
    if cause.action == "retry":
        return Remedy("retry", cause.remedy, after=soon)
    if cause.action == "other_parameter":
        return Remedy("other_parameter", cause.remedy, parameter=_parameter_of(item))
    if cause.action == "other_tool":
        return Remedy("other_tool", cause.remedy, tool=better)
    return Remedy(cause.action, cause.remedy)


def _parameter_of(item: CallResult) -> str:
    """Return the name of the parameter at fault: what the fault says, else the one that its message names or quotes,
    else the only one; empty when it may be any of them."""
    names = [name for name in item.call.params if isinstance(name, str)]
    if item.fault is not None:
        told = item.fault.detail.get("parameter")
        if isinstance(told, str) and told in item.call.params:
            return told
        said = item.fault.message[:_LOOKED_AT]
        for name in names[:_MOST_PARAMETERS]:
            value = item.call.params[name]
            if f"parameter {name!r}" in said or (isinstance(value, str) and len(value) > 2 and value in said):
                return safe_line(name, _NAME_LIMIT)
    return safe_line(names[0], _NAME_LIMIT) if len(names) == 1 else ""


def cause_of(item: CallResult) -> Cause:
    """Return the table's entry for a result that is not ok; a fault that says it will not pass is believed."""
    if item.reason in BY_REASON:
        return BY_REASON[item.reason]
    if item.is_in_doubt:  # also of one that timed out: it is not to be tried again unseen
        return _IN_DOUBT
    return fault_cause(item.fault) if item.fault is not None else BY_KIND.get(item.status, _UNKNOWN)


def fault_cause(fault: Fault) -> Cause:
    """Return the table's entry for a fault."""
    kind = fault.detail.get("type")
    by_type = BY_TYPE.get(kind) if isinstance(kind, str) else None
    return by_type or BY_KIND.get(fault.kind, _UNKNOWN)


def retry_after(fault: Fault | None, status: str, soon: float) -> float | None:
    """After how many seconds the same may work: what the other side asked for, else `soon`; None when it will not."""
    if fault is None:
        return soon if status == "timeout" else None
    if not fault.retryable or fault.kind in STRUCTURAL or not fault_cause(fault).may_pass:
        return None
    asked = fault.detail.get("retry_after")
    if isinstance(asked, (int, float)) and not isinstance(asked, bool) and math.isfinite(asked) and asked >= 0:
        return min(float(asked), LONGEST_LOOK)
    return soon


def _quoted(cause: str, item: CallResult) -> str:
    said = item.fault.message if item.fault is not None else "" if item.reason in BY_REASON else item.reason
    return safe_line(f"{cause}: {said}" if said else cause)
