"""State of a session, addition of a fact to it, and the states of all sessions of an agent. Pure: it decides nothing,
and any fact fits any state.

A fact about a run or cycle that the state does not have (it ended, or an earlier process had it) changes nothing of it.
The time that an addition takes is that of the fact, not of the state.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import Any, Final

from msgspec import Struct, field

from spar import facts
from spar.facts import MOST_GISTS, Fact, LocalFact, WorkHandedOut
from spar.records.journal import Item
from spar.records.run_options import NO_OPTIONS
from spar.state.work import NOT_FINAL, CycleState, RunState
from spar.types import Perception

#: Shared by all states without interrupted work, which the garbage collector need not look through; never changed.
NO_PIECES: Final = OrderedDict[str, WorkHandedOut]()


class SessionState(Struct):
    """Open work of one session.

    `items` is the accepted work in hand, by id, as the journal keeps it; without a journal there is none.
    `pushed` are the perceptions that wait, `waiting` and `steers` the runs whose message waits: for its turn, or for
    the current run. `interrupting` is the waiting run that a newer interrupting message replaces, "" for none.
    `dropped` are the gists of dropped messages that no run has been told of. `run` is the current run, "" for none.
    `interrupted` is the interrupted work by id, `suspects` that part of it that may have killed a process;
    `interrupted_runs` counts the pieces that belong to a run. `retries` is the failed work that waits until it is due,
    `put_aside` the work that people have to decide about, `doubts` the calls in doubt, `detached` the calls that
    continue without a cycle (`cycle/call`).
    """

    key: str
    items: dict[str, Item] = {}
    pushed: dict[str, Perception] = {}
    waiting: OrderedDict[str, None] = field(default_factory=OrderedDict)
    steers: dict[str, None] = {}
    interrupting: str = ""
    dropped: tuple[Perception, ...] = ()
    runs: dict[str, RunState] = {}
    run: str = ""
    cycle: CycleState | None = None
    interrupted: OrderedDict[str, WorkHandedOut] = field(default_factory=lambda: NO_PIECES)
    suspects: OrderedDict[str, WorkHandedOut] = field(default_factory=lambda: NO_PIECES)
    interrupted_runs: int = 0
    retries: dict[str, None] = {}
    put_aside: dict[str, None] = {}
    doubts: dict[str, None] = {}
    detached: dict[str, str] = {}

    @property
    def pieces(self) -> Iterator[WorkHandedOut]:
        """Return all interrupted work."""
        return chain(self.interrupted.values(), self.suspects.values())

    def piece(self, work: str) -> WorkHandedOut | None:
        """Return a piece of interrupted work; None if it does not wait."""
        return self.interrupted.get(work) or self.suspects.get(work)

    @property
    def is_busy(self) -> bool:
        """Return whether it has a current run, or one that waits."""
        return bool(self.run or self.waiting or self.interrupted_runs)

    @property
    def is_empty(self) -> bool:
        """Return whether nothing of it is open."""
        return not (self.items or self.pushed or self.runs or self.cycle or self.interrupted or self.suspects
                    or self.retries or self.put_aside or self.doubts or self.detached or self.dropped)  # fmt: skip


def apply(state: SessionState, fact: Fact) -> None:
    """Add a fact to the state of its session."""
    ADDITIONS[type(fact)](state, fact)


# -- accepted work


def _work_changed(state: SessionState, fact: facts.WorkAccepted | facts.WorkChanged) -> None:
    state.items[fact.item.id] = fact.item


def _work_left(state: SessionState, fact: facts.WorkLeft) -> None:
    for item in fact.items:
        for kind in (state.items, state.retries, state.put_aside, state.doubts, state.detached):
            kind.pop(item, None)


def _run_answered(state: SessionState, fact: facts.RunAnswered) -> None:
    state.items.pop(fact.run, None)


def _cycle_written(state: SessionState, fact: facts.CycleWritten) -> None:
    for item in fact.closing.done:
        state.items.pop(item, None)


# -- messages


def _perception_accepted(state: SessionState, fact: facts.PerceptionAccepted) -> None:
    state.pushed[fact.perception.id] = fact.perception


def _message_accepted(state: SessionState, fact: facts.MessageAccepted) -> None:
    item, is_new = fact.item, not fact.results
    state.items[item.id] = item
    if item.id in state.runs:
        _unplace(state, item.id)
    run = state.runs[item.id] = RunState(
        item.perception, item.options or NO_OPTIONS, item.defaults or NO_OPTIONS,
        new=(item.perception,) if is_new else (), number=fact.results + 1, is_planned=not is_new,
        verifies=fact.verifies, output=item.output, used=dict(item.used), waited=item.waited,
        failures=item.failures,
    )  # fmt: skip
    _choose_options(run)


def _choose_options(run: RunState) -> None:
    options = run.options
    for other in run.absorbed.values():
        options = options.followed_by(other)
    run.chosen = options if run.defaults is NO_OPTIONS else options.over(run.defaults)


def _message_placed(state: SessionState, fact: facts.MessagePlaced) -> None:
    if (run := state.runs.get(fact.run)) is None:
        return
    if run.place is not None:
        _unplace(state, fact.run)
    run.place = place = fact.place
    if fact.outcome:
        run.outcome = fact.outcome
    if place == "steer":
        state.steers[fact.run] = None
    else:
        state.waiting[fact.run] = None
        if place == "front":
            state.waiting.move_to_end(fact.run, last=False)
        if fact.is_interrupting:
            state.interrupting = fact.run


def _message_absorbed(state: SessionState, fact: facts.MessageAbsorbed) -> None:
    _unplace(state, fact.run)
    other, run = state.runs.get(fact.run), state.runs.get(fact.into)
    if other is None or run is None:
        return
    other.into, other.outcome = fact.into, fact.outcome
    run.absorbed[fact.run] = other.options
    _choose_options(run)
    run.later = (*run.later, other.message)
    if fact.is_new:
        run.new = (*run.new, other.message)


def _message_dropped(state: SessionState, fact: facts.MessageDropped) -> None:
    _unplace(state, fact.run)
    if (run := state.runs.get(fact.run)) is not None:
        run.outcome = "dropped"
    if fact.gist is not None:
        state.dropped = (*state.dropped, fact.gist)[-MOST_GISTS:]


def _dropped_told(state: SessionState, fact: facts.DroppedTold) -> None:
    state.dropped = ()
    if fact.message is not None and (run := state.runs.get(fact.run)) is not None:
        run.new = (fact.message, *run.new)


def _unplace(state: SessionState, run_id: str) -> None:
    """Take a message out of its queue."""
    if (run := state.runs.get(run_id)) is None or run.place is None:
        return
    (state.steers if run.place == "steer" else state.waiting).pop(run_id)
    run.place = None
    if state.interrupting == run_id:
        state.interrupting = ""


# -- runs


def _run_began(state: SessionState, fact: facts.RunBegan) -> None:
    if (run := state.runs.get(fact.run)) is not None:
        _unplace(state, fact.run)
        run.outcome = "started"
        state.run = state.run or fact.run  # it may begin only to end at once, beside the current one


def _spent(state: SessionState, fact: facts.Spent) -> None:
    if (run := state.runs.get(fact.run)) is not None:
        for quantity, amount in fact.amounts.items():
            run.used[quantity] = run.used.get(quantity, 0) + amount


def _messages_joined(state: SessionState, fact: facts.MessagesJoined) -> None:
    if (run := state.runs.get(fact.run)) is not None:
        run.message, run.new = fact.message, (fact.message,)


def _run_finished(state: SessionState, fact: facts.RunFinished) -> None:
    if (run := state.runs.get(fact.run)) is None:
        return
    if run.place is not None:
        _unplace(state, fact.run)
    del state.runs[fact.run]
    if run.into and (whole := state.runs.get(run.into)) is not None:
        whole.absorbed.pop(fact.run, None)
        _choose_options(whole)
    if state.run == fact.run:
        state.run = ""
    for work in run.pieces:
        _take_piece(state, work)


# -- cycles


def _work_handed_out(state: SessionState, fact: facts.WorkHandedOut) -> None:
    state.retries.pop(fact.work, None)
    _add_piece(state, fact)


def _work_taken(state: SessionState, fact: facts.WorkTaken) -> None:
    piece = _take_piece(state, fact.work) if fact.work else None
    if piece is not None and (run := state.runs.get(piece.run)) is not None:
        run.pieces = tuple(work for work in run.pieces if work != piece.work)
    for item in fact.items:
        state.pushed.pop(item, None)
    state.cycle = CycleState(fact.cycle, fact.run, piece, fact.items)


def _add_piece(state: SessionState, piece: WorkHandedOut, *, is_first: bool = False) -> None:
    """Add interrupted work to its queue: at the end, or in front if it was put back. Work that waits already is added
    once."""
    _take_piece(state, piece.work)
    name = "suspects" if piece.is_suspect else "interrupted"
    if (queue := getattr(state, name)) is NO_PIECES:
        queue = OrderedDict()
        setattr(state, name, queue)
    queue[piece.work] = piece
    if is_first:
        queue.move_to_end(piece.work, last=False)
    state.interrupted_runs += bool(piece.run)
    if (run := state.runs.get(piece.run)) is not None:
        run.pieces = (*[work for work in run.pieces if work != piece.work], piece.work)


def _take_piece(state: SessionState, work: str) -> WorkHandedOut | None:
    """Remove interrupted work from its queue, and return it; None if it does not wait."""
    piece = state.interrupted.pop(work, None) or state.suspects.pop(work, None)
    if piece is not None:
        state.interrupted_runs -= bool(piece.run)
    return piece


def _cycle_opened(state: SessionState, fact: facts.CycleOpened) -> None:
    cycle = state.cycle
    if cycle is None or cycle.id != fact.cycle:
        cycle = state.cycle = CycleState(fact.cycle)
    cycle.run, cycle.items, cycle.opened = fact.run, fact.items, fact


def _cycle_closed(state: SessionState, fact: facts.CycleClosed) -> None:
    cycle, state.cycle = state.cycle, None
    if fact.is_put_back and cycle is not None and cycle.piece is not None:
        _add_piece(state, cycle.piece, is_first=True)
    if (run := state.runs.get(fact.run)) is None:
        return
    if fact.calls:
        run.used["calls"] = run.used.get("calls", 0) + fact.calls
    run.waited += fact.waits
    run.number += fact.requests
    if fact.plan == "failed":
        run.failures += 1
    elif fact.plan == "made":
        run.is_planned, run.failures, run.new = True, 0, ()
        if fact.answers:
            run.verifies, run.output = False, run.output if fact.output is None else fact.output


# -- calls


def _planned(state: SessionState, fact: facts.Planned) -> None:
    if (cycle := _cycle(state, fact.cycle)) is not None:
        cycle.action, cycle.effect, cycle.calls = fact.action, fact.effect, list(fact.action.calls)


def _calls_planned(state: SessionState, fact: facts.CallsPlanned) -> None:
    if (cycle := _cycle(state, fact.cycle)) is not None:
        cycle.calls += fact.calls


def _attempt_started(state: SessionState, fact: facts.AttemptStarted) -> None:
    if (cycle := _cycle(state, fact.cycle)) is not None:
        cycle.started[fact.call] = fact
        if (before := cycle.ended.get(fact.call)) is not None and before.status in NOT_FINAL:
            del cycle.ended[fact.call]  # the call was put off and has begun again


def _call_ended(state: SessionState, fact: facts.CallEnded) -> None:
    if (cycle := _cycle(state, fact.cycle)) is not None:
        cycle.ended.pop(fact.result.call.id, None)  # the order is that of the last ends
        cycle.ended[fact.result.call.id] = fact.result


def _cycle(state: SessionState, cycle_id: str) -> CycleState | None:
    cycle = state.cycle
    return cycle if cycle is not None and cycle.id == cycle_id else None


def _call_detached(state: SessionState, fact: facts.CallDetached) -> None:
    state.detached[f"{fact.cycle}/{fact.action.calls[0].id}"] = fact.effect


def _call_attached(state: SessionState, fact: facts.CallAttached) -> None:
    state.detached.pop(f"{fact.cycle}/{fact.call}", None)


def _call_doubted(state: SessionState, fact: facts.CallDoubted) -> None:
    state.doubts[fact.doubt.id] = None


def _doubt_answered(state: SessionState, fact: facts.DoubtAnswered) -> None:
    state.doubts.pop(fact.doubt.id, None)


# -- failed work, conversations


def _retry_planned(state: SessionState, fact: facts.RetryPlanned) -> None:
    state.items[fact.item.id] = fact.item
    state.retries[fact.item.id] = None


def _put_aside(state: SessionState, fact: facts.PutAside) -> None:
    state.retries.pop(fact.item.id, None)
    state.items.pop(fact.item.id, None)
    state.put_aside[fact.item.id] = None


def _letter_answered(state: SessionState, fact: facts.LetterAnswered) -> None:
    state.put_aside.pop(fact.letter.id, None)


def _conversation_reset(state: SessionState, fact: facts.ConversationReset) -> None:
    state.dropped = ()


#: What each kind of fact changes. Those that are not here change no state.
ADDITIONS: Final[dict[type[Fact], Callable[[SessionState, Any], None]]] = {
    facts.WorkAccepted: _work_changed,
    facts.WorkChanged: _work_changed,
    facts.WorkLeft: _work_left,
    facts.RunAnswered: _run_answered,
    facts.CycleWritten: _cycle_written,
    facts.PerceptionAccepted: _perception_accepted,
    facts.MessageAccepted: _message_accepted,
    facts.MessagePlaced: _message_placed,
    facts.MessageAbsorbed: _message_absorbed,
    facts.MessageDropped: _message_dropped,
    facts.MessagesJoined: _messages_joined,
    facts.DroppedTold: _dropped_told,
    facts.RunBegan: _run_began,
    facts.Spent: _spent,
    facts.RunFinished: _run_finished,
    facts.WorkHandedOut: _work_handed_out,
    facts.WorkTaken: _work_taken,
    facts.CycleOpened: _cycle_opened,
    facts.CycleClosed: _cycle_closed,
    facts.Planned: _planned,
    facts.CallsPlanned: _calls_planned,
    facts.AttemptStarted: _attempt_started,
    facts.CallEnded: _call_ended,
    facts.CallDetached: _call_detached,
    facts.CallAttached: _call_attached,
    facts.CallDoubted: _call_doubted,
    facts.DoubtAnswered: _doubt_answered,
    facts.RetryPlanned: _retry_planned,
    facts.PutAside: _put_aside,
    facts.LetterAnswered: _letter_answered,
    facts.ConversationReset: _conversation_reset,
}


class Ledger:
    """States of the sessions of one agent by key, and the one door of the facts that change them.

    `journal` keeps the facts for the next process (`spar.ports.store.WorkJournal`): that of the agent's memory while it
    is open, else the one that `in_memory` returns. `following` is what a fact leads to in this process, by its kind:
    times, timers, logs and events.
    """

    in_memory: Callable[[], Any]

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self.following: dict[type[Fact], Callable[[Any], object]] = {}
        self.states: dict[str, SessionState] = {}
        self._held = set[str]()

    @cached_property
    def journal(self) -> Any:
        """Journal in memory, which the first fact or reader makes; that of a memory is set in its place."""
        return self.in_memory()

    def tell(self, *facts: Fact) -> None:
        """Add facts to the journal and to the states of their sessions, then do what they lead to.

        Raises: errors of the journal that refuses a fact; the states are as before then.
        """
        for fact in facts:
            if not isinstance(fact, LocalFact):
                self.journal.append(fact, self._agent)
        self.add(*facts)
        for fact in facts:
            if (follow := self.following.get(type(fact))) is not None:
                follow(fact)

    def add(self, *facts: Fact) -> None:
        """Add facts that the journal has to the states of their sessions."""
        for fact in facts:
            if (addition := ADDITIONS.get(type(fact))) is None:
                continue
            session = fact.session
            state = self.states.get(session) or self.state_of(session)
            addition(state, fact)
            if session not in self._held and state.is_empty:
                del self.states[session]

    def state_of(self, session: str) -> SessionState:
        """Return the state of a session, an empty one for a session without facts."""
        state = self.states.get(session)
        if state is None:
            state = self.states[session] = SessionState(session)
        return state

    def hold(self, session: str) -> SessionState:
        """Return the state of a session, and keep it until `release`, also if nothing of it is open."""
        self._held.add(session)
        return self.state_of(session)

    def release(self, session: str) -> None:
        """Drop the state of a session as soon as nothing of it is open."""
        self._held.discard(session)
        if (state := self.states.get(session)) is not None and state.is_empty:
            del self.states[session]

    def drop(self, session: str) -> None:
        """Drop the state of a session, whatever is open of it: another process has its facts."""
        self._held.discard(session)
        self.states.pop(session, None)


def fold(session: str, facts: Iterable[Fact], state: SessionState | None = None) -> SessionState:
    """Return the state that these facts of a session add up to, after `state` if it is given."""
    state = SessionState(session) if state is None else state
    for fact in facts:
        apply(state, fact)
    return state
