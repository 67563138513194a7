"""Work that earlier processes left in the journal, and how it goes on.

At the start, and every minute, the states that the facts in the journal add up to are compared with those of this
process. `spar.decisions.resume` decides what becomes of the rest; this module tells the facts, and does what each leads
to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from spar import facts
from spar.clock import Timer
from spar.data.reply import End
from spar.decisions.resume import closed, open_work, placed, recover
from spar.events import Recovered
from spar.facts import Fact, WorkHandedOut
from spar.failpoints import crashpoint
from spar.journal.failed_work import DeadLetters, InDoubtCalls, Retries, Suspects
from spar.journal.state.agent_state import AgentState
from spar.journal.work import Work
from spar.loop.core import Core, Requests
from spar.loop.cycle import WorkingSession
from spar.loop.setup import Module
from spar.observe.logs import get_logger
from spar.records.journal import MOST_ATTEMPTS, Item, Unfinished
from spar.runs.runs import Run, Runs
from spar.state.apply import Ledger, SessionState, apply
from spar.threads import OTHERS_TURN, SLICE
from spar.types import Action, ActionResult, CycleRecord, Perception, replace, trait

if TYPE_CHECKING:
    from spar.ports.store import Journal

log = get_logger("spar.recovery")

#: Seconds between two comparisons with the journal.
EVERY = 60.0
#: The most perceptions that are remembered as suspects.
MOST_SUSPECTS = 10_000


def _any(_: object) -> bool:
    return True


class Restart:
    """Unfinished work of one agent, with what failed attempts left of it. `resumed` counts the cycles that went on."""

    __slots__ = ("_agent_state", "_carry_out", "_core", "_counted", "_ledger", "_release", "_requests", "_runs",
                 "_session_of", "_spawn", "_timer", "_turn", "_work", "doubts", "letters", "resumed", "retries",
                 "suspects")  # fmt: skip

    def __init__(
        self, work: Work, core: Core, agent_state: AgentState, requests: Requests, runs: Runs,
        session_of: Callable[[str], WorkingSession], spawn: Callable[[Any], object],
        push: Callable[[Perception], bool], carry_out: Callable[[Run], None],
    ) -> None:  # fmt: skip
        self._core, self._ledger, self._agent_state, self._requests = core, core.ledger, agent_state, requests
        self._runs, self._work, self._carry_out = runs, work, carry_out
        self._session_of, self._spawn = session_of, spawn
        self.letters = DeadLetters(core, work, runs, self.hand_out)
        self.doubts = InDoubtCalls(core, work, push, self.follow)
        self.retries = Retries(core, requests, work, self.hand_out)
        self.suspects = Suspects(core.ledger, session_of, spawn)
        self.resumed = 0
        self._release: Callable[[], None] = _nothing
        self._counted: Journal | None = None  # the journal in which the attempts of the last process are counted
        self._timer: Timer | None = None
        self._turn = asyncio.Lock()  # of a look: another one would find what it has not given to its session yet

    # -- start and end

    async def begin(self, journal: Journal) -> None:
        """Resume unfinished work, before the first cycle. Raises: errors of the journal."""
        ledger, self._turn = self._ledger, asyncio.Lock()
        self._release = journal.claim(self._core.name, self)
        is_ours = self._ours()
        left = await self._read(journal, is_ours)
        crashpoint("recover.scan")
        await self._count_in_flight(journal, left)
        self._counted = journal
        for state in list(ledger.states.values()):  # of an earlier start: people may have decided meanwhile
            if ids := (*state.put_aside, *state.doubts, *state.detached):
                ledger.add(facts.WorkLeft(session=state.key, items=ids))
        await self.recall(self._core.has)
        await self._resume(left, self._unknown(left), is_ours)
        await journal.safe()
        crashpoint("recover.counted")
        journal.hand.forget()
        self._arm()

    def end(self) -> None:
        """Stop recovery, and release the journal."""
        if self._timer is not None:
            self._timer.cancel()
        self.retries.end()
        self.suspects.forget_trial()
        self._release()
        self._timer = None

    def _arm(self) -> None:
        clock = self._core.clock
        self._timer = clock.call_at(clock.monotonic() + EVERY, self._look)

    def _look(self) -> None:
        self._arm()
        if self._core.state == "running":
            self._requests.in_background(self.reconcile(), "recovery of")

    async def reconcile(self, new: Collection[str] = ()) -> bool:
        """Resume the work of the journal that is in no state: of other processes, or that an error left.

        Args: new: ids of items that were just accepted, to resume these alone; nobody is told of a recovery then.
        Returns: False if the journal could not be read now.
        """
        try:
            async with self._turn:
                journal, is_ours = self._work.stored, self._ours()
                left = await self._read(journal, is_ours, new)
                if ids := self._unknown(left):
                    await journal.safe()  # a second read leaves out work that ended during the first
                    left = await self._read(journal, is_ours, new)
                    if self._ledger.journal is journal and self._core.state == "running":
                        await self._resume(left, ids & self._unknown(left), is_ours, is_new=bool(new))
        except Exception as error:  # the store also reports the error itself
            if self._work.has_begun:  # else it has stopped meanwhile, and the next start looks at all work
                log.warning("recovery put off", agent=self._core.name, reason=str(error))
            return False
        return True

    # -- reading

    def _ours(self) -> Callable[[str], bool]:
        """Return a function that returns whether this process has had a session since now: of one that comes while work
        is read, a run could be found without its open cycle, and is looked for again."""
        shared = self._core.shared
        return _any if shared is None else shared.since_now()

    async def _read(self, journal: Journal, is_ours: Callable[[str], bool],
                    new: Collection[str] = ()) -> dict[str, SessionState]:  # fmt: skip
        """Return the states that the facts in the journal add up to, by session: its items and open cycles."""
        name, views, left = self._core.name, journal.views, Ledger("")
        # Of a session that comes here just now, a new item waits until its open cycles are known.
        is_known = self._core.is_ready if new else _any
        items, cycles = await views.items(name, new), () if new else await views.unfinished(name)
        left.add(*[WorkHandedOut(session=cycle.session, work=cycle.id, run=cycle.run_id or "", cycle=cycle)
                   for cycle in cycles if is_ours(cycle.session)])  # fmt: skip
        left.add(*[facts.WorkChanged(session=item.session, item=item)
                   for item in items if is_ours(item.session) and is_known(item.session)])  # fmt: skip
        return left.states

    def _unknown(self, left: Mapping[str, SessionState]) -> set[str]:
        """Return the ids of the work that is in no state of this process."""
        return open_work(left.values()) - open_work(self._ledger.states.values())

    async def _count_in_flight(self, journal: Journal, left: Mapping[str, SessionState]) -> None:
        """Count an attempt at what was current when the last process died, without an open cycle, once per dead
        process: at items, and at perceptions without a row, which will be polled again."""
        memory, hand, name, held = self._agent_state.memory, journal.hand, self._core.name, frozenset[str]()
        cycles = [piece.cycle for state in left.values() for piece in state.pieces if piece.cycle is not None]
        if self._counted is not journal and await memory.load(f"hand:{name}") != hand.left_by:
            journal.append(facts.ValueSaved(key=f"hand:{name}", value=hand.left_by))
            held = hand.left.difference(*[cycle.items for cycle in cycles])
        for item in [item for state in left.values() for item in state.items.values() if item.id in held]:
            counted = facts.WorkChanged(session=item.session, item=replace(item, attempts=item.attempts + 1))
            journal.append(counted, name)
            apply(left[item.session], counted)
        before = await memory.load(f"suspects:{name}") or {}
        traits = {trait(perception) for cycle in cycles for perception in cycle.perceptions}
        names = sorted(held.difference(traits, *[state.items for state in left.values()]))[:MOST_SUSPECTS]
        polled = self._work.polled = {polled: int(before.get(polled, 0)) + 1 for polled in names}
        if polled or before:
            journal.append(facts.ValueSaved(key=f"suspects:{name}", value=polled))

    # -- resuming

    async def recall(self, is_ours: Callable[[str], bool]) -> None:
        """Read the calls in doubt and the letters of sessions. Args: is_ours: returns whether a key is of one."""
        for doubt in await self.doubts.list():
            if is_ours(doubt.session) and not self.doubts.is_answered(doubt.id):
                self._ledger.add(facts.CallDoubted(session=doubt.session, doubt=doubt))
        for letter in await self.letters.list():
            if is_ours(letter.item.session):
                put_aside = facts.PutAside(session=letter.item.session, item=letter.item, reason=letter.reason)
                self._ledger.add(put_aside)

    async def _resume(self, left: Mapping[str, SessionState], ids: set[str], is_ours: Callable[[str], bool], *,
                      is_new: bool = False) -> None:  # fmt: skip
        """Tell what becomes of work that is in no state, and do what follows. Args: ids: that work; is_ours: as it was
        read with."""
        core, resumed, number = self._core, 0, 0
        ids -= {id for state in left.values() for id in state.items.keys() & ids if self._has_ended(state.items[id])}
        for state in left.values():
            for fact in recover(state, ids, self._ledger.states, core.name, core.clock.now(), core.clock.new_id,
                                is_suspect=not is_new and core.is_suspect(state.key)):  # fmt: skip
                if not (core.owns(fact.session) and is_ours(fact.session)):  # its owner reads it
                    continue
                if isinstance(fact, facts.WorkChanged) and state.items.get(fact.item.id) is fact.item:
                    self._ledger.add(fact)  # the journal has it
                elif await self.follow(fact, is_new=is_new):
                    is_cycle = isinstance(fact, WorkHandedOut) and fact.cycle is not None
                    resumed, number = resumed + is_cycle, number + (not is_cycle)
                    if (resumed + number) % SLICE == 0:
                        await OTHERS_TURN
        if resumed or (number and not is_new):
            self.resumed += resumed
            log.info("recovered", agent=core.name, cycles=resumed, items=number)
            core.events.publish(Recovered(cycles=resumed, items=number))

    def _has_ended(self, item: Item) -> bool:
        """Return whether a run has ended while the journal was read or closed; if so, journal its end."""
        run = self._runs.find(item.id) if item.kind == "run" else None
        if run is None or run.ended is None:
            return False
        self._ledger.tell(facts.RunAnswered(session=run.session, run=run.id, answer=run.ended))
        return True

    async def hand_out(self, item: Item, *, is_suspect: bool = False) -> bool:
        """Give accepted work that the journal has to its session, or to a timer if it is not due; return whether it
        goes to the session. Args: is_suspect: it may have ended processes."""
        if not self._core.owns(item.session):  # its owner reads it
            return False
        self._ledger.add(facts.WorkChanged(session=item.session, item=item))
        fact = placed(item, self._ledger.states, self._core.clock.now(), is_suspect=is_suspect)
        return await self.follow(fact)

    async def follow(self, fact: Fact, *, is_new: bool = False) -> bool:
        """Tell a fact, and do what it leads to; return whether it gives work to a session of this process.

        Args: is_new: the work was just accepted.
        """
        if not self._core.owns(fact.session):
            return False
        match fact:
            case WorkHandedOut() | facts.MessagePlaced() | facts.PerceptionAccepted():
                crashpoint("recover.hand_out")
                await self._give(fact, is_new=is_new)
                return True
            case facts.MessageAbsorbed():
                return await self._rejoin(fact)
            case facts.CallDoubted():
                self.doubts.add(fact)
            case _:
                self._ledger.tell(fact)
        return False

    async def _give(
        self, fact: WorkHandedOut | facts.MessagePlaced | facts.PerceptionAccepted, *, is_new: bool
    ) -> None:
        """Give work to its session, with its run if it has one."""
        session = self._session_of(fact.session)
        if isinstance(fact, facts.PerceptionAccepted):
            session.push(fact.perception)
        else:
            state = session.state
            item = state.items.get(fact.run)
            results, processed_ids = await self._before(item)
            if self._ledger.states.get(fact.session) is not state:  # it has gone to another process meanwhile
                return
            session = self._session_of(fact.session)  # another one, if it was removed without work meanwhile
            run = None if item is None else self._runs.restore(item, results, is_new=is_new)
            if run is not None:
                run.processed_ids |= processed_ids
            if isinstance(fact, WorkHandedOut):
                session.resume_with(fact)
                if fact.is_suspect:
                    self.suspects.add(fact.session)
            elif run is not None and run.state.is_command:
                self._carry_out(run)
            elif state.run != fact.run:
                self._ledger.tell(fact)
        self._spawn(session)

    async def _before(self, item: Item | None) -> tuple[list[ActionResult], set[str]]:
        """Return the results of the earlier cycles of a run, and the ids of the perceptions that they processed."""
        results: list[ActionResult] = []
        processed_ids: set[str] = set()
        for cycle_id in () if item is None else item.past:
            record = await self._agent_state.memory.cycle(cycle_id)
            if record is not None and record.result is not None:
                results.append(replace(record.result, action=_action_of(record)))
                processed_ids.update(perception.id for perception in record.perceptions)
        return results, processed_ids

    async def _rejoin(self, fact: facts.MessageAbsorbed) -> bool:
        """Join an absorbed message to its run again; return whether it became its own work since that run is
        unknown."""
        state = self._ledger.states[fact.session]
        item = state.items[fact.run]
        if (run := self._runs.open_run(fact.into)) is not None:
            other = self._runs.restore(item, [])
            is_about = any(part.id == other.message.id for part in run.message.evidence)
            is_new = not (is_about or other.message.id in run.processed_ids)
            self._ledger.add(replace(fact, is_new=is_new, outcome="collected" if is_about else "steered"))
            other.started_at = run.started_at
            if is_new:
                run.unwritten = (*run.unwritten, other.message)
            return False
        try:
            status = await self._work.status_of(fact.into)
        except LookupError:
            return await self.hand_out(replace(item, into=""))
        if self._ledger.states.get(fact.session) is not state:  # it has gone to another process meanwhile
            return False
        part = self._runs.restore(item, [])
        part.is_told = True  # the answer of the absorbing run was sent to its sender, too
        end = End("ok" if status.status == "ok" else "error", status.error, status.output)
        self._runs.finish(part, end)
        await self._work.safe()
        self._runs.end(part, end)
        return False

    # -- what sessions ask

    async def count_attempt(self, cycle: Unfinished) -> None:
        """Journal this attempt at a cycle before any of its work is done, because the work may kill the process."""
        self._ledger.tell(facts.CycleReopened.of(replace(cycle, attempts=cycle.attempts + 1)))
        crashpoint("recover.resume")
        await self._ledger.journal.safe()

    async def begin_trial(self, piece: WorkHandedOut) -> None:
        """Return when the end of the former attempt at a suspect is safe.

        If it may have ended several processes without a trace, this attempt is the last one: that is safe, too.
        """
        if piece.cycle is None and self._core.is_suspect(piece.session):
            self._journal_attempts(piece, MOST_ATTEMPTS)
        await self._ledger.journal.safe()

    def end_trial(self, piece: WorkHandedOut) -> None:
        """Journal the attempts at a suspect as they were, since this process has outlived the last one."""
        if piece.cycle is None and self._core.shared is not None:
            self._journal_attempts(piece)

    def _journal_attempts(self, piece: WorkHandedOut, attempts: int | None = None) -> None:
        if (item := self._work.items(piece.session).get(piece.work)) is not None:
            counted = item if attempts is None else replace(item, attempts=attempts)
            self._ledger.journal.append(facts.WorkChanged(session=item.session, item=counted), self._core.name)

    def drop(self, piece: WorkHandedOut) -> None:
        """Drop an interrupted cycle whose run has ended."""
        if piece.cycle is not None:
            for fact in closed(piece.cycle, {}, self._core.name, self._core.clock.now()):
                if isinstance(fact, facts.CallDoubted):
                    self.doubts.add(fact)
                else:
                    self._ledger.tell(fact)

    def accept_suspects(self, polled: list[Perception], session: str, cycle_id: str, sense: Module) -> list[Perception]:
        """Return the polled perceptions, or none if one of them may have been current when a process died: then all of
        them become accepted work, each with a cycle of its own, and the cursors of the sensors are saved."""
        attempts = {perception.id: self._work.polled.pop(trait(perception), 0) for perception in polled}
        is_suspect = self._core.is_suspect(session)
        if not (is_suspect or any(attempts.values())):
            return polled
        for perception in polled:
            item = Item(perception.id, perception, session=session, attempts=attempts[perception.id], is_sensed=True)
            self._ledger.tell(facts.WorkChanged(session=session, item=item))
            self._requests.in_background(self.hand_out(item, is_suspect=is_suspect), "recovery of")
        cursors = [facts.ValueSaved(key=key, value=cursor) for key, cursor in sense.cursors().items()]
        rows = sense.cycle_rows(cycle_id) if sense.cycle_rows else ()
        self._ledger.tell(*cursors, facts.RowsChanged(changes=(*rows, *sense.row_changes())))
        return []


def _nothing() -> None:
    """Do nothing."""


def _action_of(record: CycleRecord) -> Action | None:
    """Return the action of a recorded cycle with its perceptions, which determine its trust."""
    return None if record.action is None else replace(record.action, perceptions=record.perceptions)
