"""What happens to tools outside of calls stands in the service's log."""

from __future__ import annotations

import io
import json

from spar import Agent, ErrorOccurred, Fault
from spar.events import ContractViolation
from spar.observe.sink import configure
from spar.service.event_log import log_events


async def test_a_lost_server_and_a_broken_promise_are_told_and_faults_of_cycles_are_not() -> None:
    agent = Agent()
    out = io.StringIO()
    logs = configure("info", "json", stream=out)
    try:
        log_events(agent.core, agent.reports, agent.modules["sense"].name)
        lost = Fault("transient", "it is down", "git", "act")
        agent.events.publish(ErrorOccurred(cycle_id="", phase="act", error=lost, policy="reconnect"))
        agent.events.publish(ContractViolation(part="git__log", message="it changed"))
        agent.events.publish(ErrorOccurred(cycle_id="c", phase="act", error=lost))
        agent.events.publish(ErrorOccurred(cycle_id="", phase="sense", error=lost))
    finally:
        logs.close()

    told = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [
        (line["msg"], line["part"], line["reason"], line["level"]) for line in told if line["logger"] == "spar.tools"
    ] == [
        ("tool failed", "git", "it is down", "warning"),
        ("contract violated", "git__log", "it changed", "warning"),
    ]
