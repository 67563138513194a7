"""Answer of a plan, and end and reply of a run as people read it: pure decisions about texts.

`NO_REPLY`, or `silent` in the answer, is a decision to send nothing, as opposed to an empty answer. Source of the
rules: OpenClaw's reply shaping.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from spar.types import Action, ActionResult, Answer, CallResult

TOKEN: Final = "NO_REPLY"
_SILENT = re.compile(rf"\s*(?:{TOKEN}\s*)+", re.IGNORECASE)
#: Most characters of the reason of a failed run that people are told; the run's status has all of it.
_LONGEST_WHY = 500
#: Statuses of calls that did not do their work.
_BAD: Final = ("failed", "timeout", "denied")
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


class Reply(Struct, frozen=True):
    """Reply to people: `text` is what they read (None: nothing), `is_silent` says that sending nothing was a
    decision."""

    text: str | None = None
    is_silent: bool = False


def reply_of(output: Any) -> Reply:
    """Return the reply to people for the output of a run."""
    if output is None:
        return Reply()
    if isinstance(output, str):
        return Reply(None, True) if is_silent(output) else Reply(output) if output.strip() else Reply()
    if isinstance(output, Mapping):
        if output.get("silent") is True:
            return Reply(None, True)
        text = next((output[key] for key in ("reply", "text", "message") if isinstance(output.get(key), str)), None)
        if text is not None:
            return reply_of(text)
    return Reply(_json_of(output))


class End(Struct, frozen=True):
    """End of a run. `reply` is the text for people, derived from the output."""

    status: Literal["ok", "error"]
    error: str = ""
    output: Any = None
    reply: Reply = Reply()

    def __post_init__(self) -> None:
        if self.output is not None:
            force_setattr(self, "reply", reply_of(self.output))


def _json_of(output: Any) -> str:
    """Return an output that is not text as JSON for people. Never raises."""
    try:
        return json.dumps(output, ensure_ascii=False, default=str)
    except Exception:  # keys that are not text, an object that cannot be printed
        from spar.data.json_safe import UNBOUNDED, plain  # most answers are texts

        return json.dumps(plain(output, UNBOUNDED), ensure_ascii=False)


def is_silent(text: str) -> bool:
    """Return whether a whole text is the token, in any case and number."""
    return _SILENT.fullmatch(text) is not None


def may_become_silent(text: str) -> bool:
    """Return whether a text that is still being written may become the token, so that it must not be shown yet."""
    remainder = _SILENT.sub("", text.lstrip(), count=1) if _SILENT.match(text) else text.lstrip()
    return TOKEN.startswith(remainder.strip().upper())


def fallback(results: Iterable[CallResult]) -> str | None:
    """Return the sentence that replaces a missing answer when calls failed; None when none failed."""
    bad = [result for result in results if result.status in _BAD and result.reason != "handled"]
    if not bad:
        return None
    first = bad[0]
    why = first.fault.message if first.fault is not None else first.reason or first.status
    more = f" ({len(bad) - 1} more calls did not end well)" if len(bad) > 1 else ""
    return f"{first.call.tool} did not work: {why}{more}"


def failure(error: str) -> str:
    """Return the sentence that tells people of a failed run."""
    return f"I could not finish this: {why_of(error)}"


def why_of(error: str) -> str:
    """Return the error of a run as people read it: a short line without secrets."""
    from spar.data.scrub import scrub  # a run that went well needs none of it

    why = scrub(" ".join(error.split()) or "nobody knows why")
    return why if len(why) <= _LONGEST_WHY else why[:_LONGEST_WHY] + " …"


# -- the answer of a plan, as the results of its calls allow it


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
