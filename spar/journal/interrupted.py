"""Cycles that were cut off: what becomes of each when it is found in the journal again.

One that had decided goes on under its own id, with what is known of its calls; one that had not, or that was cut off
too often, is broken up into what it was begun on. Which of them is dealt with when is `spar.journal.recovery`'s affair.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from spar.failpoints import crashpoint
from spar.journal.in_doubt import InDoubtCalls
from spar.journal.work import Work
from spar.loop.core import Core
from spar.records.journal import MOST_ATTEMPTS, Closing, Interrupted, Item, Unfinished, demanded
from spar.runs.run import Run
from spar.types import CallResult, CycleRecord, Fault, Perception, replace


class Resumes(Protocol):
    """The recovery that has sessions go on with what was cut off."""

    def resume_with(self, work: Unfinished, run: Run | None = None, *, is_suspect: bool = False) -> None:
        """Have interrupted work wait in its session for a cycle of its own, with its run if it has one."""

    async def run_of(self, item: Item | None) -> Run | None:
        """Return the run of an accepted message, with what its earlier cycles brought."""


class CutCycles:
    """The cycles of one agent that were cut off."""

    __slots__ = ("_core", "_doubts", "_recovery", "_work")

    def __init__(self, core: Core, work: Work, doubts: InDoubtCalls, recovery: Resumes) -> None:
        self._core, self._work, self._doubts, self._recovery = core, work, doubts, recovery

    async def go_on(self, cycle: Unfinished, items: dict[str, Item], said: Collection[str] = ()) -> bool:
        """See to one; whether it goes on under its own id.

        Args: items: accepted work by id, from which what it was begun on is taken; said: what was said in runs (ids of
            perceptions), which go on with it themselves.
        """
        if cycle.effect:
            return self._reattach(cycle)
        if cycle.is_stepped or tries(cycle, items) >= MOST_ATTEMPTS or cycle.action is None:
            self._break_up(cycle, items, said)
            return False
        is_suspect, run = tries(cycle, items) > 1, None
        if cycle.run_id is not None:
            run = await self._recovery.run_of(items.pop(cycle.run_id, None))
        if cycle.run_id is not None and run is None:  # it was ended meanwhile
            self._break_up(cycle, items, said)
            return False
        for item_id in cycle.items:
            if (item := items.pop(item_id, None)) is not None:
                self._work.in_hand[item_id] = item
        self._recovery.resume_with(cycle, run, is_suspect=is_suspect)
        return True

    async def begun_again(self, cycle: Unfinished) -> None:
        """Count this beginning of a cycle durably before anything of it is done: it may be what kills the process."""
        journal = self._work.journal
        if journal is None:
            return
        self._reopen(replace(cycle, attempts=cycle.attempts + 1))
        crashpoint("recover.resume")
        await journal.safe()

    def give_up(self, piece: Interrupted[Run]) -> None:
        """The run of interrupted work has ended: nothing of it goes on."""
        if piece.cycle is not None and self._work.journal is not None:
            self._break_up(piece.cycle, {}, ())

    def _reopen(self, cycle: Unfinished) -> None:
        name = self._core.name
        demanded(self._work.journal).opened(name, cycle.cycle_id, cycle.perceptions, cycle.items, lambda: cycle, {})

    def _break_up(self, cycle: Unfinished, items: dict[str, Item], said: Collection[str]) -> None:
        """A cycle that does not go on: what it was begun on is tried by itself, or put aside with it."""
        core, journal = self._core, demanded(self._work.journal)
        why = Fault("interrupted", "the process ended in the middle of it", "loop")
        for result in cycle.known:
            if result.is_in_doubt:
                self._doubts.add(cycle.cycle_id, cycle.session, cycle.run_id, cycle.action, result)
        again: dict[str, Item] = {}
        if not cycle.is_stepped and (cycle.action is None or tries(cycle, items) >= MOST_ATTEMPTS):
            run = items.get(cycle.run_id or "")
            for perception in cycle.perceptions:
                if perception.id not in said and (run is None or perception.id != run.perception.id):
                    known = items.get(perception.id) or Item(perception.id, perception, session=cycle.session)
                    again[known.id] = replace(known, perception=perception, is_sensed=True)
            if run is not None:
                again[run.id] = run
        for item in again.values():
            items[item.id] = replace(item, attempts=item.attempts + cycle.attempts, fault=why)
            journal.keep(core.name, items[item.id])
        done = tuple(item_id for item_id in cycle.items if item_id not in again and item_id != cycle.run_id)
        for item_id in done:
            items.pop(item_id, None)
        action = None if cycle.action is None else replace(cycle.action, perceptions=())
        record = CycleRecord(cycle.cycle_id, core.name, cycle.session, cycle.opened_at, 0.0, "interrupted",
                             cycle.perceptions, action, faults=(why,))  # fmt: skip
        journal.closed(core.name, cycle.cycle_id, Closing("interrupted", record, run_id=cycle.run_id, done=done))

    def _reattach(self, cut: Unfinished) -> bool:
        """A call that nobody waited for was cut off: in doubt, or made again, as its effect allows."""
        core, journal = self._core, demanded(self._work.journal)
        assert cut.action is not None
        [call] = cut.action.calls
        work = cut.cycle_id.removesuffix(f"/{call.id}")
        if cut.effect == "once":
            message = f"tool {call.tool!r} was on its way, detached, when the process ended: find out"
            why = Fault("in_doubt", message, call.tool, "act", retryable=False)
            self._doubts.add(work, cut.session, None, cut.action, CallResult(call, "in_doubt", fault=why))
        elif cut.effect == "idempotent":
            told = Perception(f"{call.tool} was cut off and is made again", source="recovery", kind="call.again",
                              session=cut.session, trust="trusted")  # fmt: skip
            again = replace(cut, cycle_id=core.clock.new_id(), perceptions=(told,), effect="")
            self._reopen(again)
            journal.acting(again.cycle_id, cut.action)
            self.go_on_with(again)
        journal.attached(work, call.id)
        return cut.effect == "idempotent"

    def go_on_with(self, cycle: Unfinished) -> None:
        """Have a cycle of its own execute this, which stands in the journal."""
        self._recovery.resume_with(cycle)


def tries(cycle: Unfinished, items: Mapping[str, Item]) -> int:
    """Return how often the process died with this cycle in hand, or with one of the items it was begun on."""
    begun_on = [items[item_id].attempts for item_id in (*cycle.items, cycle.run_id or "") if item_id in items]
    return cycle.attempts + max(begun_on, default=0)
