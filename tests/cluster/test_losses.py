"""A node that loses its lease while a cycle runs: of the cycle no end and no result is left, and it goes on."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from memory.postgres.cluster.decisions import partition_of
from memory.postgres.store import PostgresMemory
from spar import Action, Agent, Call, facts, tool
from spar.nodes.owned import OwnedSessions
from spar.ports.nodes import NodeRequest
from spar.protocols import Context
from spar.records.journal import Item
from spar.types import Perception
from tests.waiting import until

pytestmark = pytest.mark.process


def lose(url: str) -> None:
    """Take the leases of all nodes away."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DELETE FROM node")


class Paying:
    """Agent on one node, which loses its lease in the first plan of a run. `done` are the goals that were paid for,
    `results` what its planner was given of the calls."""

    def __init__(self, url: str, loses_at: int) -> None:
        self.done: list[str] = []
        self.results: list[tuple[str, str]] = []
        self._left = 1

        @tool(effect="once")
        async def pay(text: str) -> str:
            """Note a text."""
            self.done.append(text)
            return text

        async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
            run = context.run
            if run is None:
                return None
            if run.number >= loses_at and self._left:
                self._left = 0
                await asyncio.to_thread(lose, url)
            if run.number == 1:
                return Action(calls=[Call("pay", {"text": run.goal})])
            calls = [call for result in run.results for call in result.results]
            self.results += [(call.status, "" if call.fault is None else call.fault.message) for call in calls]
            return Action(output=f"answer {run.number}")

        memory = PostgresMemory(url, nodes=True)
        self.agent = Agent(plan=plan, tools=[pay], memory=memory, loop_interval="off", name="main")


@pytest.mark.parametrize("loses_at", [1, 2])
async def test_a_cycle_that_a_lost_lease_cuts_off_leaves_no_result_and_no_end(url: str, loses_at: int) -> None:
    paying = Paying(url, loses_at)
    async with paying.agent as agent:
        status = await agent.wait((await agent.submit("rent", session="s")).run_id, 60)
    assert (status.status, status.error) == ("ok", "")
    assert paying.done == ["rent"]
    assert set(paying.results) == {("ok", "")}


async def test_work_whose_session_goes_and_comes_back_while_it_is_handed_out_is_done_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[str] = []
    reads: list[str] = []

    async def plan(perceptions: Sequence[Perception]) -> Action:
        planned.extend(perception.text for perception in perceptions)
        return Action(output="done")

    memory = PostgresMemory(url, nodes=True)
    async with Agent(plan=plan, memory=memory, loop_interval="off", name="main") as agent:

        async def cycle(memory: PostgresMemory, id: str) -> None:
            reads.append(id)
            if len(reads) == 1:
                lose(url)
                assert (await agent.wait("1", 60)).status == "ok"  # as its next owner has done it

        monkeypatch.setattr(PostgresMemory, "cycle", cycle)
        item = Item("1", Perception("x", session="s", kind="message"), "run", "s", past=("c",))
        await agent.core.ledger.journal.commit(facts.WorkAccepted(session="s", item=item), "main")
        await agent.recovery.restart.hand_out(item)
        await agent.wait((await agent.submit("y", session="s")).run_id, 60)
    assert planned == ["x", "y"]
    assert len(reads) == 2


async def test_a_take_over_that_an_unknown_error_ends_is_made_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[object] = []

    async def reconcile(owned: OwnedSessions, usual: Any = OwnedSessions._reconcile) -> None:
        if not failures:
            failures.append(owned)
            raise LookupError("unknown")
        await usual(owned)

    monkeypatch.setattr(OwnedSessions, "_reconcile", reconcile)
    paying = Paying(url, 1)
    async with paying.agent as agent:
        assert (await agent.wait((await agent.submit("rent", session="s")).run_id, 30)).status == "ok"
    assert len(failures) == 1


async def test_a_call_of_a_session_that_a_node_has_kept_waits_until_the_lost_ones_have_ended(url: str) -> None:
    of = functools.partial(partition_of, "main")
    names = [f"s{number}" for number in range(2_000)]
    writes, kept = names[0], next(name for name in names if of(name) != of(names[0]))
    holds = next(name for name in names[1:] if of(name) == of(writes))
    is_held, may_end, done = asyncio.Event(), asyncio.Event(), list[str]()

    @tool(effect="once")
    async def pay(text: str) -> str:
        """Note a text."""
        done.append(text)
        return text

    async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
        run = context.run
        if run is None:
            return None
        if run.number > 1:
            return Action(output=run.results[0].results[0].status)
        if context.session == holds and not is_held.is_set():
            is_held.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:  # it ends later than its session is lost
                await may_end.wait()
                raise
        return Action(calls=[Call("pay", {"text": run.goal})])

    memory = PostgresMemory(url, nodes=True)
    async with Agent(plan=plan, tools=[pay], memory=memory, loop_interval="off", name="main") as agent:
        runs = [await agent.submit("one", session=holds)]
        await is_held.wait()
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE partition SET owner = 'gone', epoch = epoch + 1 WHERE id = %s", (of(writes),))
        runs.append(await agent.submit("two", session=writes))  # its cycle is refused: the partition is lost
        await until(lambda: memory.nodes.snapshot()["fenced"])
        runs.append(await agent.submit("three", session=kept))
        async with asyncio.timeout(30):  # until its call waits for the disk
            while (cycle := agent.sessions.by_key[kept].cycle) is None or cycle.phase != "act":
                await asyncio.sleep(0)
        may_end.set()
        statuses = [await agent.wait(run.run_id, 30) for run in runs]
    assert [status.output for status in statuses] == ["ok", "ok", "ok"]
    assert sorted(done) == ["one", "three", "two"]


async def test_a_request_that_comes_while_a_node_stops_is_left_to_the_next_owner_without_a_word(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    paying, is_recovering = Paying(url, 5), list[bool]()
    agent = paying.agent

    @agent.hook("session_end")
    async def meanwhile(context: object) -> None:  # its recovery has ended by now, the nodes have not
        is_recovering.append(agent.recovery.has_begun)
        (owned,) = (item.part for item in agent.attachments.by_name.values() if item.name == "nodes")
        owned.arrived([NodeRequest(partition_of("main", "s"), "main", "work", "{}")])
        owned.gained()
        await asyncio.sleep(0.1)

    async with agent:
        assert (await agent.wait((await agent.submit("rent", session="s")).run_id, 30)).status == "ok"
        capsys.readouterr()
    assert is_recovering == [False]
    assert "WARNING" not in capsys.readouterr().err
