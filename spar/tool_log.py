"""Writes into the log what happens to tools outside of calls: a server is lost, or offers what it did not promise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spar.events import ContractViolation, ErrorOccurred
from spar.logs import get_logger

if TYPE_CHECKING:
    from spar.agent import Agent

log = get_logger("spar.tools")


def log_tools(agent: Agent) -> None:
    """Log servers of tools that are lost and broken promises from now on; whole phases log themselves."""

    def failed(event: ErrorOccurred) -> None:
        if event.phase == "act" and not event.cycle_id:
            log.warning("tool failed", agent=agent.name, part=event.error.part, reason=event.error.message,
                        policy=event.policy)  # fmt: skip

    def violated(event: ContractViolation) -> None:
        log.warning("contract violated", agent=agent.name, part=event.part, reason=event.message)

    agent.events.subscribe(ErrorOccurred, failed)
    agent.events.subscribe(ContractViolation, violated)
