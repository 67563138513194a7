"""Calls of cycles: what was planned, which calls began and ended, and which go on without their cycle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.journal.writing.cycles import OpenCycles
from memory.journal.writing.handover import Handover
from memory.journal.writing.state import SmallState
from spar.failpoints import crashpoint
from spar.records.journal import Unfinished
from spar.types import Action, Call, CallResult, Message

#: What is kept of a call's end beside its call.
_END = ("status", "reason", "output", "fault", "attempts", "started_at", "duration", "verified")


class CallFacts:
    """Writes the facts of calls.

    Args: state: has the rows that wait until a cycle acts; open_cycles: by cycle, the name of its agent.
    """

    __slots__ = ("_cycles", "_facts", "_handover", "_open_cycles", "_state")

    def __init__(
        self, handover: Handover, cycles: OpenCycles, state: SmallState, open_cycles: Mapping[str, str]
    ) -> None:
        self._handover, self._facts = handover, handover.facts
        self._cycles, self._state, self._open_cycles = cycles, state, open_cycles

    def acting(self, work: str, action: Action, effect: str = "") -> None:
        """Note that an action is going to be executed."""
        for told in self._facts.acted(work, action, effect):
            self._handover.note(told)
        self._state.write(self._state.waiting.pop(work, ()))
        crashpoint("plan.committed")

    def planned(self, work: str, call: Call) -> None:
        """Note a call that the action did not hold when it began."""
        self._handover.note(self._facts.fact(work, "", "planned", [call.to_wire()]))

    def started(
        self, work: str, call_id: str, attempt: int, effect: str, allowed: str, values: Mapping[str, Any] | None = None
    ) -> None:
        """Note that an attempt begins."""
        told: dict[str, Any] = {"attempt": attempt, "effect": effect, "allowed": allowed}
        if values is not None:
            told["values"] = values
        self._handover.note(self._facts.fact(work, call_id, "started", told))

    def ended(self, work: str, result: CallResult) -> None:
        """Note that a call has ended, and how."""
        crashpoint("act.result_received")
        told = {name: getattr(result, name) for name in _END}
        if type(result.output) is Message:
            told["is_message"] = True
        self._handover.note(self._facts.fact(work, result.call.id, "ended", told))

    def detached(self, work: str, action: Action, effect: str, session: str) -> None:
        """Note that the one call of an action goes on, and nobody waits for it."""
        name = f"{work}/{action.calls[0].id}"
        cut = Unfinished(name, session, action=action, effect=effect)
        self._handover.begin(name, self._open_cycles.get(work, ""), lambda: cut)

    def attached(self, work: str, call_id: str) -> None:
        """Note that a detached call has come to its end."""
        self._cycles.end(f"{work}/{call_id}")
