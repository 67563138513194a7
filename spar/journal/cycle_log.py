"""Log of an agent's cycles in the journal: the start of each with its work, and its end in one transaction.

Only agents whose memory keeps a journal have a log. The callers check this.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from spar.data.reply import End
from spar.decisions.finish import Consequence
from spar.decisions.resume import doubted
from spar.events import ExperienceStored
from spar.facts import CycleOpened, CycleWritten, Planned, WorkChanged, WorkLeft
from spar.health.error_reporting import ErrorReporter
from spar.journal.recovery import Recovery
from spar.journal.state.stored_state import StoredState
from spar.loop.core import Core
from spar.loop.cycle import STANDING, Cycle
from spar.loop.setup import Setup
from spar.ports.any_part import has
from spar.ports.phases import OptionalActor
from spar.ports.store import DurableStore
from spar.records.journal import Closing, Item, RowChange, count_cycle
from spar.runs.runs import Run
from spar.runs.transcripts import entries_of
from spar.state.work import RunState
from spar.types import Action, ActionResult, Fault, Perception, replace

#: Parts of the end of a cycle that a journal may refuse: rows of modules, all data.
_ROWS: Final[Mapping[str, Any]] = {"changes": ()}
_DATA: Final[Mapping[str, Any]] = {**_ROWS, "record": None, "experiences": (), "credits": (), "feedback": (),
                                   "entries": (), "besides": None}  # fmt: skip


class CycleLog:
    """Writer of the cycles of one agent. Its `recovery` keeps the current work and the retries.

    `is_strict` says that the journal must survive a power cut.
    """

    __slots__ = ("_agent_state", "_core", "_recovery", "_reports", "_setup", "is_strict")

    def __init__(
        self, core: Core, setup: Setup, recovery: Recovery, agent_state: StoredState, reports: ErrorReporter
    ) -> None:
        self._core, self._setup, self._recovery = core, setup, recovery
        self._agent_state, self._reports = agent_state, reports
        self.is_strict = (
            not has(agent_state.memory, DurableStore.durability) or agent_state.memory.durability == "power"
        )

    def opened(self, cycle: Cycle, perceptions: Sequence[Perception] | None) -> None:
        """Journal the start of a cycle with its perceptions."""
        if cycle.is_journalled:
            return
        cycle.is_journalled = True
        is_new = cycle.resumed is None
        cursors, changes = self._sensed(cycle, is_polling=cycle.session == STANDING) if is_new else (None, ())
        if is_new and cycle.run is not None and cycle.new_messages:
            self._write_absorbed(cycle.session, cycle.run.id)
        opened = CycleOpened(session=cycle.session, cycle=cycle.id, run="" if cycle.run is None else cycle.run.id,
                             items=cycle.items, perceptions=tuple(perceptions or ()), is_stepped=cycle.is_stepped,
                             cursors=cursors, changes=changes, at=cycle.started_at)  # fmt: skip
        (self._core.ledger.tell if is_new else self._core.ledger.add)(opened)  # else the journal has it as open already

    def _sensed(self, cycle: Cycle, *, is_polling: bool) -> tuple[Mapping[str, Any] | None, tuple[RowChange, ...]]:
        """Return what the sense module wants to be written with the cycle: cursors if it polls, and rows. Nothing if it
        raises, which is an error of that phase: what is not written is noticed again after a restart."""
        sense = self._setup.modules["sense"]
        try:
            cursors, rows = (sense.cursors(), sense.row_changes()) if is_polling else (None, ())
            return cursors, (*(sense.cycle_rows(cycle.id) if sense.cycle_rows else ()), *rows)
        except Exception as error:
            fault = Fault.of(error, part=sense.name, phase="sense")
            self._reports.phase_failed(cycle, fault, error, "continue")
            return {} if is_polling else None, ()

    def _write_absorbed(self, session: str, run_id: str) -> None:
        """Journal the absorbed messages of a run as parts of it, when the cycle begins that processes them."""
        state = self._core.ledger.states[session]
        for part in (run_id, *state.runs[run_id].absorbed) if run_id in state.runs else ():
            item, message = state.items.get(part), state.runs[part].message
            into = "" if part == run_id else run_id
            if item is not None and (item.into != into or item.perception is not message):
                item = replace(item, into=into, perception=message)
                self._core.ledger.tell(WorkChanged(session=session, item=item))

    async def acting(self, actor: Any, action: Action, cycle: Cycle) -> ActionResult | None:
        """Journal an action before an actor executes it that does not journal its calls.

        Its attribute `effect` says whether the action may be repeated ("once" without it). Return a result instead if
        the action was resumed and must not be repeated: its calls are then in doubt.
        """
        if cycle.resumed is not None and cycle.resumed.known:
            return ActionResult(action, "failed", cycle.resumed.known)
        if action.calls:
            effect = actor.effect if has(actor, OptionalActor.effect) else "once"
            self._core.ledger.tell(Planned(session=cycle.session, cycle=cycle.id, action=action, effect=effect))
            if effect != "read":
                await self._core.ledger.journal.safe()
        return None

    def closed(self, cycle: Cycle, duration: float, run: Run | None, end: End | None, what: Consequence) -> None:
        """Journal the end of a cycle, with all its results, in one transaction.

        Args: what: what becomes of its work.
        An error in a part of the data, such as the cycle's record, is reported; the end is journalled without that
        part.
        """
        core, is_idle = self._core, cycle.outcome == "idle"
        if (is_idle or cycle.is_refused) and not cycle.is_journalled and not cycle.items:
            self._count(cycle, duration)
            return
        failed: tuple[Item, ...] = ()
        will_resume, fault = what == "next start", cycle.failure if what == "later" else None
        if fault is not None:
            messages = (*run.messages, *cycle.new_messages) if run is not None else ()
            of_run = {message.id for message in messages}
            left, is_sensed = _perceptions_to_retry(cycle, self._recovery.items(cycle.session), of_run)
            failed = self._recovery.restart.retries.failed(left, cycle.session, fault, is_sensed=is_sensed)
        cycle_id, report = cycle.id, self._reports.closing_failed
        record = experiences = learnt = entries = None
        if not is_idle:
            experiences = cycle.guarded(report, cycle.lived)
            record = cycle.guarded(report, cycle.recorded, core, duration, self._reports.note_failed)
            learnt = cycle.guarded(report, self._agent_state.learn, cycle)
        if run is not None and not will_resume:
            entries = cycle.guarded(report, entries_of, run, cycle.written_action, cycle.result, end, self._setup.tools,
                                    core.clock.now())  # fmt: skip
        state = core.ledger.states.get(cycle.session)
        item = None if run is None or state is None else state.items.get(run.id)
        answer, ended = None, tuple[str, ...]()
        if run is not None and item is not None and end is not None:
            answer, ended = run.status_at(end, core.clock.now()), (run.id,)
        changes: tuple[RowChange, ...] = self._agent_state.agent.learning.changes(learnt) if learnt else ()
        if not cycle.is_journalled:
            # Nothing was planned: the perceptions belong to an incident.
            _, rows = self._sensed(cycle, is_polling=False)
            changes += rows
        besides = None if record is None else self._besides()
        run_id = None if run is None else run.id
        unfinished = {run_id, *[item.id for item in failed]}
        others = () if will_resume else [item_id for item_id in cycle.items if item_id not in unfinished]
        again = cycle.unfinished if will_resume and (cycle.is_journalled or cycle.resumed is not None) else None
        judged = None if will_resume else cycle.reflection
        credits, feedback = ((), ()) if judged is None else (tuple(judged.credits), tuple(judged.feedback))
        account = Closing(cycle.outcome, record, tuple(experiences or ()), run_id, (*ended, *others), again,
                          entries or (), cycle.session, changes, besides, cycle.is_stepped, credits, feedback,
                          answer)  # fmt: skip
        account = self._write(cycle, account)
        if account.record is None:
            self._count(cycle, duration)
        elif account.besides is not None:
            stored = self._agent_state
            stored.pending_counts, stored.journalled_errors = {}, dict(stored.stats.errors_by_phase)
        if run is not None and item is not None and end is None:
            item = _worked_on(item, run.state, cycle, will_resume=will_resume)
            core.ledger.tell(WorkChanged(session=item.session, item=item))
        if will_resume:
            core.ledger.add(WorkLeft(session=cycle.session, items=cycle.items))
        if record is not None and not will_resume:
            known = cycle.resumed.known if cycle.resumed is not None else ()
            for result in record.result.results if record.result is not None else known:
                if result.status != "ok" and result.is_in_doubt:
                    self._recovery.restart.doubts.add(
                        doubted(cycle_id, cycle.session, account.run_id, record.action, result, core.clock.now())
                    )
        if core.events.seq >= self._agent_state.renews_at:
            self._agent_state.renew()
        self._agent_state.writer.stored += len(account.experiences) + (account.record is not None)
        if account.experiences and core.events.wanted[ExperienceStored]:
            for experience in account.experiences:
                core.events.publish(ExperienceStored(experience=experience))

    def _write(self, cycle: Cycle, account: Closing) -> Closing:
        """Journal the end of a cycle; return it without what the journal refuses, which is reported: rows alone, or all
        data."""
        left_out: Mapping[str, Any] = {}
        while True:
            closing = replace(account, **left_out) if left_out else account
            try:
                self._core.ledger.tell(CycleWritten(session=cycle.session, cycle=cycle.id, closing=closing))
                return closing
            except Exception as error:
                if left_out is _DATA:
                    raise
                self._reports.closing_failed(cycle, error)
                left_out = _DATA if left_out or not account.changes else _ROWS

    def _count(self, cycle: Cycle, duration: float) -> None:
        """Count a cycle without a record. The counts are written with the next recorded cycle."""
        durations = (("cycle", duration), *cycle.phases.items())
        count_cycle(self._agent_state.pending_counts, cycle.outcome, durations)

    def _besides(self) -> dict[str, Any] | None:
        """Return the counts of unrecorded cycles and new errors; None if there are none."""
        state = self._agent_state
        errors, journalled, counts = state.stats.errors_by_phase, state.journalled_errors, state.pending_counts
        if errors != journalled:
            counts = {**counts, "errors_by_phase": {name: number - journalled[name] for name, number in errors.items()}}
        return counts or None


def _perceptions_to_retry(
    cycle: Cycle, open_items: Mapping[str, Item], of_run: Collection[str]
) -> tuple[list[Perception], bool]:
    """Return the perceptions of a failed cycle to try again, and whether the pipeline has processed them.

    Messages of its run (ids in `of_run`) are left out, because the run continues with them.
    """
    if cycle.perceptions:
        return [perception for perception in cycle.perceptions if perception.id not in of_run], True
    items = [open_items[item_id] for item_id in cycle.items if item_id in open_items]
    return [item.perception for item in items if item.kind == "perception"], False


def _worked_on(item: Item, run: RunState, cycle: Cycle, *, will_resume: bool) -> Item:
    """Return the item of a run after a cycle that did not end it. Its output counts if the run's one more try brings no
    answer."""
    item = replace(item, output=run.output, used=dict(run.used), waited=run.waited, failures=run.failures)
    if cycle.result is None or will_resume:
        return item
    worked_cycles = () if cycle.deferred else (cycle.id,)  # a deferred cycle has planned nothing
    return replace(item, past=(*item.past, *worked_cycles), attempts=0, fault=None)
