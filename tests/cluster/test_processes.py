"""Agents in several processes on one real PostgreSQL: nothing is lost, doubled or silent."""

from __future__ import annotations

import asyncio
import signal

import pytest

from tests.cluster.programs import process_cluster

pytestmark = pytest.mark.process


async def test_any_node_takes_messages_for_all_and_each_is_done_once_by_its_owner(url: str) -> None:
    async with process_cluster(url, 2) as cluster:
        a, b = cluster.nodes
        orders = [(index % 2, f"s{index % 9}", f"m{index}") for index in range(24)]
        receipts = await asyncio.gather(
            *(cluster.nodes[at].ask("submit", session, text, text) for at, session, text in orders)
        )
        again = await asyncio.gather(
            *(cluster.nodes[1 - at].ask("submit", session, text, text) for at, session, text in orders)
        )
        assert receipts == again
        runs = [receipt["run"] for receipt in receipts]
        for node in (a, b):
            statuses = await asyncio.gather(*(node.ask("wait", run) for run in runs))
            assert {status["status"] for status in statuses} == {"ok"}, statuses
        assert sorted(cluster.done) == sorted(text for _, _, text in orders)
        assert len({row[0] for row in cluster.rows("SELECT node FROM oracle.done")}) == 2
        assert await a.stop() == 0
        last = await b.ask("submit", "s1", "last", "last")
        assert (await b.ask("wait", last["run"]))["status"] == "ok"


@pytest.mark.parametrize("end", ["kill", "stop"])
async def test_of_a_node_that_ends_under_load_nothing_is_lost_doubled_or_silent(url: str, end: str) -> None:
    async with process_cluster(url, 3, slow=0.2) as cluster:
        asked = cluster.nodes[0]
        receipts = await asyncio.gather(
            *(asked.ask("submit", f"s{index % 30}", f"m{index}", f"m{index}") for index in range(60))
        )
        runs = {receipt["run"]: f"m{index}" for index, receipt in enumerate(receipts)}
        victim = cluster.nodes[1]
        while not cluster.rows("SELECT 1 FROM oracle.done WHERE node = 'node1'"):
            await asyncio.sleep(0.02)
        if end == "kill":
            await victim.kill()
        else:
            victim.signal(signal.SIGSTOP)
        statuses = dict(zip(runs, await asyncio.gather(*(asked.ask("wait", run) for run in runs)), strict=True))
        if end == "stop":
            victim.signal(signal.SIGCONT)
            late = await cluster.nodes[2].ask("submit", "s1", "late", "late")
            assert (await victim.ask("wait", late["run"]))["status"] == "ok"
        doubts = set((await cluster.nodes[2].ask("doubts"))["doubts"])
        done = cluster.done
        assert len(done) == len(set(done)), cluster.rows("SELECT id, node, at::text FROM oracle.done ORDER BY id, at")
        good = {runs[run] for run, status in statuses.items() if status["status"] == "ok"}
        assert good - doubts <= set(done)
        assert set(runs.values()) == good | doubts
        assert set(runs.values()) - set(done) <= doubts
        assert (await asked.ask("nodes"))["partitions"] > 0
