"""Reset of a conversation: the runs that end with it, and what is left of the current cycle."""

from __future__ import annotations

from itertools import chain

from msgspec import Struct

from spar.records.journal import Unfinished
from spar.state.work import SessionState
from spar.types import replace


class Ended(Struct, frozen=True):
    """Work that ends with a conversation.

    `runs` are the ids of its runs. `cut` is the current cycle as the next process shall see it, if it belongs to one of
    them.
    """

    runs: tuple[str, ...] = ()
    cut: Unfinished | None = None


def ended_by_reset(state: SessionState) -> Ended:
    """Return the work that ends when the conversation of a session does.

    Commands are no part of a conversation. The cut cycle is without the messages of the runs, which must not be
    answered again, but with the perceptions of sensors.
    """
    runs = {id: run for id, run in state.runs.items() if not run.is_command}
    cycle = state.cycle
    if cycle is None or cycle.opened is None or cycle.run not in runs:
        return Ended(tuple(runs))
    messages = chain.from_iterable((run.message, *run.message.evidence, *run.later, *run.new) for run in runs.values())
    ids = {message.id for message in messages}
    entry = cycle.opened.unfinished
    if cycle.piece is not None and cycle.piece.cycle is not None:
        entry = cycle.piece.cycle
    others = tuple([perception for perception in cycle.opened.perceptions if perception.id not in ids])
    return Ended(tuple(runs), replace(entry, perceptions=others))
