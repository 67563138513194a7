"""Forks of sessions: a copy goes on from a cycle, repeats nothing, and asks before its calls change anything."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.care.integrity import verify
from spar import Action, Agent, Call, Context, Perception, tool
from spar.config.tables.agent import ForkSettings
from spar.config.tables.settings import Settings
from spar.errors import ConflictError, TransientError
from spar.records.transcript import Entry
from spar.review.pending_approvals import approver_of
from spar.testing import VirtualClock
from tests.session.shown import shown


class World:
    """What the tools did, and an agent that pays and looks as it is told: "pay 3", "look 3"."""

    def __init__(self, clock: VirtualClock, folder: Path) -> None:
        self.paid: list[int] = []
        self.looked: list[int] = []
        self._clock, self._folder = clock, folder

    def agent(self, **fork: Any) -> Agent:
        @tool(effect="once", brings_untrusted=False)
        async def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        @tool(effect="read", brings_untrusted=False)
        async def look(amount: int) -> str:
            """Look."""
            self.looked.append(amount)
            return f"looked {amount}"

        async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
            run = context.run
            if run is None or run.message is None:
                return None
            verb, _, amount = run.message.text.partition(" ")
            if run.results or verb not in ("pay", "look"):
                return Action(output=f"done {run.message.text}")
            return Action(calls=[Call(verb, {"amount": int(amount)})])

        memory = Memory(f"sqlite:///{self._folder / 'memory.db'}", ballast=0)
        return Agent(plan=plan, tools=[pay, look], clock=self._clock, memory=memory, loop_interval="off",
                     settings=Settings(fork=ForkSettings(**fork)))  # fmt: skip


@pytest.fixture
def world(clock: VirtualClock, tmp_path: Path) -> World:
    return World(clock, tmp_path)


async def say(agent: Agent, text: str, session: str = "alice") -> Any:
    return await agent.wait((await agent.submit(text, session=session)).run_id, 600)


async def talk(agent: Agent, session: str) -> list[str]:
    return [
        entry.line for entry in await agent.conversations.transcripts.read(session) if entry.kind in ("user", "end")
    ]


async def cycles(agent: Agent, session: str = "alice") -> list[str]:
    """Return the ids of the cycles of a session, the oldest first."""
    return [row["cycle_id"] for row in await agent.memory.cycles(100, session=session)][::-1]


async def test_a_copy_goes_on_from_a_cycle_and_what_was_done_is_not_done_again(
    world: World, clock: VirtualClock
) -> None:
    async with world.agent() as agent:
        for number in range(3):
            await say(agent, f"pay {number}")
            await clock.sleep(60)
        await agent.conversations.records.set("alice", title="Bills", defaults={"timeout": 90})
        second = (await cycles(agent))[3]

        record = await agent.forks.fork("alice", second, "other way", "anna")
        view = await shown(agent, "other way")

        assert (record.key, view.title, view.defaults, view.ordinal) == ("other way", "Bills", {"timeout": 90.0}, 1)
        assert (view.origin.door, view.origin.channel, view.origin.sender) == ("fork", "alice", "anna")
        assert await talk(agent, "other way") == ["pay 0", "done pay 0", "pay 1", "done pay 1"]
        turns = [entry.body["calls"][0]["output"] for entry in await agent.conversations.transcripts.read("other way")
                 if entry.kind == "turn" and entry.body["calls"]]  # fmt: skip
        assert turns == ["paid 0", "paid 1"]
        assert world.paid == [0, 1, 2]

        assert (await say(agent, "look 7", "other way")).reply == "done look 7"
        assert await talk(agent, "alice") == [f"{what}pay {number}" for number in range(3) for what in ("", "done ")]
        runs = {
            entry.run_id for key in ("alice", "other way") for entry in await agent.conversations.transcripts.read(key)
        }
        assert len(runs) == 3 + 2 + 1
    assert verify(agent.memory.care.path).is_whole


async def test_a_call_with_effects_of_a_copy_asks_also_after_a_restart_and_a_reading_one_does_not(
    world: World, clock: VirtualClock
) -> None:
    async with world.agent() as agent:
        await say(agent, "pay 1")
        await agent.forks.fork("alice", name="copy")
        await agent.conversations.resets.forget("alice")

    async with world.agent() as agent:
        assert (await say(agent, "look 2", "copy")).reply == "done look 2"
        run = await agent.submit("pay 3", session="copy")
        await clock.sleep(5)
        (row,) = agent.approvals.list()
        assert row.why == "session 'copy' is a fork of 'alice': its calls with effects are asked about (fork.effects)"
        assert world.paid == [1]
        await agent.approvals.decide(row.id, "approve", by="anna")
        await agent.wait(run.run_id, 600)
        await clock.sleep(5)
        assert world.paid == [1, 3]
        await say(agent, "pay 4", "bob")
        assert world.paid == [1, 3, 4]


async def test_a_grant_from_before_the_copy_lets_no_call_of_it_run_unasked(world: World, clock: VirtualClock) -> None:
    async with world.agent() as agent:
        await say(agent, "pay 1")
        await agent.forks.fork("alice", name="one")
        asked = await agent.submit("pay 3", session="one")
        await clock.sleep(5)
        (row,) = agent.approvals.list()
        approver = approver_of(agent.setup)
        await approver.decide(row.id, row.digest, "approve", by="anna", grant_for=3600.0, grant_session=False)
        await agent.wait(asked.run_id, 600)
        assert (await say(agent, "pay 3", "one")).status == "ok"
        assert world.paid == [1, 3, 3]

        await agent.forks.fork("one", name="two")
        await agent.submit("pay 3", session="two")
        await clock.sleep(5)
        assert [row.session for row in agent.approvals.list()] == ["two"]
        assert world.paid == [1, 3, 3]


async def test_effects_may_be_allowed_and_an_agent_without_a_copy_has_no_hook(world: World) -> None:
    async with world.agent(effects="allow") as agent:
        await say(agent, "pay 1")
        assert "before_call" not in agent.hooks.used
        await agent.forks.fork("alice", name="copy")
        await say(agent, "pay 2", "copy")
        assert world.paid == [1, 2]
        await agent.conversations.resets.forget("copy")

    async with world.agent() as agent:
        assert "before_call" not in agent.hooks.used


async def test_what_cannot_be_copied_is_refused_in_a_sentence(world: World, clock: VirtualClock) -> None:
    async with world.agent() as agent:
        await say(agent, "pay 1")
        await say(agent, "hello", "bob")
        (theirs,) = await cycles(agent, "bob")
        forks = agent.forks
        with pytest.raises(LookupError, match="no session 'nobody'; a session begins with its first message"):
            await forks.fork("nobody")
        with pytest.raises(LookupError, match="no cycle 'zzz' is recorded: there was none, or it is not kept any more"):
            await forks.fork("alice", "zzz")
        with pytest.raises(ConflictError, match=f"cycle {theirs} is of session 'bob', not of 'alice'"):
            await forks.fork("alice", theirs)
        with pytest.raises(ConflictError, match="a session 'bob' exists already: choose another name"):
            await forks.fork("alice", name="bob")
        assert [(await forks.fork("alice")).key for _ in range(2)] == ["alice-fork1", "alice-fork2"]
        await agent.memory.transcripts.forget("main", "alice")
        first, *_ = await cycles(agent)
        with pytest.raises(ConflictError, match=f"what was said in cycle {first} is not kept any more"):
            await forks.fork("alice", first)
    async with Agent(loop_interval="off", clock=clock) as agent:
        await say(agent, "hello")
        with pytest.raises(ConflictError, match="the memory keeps no sessions: none of them can be forked"):
            await agent.forks.fork("alice")


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_copy_that_was_cut_off_leaves_its_name_free_and_nothing_of_its_conversation(
    world: World, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    async with world.agent() as agent:
        await say(agent, "pay 1")
        await say(agent, "pay 2")
        kind, runs = type(agent.agent_state.transcripts), list[str]()
        append = kind.append

        async def cut_off(self: Any, agent: str, session: str, run_id: str, entries: Sequence[Entry]) -> None:
            runs.append(run_id)
            if len(runs) == 2:
                raise TransientError("cut off")
            await append(self, agent, session, run_id, entries)

        with monkeypatch.context() as patched:
            patched.setattr(kind, "append", cut_off)
            for name in ("", "copy"):
                with pytest.raises(TransientError, match="cut off"):
                    await agent.forks.fork("alice", name=name)
                runs.clear()
        if not restarts:
            await agent.forks.fork("alice", name="copy")
            assert (await agent.forks.fork("alice")).key == "alice-fork1"
            assert await talk(agent, "copy") == await talk(agent, "alice-fork1") == await talk(agent, "alice")
    async with world.agent() as agent:
        expected = [] if restarts else ["alice-fork1", "copy"]
        assert sorted(row.session for row in await agent.memory.transcripts.sessions("main")) == ["alice", *expected]
        assert ("before_call" in agent.hooks.used) is not restarts


async def test_of_copies_of_one_name_at_once_one_is_made(world: World) -> None:
    async with world.agent() as agent:
        await say(agent, "pay 1")
        made = await asyncio.gather(*(agent.forks.fork("alice", name="copy") for _ in range(3)), return_exceptions=True)
        assert sorted(type(one).__name__ for one in made) == ["ConflictError", "ConflictError", "SessionRecord"]
        assert await talk(agent, "copy") == await talk(agent, "alice")
        copies = await asyncio.gather(*(agent.forks.fork("alice") for _ in range(2)))
        assert [copy.key for copy in copies] == ["alice-fork1", "alice-fork2"]


async def test_a_copy_has_the_present_conversation_with_its_summary_before_what_that_kept(world: World) -> None:
    async with world.agent() as agent:
        for text in ("old", "new", "newer", "newest"):
            await say(agent, text)
            if text == "old":
                await agent.reset("alice")
        entries = list(await agent.conversations.transcripts.read("alice"))
        last = entries[-1]
        kept = next(entry.seq for entry in entries if entry.body.get("text") == "newest")
        summary = Entry("compaction", {"summary": "we spoke", "first_kept": kept}, last.run_id, at=last.at)
        await agent.conversations.transcripts.compact("alice", last.run_id, summary)

        await agent.forks.fork("alice", name="copy")
        first, *rest = await agent.conversations.transcripts.read("copy")

        assert (first.kind, first.body["summary"]) == ("compaction", "we spoke")
        assert [entry.line for entry in rest if entry.kind in ("user", "end")] == ["newest", "done newest"]
        whole = await agent.memory.transcripts.tail("main", "copy", 100)
        assert [entry.line for entry in whole if entry.kind == "user"] == ["new", "newer", "newest"]
