"""Log of the cycles of an agent: the beginning of each and its work, and its outcome in one piece.

Only agents whose memory keeps a journal have it; whoever calls these has seen to that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from spar.errors import FencedError, SparError
from spar.health.error_reporting import ErrorReporter
from spar.journal.closing import begun, closing, experiences_of, left_over, undealt
from spar.journal.recovery import Recovery
from spar.journal.state.agent_state import AgentState
from spar.loop.core import Core
from spar.loop.cycle import STANDING, Cycle
from spar.loop.setup import Setup
from spar.observe.logs import get_logger
from spar.ports.optional import StatesEffect, offers
from spar.ports.store import StatesDurability
from spar.records.journal import Item, demanded
from spar.records.transcript import Entry
from spar.runs.run import End, Run
from spar.runs.runs import Runs
from spar.runs.transcripts import entries_of
from spar.types import Action, ActionResult, Perception, replace

log = get_logger("spar.recovery")


class CycleLog:
    """Keeps them for one agent; what is in hand, and what becomes of work that failed, its `recovery` knows."""

    __slots__ = ("_agent_state", "_core", "_is_strict", "_recovery", "_reports", "_runs", "_setup", "_work")

    def __init__(self, core: Core, setup: Setup, recovery: Recovery, agent_state: AgentState, reports: ErrorReporter,
                 runs: Runs) -> None:  # fmt: skip
        self._core, self._setup, self._recovery, self._work = core, setup, recovery, recovery.work
        self._agent_state, self._reports, self._runs = agent_state, reports, runs
        self._is_strict = not offers(agent_state.memory, StatesDurability) or agent_state.memory.durability == "power"

    def opened(self, cycle: Cycle, perceptions: Sequence[Perception] | None) -> None:
        """A cycle begins to deal with what it perceived."""
        if cycle.is_journalled:
            return
        cycle.is_journalled = True
        if cycle.resumed is not None:  # it stands as open already
            return
        reached: Mapping[str, Any] = {}
        sense = self._setup.modules["sense"]
        changes = sense.cycle_rows(cycle.id)
        if cycle.session == STANDING:
            reached, changes = sense.cursors(), [*changes, *sense.row_changes()]
        seen = perceptions or ()
        make = partial(begun, cycle, seen)
        demanded(self._work.journal).opened(self._core.name, cycle.id, seen, cycle.items, make, reached, changes)
        if cycle.run is not None and cycle.new_messages:
            self._absorbed(cycle.run.id)

    def _absorbed(self, run_id: str) -> None:
        """Keep what was said in a run as a part of it from the beginning of the cycle that deals with it."""
        run, hand = self._runs.get(run_id), self._work.in_hand
        for each in (run, *run.absorbed):
            item = hand.get(each.id)
            into = "" if each is run else run_id
            if item is not None and (item.into != into or item.perception is not each.message):
                hand[each.id] = item = replace(item, into=into, perception=each.message)
                demanded(self._work.journal).keep(self._core.name, item)

    async def acting(self, actor: Any, action: Action, cycle: Cycle) -> ActionResult | None:
        """An actor that writes down nothing of its calls is about to execute this; its attribute `effect` says whether
        that may be repeated ("once" if it has none). What it cannot be let do again is in doubt: then the result."""
        if cycle.resumed is not None and cycle.resumed.known:
            return ActionResult(action, "failed", cycle.resumed.known)
        if action.calls:
            effect = actor.effect if offers(actor, StatesEffect) else "once"
            journal = demanded(self._work.journal)
            journal.acting(cycle.id, action, effect)
            if effect != "read":
                await journal.safe()
        return None

    def closed(self, cycle: Cycle, duration: float, run: Run | None, end: End | None, is_to_go_on: bool) -> None:
        """A cycle has ended, or is put off to the next start: what it came to becomes durable in one piece.

        What cannot be made of it, such as its record, is reported and missing there; that it has ended is kept.
        """
        core, is_idle, guarded = self._core, cycle.outcome == "idle", self._reports.guarded
        if (is_idle or cycle.is_refused) and not cycle.is_journalled and not cycle.items:
            self._agent_state.passed(cycle, duration)
            return
        journal = demanded(self._work.journal)
        failed: tuple[Item, ...] = ()
        fault = None if is_to_go_on or cycle.is_stepped else undealt(cycle)
        if fault is not None:
            of_run = {each.id for each in (run.message, *run.said, *cycle.new_messages)} if run is not None else ()
            left, is_sensed = left_over(cycle, self._work.in_hand, of_run)
            failed = self._recovery.retries.failed(left, cycle.session, fault, is_sensed=is_sensed)
        experiences = () if is_idle else tuple(guarded(cycle, experiences_of, cycle) or ())
        record = None if is_idle else guarded(cycle, self._agent_state.record_of, cycle, duration)
        item = answer = None
        parts: tuple[Any, ...] = ()
        entries: tuple[Entry, ...] = ()
        if run is not None:
            item = self._work.in_hand.get(run.id)
            if end is not None:
                answer, parts = run.status_at(end, core.clock.now()), self._recovery.ends.parts(run, end)
            elif item is not None and run.output is not None:  # it is asked once more: this stands if no better comes
                item = replace(item, output=run.output)
            if not is_to_go_on:
                entries = guarded(cycle, self._entries_of, run, cycle, end) or ()
        besides = None
        if record is None:
            self._agent_state.passed(cycle, duration)
        else:
            besides = self._agent_state.besides()
        changes = () if is_idle else guarded(cycle, self._agent_state.closing, cycle) or ()
        if not cycle.is_journalled:  # nothing was planned: what came belonged to an incident
            changes = (*changes, *self._setup.modules["sense"].cycle_rows(cycle.id))
        account = closing(cycle, record, experiences, failed=failed, run=item, answer=answer, parts=parts,
                          entries=entries, changes=changes, is_to_go_on=is_to_go_on, besides=besides)  # fmt: skip
        try:
            journal.closed(core.name, cycle.id, account)
        except Exception as error:  # told here, and what cannot be kept is left out
            self._reports.closing_failed(cycle, error)
            bare = replace(account, record=None, experiences=(), credits=(), feedback=(), entries=(), besides=None)
            journal.closed(core.name, cycle.id, bare)
        if cycle.items or run is not None:
            for item_id in (*(cycle.items if is_to_go_on else account.done), *[part.run_id for part in parts]):
                self._work.in_hand.pop(item_id, None)
            if item is not None and answer is not None:
                self._work.in_hand.pop(item.id, None)
            elif account.past is not None:
                self._work.in_hand[account.past.id] = account.past
        if record is not None and not is_to_go_on:
            known = cycle.resumed.known if cycle.resumed is not None else ()
            for result in record.result.results if record.result is not None else known:
                if result.is_in_doubt:
                    self._recovery.doubts.add(cycle.id, cycle.session, account.run_id, record.action, result)
        self._agent_state.stored_all(experiences, record)

    def _entries_of(self, run: Run, cycle: Cycle, end: End | None) -> tuple[Entry, ...]:
        return entries_of(run, cycle, end, self._setup.tools(), self._core.clock.now())

    async def kept(self, *, is_answered: bool) -> bool:
        """Wait until the cycle that has ended is on disk: always when that is to outlive a power cut, and before
        anybody is given the answer of its run. False when another process has taken the memory over, and its runs."""
        journal = self._work.journal
        if journal is None or journal.is_safe or not (is_answered or self._is_strict or journal.is_behind):
            return True
        try:
            await journal.safe()
        except FencedError:
            return False
        except SparError as error:  # it is being closed under us
            log.warning("cycle not known to be kept", agent=self._core.name, reason=str(error))
        return True
