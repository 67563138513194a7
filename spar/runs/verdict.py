"""The judgement whether a run is over after one of its cycles, and the answer that the cycle gave; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spar.data.reply import fallback
from spar.loop.cycle import Cycle
from spar.runs.run import End, Limits, Run, too_long
from spar.types import Action, ActionResult, Answer, CallResult

#: A plan that fails this often in a row ends its run.
MOST_FAILURES = 3
#: Faults of an act phase that end the run: a hook said so, or it only repeats itself.
ENDING = ("denied", "no_progress")
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


def verdict(run: Run, cycle: Cycle, *, elapsed: float, limits: Limits) -> End | None:
    """Return whether a run is over after this cycle (it keeps what the cycle did); None: it goes on with the next one.

    Args: elapsed: seconds since it started, without those in which it waited for a provider.
    """
    if cycle.result is not None:  # also of a cycle that was cut or whose plan broke off: nothing done is forgotten
        run.results.append(cycle.result)
        if cycle.result.results:  # an answer without calls leaves the errors that it may be about
            run.use("calls", sum([each.attempts > 0 for each in cycle.result.results]))
            run.errors = tuple([each for each in cycle.result.errors if each["error"]["kind"] != "steered"])
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
        pass  # steps that were given up before a plan was made: what was said is heard in the next cycle
    elif "sense" not in failed:
        action = cycle.action
        if isinstance(action, Action) and action.deferred:
            run.number += not action.next_look  # nothing was asked of a provider that asks to be left alone
            if limits.patience and run.waited >= limits.patience:
                return End("error", f"waited for {run.waited:g} s (runs.patience): {action.deferred}", run.output)
            return _exceeded(run, elapsed, limits)
        run.planned()
        said = answer_of(action, cycle.result) if isinstance(action, Action) else None
        if not isinstance(action, Action) or said is not None or not action.calls:
            if said is not None:
                run.output = said
            if not (run.is_to_verify and _has_failed(cycle.result)):
                return End("ok", output=run.output)  # the last that was given, if the planner had nothing to add
            run.is_to_verify = False
        run.number += 1
    return _exceeded(run, elapsed, limits)


def _exceeded(run: Run, elapsed: float, limits: Limits) -> End | None:
    """The end of a run that would go on and may not."""
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
