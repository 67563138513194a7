"""Causes of calls that did not end well, and remedies: a table from the fault taxonomy; pure.

The lookup goes by the result's reason, then by the exception's type, then by the fault's kind, then by the status: the
most precise known entry wins. A case that is not in the table is reported as unknown. No text of a tool is
interpreted; its message is only quoted, shortened to one line. The remedy has two forms: a sentence for people, and a
`Remedy` that a planner can carry out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct

from spar.data.text import safe_line
from spar.types import CallFailure, CallResult, Fault, Remedy, RemedyAction

LONGEST_LOOK = 3600.0
#: Function that returns another tool that is known to do well at the task of a call; "" when there is none.
Better = Callable[[], str]
#: Limits of the search for the parameter at fault: characters of the message, number of parameters.
_LOOKED_AT, _MOST_PARAMETERS, _NAME_LIMIT = 2_000, 20, 80


class Cause(Struct, frozen=True):
    """Cause and remedy, one sentence for each; `may_pass` says whether a later attempt can succeed.

    `action` is the step that a planner can take. It is used only where the trouble may not pass: where it may, the
    planner tries again.
    """

    cause: str
    remedy: str
    may_pass: bool = False
    action: RemedyAction = "other_tool"


_passing = partial(Cause, may_pass=True)
_of_parameter = partial(Cause, action="other_parameter")
_for_a_person = partial(Cause, action="ask")
_none = partial(Cause, action="none")

_TIMEOUT = _passing("it took longer than it may", "try again later, ask for less at once, or raise the tool's timeout")
_REFUSED = _passing(
    "the other side took no connection", "check that it runs and that the address is right; try again later"
)
_BROKEN = _passing("the connection broke", "try again later")
_NAME = _passing("the name of the other side was not found", "check the address and the name service; try again later")
_TOO_LARGE = _of_parameter("the output was too large", "ask for less at once, or have the tool write to a file")
_DENIED = _for_a_person("it was denied", "do it another way, or say why it is needed and ask again")
_EXPIRED = _for_a_person("nobody answered the request for approval in time", "ask again when somebody is there")
_DEPENDENCY = _none("a call that it needed did not end well", "see to that call first; this one was never tried")
_UNVERIFIED = Cause("it finished, but what was expected of it did not hold", "check the effect and try another way")

BY_REASON: Mapping[str, Cause] = {"dep_failed": _DEPENDENCY, "denied": _DENIED, "expired": _EXPIRED}

#: Causes by the name of the exception's class, for classes that say more than the fault's kind.
BY_TYPE: Mapping[str, Cause] = {
    **dict.fromkeys(("ConnectionRefusedError", "ConnectError"), _REFUSED),
    **dict.fromkeys(("ConnectionResetError", "ConnectionAbortedError", "BrokenPipeError", "RemoteProtocolError",
                     "ReadError"), _BROKEN),
    "gaierror": _NAME,
    **dict.fromkeys(("ConnectTimeout", "ReadTimeout", "PoolTimeout"), _TIMEOUT),
    "FileExistsError": _of_parameter("it exists already", "choose another name, or replace it on purpose"),
    "IsADirectoryError": _of_parameter("it is a folder, not a file", "name a file in it"),
    "NotADirectoryError": _of_parameter("a part of the path is not a folder", "check the path"),
    "UnicodeDecodeError": _of_parameter("the text is not in the expected encoding",
                                        "read it as bytes or name its encoding"),
    "JSONDecodeError": _of_parameter("what came back is not JSON", "check the address and what it answers"),
    "SSLCertVerificationError": _for_a_person("the certificate of the other side is not trusted",
                                              "install its authority"),
    "InboxFullError": _passing("the inbox was full", "try again later"),
}  # fmt: skip

BY_KIND: Mapping[str, Cause] = {
    "transient": _passing("a passing trouble", "try again later"),
    "permanent": Cause("it will fail in the same way every time", "do it another way; trying again will not help"),
    "timeout": _TIMEOUT,
    "not_found": _of_parameter("what it asked for does not exist",
                               "check the name or path before the call, or make it first"),
    "permission": Cause("it was not permitted",
                        "grant the right to it or use another tool; trying again will not help"),
    "bad_input": _of_parameter("the tool did not accept what it was given", "give it other values"),
    "io": _passing("the system could not read or write", "check path, disk and device; try again later"),
    "resources": _passing("the machine ran out of a resource",
                          "free memory or disk, run less at once, try again later"),
    "contract": Cause("a part does not keep its contract", "correct the part; trying again will not help"),
    "output_too_large": _TOO_LARGE,
    "too_large": _TOO_LARGE,
    "bad_output": Cause("its tool returned what it may not return", "mend the tool, or its '_output'"),
    "unknown_tool": Cause("there is no tool of this name", "use one of the tools that exist, or register it"),
    "bad_parameters": _of_parameter("the parameters do not fit the tool's schema",
                                    "give the parameters that its schema names"),
    "bad_reference": _of_parameter("it refers to a value that nobody gives",
                                   "refer to the output path of another call"),
    "bad_call": _none("it cannot be read as a call", "write the tool's name and its parameters"),
    "duplicate_id": _none("another call has the same id", "give each call its own id"),
    "cycle": _none("the calls wait for one another", "break the circle of references"),
    **BY_REASON,
    "in_doubt": _for_a_person("nobody knows whether it took effect", "look at the target before doing it again"),
    "cancelled": Cause("it was cancelled before it ended", "run it again if it is still wanted", action="retry"),
    **dict.fromkeys(("expect", "postcondition", "unverified"), _UNVERIFIED),
}  # fmt: skip

#: Kinds of faults in the plan itself: such a call never ran, so its tool has not failed.
STRUCTURAL = frozenset({"unknown_tool", "bad_parameters", "bad_reference", "bad_call", "duplicate_id", "cycle"})

_UNKNOWN = _passing("it failed for a reason that is not known here", "read the message; try once more or another way")


def explain(item: CallResult, *, soon: float = 5.0, incident: str = "", better: Better = str) -> CallFailure | None:
    """Return the cause and the remedy of a call that did not end well; None when it ended well, was not meant to run,
    or failed in a way that the plan handles. Never raises.

    Args: soon: seconds until a retry may work, where the other side named no time; incident: the id of an open
    incident that the call was about; better: asked only where another tool may
    help.
    """
    if item.status == "ok" or (item.status == "skipped" and item.reason not in BY_REASON):
        return None
    if item.reason in ("steered", "parked", "handled"):
        return None
    cause = cause_of(item)
    advice = advise(item, cause, soon=soon, incident=incident, better=better)
    return CallFailure(item.call, _quoted(cause.cause, item), cause.remedy, kind_of(item), advice)


def kind_of(item: CallResult) -> str:
    """Return the kind of a result that is not ok: one of `BY_KIND`, else "error"."""
    if item.is_in_doubt:
        return "in_doubt"
    kind = item.reason if item.reason in BY_REASON else item.fault.kind if item.fault is not None else item.status
    return kind if kind in BY_KIND else "error"


def advise(item: CallResult, cause: Cause, *, soon: float, incident: str = "", better: Better = str) -> Remedy:
    """Return the remedy of a failure in the form that a planner can carry out.

    A failure that may pass is tried again later. If several attempts failed and the call is part of an incident, the
    remedy is to wait until the incident is over. A fault that is marked as lasting is not retried.
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
        return Remedy("other_tool", cause.remedy, tool=better())
    return Remedy(cause.action, cause.remedy)


