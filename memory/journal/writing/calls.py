"""Facts of calls: planned, started, ended, and continued without their cycle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.journal.writing.cycles import OpenCycles
from memory.journal.writing.handover import Handover
from memory.journal.writing.state import SmallState
from spar.failpoints import armed, crashpoint
from spar.records.journal import Unfinished
from spar.types import Action, Call, CallResult, Message

#: Fields of a call's result in its fact; the call itself is known from the plan.
_END = ("status", "reason", "output", "fault", "attempts", "started_at", "duration", "verified")


class CallFacts:
    """Writer of the facts of calls.

    Args: state: has the changes of small rows that wait until a cycle carries out its action; open_cycles: names of
        agents, by cycle id.
    """

    __slots__ = ("_cycles", "_facts", "_handover", "_open_cycles", "_state")

    def __init__(
        self, handover: Handover, cycles: OpenCycles, state: SmallState, open_cycles: Mapping[str, str]
    ) -> None:
        self._handover, self._facts = handover, handover.facts
        self._cycles, self._state, self._open_cycles = cycles, state, open_cycles

    def acting(self, work: str, action: Action, effect: str = "") -> None:
        """Write that an action is about to be executed.

        `effect` is the effect of the whole action, if the actor does not record its calls; else "".
        """
        for fact in self._facts.acted(work, action, effect):
            self._handover.add_fact(fact)
        self._state.write(self._state.waiting.pop(work, ()))
        if armed:
            crashpoint("plan.committed")

    def planned(self, work: str, call: Call) -> None:
        """Write a call that the action did not contain when it began."""
        self._handover.add_fact(self._facts.fact(work, "", "planned", [call.to_wire()]))

    def started(
        self, work: str, call_id: str, attempt: int, effect: str, allowed: str, values: Mapping[str, Any] | None = None
    ) -> None:
        """Write that an attempt of a call begins.

        `effect` is that of the tool. `allowed` is "auto" or the id of an approval. `values` are the values of the
        parameters, if the call as planned only refers to them.
        """
        start: dict[str, Any] = {"attempt": attempt, "effect": effect, "allowed": allowed}
        if values is not None:
            start["values"] = values
        self._handover.add_fact(self._facts.fact(work, call_id, "started", start))

    def ended(self, work: str, result: CallResult) -> None:
        """Write that a call has ended, with its result."""
        if armed:
            crashpoint("act.result_received")
        end = {name: getattr(result, name) for name in _END}
        if type(result.output) is Message:
            end["is_message"] = True
        self._handover.add_fact(self._facts.ended(work, result.call.id, result.output, end))

    def detached(self, work: str, action: Action, effect: str, session: str) -> None:
        """Write that the only call of an action continues without its cycle."""
        name = f"{work}/{action.calls[0].id}"
        unfinished = Unfinished(name, session, action=action, effect=effect)
        self._handover.begin(name, self._open_cycles.get(work, ""), lambda: unfinished)

    def attached(self, work: str, call_id: str) -> None:
        """Write that a detached call has ended."""
        self._cycles.end(f"{work}/{call_id}")
