"""What is written down of the cycles of an agent: that one begins, on what; what it came to, in one piece.

Only agents whose memory keeps a journal have it; whoever calls these has seen to that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from spar.closing import begun, closing, left_over, undealt
from spar.cycle import STANDING, Cycle
from spar.errors import FencedError, SparError
from spar.journal import Item, RowChange
from spar.logs import get_logger
from spar.optional_ports import ChangesRows, KeepsCursors, StatesEffect, offers
from spar.run import End, Run, RunStatus
from spar.store_port import StatesDurability
from spar.transcript import Entry
from spar.types import Action, ActionResult, Perception, replace

if TYPE_CHECKING:
    from spar.agent import Agent
    from spar.recovery import Recovery

log = get_logger("spar.recovery")


class Books:
    """Keeps them for one agent; what is in hand, and what becomes of work that failed, its `recovery` knows."""

    __slots__ = ("_agent", "_is_strict", "_recovery")

    def __init__(self, agent: Agent, recovery: Recovery) -> None:
        self._agent, self._recovery = agent, recovery
        self._is_strict = not offers(agent.memory, StatesDurability) or agent.memory.durability == "power"

    def opened(self, cycle: Cycle, perceptions: Sequence[Perception] | None) -> None:
        """A cycle begins to deal with what it perceived."""
        if cycle.is_journalled:
            return
        cycle.is_journalled = True
        if cycle.resumed is not None:  # it stands as open already
            return
        is_standing = cycle.session == STANDING
        cursors, changes = (self.cursors(), self.row_changes()) if is_standing else ({}, ())
        seen = perceptions or ()
        name = self._agent.name
        make = partial(begun, cycle, seen)
        self._recovery.journal.opened(name, cycle.id, seen, cycle.items, make, cursors, changes)
        if cycle.run is not None and cycle.said:
            self._absorbed(cycle.run.id)

    def _absorbed(self, run_id: str) -> None:
        """What was said in a run is kept as a part of it from the beginning of the cycle that deals with it."""
        run, hand = self._agent.runs.get(run_id), self._recovery.in_hand
        for each in (run, *run.absorbed):
            item = hand.get(each.id)
            into = "" if each is run else run_id
            if item is not None and (item.into != into or item.perception is not each.message):
                hand[each.id] = item = replace(item, into=into, perception=each.message)
                self._recovery.journal.keep(self._agent.name, item)

    def cursors(self) -> dict[str, Any]:
        """The sensors' cursors, which go on as soon as the journal has what they brought."""
        sense = self._agent.modules["sense"].part
        return dict(sense.cursors()) if offers(sense, KeepsCursors) else {}

    def row_changes(self) -> Sequence[RowChange]:
        """What sensors want changed in their rows, with what they brought."""
        sense = self._agent.modules["sense"].part
        return tuple(sense.row_changes()) if offers(sense, ChangesRows) else ()

    async def acting(self, actor: Any, action: Action, cycle: Cycle) -> ActionResult | None:
        """An actor that writes down nothing of its calls is about to execute this; its attribute `effect` says whether
        that may be repeated ("once" if it has none). What it cannot be let do again is in doubt: then the result."""
        effect = actor.effect if offers(actor, StatesEffect) else "once"
        if cycle.resumed is not None and cycle.resumed.known:
            return ActionResult(action, "failed", cycle.resumed.known)
        if action.calls:
            self._recovery.journal.acting(cycle.id, action, effect)
            if effect != "read":
                await self._recovery.journal.safe()
        return None

    def closed(self, cycle: Cycle, duration: float, run: Run | None, end: End | None, is_to_go_on: bool) -> None:
        """A cycle has ended, or is put off to the next start: what it came to becomes durable in one piece.

        What cannot be made of it, such as its record, is reported and missing there; that it has ended is kept.
        """
        agent, is_idle, guarded = self._agent, cycle.outcome == "idle", self._agent.reports.guarded
        if (is_idle or cycle.is_refused) and not cycle.is_journalled and not cycle.items:
            return
        failed: tuple[Item, ...] = ()
        fault = None if is_to_go_on or cycle.is_stepped else undealt(cycle)
        if fault is not None:
            of_run = {each.id for each in (run.message, *run.said, *cycle.said)} if run is not None else ()
            left, is_sensed = left_over(cycle, self._recovery.in_hand, of_run)
            failed = self._recovery.failed(left, cycle.session, fault, is_sensed=is_sensed)
        experiences = () if is_idle else tuple(guarded(cycle, agent.keeping.experiences, cycle) or ())
        record = None if is_idle else guarded(cycle, agent.keeping.record_of, cycle, duration)
        item = self._recovery.in_hand.get(run.id) if run is not None else None
        if item is not None and run is not None and end is None and run.output is not None:
            item = replace(item, output=run.output)  # it is asked once more, and this stands if nothing better comes
        answer = run.status_at(end, agent.clock.now()) if run is not None and end is not None else None
        parts = self._parts(run, end) if run is not None and end is not None else ()
        entries: tuple[Entry, ...] = ()
        if run is not None and not is_to_go_on:
            entries = guarded(cycle, agent.transcripts.entries_of, run, cycle, end) or ()
        account = closing(cycle, record, experiences, failed=failed, run=item, answer=answer, parts=parts,
                          entries=entries, is_to_go_on=is_to_go_on)  # fmt: skip
        if not is_idle:
            account = replace(account, changes=guarded(cycle, agent.keeping.closing, cycle) or ())
            self._recovery.journal.renew(f"statistics of {agent.name}", agent.keeping.statistics)
        try:
            self._recovery.journal.closed(agent.name, cycle.id, account)
        except Exception as error:
            agent.reports.closing_failed(cycle, error)
            bare = replace(account, record=None, experiences=(), entries=())
            self._recovery.journal.closed(agent.name, cycle.id, bare)
        for item_id in (*(cycle.items if is_to_go_on else account.done), *[part.run_id for part in parts]):
            self._recovery.in_hand.pop(item_id, None)
        if item is not None and answer is not None:
            self._recovery.in_hand.pop(item.id, None)
        elif account.past is not None:
            self._recovery.in_hand[account.past.id] = account.past
        if record is not None and not is_to_go_on:
            known = cycle.resumed.known if cycle.resumed is not None else ()
            for result in record.result.results if record.result is not None else known:
                if result.is_in_doubt:
                    self._recovery.doubts.add(cycle.id, cycle.session, account.run_id, record.action, result)
        agent.keeping.stored_all(experiences, record)

    def _parts(self, run: Run, end: End) -> tuple[RunStatus, ...]:
        """How the accepted messages that are a part of a run end with it."""
        found: list[RunStatus] = []
        for part in run.share():
            if part.id in self._recovery.in_hand:
                found.append(part.status_at(end, self._agent.clock.now()))
            found += self._parts(part, end)
        return tuple(found)

    def _tell_end(self, run: Run, end: End) -> bool:
        """Tell the journal that a run is over, and with it what is a part of it; False if it knows."""
        was_in_hand = run.id in self._recovery.in_hand
        ends = [run.status_at(end, self._agent.clock.now())] if was_in_hand else []
        for each in (*ends, *self._parts(run, end)):
            del self._recovery.in_hand[each.run_id]
            if self._recovery.journal is not None:  # else it is told at the next start, if there is to be one
                self._recovery.journal.run_ended(each.run_id, each)
        return was_in_hand

    async def end_kept(self, run: Run, end: End) -> None:
        """Have the end of a run that no cycle ends on disk before anybody is told of it."""
        journal = self._recovery.journal
        if journal is None or run.status is not None or not self._tell_end(run, end):
            return
        try:
            await journal.safe()
        except SparError as error:  # it is being closed under us, or was taken over
            log.warning("end of a run not known to be kept", agent=self._agent.name, reason=str(error))

    def run_ended(self, run: Run) -> None:
        """A run has its answer; one that no cycle gave is kept here, and so is one that was changed since."""
        agent, journal = self._agent, self._recovery.journal
        end = End(run.status or "error", run.error, run.output)
        is_new = self._tell_end(run, end)
        if journal is not None and run.is_changed and not is_new:
            journal.amended(run.id, run.status_at(None, agent.clock.now()))

    async def kept(self, *, is_answered: bool) -> bool:
        """Wait until the cycle that has ended is on disk: always when that is to outlive a power cut, and before
        anybody is given the answer of its run. False when another process has taken the memory over, and its runs."""
        journal = self._recovery.journal
        if journal is None or journal.is_safe or not (is_answered or self._is_strict or journal.is_behind):
            return True
        try:
            await journal.safe()
        except FencedError:
            return False
        except SparError as error:  # it is being closed under us
            log.warning("cycle not known to be kept", agent=self._agent.name, reason=str(error))
        return True
