"""What people say of a run that has ended: it is on disk when it is accepted, and changes what is known."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from reflection import Reflect
from spar import Action, Agent, Call, FeedbackTaken, Perception, tool
from spar.errors import ConflictError, NotReadyError
from spar.types import Reflection


@tool
async def clean() -> str:
    """Clean."""
    return "done"


async def plan(perceptions: list[Perception]) -> Action | None:
    return Action(calls=[Call("clean")], output="cleaned") if perceptions else None


def agent_of(memory: Any, reflect: Any = None, settings: Any = None) -> Agent:
    return Agent(plan=plan, reflect=reflect or Reflect(), tools=[clean], memory=memory, loop_interval="off",
                 settings=settings)  # fmt: skip


async def cleaned(agent: Agent, text: str | Perception = "clean the disk") -> str:
    receipt = await agent.submit(text)
    assert (await agent.wait(receipt.run_id, 20)).status == "ok"
    return receipt.run_id


async def test_a_word_of_a_person_is_on_disk_when_it_is_accepted_and_changes_what_is_known(tmp_path: Path) -> None:
    heard = []
    memory = Memory(f"sqlite:///{tmp_path}/m.db", ballast=0)
    async with agent_of(memory) as agent:
        agent.on(FeedbackTaken)(heard.append)
        run_id = await cleaned(agent)
        before = agent.abilities["clean|message"]

        await agent.feedback(run_id, False, "the wrong disk")

        shutil.copytree(tmp_path, tmp_path.parent / "killed", dirs_exist_ok=True)
        after = agent.abilities["clean|message"]
        assert (after.trials, after.estimate < before.estimate) == (2, True)
        assert [(each.about, each.success, each.by, each.why) for each in heard] == [
            (run_id, False, "person", "the wrong disk")
        ]
        assert agent.learning.learnt.feedback == {("person", "bad"): 1}

    async with agent_of(Memory(f"sqlite:///{tmp_path.parent}/killed/m.db", ballast=0)) as agent:
        assert agent.abilities["clean|message"] == after
        [experience] = await agent.memory.recall("clean")
        assert (experience.success, "the wrong disk" in experience.cause) == (False, True)
        await agent.feedback(run_id, False, "said again")
        assert agent.abilities["clean|message"].trials == 2
        await agent.feedback(run_id, True)
        assert agent.abilities["clean|message"].trials == 3
        assert (await agent.memory.recall("clean"))[0].success is True


class Held:
    """A hook behind the reflection of cycles: it holds back those of the sessions named, until it lets them go."""

    def __init__(self, agent: Agent, *sessions: str) -> None:
        self.sessions = set(sessions)
        self.reached, self.released = asyncio.Event(), asyncio.Event()
        agent.hook("after_reflect")(self)

    async def __call__(self, asked: Any) -> None:
        if asked.session in self.sessions:
            self.reached.set()
            await self.released.wait()


async def test_a_word_while_a_cycle_reflects_and_that_cycle_both_count(tmp_path: Path) -> None:
    async with agent_of(Memory(f"sqlite:///{tmp_path}/m.db", ballast=0)) as agent:
        before = await cleaned(agent)
        held = Held(agent, "main")
        receipt = await agent.submit("clean the disk again")
        await held.reached.wait()

        await agent.feedback(before, False, "the wrong disk")
        held.released.set()
        await agent.wait(receipt.run_id, 20)

        assert agent.abilities["clean|message"].trials == 3
        assert agent.learning.learnt.trials == 3
        assert agent.abilities["clean|message"].estimate == pytest.approx(3 / 5, abs=0.02)

    async with agent_of(Memory(f"sqlite:///{tmp_path}/m.db", ballast=0)) as agent:
        assert agent.abilities["clean|message"].trials == 3


async def test_two_sessions_that_reflect_side_by_side_both_count() -> None:
    async with agent_of(None) as agent:
        await cleaned(agent)
        held = Held(agent, "slow")
        slow = await agent.submit("clean the disk", session="slow")
        await held.reached.wait()

        await cleaned(agent)
        held.released.set()
        await agent.wait(slow.run_id, 20)

        assert agent.abilities["clean|message"].trials == agent.learning.learnt.trials == 3


async def test_a_word_on_the_cycle_that_reflects_is_kept_with_it(tmp_path: Path) -> None:
    async with agent_of(Memory(f"sqlite:///{tmp_path}/m.db", ballast=0)) as agent:
        held = Held(agent, "main")
        receipt = await agent.submit("clean the disk")
        await held.reached.wait()

        said = asyncio.create_task(agent.feedback(receipt.run_id, False, "the wrong disk"))
        await asyncio.sleep(0)
        held.released.set()
        await said
        await agent.wait(receipt.run_id, 20)

    async with agent_of(Memory(f"sqlite:///{tmp_path}/m.db", ballast=0)) as agent:
        assert (await agent.memory.recall("clean"))[0].success is False
        assert agent.abilities["clean|message"].trials == 2
        await agent.feedback(receipt.run_id, False, "said again")
        assert agent.abilities["clean|message"].trials == 2


async def test_a_hook_behind_the_reflection_may_judge_its_own_run() -> None:
    async with agent_of(None, settings={"agent": {"loop_interval": "off"}}) as agent:

        @agent.hook("after_reflect")
        async def judge(asked: Any) -> None:
            await agent.feedback(asked.run_id, False)

        await cleaned(agent)

        assert agent.learning.learnt.feedback == {("person", "bad"): 1}
        assert agent.abilities["clean|message"].trials == 2


async def test_a_cycle_that_belonged_to_no_run_can_be_judged_too(tmp_path: Path) -> None:
    async with agent_of(Memory(f"sqlite:///{tmp_path}/m.db", ballast=0)) as agent:
        await cleaned(agent)
        [told] = await agent.memory.cycles(1)

        await agent.feedback(told["cycle_id"], False)

        assert (await agent.memory.recall("clean"))[0].success is False


async def test_what_is_not_known_cannot_be_judged(tmp_path: Path) -> None:
    agent = agent_of(Memory(f"sqlite:///{tmp_path}/m.db", ballast=0))
    with pytest.raises(NotReadyError):
        await agent.feedback("r1", True)
    async with agent:
        with pytest.raises(LookupError):
            await agent.feedback("r1", True)


async def test_where_nothing_is_learnt_feedback_is_refused_and_says_why(tmp_path: Path) -> None:
    async with agent_of(
        Memory(f"sqlite:///{tmp_path}/m.db", ballast=0), settings={"memory": {"learning": "off"}}
    ) as agent:
        run_id = await cleaned(agent)

        with pytest.raises(ConflictError, match="learning"):
            await agent.feedback(run_id, True)

        assert (dict(agent.abilities), (await agent.memory.recall("clean"))[0].success) == ({}, True)


async def test_without_a_memory_and_with_a_reflector_of_ones_own_it_is_taken_all_the_same() -> None:
    async def own(result: Any) -> Reflection:
        return Reflection()

    async with agent_of(None) as agent, agent_of(None, own) as other:
        await agent.feedback(await cleaned(agent), False)
        await other.feedback(await cleaned(other), False)

        assert agent.abilities["clean|message"].trials == 2
        assert other.learning.learnt.feedback == {("person", "bad"): 1}


@pytest.mark.parametrize(("trust", "is_heard"), [("trusted", True), ("untrusted", False)])
async def test_a_reply_judges_the_last_run_where_its_sender_is_trusted_and_a_strangers_changes_nothing(
    tmp_path: Path, trust: Any, is_heard: bool
) -> None:
    memory = Memory(f"sqlite:///{tmp_path}/m.db", ballast=0)
    async with agent_of(memory, settings={"sessions": {"commands": True}}) as agent:
        await cleaned(agent)
        said = Perception("/feedback bad the wrong disk", source="mail", kind="message", trust=trust)
        receipt = await agent.submit(said)
        answer = await agent.wait(receipt.run_id, 20)

        assert (answer.output == "It is kept: bad.") is is_heard
        assert agent.learning.learnt.feedback == ({("person", "bad"): 1} if is_heard else {})
        first = min(await agent.memory.recall("clean the disk"), key=lambda each: each.at)
        assert first.success is not is_heard


async def test_a_reply_that_says_no_verdict_is_told_how() -> None:
    async with agent_of(None, settings={"sessions": {"commands": True}}) as agent:
        answers = []
        for text in ("/feedback good", "/feedback", "/feedback maybe"):
            receipt = await agent.submit(Perception(text, source="x", kind="message", trust="trusted"))
            answers.append((await agent.wait(receipt.run_id, 20)).output)

    assert answers == [
        "Nothing was answered here yet, as far as this process knows.",
        *["Say /feedback good or /feedback bad, and why."] * 2,
    ]
