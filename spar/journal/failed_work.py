"""Work that failed, or may have.

Retries wait for a back-off; suspects, which may have killed the process, are tried again one piece at a time. A person
must decide about calls in doubt, which may or may not have had their effect, and about dead letters, which were put
aside after too many attempts. The planner is told of calls in doubt, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from spar import facts
from spar.clock import Timer
from spar.data.reply import End
from spar.decisions.finish import BACKOFF, retry
from spar.decisions.resume import ANSWERS, answered, notice_of
from spar.errors import ConflictError
from spar.events import CallInDoubt, DeadLettered, DoubtResolved
from spar.facts import LetterAnswered, PutAside, RetryPlanned, WorkHandedOut, WorkLeft
from spar.journal.work import Work
from spar.loop.core import Core, Requests
from spar.loop.cycle import WorkingSession
from spar.observe.logs import get_logger
from spar.records.journal import Answer, DeadLetter, Doubt, Item, named
from spar.runs.runs import Runs
from spar.state.apply import Ledger
from spar.types import Fault, Perception, replace

log = get_logger("spar.recovery")

#: The most failed work that waits. Beyond it failed perceptions of sensors are not tried again.
MOST_WAITING = 10_000


class DeadLetters:
    """The dead letters of one agent. `totals` counts those of this process by kind."""

    __slots__ = ("_core", "_hand_out", "_runs", "_work", "totals")

    def __init__(self, core: Core, work: Work, runs: Runs, hand_out: Callable[[Item], Awaitable[object]]) -> None:
        self._core, self._work, self._runs, self._hand_out = core, work, runs, hand_out
        self.totals: dict[str, int] = {}
        core.ledger.following[PutAside] = self._put_aside

    async def list(self) -> list[DeadLetter]:
        """Return the letters that nobody has decided about, oldest first. Raises: ConflictError without a journal."""
        return list(await self._work.stored.views.dead_letters(self._core.name))

    def _put_aside(self, fact: PutAside) -> None:
        """Publish that an item was put aside. If it is a run, the run ends with an error."""
        item, reason = fact.item, fact.reason
        self.totals[item.kind] = self.totals.get(item.kind, 0) + 1
        log.error("put aside", agent=self._core.name, item=item.id, attempts=item.attempts, reason=reason)
        self._core.events.publish(DeadLettered(item=item.id, reason=reason, attempts=item.attempts))
        if item.kind == "run":
            run = self._runs.restore(item, [])
            if run.started_at is None:
                self._core.ledger.tell(facts.RunBegan(session=run.session, run=run.id))
            self._runs.end(run, End("error", reason))

    async def revive(self, id: str) -> Item:
        """Try a letter again, as if it were new; return its item.

        Args: id: its id, or a unique prefix. Raises: LookupError for an unknown id; ConflictError if it was decided
        already.
        """
        return await self._answer(id, is_tried_again=True)

    async def bury(self, id: str) -> Item:
        """Drop a letter for good; return its item. Raises: as `revive`."""
        return await self._answer(id, is_tried_again=False)

    async def _answer(self, id: str, *, is_tried_again: bool) -> Item:
        letter: DeadLetter = named(await self.list(), id, "dead letter")
        session = letter.item.session
        if (owner := self._core.owner_of(session)) is not None:
            await owner.ask(session, "letter", id=letter.id, is_tried_again=is_tried_again)
            return letter.again
        fact = LetterAnswered(session=session, letter=letter, is_tried_again=is_tried_again)
        await self._work.stored.commit(fact, self._core.name)
        try:
            if is_tried_again:
                await self._hand_out(letter.again)
        finally:
            self._core.ledger.add(fact)
        return letter.again


class InDoubtCalls:
    """The calls of one agent that are in doubt."""

    __slots__ = ("_answered", "_core", "_push", "_resume", "_work")

    def __init__(self, core: Core, work: Work, push: Callable[[Perception], object],
                 resume: Callable[[WorkHandedOut], Awaitable[object]]) -> None:  # fmt: skip
        self._core, self._work, self._push, self._resume = core, work, push, resume
        self._answered = set[str]()  # in this process, by people: a chain of steps may be closed again

    async def list(self) -> list[Doubt]:
        """Return the undecided calls, oldest first. Raises: ConflictError without a journal."""
        return list(await self._work.stored.views.doubts(self._core.name))

    def is_answered(self, id: str) -> bool:
        """Return whether this process knows that a person has decided about a call."""
        return id in self._answered

    def add(self, fact: facts.CallDoubted) -> None:
        """Record a call that may have had its effect, and publish it once. A planner is told by a perception if the
        call has no run."""
        core, doubt = self._core, fact.doubt
        state = core.ledger.states.get(doubt.session)
        if doubt.id in self._answered or (state is not None and doubt.id in state.doubts):
            return
        core.ledger.tell(fact)
        cycle, call, why = doubt.cycle_id, doubt.call, doubt.why
        log.warning("call in doubt", agent=core.name, cycle=cycle, call=call.id, tool=call.tool, reason=why)
        core.events.publish(CallInDoubt(call=call, cycle_id=cycle, run_id=doubt.run_id, doubt=doubt.id, why=why))
        if doubt.run_id is None:  # a run has it in its errors
            self._push(notice_of(doubt))

    async def resolve(self, id: str, answer: Answer, *, by: str = "", output: Any = None, reason: str = "") -> Doubt:
        """Decide about a call in doubt, and return it.

        Args: id: its id, or a unique prefix; answer: "done" (it had its effect), "failed" (it had none), or "again" (it
        had none, and a new cycle makes it); by: who decides; output: the output of a call that is done; reason: how
        they know.
        Raises: LookupError for an unknown id; ConflictError if it was decided already; ValueError for another answer.
        """
        core, journal = self._core, self._work.stored
        if answer not in ANSWERS:
            raise ValueError(f"a call in doubt is resolved as {', '.join(ANSWERS)}, not as {answer!r:.100}")
        doubt: Doubt = named(await journal.views.doubts(core.name, is_open=False), id, "call in doubt")
        if doubt.answer is not None:
            raise ConflictError(f"call {doubt.id!r} is not in doubt any more: {doubt.answer}, by {doubt.answered_by}")
        if (owner := core.owner_of(doubt.session)) is not None:
            await owner.ask(doubt.session, "resolve", id=doubt.id, answer=answer, by=by, output=output, reason=reason)
            resolved: Doubt = named(await journal.views.doubts(core.name, is_open=False), doubt.id, "call in doubt")
            return resolved
        doubt = replace(doubt, answer=answer, output=output, reason=reason, answered_by=by,
                        answered_at=core.clock.now())  # fmt: skip
        call = await journal.views.call(doubt) if ANSWERS[answer] == "made again" else doubt.call
        fact = answered(doubt, call, core.clock.new_id)
        await journal.commit(fact, core.name)
        self._answered.add(doubt.id)
        core.ledger.add(fact)
        core.events.publish(
            DoubtResolved(
                call=doubt.call, cycle_id=doubt.cycle_id, run_id=doubt.run_id, doubt=doubt.id, answer=answer, by=by
            )
        )
        if (again := fact.again) is None:
            self._push(notice_of(doubt))
        else:
            await self._resume(WorkHandedOut(session=again.session, work=again.id, cycle=again))
        return doubt


class Retries:
    """The failed work of one agent that waits for its next attempt. `len` is its number, `shed` counts work that was
    dropped.

    Args: hand_out: gives an item to its session, once it is due.
    """

    __slots__ = ("_core", "_hand_out", "_requests", "_timers", "_work", "shed")

    def __init__(self, core: Core, requests: Requests, work: Work,
                 hand_out: Callable[[Item], Awaitable[object]]) -> None:  # fmt: skip
        self._core, self._requests, self._work, self._hand_out = core, requests, work, hand_out
        self._timers: dict[str, Timer] = {}
        self.shed = 0
        core.ledger.following[RetryPlanned] = self._wait

    def __len__(self) -> int:
        return len(self._timers)

    def failed(
        self, perceptions: Iterable[Perception], session: str, fault: Fault, *, is_sensed: bool
    ) -> tuple[Item, ...]:
        """Count a failed attempt at each perception, and journal it; return the items that will be tried again. Others
        are put aside."""
        failed: list[Item] = []
        for perception in perceptions:
            item = self._work.items(session).get(perception.id)
            if item is None and len(self._timers) >= MOST_WAITING:
                self.shed += 1
                continue
            item = item or Item(perception.id, perception, session=session)
            item = replace(item, perception=perception, is_sensed=is_sensed, attempts=item.attempts + 1, fault=fault)
            fact = retry(item, self._core.clock.now())
            self._core.ledger.tell(fact)
            if isinstance(fact, RetryPlanned):
                failed.append(fact.item)
        return tuple(failed)

    def _wait(self, fact: RetryPlanned) -> None:
        """Wait for the time of an item, instead of a time that was planned before."""
        item, clock = fact.item, self._core.clock
        assert item.due_at is not None
        if (waiting := self._timers.get(item.id)) is not None:
            waiting.cancel()
        wait = (item.due_at - clock.now()).total_seconds()
        # A longer wait is that of a clock that was set back.
        self._timers[item.id] = clock.call_at(clock.monotonic() + min(wait, BACKOFF.cap), partial(self._due, item))

    def _due(self, item: Item) -> None:
        if self._core.state not in ("stopping", "stopped"):  # the next start finds it in the journal
            self._requests.in_background(self._try_again(item), "recovery of")

    async def _try_again(self, item: Item) -> None:
        try:
            state = self._core.ledger.states.get(item.session)
            if state is not None and item.id in state.retries:  # else its session went to another process meanwhile
                await self._hand_out(replace(item, due_at=None))
        finally:
            self._timers.pop(item.id, None)

    def end(self) -> None:
        """Cancel all timers. The next start finds the items in the journal."""
        for timer in self._timers.values():
            timer.cancel()
        ledger = self._core.ledger
        for state in [state for state in ledger.states.values() if state.retries]:
            ledger.add(WorkLeft(session=state.key, items=tuple(state.retries)))
        self._timers.clear()


class Suspects:
    """The suspects of one agent. Args: session_of: returns a session; spawn: starts one that has work."""

    __slots__ = ("_ledger", "_queue", "_session_of", "_spawn", "_trial")

    def __init__(
        self, ledger: Ledger, session_of: Callable[[str], WorkingSession], spawn: Callable[[Any], object]
    ) -> None:
        self._ledger, self._session_of, self._spawn = ledger, session_of, spawn
        self._queue = deque[str]()  # sessions with suspects
        self._trial = ""  # the id of the suspect that is tried now

    def add(self, session: str) -> None:
        """Note that a session has a suspect that waits for its trial."""
        self._queue.append(session)

    def may_try(self, work: str) -> bool:
        """Return whether no other suspect than this one is being tried."""
        return self._trial in ("", work)

    def begin_trial(self, piece: WorkHandedOut) -> None:
        """Note that a cycle begins to try this piece."""
        if piece.is_suspect:
            self._trial = piece.work

    def end_trial(self, piece: WorkHandedOut, *, is_put_back: bool = False) -> None:
        """Note that the cycle of this piece has ended, and let the next suspect be tried.

        Args: is_put_back: its session will try it again by itself, after a wait.
        """
        if self._trial == piece.work:
            self._trial = ""
            self.wake_next(piece.session if is_put_back else "")

    def wake_next(self, but: str = "") -> None:
        """Start the next session with a suspect, unless a trial goes on. Args: but: a session to skip."""
        queue = self._queue
        if self._trial:
            return
        for _ in range(len(queue)):
            key = queue.popleft()
            if (state := self._ledger.states.get(key)) is None or not state.suspects:
                continue
            queue.append(key)
            if key != but and (session := self._session_of(key)).has_suspects_to_try:
                session.wake.set()
                self._spawn(session)
                break

    def forget_trial(self) -> None:
        """Forget the current trial, because the agent stops."""
        self._trial = ""
