"""Exclusive resources of tools: one node has each, in the order in which nodes asked; those of a lost node are free."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

import psycopg
import pytest

from acting import Executor
from memory.postgres.cluster.nodes import ClusterNodes
from memory.postgres.store import PostgresMemory
from spar import Action, Agent, Call, tool
from spar.errors import TransientError
from spar.hooks import Hooks
from spar.protocols import Context, Host
from spar.protocols.tools import Resources
from spar.testing import RecordingEvents, VirtualClock
from spar.types import Perception
from tests.cluster.test_doors import are_shared_out
from tests.waiting import until

pytestmark = pytest.mark.process


@pytest.fixture
async def nodes(url: str) -> AsyncIterator[list[ClusterNodes]]:
    async with PostgresMemory(url, nodes=True) as a, PostgresMemory(url, nodes=True) as b:
        for memory in (a, b):  # they have a file only with a journal
            assert memory.journal is not None
        yield [memory.nodes for memory in (a, b) if memory.nodes is not None]


async def until_asked(url: str, number: int) -> None:
    """Wait until the database knows that so many have a resource or wait for one."""
    query = "SELECT count(*) FROM resource"
    with psycopg.connect(url, autocommit=True) as connection:
        await until(lambda: connection.execute(query).fetchone() == (number,))


async def test_nodes_have_a_resource_one_after_the_other_in_the_order_of_asking(
    nodes: list[ClusterNodes], url: str
) -> None:
    a, b = nodes
    order: list[str] = []

    async def use(node: ClusterNodes, name: str) -> None:
        give_back = await node.acquire("main", "printer")
        order.append(name)
        await asyncio.sleep(0.02)
        order.append(name)
        give_back()

    give_back = await a.acquire("main", "printer")
    (await b.acquire("main", "scanner"))()
    (await b.acquire("other", "printer"))()
    await until_asked(url, 1)
    tasks = []
    for name, node in (("b1", b), ("a1", a), ("b2", b)):
        tasks.append(asyncio.create_task(use(node, name)))
        await until_asked(url, 1 + len(tasks))
    assert order == []
    give_back()
    async with asyncio.timeout(60):
        await asyncio.gather(*tasks)
    assert order == ["b1", "b1", "a1", "a1", "b2", "b2"]


async def test_a_resource_of_a_lost_node_is_free_and_who_gave_up_waiting_holds_up_nobody(
    nodes: list[ClusterNodes], url: str
) -> None:
    a, b = nodes
    await a.acquire("main", "printer")
    impatient = asyncio.create_task(b.acquire("main", "printer"))
    waiting = asyncio.create_task(b.acquire("main", "printer"))
    await until_asked(url, 3)
    impatient.cancel()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SELECT pg_terminate_backend(backend::int) FROM node WHERE token = %s", (a.ownership.token,))
    async with asyncio.timeout(60):
        (await waiting)()


async def test_who_gives_up_before_the_database_has_answered_holds_up_nobody(nodes: list[ClusterNodes]) -> None:
    a, b = nodes
    give_back = await a.acquire("main", "printer")
    impatient = asyncio.create_task(b.acquire("main", "printer"))
    await asyncio.sleep(0)  # its question is on its way
    impatient.cancel()
    waiting = asyncio.create_task(b.acquire("main", "printer"))
    await asyncio.wait([impatient])
    assert impatient.cancelled()
    give_back()
    async with asyncio.timeout(60):
        (await waiting)()


@pytest.mark.parametrize("resource", ["printer", "node:printer"])
async def test_calls_of_two_nodes_overlap_only_on_resources_of_one_node(url: str, resource: str) -> None:
    names: Resources = (resource,)
    inside, most, both = 0, 0, asyncio.Event()

    @tool(resources=names)
    async def print_page() -> str:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        if most == 2:
            both.set()
        if resource == "printer":
            await asyncio.sleep(0.01)
        else:  # ends only if the calls of both nodes are here at the same time
            await both.wait()
        inside -= 1
        return "printed"

    async def plan(perceptions: Sequence[Perception], context: Context) -> Action:
        assert context.run is not None
        return Action(output="done") if context.run.results else Action((Call("print_page"),))

    def node() -> Agent:
        memory = PostgresMemory(url, nodes=True)
        return Agent(plan=plan, tools=[print_page], memory=memory, loop_interval="off", name="main")

    async with node() as first, node() as second, asyncio.timeout(60):
        await until(lambda: are_shared_out((first, second)))
        of_each = [[name for name in map(str, range(200)) if agent.core.owns(name)][:6] for agent in (first, second)]
        receipts = [await first.submit("print", session=name) for names in zip(*of_each, strict=True) for name in names]
        for receipt in receipts:
            assert (await first.wait(receipt.run_id)).output == "done"
    assert most == (1 if resource == "printer" else 2)
    assert inside == 0


async def test_a_call_that_gets_no_answer_about_its_resource_does_not_start_and_the_next_one_asks_again() -> None:
    asked, begun = [], []

    async def acquire(resource: str) -> Callable[[], None]:
        asked.append(resource)
        if len(asked) == 1:
            raise TransientError("the database does not answer")
        return lambda: asked.append(f"{resource} is given back")

    @tool(resources=("printer",))
    async def print_page(page: int) -> int:
        begun.append(page)
        return page

    executor = Executor([print_page])
    executor.attach(Host("main", VirtualClock(), RecordingEvents("main"), Hooks(), lambda: None, acquire=acquire))
    result = await executor.run([Call("print_page", {"page": page}) for page in (1, 2)])

    assert [call.status for call in result.results] == ["failed", "ok"]
    assert result.results[0].fault is not None
    assert "does not answer" in result.results[0].fault.message
    assert begun == [2]
    assert asked == ["printer", "printer", "printer is given back"]
