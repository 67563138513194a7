"""Results of a run's calls as a model reads them: each call beside its result; pure.

A model that answers in JSON text reads them in blocks of data (`planning.prompt.render`). A model that calls functions
reads them in the provider's own messages, each call followed by its result (`Request.history`). Keys that the service
itself adds to a call are shown in neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from planning.ports import MadeCall
from planning.prompt.shorten import head_and_tail, shown, shown_json
from spar.data.blackboard import read_message
from spar.data.json_safe import UNBOUNDED, plain
from spar.types import ActionResult, CallResult, without_service_keys

Wire = dict[str, Any]

#: The key of a call for the id that its provider gave it; one of `SERVICE_KEYS`.
PROVIDER_ID: Final = "_toolCallId"
#: All results in a history together may have so many times the characters of one; and each may have so many at least.
_ROOM: Final = 4
_SHORTEST: Final = 200


def call_shown(wire: Any) -> Any:
    """Return the wire form of a call without the keys that the service added; any other value as it is."""
    return without_service_keys(wire) if isinstance(wire, Mapping) else wire


def result_shown(message: Mapping[str, Any], payload: Any) -> Any:
    """Return the payload of a `result` message together with the id, tool, parameters and reason of its call."""
    wire = message.get("_call")
    if not isinstance(wire, Mapping) or not isinstance(payload, Mapping):
        return payload
    return {**_named(wire), **{key: value for key, value in payload.items() if key not in ("call", "tool")}}


def error_shown(payload: Any) -> Any:
    """Return the payload of an `error` or `correction` message, its calls without the keys that the service added."""
    if not isinstance(payload, Mapping):
        return payload
    return {key: call_shown(value) if key in ("call", "ran") else value for key, value in payload.items()}


def _named(wire: Mapping[str, Any]) -> Wire:
    params = {key: value for key, value in wire.items() if not key.startswith("_")}
    named: Wire = {"call": wire.get("_id"), "tool": wire.get("_tool"), "params": params}
    if reason := wire.get("_reasoningForCall"):
        named["reason"] = reason
    return named


def places(messages: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the path that each call wrote its result to, by the id of the call; others are left out."""
    paths: dict[str, str] = {}
    for message in messages:
        wire = message.get("_call")
        kind = read_message(message)[0] if isinstance(wire, Mapping) else "result"
        if isinstance(wire, Mapping) and kind != "result":
            path = wire.get("_outputPath")
            paths[str(wire.get("_id"))] = path if isinstance(path, str) else f"†{kind}"
    return paths


def written(steps: Iterable[ActionResult]) -> Wire | None:
    """Return the message about calls whose results were written to a path, oldest first; None if there are none."""
    entries: list[Wire] = []
    for step in steps:
        where = places(step.messages)
        entries += [
            {**_named(result.call.to_wire()), "written": where[result.call.id]}
            for result in step.results
            if result.status == "ok" and result.call.id in where
        ]
    if not entries:
        return None
    return {"type": "data", "kind": CALLED, "data": plain(entries, UNBOUNDED), "description": _CALLED}


#: The kind of the message about calls whose results were written.
CALLED: Final = "called"
#: The kinds of messages about the results of calls.
PAIRED: Final = frozenset({CALLED, "result", "spoken"})
#: The kind of the message with the texts that the model wrote beside its calls.
SPOKEN: Final = "spoken"
_SPOKEN: Final = "What you wrote beside your calls, oldest first."
_CALLED: Final = "Calls that ended well, oldest first, and where each wrote what it returned."


def spoken(steps: Iterable[ActionResult]) -> Wire | None:
    """Return the message with the texts that the model wrote beside its calls; None if there are none."""
    texts = [step.action.said for step in steps if step.action is not None and step.action.said]
    if not texts:
        return None
    return {"type": "data", "kind": SPOKEN, "data": texts, "description": _SPOKEN}


# -- messages of their own


