"""Resumption of what an earlier process left: interrupted cycles, and calls that continued without one."""

from __future__ import annotations

from typing import Final, Literal

from spar.records.journal import MOST_ATTEMPTS, Unfinished
from spar.state.work import NOT_FINAL, CycleState
from spar.types import Call, CallResult, Fault, replace

#: What becomes of an interrupted cycle: it continues under its own id; its work is dealt with again piece by piece; it
#: is over, as a person had begun it.
Resumption = Literal["continue", "split", "over"]
#: What becomes of a call that was on its way when the process ended: a person decides, it is made again, or nothing.
AFTER_EFFECT: Final[dict[str, Literal["doubt", "again", "nothing"]]] = {
    "once": "doubt",
    "idempotent": "again",
}

#: Reasons of skipped calls that are not made again: the call waits for an approval, or a new plan decides about it.
_PUT_OFF: Final = ("parked", "steered")


def resumption(cycle: Unfinished, attempts: int, *, has_run: bool) -> Resumption:
    """Return what becomes of an interrupted cycle.

    Args: attempts: how often a process died with it or its work; has_run: its run is open, or it has none.
    """
    if cycle.is_stepped:
        return "over"
    if cycle.action is None or attempts >= MOST_ATTEMPTS:
        return "split"
    return "continue" if has_run else "over"


def completed(entry: Unfinished, cycle: CycleState) -> Unfinished:
    """Return an open cycle with its action and the results of its calls, as far as these must not be made again: the
    calls that ended, and those that may have had an effect that must not be repeated."""
    if cycle.action is None:
        return entry
    calls = {call.id: call for call in reversed(cycle.calls)}  # of two calls with one id the first one counts
    known = [
        replace(result, call=calls[id])
        for id, result in cycle.ended.items()
        if id in calls and (result.status not in NOT_FINAL or result.reason in _PUT_OFF)
    ]
    cut = {id: start.attempt for id, start in cycle.started.items() if start.effect == "once"}
    if cycle.effect == "once":  # the actor does not record its calls: any of them may have run
        cut = dict.fromkeys(calls, 1)
    known += [_in_doubt(calls[id], attempt) for id, attempt in cut.items() if id in calls and id not in cycle.ended]
    action = replace(cycle.action, calls=tuple(cycle.calls), perceptions=entry.perceptions)
    return replace(entry, action=action, known=tuple(known))


def _in_doubt(call: Call, attempt: int) -> CallResult:
    message = f"tool {call.tool!r} was on its way when the process ended and may have had its effect: find out"
    fault = Fault("in_doubt", message, call.tool, "act", retryable=False)
    return CallResult(call, "in_doubt", fault=fault, attempts=attempt)
