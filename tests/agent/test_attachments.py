"""Attachments: what they ask for is granted, bounded, counted and ended; a wrong one is refused before the start."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spar import Agent, Attaching, ContractError, Event, RunEnded, SparError
from spar.agent.agent import build_agent
from spar.attaching import CLOSE_WITHIN, MOST_FAILURES, OPEN_WITHIN, Attached
from spar.config.load import from_mapping, load
from spar.errors import ConfigError
from spar.testing import RecordingEvents, VirtualClock, check_attachment


class Recorder:
    """Attached that records what is called."""

    name = "recorder"

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails = False

    def attach(self, agent: Attaching) -> None:
        agent.on(RunEnded, self._ended)
        agent.hook("before_run", lambda ctx: self.calls.append(f"hook {ctx.value.text}"))
        agent.open(self._open)
        agent.close(lambda: self.calls.append("close"))
        agent.task("tick", self._tick)

    def _ended(self, event: RunEnded) -> None:
        self.calls.append("ended")
        if self.fails:
            raise OSError("the disk is full")

    async def _open(self) -> None:
        self.calls.append("open")

    async def _tick(self) -> None:
        self.calls.append("task")
        try:
            await asyncio.sleep(1e6)
        finally:
            self.calls.append("task ended")


def agent_with(*attachments: Any, clock: VirtualClock | None = None) -> Agent:
    return Agent(attach=attachments, loop_interval="off", clock=clock)


def item_of(agent: Agent) -> Attached:
    return list(agent.attachments.by_name.values())[-1]


async def say(agent: Agent, text: str = "hello") -> None:
    await agent.wait((await agent.submit(text)).run_id)


async def test_an_attachment_gets_all_that_it_asks_for_in_each_life_of_the_agent() -> None:
    recorder = Recorder()
    agent = agent_with(recorder)
    for _ in range(2):
        async with agent:
            await say(agent)
            assert item_of(agent).state == "open"
        assert recorder.calls == ["open", "task", "hook hello", "ended", "task ended", "close"]
        assert (item_of(agent).state, item_of(agent).all_failures) == ("closed", 0)
        recorder.calls.clear()


def test_a_wrong_attachment_is_refused_by_name_and_changes_nothing() -> None:
    async def later(agent: Attaching) -> None: ...

    def wrong(agent: Attaching) -> None:
        agent.on(RunEnded, lambda event: None)
        raise KeyError("folder")

    reasons: dict[str, tuple[Any, ...]] = {
        r"'recorder' is named twice: from attach= and from attach=": (Recorder(), Recorder()),
        r"'builtins:int' .*: 3 is no function and has no method 'attach'": (3,),
        r"wrong' \(from attach=\) cannot be attached: KeyError: 'folder'": (wrong,),
        r"hook\(\) wants a point of hooks, found 'midnight'; known: ": (lambda agent: agent.hook("midnight", print),),
        r"on\(\) wants a class of events .*found <class 'int'>": (lambda agent: agent.on(int, print),),
        r"on\(\) wants a function, found 'print'": (lambda agent: agent.on(RunEnded, "print"),),
        r"task\(\) wants names that differ, found 'a' twice": (
            lambda agent: [agent.task("a", later), agent.task("a", later)],
        ),
        r"it needs an attachment Recorder, and attached before it is: nothing": (lambda agent: agent.needs(Recorder),),
        r"attach\(\) must be a plain function": (later,),
    }
    for reason, attachments in reasons.items():
        with pytest.raises(ContractError, match=reason):
            agent_with(*attachments)
    with pytest.raises(ConfigError, match="no attachment named 'recorder'"):
        agent_with("recorder")
    agent = agent_with()
    with pytest.raises(ContractError, match="KeyError"):
        agent.attachments.add(wrong, "a test")
    assert (agent.attachments.by_name, agent.events.listeners(RunEnded)) == ({}, False)


def test_an_attachment_gets_one_that_was_attached_before_it() -> None:
    recorder, given = Recorder(), list[Recorder]()
    agent = agent_with(recorder, lambda agent: given.append(agent.needs(Recorder)))
    assert given == [recorder]
    assert agent.attachments.find("recorder") is recorder


async def test_a_handler_that_fails_five_times_in_a_row_is_turned_off_and_said() -> None:
    recorder = Recorder()
    agent = agent_with(recorder)
    steps = RecordingEvents()
    agent.events.subscribe(Event, steps.publish)
    async with agent:
        await say(agent)
        recorder.fails = True
        for number in range(1, MOST_FAILURES + 2):
            await say(agent)
            assert item_of(agent).all_failures == min(number, MOST_FAILURES)
        assert item_of(agent).state == "quarantined"
        assert [step.step for step in agent.health.judge.ladder.steps] == ["quarantine"]
        assert recorder.calls.count("ended") == 1 + MOST_FAILURES


async def test_a_task_that_fails_is_called_again_until_it_has_failed_five_times_in_a_row() -> None:
    calls = 0

    async def fail() -> None:
        nonlocal calls
        calls += 1
        raise OSError("no route")

    async with VirtualClock() as clock:
        agent = agent_with(lambda agent: agent.task("feed", fail), clock=clock)
        async with agent:
            await clock.sleep(1e4)
            assert item_of(agent).state == "quarantined"
            assert (calls, item_of(agent).all_failures, item_of(agent).tasks_off) == (5, 5, ("feed",))


@pytest.mark.parametrize("hang", [lambda: asyncio.sleep(1e6), lambda: 1 / 0])
@pytest.mark.parametrize(("step", "called"), [("open", ["open", "task", "task ended", "close"]), ("load", ["close"])])
async def test_an_agent_does_not_start_with_an_attachment_that_cannot_load_or_open(
    hang: Callable[[], Any], step: str, called: list[str], clock: VirtualClock
) -> None:
    recorder, closed = Recorder(), list[str]()

    def wrong(agent: Attaching) -> None:
        getattr(agent, step)(hang)
        agent.close(lambda: closed.append("closed"))

    agent = agent_with(recorder, wrong, clock=clock)
    before = clock.monotonic()
    with pytest.raises(SparError, match=rf"wrong' \(from attach=\) cannot {step}: "):
        await agent.start()
    assert clock.monotonic() - before < OPEN_WITHIN + 1
    assert (agent.state, recorder.calls, closed) == ("created", called, ["closed"])


async def test_an_attachment_loads_before_steps_and_starts_and_is_told_of_changed_settings() -> None:
    seen: list[str] = []

    def attach(agent: Attaching) -> None:
        agent.load(lambda: seen.append("load"))
        agent.open(lambda: seen.append("open"))
        agent.close(lambda: seen.append("close"))
        agent.applies(lambda settings: seen.append(settings.agent.name))

    agent = agent_with(attach)
    await agent.step_sense()
    async with agent:
        await agent.exchange({}, from_mapping({"agent": {"name": "other"}}))
    async with agent:
        pass

    assert seen == ["load", "open", "other", "close", "load", "open", "close"]


async def test_a_close_that_hangs_or_raises_ends_neither_the_stop_nor_the_other_closings() -> None:
    async with VirtualClock() as clock:
        recorder = Recorder()

        def wrong(agent: Attaching) -> None:
            agent.close(lambda: 1 / 0)
            agent.close(lambda: asyncio.sleep(1e6))

        agent = agent_with(recorder, wrong, clock=clock)
        await agent.start()
        before = clock.monotonic()
        await agent.stop()
        assert clock.monotonic() - before < CLOSE_WITHIN + 2
        assert (agent.state, recorder.calls[-1]) == ("stopped", "close")
        assert list(agent.attachments.by_name.values())[1].all_failures == 1


async def test_a_problem_that_an_attachment_reports_is_an_event() -> None:
    attaching: list[Attaching] = []
    agent = agent_with(attaching.append)
    async with agent:
        events = agent.events.stream(Event)
        attaching[0].report("the file is gone")
        event = await anext(aiter(events))
    assert (event.phase, event.error.message) == ("attachment", "the file is gone")


PACKAGE = """
class Runs:
    def __init__(self, path: str) -> None:
        self.path = path

    def attach(self, agent):
        agent.open(lambda: open(self.path, "a").close())