def _parameter_of(item: CallResult) -> str:
    """Return the name of the parameter at fault: the one that the fault's detail names, else the one whose name or
    value its message contains, else the only parameter; empty when it may be any of several."""
    names = [name for name in item.call.params if isinstance(name, str)]
    if item.fault is not None:
        stated_name = item.fault.detail.get("parameter")
        if isinstance(stated_name, str) and stated_name in item.call.params:
            return stated_name
        message = item.fault.message[:_LOOKED_AT]
        for name in names[:_MOST_PARAMETERS]:
            value = item.call.params[name]
            if f"parameter {name!r}" in message or (isinstance(value, str) and len(value) > 2 and value in message):
                return safe_line(name, _NAME_LIMIT)
    return safe_line(names[0], _NAME_LIMIT) if len(names) == 1 else ""


def cause_of(item: CallResult) -> Cause:
    """Return the table's entry for a result that is not ok."""
    if item.reason in BY_REASON:
        return BY_REASON[item.reason]
    if item.is_in_doubt:  # also for a timed out call: somebody must look before it runs again
        return BY_KIND["in_doubt"]
    return fault_cause(item.fault) if item.fault is not None else BY_KIND.get(item.status, _UNKNOWN)


def fault_cause(fault: Fault) -> Cause:
    """Return the table's entry for a fault."""
    kind = fault.detail.get("type")
    by_type = BY_TYPE.get(kind) if isinstance(kind, str) else None
    return by_type or BY_KIND.get(fault.kind, _UNKNOWN)


def retry_after(fault: Fault | None, status: str, soon: float) -> float | None:
    """Return after how many seconds the same call may work: the time that the other side asked for, else `soon`; None
    when a retry cannot help."""
    if fault is None:
        return soon if status == "timeout" else None
    if not fault.retryable or fault.kind in STRUCTURAL or not fault_cause(fault).may_pass:
        return None
    wait = fault.detail.get("retry_after")
    if isinstance(wait, (int, float)) and not isinstance(wait, bool) and math.isfinite(wait) and wait >= 0:
        return min(float(wait), LONGEST_LOOK)
    return soon


def _quoted(cause: str, item: CallResult) -> str:
    message = item.fault.message if item.fault is not None else "" if item.reason in BY_REASON else item.reason
    return safe_line(f"{cause}: {message}" if message else cause)
