"""Decisions of people at a node that does not have the session: its owner carries them out, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any

import pytest

from memory.postgres.cluster import lease
from memory.postgres.cluster.decisions import _shares, partition_of
from memory.postgres.store import PostgresMemory
from spar import Action, Agent, Call, facts, tool
from spar.bus.run_log import RunEvent
from spar.clock import Clock
from spar.errors import ConflictError
from spar.events import FeedbackTaken
from spar.protocols import Context
from spar.records.approvals import DecidedError
from spar.records.journal import Doubt, Item
from spar.review.pending_approvals import Waiting
from spar.types import Perception, utcnow
from tests.journal.left import accept
from tests.server.test_repeated import Client
from tests.session.shown import listed, shown
from tests.waiting import until

pytestmark = pytest.mark.process


class Nodes:
    """Agents of one name on one database. `done` are the texts that their tool was called with."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.agents: list[Agent] = []
        self.may_end = asyncio.Event()

    def agent(self, url: str, clock: Clock | None = None) -> Agent:
        @tool(effect="once", approval="ask")
        async def ask(text: str) -> str:
            """Note a text once a person has approved it."""
            self.done.append(text)
            return text

        @tool(effect="once")
        async def slow(text: str) -> str:
            """Note a text when the test lets it."""
            await self.may_end.wait()
            self.done.append(text)
            return text

        async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
            if context.run is None:
                return None
            text = context.run.goal
            if text == "broken":
                raise ValueError("broken")
            if context.run.number > 1:
                return Action(output="done")
            name = text.partition(" ")[0]
            return Action(calls=[Call(name, {"text": text})]) if name in ("ask", "slow") else Action(output=text)

        memory = PostgresMemory(url, nodes=True)
        return Agent(plan=plan, tools=[ask, slow], memory=memory, loop_interval="off", name="main", clock=clock)

    def session_of(self, owner: int, prefix: str = "s") -> str:
        """Return the name of a session that this agent has."""
        names = (f"{prefix}{number}" for number in range(1_000))
        return next(name for name in names if self.agents[owner].core.owns(name))

    async def ended(self, at: int, run_id: str) -> Any:
        status = await self.agents[at].wait(run_id, 60.0)
        assert status.status != "timeout"
        return status


def has_begun(agent: Agent, session: str, number: int = 1) -> bool:
    """Return whether the first of so many runs of a session has begun."""
    runs = agent.runs.open_in(session)
    return len(runs) == number and runs[0].started_at is not None


def are_shared_out(agents: Sequence[Agent]) -> bool:
    """Return whether each agent has all that it is to have: none of it goes to another one while these live."""
    own = [agent.memory.nodes.ownership for agent in agents]
    shares = _shares(frozenset([each.token for each in own]))
    return all(sorted(each.partitions) == shares.get(each.token) for each in own)


async def is_shown_running(agent: Agent, session: str) -> bool:
    return (await shown(agent, session)).state == "running"


@asynccontextmanager
async def nodes_on(url: str, number: int = 2) -> AsyncIterator[Nodes]:
    """Run agents until all partitions are shared out."""
    nodes = Nodes()
    async with AsyncExitStack() as stack:
        for _ in range(number):
            nodes.agents.append(await stack.enter_async_context(nodes.agent(url)))
        await until(lambda: are_shared_out(nodes.agents))
        yield nodes


async def test_an_approval_is_decided_at_any_node_and_of_a_hundred_decisions_at_four_nodes_one_counts(url: str) -> None:
    async with nodes_on(url, 4) as nodes:
        session = nodes.session_of(0)
        receipt = await nodes.agents[1].submit("ask one", session=session)

        (row,) = await until(lambda: nodes.agents[0].approvals.list())

        async def decide(number: int) -> str:
            try:
                return (await nodes.agents[number % 4].approvals.decide(row.id, "approve", by=f"p{number}")).decided_by
            except DecidedError:
                return ""

        decided = await asyncio.gather(*(decide(number) for number in range(100)))
        assert [by != "" for by in decided].count(True) == 1
        assert (await nodes.ended(2, receipt.run_id)).output == "done"
        assert nodes.done == ["ask one"]


