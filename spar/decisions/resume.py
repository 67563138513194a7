"""Resumption of what an earlier process left: accepted work, interrupted cycles, calls that continued without one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, Literal

from spar import facts
from spar.decisions.finish import put_aside
from spar.facts import COMMAND, Fact
from spar.records.journal import MOST_ATTEMPTS, Answer, Closing, Doubt, Item, Unfinished
from spar.state.apply import SessionState
from spar.state.work import NOT_FINAL, CycleState
from spar.types import Action, Call, CallResult, CycleRecord, Fault, Perception, replace

#: What becomes of an interrupted cycle: it continues under its own id; its work is dealt with again piece by piece; it
#: is over, as a person had begun it.
Resumption = Literal["continue", "split", "over"]
#: What becomes of a call that was on its way when the process ended: a person decides, it is made again, or nothing.
AFTER_EFFECT: Final[dict[str, Literal["doubt", "again", "nothing"]]] = {
    "once": "doubt",
    "idempotent": "again",
}

#: What a person can say of a call in doubt, and what follows: the planner is told, or a cycle makes the call again.
ANSWERS: Final[dict[Answer, Literal["told", "made again"]]] = {
    "done": "told",
    "failed": "told",
    "again": "made again",
}

#: Reasons of skipped calls that are not made again: the call waits for an approval, or a new plan decides about it.
_PUT_OFF: Final = ("parked", "steered")


def open_work(states: Iterable[SessionState]) -> set[str]:
    """Return the ids of the accepted work of sessions, of their current and interrupted cycles, and of their calls that
    continue without one."""
    ids = set[str]()
    for state in states:
        ids.update(state.items, state.detached, (piece.work for piece in state.pieces))
        if state.cycle is not None:
            ids.add(state.cycle.id)
    return ids


def recover(
    left: SessionState, ids: Collection[str], states: Mapping[str, SessionState], agent: str, now: datetime,
    new_id: Callable[[], str], *, is_suspect: bool = False,
) -> Iterator[Fact]:  # fmt: skip
    """Yield the facts about the work of a session that no state of this process has; each is told before the next is
    asked for.

    `WorkChanged` is told of each item; the journal has those that are in `left` as they are. Interrupted cycles go
    first, then the items in the order in which they came, then the messages that had joined a run.

    Args: left: what the facts in the journal add up to; ids: the work in it that no state has; states: those of this
        process; is_suspect: what the next cycle of the session would take may have ended processes that left no trace
        of it.
    """
    waiting = {id: item for id, item in left.items.items() if id in ids}
    cycles = [piece.cycle for piece in left.pieces if piece.cycle is not None and piece.work in ids]
    for cycle in [cycle for cycle in cycles if cycle.damage]:
        reason = f"cycle {cycle.cycle_id} of its session cannot be read, what it did is not known: {cycle.damage}"
        yield from [facts.PutAside(session=left.key, item=item, reason=reason) for item in waiting.values()]
        waiting.clear()
    parts = [waiting.pop(item.id) for item in list(waiting.values()) if item.into]
    absorbed = {item.perception.id for item in left.items.values() if item.into}
    pieces = dict[str, Item]()
    for cycle in cycles:
        if cycle.effect and not cycle.damage:
            yield from _reattached(cycle, now, new_id)
            continue
        attempts = attempts_at(cycle, waiting)
        what = resumption(cycle, attempts, has_run=cycle.run_id is None or cycle.run_id in waiting)
        if what == "continue":
            begun_on = dict.fromkeys((*cycle.items, cycle.run_id or ""))
            yield from [_known(waiting.pop(id)) for id in begun_on if id in waiting]
            yield facts.WorkHandedOut(session=cycle.session, work=cycle.cycle_id, run=cycle.run_id or "", cycle=cycle,
                                      is_suspect=attempts > 1)  # fmt: skip
        else:
            again = _pieces_of(cycle, waiting, absorbed) if what == "split" else {}
            yield from closed(cycle, again, agent, now)
            for id in cycle.items:
                if id != cycle.run_id:
                    waiting.pop(id, None)
            pieces |= again
            waiting |= again
    is_next = True  # whether the next cycle of the session would take it
    for item in sorted(waiting.values(), key=lambda item: item.at):
        may_end_process = item.attempts > 0 or (is_next and is_suspect)
        is_next = is_next and item.kind != "run"
        if item.id not in pieces:
            if (state := states.get(left.key)) is not None and item.id in state.items:
                continue  # handed out meanwhile
            yield _known(item)
        yield placed(item, states, now, is_suspect=item.due_at is None and may_end_process)
    for item in parts:
        yield _known(item)
        yield facts.MessageAbsorbed(session=item.session, run=item.id, into=item.into)


def placed(item: Item, states: Mapping[str, SessionState], now: datetime, *, is_suspect: bool = False) -> Fact:
    """Return the fact about accepted work that goes to its session: where it waits, or that it is put aside."""
    key = item.session
    if (fact := put_aside(item)) is not None:
        return fact
    if item.due_at is not None and item.due_at > now:
        return facts.RetryPlanned(session=key, item=item)
    is_run = item.kind == "run"
    is_command = COMMAND in item.perception.attributes
    # A run that has begun, perhaps, goes first, and is never dropped.
    has_begun = is_suspect or item.attempts or (item.past if is_run else item.is_sensed)
    if has_begun and not (is_run and is_command):
        return facts.WorkHandedOut(session=key, work=item.id, run=item.id if is_run else "", is_suspect=is_suspect)
    if not is_run:
        return facts.PerceptionAccepted(session=key, perception=item.perception)
    is_collected = item.is_collected and key in states and states[key].is_busy
    return facts.MessagePlaced(session=key, run=item.id, place="collect" if is_collected else "queue")


def _known(item: Item) -> Fact:
    return facts.WorkChanged(session=item.session, item=item)


# -- interrupted cycles


def resumption(cycle: Unfinished, attempts: int, *, has_run: bool) -> Resumption:
    """Return what becomes of an interrupted cycle.

    Args: attempts: how often a process died with it or its work; has_run: its run is open, or it has none.
    """
    if cycle.is_stepped or cycle.damage:
        return "over"
    if cycle.action is None or attempts >= MOST_ATTEMPTS:
        return "split"
    return "continue" if has_run else "over"


def attempts_at(cycle: Unfinished, items: Mapping[str, Item]) -> int:
    """Return how often a process died while this cycle, or one of its items, was current."""
    begun_on = [items[id].attempts for id in (*cycle.items, cycle.run_id or "") if id in items]
    return cycle.attempts + max(begun_on, default=0)


def _pieces_of(cycle: Unfinished, items: Mapping[str, Item], absorbed: Collection[str]) -> dict[str, Item]:
    """Return the items by id that a cycle is split into, each to be tried again or put aside.

    Args: absorbed: ids of messages that runs absorbed, which those runs process themselves.
    """
    pieces: dict[str, Item] = {}
    run = items.get(cycle.run_id or "")
    for perception in cycle.perceptions:
        if perception.id not in absorbed and (run is None or perception.id != run.perception.id):
            known = items.get(perception.id) or Item(perception.id, perception, session=cycle.session)
            pieces[known.id] = replace(known, perception=perception, is_sensed=True)
    if run is not None:
        pieces[run.id] = run
    why = _cut_off(cycle)
    return {id: replace(item, attempts=item.attempts + cycle.attempts, fault=why) for id, item in pieces.items()}


def closed(cycle: Unfinished, again: Mapping[str, Item], agent: str, now: datetime) -> Iterator[Fact]:
    """Yield the facts about a cycle that does not continue. Args: again: the items that it is split into."""
    for result in cycle.known:
        if result.is_in_doubt:
            yield doubted(cycle.cycle_id, cycle.session, cycle.run_id, cycle.action, result, now)
    yield from map(_known, again.values())
    done = tuple(id for id in cycle.items if id not in again and id != cycle.run_id)
    action = None if cycle.action is None else replace(cycle.action, perceptions=())
    record = CycleRecord(cycle.cycle_id, agent, cycle.session, cycle.opened_at, 0.0, "interrupted", cycle.perceptions,
                         action, faults=(_cut_off(cycle),))  # fmt: skip
    closing = Closing("interrupted", record, run_id=cycle.run_id, done=done)
    yield facts.CycleWritten(session=cycle.session, cycle=cycle.cycle_id, closing=closing)


def _cut_off(cycle: Unfinished) -> Fault:
    damage = f", and what is known of it cannot be read: {cycle.damage}" if cycle.damage else ""
    return Fault("interrupted", f"the process ended in the middle of it{damage}", "loop")


def doubted(
    cycle: str, session: str, run: str | None, action: Action | None, result: CallResult, now: datetime
) -> facts.CallDoubted:
    """Return the fact that a call of a cycle may have had its effect."""
    call, why = result.call, "" if result.fault is None else result.fault.message
    doubt = Doubt(f"{cycle}/{call.id}", call, cycle, session, run, now, why, "" if action is None else action.id)
    return facts.CallDoubted(session=session, doubt=doubt)


def answered(doubt: Doubt, call: Call, new_id: Callable[[], str]) -> facts.DoubtAnswered:
    """Return the fact that a person decided about a call in doubt, with the cycle that makes it again, if one does.

    Args: doubt: the call with its answer; call: the same with the values that it was started with.
    """
    again = None
    if doubt.answer is not None and ANSWERS[doubt.answer] == "made again":
        notice, goal = notice_of(doubt), f"make {call.tool} again"
        action = Action((call,), goal=goal, trust="trusted", id=doubt.action_id or new_id())
        again = Unfinished(new_id(), doubt.session, (notice,), action=action)
    return facts.DoubtAnswered(session=doubt.session, doubt=doubt, again=again)


def notice_of(doubt: Doubt) -> Perception:
    """Return the perception that tells a planner of a call in doubt, or what a person says of it."""
    call, attributes = f"call {doubt.call.id} of {doubt.call.tool}", {"doubt": doubt.id, "tool": doubt.call.tool}
    kind, text = f"call.{doubt.answer}", f"{call} was in doubt: {doubt.answered_by or 'somebody'} says {doubt.answer}"
    if doubt.answer is None:
        kind, text = "call.in_doubt", f"{call} is in doubt: {doubt.why}"
    return Perception(text, source="recovery", kind=kind, key=f"{kind}:{doubt.id}", session=doubt.session,
                      priority=0.7, trust="trusted",
                      attributes={**attributes, "answer": doubt.answer, "output": doubt.output})  # fmt: skip


def _reattached(entry: Unfinished, now: datetime, new_id: Callable[[], str]) -> Iterator[Fact]:
    """Yield the facts about a call that no cycle waited for: it is in doubt, or made again, as its effect allows."""
    assert entry.action is not None
    [call] = entry.action.calls
    key, work = entry.session, entry.cycle_id.removesuffix(f"/{call.id}")
    what = AFTER_EFFECT.get(entry.effect, "nothing")
    if what == "doubt":
        message = f"tool {call.tool!r} was on its way, detached, when the process ended: find out"
        fault = Fault("in_doubt", message, call.tool, "act", retryable=False)
        yield doubted(work, key, None, entry.action, CallResult(call, "in_doubt", fault=fault), now)
    elif what == "again":
        notice = Perception(f"{call.tool} was cut off and is made again", source="recovery", kind="call.again",
                            session=key, trust="trusted")  # fmt: skip
        again = replace(entry, cycle_id=new_id(), perceptions=(notice,), effect="")
        yield facts.CycleReopened.of(again)
        yield facts.Planned(session=key, cycle=again.cycle_id, action=entry.action)
        yield facts.WorkHandedOut(session=key, work=again.cycle_id, cycle=again)
    yield facts.CallAttached(session=key, cycle=work, call=call.id)


def completed(entry: Unfinished, cycle: CycleState) -> Unfinished:
    """Return an open cycle with its action and the results of its calls, as far as these must not be made again: the
    calls that ended, and those that may have had an effect that must not be repeated."""
    if cycle.action is None:
        return entry
    calls = {call.id: call for call in reversed(cycle.calls)}  # of two calls with one id the first one counts
    known = [
        replace(result, call=calls[id])
        for id, result in cycle.ended.items()
        if id in calls and (result.status not in NOT_FINAL or result.reason in _PUT_OFF)
    ]
    cut = {id: start.attempt for id, start in cycle.started.items() if start.effect == "once"}
    if cycle.effect == "once":  # the actor does not record its calls: any of them may have run
        cut = dict.fromkeys(calls, 1)
    known += [_in_doubt(calls[id], attempt) for id, attempt in cut.items() if id in calls and id not in cycle.ended]
    action = replace(cycle.action, calls=tuple(cycle.calls), perceptions=entry.perceptions)
    return replace(entry, action=action, known=tuple(known))


def _in_doubt(call: Call, attempt: int) -> CallResult:
    message = f"tool {call.tool!r} was on its way when the process ended and may have had its effect: find out"
    fault = Fault("in_doubt", message, call.tool, "act", retryable=False)
    return CallResult(call, "in_doubt", fault=fault, attempts=attempt)
