"""The judgement whether a run is over after one of its cycles."""

from __future__ import annotations

from spar.data.reply import fallback
from spar.loop.cycle import Cycle
from spar.runs.answers import answer_of
from spar.runs.run import End, Limits, Run, too_long
from spar.types import Action, ActionResult

#: A plan that fails this often in a row ends its run.
MOST_FAILURES = 3
#: Faults of an act phase that end the run: a hook said so, or it only repeats itself.
ENDING = ("denied", "no_progress")


def verdict(run: Run, cycle: Cycle, *, elapsed: float, limits: Limits) -> End | None:
    """Return whether a run is over after this cycle (it keeps what the cycle did); None: it goes on with the next one.

    Args: elapsed: seconds since it started, without those in which it waited for a provider.
    """
    if cycle.result is not None:  # also of a cycle that was cut or whose plan broke off: nothing done is forgotten
        run.results.append(cycle.result)
        run.use("calls", sum([each.attempts > 0 for each in cycle.result.results]))
        if cycle.result.results:  # an answer without calls leaves the errors that it may be about
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
    if limits.timeout and elapsed >= limits.timeout:
        return End("error", too_long(limits.timeout))
    for quantity, most in limits.most.items():
        if (used := run.used.get(quantity, 0)) >= most:
            return End("error", f"it took {used} {quantity}, and a run may take {most} (runs.{quantity})", run.output)
    return None


def _has_failed(result: ActionResult | None) -> bool:
    return result is not None and result.status in ("partial", "failed")
