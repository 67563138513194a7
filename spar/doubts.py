"""Calls that may or may not have had their effect: told to people and to the planner, open until somebody answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spar.errors import ConflictError
from spar.events import CallInDoubt, DoubtResolved
from spar.journal import Answer, Doubt, Unfinished, demanded, named
from spar.logs import get_logger
from spar.types import Action, CallResult, Perception, replace

if TYPE_CHECKING:
    from spar.agent import Agent

log = get_logger("spar.recovery")

ANSWERS = ("done", "failed", "again")


class Doubts:
    """The calls of one agent that are in doubt; their number by `len`."""

    __slots__ = ("_agent", "_known")

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._known: dict[str, Doubt] = {}

    def __len__(self) -> int:
        return len(self._known)

    async def load(self) -> None:
        """Know those that earlier processes have left open."""
        self._known = {doubt.id: doubt for doubt in await self.list()}

    async def list(self) -> list[Doubt]:
        """Those that nobody has answered, the oldest first. Raises: ConflictError where no journal is kept."""
        return list(await demanded(self._agent.recovery.journal).doubts(self._agent.name))

    def add(self, cycle_id: str, session: str, run_id: str | None, action: Action | None, result: CallResult) -> None:
        """A call may have had its effect: keep it, and tell. One that is known already is not told again."""
        agent, call = self._agent, result.call
        why = result.fault.message if result.fault is not None else ""
        doubt = Doubt(f"{cycle_id}/{call.id}", call, cycle_id, session, run_id, agent.clock.now(), why,
                      action.id if action is not None else "")  # fmt: skip
        if doubt.id in self._known:
            return
        self._known[doubt.id] = doubt
        agent.recovery.journal.doubted(agent.name, doubt)
        log.warning("call in doubt", agent=agent.name, cycle=cycle_id, call=call.id, tool=call.tool, reason=why)
        agent.events.publish(CallInDoubt(call=call, cycle_id=cycle_id, run_id=run_id, doubt=doubt.id, why=why))
        if run_id is None:  # a run is told by its errors
            agent.push(_perception(doubt, "call.in_doubt", f"call {call.id} of {call.tool} is in doubt: {why}"))

    async def resolve(self, id: str, answer: Answer, *, by: str = "", output: Any = None, reason: str = "") -> Doubt:
        """Say what became of a call in doubt: it was "done" (with this output), it "failed" (did not happen), or it
        did not happen and is made "again", in a cycle of its own.

        Args: id: its id or the unique beginning of one; by: who says so; reason: how they know.
        Raises: LookupError for an id that is none; ConflictError when it was answered; ValueError for another answer.
        """
        agent, journal = self._agent, demanded(self._agent.recovery.journal)
        if answer not in ANSWERS:
            raise ValueError(f"a call in doubt is resolved as {', '.join(ANSWERS)}, not as {answer!r:.100}")
        doubt: Doubt = named(await journal.doubts(agent.name, is_open=False), id, "call in doubt")
        if doubt.answer is not None:
            raise ConflictError(f"call {doubt.id!r} is not in doubt any more: {doubt.answer}, by {doubt.answered_by}")
        doubt = replace(doubt, answer=answer, output=output, reason=reason, answered_by=by,
                        answered_at=agent.clock.now())  # fmt: skip
        text = f"call {doubt.call.id} of {doubt.call.tool} was in doubt: {by or 'somebody'} says {answer}"
        told, again = _perception(doubt, f"call.{answer}", text), None
        if answer == "again":
            action = Action((await journal.call(doubt),), goal=f"make {doubt.call.tool} again", trust="trusted",
                            id=doubt.action_id or agent.clock.new_id())  # fmt: skip
            again = Unfinished(agent.clock.new_id(), doubt.session, (told,), action=action)
        await journal.answer(agent.name, doubt, again)
        self._known.pop(doubt.id, None)
        agent.events.publish(
            DoubtResolved(
                call=doubt.call, cycle_id=doubt.cycle_id, run_id=doubt.run_id, doubt=doubt.id, answer=answer, by=by
            )
        )
        if again is not None:
            agent.recovery.cut.go_on_with(again)
        else:
            agent.push(told)
        return doubt


def _perception(doubt: Doubt, kind: str, text: str) -> Perception:
    told = {"doubt": doubt.id, "tool": doubt.call.tool, "answer": doubt.answer, "output": doubt.output}
    return Perception(text, source="recovery", kind=kind, key=f"{kind}:{doubt.id}", session=doubt.session,
                      priority=0.7, trust="trusted", attributes=told)  # fmt: skip
