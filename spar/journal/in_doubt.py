"""Calls in doubt: calls that may or may not have had their effect. People and the planner are told, and a person
decides."""

from __future__ import annotations

from typing import Any, Protocol

from spar import facts
from spar.errors import ConflictError
from spar.events import CallInDoubt, DoubtResolved
from spar.journal.work import Work
from spar.loop.core import Core
from spar.observe.logs import get_logger
from spar.records.journal import Answer, Doubt, Unfinished, demanded, named
from spar.types import Action, CallResult, Perception, replace

log = get_logger("spar.recovery")

ANSWERS = ("done", "failed", "again")


class ContinuesWork(Protocol):
    """Recovery that continues after the decision about a call."""

    def push(self, perception: Perception) -> None:
        """Give a perception to its session."""

    def resume_with(self, work: Unfinished) -> None:
        """Have a session resume a cycle that is in the journal."""


class InDoubtCalls:
    """The calls of one agent that are in doubt."""

    __slots__ = ("_answered", "_core", "_recovery", "_work")

    def __init__(self, core: Core, work: Work, recovery: ContinuesWork) -> None:
        self._core, self._work, self._recovery = core, work, recovery
        self._answered = set[str]()  # in this process, by people: a chain of steps may be closed again

    async def load(self) -> None:
        """Load the open calls of earlier processes."""
        for doubt in await self.list():
            self._core.ledger.add(facts.CallDoubted(session=doubt.session, doubt=doubt))

    async def list(self) -> list[Doubt]:
        """Return the undecided calls, oldest first. Raises: ConflictError without a journal."""
        return list(await demanded(self._work.journal).views.doubts(self._core.name))

    def add(self, cycle_id: str, session: str, run_id: str | None, action: Action | None, result: CallResult) -> None:
        """Record a call that may have had its effect, and publish it once. A planner is told by a perception if the
        call has no run."""
        core, call = self._core, result.call
        why = result.fault.message if result.fault is not None else ""
        doubt = Doubt(f"{cycle_id}/{call.id}", call, cycle_id, session, run_id, core.clock.now(), why,
                      action.id if action is not None else "")  # fmt: skip
        state = core.ledger.states.get(session)
        if doubt.id in self._answered or (state is not None and doubt.id in state.doubts):
            return
        core.ledger.tell(facts.CallDoubted(session=doubt.session, doubt=doubt))
        log.warning("call in doubt", agent=core.name, cycle=cycle_id, call=call.id, tool=call.tool, reason=why)
        core.events.publish(CallInDoubt(call=call, cycle_id=cycle_id, run_id=run_id, doubt=doubt.id, why=why))
        if run_id is None:  # a run has it in its errors
            self._recovery.push(
                _perception(doubt, "call.in_doubt", f"call {call.id} of {call.tool} is in doubt: {why}")
            )

    async def resolve(self, id: str, answer: Answer, *, by: str = "", output: Any = None, reason: str = "") -> Doubt:
        """Decide about a call in doubt, and return it.

        Args: id: its id, or a unique prefix; answer: "done" (it had its effect), "failed" (it had none), or "again" (it
        had none, and a new cycle makes it); by: who decides; output: the output of a call that is done; reason: how
        they know.
        Raises: LookupError for an unknown id; ConflictError if it was decided already; ValueError for another answer.
        """
        core, journal = self._core, demanded(self._work.journal)
        if answer not in ANSWERS:
            raise ValueError(f"a call in doubt is resolved as {', '.join(ANSWERS)}, not as {answer!r:.100}")
        doubt: Doubt = named(await journal.views.doubts(core.name, is_open=False), id, "call in doubt")
        if doubt.answer is not None:
            raise ConflictError(f"call {doubt.id!r} is not in doubt any more: {doubt.answer}, by {doubt.answered_by}")
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
            self._recovery.resume_with(again)
        else:
            self._recovery.push(notice)
        return doubt


def _perception(doubt: Doubt, kind: str, text: str) -> Perception:
    attributes = {"doubt": doubt.id, "tool": doubt.call.tool, "answer": doubt.answer, "output": doubt.output}
    return Perception(text, source="recovery", kind=kind, key=f"{kind}:{doubt.id}", session=doubt.session,
                      priority=0.7, trust="trusted", attributes=attributes)  # fmt: skip
