"""The end of a cycle as the journal keeps it: a pure account of what became of the work it took in hand."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from spar.checks import shorten
from spar.loop.cycle import Cycle
from spar.records.journal import Closing, Item, RowChange, Unfinished
from spar.records.transcript import Entry
from spar.types import Credit, CycleRecord, Experience, Fault, Feedback, Perception, replace

#: Phases after whose failure the perceptions of a cycle have not been dealt with.
UNDEALT = ("sense", "plan")
CUT = Fault("interrupted", "its cycle was cut off", "loop")


def undealt(cycle: Cycle) -> Fault | None:
    """Why what the cycle perceived has still to be dealt with; None when it has been."""
    if cycle.result is None and cycle.phase == "act":  # cut off in an actor that does not tell what it had done
        return None
    if cycle.resumed is not None and cycle.resumed.action is not None:  # it had been decided on before
        return None
    if cycle.result is not None and (not cycle.is_cut or any(each.attempts for each in cycle.result.results)):
        return None  # it was acted on, also by calls of a plan that broke off
    if cycle.is_cut:
        return CUT
    return next((fault for fault in cycle.faults if fault.phase in UNDEALT), None)


def begun(cycle: Cycle, perceptions: Sequence[Perception]) -> Unfinished:
    """A cycle that has begun to deal with these, as it is found should it be cut off."""
    run_id = cycle.run.id if cycle.run is not None else None
    return Unfinished(cycle.id, cycle.session, tuple(perceptions), cycle.items, run_id,
                      opened_at=cycle.started_at, is_stepped=cycle.is_stepped)  # fmt: skip


def to_go_on(cycle: Cycle) -> Unfinished:
    """A cycle that was cut off in good order, as its next beginning finds it: this one counts as no attempt."""
    if cycle.resumed is not None:
        return cycle.resumed
    found = begun(cycle, cycle.perceptions)
    return replace(found, attempts=found.attempts - 1)


def left_over(cycle: Cycle, in_hand: Mapping[str, Item], of_run: Collection[str]) -> tuple[list[Perception], bool]:
    """Return the perceptions of a failed cycle to try again, and whether they have been through the pipeline.

    What people said in its run (by id) is not: the run goes on with it.
    """
    if cycle.perceptions:
        return [each for each in cycle.perceptions if each.id not in of_run], True
    taken = [in_hand[item_id] for item_id in cycle.items if item_id in in_hand]
    return [item.perception for item in taken if item.kind == "perception"], False


def closing(
    cycle: Cycle,
    record: CycleRecord | None,
    experiences: tuple[Experience, ...],
    *,
    failed: tuple[Item, ...],
    run: Item | None,
    answer: Any,
    parts: tuple[Any, ...],
    entries: tuple[Entry, ...],
    changes: tuple[RowChange, ...],
    is_to_go_on: bool,
    besides: dict[str, Any] | None,
) -> Closing:
    """The account. `run` is the item of the cycle's run, `answer` that run's once it has ended, `parts` those of
    the messages that were a part of it, `entries` what its session's transcript gains."""
    run_id = run.id if run is not None else None
    done: tuple[str, ...] = ()
    if cycle.items and not is_to_go_on:
        kept = {run_id, *[item.id for item in failed]}
        done = tuple([each for each in cycle.items if each not in kept])
    past = None
    if run is not None and answer is None and cycle.result is not None and not is_to_go_on:
        worked = () if cycle.deferred else (cycle.id,)  # nothing was planned for what was said
        past = replace(run, past=(*run.past, *worked), attempts=0, fault=None)
    return Closing(
        cycle.outcome,
        record,
        experiences,
        run_id,
        done,
        failed,
        answer,
        parts,
        past,
        to_go_on(cycle) if is_to_go_on and (cycle.is_journalled or cycle.resumed is not None) else None,
        entries,
        cycle.session,
        changes,
        besides,
        cycle.is_stepped,
        *_words_of(cycle, is_to_go_on=is_to_go_on),
    )


def _words_of(cycle: Cycle, *, is_to_go_on: bool) -> tuple[tuple[Credit, ...], tuple[Feedback, ...]]:
    """Return what a cycle says of earlier experiences; nothing while it is to be gone on with."""
    told = cycle.reflection
    return ((), ()) if told is None or is_to_go_on else (tuple(told.credits), tuple(told.feedback))


def experiences_of(cycle: Cycle) -> Sequence[Experience]:
    """Return the experiences of a cycle; if its reflection failed, one that says what was done and how it ended."""
    if cycle.reflection is not None:
        return cycle.reflection.experiences
    if cycle.result is None or cycle.written_action is None:
        return ()
    action = cycle.written_action
    situation = "; ".join(_text_of(perception)[:200] for perception in action.perceptions[:3])
    calls = ", ".join(call.tool for call in action.calls[:20])
    cause = next((fault.message for fault in cycle.faults), "")
    return (Experience(situation, calls, cycle.result.status, session=cycle.session, cause=cause, origin=cycle.id),)


def _text_of(perception: Perception) -> str:
    """Return the content as text; of what is no JSON only the beginning of what it looks like."""
    try:
        return perception.text
    except Exception:
        return shorten(perception.content, 200)
