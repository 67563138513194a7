"""Port to the agent as its parts ask it to change its state."""

from __future__ import annotations

from typing import Protocol

from spar.types import Phase


class AgentControl(Protocol):
    """The states of an agent, for the parts that see a reason for another one. All but a restart return at once."""

    def request_pause(self) -> None:
        """Ask for a pause at the end of the cycles in hand."""

    def request_stop(self) -> object:
        """Ask for a stop."""

    def resume_renewed(self) -> None:
        """Go on: the budget that the agent was paused for is renewed."""

    def fail(self, why: str) -> None:
        """Give up: nothing turns any more until somebody starts or stops the agent."""

    async def restart_module(self, phase: Phase) -> None:
        """Put a new module in the place of one that fails, or open it again."""
