"""Facts of calls: planned, started, ended, and continued without their cycle."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from memory.journal.writing.cycles import OpenCycles
from memory.journal.writing.handover import Handover, Writers
from memory.journal.writing.state import SmallState
from spar import facts
from spar.failpoints import armed, crashpoint
from spar.records.journal import Unfinished
from spar.types import Message

#: Fields of a call's result in its fact; the call itself is known from the plan.
_END = ("status", "reason", "output", "fault", "attempts", "started_at", "duration", "verified")


class CallFacts:
    """Writer of the facts of calls.

    Args: state: has the changes of small rows that wait until a cycle carries out its action; open_cycles: names of
        agents, by cycle id.
    """

    __slots__ = ("_cycles", "_handover", "_open_cycles", "_rows", "_state")

    def __init__(
        self, handover: Handover, cycles: OpenCycles, state: SmallState, open_cycles: Mapping[str, str]
    ) -> None:
        self._handover, self._rows = handover, handover.facts
        self._cycles, self._state, self._open_cycles = cycles, state, open_cycles

    @property
    def writers(self) -> Writers:
        """Return the method that writes each kind of fact."""
        return {
            facts.Planned: self._planned,
            facts.CallsPlanned: self._further_planned,
            facts.AttemptStarted: self._started,
            facts.CallEnded: self._ended,
            facts.CallDetached: self._detached,
            facts.CallAttached: self._attached,
        }

    def _planned(self, fact: facts.Planned, agent: str) -> None:
        for row in self._rows.planned(fact.cycle, fact.action, fact.effect):
            self._handover.add_fact(row)
        self._state.write(self._state.waiting.pop(fact.cycle, ()))
        if armed:
            crashpoint("plan.committed")

    def _further_planned(self, fact: facts.CallsPlanned, agent: str) -> None:
        for row in self._rows.calls(fact.cycle, fact.calls):
            self._handover.add_fact(row)

    def _started(self, fact: facts.AttemptStarted, agent: str) -> None:
        start: dict[str, Any] = {"attempt": fact.attempt, "effect": fact.effect, "allowed": fact.allowed}
        if fact.values is not None:
            start["values"] = fact.values
        self._handover.add_fact(self._rows.fact(fact.cycle, fact.call, "started", start))

    def _ended(self, fact: facts.CallEnded, agent: str) -> None:
        if armed:
            crashpoint("act.result_received")
        result = fact.result
        end = {name: getattr(result, name) for name in _END}
        if type(result.output) is Message:
            end["is_message"] = True
        self._handover.add_fact(self._rows.ended(fact.cycle, result.call.id, result.output, end))

    def _detached(self, fact: facts.CallDetached, agent: str) -> None:
        name = f"{fact.cycle}/{fact.action.calls[0].id}"
        unfinished = Unfinished(name, fact.session, action=fact.action, effect=fact.effect)
        self._handover.begin(name, self._open_cycles.get(fact.cycle, ""), unfinished)

    def _attached(self, fact: facts.CallAttached, agent: str) -> None:
        self._cycles.end(f"{fact.cycle}/{fact.call}")
