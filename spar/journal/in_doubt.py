"""Calls that may or may not have had their effect: told to people and to the planner, open until somebody answers."""

from __future__ import annotations

from typing import Any, Protocol

from spar.errors import ConflictError
from spar.events import CallInDoubt, DoubtResolved
from spar.journal.work import Work
from spar.loop.core import Core
from spar.observe.logs import get_logger
from spar.records.journal import Answer, Doubt, Unfinished, demanded, named
from spar.types import Action, CallResult, Perception, replace

log = get_logger("spar.recovery")

ANSWERS = ("done", "failed", "again")


class GoesOn(Protocol):
    """The recovery that goes on with what was decided of a call."""

    def push(self, perception: Perception) -> None:
        """Hand a perception to its session."""

    def resume_with(self, work: Unfinished) -> None:
        """Have a cycle of its own execute what is in the journal."""


class InDoubtCalls:
    """The calls of one agent that are in doubt; their number by `len`."""

    __slots__ = ("_core", "_known", "_recovery", "_work")

    def __init__(self, core: Core, work: Work, recovery: GoesOn) -> None:
        self._core, self._work, self._recovery = core, work, recovery
        self._known: dict[str, Doubt] = {}

    def __len__(self) -> int:
        return len(self._known)

    async def load(self) -> None:
        """Know those that earlier processes have left open."""
        self._known = {doubt.id: doubt for doubt in await self.list()}

    async def list(self) -> list[Doubt]:
        """Return the calls that nobody has answered, oldest first. Raises: ConflictError where no journal is kept."""
        return list(await demanded(self._work.journal).doubts(self._core.name))

    def add(self, cycle_id: str, session: str, run_id: str | None, action: Action | None, result: CallResult) -> None:
        """A call may have had its effect: keep it, and tell. One that is known already is not told again."""
        core, call = self._core, result.call
        why = result.fault.message if result.fault is not None else ""
        doubt = Doubt(f"{cycle_id}/{call.id}", call, cycle_id, session, run_id, core.clock.now(), why,
                      action.id if action is not None else "")  # fmt: skip
        if doubt.id in self._known:
            return
        self._known[doubt.id] = doubt
        demanded(self._work.journal).doubted(core.name, doubt)
        log.warning("call in doubt", agent=core.name, cycle=cycle_id, call=call.id, tool=call.tool, reason=why)
        core.events.publish(CallInDoubt(call=call, cycle_id=cycle_id, run_id=run_id, doubt=doubt.id, why=why))
        if run_id is None:  # a run is told by its errors
            self._recovery.push(
                _perception(doubt, "call.in_doubt", f"call {call.id} of {call.tool} is in doubt: {why}")
            )

    async def resolve(self, id: str, answer: Answer, *, by: str = "", output: Any = None, reason: str = "") -> Doubt:
        """Say what became of a call in doubt: it was "done" (with this output), it "failed" (did not happen), or it
        did not happen and is made "again", in a cycle of its own.

        Args: id: its id or the unique beginning of one; by: who says so; reason: how they know.
        Raises: LookupError for an id that is none; ConflictError when it was answered; ValueError for another answer.
        """
        core, journal = self._core, demanded(self._work.journal)
        if answer not in ANSWERS:
            raise ValueError(f"a call in doubt is resolved as {', '.join(ANSWERS)}, not as {answer!r:.100}")
        doubt: Doubt = named(await journal.doubts(core.name, is_open=False), id, "call in doubt")
        if doubt.answer is not None:
            raise ConflictError(f"call {doubt.id!r} is not in doubt any more: {doubt.answer}, by {doubt.answered_by}")
        doubt = replace(doubt, answer=answer, output=output, reason=reason, answered_by=by,
                        answered_at=core.clock.now())  # fmt: skip
        text = f"call {doubt.call.id} of {doubt.call.tool} was in doubt: {by or 'somebody'} says {answer}"
        told, again = _perception(doubt, f"call.{answer}", text), None
        if answer == "again":
            action = Action((await journal.call(doubt),), goal=f"make {doubt.call.tool} again", trust="trusted",
                            id=doubt.action_id or core.clock.new_id())  # fmt: skip
            again = Unfinished(core.clock.new_id(), doubt.session, (told,), action=action)
        await journal.answer(core.name, doubt, again)
        self._known.pop(doubt.id, None)
        core.events.publish(
            DoubtResolved(
                call=doubt.call, cycle_id=doubt.cycle_id, run_id=doubt.run_id, doubt=doubt.id, answer=answer, by=by
            )
        )
        if again is not None:
            self._recovery.resume_with(again)
        else:
            self._recovery.push(told)
        return doubt


def _perception(doubt: Doubt, kind: str, text: str) -> Perception:
    told = {"doubt": doubt.id, "tool": doubt.call.tool, "answer": doubt.answer, "output": doubt.output}
    return Perception(text, source="recovery", kind=kind, key=f"{kind}:{doubt.id}", session=doubt.session,
                      priority=0.7, trust="trusted", attributes=told)  # fmt: skip
