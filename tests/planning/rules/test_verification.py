"""Rules look later whether what they did has lasted, and the agent learns from that."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from planning import RulesPlanner
from planning.rules.conditions import MatchInput
from planning.rules.parse import read_rules
from planning.rules.verification import MOST_PENDING, Verifications
from reflection import Reflect
from spar import Agent, Context, FeedbackTaken, Perception, tool
from spar.errors import ConfigError
from spar.hooks import Hooks
from spar.protocols import Host as AgentHost
from spar.testing import RecordingEvents, VirtualClock
from spar.types import Experience, Trust
from tests.doubles import KeptRows


@tool
async def clean() -> str:
    """Clean."""
    return "done"


def rule(**verify: Any) -> dict[str, Any]:
    return {"name": "mend", "when": {"kind": "alert.disk"}, "calls": [{"tool": "clean"}], "verify": verify}


class Host:
    """An agent that mends disks by a rule, and what it hears of that."""

    def __init__(self, clock: VirtualClock, folder: Path, learning: str = "on", **verify: Any) -> None:
        self.clock, self.heard = clock, list[FeedbackTaken]()
        self.memory = Memory(f"sqlite:///{folder}/m.db", ballast=0)
        self.agent = Agent(
            plan=RulesPlanner([rule(**verify)]), reflect=Reflect(), tools=[clean], memory=self.memory, clock=clock,
            loop_interval="off", settings={"memory": {"learning": learning}},
        )  # fmt: skip
        self.agent.on(FeedbackTaken)(self.heard.append)

    async def sees(
        self, kind: str = "alert.disk", subject: str = "db1", at: float = 0.0, trust: Trust = "trusted"
    ) -> None:
        when = self.clock.now() + timedelta(seconds=at)
        await self.agent.accept(Perception("x", kind=kind, subject=subject, source="s", trust=trust, at=when))
        await asyncio.sleep(1.0)

    @property
    def said(self) -> list[tuple[bool, str]]:
        return [(each.success, each.by) for each in self.heard]

    async def experiences(self) -> list[Experience]:
        return sorted(await self.memory.recall("", 10), key=lambda each: each.at)

    @property
    def trials(self) -> int:
        known = self.agent.abilities.get("clean|alert.disk")
        return 0 if known is None else known.trials


async def test_what_comes_again_was_not_mended(clock: VirtualClock, tmp_path: Path) -> None:
    host = Host(clock, tmp_path, within=600)
    async with host.agent:
        await host.sees()
        assert (host.trials, (await host.experiences())[0].success) == (0, None)

        await asyncio.sleep(60)
        await host.sees()

        assert host.said == [(False, "verify")]
        assert host.trials == 1
        assert host.agent.abilities["clean|alert.disk"].estimate < 0.5
        first, *_ = await host.experiences()
        assert (first.success, "it came again" in first.cause) == (False, True)


async def test_what_does_not_come_again_was_mended_and_no_cycle_is_needed_to_see_that(
    clock: VirtualClock, tmp_path: Path
) -> None:
    host = Host(clock, tmp_path, within=600)
    async with host.agent:
        await host.sees()
        cycles = host.agent.stats.total_cycles
        await asyncio.sleep(590)
        assert host.said == []

        await asyncio.sleep(20)

        assert host.said == [(True, "verify")]
        assert (host.trials, (await host.experiences())[0].success) == (1, True)
        assert host.agent.stats.total_cycles == cycles


@pytest.mark.parametrize(("comes", "success"), [(True, True), (False, False)])
async def test_what_was_hoped_for_is_good_when_it_comes_and_bad_when_it_does_not(
    clock: VirtualClock, tmp_path: Path, comes: bool, success: bool
) -> None:
    host = Host(clock, tmp_path, within=60, when={"kind": "service.up"}, is_good=True)
    async with host.agent:
        await host.sees()
        await host.sees("service.up", "other")
        assert host.said == []
        if comes:
            await host.sees("service.up")
        await asyncio.sleep(100)

        assert host.said == [(success, "verify")]


async def test_a_stranger_has_no_say_in_what_a_trusted_perception_led_to(clock: VirtualClock, tmp_path: Path) -> None:
    host = Host(clock, tmp_path, within=600, when={"kind": "disk.well"}, is_good=True)
    async with host.agent:
        await host.sees()
        await host.sees("disk.well", trust="untrusted")
        assert host.said == []
        await host.sees("disk.well")
        assert host.said == [(True, "verify")]

        await host.sees(subject="db2", trust="untrusted")
        await host.sees("disk.well", subject="db2", trust="untrusted")
        assert host.said == [(True, "verify")] * 2


async def test_what_is_older_than_the_firing_says_nothing_of_it(clock: VirtualClock, tmp_path: Path) -> None:
    host = Host(clock, tmp_path, within=600)
    async with host.agent:
        await host.sees()
        await host.sees(at=-100)

        assert host.said == []


async def test_the_next_process_goes_on_looking(clock: VirtualClock, tmp_path: Path) -> None:
    first = Host(clock, tmp_path, within=600)
    async with first.agent:
        await first.sees()
    second = Host(clock, tmp_path, within=600)
    async with second.agent:
        await asyncio.sleep(610)
        assert (first.said, second.said) == ([], [(True, "verify")])
        assert second.trials == 1
    third = Host(clock, tmp_path, within=600)
    async with third.agent:
        await asyncio.sleep(610)
        assert (third.said, third.trials) == ([], 1)


async def test_of_what_nobody_looked_at_nothing_is_said(clock: VirtualClock, tmp_path: Path) -> None:
    first = Host(clock, tmp_path, within=600)
    async with first.agent:
        await first.sees()
    await asyncio.sleep(700)
    second = Host(clock, tmp_path, within=600)
    async with second.agent:
        await asyncio.sleep(700)
        assert (second.said, second.trials, (await second.experiences())[0].success) == ([], 0, None)


async def test_off_nothing_is_looked_at(clock: VirtualClock, tmp_path: Path) -> None:
    host = Host(clock, tmp_path, "off", within=60)
    async with host.agent:
        await host.sees()
        await asyncio.sleep(100)

        assert (host.said, host.trials, (await host.experiences())[0].success) == ([], 0, True)


def test_what_is_pending_is_bounded_and_a_flood_in_one_session_leaves_that_of_another(clock: VirtualClock) -> None:
    [verified] = read_rules([rule(within=1e8)])
    verifications = Verifications([verified])
    now = clock.now()

    def disk(number: int, session: str, seconds: int = 0) -> Perception:
        at = now + timedelta(seconds=seconds)
        return Perception("x", kind="alert.disk", subject=f"host{number}", at=at, session=session)

    async def fill() -> None:
        for number in range(3 * MOST_PENDING):
            verifications.add(verified, disk(number, "quiet" if number < 100 else "loud"), f"c{number}")
            if number == MOST_PENDING + 9:
                assert (verifications.pending, verifications.forgotten) == (MOST_PENDING, 10)
        for number in range(100):
            verifications.see([MatchInput(disk(number, "main", 1))])
        assert verifications.pending == MOST_PENDING - 100
        verifications.close()

    asyncio.run(fill())


async def test_a_planner_without_an_agent_verifies_by_itself() -> None:
    planner = RulesPlanner([rule(within=60)])

    action = await planner.plan([Perception("x", kind="alert.disk")], Context("a", "c1"))

    assert action.calls[0].meta["_verify"] is True
    assert planner.snapshot()["to_verify"] == 1
    await planner.__aexit__()


@pytest.mark.parametrize(
    ("table", "path", "words"),
    [
        ({"verify": {}}, ("verify",), "must have 'within'"),
        ({"verify": {"within": 0}}, ("verify", "within"), "0"),
        ({"verify": {"within": 5, "is_good": True}}, ("verify", "is_good"), "when"),
        ({"verify": {"within": 5, "whn": {}}}, ("verify", "whn"), "did you mean 'when'"),
        ({"verify": {"within": 5}, "calls": []}, ("verify",), "no call"),
    ],
)
def test_a_verification_that_means_nothing_is_refused(table: Any, path: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        RulesPlanner([{**rule(within=5), **table}])
    assert refused.value.path == ("rules", 0, *path)


async def test_of_several_nodes_the_one_with_the_main_session_verifies_and_knows_the_cooldowns(
    clock: VirtualClock,
) -> None:
    async def acquire(resource: str) -> Any:
        raise AssertionError("no resource is needed")

    kept, owner, said = {name: KeptRows() for name in ("verify", "cooldown", "rules")}, ["a"], list[tuple[str, bool]]()

    def node(name: str) -> RulesPlanner:
        planner = RulesPlanner([{**rule(within=60), "cooldown": 3600}])
        planner.attach(
            AgentHost(
                "main", clock, RecordingEvents("main"), Hooks(), lambda: None, rows=kept.__getitem__, acquire=acquire,
                may_sense=lambda: owner[0] == name, judge=lambda word, done: said.append((name, word.success)),
            )
        )  # fmt: skip
        return planner

    def alert(subject: str) -> list[Perception]:
        return [Perception("x", kind="alert.disk", subject=subject, at=clock.now())]

    async with node("a") as a, node("b") as b:
        assert await b.plan([], Context("main", "c0", clock=clock)) is None  # it has loaded what there is: nothing
        assert await a.plan(alert("db1"), Context("main", "c1", clock=clock)) is not None
        assert await a.plan(alert("db2"), Context("main", "c2", clock=clock)) is not None
        owner[0] = "b"
        await asyncio.sleep(10)
        assert await b.plan(alert("db1"), Context("main", "c3", clock=clock)) is None  # it came again, within 3600 s
        await asyncio.sleep(100)
        assert said == [("b", False), ("b", True)]
