"""Recovery of work that an earlier process, or a failed attempt, left unfinished.

At the start, and every minute, the journal is compared with the current work of this process. Accepted work that is not
current goes to its session. An interrupted cycle resumes under its own id. A call that may have had an effect, and must
not be repeated, is in doubt until a person decides. Work that was current when the process died, or whose plan failed,
is tried again in a cycle of its own, and put aside after `MOST_ATTEMPTS` attempts. Without a journal nothing is kept
and nothing resumes. `spar.journal.cycle_log` writes the cycles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

from spar.clock import Timer
from spar.errors import NotReadyError, SparError
from spar.events import Recovered
from spar.facts import RowsChanged, RunAnswered, ValueSaved, WorkChanged, WorkLeft
from spar.failpoints import crashpoint
from spar.journal.state.agent_state import AgentState
from spar.journal.suspects import OpenSessions, Suspects
from spar.journal.work import RunEnds, Work
from spar.loop.core import Core
from spar.loop.module_adapter import Module
from spar.loop.tasks import Requests
from spar.observe.logs import get_logger
from spar.records.journal import MOST_ATTEMPTS, Item, Unfinished, trait
from spar.records.runs import RunStatus, known_status
from spar.runs.commands import is_command
from spar.runs.run import End, Run
from spar.runs.runs import Runs
from spar.threads import in_slices
from spar.types import Action, ActionResult, CycleRecord, Perception, replace

if TYPE_CHECKING:
    from spar.journal.dead_letters import DeadLetters
    from spar.journal.in_doubt import InDoubtCalls
    from spar.journal.interrupted import InterruptedCycles
    from spar.journal.retries import Retries

log = get_logger("spar.recovery")

#: Seconds between two comparisons with the journal.
EVERY = 60.0
#: Seconds after which a refused caller may ask again; a start usually takes less.
STARTS_WITHIN = 1.0


class Intake(Protocol):
    """Entrance of the agent for perceptions and commands of its own work."""

    def push(self, perception: Perception) -> bool: ...
    def carry_out(self, run: Run) -> None: ...


class Recovery:
    """Recovery of the unfinished work of one agent. `work` is the current work of this process.

    Args: intake: gives a perception to its session like a new one.
    """

    __slots__ = ("__dict__", "_agent_state", "_core", "_counted", "_intake", "_release", "_requests", "_runs",
                 "_sessions", "_timer", "ends", "has_begun", "resumed", "suspects", "work")  # fmt: skip

    def __init__(self, core: Core, agent_state: AgentState, requests: Requests, runs: Runs, sessions: OpenSessions,
                 intake: Intake) -> None:  # fmt: skip
        self._core, self._agent_state, self._requests = core, agent_state, requests
        self._runs, self._sessions, self._intake = runs, sessions, intake
        self.work = work = Work(core.name, core.ledger)
        #: Whether the unfinished work of earlier processes has been read.
        self.has_begun = False
        self.resumed = 0
        self._release: Callable[[], None] = _nothing
        self._counted: Any = None  # the journal in which the attempts of the last process are counted
        self.ends = RunEnds(core, work, lambda: agent_state.journal)
        runs.write_end = self.ends.write
        self.suspects = Suspects(core.name, sessions)
        self._timer: Timer | None = None
        runs.earlier = self.status_of

    @cached_property
    def doubts(self) -> InDoubtCalls:
        """Calls in doubt."""
        from spar.journal.in_doubt import InDoubtCalls

        return InDoubtCalls(self._core, self.work, self)

    @cached_property
    def letters(self) -> DeadLetters:
        """Work that is put aside."""
        from spar.journal.dead_letters import DeadLetters

        return DeadLetters(self._core, self.work, self._runs, self)

    @cached_property
    def interrupted_cycles(self) -> InterruptedCycles:
        """Cycles that were interrupted."""
        from spar.journal.interrupted import InterruptedCycles

        return InterruptedCycles(self._core, self.work, self.doubts, self)

    @cached_property
    def retries(self) -> Retries:
        """Work that waits for its next attempt."""
        from spar.journal.retries import Retries

        return Retries(self._core, self.work, self._requests, self.letters, self.hand_out)

    @property
    def journal(self) -> Any:
        """Return the journal while it is open; None without a journal."""
        return self.work.journal

    # -- start and end

    @property
    def is_ready(self) -> bool:
        """Return whether work can be accepted: the journal was opened and read, or there is none."""
        return self.has_begun or not self._agent_state.has_journal

    @property
    def can_keep(self) -> bool:
        """Return whether pushed perceptions can be accepted: the journal is open, or there is none."""
        return self.work.journal is not None or not self._agent_state.has_journal

    def demand_ready(self, what: str) -> None:
        """Check that work can be accepted. Raises: NotReadyError while the journal is not open."""
        if not self.is_ready:
            core = self._core
            raise NotReadyError(
                f"cannot {what} now: the journal of agent {core.name!r} is not open ({core.state}); "
                "start the agent and try again",
                retry_after=STARTS_WITHIN,
            )

    async def begin(self) -> None:
        """Open the journal and resume unfinished work, before the first cycle. Raises: errors of the journal."""
        agent_state, name = self._agent_state, self._core.name
        journal = self.work.journal = agent_state.journal
        if journal is None:
            if agent_state.has_journal:
                raise SparError(f"the memory of agent {name!r} is open, and its journal is not: nothing is kept")
            self.has_begun = True
            return
        self._release = journal.claim(name, self)
        await self.work.open(journal, keeps_sessions=agent_state.sessions is not None)
        items, cycles = await journal.views.items(name), await journal.views.unfinished(name)
        held = await self._unrecorded_ids(cycles)
        crashpoint("recover.scan")
        before = await agent_state.memory.load(self.suspects.key) or {}
        self.suspects.count(journal, before, held, items, cycles)
        self._counted = journal
        ledger = self._core.ledger
        for state in list(ledger.states.values()):  # of an earlier start: people may have decided meanwhile
            if left := (*state.put_aside, *state.doubts, *state.detached):
                ledger.add(WorkLeft(session=state.key, items=left))
        await self.doubts.load()
        await self.letters.load()
        await self._resume_work(items, cycles, held)
        await journal.safe()
        crashpoint("recover.counted")
        journal.hand.forget()
        self.has_begun = True
        self._arm()

    def end(self) -> None:
        """Stop recovery, and release the journal."""
        self.has_begun = False
        if self._timer is not None:
            self._timer.cancel()
        if "retries" in self.__dict__:
            self.retries.end()
        self.suspects.forget_trial()
        self._release()
        self._timer = self.work.journal = None

    def _arm(self) -> None:
        clock = self._core.clock
        self._timer = clock.call_at(clock.monotonic() + EVERY, self._look)

    def _look(self) -> None:
        self._arm()
        if self._core.state == "running":
            self._requests.in_background(self._reconcile(), "recovery of")

    async def _reconcile(self) -> None:
        """Give work of the journal that is not current to its sessions. There is none unless an error occurred."""
        journal = self.journal
        try:
            views, name = journal.views, self._core.name
            items, cycles = await views.items(name), await views.unfinished(name)
            left = {item.id for item in items} - self._in_hand()
            left |= {cycle.cycle_id for cycle in cycles} - self._current_cycles()
            if left:  # a second read leaves out work that ended during the first
                await journal.safe()
                items, cycles = await views.items(name), await views.unfinished(name)
                items = [item for item in items if item.id in left]
                cycles = [cycle for cycle in cycles if cycle.cycle_id in left]
                if self.journal is journal and self._core.state == "running":
                    await self._resume_work(items, cycles, frozenset())
        except Exception as error:  # the store also reports the error itself
            log.warning("recovery put off", agent=self._core.name, reason=str(error))

    # -- resuming

    async def _unrecorded_ids(self, cycles: Sequence[Unfinished]) -> frozenset[str]:
        """Return the ids, current when the last process died, without a journal row. They are counted once per dead
        process."""
        hand, key = self.journal.hand, f"hand:{self._core.name}"
        if self._counted is self.journal or await self._agent_state.memory.load(key) == hand.left_by:
            return frozenset()
        self.journal.append(ValueSaved(key=key, value=hand.left_by))
        left: frozenset[str] = hand.left
        return left - {item_id for cycle in cycles for item_id in cycle.items}

    def _current_cycles(self) -> set[str]:
        """Return the ids of the cycles that sessions execute or will resume, and of the calls that continue without
        one."""
        sessions = self._sessions.by_key.values()
        executing = {session.cycle.id for session in sessions if session.cycle is not None}
        waiting = {piece.work for session in sessions for piece in session.state.pieces if piece.cycle is not None}
        return executing | waiting | {call for state in self._core.ledger.states.values() for call in state.detached}

    def _in_hand(self) -> set[str]:
        """Return the ids of the accepted work that sessions deal with, or will."""
        return {item_id for state in self._core.ledger.states.values() for item_id in state.items}

    async def _resume_work(self, items: Sequence[Item], cycles: Sequence[Unfinished], held: frozenset[str]) -> None:
        """Resume interrupted cycles and give items to their sessions. Args: held: ids that were current in a dead
        process."""
        current = self._current_cycles()
        cycles = [cycle for cycle in cycles if cycle.cycle_id not in current]
        in_hand = self._in_hand()
        by_id = {item.id: item for item in items if item.id not in in_hand and not self._is_over(item)}
        self._put_damaged_aside(cycles, by_id)
        parts = [by_id.pop(item.id) for item in list(by_id.values()) if item.into]
        absorbed_ids = {item.perception.id for item in items if item.into}
        resumed = number = 0
        for cycle in cycles:
            resumed += await self.interrupted_cycles.resume_or_split(cycle, by_id, absorbed_ids)
        async for item in in_slices(sorted(by_id.values(), key=lambda item: item.at)):
            if item.id in self.work.items(item.session):
                continue
            if item.id in held:
                item = replace(item, attempts=item.attempts + 1)
                self._core.ledger.tell(WorkChanged(session=item.session, item=item))
            number += await self.hand_out(item, is_suspect=item.due_at is None and item.attempts > 0)
        for item in parts:
            number += await self._rejoin(item)
        if resumed or number:
            self.resumed += resumed
            log.info("recovered", agent=self._core.name, cycles=resumed, items=number)
            self._core.events.publish(Recovered(cycles=resumed, items=number))

    def _put_damaged_aside(self, cycles: Sequence[Unfinished], items: dict[str, Item]) -> None:
        """Put the work of each session aside of which a cycle cannot be read: calls of that cycle may have been made.

        Args: items: open accepted work by id, from which that work is removed.
        """
        damages = {cycle.session: cycle for cycle in cycles if cycle.damage}
        for item in [item for item in items.values() if item.session in damages] if damages else ():
            cycle = damages[item.session]
            reason = f"cycle {cycle.cycle_id} of its session cannot be read, what it did is not known: {cycle.damage}"
            self.letters.add(items.pop(item.id), reason)

    def _is_over(self, item: Item) -> bool:
        """Return whether a run has ended while the journal was read or closed; if so, journal its end."""
        run = self._runs.find(item.id) if item.kind == "run" else None
        if run is None or run.status is None:
            return False
        answer = run.status_at(None, self._core.clock.now())
        self._core.ledger.tell(RunAnswered(session=run.session, run=run.id, answer=answer))
        return True

    def push(self, perception: Perception) -> None:
        """Give a perception to its session like a new one."""
        self._intake.push(perception)

    # -- giving work to sessions

    def resume_with(self, work: Unfinished | Item, run: Run | None = None, *, is_suspect: bool = False) -> None:
        """Queue interrupted work in its session for a cycle of its own."""
        session = self._sessions.of(work.session)
        session.resume_with(work, run, is_suspect=is_suspect)
        if is_suspect:
            self.suspects.add(work.session)
        self._sessions.spawn(session)

    async def _rejoin(self, item: Item) -> bool:
        """Join an absorbed message to its run again; return whether it became its own work since that run is
        unknown."""
        absorber_id = item.into
        if (run := self._runs.open_run(absorber_id)) is not None:
            self._core.ledger.add(WorkChanged(session=item.session, item=item))
            self._runs.rejoin(run, self._runs.restore(item, []))
            return False
        try:
            status = await self.status_of(absorber_id)
        except LookupError:
            return await self.hand_out(replace(item, into=""))
        self._core.ledger.add(WorkChanged(session=item.session, item=item))
        part = self._runs.restore(item, [])
        part.is_told = True  # the answer of the absorbing run was sent to its sender, too
        end = End("ok" if status.status == "ok" else "error", status.error, status.output)
        self._runs.finish(part, end)
        await self.ends.safe()
        self._runs.end(part, end)
        return False

    async def hand_out(self, item: Item, *, is_suspect: bool = False) -> bool:
        """Give accepted work to its session, or to a timer if it is not due; return whether it goes to the session."""
        if item.attempts >= MOST_ATTEMPTS:
            self.letters.add(item)
            return False
        if item.due_at is not None and item.due_at > self._core.clock.now():
            self.retries.later(item)
            return False
        crashpoint("recover.hand_out")
        self._core.ledger.add(WorkChanged(session=item.session, item=item))
        session = self._sessions.of(item.session)
        if item.kind == "run":
            run = await self.run_of(item)
            if run is None or run is session.run:
                return True
            if is_command(run.message):
                self._intake.carry_out(run)
                return True
            if run.state.is_planned or item.attempts:  # a run that has begun goes first, and is never dropped
                self.resume_with(item, run, is_suspect=is_suspect)
                return True
            session.queue(run, "collect" if item.is_collected else "followup")
        elif item.attempts or item.is_sensed:
            self.resume_with(item, None, is_suspect=is_suspect)
            return True
        else:
            session.push(item.perception)
        self._sessions.spawn(session)
        return True

    async def run_of(self, item: Item | None) -> Run | None:
        """Return the run of an item, with the results of its earlier cycles; None without an item."""
        if item is None:
            return None
        results: list[ActionResult] = []
        processed_ids: set[str] = set()
        for cycle_id in item.past:
            record = await self._agent_state.memory.cycle(cycle_id)
            if record is not None and record.result is not None:
                results.append(replace(record.result, action=_action_of(record)))
                processed_ids.update(perception.id for perception in record.perceptions)
        self._core.ledger.add(WorkChanged(session=item.session, item=item))
        run = self._runs.restore(item, results)
        run.processed_ids |= processed_ids
        return run

    # -- polled perceptions

    def accept_suspects(self, polled: list[Perception], session: str, cycle_id: str, sense: Module) -> list[Perception]:
        """Return the polled perceptions, or none if one of them was current when the process died: then all of them
        become accepted work, each with a cycle of its own, and the cursors of the sensors are saved."""
        attempts = {perception.id: self.suspects.polled.pop(trait(perception), 0) for perception in polled}
        if not any(attempts.values()):
            return polled
        for perception in polled:
            item = Item(perception.id, perception, session=session, attempts=attempts[perception.id], is_sensed=True)
            self._core.ledger.tell(WorkChanged(session=session, item=item))
            self._requests.in_background(self.hand_out(item), "recovery of")
        for key, cursor in sense.cursors().items():
            self.journal.append(ValueSaved(key=key, value=cursor))
        self.journal.append(RowsChanged(changes=(*sense.cycle_rows(cycle_id), *sense.row_changes())))
        return []

    # -- status

    async def status_of(self, run_id: str) -> RunStatus:
        """Return the status of a run of an earlier process. Raises: LookupError for an unknown run."""
        item, answer = (None, None) if self.journal is None else await self.journal.views.run(self._core.name, run_id)
        return known_status(run_id, item, answer)

    def snapshot(self) -> dict[str, Any]:
        """Return the numbers of open work of each kind. JSON-able; may be called from any thread."""
        journal, states = self.journal, list(self._core.ledger.states.values())
        return {
            "is_journalled": journal is not None,
            "in_doubt": sum(len(state.doubts) for state in states),
            "dead_letters": sum(len(state.put_aside) for state in states),
            "dead_by_kind": dict(self.letters.totals),
            "open_cycles": journal.open_cycles if journal is not None else 0,
            "in_hand": sum(len(state.items) for state in states),
            "to_be_retried": len(self.retries),
            "resumed": self.resumed,
            "repeated": self.work.repeated,
            "shed": self.retries.shed,
        }


def _nothing() -> None:
    """Do nothing."""


def _action_of(record: CycleRecord) -> Action | None:
    """Return the action of a recorded cycle with its perceptions, which determine its trust."""
    return None if record.action is None else replace(record.action, perceptions=record.perceptions)
