"""Results of a run's calls as a model reads them: each call beside its result; pure.

A model that answers in JSON text reads them in blocks of data (`planning.prompt.render`). A model that calls functions
reads them in the provider's own messages, each call followed by its result (`Request.history`). Keys that the service
itself adds to a call are shown in neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from planning.ports import MadeCall, Turn
from planning.prompt.shorten import head_and_tail, shown, shown_json
from planning.prompt.tool_specs import mapping
from spar.data.blackboard import read_message
from spar.data.json_safe import UNBOUNDED, plain
from spar.data.media import Medium, media_in, medium_of
from spar.data.paths import BadReferenceError, Path, parse
from spar.records.transcript import Entry
from spar.types import Action, ActionResult, CallResult, without_service_keys

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


def paired_turns(steps: Sequence[ActionResult], limit: int) -> list[Turn]:
    """Return a turn for each step: the model's text, and its calls in the order of the plan, each with its result as
    JSON.

    Calls that were put off for a new message are left out, and steps without calls. A text and a result have at most
    `limit` characters. When a step leaves no room for all, the older half of them is shown short from then on: so the
    results stay the same from request to request until the next such step.
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
    turns = []
    for step, outcomes in shown_steps:
        pairs = zip(_begun(step), outcomes, strict=True)
        calls = tuple([_made_call(result.call.to_wire(), outcome, limit) for result, outcome in pairs])
        turns.append(Turn("assistant", "" if step.action is None else head_and_tail(step.action.said, limit), calls))
    return turns


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


