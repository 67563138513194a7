"""Port to the agent for parts that ask it to change its state."""

from __future__ import annotations

from typing import Protocol

from spar.types import Phase


class AgentControl(Protocol):
    """State changes of an agent, for parts that see a reason for one. All but the last three return at once."""

    def request_pause(self) -> None:
        """Request a pause at the end of the current cycles."""

    def request_stop(self) -> object:
        """Request a stop."""

    def resume_renewed(self) -> None:
        """Continue: the budget that caused the pause is renewed."""

    def fail(self, why: str) -> None:
        """Set the state to failed: no cycle runs until somebody starts or stops the agent."""

    async def follow_pause(self) -> None:
        """Pause or resume as another process of this agent has. Raises: errors of the store."""

    async def take_over(self) -> None:
        """Have the present actor read the open calls and questions that another one has left."""

    async def restart_module(self, phase: Phase, *, is_anew: bool = False) -> None:
        """Replace a failing module with a new one, or open it again.

        Args: is_anew: it forgets what it has in hand: another process has gone on with that.
        """
