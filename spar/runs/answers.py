"""The answer of an action whose answer depends on how its calls went; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spar.types import Action, ActionResult, Answer, CallResult

#: What a call came to that is as good as if it went well: a branch that was not taken, an error that a branch took up.
_FORESEEN = ("branch", "handled")
#: How a call that did not go well is told; `{why}` begins with a colon or is empty.
_SENTENCES: dict[str, str] = {
    "failed": "{tool} failed{why}",
    "timeout": "{tool} took too long{why}",
    "denied": "{tool} was denied{why}",
    "in_doubt": "it is not known whether {tool} was done{why}",
    "skipped": "{tool} was not done{why}",
    "cancelled": "{tool} was called off{why}",
}


def answer_of(action: Action, result: ActionResult | None) -> Any:
    """Return the action's output as its results allow it: an answer whose calls did not go well is not given.

    None where nothing is to be said.
    """
    if not action.answers:
        return action.output
    results = {} if result is None else {each.call.id: each for each in result.results}
    given = [text for answer in action.answers if (text := _given(answer, results)) is not None]
    return "\n".join(given) if given else None


def _given(answer: Answer, results: Mapping[str, CallResult]) -> str | None:
    missed = [results.get(call) for call in answer.calls]
    failed = [each for each in missed if each is None or not _went_well(each)]
    if not failed:
        return answer.text
    if answer.on_failure is not None:
        return answer.on_failure
    # What only waits for a call that failed needs no word of its own.
    first = [each for each in failed if each is None or each.reason != "dep_failed"] or failed
    told = "; ".join(dict.fromkeys(_sentence(each) for each in first)) + "."
    if all(each is not None and each.status == "in_doubt" for each in first):  # perhaps it did work
        return told[0].upper() + told[1:]
    is_waiting = all(each is not None and each.reason == "parked" for each in first)
    return ("It is not done yet: " if is_waiting else "It did not work: ") + told


def _went_well(result: CallResult) -> bool:
    return result.status == "ok" or result.reason in _FORESEEN


def _sentence(result: CallResult | None) -> str:
    if result is None:
        return "a call came to no end"
    if result.reason == "parked":
        return f"{result.call.tool} waits for an approval"
    why = f": {result.fault.message.rstrip('.')}" if result.fault is not None and result.fault.message else ""
    return _SENTENCES.get(result.status, "{tool} ended otherwise{why}").format(tool=result.call.tool, why=why)
