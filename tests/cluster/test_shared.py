"""State of an agent that all its nodes share."""

from __future__ import annotations

import pytest

from memory.postgres.store import PostgresMemory
from spar import Agent
from spar.journal import restart
from spar.nodes import owned
from tests.waiting import until

pytestmark = pytest.mark.process


def node(url: str) -> Agent:
    async def plan(perceptions: object) -> None:
        return None

    return Agent(plan=plan, memory=PostgresMemory(url, nodes=True), loop_interval="off", name="main")


async def test_a_pause_at_one_node_pauses_all_and_those_that_come_until_one_resumes(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owned, "_PAUSE_EVERY", 0.02)
    monkeypatch.setattr(restart, "EVERY", 1e6)  # what came during the pause is not left to the next look at all work
    async with node(url) as first, node(url) as second:
        await first.pause()
        await until(lambda: second.state == "paused")
        runs = [await first.submit("waits", session=f"s{number}") for number in range(8)]
        async with node(url) as third:  # ends without an end of the pause
            assert third.state == "paused"
        assert (await first.wait(runs[0].run_id, 0.1)).status == "timeout"
        await second.resume()
        await until(lambda: first.state == "running")
        for run in runs:
            assert (await second.wait(run.run_id, 30)).status == "ok"
        for _ in range(5):  # no node takes another's change for an earlier one of its own
            await second.pause()
            await first.resume() if first.state == "paused" else await second.resume()
            await until(lambda: first.state == second.state == "running")
