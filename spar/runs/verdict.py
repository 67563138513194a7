"""Verdict on a run after one of its cycles: whether it has ended, and with which answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spar.data.reply import fallback
from spar.loop.cycle import Cycle
from spar.runs.run import End, Limits, Run, too_long
from spar.types import Action, ActionResult, Answer, CallResult

#: Failures of the plan phase in a row that end a run.
MOST_FAILURES = 3
#: Kinds of faults of the act phase that end the run: a hook denied it, or it made no progress.
ENDING = ("denied", "no_progress")
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


def verdict(run: Run, cycle: Cycle, *, elapsed: float, limits: Limits) -> End | None:
    """Return how a run has ended with this cycle, or None if it continues. The results of the cycle are added to the
    run.

    Args: elapsed: seconds since the run started, without those in which it waited for a provider.
    """
    if cycle.result is not None:  # also of an interrupted cycle or an incomplete plan
        run.results.append(cycle.result)
        if cycle.result.results:  # an answer without calls keeps the errors, which it may be about
            run.use("calls", sum([result.attempts > 0 for result in cycle.result.results]))
            run.errors = tuple([error for error in cycle.result.errors if error["error"]["kind"] != "steered"])
            run.failed_calls = fallback(cycle.result.results)
    if cycle.is_cut:
        return None
    if cycle.result is not None and (why := cycle.result.fault) is not None and why.kind in ENDING:
        return End("error", why.message, run.output)
    failed = {fault.phase: fault for fault in cycle.faults} if cycle.faults else {}
    if (fault := failed.get("plan")) is not None:
        run.failures += 1
        if not fault.retryable or run.failures >= MOST_FAILURES:
            return End("error", fault.message)
    elif cycle.is_skipped:
        return End("error", "a hook refused it")
    elif cycle.is_stepped and cycle.action is None and cycle.durations[1] is None:
        pass  # steps were abandoned before a plan: the next cycle gets the messages
    elif "sense" not in failed:
        action = cycle.action
        if isinstance(action, Action) and action.deferred:
            run.number += not action.next_look  # no request was made if the provider asked to wait
            if limits.patience and run.waited >= limits.patience:
                return End("error", f"waited for {run.waited:g} s (runs.patience): {action.deferred}", run.output)
            return _exceeded(run, elapsed, limits)
        run.planned()
        answer = answer_of(action, cycle.result) if isinstance(action, Action) else None
        if not isinstance(action, Action) or answer is not None or not action.calls:
            if answer is not None:
                run.output = answer
            if not (run.is_to_verify and _has_failed(cycle.result)):
                return End("ok", output=run.output)  # the last answer, if the planner adds none
            run.is_to_verify = False
        run.number += 1
    return _exceeded(run, elapsed, limits)


def _exceeded(run: Run, elapsed: float, limits: Limits) -> End | None:
    """Return the end of a run that has reached a limit; None below all limits."""
    timeout = run.timeout(limits)
    if timeout and elapsed >= timeout:
        return End("error", too_long(timeout))
    for quantity, most in limits.most.items():
        if (used := run.used.get(quantity, 0)) >= most:
            return End("error", f"it took {used} {quantity}, and a run may take {most} (runs.{quantity})", run.output)
    return None


def _has_failed(result: ActionResult | None) -> bool:
    return result is not None and result.status in ("partial", "failed")


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