async def test_the_same_key_from_many_submitters_on_four_nodes_is_one_run(url: str) -> None:
    async with nodes_on(url, 4) as nodes:
        session = nodes.session_of(3)
        receipts = await asyncio.gather(
            *(nodes.agents[n % 4].submit(f"t{n}", session=session, idempotency_key="k") for n in range(50))
        )
        assert len({receipt.run_id for receipt in receipts}) == 1
        assert (await nodes.ended(0, receipts[0].run_id)).status == "ok"


async def test_work_and_questions_for_another_node_are_done_without_any_wake(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_notify", lambda *given: None)
    async with nodes_on(url) as nodes:
        session = nodes.session_of(0)
        runs = [await nodes.agents[1].submit(f"text {number}", session=session) for number in range(3)]
        assert [(await nodes.ended(1, run.run_id)).status for run in runs] == ["ok"] * 3
        assert (await nodes.agents[1].reset(session)).ordinal == 2


async def test_runs_are_steered_interrupted_and_aborted_at_another_node(url: str) -> None:
    async with nodes_on(url) as nodes:
        owner, other = nodes.agents
        ends: dict[str, str] = {}
        for mode in ("steer", "interrupt", "abort"):
            session = nodes.session_of(0, mode)
            first = await other.submit(f"slow {mode}", session=session)
            await until(partial(has_begun, owner, session))
            await until(partial(is_shown_running, other, session))
            if mode == "abort":
                await other.abort(first.run_id)
                ends[mode] = (await other.wait(first.run_id, 0)).error
                continue
            second = await other.submit("later", session=session, mode=mode)
            if mode == "steer":
                await until(partial(has_begun, owner, session, 2))
                nodes.may_end.set()
            ends[mode] = (await nodes.ended(1, first.run_id)).error
            ends[f"{mode} second"] = (await nodes.ended(1, second.run_id)).status
            nodes.may_end.clear()
        assert ends == {"steer": "", "steer second": "ok", "interrupt": "interrupted by a newer message",
                        "interrupt second": "ok", "abort": "aborted"}  # fmt: skip
        assert nodes.done == ["slow steer"]


async def test_an_open_cycle_is_counted_at_the_node_that_has_it_alone(url: str) -> None:
    async with nodes_on(url) as nodes:
        owner, other = nodes.agents
        session = nodes.session_of(0)
        run = await other.submit("slow one", session=session)
        await until(partial(has_begun, owner, session))
        await owner.memory.journal.safe()
        await other.memory.journal.load()  # as when it takes partitions over
        counts = [agent.memory.journal.open_cycles for agent in nodes.agents]
        nodes.may_end.set()
        await nodes.ended(1, run.run_id)
        await until(lambda: not owner.memory.journal.open_cycles)

        assert counts == [1, 0]
        assert other.memory.journal.open_cycles == 0


async def test_a_session_is_reset_changed_and_forgotten_at_another_node(url: str) -> None:
    async with nodes_on(url) as nodes:
        owner, other = nodes.agents
        session = nodes.session_of(0)
        await nodes.ended(1, (await other.submit("hello", session=session)).run_id)
        waiting = await other.submit("slow one", session=session)
        await until(lambda: bool(owner.runs.open_in(session)))
        record = await other.reset(session, by="ada")
        assert record.ordinal == 2
        assert (await other.wait(waiting.run_id, 0)).error == "reset"
        assert (await shown(owner, session)).ordinal == 2
        view = await other.conversations.records.set(session, title="Trip", defaults={"timeout": 60})
        assert (view.title, view.defaults.given, view.ordinal) == ("Trip", {"timeout": 60}, 2)
        assert (await shown(owner, session)).title == "Trip"
        run = await other.submit("hello again", session=session)
        assert (await nodes.ended(1, run.run_id)).options.timeout == 60
        with pytest.raises(LookupError, match="no session 'none"):
            await other.reset(nodes.session_of(0, "none"))
        assert await other.conversations.resets.forget(session, "ada") > 0
        for agent in nodes.agents:
            with pytest.raises(LookupError):
                await shown(agent, session)
            with pytest.raises(LookupError):
                await agent.wait(run.run_id, 0)


async def test_a_request_under_an_idempotency_key_is_carried_out_by_one_node(url: str) -> None:
    async with nodes_on(url) as nodes:
        first, second = clients = [Client(agent, agent.memory) for agent in nodes.agents]
        session = nodes.session_of(0)
        await nodes.ended(0, (await nodes.agents[0].submit("hello", session=session)).run_id)
        path = f"/v1/sessions/{session}:fork"
        assert (await second.post(path, {"name": "other"}, "another")).status_code == 201  # it has read the keys
        made = await first.post(path, {}, "k")
        again = await second.post(path, {}, "k")
        assert (made.status_code, again.status_code, again.json()) == (201, 201, made.json())
        at_once = await asyncio.gather(*(client.post(path, {}, "at once") for client in clients * 2))
        assert {answer.status_code for answer in at_once} == {201, 409}
        page = await listed(nodes.agents[0])
        assert sorted(view.key for view in page.sessions) == ["other", session, f"{session}-fork1", f"{session}-fork2"]


async def test_a_fork_is_made_once_and_asks_about_its_calls_at_any_node(url: str) -> None:
    async with nodes_on(url) as nodes:
        nodes.may_end.set()
        session, fork = nodes.session_of(0), nodes.session_of(1, "fork")
        run = await nodes.agents[0].submit("slow one", session=session)
        await nodes.ended(0, run.run_id)
        made = await asyncio.gather(
            *(agent.forks.fork(session, name=fork) for agent in nodes.agents), return_exceptions=True
        )
        assert sorted(type(one).__name__ for one in made) == ["ConflictError", "SessionRecord"]
        for text in ("slow two", "slow three"):  # the second one at a node that has taken the fork over
            await nodes.ended(0, (await nodes.agents[0].submit(text, session=fork)).run_id)
            await nodes.agents[1].memory.nodes.drain(nodes.agents[1].memory.nodes.ownership.token)
            await until(lambda: nodes.agents[0].core.owns(fork))
        assert nodes.done == ["slow one"]
        assert len(nodes.agents[0].approvals.list()) == 2


async def test_feedback_at_another_node_is_learnt_from_by_the_owner(url: str) -> None:
    async with nodes_on(url) as nodes:
        owner, other = nodes.agents
        taken: list[tuple[str, FeedbackTaken]] = []
        for name, agent in (("owner", owner), ("other", other)):
            agent.on(FeedbackTaken)(lambda event, name=name: taken.append((name, event)))
        run = await other.submit("hello", session=nodes.session_of(0))
        await nodes.ended(0, run.run_id)
        await other.feedback(run.run_id, False, "wrong")
        await until(lambda: bool(taken))
        ((name, event),) = taken
        assert (name, event.about, event.success, event.why) == ("owner", run.run_id, False, "wrong")


async def test_work_that_people_decide_about_is_decided_at_another_node(url: str) -> None:
    async with nodes_on(url) as nodes:
        owner, other = nodes.agents
        session = nodes.session_of(0)
        for id in ("revive", "bury"):
            item = Item(id, Perception(id, id=id, session=session), session=session, attempts=3)
            await owner.conversations.submission.keep(item)
            owner.core.ledger.tell(facts.PutAside(session=session, item=item, reason="broken"))
        for id in ("done", "again"):
            doubt = Doubt(id, Call("slow", {"text": id}), "c1", session, why="it was cut off")
            owner.recovery.restart.doubts.add(facts.CallDoubted(session=session, doubt=doubt))
        await owner.core.ledger.journal.safe()
        nodes.may_end.set()
        assert (owner.recovery.snapshot()["dead_letters"], owner.recovery.snapshot()["in_doubt"]) == (2, 2)
        assert (await other.recovery.restart.letters.revive("revive")).id == "revive"
        assert (await other.recovery.restart.letters.bury("bury")).id == "bury"
        assert (await other.recovery.restart.doubts.resolve("done", "done", by="ada")).answered_by == "ada"
        assert (await other.recovery.restart.doubts.resolve("again", "again", by="ada")).answer == "again"
        with pytest.raises(ConflictError):
            await other.recovery.restart.doubts.resolve("done", "failed")
        assert (owner.recovery.snapshot()["dead_letters"], owner.recovery.snapshot()["in_doubt"]) == (0, 0)
        await until(lambda: nodes.done == ["again"])
        assert (await other.recovery.restart.letters.list(), await other.recovery.restart.doubts.list()) == ([], [])


async def test_what_people_have_to_decide_about_is_counted_at_the_node_that_has_it_alone(url: str) -> None:
    async with nodes_on(url) as nodes:
        owner, other = nodes.agents
        session = nodes.session_of(0)
        doubt = Doubt("d1", Call("slow", {"text": "d1"}), "c1", session, why="it was cut off")
        owner.recovery.restart.doubts.add(facts.CallDoubted(session=session, doubt=doubt))
        letter = Item("l1", Perception("l1", id="l1", session=session), session=session, attempts=3)
        await owner.conversations.submission.keep(letter)
        owner.core.ledger.tell(facts.PutAside(session=session, item=letter, reason="broken"))
        await owner.core.ledger.journal.safe()

        def counted() -> list[int]:
            snapshots = [agent.recovery.snapshot() for agent in nodes.agents]
            return [sum(snapshot[kind] for snapshot in snapshots) for kind in ("in_doubt", "dead_letters")]

        async with nodes.agent(url) as third:
            nodes.agents.append(third)
            await until(lambda: third.memory.nodes.snapshot()["partitions"] > 0)
            await until(lambda: counted() == [1, 1])
            await other.recovery.restart.doubts.resolve("d1", "done", by="ada")
            await other.recovery.restart.letters.bury("l1")
            await until(lambda: counted() == [0, 0])


async def test_what_waits_for_an_approval_is_counted_at_the_node_that_has_it_until_it_is_answered_anywhere(
    url: str,
) -> None:
    async with nodes_on(url) as nodes:
        watchers = [Waiting(agent.core, agent.setup) for agent in nodes.agents]

        def counted() -> list[int]:
            return [watcher.snapshot(utcnow())["pending"] for watcher in watchers]

        sessions = [nodes.session_of(number) for number in range(2)]
        for session in sessions:
            await nodes.agents[0].submit(f"ask {session}", session=session)
        for agent in nodes.agents:
            await until(lambda agent=agent: len(agent.approvals.list()) == 2)
        assert counted() == [1, 1]
        await nodes.agents[0].memory.nodes.drain(nodes.agents[0].memory.nodes.ownership.token)
        await until(lambda: counted() == [0, 2])
        for row in nodes.agents[0].approvals.list():
            await nodes.agents[0].approvals.decide(row.id, "approve")
        await until(lambda: counted() == [0, 0])


async def read(agent: Agent, run_id: str, events: list[RunEvent]) -> list[RunEvent]:
    """Read the events of a run up to the last one, into a list that may have some."""
    stream = agent.events.run(run_id, after=events[-1].seq if events else 0)
    while more := await stream.some():
        events += more
    return events


async def test_who_follows_a_run_of_another_node_gets_its_events_as_they_come_and_one_gap_after_a_take_over(
    url: str,
) -> None:
    async with nodes_on(url) as nodes:
        owner, other = nodes.agents
        run = await other.submit("slow one", session=nodes.session_of(0))
        here: list[RunEvent] = []
        there: list[RunEvent] = []
        readers = [asyncio.create_task(read(agent, run.run_id, events))
                   for agent, events in ((other, here), (owner, there))]  # fmt: skip
        await until(lambda: bool(here) and here[-1].data.get("phase") == "start" and here[-1].stream == "tool")
        await until(lambda: there == here)
        assert [event.stream for event in here].count("gap") == 0
        token = owner.memory.nodes.ownership.token
        await other.memory.nodes.drain(token)
        await until(lambda: bool(owner.memory.nodes.ownership.leaving))
        nodes.may_end.set()
        await asyncio.wait_for(asyncio.gather(*readers), 60)
        assert (await nodes.ended(0, run.run_id)).output == "done"
        for events in (here, there):
            assert [event.stream for event in events].count("gap") == 1
            assert [event.is_terminal for event in events] == [False] * (len(events) - 1) + [True]
            numbers = [event.seq for event in events]
            assert numbers == sorted(set(numbers))
        gap = [event.stream for event in here].index("gap")
        assert (await read(owner, run.run_id, here[:1]))[1:] == here[gap:]


async def test_a_session_that_is_to_leave_while_others_are_handed_over_ends_its_cycle_first(url: str) -> None:
    async with nodes_on(url, 1) as nodes:
        [agent] = nodes.agents
        owner, journal = agent.memory.nodes, agent.core.ledger.journal
        busy, idle = nodes.session_of(0, "busy"), nodes.session_of(0, "idle")
        of_busy, of_idle = (partition_of("main", session) for session in (busy, idle))
        handed_over: list[set[int]] = []
        owner.thread.release = handed_over.append
        await agent.submit("slow one", session=busy)
        await until(lambda: has_begun(agent, busy))
        safe, may_be_safe, has_asked = journal.safe, asyncio.Event(), asyncio.Event()

        async def slowly() -> None:
            has_asked.set()
            await may_be_safe.wait()
            await safe()

        journal.safe = slowly
        owner.leaving(owner.ownership.token, frozenset([of_idle]))
        await has_asked.wait()
        owner.leaving(owner.ownership.token, frozenset([of_idle, of_busy]))
        may_be_safe.set()
        await until(lambda: bool(handed_over))
        assert handed_over == [{of_idle}]
        nodes.may_end.set()
        await until(lambda: len(handed_over) > 1)
        assert (handed_over[1:], nodes.done) == ([{of_busy}], ["slow one"])


async def test_what_is_lost_while_other_losses_are_dealt_with_has_ended_before_anything_is_taken_again(
    url: str,
) -> None:
    async with nodes_on(url, 1) as nodes:
        [agent] = nodes.agents
        owner = agent.memory.nodes
        busy, idle = nodes.session_of(0, "busy"), nodes.session_of(0, "idle")
        shares = [(id := partition_of("main", session), owner.ownership.epoch_of(id)) for session in (busy, idle)]
        await agent.submit("slow one", session=busy)
        await until(lambda: has_begun(agent, busy))
        session, parts = agent.sessions.by_key[busy], agent.core.shared._parts
        follow, may_follow, has_asked = parts.follow, asyncio.Event(), asyncio.Event()

        async def slowly(owns: Any) -> None:
            has_asked.set()
            await may_follow.wait()
            await follow(owns)

        parts.follow = slowly
        settled, had_ended = owner.settled, list[bool]()
        owner.settled = lambda: (had_ended.append(session.runner.task is None), settled())
        owner._fenced({shares[1]})
        await has_asked.wait()
        owner._fenced({shares[0]})
        may_follow.set()
        await until(lambda: bool(had_ended))
        assert had_ended == [True]


@asynccontextmanager
async def beside_a_memory(
    url: str,
) -> AsyncIterator[tuple[Nodes, PostgresMemory, str, Callable[[], Awaitable[None]]]]:
    """Run one agent beside a memory without an agent. Return both, a session that the memory has, and what lets that
    memory leave, so that the session comes to the agent."""
    nodes, other = Nodes(), PostgresMemory(url, nodes=True)
    nodes.may_end.set()
    nodes.agents.append(agent := nodes.agent(url))
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(other)
        async with agent:
            await until(
                lambda: all(0 < memory.nodes.snapshot()["partitions"] < 256 for memory in (other, agent.memory))
            )
            names = (f"s{number}" for number in range(1_000))
            yield nodes, other, next(name for name in names if other.nodes.owns("main", name)), stack.aclose


async def test_a_session_that_comes_while_work_is_read_goes_on_with_its_open_cycle(url: str) -> None:
    async with beside_a_memory(url) as (nodes, other, session, leave):
        [agent] = nodes.agents
        message = Perception("slow one", session=session, kind="message")
        call = Call("slow", {"text": "slow one"}, id="begun")
        await accept(other.journal, Item("left", message, "run", session))
        for fact in (
            facts.CycleOpened(session=session, cycle="cut", run="left", items=("left",), perceptions=(message,)),
            facts.Planned(session=session, cycle="cut", action=Action((call,), goal="slow one")),
            facts.AttemptStarted(session=session, cycle="cut", call="begun", attempt=1, effect="once", allowed="auto"),
        ):
            other.journal.append(fact, "main")
        await other.journal.safe()
        views, shared, has_read = agent.core.ledger.journal.views, agent.core.shared, asyncio.Event()
        items, take_over = views.items, shared._take_over

        async def later() -> None:
            await has_read.wait()
            await take_over()

        async def slowly(name: str, ids: Any) -> Any:
            found = await items(name, ids)
            views.items = items
            await leave()
            await until(lambda: agent.memory.nodes.owns("main", session))
            return found

        views.items, shared._take_over = slowly, later
        assert await agent.recovery.restart.reconcile()
        has_read.set()
        assert (await nodes.ended(0, "left")).status == "ok"
        assert nodes.done == [], "what may have been done is not done again"
        assert [doubt.id for doubt in await agent.recovery.restart.doubts.list()] == ["cut/begun"]


async def being_read(agent: Agent, session: str, leave: Callable[[], Awaitable[None]]) -> asyncio.Event:
    """Let the session come to the agent, and hold back the reading of its work until the event is set."""
    shared, has_asked, may_read = agent.core.shared, asyncio.Event(), asyncio.Event()
    reconcile = shared._reconcile

    async def slowly(*args: Any) -> None:
        has_asked.set()
        await may_read.wait()
        await reconcile(*args)

    shared._reconcile = slowly
    await leave()
    await has_asked.wait()
    assert agent.core.owns(session)
    return may_read


async def test_what_was_begun_goes_on_before_a_message_that_comes_while_a_session_is_taken_over(url: str) -> None:
    async with beside_a_memory(url) as (nodes, other, session, leave):
        [agent] = nodes.agents
        message = Perception("slow begun", session=session, kind="message")
        item = Item("begun", message, "run", session, past=("gone",))
        await accept(other.journal, item)
        may_read = await being_read(agent, session, leave)
        new = await agent.submit("slow new", session=session)
        await asyncio.sleep(0.1)
        may_read.set()
        for run_id in ("begun", new.run_id):
            assert (await nodes.ended(0, run_id)).status == "ok"
    assert nodes.done == ["slow begun", "slow new"]


async def test_a_reset_while_a_session_is_taken_over_ends_also_what_others_had_accepted(url: str) -> None:
    async with beside_a_memory(url) as (nodes, _, session, leave):
        [agent] = nodes.agents
        nodes.may_end.clear()
        run = await agent.submit("slow begun", session=session)
        may_read = await being_read(agent, session, leave)
        reset = asyncio.create_task(agent.reset(session))
        await asyncio.sleep(0.1)
        may_read.set()
        assert (await reset).ordinal == 2
        assert (await nodes.ended(0, run.run_id)).error == "reset"
    assert nodes.done == []
