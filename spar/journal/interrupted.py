"""Interrupted cycles: the decision about each cycle that the journal has as begun and not ended.

A cycle that had planned resumes under its own id, with the known results of its calls. A cycle that had not planned, or
that was interrupted too often, is split: each of its perceptions is tried by itself. `spar.journal.recovery` decides
when.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from spar.decisions.resume import AFTER_EFFECT, resumption
from spar.facts import CallAttached, CycleReopened, CycleWritten, Planned, WorkChanged
from spar.failpoints import crashpoint
from spar.journal.in_doubt import InDoubtCalls
from spar.journal.work import Work
from spar.loop.core import Core
from spar.records.journal import Closing, Item, Unfinished, demanded
from spar.runs.run import Run
from spar.state.work import InterruptedState
from spar.types import CallResult, CycleRecord, Fault, Perception, replace


class Resumes(Protocol):
    """Recovery that has sessions resume interrupted work."""

    def resume_with(self, work: Unfinished, run: Run | None = None, *, is_suspect: bool = False) -> None:
        """Queue interrupted work in its session for a cycle of its own, with its run if it has one."""

    async def run_of(self, item: Item | None) -> Run | None:
        """Return the run of an accepted message, with the results of its earlier cycles."""


class InterruptedCycles:
    """The interrupted cycles of one agent."""

    __slots__ = ("_core", "_doubts", "_recovery", "_work")

    def __init__(self, core: Core, work: Work, doubts: InDoubtCalls, recovery: Resumes) -> None:
        self._core, self._work, self._doubts, self._recovery = core, work, doubts, recovery

    async def resume_or_split(
        self, cycle: Unfinished, items: dict[str, Item], absorbed_ids: Collection[str] = ()
    ) -> bool:
        """Resume or split one interrupted cycle; return whether it resumes under its own id.

        Args: items: open accepted work by id, from which the work of the cycle is removed; absorbed_ids: ids of
        messages that runs absorbed, which those runs process themselves.
        """
        if cycle.effect and not cycle.damage:
            return self._reattach(cycle)
        if cycle.damage:
            self._close(cycle, {}, items)
            return False
        attempts = attempts_at(cycle, items)
        what = resumption(cycle, attempts, has_run=cycle.run_id is None or cycle.run_id in items)
        if what != "continue":
            self._close(cycle, self._pieces_of(cycle, items, absorbed_ids) if what == "split" else {}, items)
            return False
        run = None if cycle.run_id is None else await self._recovery.run_of(items.pop(cycle.run_id))
        for item_id in cycle.items:
            if (item := items.pop(item_id, None)) is not None:
                self._core.ledger.add(WorkChanged(session=item.session, item=item))
        self._recovery.resume_with(cycle, run, is_suspect=attempts > 1)
        return True

    async def count_attempt(self, cycle: Unfinished) -> None:
        """Journal this attempt at a cycle before any of its work is done, because the work may kill the process."""
        journal = self._work.journal
        if journal is None:
            return
        self._reopen(replace(cycle, attempts=cycle.attempts + 1))
        crashpoint("recover.resume")
        await journal.safe()

    def drop(self, piece: InterruptedState) -> None:
        """Drop an interrupted cycle whose run has ended."""
        if piece.cycle is not None and self._work.journal is not None:
            self._close(piece.cycle, {}, {})

    def _reopen(self, cycle: Unfinished) -> None:
        self._core.ledger.tell(CycleReopened.of(cycle))

    @staticmethod
    def _pieces_of(cycle: Unfinished, items: dict[str, Item], absorbed_ids: Collection[str]) -> dict[str, Item]:
        """Return the items by id that a cycle is split into, each to be tried again or put aside."""
        pieces: dict[str, Item] = {}
        run = items.get(cycle.run_id or "")
        for perception in cycle.perceptions:
            if perception.id not in absorbed_ids and (run is None or perception.id != run.perception.id):
                known = items.get(perception.id) or Item(perception.id, perception, session=cycle.session)
                pieces[known.id] = replace(known, perception=perception, is_sensed=True)
        if run is not None:
            pieces[run.id] = run
        return pieces

    def _close(self, cycle: Unfinished, again: dict[str, Item], items: dict[str, Item]) -> None:
        """Close a cycle that does not continue. Args: again: the items that it is split into; items: the open accepted
        work, which they are added to."""
        core, message = self._core, "the process ended in the middle of it"
        if cycle.damage:
            message += f", and what is known of it cannot be read: {cycle.damage}"
        why = Fault("interrupted", message, "loop")
        for result in cycle.known:
            if result.is_in_doubt:
                self._doubts.add(cycle.cycle_id, cycle.session, cycle.run_id, cycle.action, result)
        for item in again.values():
            items[item.id] = replace(item, attempts=item.attempts + cycle.attempts, fault=why)
            demanded(self._work.journal).append(WorkChanged(session=item.session, item=items[item.id]), core.name)
        done = tuple(item_id for item_id in cycle.items if item_id not in again and item_id != cycle.run_id)
        for item_id in done:
            items.pop(item_id, None)
        action = None if cycle.action is None else replace(cycle.action, perceptions=())
        record = CycleRecord(cycle.cycle_id, core.name, cycle.session, cycle.opened_at, 0.0, "interrupted",
                             cycle.perceptions, action, faults=(why,))  # fmt: skip
        closing = Closing("interrupted", record, run_id=cycle.run_id, done=done)
        core.ledger.tell(CycleWritten(session=cycle.session, cycle=cycle.cycle_id, closing=closing))

    def _reattach(self, entry: Unfinished) -> bool:
        """Decide about an interrupted call that no cycle waited for: it is in doubt, or made again, as its effect
        allows. Return whether it is made again."""
        core = self._core
        assert entry.action is not None
        [call] = entry.action.calls
        work = entry.cycle_id.removesuffix(f"/{call.id}")
        what = AFTER_EFFECT.get(entry.effect, "nothing")
        if what == "doubt":
            message = f"tool {call.tool!r} was on its way, detached, when the process ended: find out"
            why = Fault("in_doubt", message, call.tool, "act", retryable=False)
            self._doubts.add(work, entry.session, None, entry.action, CallResult(call, "in_doubt", fault=why))
        elif what == "again":
            notice = Perception(f"{call.tool} was cut off and is made again", source="recovery", kind="call.again",
                                session=entry.session, trust="trusted")  # fmt: skip
            again = replace(entry, cycle_id=core.clock.new_id(), perceptions=(notice,), effect="")
            self._reopen(again)
            core.ledger.tell(Planned(session=again.session, cycle=again.cycle_id, action=entry.action))
            self._recovery.resume_with(again)
        core.ledger.tell(CallAttached(session=entry.session, cycle=work, call=call.id))
        return what == "again"


def attempts_at(cycle: Unfinished, items: Mapping[str, Item]) -> int:
    """Return how often the process died while this cycle, or one of its items, was current."""
    begun_on = [items[item_id].attempts for item_id in (*cycle.items, cycle.run_id or "") if item_id in items]
    return cycle.attempts + max(begun_on, default=0)