def wrong(agent):
    agent.hook("midnight", print)
"""


async def test_a_configuration_names_attachments_and_their_options(tmp_path: Path) -> None:
    (tmp_path / "own_attachments.py").write_text(PACKAGE)
    (tmp_path / "config.toml").write_text(
        f'[[attachments]]\nname = "runs"\nuse = "own_attachments:Runs"\noptions = {{ path = "{tmp_path}/runs.csv" }}\n'
    )
    agent = build_agent(load(tmp_path / "config.toml"))
    assert (item_of(agent).name, item_of(agent).origin) == ("runs", "own_attachments:Runs")
    async with agent:
        assert (tmp_path / "runs.csv").exists()
    for use, reason in (("own_attachments:wrong", "midnight"), ("nothing", "no attachment named 'nothing'")):
        (tmp_path / "config.toml").write_text(f'[[attachments]]\nuse = "{use}"\n')
        with pytest.raises(ConfigError, match=rf"config\.toml:2.*attachments\[0\]\.use.*{reason}"):
            build_agent(load(tmp_path / "config.toml"))


async def test_the_contract_holds_for_a_good_attachment_and_names_what_a_bad_one_breaks(clock: VirtualClock) -> None:
    def fail(agent: Attaching) -> None:
        agent.on(RunEnded, lambda event: 1 / 0)

    await check_attachment(Recorder, clock=clock)
    with pytest.raises(AssertionError, match=r"none of its functions must fail"):
        await check_attachment(lambda: fail, clock=clock)
