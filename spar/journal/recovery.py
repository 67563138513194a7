"""Going on: what an earlier process, or an earlier attempt, left to be done.

At the start, and again every minute, what the journal holds is held against what is in hand here: accepted work that
nobody has in hand is handed out, a cycle that was cut off goes on under its own id, a call that may have had an effect
that must not be repeated is in doubt until somebody says what became of it. Work that was in hand when the process
died, or whose plan failed, is tried again by itself, in a cycle of its own, and put aside after so many attempts.

Without a journal nothing is kept and nothing goes on. What is written down of cycles is `spar.journal.cycle_log`'
affair.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from spar.clock import Timer
from spar.errors import NotReadyError, SparError
from spar.events import Recovered
from spar.failpoints import crashpoint
from spar.journal.dead_letters import DeadLetters
from spar.journal.in_doubt import InDoubtCalls
from spar.journal.interrupted import CutCycles
from spar.journal.retries import Retries
from spar.journal.state.agent_state import AgentState
from spar.journal.suspects import OpenSessions, Suspects
from spar.journal.work import RunEnds, Work
from spar.loop.core import Core
from spar.loop.module_adapter import Module
from spar.loop.tasks import Requests
from spar.observe.logs import get_logger
from spar.records.journal import MOST_ATTEMPTS, Interrupted, Item, Unfinished
from spar.records.run_options import NO_OPTIONS
from spar.runs.commands import is_command
from spar.runs.run import End, Run, RunStatus
from spar.runs.runs import Runs
from spar.types import Action, ActionResult, CycleRecord, Perception, replace

log = get_logger("spar.recovery")

#: Seconds between two looks at the journal.
EVERY = 60.0
#: Seconds after which whoever met a closed door may ask again: a start takes less, as a rule.
STARTS_WITHIN = 1.0


class Intake(Protocol):
    """The way into an agent for what it is told of its own work."""

    def push(self, perception: Perception) -> bool: ...
    def carry_out(self, run: Run) -> None: ...


class Recovery:
    """Recovery of the unfinished work of one agent; `work` is what this process has in hand.

    Args: intake: hands a perception to its session as if it had just come.
    """

    __slots__ = ("_agent_state", "_core", "_counted", "_intake", "_requests", "_runs", "_sessions",
                 "_timer", "cut", "doubts", "ends", "has_begun", "letters", "resumed", "retries",
                 "suspects", "work")  # fmt: skip

    def __init__(self, core: Core, agent_state: AgentState, requests: Requests, runs: Runs, sessions: OpenSessions,
                 intake: Intake) -> None:  # fmt: skip
        self._core, self._agent_state, self._requests = core, agent_state, requests
        self._runs, self._sessions, self._intake = runs, sessions, intake
        self.work = work = Work(core.name)
        #: Whether what an earlier process left is known.
        self.has_begun = False
        self.resumed = 0
        self._counted: Any = None  # the journal whose former process's attempts have been counted
        self.doubts = InDoubtCalls(core, work, self)
        self.ends = RunEnds(core, work, lambda: agent_state.journal)
        self.letters = DeadLetters(core, work, runs, self)
        self.cut = CutCycles(core, work, self.doubts, self)
        self.retries = Retries(core, work, requests, self.letters, self.hand_out)
        self.suspects = Suspects(core.name, sessions)
        self._timer: Timer | None = None

    @property
    def journal(self) -> Any:
        """The journal while it is open; None where none is kept."""
        return self.work.journal

    # -- its life

    @property
    def is_ready(self) -> bool:
        """Return whether work can be accepted: the journal is open and its content known, or there is none."""
        return self.has_begun or not self._agent_state.has_journal

    @property
    def can_keep(self) -> bool:
        """Return whether what is pushed can be taken in: into the journal that is open, or where none is kept."""
        return self.work.journal is not None or not self._agent_state.has_journal

    def demand_ready(self, what: str) -> None:
        """Raises: NotReadyError when something is accepted that the journal could not keep."""
        if not self.is_ready:
            core = self._core
            raise NotReadyError(
                f"cannot {what} now: the journal of agent {core.name!r} is not open ({core.state}); "
                "start the agent and try again",
                retry_after=STARTS_WITHIN,
            )

    async def begin(self) -> None:
        """Take up what is there, before the first cycle. Raises: what the journal's reading raises."""
        agent_state, name = self._agent_state, self._core.name
        journal = self.work.journal = agent_state.journal
        if journal is None:
            if agent_state.has_journal:
                raise SparError(f"the memory of agent {name!r} is open, and its journal is not: nothing is kept")
            self.has_begun = True
            return
        journal.claim(name, self)
        await self.work.open(journal, keeps_sessions=agent_state.sessions is not None)
        items, cycles = await journal.items(name), await journal.unfinished(name)
        held = await self._held(cycles)
        crashpoint("recover.scan")
        before = await agent_state.memory.load(self.suspects.key) or {}
        self.suspects.count(journal, before, held, items, cycles)
        self._counted = journal
        await self.doubts.load()
        await self.letters.load()
        await self._take_up(items, cycles, held)
        await journal.safe()
        crashpoint("recover.counted")
        journal.hand.forget()
        self.has_begun = True
        self._arm()

    def end(self) -> None:
        """Nothing is handed out any more."""
        self.has_begun = False
        if self._timer is not None:
            self._timer.cancel()
        self.retries.end()
        self.suspects.forget_trial()
        if self.journal is not None:
            self.journal.release(self._core.name, self)
        self._timer = self.work.journal = None

    def _arm(self) -> None:
        clock = self._core.clock
        self._timer = clock.call_at(clock.monotonic() + EVERY, self._look)

    def _look(self) -> None:
        self._arm()
        if self._core.state == "running":
            self._requests.in_background(self._reconcile(), "recovery of")

    async def _reconcile(self) -> None:
        """Hand out what the journal knows and nobody has in hand: nothing, unless something went wrong."""
        journal = self.journal
        try:
            items, cycles = await journal.items(self._core.name), await journal.unfinished(self._core.name)
            left = {item.id for item in items if item.id not in self.work.in_hand}
            left |= {cycle.cycle_id for cycle in cycles} - self._cycles_in_hand()
            if left:  # what ended while it was read is gone when it is read again
                await journal.safe()
                items, cycles = await journal.items(self._core.name), await journal.unfinished(self._core.name)
                items = [item for item in items if item.id in left]
                cycles = [cycle for cycle in cycles if cycle.cycle_id in left]
                if self.journal is journal and self._core.state == "running":
                    await self._take_up(items, cycles, frozenset())
        except Exception as error:  # the store says itself that it cannot be read
            log.warning("recovery put off", agent=self._core.name, reason=str(error))

    # -- taking up

    async def _held(self, cycles: Sequence[Unfinished]) -> frozenset[str]:
        """Return the ids in flight in the last process that are in no journal row. Counted once, also if cut off."""
        hand, key = self.journal.hand, f"hand:{self._core.name}"
        if self._counted is self.journal or await self._agent_state.memory.load(key) == hand.left_by:
            return frozenset()
        self.journal.save(key, hand.left_by)
        left: frozenset[str] = hand.left
        return left - {item_id for cycle in cycles for item_id in cycle.items}

    def _cycles_in_hand(self) -> set[str]:
        """Return the ids of the cycles that sessions are in, or will go on with."""
        sessions = self._sessions.by_key.values()
        mine = {session.cycle.id for session in sessions if session.cycle is not None}
        return mine | {each.cycle.cycle_id for session in sessions for each in session.interrupted if each.cycle}

    async def _take_up(self, items: Sequence[Item], cycles: Sequence[Unfinished], held: frozenset[str]) -> None:
        mine = self._cycles_in_hand()
        cycles = [cycle for cycle in cycles if cycle.cycle_id not in mine]
        by_id = {item.id: item for item in items if item.id not in self.work.in_hand and not self._is_over(item)}
        parts = [by_id.pop(item.id) for item in list(by_id.values()) if item.into]
        said = {item.perception.id for item in items if item.into}
        going = number = 0
        for cycle in cycles:
            going += await self.cut.go_on(cycle, by_id, said)
        for item in sorted(by_id.values(), key=lambda item: item.at):
            if item.id in self.work.in_hand:
                continue
            if item.id in held:
                item = replace(item, attempts=item.attempts + 1)
                self.journal.keep(self._core.name, item)
            number += await self.hand_out(item, is_suspect=item.due_at is None and item.attempts > 0)
        for item in parts:
            number += await self._rejoin(item)
        if going or number:
            self.resumed += going
            log.info("recovered", agent=self._core.name, cycles=going, items=number)
            self._core.events.publish(Recovered(cycles=going, items=number))

    def _is_over(self, item: Item) -> bool:
        """Return whether this process knows that a run has ended: while the journal was read, or was closed."""
        run = self._runs.find(item.id) if item.kind == "run" else None
        if run is None or run.status is None:
            return False
        self.journal.run_ended(run.id, run.status_at(None, self._core.clock.now()))
        return True

    def push(self, perception: Perception) -> None:
        """Hand a perception to its session as if it had just come."""
        self._intake.push(perception)

    # -- handing out

    def resume_with(self, work: Unfinished | Item, run: Run | None = None, *, is_suspect: bool = False) -> None:
        """Have interrupted work wait in its session for a cycle of its own."""
        session = self._sessions.of(work.session)
        session.resume_with(Interrupted(work, run, self._core.clock.monotonic(), is_suspect=is_suspect))
        if is_suspect:
            self.suspects.add(work.session)
        self._sessions.spawn(session)

    async def _rejoin(self, item: Item) -> bool:
        """A message that had become a part of a run is one again; whether it had to be handed out instead."""
        whole = item.into
        if (run := self._runs.open_run(whole)) is not None:
            self.work.in_hand[item.id] = item
            self._runs.rejoin(run, self._runs.restore(item, []))
            return False
        try:
            status = await self.status_of(whole)
        except LookupError:
            return await self.hand_out(replace(item, into=""))
        self.work.in_hand[item.id] = item
        part = self._runs.restore(item, [])
        part.is_told = True  # its people were told when the run ended that it was a part of
        end = End("ok" if status.status == "ok" else "error", status.error, status.output)
        await self.ends.keep(part, end)
        self._runs.end(part, end)
        return False

    async def hand_out(self, item: Item, *, is_suspect: bool = False) -> bool:
        """Give accepted work to its session when it is due; return whether it goes there."""
        if item.attempts >= MOST_ATTEMPTS:
            self.letters.add(item)
            return False
        wait = (item.due_at - self._core.clock.now()).total_seconds() if item.due_at is not None else 0.0
        if wait > 0:
            self.retries.later(item, wait)
            return False
        crashpoint("recover.hand_out")
        self.work.in_hand[item.id] = item
        session = self._sessions.of(item.session)
        if item.kind == "run":
            run = await self.run_of(item)
            if run is None or run is session.run:
                return True
            if is_command(run.message):
                self._intake.carry_out(run)
                return True
            if run.is_planned or item.attempts:  # it has begun: it goes before all others, and is not dropped
                self.resume_with(item, run, is_suspect=is_suspect)
                return True
            session.queue(run)
        elif item.attempts or item.is_sensed:
            self.resume_with(item, None, is_suspect=is_suspect)
            return True
        else:
            session.push(item.perception)
        self._sessions.spawn(session)
        return True

    async def run_of(self, item: Item | None) -> Run | None:
        """The run of an item, with what its earlier cycles brought; None when there is no such item."""
        if item is None:
            return None
        results: list[ActionResult] = []
        seen: set[str] = set()
        for cycle_id in item.past:
            record = await self._agent_state.memory.cycle(cycle_id)
            if record is not None and record.result is not None:
                results.append(replace(record.result, action=_whole(record)))
                seen.update(perception.id for perception in record.perceptions)
        self.work.in_hand[item.id] = item
        run = self._runs.restore(item, results)
        run.seen |= seen
        return run

    # -- what comes in

    def sift(self, polled: list[Perception], session: str, cycle_id: str, sense: Module) -> list[Perception]:
        """Return what was polled; nothing, if some was in hand when the process died: then all of it becomes accepted
        work, each piece with a cycle of its own, and the sensors' cursors go on with that."""
        attempts = {each.id: self.suspects.polled.pop(self.journal.trait(each), 0) for each in polled}
        if not any(attempts.values()):
            return polled
        for perception in polled:
            item = Item(perception.id, perception, session=session, attempts=attempts[perception.id], is_sensed=True)
            self.journal.keep(self._core.name, item)
            self._requests.in_background(self.hand_out(item), "recovery of")
        for key, cursor in sense.cursors().items():
            self.journal.save(key, cursor)
        self.journal.change([*sense.cycle_rows(cycle_id), *sense.row_changes()])
        return []

    # -- what is known

    async def status_of(self, run_id: str) -> RunStatus:
        """Return the status of a run of an earlier process. Raises: LookupError for one that is not known."""
        item, answer = (None, None) if self.journal is None else await self.journal.run(self._core.name, run_id)
        if answer is not None:
            return RunStatus.read(answer)
        if item is not None:
            chosen = (item.options or NO_OPTIONS).over(item.defaults or NO_OPTIONS)
            return RunStatus(run_id, "timeout", options=chosen)
        raise LookupError(f"no run {run_id!r}; runs are known by the run_id of their receipt")

    def snapshot(self) -> dict[str, Any]:
        """Return how much is in doubt, put aside and waiting; JSON-able, from any thread."""
        journal = self.journal
        return {
            "is_journalled": journal is not None,
            "in_doubt": len(self.doubts),
            "dead_letters": len(self.letters),
            "dead_by_kind": dict(self.letters.totals),
            "open_cycles": journal.open_cycles if journal is not None else 0,
            "in_hand": len(self.work.in_hand),
            "to_be_retried": len(self.retries),
            "resumed": self.resumed,
            "repeated": self.work.repeated,
            "shed": self.retries.shed,
        }


def _whole(record: CycleRecord) -> Action | None:
    """The action of a recorded cycle with what it was made from, which says how far it is to be trusted."""
    return None if record.action is None else replace(record.action, perceptions=record.perceptions)
