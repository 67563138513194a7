"""A cycle that did something is one line of the log, an idle one none."""

from __future__ import annotations

import io
import json
from typing import Any

from spar import Action, Agent, Call, Perception, tool
from spar.observe.sink import configure
from spar.service.event_log import log_events
from spar.testing import VirtualClock


async def lines_of(clock: VirtualClock, perceptions: list[Perception], calls: list[Call]) -> list[dict[str, Any]]:
    @tool(effect="read")
    async def works() -> int:
        return 1

    @tool(effect="read")
    async def fails() -> int:
        raise OSError("no")

    waiting = [perceptions]

    async def sense() -> list[Perception]:
        return waiting.pop() if waiting else []

    async def plan(noticed: list[Perception]) -> Action:
        return Action(calls=calls, reason="rule 'x' matched")

    agent = Agent(sense=sense, plan=plan, tools=[works, fails], clock=clock, loop_interval=1.0)
    out = io.StringIO()
    logs = configure("info", "json", stream=out)
    try:
        log_events(agent.core, agent.reports, agent.modules["sense"].name)
        async with agent:
            await clock.sleep(10)
        total = agent.stats.total_cycles
    finally:
        logs.close()
    assert total > 5
    return [line for line in map(json.loads, out.getvalue().splitlines()) if line["msg"] == "cycle acted"]


async def test_it_says_what_was_noticed_and_done_and_nothing_of_what_people_wrote(clock: VirtualClock) -> None:
    perceptions = [
        Perception("secret", source="inbox", kind="file.added", attributes={"name": "report.txt"}),
        Perception("secret", source="host", kind="host.load", subject="load"),
        Perception("secret", source="message", kind="message"),
    ]

    (line,) = await lines_of(clock, perceptions, [Call("works"), Call("fails"), Call("works")])

    assert line["noticed"] == "inbox: report.txt; host: load; message: message"
    assert "secret" not in str(line)
    assert line["decided"] == "rule 'x' matched"
    assert line["calls"] == "works ✓ fails ✗ works ✓"
    assert line["session"] == "main"
    assert line["milliseconds"] >= 0


async def test_many_and_long_things_stay_one_short_line_that_says_how_many(clock: VirtualClock) -> None:
    (line,) = await lines_of(
        clock,
        [Perception("x", source="s", subject=f"{n} " + "x" * 100_000) for n in range(10)],
        [Call("works") for _ in range(20)],
    )

    assert line["noticed"].endswith("…; and 6 more")
    assert len(line["noticed"]) < 400
    assert line["calls"] == "20 calls: 20 ✓"


async def test_a_plan_without_calls_and_words_is_no_line(clock: VirtualClock) -> None:
    assert await lines_of(clock, [Perception("x")], []) == []
