"""Budgets of an agent that several nodes run: together they never use more than one could."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from memory.postgres.store import PostgresMemory
from spar import Agent
from spar.ports.budgets import BudgetError, BudgetRefusal
from spar.protocols import Context
from tests.cluster.test_network import ShiftedClock

pytestmark = pytest.mark.process

Node = Callable[..., Agent]


@pytest.fixture
def node(url: str) -> Node:
    """Return what makes a node. By the clock of all it is half past: no test goes over into the next hour."""
    clock = ShiftedClock((30 - datetime.now(UTC).minute) / 60)
    return partial(node_on, url, clock)


def node_on(url: str, clock: ShiftedClock, **hour: int) -> Agent:
    async def plan(context: Context) -> None:
        return None

    settings: dict[str, Any] = {"budgets": {"hour": hour}}
    memory = PostgresMemory(url, nodes=True)
    return Agent(plan=plan, memory=memory, loop_interval="off", name="main", settings=settings, clock=clock)


async def test_requests_of_all_nodes_together_stay_within_a_budget_and_use_it_up(node: Node) -> None:
    held: list[Any] = []
    done: list[Any] = []
    async with node(requests=10, tokens=1_000) as first, node(requests=10, tokens=1_000) as second:

        async def ask(agent: Agent) -> bool:
            try:
                with await agent.budgets.reserve({"requests": 1, "tokens": 400}) as reservation:
                    held.append(reservation)
                    assert len(held) * 400 + 50 * len(done) <= 1_000
                    await asyncio.sleep(0.1)
                    held.remove(reservation)
                    done.append(reservation)
                    reservation.settle({"requests": 1, "tokens": 50})
            except BudgetError:
                return False
            return True

        granted = sum(await asyncio.gather(*(ask(agent) for agent in [first, second] * 8)))
        assert granted <= 10
        for agent in [first, second] * 8:  # what was reserved and not used is there for both
            granted += await ask(agent)
        assert granted == 10
        assert first.state == second.state == "running"
        used = {row.quantity: row.amount for row in await first.memory.journal.views.spent() if "hour" in row.window}
        assert used["requests"] == 10
        assert used["tokens"] == 500


async def test_calls_of_another_node_count_a_second_later(node: Node) -> None:
    async with node(calls=3) as first, node(calls=3) as second:
        for _ in range(3):
            charge = first.budgets.demand("c1", is_effect=False)
            assert not isinstance(charge, BudgetRefusal)
            first.budgets.use(charge)
        await first.memory.journal.safe()
        async with asyncio.timeout(60):
            while not isinstance(charge := second.budgets.demand("c2", is_effect=False), BudgetRefusal):
                second.budgets.release(charge)
                await asyncio.sleep(0.05)
        assert charge.used == 3
