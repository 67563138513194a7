"""End of a run or a cycle in its session: whether a run ends with a cycle, what ends with it or with its conversation,
and what becomes of the messages that waited for it, and of the work of a cycle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from itertools import chain
from typing import Final, Literal

from msgspec import Struct

from spar import facts
from spar.backoff import Backoff
from spar.data.reply import End
from spar.facts import CycleClosed, Fact, PlanOutcome, PutAside, RetryPlanned
from spar.records.journal import MOST_ATTEMPTS, Item, Unfinished
from spar.state.apply import SessionState
from spar.state.work import RunState
from spar.types import replace


def finish(state: SessionState, run: str, end: End) -> list[Fact]:
    """Return the facts about the end of a run: it ends, those that joined it end with it, and messages that waited for
    it become runs of their own. There are none if it has ended."""
    if run not in state.runs:
        return []
    following: list[Fact] = []
    ending = [run]
    for ending_run in ending:  # grows
        if (ended := state.runs.get(ending_run)) is not None:
            following.append(facts.RunFinished(session=state.key, run=ending_run, end=end))
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


#: Failures of the plan in a row that end a run.
MOST_FAILURES: Final = 3


class Limits(Struct, frozen=True):
    """Limits of one run: `timeout` in seconds (0: none), `patience` in seconds of waiting for a provider (0: none),
    `most` by quantity."""

    timeout: float = 0.0
    most: Mapping[str, int] = {}
    patience: float = 0.0

    def seconds(self, run: RunState) -> float:
        """Return the seconds that a run may take; 0 for no limit."""
        chosen = run.chosen.timeout
        return self.timeout if chosen is None else chosen


def judge(run: RunState, closed: CycleClosed, elapsed: float, limits: Limits) -> End | None:
    """Return how a run ends with this cycle; None if it goes on.

    Args: run: its state before the cycle closed; elapsed: seconds since it began, without those in which it waited for
        a provider.
    """
    end = VERDICTS[closed.plan](run, closed, limits)
    return end if end is not None or closed.plan == "cut" else _exceeded(run, closed, elapsed, limits)


def _as_told(run: RunState, closed: CycleClosed, limits: Limits) -> End | None:
    return End("error", closed.error) if closed.error else None  # what a stop cuts off continues at the next start


def _barred(run: RunState, closed: CycleClosed, limits: Limits) -> End | None:
    return End("error", closed.error, run.output)


def _failed(run: RunState, closed: CycleClosed, limits: Limits) -> End | None:
    is_last = closed.is_final or run.failures + 1 >= MOST_FAILURES
    return End("error", closed.error) if is_last else None


def _deferred(run: RunState, closed: CycleClosed, limits: Limits) -> End | None:
    waited = run.waited + closed.waits
    if limits.patience and waited >= limits.patience:
        return End("error", f"waited for {waited:g} s (runs.patience): {closed.error}", run.output)
    return None


def _answered(run: RunState, closed: CycleClosed, limits: Limits) -> End | None:
    if not closed.answers or (run.verifies and closed.has_failed):  # an answer about failed calls is asked for again
        return None
    return End("ok", output=run.output if closed.output is None else closed.output)  # the last answer, if no new one


#: How a run ends with a cycle, by what became of the plan of that cycle. A limit of the run may end it, too.
VERDICTS: Final[dict[PlanOutcome, Callable[[RunState, CycleClosed, Limits], End | None]]] = {
    "made": _answered,
    "deferred": _deferred,
    "failed": _failed,
    "refused": _as_told,
    "barred": _barred,
    "cut": _as_told,
    "none": _as_told,
}


def _exceeded(run: RunState, closed: CycleClosed, elapsed: float, limits: Limits) -> End | None:
    """Return the end of a run that has reached a limit; None below all limits."""
    timeout = limits.seconds(run)
    if timeout and elapsed >= timeout:
        return End("error", too_long(timeout))
    for quantity, most in limits.most.items():
        used = run.used.get(quantity, 0) + (closed.calls if quantity == "calls" else 0)
        if used >= most:
            answers = closed.answers and closed.output is not None
            unit = 1_000_000 if quantity == "money" else 1
            took = f"it took {used / unit:.12g} {quantity.replace('_', ' ')}"
            why = f"{took}, and a run may take {most / unit:.12g} (runs.{quantity})"
            return End("error", why, closed.output if answers else run.output)
    return None


def too_long(timeout: float) -> str:
    """Return the error of a run that took more than `timeout` seconds."""
    return f"took longer than {timeout:g} s"


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


# -- consequence of the end of a cycle for the work that it took, and of a failure for one piece of it

#: What becomes of the work of a cycle: it is done; it waits again, before all other work; it is tried again later, and
#: put aside after too many attempts; the next start continues the cycle.
Consequence = Literal["done", "again", "later", "next start"]
#: How far a cycle came: until its plan began; until its first call; further.
Progress = Literal["noticing", "planning", "acting"]
#: How a cycle ended: well; a phase before its first call failed; the stop of the agent cut it off; it broke off; people
#: called it off.
Ending = Literal["well", "failed", "stopped", "broken", "called off"]

#: What a cycle had when it ended: interrupted work whose plan had not begun, which is an item to deal with again or a
#: cycle to continue; other work, before its first call; a call.
Stage = Literal["item", "cycle", "planning", "acting"]

#: What becomes of the work of a cycle. What was attempted is never attempted again by itself. An interrupted item whose
#: cycle failed has one attempt more, like new work; all else that happens to interrupted work does not count.
CONSEQUENCES: Final[dict[Ending, dict[Stage, Consequence]]] = {
    "well": {"item": "again", "cycle": "again", "planning": "done", "acting": "done"},
    "failed": {"item": "later", "cycle": "again", "planning": "later", "acting": "done"},
    "stopped": {"item": "again", "cycle": "again", "planning": "next start", "acting": "next start"},
    "broken": {"item": "again", "cycle": "again", "planning": "later", "acting": "done"},
    "called off": {"item": "later", "cycle": "done", "planning": "later", "acting": "done"},
}
#: The wait (seconds) between a failure and the next attempt at the same work.
BACKOFF: Final = Backoff(10.0, 300.0)


def consequence(progress: Progress, ending: Ending, piece: Literal["", "item", "cycle"] = "") -> Consequence:
    """Return what becomes of the work of a cycle. Args: piece: the kind of interrupted work that it took, if any."""
    stage: Stage = "acting" if progress == "acting" else "planning"
    return CONSEQUENCES[ending][piece if piece and progress == "noticing" else stage]


def retry(item: Item, now: datetime) -> RetryPlanned | PutAside:
    """Return the fact about work whose last attempt failed: it is tried again later, or put aside."""
    due_at = now + timedelta(seconds=BACKOFF.delay(item.attempts))
    return put_aside(item) or RetryPlanned(session=item.session, item=replace(item, due_at=due_at))


def put_aside(item: Item) -> PutAside | None:
    """Return the fact that work is put aside; None if it was not attempted too often."""
    if item.attempts < MOST_ATTEMPTS:
        return None
    why = (item.fault and item.fault.message) or "the process ended with it in hand"
    return PutAside(session=item.session, item=item, reason=f"{item.attempts} attempts failed; the last: {why}")
