"""Journal rows for the end of a cycle: what became of the work that it took. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from spar.decisions.consequence import Consequence, Ending, Progress, consequence
from spar.facts.cycles import CycleClosed, PlanOutcome
from spar.loop.cycle import LONGEST_DEFERRAL, Cycle
from spar.records.journal import Closing, Item, RowChange, Unfinished
from spar.records.transcript import Entry
from spar.runs.answers import answer_of
from spar.runs.run import Run
from spar.state.work import RunState
from spar.types import Action, Credit, CycleRecord, Experience, Fault, Feedback, Perception, replace

#: Phases whose failure leaves the perceptions of a cycle unprocessed.
_UNPROCESSED_AFTER = ("sense", "plan")
#: Kinds of faults of the act phase that end the run: a hook denied it, or it made no progress.
BARRING = ("denied", "no_progress")
CUT = Fault("interrupted", "its cycle was cut off", "loop")


def consequence_of(cycle: Cycle, stop_reason: str, *, is_stopped: bool) -> Consequence:
    """Return what becomes of the work of a cycle.

    Args: stop_reason: why it was cut off: "stop" if the agent stops, "" if it was not; is_stopped: its task was
        cancelled.
    """
    if cycle.is_cut:
        is_stopped &= not cycle.is_stepped
        ending: Ending = "called off" if stop_reason not in ("", "stop") else "stopped" if is_stopped else "broken"
    else:
        ending = "well" if fault_of(cycle) is None else "failed"
    piece = cycle.interrupted
    usual = consequence(progress_of(cycle), ending, "" if piece is None else "item" if piece.cycle is None else "cycle")
    return "done" if cycle.is_stepped and usual == "later" else usual


def progress_of(cycle: Cycle) -> Progress:
    """Return how far a cycle came."""
    if cycle.resumed is not None and cycle.resumed.action is not None and cycle.phase != "sense":
        return "acting"  # an earlier cycle had planned
    if cycle.result is None:
        is_silent = cycle.phase == "act"  # its actor does not report the results of interrupted calls
        return "acting" if is_silent else "noticing" if cycle.phase == "sense" else "planning"
    if not cycle.is_cut or any(result.attempts for result in cycle.result.results):
        return "acting"  # some call was made, perhaps of an incomplete plan
    return "planning"


def fault_of(cycle: Cycle) -> Fault | None:
    """Return the fault because of which the perceptions of a cycle were not processed; None if they were."""
    if cycle.is_cut:
        return CUT
    return next((fault for fault in cycle.faults if fault.phase in _UNPROCESSED_AFTER), None)


def cycle_to_resume(cycle: Cycle) -> Unfinished:
    """Return the journal entry from which the next process resumes a cycle. This interrupted start counts as no
    attempt."""
    if cycle.resumed is not None:
        return cycle.resumed
    run_id = cycle.run.id if cycle.run is not None else None
    return Unfinished(cycle.id, cycle.session, tuple(cycle.perceptions), cycle.items, run_id, attempts=0,
                      opened_at=cycle.started_at, is_stepped=cycle.is_stepped)  # fmt: skip


def perceptions_to_retry(
    cycle: Cycle, open_items: Mapping[str, Item], of_run: Collection[str]
) -> tuple[list[Perception], bool]:
    """Return the perceptions of a failed cycle to try again, and whether the pipeline has processed them.

    Messages of its run (ids in `of_run`) are left out, because the run continues with them.
    """
    if cycle.perceptions:
        return [perception for perception in cycle.perceptions if perception.id not in of_run], True
    items = [open_items[item_id] for item_id in cycle.items if item_id in open_items]
    return [item.perception for item in items if item.kind == "perception"], False


def worked_on(item: Item, run: RunState, cycle: Cycle, *, will_resume: bool) -> Item:
    """Return the item of a run after a cycle that did not end it. Its output counts if the run's one more try brings no
    answer."""
    item = replace(item, output=run.output, used=dict(run.used), waited=run.waited, failures=run.failures)
    if cycle.result is None or will_resume:
        return item
    worked_cycles = () if cycle.deferred else (cycle.id,)  # a deferred cycle has planned nothing
    return replace(item, past=(*item.past, *worked_cycles), attempts=0, fault=None)


def closing(
    cycle: Cycle,
    record: CycleRecord | None,
    experiences: tuple[Experience, ...],
    *,
    failed: tuple[Item, ...],
    run_id: str | None,
    entries: tuple[Entry, ...],
    changes: tuple[RowChange, ...],
    will_resume: bool,
    besides: dict[str, Any] | None,
) -> Closing:
    """Return the changes that the journal writes at the end of a cycle.

    Args: failed: the items to try again; run_id: the run of the cycle; entries: the new transcript entries;
    will_resume: the next start resumes the cycle; besides: counts of unrecorded cycles.
    """
    done: tuple[str, ...] = ()
    if cycle.items and not will_resume:
        unfinished = {run_id, *[item.id for item in failed]}
        done = tuple([item_id for item_id in cycle.items if item_id not in unfinished])
    return Closing(
        cycle.outcome,
        record,
        experiences,
        run_id,
        done,
        cycle_to_resume(cycle) if will_resume and (cycle.is_journalled or cycle.resumed is not None) else None,
        entries,
        cycle.session,
        changes,
        besides,
        cycle.is_stepped,
        *_judgements_of(cycle, will_resume=will_resume),
    )


def _judgements_of(cycle: Cycle, *, will_resume: bool) -> tuple[tuple[Credit, ...], tuple[Feedback, ...]]:
    """Return the judgements of a cycle on earlier experiences and runs; none while the cycle will be resumed."""
    reflection = cycle.reflection
    return ((), ()) if reflection is None or will_resume else (tuple(reflection.credits), tuple(reflection.feedback))


def closed(cycle: Cycle, run: Run, stop_reason: str) -> CycleClosed:
    """Return the fact that a cycle ended, with what it brought to its run.

    Args: stop_reason: why it was cut off: "stop" if the agent stops, "" if it was not.
    """
    result, action = cycle.result, cycle.action
    plan, error, is_final = _plan_of(cycle, stop_reason)
    answer, answers = None, False
    if plan == "made":
        answer = answer_of(action, result) if isinstance(action, Action) else None
        answers = not isinstance(action, Action) or answer is not None or not action.calls
    waits = min(cycle.next_look, LONGEST_DEFERRAL) if cycle.deferred and cycle.next_look else 0.0
    return CycleClosed(
        session=cycle.session, cycle=cycle.id, outcome=cycle.outcome, run=run.id,
        has_result=result is not None, calls=0 if result is None else sum(call.attempts > 0 for call in result.results),
        has_failed=result is not None and result.status in ("partial", "failed"), plan=plan, error=error,
        is_final=is_final, waits=waits, answers=answers, output=answer,
        requests=int(plan == "made" or (plan == "deferred" and not cycle.planned_look)),
    )  # fmt: skip


def _plan_of(cycle: Cycle, stop_reason: str) -> tuple[PlanOutcome, str, bool]:
    """Return what became of the plan of a cycle as far as its run is concerned, why, and whether that is final."""
    if cycle.is_cut:
        return "cut", "" if stop_reason == "stop" else stop_reason, False
    if cycle.result is not None and (fault := cycle.result.fault) is not None and fault.kind in BARRING:
        return "barred", fault.message, False
    failed = {fault.phase: fault for fault in cycle.faults} if cycle.faults else {}
    if (failure := failed.get("plan")) is not None:
        return "failed", failure.message, not failure.retryable
    if cycle.is_skipped:
        return "refused", "a hook refused it", False
    has_no_plan = cycle.is_stepped and cycle.action is None and cycle.durations[1] is None
    if has_no_plan or "sense" in failed:  # the next cycle gets the messages
        return "none", "", False
    return ("deferred", cycle.deferred, False) if cycle.deferred else ("made", "", False)


def experiences_of(cycle: Cycle) -> Sequence[Experience]:
    """Return the experiences of a cycle. If its reflection failed, return one that records the calls and how they
    ended."""
    if cycle.reflection is not None:
        return cycle.reflection.experiences
    if cycle.result is None or cycle.written_action is None:
        return ()
    action = cycle.written_action
    situation = "; ".join(perception.text[:200] for perception in action.perceptions[:3])
    calls = ", ".join(call.tool for call in action.calls[:20])
    cause = next((fault.message for fault in cycle.faults), "")
    return (Experience(situation, calls, cycle.result.status, session=cycle.session, cause=cause, origin=cycle.id),)
