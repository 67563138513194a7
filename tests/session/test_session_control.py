"""What people do with sessions: list, show, set, forget."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from memory.care.integrity import verify
from spar import Action, Agent, Context, Perception
from spar.errors import NotReadyError
from spar.records.session import Origin
from spar.testing import VirtualClock
from tests.session.shown import listed, shown


def agent_of(clock: VirtualClock, folder: Path | None, seconds: float = 0.0) -> Agent:
    async def plan(perceptions: Sequence[Perception], context: Context) -> Action | None:
        if context.run is None:
            return None
        await clock.sleep(seconds)
        return Action(output="done")

    memory = None if folder is None else Memory(f"sqlite:///{folder / 'memory.db'}", ballast=0)
    return Agent(plan=plan, clock=clock, memory=memory, loop_interval=0.1)


@pytest.fixture(params=["journal", "memory only"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path if request.param == "journal" else None


async def say(agent: Agent, text: str, session: str) -> Any:
    return await agent.wait((await agent.submit(text, session=session)).run_id, 600)


async def test_sessions_are_listed_in_pages_and_shown(clock: VirtualClock, folder: Path | None) -> None:
    async with agent_of(clock, folder, 60) as agent:
        for number in range(5):
            await say(agent, "hello", f"s{number}")
        run = await agent.submit("again", session="s0", origin=Origin("http"))
        await clock.sleep(1)
        waiting = await agent.submit("and again", session="s0")
        first = await listed(agent, 2)
        second = await listed(agent, 2, first.next)
        third = await listed(agent, 2, second.next)

        assert [each.key for page in (first, second, third) for each in page.sessions] == ["s0", "s4", "s3", "s2", "s1"]
        assert third.next == ""
        view = await shown(agent, "s0")
        assert (view.id, view.state, view.runs) == ("s0#1", "running", (run.run_id, waiting.run_id))
        assert (view.origin, (await shown(agent, "s4")).state) == (Origin("python"), "resting")
        with pytest.raises(LookupError, match="no session 'nobody'"):
            await shown(agent, "nobody")


@pytest.mark.parametrize("after", ["x", "!!", "W10", "WyIyMDI2LTAxLTAxIiwgImEiXQ", "ä" * 10])
async def test_places_that_no_page_named_are_refused(clock: VirtualClock, after: str) -> None:
    async with agent_of(clock, None) as agent:
        with pytest.raises(ValueError, match="must be the 'next' of the page before"):
            await listed(agent, 5, after)


async def test_a_title_and_defaults_are_set_and_taken_back(clock: VirtualClock, folder: Path | None) -> None:
    async with agent_of(clock, folder) as agent:
        records = agent.conversations.records
        made = await records.set("new one", title="  Holidays \n in Rome ", defaults={"timeout": 60, "verbose": True})
        assert (made.title, made.defaults.given) == ("Holidays in Rome", {"timeout": 60.0, "verbose": True})
        await say(agent, "hello", "new one")
        changed = await records.set("new one", defaults={"timeout": None})
        assert (changed.title, changed.defaults.given) == ("Holidays in Rome", {"verbose": True})
        receipt = await agent.submit("hello", session="new one")
        assert (await agent.wait(receipt.run_id)).options.given == {"verbose": True}
        for bad in ({"timeout": -1}, {"colour": "red"}, {"model": "large"}):
            with pytest.raises(ValueError, match="option"):
                await records.set("new one", defaults=bad)
        with pytest.raises(ValueError, match="at most 200"):
            await records.set("new one", title="x" * 201)


async def test_no_conversation_is_taken_for_one_before_it(clock: VirtualClock, folder: Path | None) -> None:
    """What modules keep by its id, as the skills that it began with, ends with it."""
    async with agent_of(clock, folder) as agent:
        seen = []
        for step in (None, agent.reset, agent.conversations.resets.forget):
            if step is not None:
                await step("alice")
            await say(agent, "hello", "alice")
            seen.append(await agent.conversations.records.conversation("alice"))
            await clock.sleep(1)
            assert await agent.conversations.records.conversation("alice") == seen[-1]
    assert len(set(seen)) == 3
    if folder is not None:
        async with agent_of(clock, folder) as again:
            assert await again.conversations.records.conversation("alice") == seen[-1]


async def test_forgetting_ends_what_goes_on_and_leaves_nothing(clock: VirtualClock, folder: Path | None) -> None:
    async with agent_of(clock, folder, 60) as agent:
        done = await say(agent, "one", "alice")
        await say(agent, "one", "bob")
        run = await agent.submit("two", session="alice")
        await clock.sleep(5)
        gone = await agent.conversations.resets.forget("alice", "tom")

        assert (gone > 0) == (folder is not None)
        with pytest.raises(LookupError):
            await shown(agent, "alice")
        for run_id in (done.run_id, run.run_id):
            with pytest.raises(LookupError):
                await agent.wait(run_id, 0)
        assert await agent.conversations.transcripts.read("alice") == []
        assert [each.key for each in (await listed(agent)).sessions] == ["bob"]
        with pytest.raises(LookupError):
            await agent.conversations.resets.forget("alice")
        await say(agent, "three", "alice")
        assert (await shown(agent, "alice")).id == "alice#1"
    if folder is not None:
        assert verify(str(folder / "memory.db")).is_whole


async def test_a_message_that_comes_while_its_session_is_forgotten_is_refused_or_kept_whole(
    clock: VirtualClock, tmp_path: Path
) -> None:
    async with agent_of(clock, tmp_path) as agent:
        for number in range(3):
            await say(agent, f"old {number}", "alice")
        coming = [asyncio.ensure_future(agent.submit("on its way", session="alice"))]
        forgetting = asyncio.ensure_future(agent.conversations.resets.forget("alice"))
        while not forgetting.done():
            coming.append(asyncio.ensure_future(agent.submit(f"meanwhile {len(coming)}", session="alice")))
            await asyncio.sleep(0)
        found = await asyncio.gather(*coming, return_exceptions=True)
        refused = [each for each in found if isinstance(each, NotReadyError)]
        assert refused
        assert all("being forgotten" in str(each) and each.retry_after == 1 for each in refused)

        after = await say(agent, "after", "alice")
        assert after.status == "ok"
        entries = await agent.conversations.transcripts.read("alice")
        said = [entry.body["text"] for entry in entries if entry.kind == "user"]
        accepted = [each.run_id for each in found if not isinstance(each, BaseException)]
        statuses = [await agent.wait(run_id, 600) for run_id in accepted if agent.runs.find(run_id) is not None]
        assert len(said) == 1 + len(statuses), "a message is in the transcript whole, or was forgotten whole"
        assert (await shown(agent, "alice")).id == "alice#1"
    assert verify(str(tmp_path / "memory.db")).is_whole
