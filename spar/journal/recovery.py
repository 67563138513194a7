"""Recovery of the work that earlier processes, or failed attempts, left unfinished. Its parts are made when they are
first used."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from spar.errors import SparError
from spar.journal.state.agent_state import AgentState
from spar.journal.work import REMEMBERED, Work
from spar.loop.core import Core
from spar.runs.runs import Runs

if TYPE_CHECKING:
    from spar.journal.restart import Restart


class Recovery(Work):
    """Accepted work of one agent, with what earlier processes and failed attempts left of it.

    Args: restart: makes what goes on with it, which the first work that is left needs.
    """

    __slots__ = ("_make_restart",)

    def __init__(self, core: Core, agent_state: AgentState, runs: Runs, restart: Callable[[Work], Restart]) -> None:
        super().__init__(core, agent_state, runs)
        self._make_restart = restart

    @cached_property
    def restart(self) -> Restart:
        """Work that earlier processes left, and how it goes on."""
        return self._make_restart(self)

    def may_try(self, work: str) -> bool:
        """Return whether a suspect may be tried now: no other one is."""
        return self.restart.suspects.may_try(work)

    async def begin(self) -> None:
        """Open the journal and resume unfinished work, before the first cycle. Raises: errors of the journal."""
        state, name = self._agent_state, self._core.name
        if (journal := state.journal) is not None:
            from spar.data.bounded import BoundedDict

            recent = await journal.views.recent_ids(name, REMEMBERED)
            self._recent = BoundedDict(REMEMBERED)
            self._recent.update(dict.fromkeys(reversed(recent)))  # the oldest first, which is dropped first
            await self.restart.begin(journal)
        elif state.has_journal:
            raise SparError(f"the memory of agent {name!r} is open, and its journal is not: nothing is kept")
        self.has_begun = True

    def end(self) -> None:
        """Stop recovery, and release the journal."""
        self.has_begun, self._recent = False, None
        if "restart" in self.__dict__:
            self.restart.end()

    def snapshot(self) -> dict[str, Any]:
        """Return the numbers of open work of each kind. JSON-able; may be called from any thread."""
        states = list(self._ledger.states.values())
        return {
            "is_journalled": self._agent_state.journal is not None,
            "in_doubt": sum(len(state.doubts) for state in states),
            "dead_letters": sum(len(state.put_aside) for state in states),
            "dead_by_kind": dict(self.restart.letters.totals),
            "open_cycles": self._ledger.journal.open_cycles,
            "in_hand": sum(len(state.items) for state in states),
            "to_be_retried": len(self.restart.retries),
            "resumed": self.restart.resumed,
            "repeated": self.repeated,
            "shed": self.restart.retries.shed,
        }
