"""Work of the next cycle of a session."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from spar import facts
from spar.facts import Fact
from spar.state.work import InterruptedState, SessionState


class Turn(Struct, frozen=True):
    """Circumstances of a cycle that is about to begin.

    `may_begin` says that the session has a slot for a run, `is_quiet` that collected messages have waited long enough,
    `is_stepped` that a person runs the phases one by one, `may_try` decides whether a suspect may be tried now.
    """

    may_begin: bool = True
    is_quiet: bool = True
    is_stepped: bool = False
    may_try: Callable[[InterruptedState], bool] = lambda piece: True


def piece_to_take(state: SessionState, turn: Turn) -> InterruptedState | None:
    """Return the interrupted work that the next cycle takes; None for none. That of the current run goes first."""
    if turn.is_stepped:
        return None
    for is_suspect in (False, True):
        piece = next((piece for piece in state.interrupted.values() if piece.is_suspect is is_suspect), None)
        if piece is None or (state.run and piece.run not in ("", state.run)):
            continue
        if is_suspect and not turn.may_try(piece):
            continue
        return piece if piece.run in ("", state.run) or turn.may_begin else None
    return None


def take(state: SessionState, cycle: str, turn: Turn) -> list[Fact]:
    """Return the facts about the work that a cycle takes without interrupted work: the waiting perceptions, and its
    run, which begins if none is current, with the messages that join it."""
    key, following, run = state.key, list[Fact](), state.run
    is_gist_told = bool(state.dropped)
    is_blocked = any(piece.run for piece in state.interrupted.values())
    if not run and state.waiting and not is_blocked and (turn.may_begin or turn.is_stepped) and turn.is_quiet:
        run, *others = _together(state)
        following += [
            facts.RunBegan(session=key, run=run),
            facts.MessageSettled(session=key, run=run, outcome="started"),
        ]
        for other in others:
            following += [facts.MessageAbsorbed(session=key, run=other, into=run, is_new=False),
                     facts.MessageSettled(session=key, run=other, outcome="collected")]  # fmt: skip
        if is_gist_told:
            following.append(facts.DroppedTold(session=key, run=run))
            is_gist_told = False
    if run:
        for other in state.steers:
            following += [facts.MessageAbsorbed(session=key, run=other, into=run),
                     facts.MessageSettled(session=key, run=other, outcome="steered")]  # fmt: skip
        if state.steers and is_gist_told:
            following.append(facts.DroppedTold(session=key, run=run))
    items = (*((run,) if run else ()), *state.pushed)
    if items:
        following.append(facts.WorkTaken(session=key, cycle=cycle, run=run, items=items, is_stepped=turn.is_stepped))
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
