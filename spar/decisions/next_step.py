"""Next step of a session: what it does now, and what the rest of its work waits for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import Struct

from spar.state.work import InterruptedState, SessionState

#: What a session does next: a cycle takes new work; a cycle goes on with its run, at the pace of a busy session; its
#: messages wait until nobody adds more; its run waits for a slot; nothing.
Step = Literal["begin", "continue", "quiet", "slot", "rest"]


class Turn(Struct, frozen=True):
    """Circumstances in which a session chooses its next step.

    `may_begin` says that a run may begin or continue: the session has a slot for it or needs none, or a person runs
    the phases one by one (`is_stepped`). `quiet` is the number of seconds for which collected messages still wait.
    `is_resuming` says that the actor can resume calls of earlier cycles, `may_try` decides by its id whether a suspect
    may be tried now.
    """

    may_begin: bool = True
    quiet: float = 0.0
    is_stepped: bool = False
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


def piece_to_take(state: SessionState, turn: Turn) -> InterruptedState | None:
    """Return the interrupted work that the next cycle takes; None for none. That of a run needs a slot."""
    piece = first_piece(state, turn.may_try)
    return piece if piece is not None and (turn.may_begin or piece.run in ("", state.run)) else None


def first_piece(state: SessionState, may_try: Callable[[str], bool]) -> InterruptedState | None:
    """Return the interrupted work that goes first; None for none. While a run is current, only its own may go."""
    for queue in (state.interrupted, state.suspects):
        if not queue:
            continue
        piece = next(iter(queue.values()))
        if (not state.run or piece.run in ("", state.run)) and (not piece.is_suspect or may_try(piece.work)):
            return piece
    return None
