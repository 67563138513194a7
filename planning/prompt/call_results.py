"""Results of a run's calls as a model is told of them: each call beside its result; pure.

A model that answers in JSON text reads it in blocks of data (`planning.prompt.render`). A model that calls functions is
told in the messages that providers have for it, each call followed by its result (`history`). Keys that the service
itself puts on a call are shown in neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from planning.ports import Made
from planning.prompt.shorten import head_and_tail, shown, shown_json
from spar.data.blackboard import read_message
from spar.data.json_safe import UNBOUNDED, plain
from spar.types import ActionResult, CallResult, without_service_keys

Wire = dict[str, Any]

#: The key under which a call carries the id that its provider gave it; one of `SERVICE_KEYS`.
PROVIDER_ID: Final = "_toolCallId"
#: Characters of all results together that stand in messages of their own, in lengths of a single one.
_ROOM: Final = 4
_SHORTEST: Final = 200


def call_shown(wire: Any) -> Any:
    """A call's wire form without what the service added to it; anything else as it is."""
    return without_service_keys(wire) if isinstance(wire, Mapping) else wire


def result_shown(message: Mapping[str, Any], payload: Any) -> Any:
    """The payload of a `result` message with what its call was given: id, tool, parameters, reason, output."""
    wire = message.get("_call")
    if not isinstance(wire, Mapping) or not isinstance(payload, Mapping):
        return payload
    return {**_named(wire), **{key: value for key, value in payload.items() if key not in ("call", "tool")}}


def error_shown(payload: Any) -> Any:
    """The payload of an `error` or `correction` message, its calls as a model wrote them."""
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
    """Return the place where each call wrote its result, by its id; calls that wrote nowhere are left out."""
    found: dict[str, str] = {}
    for message in messages:
        wire = message.get("_call")
        kind = read_message(message)[0] if isinstance(wire, Mapping) else "result"
        if isinstance(wire, Mapping) and kind != "result":
            path = wire.get("_outputPath")
            found[str(wire.get("_id"))] = path if isinstance(path, str) else f"†{kind}"
    return found


def written(steps: Iterable[ActionResult]) -> Wire | None:
    """The message about calls whose results were written somewhere, oldest first; None if there are none."""
    entries: list[Wire] = []
    for step in steps:
        where = places(step.messages)
        entries += [
            {**_named(each.call.to_wire()), "written": where[each.call.id]}
            for each in step.results
            if each.status == "ok" and each.call.id in where
        ]
    if not entries:
        return None
    return {"type": "data", "kind": CALLED, "data": plain(entries, UNBOUNDED), "description": _CALLED}


#: The kind of the message about calls whose results were written.
CALLED: Final = "called"
#: The kinds that tell what came of calls.
PAIRED: Final = frozenset({CALLED, "result", "spoken"})
#: The kind of the message about what the model wrote beside its calls.
SPOKEN: Final = "spoken"
_SPOKEN: Final = "What you wrote beside your calls, oldest first."
_CALLED: Final = "Calls that ended well, oldest first, and where each wrote what it returned."


def spoken(steps: Iterable[ActionResult]) -> Wire | None:
    """The message about what the model wrote beside its calls, oldest first; None if it wrote nothing."""
    texts = [each.action.said for each in steps if each.action is not None and each.action.said]
    if not texts:
        return None
    return {"type": "data", "kind": SPOKEN, "data": texts, "description": _SPOKEN}


# -- messages of their own


def words(steps: Iterable[ActionResult], limit: int) -> tuple[str, ...]:
    """Return what the model wrote beside the calls of each step that `made` tells of, at up to `limit` characters."""
    told = [each for each in steps if any(result.reason != "steered" for result in each.results)]
    return tuple(head_and_tail(each.action.said, limit) if each.action is not None else "" for each in told)


def made(steps: Sequence[ActionResult], limit: int) -> tuple[tuple[Made, ...], ...]:
    """The calls of each step in the order of the plan, with what came of them as JSON.

    Calls that were put off for a new message, and steps without calls, are left out. The newest results are shown at up
    to `limit` characters each, the older ones at what is left of the room.
    """
    room = _ROOM * limit
    found: list[tuple[Made, ...]] = []
    for step in reversed(steps):
        where = places(step.messages)
        told: list[Made] = []
        for each in reversed(step.results):
            if each.reason == "steered":  # it was not begun and is offered again, once
                continue
            came = shown_json(plain(_outcome(each, where), UNBOUNDED), (), max(_SHORTEST, min(limit, room)))
            room -= len(came)
            told.append(_made(each, came, limit))
        if told:
            found.append(tuple(reversed(told)))
    return tuple(reversed(found))


def _made(result: CallResult, came: str, limit: int) -> Made:
    original = result.call.meta.get("_original")
    wire = original if isinstance(original, Mapping) else result.call.to_wire()
    given = {key: value for key, value in call_shown(wire).items() if key not in ("_tool", "_id")}
    arguments = shown(plain(given), (), limit)
    provided = wire.get(PROVIDER_ID, result.call.meta.get(PROVIDER_ID))
    return Made(
        result.call.id,
        provided if isinstance(provided, str) else "",
        str(wire.get("_tool", result.call.tool)),
        arguments if isinstance(arguments, dict) else {},
        came,
    )


def _outcome(result: CallResult, where: Mapping[str, str]) -> Wire:
    """Return the outcome of a call: its output or where that was written, its error, or why it did not run."""
    told: Wire = {"call": result.call.id}
    if "_original" in result.call.meta:
        told["ran"] = call_shown(result.call.to_wire())
    if result.call.id in where:
        told["written"] = where[result.call.id]
    elif result.status == "ok" and not result.reason:
        told["output"] = result.output
    if result.fault is not None:
        told["error"] = {"kind": result.fault.kind, "message": result.fault.message}
    elif result.status != "ok" or result.reason:
        told |= {"status": result.status, "reason": result.reason}
    return told


def unpaired(messages: Iterable[Wire], steps: Iterable[ActionResult]) -> list[Wire]:
    """The messages without the results of these steps' calls, which stand beside the calls instead.

    Errors stay: they are what the next answer has to deal with.
    """
    paired = {each.call.id for step in steps for each in step.results}
    return [each for each in messages if not _says_what_came(each, paired)]


def _says_what_came(message: Mapping[str, Any], paired: set[str]) -> bool:
    if not isinstance(message.get("type"), str):
        return False
    kind, payload = read_message(message)
    if kind in (CALLED, SPOKEN):
        return True
    return kind == "result" and isinstance(payload, Mapping) and payload.get("call") in paired
