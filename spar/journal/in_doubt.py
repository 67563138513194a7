"""Work that a person must decide: calls in doubt, which may or may not have had their effect; and dead letters, work
that was put aside after too many failed or interrupted attempts. The planner is told of the former, too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from spar import facts
from spar.errors import ConflictError
from spar.events import CallInDoubt, DeadLettered, DoubtResolved
from spar.facts import LetterAnswered, PutAside
from spar.journal.work import Work
from spar.loop.core import Core
from spar.observe.logs import get_logger
from spar.records.journal import Answer, DeadLetter, Doubt, Item, Unfinished, named
from spar.runs.run import End
from spar.runs.runs import Runs
from spar.types import Action, Perception, replace

log = get_logger("spar.recovery")

ANSWERS = ("done", "failed", "again")


class DeadLetters:
    """The dead letters of one agent. `totals` counts those of this process by kind."""

    __slots__ = ("_core", "_hand_out", "_runs", "_work", "totals")

    def __init__(self, core: Core, work: Work, runs: Runs, hand_out: Callable[[Item], Awaitable[object]]) -> None:
        self._core, self._work, self._runs, self._hand_out = core, work, runs, hand_out
        self.totals: dict[str, int] = {}

    async def list(self) -> list[DeadLetter]:
        """Return the letters that nobody has decided about, oldest first. Raises: ConflictError without a journal."""
        return list(await self._work.stored.views.dead_letters(self._core.name))

    def add(self, fact: PutAside) -> None:
        """Put an item aside and publish that. If the item is a run, the run ends with an error."""
        item, reason = fact.item, fact.reason
        self._core.ledger.tell(fact)
        self.totals[item.kind] = self.totals.get(item.kind, 0) + 1
        log.error("put aside", agent=self._core.name, item=item.id, attempts=item.attempts, reason=reason)
        self._core.events.publish(DeadLettered(item=item.id, reason=reason, attempts=item.attempts))
        if item.kind == "run":
            run = self._runs.restore(item, [])
            if run.started_at is None:
                self._runs.start_aside(run)
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
                 resume: Callable[[facts.WorkHandedOut], Awaitable[object]]) -> None:  # fmt: skip
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
            notice = _perception(doubt, "call.in_doubt", f"call {call.id} of {call.tool} is in doubt: {why}")
            self._push(notice)

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
        text = f"call {doubt.call.id} of {doubt.call.tool} was in doubt: {by or 'somebody'} says {answer}"
        notice, again = _perception(doubt, f"call.{answer}", text), None
        if answer == "again":
            action = Action((await journal.views.call(doubt),), goal=f"make {doubt.call.tool} again", trust="trusted",
                            id=doubt.action_id or core.clock.new_id())  # fmt: skip
            again = Unfinished(core.clock.new_id(), doubt.session, (notice,), action=action)
        answered = facts.DoubtAnswered(session=doubt.session, doubt=doubt, again=again)
        await journal.commit(answered, core.name)
        self._answered.add(doubt.id)
        core.ledger.add(answered)
        core.events.publish(
            DoubtResolved(
                call=doubt.call, cycle_id=doubt.cycle_id, run_id=doubt.run_id, doubt=doubt.id, answer=answer, by=by
            )
        )
        if again is not None:
            handed_out = facts.WorkHandedOut(session=again.session, work=again.id, cycle=again)
            await self._resume(handed_out)
        else:
            self._push(notice)
        return doubt


def _perception(doubt: Doubt, kind: str, text: str) -> Perception:
    attributes = {"doubt": doubt.id, "tool": doubt.call.tool, "answer": doubt.answer, "output": doubt.output}
    return Perception(text, source="recovery", kind=kind, key=f"{kind}:{doubt.id}", session=doubt.session,
                      priority=0.7, trust="trusted", attributes=attributes)  # fmt: skip
