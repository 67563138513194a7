"""Costs of an agent's requests to models, recorded in its memory; without such requests nothing is imported for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from spar.events import ModelAnswered
from spar.journal.state.agent_state import AgentState
from spar.loop.core import Core
from spar.loop.tasks import Requests
from spar.runs.runs import Runs
from spar.session.session import Session

if TYPE_CHECKING:
    from spar.budgets.costs import CostRecord


class AgentCosts:
    """Costs of one agent. Without a memory nothing is recorded.

    Args: sessions: the existing sessions by key.
    """

    __slots__ = ("_core", "_record", "_requests", "_runs", "_sessions", "_state")

    def __init__(self, core: Core, state: AgentState, requests: Requests, runs: Runs,
                 sessions: Mapping[str, Session]) -> None:  # fmt: skip
        self._core, self._state, self._requests, self._runs, self._sessions = core, state, requests, runs, sessions
        self._record: CostRecord | None = None
        if state.memory is not None:
            core.events.subscribe(ModelAnswered, self._take)

    @property
    def record(self) -> CostRecord:
        """Return the record of the costs; it is created by the first use."""
        if self._record is None:
            from spar.budgets.costs import CostRecord

            self._record = CostRecord(self._state.rows_of, self._core.clock.now, self._asked_for,
                                      self._requests.in_background)  # fmt: skip
        return self._record

    def _take(self, event: ModelAnswered) -> None:
        self.record.take(event)

    def _asked_for(self, event: ModelAnswered) -> tuple[str, str]:
        """Return the session of a request to a model, and the rule whose calls its run has made; "" for none."""
        run = self._runs.find(event.run_id) if event.run_id else None
        cycles = (session.cycle for session in self._sessions.values())
        cycle = next((cycle for cycle in cycles if cycle is not None and cycle.known_id == event.cycle_id), None)
        calls = [result.call for results in (run.results if run is not None else ()) for result in results.results]
        if cycle is not None and cycle.written_action is not None:
            calls += cycle.written_action.calls
        names = [str(rule.get("name") or "") for rule in self._core.settings.rules]
        rules = {f"rule {name!r}": name for name in names if name}
        session = run.session if run is not None else cycle.session if cycle is not None else ""
        return session, next((rules[call.reason] for call in calls if call.reason in rules), "")
