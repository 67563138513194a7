"""Writes into the log what happens to tools: mistakes in them, servers that are lost or break what they promised."""

from __future__ import annotations

from spar.events import CallFailed, ContractViolation, ErrorOccurred
from spar.health.error_reporting import Reports
from spar.loop.core import Core
from spar.observe.logs import get_logger

log = get_logger("spar.tools")


def log_tools(core: Core, reports: Reports) -> None:
    """Log calls that fail by a mistake in their tool, servers that are lost and broken promises from now on.

    Whole phases log themselves.
    """

    def failed(event: ErrorOccurred) -> None:
        if event.phase == "act" and not event.cycle_id:
            reports.say(log.warning, "tool failed", event.error, part=event.error.part,
                              reason=event.error.message, policy=event.policy)  # fmt: skip

    def call_failed(event: CallFailed) -> None:
        fault = event.result.fault
        if fault is not None and fault.detail.get("where"):
            reports.say(log.warning, "call failed", fault, cycle=event.cycle_id, tool=event.call.tool,
                              call=event.call.id, reason=fault.message)  # fmt: skip

    def violated(event: ContractViolation) -> None:
        log.warning("contract violated", agent=core.name, part=event.part, reason=event.message)

    core.events.subscribe(ErrorOccurred, failed)
    core.events.subscribe(CallFailed, call_failed)
    core.events.subscribe(ContractViolation, violated)
