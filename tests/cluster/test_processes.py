"""Agents in several processes on one real PostgreSQL: nothing is lost, doubled or silent."""

from __future__ import annotations

import asyncio

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
