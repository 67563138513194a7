"""End of a run in its session: what ends with it, and what becomes of the messages that waited for it."""

from __future__ import annotations

from typing import Any, Literal

from spar import facts
from spar.facts import Fact
from spar.state.work import SessionState


def finish(
    state: SessionState, run: str, status: Literal["ok", "error"], error: str = "", output: Any = None,
    cycle: str = "",
) -> list[Fact]:  # fmt: skip
    """Return the facts about the end of a run: it ends, those that joined it end with it, and messages that waited for
    it become runs of their own. There are none if it has ended.

    Args: cycle: the cycle with whose end it does.
    """
    if run not in state.runs:
        return []
    following: list[Fact] = []
    ending = [run]
    for ending_run in ending:  # grows
        if (ended := state.runs.get(ending_run)) is not None:
            following.append(facts.RunFinished(session=state.key, run=ending_run, status=status, error=error,
                                               output=output, cycle=cycle))  # fmt: skip
            ending += ended.absorbed
    if state.steers and (state.run in ("", run)) and not _is_busy_without(state, run):
        following += [facts.MessagePlaced(session=state.key, run=steer, place="queue")
                      for steer in state.steers if steer != run]  # fmt: skip
    return following


def _is_busy_without(state: SessionState, run: str) -> bool:
    """Return whether other work of the session than this run keeps the messages waiting that came during a run."""
    if state.run == run:
        return False
    is_waiting = len(state.waiting) > (run in state.waiting)
    return is_waiting or state.interrupted_runs > len(state.runs[run].pieces)
