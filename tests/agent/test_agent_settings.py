"""What an agent is made from: nothing, a mapping, words and numbers; and what is refused, by its name."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planning.rules.planner import RulesPlanner
from spar import Action, Agent, Call, ConfigError, ContractError, Perception, PhaseCompleted
from spar.config.load import from_mapping
from spar.config.tables.agent import AgentSettings
from spar.config.tables.settings import Settings
from spar.testing import RecordingStore, ScriptedPlanner, ScriptedSense, VirtualClock
from spar.types import PHASES
from tests.waiting import until


async def test_an_agent_made_by_hand_writes_no_file(
    clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async with Agent(sense=ScriptedSense(["go"]), plan=ScriptedPlanner([Action()]), clock=clock):
        await asyncio.sleep(2.0)

    assert list(tmp_path.iterdir()) == []  # noqa: ASYNC240


def test_the_defaults_are_the_documented_ones() -> None:
    agent = Agent()

    assert (agent.name, agent.state, agent.loop_interval) == ("main", "created", 1.0)
    assert (agent.setup.pace.min_interval, agent.setup.pace.max_interval, agent.setup.pace.busy_count) == (0.5, 5.0, 10)
    assert {phase: agent.setup.steps[phase].on_error for phase in PHASES} == {
        "sense": "skip", "plan": "skip", "act": "reflect", "reflect": "continue",
    }  # fmt: skip
    assert all(agent.setup.steps[phase].grace == 0.5 for phase in PHASES)
    assert all(agent.setup.steps[phase].attempts == 1 for phase in PHASES)
    assert agent.runs.timers.limits.timeout == 600.0
    assert agent.stats.total_cycles == 0


def test_settings_are_a_mapping_shaped_like_the_configuration() -> None:
    agent = Agent(
        settings={
            "agent": {
                "name": "watch", "loop_interval": "adaptive", "min_interval": 1, "max_interval": 9, "busy_count": 3,
                "plan_when_idle": True, "errors": {"plan": "retry"},
                "phases": {"act": {"timeout": 7, "retries": 2, "backoff": 0.25, "grace": 1.5}},
            },
            "health": {"failing_after": 2, "slow_after": 3.0},
            "runs": {"timeout": "5m"},
        }
    )  # fmt: skip

    assert agent.name == "watch"
    assert (agent.loop_interval, agent.setup.pace.min_interval, agent.setup.pace.max_interval) == ("adaptive", 1.0, 9.0)
    assert agent.setup.pace.busy_count == 3
    assert agent.setup.plan_when_idle
    act = agent.setup.steps["act"]
    assert (act.timeout, act.attempts, act.backoff.base, act.grace) == (7.0, 3, 0.25, 1.5)
    assert agent.setup.steps["plan"].attempts > 1
    assert agent.health.limits.failing_after == 2
    assert agent.runs.timers.limits.timeout == 300.0


def test_settings_may_be_read_already_and_arguments_weigh_more() -> None:
    settings = from_mapping({"agent": {"name": "one", "loop_interval": 5}})

    assert Agent(settings=settings).name == "one"
    agent = Agent(settings=settings, name="two", loop_interval="off")
    assert (agent.name, agent.loop_interval) == ("two", "off")


@pytest.mark.parametrize("zero", [0, "off"])
def test_a_phase_without_timeout_has_no_deadline(zero: Any) -> None:
    agent = Agent(settings={"agent": {"phases": {"plan": {"timeout": zero}}}})

    assert agent.setup.steps["plan"].timeout == math.inf


NO_INTERVALS = [-1, -0.001, math.nan, math.inf, -math.inf, True, False, "fast", "", [], {}, b"off"]


@pytest.mark.parametrize("interval", NO_INTERVALS)
def test_a_loop_interval_that_is_none_is_refused_by_its_name(interval: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"loop_interval = .*must be a number of seconds >= 0, \"adaptive\" or \"off\""
    ):
        Agent(loop_interval=interval)
    agent = Agent()
    with pytest.raises(ConfigError, match="loop_interval"):
        agent.loop_interval = interval
    assert agent.loop_interval == 1.0


@pytest.mark.parametrize("interval", [-1, math.nan, True, "fast"])
def test_a_loop_interval_of_the_settings_that_is_none_is_refused_by_its_path(interval: Any) -> None:
    with pytest.raises(ConfigError, match=r"agent\.loop_interval = "):
        Agent(settings={"agent": {"loop_interval": interval}})


@pytest.mark.parametrize("interval", [0, 0.0, 1, 2.5, 86400, "adaptive", "off"])
def test_every_documented_loop_interval_is_taken(interval: Any) -> None:
    assert Agent(loop_interval=interval).loop_interval == interval
    assert Agent(settings={"agent": {"loop_interval": interval}}).loop_interval == interval


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"agent": {"phases": {"plan": {"timeout": -1}}}}, r"agent\.phases\.plan\.timeout = -1"),
        ({"agent": {"phases": {"act": {"timeout": math.nan}}}}, r"agent\.phases\.act\.timeout = nan"),
        ({"agent": {"phases": {"act": {"retries": -1}}}}, r"agent\.phases\.act\.retries = -1"),
        ({"agent": {"phases": {"act": {"retries": True}}}}, r"agent\.phases\.act\.retries = true"),
        ({"agent": {"phases": {"dream": {}}}}, "dream"),
        ({"agent": {"errors": {"plan": "explode"}}}, r"agent\.errors\.plan = 'explode'"),
        ({"agent": {"errors": {"sense": "reflect"}}}, r"agent\.errors\.sense"),
        ({"agent": {"min_interval": 9}}, r"agent\.min_interval = 9"),
        ({"agent": {"busy_count": 0}}, r"agent\.busy_count = 0"),
        ({"agent": {"loop_intervall": 1}}, "loop_intervall"),
        ({"health": {"failing_after": 0}}, r"health\.failing_after = 0"),
        ({"runs": {"limit": 0}}, r"runs\.limit = 0"),
        ({"runs": {"timeout": -5}}, r"runs\.timeout = -5"),
        ({"nonsense": 1}, "nonsense"),
        (7, "settings"),
    ],
)
def test_a_bad_setting_is_refused_at_construction_by_its_path(settings: Any, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        Agent(settings=settings)


@pytest.mark.parametrize("name", ["", "  ", 7, b"main"])
def test_a_name_that_is_none_is_refused(name: Any) -> None:
    with pytest.raises(ConfigError, match="name = "):
        Agent(name=name)


def test_a_memory_that_cannot_store_is_refused() -> None:
    with pytest.raises(ContractError, match="memory= must be an object with a method 'store', found 7"):
        Agent(memory=7)


# -- tools=


async def greet(name: str) -> str:
    """Greet somebody."""
    return f"hello {name}"


async def test_tools_are_the_short_form_of_an_executor() -> None:
    agent = Agent(tools=[greet])

    result = await agent.step_act(Action(calls=[Call("greet", {"name": "you"})]))

    assert result.status == "ok"
    assert result.results[0].output == "hello you"


@pytest.mark.parametrize("tools", [print, 7, "greet"])
def test_tools_that_are_no_list_are_refused(tools: Any) -> None:
    with pytest.raises(ConfigError, match="tools= must be a list of tools"):
        Agent(tools=tools)


def test_tools_beside_an_act_module_are_refused() -> None:
    async def act(action: Action) -> Any: ...

    with pytest.raises(ConfigError, match="tools= is for the built-in executor"):
        Agent(act=act, tools=[greet])


def test_what_a_program_gives_is_judged_as_a_file_is() -> None:
    rules = {"approval": {"rules": [{"tool": "gret", "decision": "deny"}]}}
    with pytest.raises(ConfigError, match=r"approval\.rules\[0\]\.tool: no tool named 'gret'; known: greet"):
        Agent(tools=[greet], settings=rules)
    planner = RulesPlanner(
        [{"name": "greet", "when": {"kind": "x"}, "calls": [{"tool": "greet", "params": {"nam": 1}}]}]
    )
    with pytest.raises(ConfigError, match="nam"):
        Agent(plan=planner, tools=[greet])


# -- while it runs


async def test_a_new_interval_takes_effect_at_once(clock: VirtualClock) -> None:
    agent = Agent(clock=clock, loop_interval="off")
    async with agent:
        await asyncio.sleep(1000.0)
        assert agent.stats.total_cycles == 0

        agent.loop_interval = 1.0
        await asyncio.sleep(10.5)
        assert agent.stats.total_cycles == 11

        agent.loop_interval = 100.0
        await asyncio.sleep(99.0)
        assert agent.stats.total_cycles == 12
        await asyncio.sleep(2.0)
        assert agent.stats.total_cycles == 13


async def test_a_new_interval_may_be_set_from_another_thread() -> None:
    agent = Agent(loop_interval="off")
    async with agent:
        await asyncio.sleep(0.02)

        await asyncio.to_thread(setattr, agent, "loop_interval", 0.005)

        await until(lambda: agent.stats.total_cycles >= 5)


async def test_an_interval_set_before_the_start_brings_no_cycle_of_its_own(clock: VirtualClock) -> None:
    agent = Agent(clock=clock)
    await agent.step_sense()
    agent.loop_interval = 10.0
    await agent.stop()
    before = agent.stats.total_cycles

    async with agent:
        await asyncio.sleep(5.0)
        assert agent.stats.total_cycles == before + 1


async def test_a_memory_of_only_store_is_enough(clock: VirtualClock) -> None:
    class Least:
        def __init__(self) -> None:
            self.kept: list[Any] = []

        async def store(self, experience: Any) -> None:
            self.kept.append(experience)

    least = Least()
    agent = Agent(sense=ScriptedSense([Perception("go")]), plan=ScriptedPlanner([Call("greet", {"name": "x"})]),
                  tools=[greet], memory=least, clock=clock)  # fmt: skip
    async with agent:
        await asyncio.sleep(3.0)

    assert len(least.kept) >= 1
    assert agent.agent_state.account["lost"] == 0


async def test_a_recording_store_is_opened_used_and_closed(clock: VirtualClock) -> None:
    store = RecordingStore()
    async with Agent(memory=store, clock=clock, sense=ScriptedSense(["go"]), plan=ScriptedPlanner([None])):
        assert store.is_open
        await asyncio.sleep(3.0)
    assert not store.is_open


def test_an_unknown_durability_is_refused_where_the_agent_is_made() -> None:
    with pytest.raises(ConfigError, match=r"memory\.durability = 'maybe': must be one of 'power', 'process', 'off'"):
        Agent(settings={"memory": {"durability": "maybe"}})
    assert Agent(settings={"memory": {"durability": "process"}}).state == "created"
    assert Agent(settings={"memory": {"use": "mine:Store", "durability": "maybe"}}).state == "created"


def test_settings_made_by_hand_are_judged_as_those_of_a_file_are() -> None:
    made: Any = AgentSettings(loop_interval="5m", busy_count=0)  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match=r"agent\.busy_count = 0: must be >= 1"):
        Agent(settings=Settings(agent=made))
    with pytest.raises(ConfigError, match=r"agent\.busy_count = 0: must be >= 1"):
        Agent(settings={"agent": made})
    read: Any = AgentSettings(loop_interval="5m")  # type: ignore[arg-type]
    assert Agent(settings=Settings(agent=read)).loop_interval == 300.0


# -- values of a caller that are nested deeper than Python can write out: each is refused in a sentence


def nested() -> Any:
    value: list[Any] = []
    for _ in range(3_000):
        value = [value]
    return value


CALLS: dict[str, Callable[[Agent, Any], Any]] = {
    "submit": lambda agent, value: agent.submit(value),
    "submit session": lambda agent, value: agent.submit("hello", session=value),
    "submit mode": lambda agent, value: agent.submit("hello", mode=value),
    "submit key": lambda agent, value: agent.submit("hello", key=value),
    "submit output": lambda agent, value: agent.submit("hello", output=value),
    "submit options": lambda agent, value: agent.submit("hello", options=value),
    "submit option": lambda agent, value: agent.submit("hello", options={"model": value}),
    "accept": lambda agent, value: agent.accept(value),
    "push": lambda agent, value: agent.push(value),
    "wait": lambda agent, value: agent.wait(value),
    "abort": lambda agent, value: agent.abort(value),
    "reset": lambda agent, value: agent.reset(value),
    "feedback": lambda agent, value: agent.feedback(value, good=True),
    "stop": lambda agent, value: agent.stop(value),
    "approve": lambda agent, value: agent.approvals.decide(value, "approve"),
    "decide": lambda agent, value: agent.approvals.decide("one", value),
    "stats": lambda agent, value: agent.stats_of(value),
    "interval": lambda agent, value: setattr(agent, "loop_interval", value),
    "step plan": lambda agent, value: agent.step_plan(value),
    "step act": lambda agent, value: agent.step_act(value),
    "step reflect": lambda agent, value: agent.step_reflect(value),
    "hook": lambda agent, value: agent.hook(value)(print),
    "on": lambda agent, value: agent.on(value)(print),
    "handler": lambda agent, value: agent.on(PhaseCompleted)(value),
    "follow": lambda agent, value: agent.events.run("one", after=value),
    "perception": lambda agent, value: Perception("hello", subject=value),
    "name": lambda agent, value: Agent(name=value),
    "memory": lambda agent, value: Agent(memory=value),
    "module": lambda agent, value: Agent(plan=value),
    "tools": lambda agent, value: Agent(tools=value),
    "settings": lambda agent, value: Agent(settings={"agent": {"name": value}}),
}  # fmt: skip


async def call(name: str, agent: Agent) -> None:
    outcome = CALLS[name](agent, nested())
    if hasattr(outcome, "__await__"):
        await outcome


@pytest.mark.parametrize("name", CALLS)
async def test_a_value_that_is_nested_too_deeply_is_refused_in_a_sentence(name: str, clock: VirtualClock) -> None:
    async with Agent(clock=clock, loop_interval="off") as agent:
        if name.startswith("step"):
            await agent.pause()
        with pytest.raises((ValueError, TypeError, LookupError, ConfigError, ContractError)) as refused:
            await call(name, agent)
    assert 0 < len(str(refused.value)) < 1_000
