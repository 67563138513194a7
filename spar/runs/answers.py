"""Answer of a plan, as the results of its calls allow it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spar.types import Action, ActionResult, Answer, CallResult

#: Reasons of results that count as success: a branch that was not taken, an error that a branch handled.
_FORESEEN = ("branch", "handled")
#: The sentence about an unsuccessful call by its status; `{why}` begins with a colon or is empty.
_SENTENCES: dict[str, str] = {
    "failed": "{tool} failed{why}",
    "timeout": "{tool} took too long{why}",
    "denied": "{tool} was denied{why}",
    "in_doubt": "it is not known whether {tool} was done{why}",
    "skipped": "{tool} was not done{why}",
    "cancelled": "{tool} was called off{why}",
}


def answer_of(action: Action, result: ActionResult | None) -> Any:
    """Return the action's output as its results allow it: an answer that depends on unsuccessful calls is replaced.

    None if there is nothing to say.
    """
    if not action.answers:
        return action.output
    results = {} if result is None else {call_result.call.id: call_result for call_result in result.results}
    texts = [text for answer in action.answers if (text := _text_of(answer, results)) is not None]
    return "\n".join(texts) if texts else None


def _text_of(answer: Answer, results: Mapping[str, CallResult]) -> str | None:
    """Return the text of one answer if its calls succeeded, else its text for a failure, or a sentence about the failed
    calls."""
    ends = [results.get(call) for call in answer.calls]
    failed = [result for result in ends if result is None or not _went_well(result)]
    if not failed:
        return answer.text
    if answer.on_failure is not None:
        return answer.on_failure
    # Calls that were skipped because another one failed need no sentence of their own.
    first = [result for result in failed if result is None or result.reason != "dep_failed"] or failed
    sentence = "; ".join(dict.fromkeys(_sentence(result) for result in first)) + "."
    if all(result is not None and result.status == "in_doubt" for result in first):  # perhaps it did work
        return sentence[0].upper() + sentence[1:]
    is_waiting = all(result is not None and result.reason == "parked" for result in first)
    return ("It is not done yet: " if is_waiting else "It did not work: ") + sentence


def _went_well(result: CallResult) -> bool:
    return result.status == "ok" or result.reason in _FORESEEN


def _sentence(result: CallResult | None) -> str:
    if result is None:
        return "a call came to no end"
    if result.reason == "parked":
        return f"{result.call.tool} waits for an approval"
    why = f": {result.fault.message.rstrip('.')}" if result.fault is not None and result.fault.message else ""
    return _SENTENCES.get(result.status, "{tool} ended otherwise{why}").format(tool=result.call.tool, why=why)
