"""Calls of an agent in one's own process that wait for a word: its program lists, decides or answers them itself."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from spar import Action, Agent, Call, ConfigError, Context, Perception, Verdict, tool
from spar.errors import NotReadyError
from spar.events import ApprovalRequested, ApprovalResolved
from spar.records.approvals import DecidedError
from spar.testing import ScriptedActor, ScriptedSense, VirtualClock
from tests.doubles import heard

ran: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@tool(effect="once", approval="ask")
async def restart(unit: str) -> str:
    ran.append(unit)
    return f"restarted {unit}"


@tool(effect="once")
async def wipe(what: str) -> str:
    ran.append(what)
    return "wiped"


def alerted(calls: Sequence[Call]) -> dict[str, Any]:
    """Parts of an agent that notices one alert and plans these calls on it."""

    async def plan(perceptions: list[Perception]) -> Action | None:
        return Action(tuple(calls)) if any(each.kind == "alert" for each in perceptions) else None

    return {"sense": ScriptedSense([Perception("down", kind="alert")]), "plan": plan, "loop_interval": 1.0}


def agent_of(clock: VirtualClock, *calls: Call, **given: Any) -> Agent:
    given = {"tools": [restart, wipe], **alerted(calls or (Call("restart", {"unit": "nginx"}),)), **given}
    return Agent(clock=clock, **given)


# -- answering


async def test_a_program_lists_what_waits_and_lets_it_run(clock: VirtualClock) -> None:
    agent = agent_of(clock)
    told = heard(agent, ApprovalRequested, ApprovalResolved)
    async with agent:
        await clock.sleep(0.5)
        (row,) = agent.approvals.list()
        assert [each.id for each in await agent.approvals.list()] == [row.id]
        assert (row.call.tool, row.call.params, row.status, ran) == ("restart", {"unit": "nginx"}, "pending", [])
        decided = await agent.approvals.decide(row.id, "approve", by="alice", reason="she looked")
        assert (decided.status, decided.decided_by, decided.reason) == ("approved", "alice", "she looked")
        await clock.sleep(2)
        assert ran == ["nginx"]
        assert agent.approvals.list() == []
        assert [each.status for each in agent.approvals.list(None)] == ["used"]
        with pytest.raises(DecidedError):
            await agent.approvals.decide(row.id, "deny")
    assert [type(each).__name__ for each in told] == ["ApprovalRequested", "ApprovalResolved"]
    assert told[1].decision == "approve"


@pytest.mark.parametrize(
    ("decision", "more", "done"),
    [
        ("deny", {"reason": "not today"}, []),
        ("edit", {"params": {"unit": "caddy"}}, ["caddy"]),
        ("replace", {"call": Call("wipe", {"what": "the cache"})}, ["the cache"]),
        ("replace", {"call": {"_tool": "wipe", "what": "the cache"}}, ["the cache"]),
    ],
)
async def test_a_program_denies_edits_and_replaces(clock: VirtualClock, decision: Any, more: Any, done: Any) -> None:
    agent = agent_of(clock)
    async with agent:
        await clock.sleep(0.5)
        (row,) = agent.approvals.list()
        decided = await agent.approvals.decide(row.id[:6], decision, **more)
        assert decided.decided_by == "program"
        await clock.sleep(2)
    assert ran == done


async def test_decisions_that_do_not_fit_are_refused_and_the_call_waits_on(clock: VirtualClock) -> None:
    agent = agent_of(clock)
    async with agent:
        await clock.sleep(0.5)
        (row,) = agent.approvals.list()
        wrong: list[tuple[Any, Any, type[Exception]]] = [
            ("edit", {}, ValueError),
            ("edit", {"params": {"unit": 5}}, ValueError),
            ("approve", {"params": {"unit": "x"}}, ValueError),
            ("maybe", {}, ValueError),
        ]
        for decision, more, error in wrong:
            with pytest.raises(error):
                await agent.approvals.decide(row.id, decision, **more)
        with pytest.raises(LookupError, match=r"known: a.*; spar approvals list --status all shows them"):
            await agent.approvals.decide("zz", "approve")
        assert [each.id for each in agent.approvals.list()] == [row.id]


async def test_an_answer_given_by_a_program_survives_the_process(clock: VirtualClock, tmp_path: Path) -> None:
    def memory() -> Memory:
        return Memory(f"sqlite:///{tmp_path / 'm.db'}")

    agent = agent_of(clock, memory=memory())
    with pytest.raises(NotReadyError):
        agent.approvals.list()
    async with agent:
        await clock.sleep(0.5)
    async with agent_of(clock, memory=memory(), sense=None) as agent:
        (row,) = agent.approvals.list()
        await agent.approvals.decide(row.id, "approve")
        await clock.sleep(2)
    assert ran == ["nginx"]


async def test_nothing_waits_for_a_person_neither_sensing_nor_another_message_of_the_session(
    clock: VirtualClock,
) -> None:
    looks: list[float] = []

    async def sense() -> list[Perception]:
        looks.append(clock.elapsed)
        return [Perception("down", kind="alert")] if len(looks) == 1 else []

    async def plan(perceptions: list[Perception], context: Context) -> Action | None:
        if context.run is not None:
            return Action(output="hello")
        return Action((Call("restart", {"unit": "nginx"}),)) if perceptions else None

    async with agent_of(clock, sense=sense, plan=plan) as agent:
        await clock.sleep(0.5)
        assert len(agent.approvals.list()) == 1
        at = clock.elapsed
        receipt = await agent.submit("anybody there?")
        answer = await agent.wait(receipt.run_id, 10)
        assert (answer.status, answer.output) == ("ok", "hello")
        assert clock.elapsed - at < 1.5
        await clock.sleep(10)
        assert max(later - one for one, later in itertools.pairwise(looks)) < 1.5
    assert ran == []


# -- a program that answers by itself


async def test_a_program_may_answer_every_question_by_itself(clock: VirtualClock) -> None:
    asked: list[Call] = []

    def confirm(call: Call) -> Any:
        asked.append(call)
        return Verdict.edit({"unit": "caddy"})

    async with agent_of(clock, confirm=confirm) as agent:
        await clock.sleep(0.5)
        assert agent.approvals.list() == []
    assert [call.params for call in asked] == [{"unit": "nginx"}]
    assert ran == ["caddy"]


def test_a_confirm_that_nobody_could_ask_is_an_error_at_construction() -> None:
    word: Any = "yes"
    with pytest.raises(ConfigError, match="confirm= must be a function"):
        Agent(confirm=word)
    with pytest.raises(ConfigError, match="confirm= is for the built-in executor"):
        Agent(act=ScriptedActor(), confirm=lambda call: True)


# -- what settings= means to the built-in executor


@pytest.mark.parametrize(
    "approval", [{"untrusted": "deny"}, {"rules": [{"tool": "wipe", "decision": "deny"}], "untrusted": "auto"}]
)
async def test_the_short_form_takes_the_settings_of_approvals(clock: VirtualClock, approval: Any) -> None:
    async with agent_of(clock, Call("wipe", {"what": "srv"}), settings={"approval": approval}):
        await clock.sleep(2)
    assert ran == []


async def test_the_short_form_takes_the_settings_of_acting(clock: VirtualClock) -> None:
    now, most = 0, 0

    @tool
    async def work(n: int) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.1)
        now -= 1

    calls = [Call("work", {"n": n}) for n in range(6)]
    async with agent_of(clock, *calls, tools=[work], settings={"acting": {"max_parallel": 1}}):
        await clock.sleep(2)
    assert most == 1


@pytest.mark.parametrize(
    ("settings", "more", "said"),
    [
        ({"approval": {"untrusted": "deny"}}, {"act": ScriptedActor()}, r"cannot apply \[approval\] to your own act="),
        ({"acting": {"max_parallel": 1}}, {"act": ScriptedActor()}, r"cannot apply \[acting\] to your own act="),
        ({"tools": [{"use": "note"}]}, {}, r"cannot apply \[tools\]: give tools="),
        ({"rules": []}, {}, r"cannot apply \[rules\]: give plan="),
        ({"sensors": []}, {}, r"cannot apply \[sensors\]: give sense="),
    ],
)
def test_settings_that_cannot_be_applied_are_an_error_at_construction(settings: Any, more: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Agent(settings=settings, **more)
