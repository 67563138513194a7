"""Next step of a session: what it does now, what the rest of its work waits for, the work of its next cycle; and the
sessions that begin or continue a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Literal

from msgspec import Struct

from spar import facts
from spar.facts import Fact, WorkHandedOut
from spar.state.apply import SessionState
from spar.types import Perception, Trust, replace

#: What a session does next: a cycle takes new work; a cycle goes on with its run, at the pace of a busy session; its
#: messages wait until nobody adds more; its run waits for a slot; nothing.
Step = Literal["begin", "continue", "quiet", "slot", "rest"]


class Turn(Struct, frozen=True):
    """Circumstances in which a session chooses its next step.

    `may_begin` says that a run may begin or continue: the session has a slot for it or needs none, or a person runs
    the phases one by one. `quiet` is the number of seconds for which collected messages still wait.
    `is_resuming` says that the actor can resume calls of earlier cycles, `may_try` decides by its id whether a suspect
    may be tried now.
    """

    may_begin: bool = True
    quiet: float = 0.0
    is_resuming: bool = False
    may_try: Callable[[str], bool] = lambda work: True


def next_step(state: SessionState, turn: Turn) -> Step:
    """Return what a session does next."""
    if state.pushed or ((state.interrupted or state.suspects) and piece_to_take(state, turn) is not None):
        return "begin"
    begins_run = may_begin_run(state)
    if begins_run and turn.may_begin and not turn.quiet:
        return "begin"
    if state.run or turn.is_resuming:
        return "continue"
    if begins_run and turn.quiet:
        return "quiet"
    return "slot" if begins_run or has_run_to_begin(state, turn) else "rest"


def may_begin_run(state: SessionState) -> bool:
    """Return whether the next waiting run may begin after its quiet time: no run is current, and none was
    interrupted."""
    return bool(state.waiting) and not (state.run or state.interrupted_runs)


def has_run_to_begin(state: SessionState, turn: Turn) -> bool:
    """Return whether a run begins, or an interrupted one continues, as soon as the session has a slot."""
    if state.run:
        return False
    if state.interrupted_runs:
        piece = first_piece(state, turn.may_try)
        return piece is not None and bool(piece.run)
    return bool(state.waiting) and not turn.quiet


def piece_to_take(state: SessionState, turn: Turn) -> WorkHandedOut | None:
    """Return the interrupted work that the next cycle takes; None for none. That of a run needs a slot."""
    piece = first_piece(state, turn.may_try)
    return piece if piece is not None and (turn.may_begin or piece.run in ("", state.run)) else None


def first_piece(state: SessionState, may_try: Callable[[str], bool]) -> WorkHandedOut | None:
    """Return the interrupted work that goes first; None for none. While a run is current, only its own may go."""
    for queue in (state.interrupted, state.suspects):
        if not queue:
            continue
        piece = next(iter(queue.values()))
        if (not state.run or piece.run in ("", state.run)) and (not piece.is_suspect or may_try(piece.work)):
            return piece
    return None


def take(state: SessionState, cycle: str, turn: Turn, new_id: Callable[[], str]) -> list[Fact]:
    """Return the facts about the work that a cycle takes without interrupted work: the waiting perceptions, and its
    run, which begins if none is current, with the messages that join it.

    Args: new_id: returns an id for the message that tells of dropped ones.
    """
    key, following, run = state.key, list[Fact](), state.run
    dropped = state.dropped
    if state.waiting and turn.may_begin and not turn.quiet and may_begin_run(state):
        run, *others = _together(state) if len(state.waiting) > 1 else state.waiting
        following.append(facts.RunBegan(session=key, run=run))
        for other in others:
            absorbed = facts.MessageAbsorbed(session=key, run=other, into=run, outcome="collected", is_new=False)
            following.append(absorbed)
        if others:
            message = collected([state.runs[joining].message for joining in (run, *others)])
            following.append(facts.MessagesJoined(session=key, run=run, message=message))
        if dropped:
            following.append(facts.DroppedTold(session=key, run=run, message=overflow(dropped, key, new_id)))
            dropped = ()
    if run and state.steers:
        following += [facts.MessageAbsorbed(session=key, run=other, into=run) for other in state.steers]
        if dropped:
            following.append(facts.DroppedTold(session=key, run=run, message=overflow(dropped, key, new_id)))
    items = (*((run,) if run else ()), *state.pushed)
    if items:
        following.append(facts.WorkTaken(session=key, cycle=cycle, run=run, items=items))
    return following


def _together(state: SessionState) -> list[str]:
    """Return the next run, with the collected messages that become one with it. Messages of another trust do not."""
    together: list[str] = []
    for run_id in state.waiting:
        run, first = state.runs[run_id], state.runs[together[0]] if together else None
        if first is not None:
            is_joining = first.place == run.place == "collect" and first.message.trust == run.message.trust
            if not is_joining:
                break
        together.append(run_id)
    return together


def collected(messages: Sequence[Perception]) -> Perception:
    """Return one message that contains all collected ones."""
    blocks = [f"---\nQueued #{number}\n{message.text}" for number, message in enumerate(messages, 1)]
    text = "\n".join(["[Queued messages while agent was busy]", *blocks])
    return replace(messages[0], content=text, evidence=tuple(messages))


def overflow(dropped: Sequence[Perception], session: str, new_id: Callable[[], str]) -> Perception:
    """Return a message that summarizes dropped ones. Its trust is that of the least trusted of them."""
    lines = [f"- {message.text}" for message in dropped]
    text = "\n".join([f"[Queue overflow] Dropped {len(lines)} messages due to cap.", *lines])
    trust: Trust = "untrusted" if any(message.trust == "untrusted" for message in dropped) else "trusted"
    return Perception(text, source="runs", kind="message.dropped", id=new_id(), session=session, trust=trust)


# -- slots of the running runs: the session with the oldest work begins or continues first


class Claim(Struct, frozen=True):
    """Present claim of a session to a slot. `since` is when its oldest work came (monotonic seconds). `cycle` has taken
    its work, so that the session could not use a slot before the end of that; "" for no such cycle."""

    since: float
    cycle: str = ""


class Slots(Struct):
    """Slots of one agent: the number of those in use, and the sessions that wait for one.

    `queue` is a heap of the time of the oldest work, the order of arrival, and the session; `waiting` are these
    sessions. `passed_over` is the cycle during which a session was passed over: the next slot is reserved for it.
    """

    used: int = 0
    arrived: int = 0
    queue: list[tuple[float, int, str]] = []
    waiting: set[str] = set()
    passed_over: dict[str, str] = {}


def ask(slots: Slots, session: str, cycle: str, free: int) -> bool:
    """Return whether a session gets one of the free slots at once. Args: cycle: as in `Claim`."""
    if free <= 0 or slots.queue or _passes(slots, session, cycle):
        return False
    slots.used += 1
    return True


def enqueue(slots: Slots, session: str, since: float) -> None:
    """Have a session wait for a slot. Args: since: when its oldest work came (monotonic seconds)."""
    slots.arrived += 1
    slots.waiting.add(session)
    heappush(slots.queue, (since, slots.arrived, session))


def fill(slots: Slots, limit: int, claim_of: Callable[[str], Claim | None]) -> list[str]:
    """Give the free slots to the waiting sessions with the oldest work, and return these.

    Args: limit: the most slots; claim_of: returns the present claim of a session, None if it needs no slot any more.
    """
    granted, passed = list[str](), list[tuple[float, int, str]]()
    while slots.queue and slots.used < limit:
        entry = since, _, session = heappop(slots.queue)
        slots.waiting.discard(session)
        if (claim := claim_of(session)) is None:
            continue
        if claim.since > since:  # its oldest work is gone
            enqueue(slots, session, claim.since)
        elif _passes(slots, session, claim.cycle):
            passed.append(entry)
        else:
            slots.used += 1
            granted.append(session)
    for entry in passed:
        slots.waiting.add(entry[2])
        heappush(slots.queue, entry)
    return granted


def _passes(slots: Slots, session: str, cycle: str) -> bool:
    """Return whether a session is passed over: once, because of the cycle that has taken its work."""
    if cycle and slots.passed_over.get(session, cycle) == cycle:
        slots.passed_over[session] = cycle
        return True
    slots.passed_over.pop(session, None)
    return False
