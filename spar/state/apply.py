"""Addition of a fact to the state of its session. Pure: it decides nothing, and any fact fits any state.

A fact about a run or cycle that the state does not have (it ended, or an earlier process had it) changes nothing of it.
The time that an addition takes is that of the fact, not of the state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from spar import facts
from spar.facts.fact import Fact
from spar.facts.messages import MOST_GISTS
from spar.state.work import (
    CallState,
    CycleState,
    InterruptedState,
    RetryState,
    RunState,
    SessionState,
)


def apply(state: SessionState, fact: Fact) -> None:
    """Add a fact to the state of its session."""
    state.seq = fact.seq
    _ADDITIONS[type(fact)](state, fact)


# -- messages


def _perception_accepted(state: SessionState, fact: facts.PerceptionAccepted) -> None:
    state.pushed[fact.perception.id] = fact.perception


def _message_accepted(state: SessionState, fact: facts.MessageAccepted) -> None:
    _unplace(state, fact.run)
    is_new = not fact.results
    state.runs[fact.run] = RunState(
        fact.perception, fact.options, fact.defaults, new=[fact.perception.id] if is_new else [],
        number=fact.results + 1, is_planned=not is_new, verifies=fact.verifies, output=fact.output,
        results=fact.results, used=dict(fact.used),
    )  # fmt: skip


def _message_placed(state: SessionState, fact: facts.MessagePlaced) -> None:
    _unplace(state, fact.run)
    if (run := state.runs.get(fact.run)) is None:
        return
    run.place = fact.place
    if fact.place == "steer":
        state.steers[fact.run] = None
    else:
        state.waiting[fact.run] = None
        if fact.place == "front":
            state.waiting.move_to_end(fact.run, last=False)
        if fact.is_interrupting:
            state.interrupting = fact.run


def _message_settled(state: SessionState, fact: facts.MessageSettled) -> None:
    if (run := state.runs.get(fact.run)) is not None:
        run.outcome = fact.outcome


def _message_absorbed(state: SessionState, fact: facts.MessageAbsorbed) -> None:
    _unplace(state, fact.run)
    other, run = state.runs.get(fact.run), state.runs.get(fact.into)
    if other is None or run is None:
        return
    other.into, other.is_started = fact.into, run.is_started
    run.absorbed.append(fact.run)
    run.later.append(other.message)
    if fact.is_new:
        run.new.append(other.message.id)


def _message_released(state: SessionState, fact: facts.MessageReleased) -> None:
    if (run := state.runs.get(fact.into)) is not None and fact.run in run.absorbed:
        run.absorbed.remove(fact.run)


def _message_withdrawn(state: SessionState, fact: facts.MessageWithdrawn) -> None:
    _unplace(state, fact.run)


def _message_dropped(state: SessionState, fact: facts.MessageDropped) -> None:
    _unplace(state, fact.run)
    if fact.gist is not None:
        state.dropped = (*state.dropped, fact.gist)[-MOST_GISTS:]


def _dropped_told(state: SessionState, fact: facts.DroppedTold) -> None:
    state.dropped = ()
    if fact.message is not None and (run := state.runs.get(fact.run)) is not None:
        run.new.insert(0, fact.message.id)


def _unplace(state: SessionState, run_id: str) -> None:
    """Take a message out of its queue."""
    state.waiting.pop(run_id, None)
    state.steers.pop(run_id, None)
    if state.interrupting == run_id:
        state.interrupting = ""
    if (run := state.runs.get(run_id)) is not None:
        run.place = None


# -- runs


def _run_began(state: SessionState, fact: facts.RunBegan) -> None:
    _unplace(state, fact.run)
    if (run := state.runs.get(fact.run)) is not None:
        state.run, run.is_started = fact.run, True
        for other in run.absorbed:  # in an earlier process
            if (part := state.runs.get(other)) is not None:
                part.is_started = True


def _run_resumed(state: SessionState, fact: facts.RunResumed) -> None:
    if fact.run in state.runs:
        state.run = fact.run


def _spent(state: SessionState, fact: facts.Spent) -> None:
    if (run := state.runs.get(fact.run)) is not None:
        for quantity, amount in fact.amounts.items():
            run.used[quantity] = run.used.get(quantity, 0) + amount


def _run_finished(state: SessionState, fact: facts.RunFinished) -> None:
    _unplace(state, fact.run)
    run = state.runs.pop(fact.run, None)
    if state.run == fact.run:
        state.run = ""
    for work in run.pieces if run is not None else ():
        state.interrupted.pop(work, None)


# -- cycles


def _work_handed_out(state: SessionState, fact: facts.WorkHandedOut) -> None:
    state.retries.pop(fact.work, None)
    state.interrupted[fact.work] = InterruptedState(fact.work, fact.run, fact.is_cycle, fact.is_suspect)
    if (run := state.runs.get(fact.run)) is not None:
        run.pieces.append(fact.work)


def _work_taken(state: SessionState, fact: facts.WorkTaken) -> None:
    if (piece := state.interrupted.pop(fact.work, None)) is not None:
        _drop_piece(state, piece)
    for item in fact.items:
        state.pushed.pop(item, None)
    state.cycle = CycleState(fact.cycle, fact.run, piece, fact.items, fact.is_stepped)


def _drop_piece(state: SessionState, piece: InterruptedState) -> None:
    if (run := state.runs.get(piece.run)) is not None and piece.work in run.pieces:
        run.pieces.remove(piece.work)


def _cycle_opened(state: SessionState, fact: facts.CycleOpened) -> None:
    cycle = state.cycle
    if cycle is None or cycle.id != fact.cycle:
        cycle = state.cycle = CycleState(fact.cycle)
    cycle.run, cycle.items, cycle.perceptions = fact.run, fact.items, fact.perceptions
    cycle.is_stepped, cycle.is_opened = fact.is_stepped, True


def _cycle_closed(state: SessionState, fact: facts.CycleClosed) -> None:
    cycle, state.cycle = state.cycle, None
    if fact.is_put_back and cycle is not None and cycle.piece is not None:
        state.interrupted[cycle.piece.work] = cycle.piece
        if (run := state.runs.get(cycle.piece.run)) is not None:
            run.pieces.append(cycle.piece.work)
        state.interrupted.move_to_end(cycle.piece.work, last=False)
    if (run := state.runs.get(fact.run)) is None:
        return
    if fact.has_result:
        run.results += 1
        if fact.calls:
            run.used["calls"] = run.used.get("calls", 0) + fact.calls
    run.waited += fact.waits
    run.number += fact.requests
    if fact.plan == "failed":
        run.failures += 1
    elif fact.plan == "made":
        run.is_planned, run.failures = True, 0
        run.new.clear()
        if fact.answers:
            run.verifies, run.output = False, run.output if fact.output is None else fact.output


# -- calls


def _planned(state: SessionState, fact: facts.Planned) -> None:
    if (cycle := _cycle(state, fact.cycle)) is not None:
        cycle.is_planned = True
        for call in fact.calls:
            cycle.calls.setdefault(call, CallState())


def _call_planned(state: SessionState, fact: facts.CallPlanned) -> None:
    if (cycle := _cycle(state, fact.cycle)) is not None:
        cycle.calls[fact.call] = CallState()


def _attempt_started(state: SessionState, fact: facts.AttemptStarted) -> None:
    if (cycle := _cycle(state, fact.cycle)) is not None:
        call = cycle.calls.setdefault(fact.call, CallState())
        call.attempt, call.effect, call.allowed = fact.attempt, fact.effect, fact.allowed


def _call_ended(state: SessionState, fact: facts.CallEnded) -> None:
    if (cycle := _cycle(state, fact.cycle)) is not None:
        call = cycle.calls.setdefault(fact.call, CallState())
        call.status, call.reason = fact.status, fact.reason


def _cycle(state: SessionState, cycle_id: str) -> CycleState | None:
    cycle = state.cycle
    return cycle if cycle is not None and cycle.id == cycle_id else None


def _call_detached(state: SessionState, fact: facts.CallDetached) -> None:
    state.detached[f"{fact.cycle}/{fact.call}"] = fact.effect


def _call_attached(state: SessionState, fact: facts.CallAttached) -> None:
    state.detached.pop(f"{fact.cycle}/{fact.call}", None)


def _call_doubted(state: SessionState, fact: facts.CallDoubted) -> None:
    state.doubts[fact.doubt] = None


def _doubt_answered(state: SessionState, fact: facts.DoubtAnswered) -> None:
    state.doubts.pop(fact.doubt, None)


# -- failed work, conversations


def _retry_planned(state: SessionState, fact: facts.RetryPlanned) -> None:
    state.retries[fact.item] = RetryState(fact.attempts, fact.due_at)


def _retry_due(state: SessionState, fact: facts.RetryDue) -> None:
    state.retries.pop(fact.item, None)


def _put_aside(state: SessionState, fact: facts.PutAside) -> None:
    state.retries.pop(fact.item, None)
    state.put_aside[fact.item] = fact.attempts


def _letter_answered(state: SessionState, fact: facts.LetterAnswered) -> None:
    state.put_aside.pop(fact.item, None)


def _conversation_reset(state: SessionState, fact: facts.ConversationReset) -> None:
    state.ordinal, state.dropped = fact.ordinal, ()


_ADDITIONS: Final[dict[type[Fact], Callable[[SessionState, Any], None]]] = {
    facts.PerceptionAccepted: _perception_accepted,
    facts.MessageAccepted: _message_accepted,
    facts.MessagePlaced: _message_placed,
    facts.MessageSettled: _message_settled,
    facts.MessageAbsorbed: _message_absorbed,
    facts.MessageReleased: _message_released,
    facts.MessageWithdrawn: _message_withdrawn,
    facts.MessageDropped: _message_dropped,
    facts.DroppedTold: _dropped_told,
    facts.RunBegan: _run_began,
    facts.RunResumed: _run_resumed,
    facts.Spent: _spent,
    facts.RunFinished: _run_finished,
    facts.WorkHandedOut: _work_handed_out,
    facts.WorkTaken: _work_taken,
    facts.CycleOpened: _cycle_opened,
    facts.CycleClosed: _cycle_closed,
    facts.Planned: _planned,
    facts.CallPlanned: _call_planned,
    facts.AttemptStarted: _attempt_started,
    facts.CallEnded: _call_ended,
    facts.CallDetached: _call_detached,
    facts.CallAttached: _call_attached,
    facts.CallDoubted: _call_doubted,
    facts.DoubtAnswered: _doubt_answered,
    facts.RetryPlanned: _retry_planned,
    facts.RetryDue: _retry_due,
    facts.PutAside: _put_aside,
    facts.LetterAnswered: _letter_answered,
    facts.ConversationReset: _conversation_reset,
}