def words(steps: Iterable[ActionResult], limit: int) -> tuple[str, ...]:
    """Return the text beside the calls of each step that `paired_calls` returns, with at most `limit` characters."""
    steps_with_calls = [step for step in steps if _begun(step)]
    return tuple(head_and_tail(step.action.said, limit) if step.action is not None else "" for step in steps_with_calls)


def paired_calls(steps: Sequence[ActionResult], limit: int) -> tuple[tuple[MadeCall, ...], ...]:
    """Return the calls of each step in the order of the plan, each with its result as JSON.

    Calls that were put off for a new message are left out, and steps without calls. A result has at most `limit`
    characters. When a step leaves no room for all, the older half of them is shown short from then on: so the results
    stay the same from request to request until the next such step.
    """
    room = _ROOM * limit
    shown_steps: list[tuple[ActionResult, list[str]]] = []
    first_whole = size = 0
    for step in steps:
        if not (outcomes := _outcomes(step, limit, room)):
            continue
        shown_steps.append((step, outcomes))
        size += sum(map(len, outcomes))
        if size > room:
            while first_whole < len(shown_steps) - 1 and size > room // 2:
                earlier, whole = shown_steps[first_whole]
                shown_steps[first_whole] = earlier, _outcomes(earlier, _SHORTEST, 0)
                first_whole, size = first_whole + 1, size - sum(map(len, whole))
    return tuple(
        tuple(_made_call(result, outcome, limit) for result, outcome in zip(_begun(step), outcomes, strict=True))
        for step, outcomes in shown_steps
    )


def _begun(step: ActionResult) -> list[CallResult]:
    """Return the results of the calls that were not put off: those are offered again, once."""
    return [result for result in step.results if result.reason != "steered"]


def _outcomes(step: ActionResult, limit: int, room: int) -> list[str]:
    """Return the results of a step as JSON; the last ones first take the room that they share."""
    where, outcomes = places(step.messages), list[str]()
    for result in reversed(_begun(step)):
        outcome = shown_json(plain(_outcome(result, where), UNBOUNDED), (), max(_SHORTEST, min(limit, room)))
        room -= len(outcome)
        outcomes.append(outcome)
    return outcomes[::-1]


def _made_call(result: CallResult, outcome: str, limit: int) -> MadeCall:
    original = result.call.meta.get("_original")
    wire = original if isinstance(original, Mapping) else result.call.to_wire()
    given = {key: value for key, value in call_shown(wire).items() if key not in ("_tool", "_id")}
    arguments = shown(plain(given), (), limit)
    provided = wire.get(PROVIDER_ID, result.call.meta.get(PROVIDER_ID))
    return MadeCall(
        result.call.id,
        provided if isinstance(provided, str) else "",
        str(wire.get("_tool", result.call.tool)),
        arguments if isinstance(arguments, dict) else {},
        outcome,
    )


def _outcome(result: CallResult, where: Mapping[str, str]) -> Wire:
    """Return the outcome of a call: its output or where that was written, its error, or why it did not run."""
    outcome: Wire = {"call": result.call.id}
    if "_original" in result.call.meta:
        outcome["ran"] = call_shown(result.call.to_wire())
    if result.call.id in where:
        outcome["written"] = where[result.call.id]
    elif result.status == "ok" and not result.reason:
        outcome["output"] = result.output
    if result.fault is not None:
        outcome["error"] = {"kind": result.fault.kind, "message": result.fault.message}
    elif result.status != "ok" or result.reason:
        outcome |= {"status": result.status, "reason": result.reason}
    return outcome


def unpaired(messages: Iterable[Wire], steps: Iterable[ActionResult]) -> list[Wire]:
    """Return the messages without the results of these steps, which stand beside their calls instead.

    Errors stay, because the next answer has to deal with them.
    """
    paired = {result.call.id for step in steps for result in step.results}
    return [message for message in messages if not _has_result(message, paired)]


def _has_result(message: Mapping[str, Any], paired: set[str]) -> bool:
    if not isinstance(message.get("type"), str):
        return False
    kind, payload = read_message(message)
    if kind in (CALLED, SPOKEN):
        return True
    return kind == "result" and isinstance(payload, Mapping) and payload.get("call") in paired