def _proposed(wire: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a call as the model proposed it: people may have changed it before it ran."""
    original = wire.get("_original")
    return original if isinstance(original, Mapping) else wire


def _made_call(wire: Mapping[str, Any], result: str, limit: int, images: tuple[Medium, ...] = ()) -> MadeCall:
    """Return a call on the wire with its result."""
    proposed = _proposed(wire)
    given = {key: value for key, value in call_shown(proposed).items() if key not in ("_tool", "_id")}
    arguments = shown(plain(given, UNBOUNDED), (), limit)
    provided = wire.get(PROVIDER_ID, proposed.get(PROVIDER_ID))
    return MadeCall(
        str(wire.get("_id")),
        provided if isinstance(provided, str) else "",
        str(proposed.get("_tool", wire.get("_tool"))),
        arguments if isinstance(arguments, dict) else {},
        result,
        images,
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
    """Return the messages without the results and errors of these steps, which stand beside their calls instead."""
    paired = {result.call.id for step in steps for result in step.results}
    return [message for message in messages if not _has_result(message, paired)]


def _has_result(message: Mapping[str, Any], paired: set[str]) -> bool:
    if not isinstance(message.get("type"), str):
        return False
    kind, payload = read_message(message)
    if kind in (CALLED, SPOKEN):
        return True
    call = payload.get("call") if isinstance(payload, Mapping) else None
    if kind == "error":
        return isinstance(call, Mapping) and call.get("_id") in paired
    return kind == "result" and isinstance(call, str) and call in paired


def is_about_no_call(message: Mapping[str, Any]) -> bool:
    """Return whether a message is an error that stands beside no call."""
    return message.get("kind") == "error" and not mapping(message.get("data")).get("call")


# -- calls of a conversation


class Live:
    """Results and messages of the current run. A transcript shows them to people; here they are whole.

    Args: steps: the results of its cycles, oldest first; texts: the texts of its messages by their id.
    """

    def __init__(self, steps: Sequence[ActionResult] = (), texts: Mapping[str, str] | None = None) -> None:
        self._steps, self.texts = steps, texts or {}
        self._results = {_key(result): result for step in steps for result in step.results}

    def of(self, record: Mapping[str, Any]) -> CallResult | None:
        """Return the result that the record of a call in a transcript is about; None if it is of another run."""
        call_id = str(mapping(record.get("call")).get("_id"))
        return self._results.get((call_id, str(record.get("status")), str(record.get("reason"))))

    def unwritten(self, entries: Iterable[Entry], run_id: str) -> list[Entry]:
        """Return an entry for each cycle with calls that the transcript does not have."""
        known = {
            (str(mapping(record.get("call")).get("_id")), str(record.get("status")), str(record.get("reason")))
            for entry in entries
            if entry.run_id == run_id and isinstance(records := entry.body.get("calls"), (list, tuple))
            for record in records
            if isinstance(record, Mapping)
        }
        return [
            Entry("turn", _body(step), run_id)
            for step in self._steps
            if step.results and not any(_key(result) in known for result in step.results)
        ]


def _key(result: CallResult) -> tuple[str, str, str]:
    return result.call.id, result.status, result.reason


def _body(step: ActionResult) -> Wire:
    records = [
        {"call": result.call.to_wire(), "status": result.status, "reason": result.reason, "output": result.output,
         "error": None if result.fault is None else result.fault.message}
        for result in step.results
    ]  # fmt: skip
    action = step.action or Action()
    additions: Wire = {} if action.additions is None else {"additions": list(action.additions)}
    return {"calls": records, "said": action.said, "signed": list(action.signed), **additions}


def made_call(record: Mapping[str, Any], live: Live | None, limit: int) -> MadeCall:
    """Return a call with its result, by its record in a transcript. Args: limit: characters of the result."""
    wire = mapping(record.get("call"))
    result = live.of(record) if live is not None else None
    output = record.get("output") if result is None else result.output
    text = _text_of(record, output, None if _proposed(wire) is wire else wire, limit)
    return _made_call(wire, text, limit, () if result is None else _images(output))


#: Sentences in the place of a result, by the reason why there is none.
_WITHOUT: Final = {
    "parked": "It waits for a person's approval; its result follows when it has one.",
    "detached": "It is still running; its result follows.",
    "steered": "It was not started, because somebody said something new first: call it again if it still makes sense.",
    "dep_failed": "It was not started, because a call that it waits for did not go well.",
    "in_doubt": "It was cut off after it had begun, and nobody knows whether it had its effect: do not repeat it.",
}
#: The words before a fault, by status.
_WHY: Final = {"denied": "It was denied", "in_doubt": "Its effect is not known, so do not repeat it"}


def _text_of(record: Mapping[str, Any], output: Any, ran: Mapping[str, Any] | None, limit: int) -> str:
    """Return the result of a call as a text: its output, its error, or why it has none."""
    status, reason = str(record.get("status", "?")), record.get("reason")
    why = (status, str(reason or ""))
    lines = [f"It was changed before it ran: {shown_json(plain(call_shown(ran), UNBOUNDED), (), limit)}"] if ran else []
    if status == "ok" and not reason:
        lines += [] if output is None and lines else [_output_text(output, mapping(record.get("call")), limit)]
    elif record.get("error"):
        lines.append(f"{_WHY.get(status, 'Error')}: {head_and_tail(str(record['error']), limit)}")
    else:
        lines.append(_WITHOUT.get(str(reason or status)) or f"It did not end well: {', '.join(filter(None, why))}.")
    return "\n".join(lines)


def _output_text(output: Any, wire: Mapping[str, Any], limit: int) -> str:
    """Return an output as a text; a long one names the place where it is whole, if it has one."""
    path = place_of(wire)
    if output is None:
        return "It is done."
    value = plain(output, UNBOUNDED)
    return head_and_tail(value, limit, path) if isinstance(value, str) and medium_of(value) is None else shown_json(
        value, path, limit
    )  # fmt: skip


def place_of(wire: Mapping[str, Any]) -> Path:
    """Return the path that a call writes its result to; () for none, or for several."""
    with suppress(BadReferenceError, TypeError):
        return parse(wire.get("_outputPath", ""))
    return ()


def _images(output: Any) -> tuple[Medium, ...]:
    """Return the images in an output, at most four."""
    images = (medium for medium in media_in(output) if medium.kind == "image" and medium.mime.startswith("image/"))
    return tuple(islice((image for image in images if image.size <= LARGEST_IMAGE), MOST_IMAGES))


#: Images of one result that a model is shown at most, and bytes of one.
MOST_IMAGES: Final = 4
LARGEST_IMAGE: Final = 4 << 20
