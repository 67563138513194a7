"""The default configuration on a simulated host: three troubles come again and again for an hour of virtual time.

The shipped `config.toml` as it is, with its sensors' rhythm, pipeline, policies and budgets. Besides: a sensor that
tells what is wrong with the service `shop`, the tools of its host, and one rule that may take any of these. At the end
the shipped rules alone, which name one tool for each call: memory keeps them from a call that is known to fail.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.environments import EnvironmentAdapter, LivedEpisode, Observation, SimulatedHost
from spar.agent.agent import build_agent
from spar.cli.templates import template
from spar.config.load import load
from spar.config.registry import Registry
from spar.testing import VirtualClock
from spar.types import Action, Learning, Perception

CONFIG = Path(__file__).parents[2] / "config.toml"
HOUR = 3_600.0
BESIDES = """
[[sensors]]
use = "host-of-shop"
name = "shop"

[[tools]]
use = "restart"

[[tools]]
use = "clean_disk"

[[tools]]
use = "end_stale_process"

[[rules]]
name = "mend the shop"
when = { kind = "service.down" }
[[rules.calls]]
tool = ["restart", "clean_disk", "end_stale_process"]
"""


class Shop(SimulatedHost):
    """Tells each minute how the shop is; what is said of it is no matter for an incident."""

    seconds = 60.0

    def _observation(self) -> Observation:
        seen = super()._observation()
        return Observation(seen.content, seen.kind, seen.subject, {**seen.attributes, "severity": "info"})


class Parts(Registry):
    """The parts in the box, and those of the host."""

    def __init__(self, adapter: EnvironmentAdapter) -> None:
        super().__init__(allow_plugins=False)
        self._own: dict[str, Any] = {tool.name: tool for tool in adapter.tools} | {"host-of-shop": adapter}

    def resolve(self, group: str, use: Any, path: Any = ()) -> Any:
        return self._own.get(use) or super().resolve(group, use, path)


async def an_hour(folder: Path, learning: Learning, clock: VirtualClock) -> list[LivedEpisode]:
    """Let the default configuration run for an hour; return how each trouble went."""
    (folder / "inbox").mkdir()
    (folder / "config.toml").write_text(template("profile", "watch.toml") + BESIDES)
    adapter = EnvironmentAdapter(Shop(), 1_000, seed=1, at_once=True)
    loaded = load(folder / "config.toml", environ={}, overrides={"memory.learning": learning, "memory.ballast": "0"})
    agent = build_agent(loaded, clock=clock, registry=Parts(adapter))
    adapter.register(agent)
    async with agent:
        await clock.advance(HOUR)
    return adapter.outcomes


def calls_by_occurrence(episodes: list[LivedEpisode]) -> dict[str, list[int]]:
    found: defaultdict[str, list[int]] = defaultdict(list)
    for each in episodes:
        found[each.steps[0].situation.removeprefix("service.down ")].append(len(each.steps))
    return dict(found)


def spar(folder: Path, *arguments: str) -> Any:
    command = [sys.executable, "-m", "spar", "--json", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)


def by_memory(cycle: Any) -> list[Any]:
    """Return the decisions of a cycle that went by what had worked."""
    return [each for each in cycle["action"].get("learnt", ()) if "worked" in each["why"]]


async def test_the_third_time_is_handled_better_than_the_first_and_it_says_why(
    clock: VirtualClock, tmp_path: Path
) -> None:
    calls = calls_by_occurrence(await an_hour(tmp_path, "on", clock))

    assert set(calls) == {"crashed", "disk full", "port taken"}
    assert {trouble: counts[2] for trouble, counts in calls.items()} == {"crashed": 1, "disk full": 2, "port taken": 2}
    assert sum(counts[0] for counts in calls.values()) > sum(counts[2] for counts in calls.values())

    cycles = spar(tmp_path, "cycles", "list", "--limit", "200")
    acted = (each["cycle_id"] for each in cycles if each["outcome"] == "acted")
    told = ((each, by_memory(spar(tmp_path, "cycles", "show", each))) for each in acted)
    cycle, learnt = next((each, found) for each, found in told if found)
    assert all(each["cases"] and each["is_used"] for each in learnt), "a decision names what it went by"
    why = spar(tmp_path, "memory", "why", cycle)
    assert [each["why"] for each in why] == [each["why"] for each in learnt]
    assert all(case["experience"]["calls"] for each in why for case in each["cases"])


@pytest.mark.parametrize("learning", ["off", "observe"])
async def test_with_the_switch_turned_the_third_time_is_like_the_first(
    learning: Learning, clock: VirtualClock, tmp_path: Path
) -> None:
    calls = calls_by_occurrence(await an_hour(tmp_path, learning, clock))
    assert {trouble: set(counts) for trouble, counts in calls.items()} == {
        "crashed": {1},
        "disk full": {8},
        "port taken": {8},
    }


async def load_is_high(folder: Path, learning: Learning, clock: VirtualClock, times: int) -> list[Action]:
    """Tell the shipped rules of a high load each quarter of an hour, where no note can be written."""
    (folder / "config.toml").write_text(CONFIG.read_text())
    (folder / "workspace" / "notes.md").mkdir(parents=True)
    loaded = load(folder / "config.toml", environ={}, overrides={"memory.learning": learning, "memory.ballast": "0"})
    agent = build_agent(loaded, clock=clock, registry=Registry(allow_plugins=False))
    told = Perception("load is high", source="host", kind="host.load", attributes={"level": "high"}, trust="trusted")
    decided = []
    for _ in range(times):
        action = await agent.step_plan([told])
        assert action is not None
        decided.append(action)
        await agent.step_act()
        await agent.step_reflect()
        await agent.step_sense()  # the next chain begins, in a cycle of its own
        await clock.advance(900.0)
    await agent.stop()
    return decided


@pytest.mark.parametrize("learning", ["on", "observe", "off"])
async def test_the_shipped_rules_make_no_call_again_that_is_known_to_fail_and_say_why(
    learning: Learning, clock: VirtualClock, tmp_path: Path
) -> None:
    decided = await load_is_high(tmp_path, learning, clock, 5)
    called = [[call.tool for call in action.calls] for action in decided]
    told = "note failed 2 times in this situation with these parameters"
    assert called[:2] == [["note", "notify"]] * 2
    if learning == "on":
        assert called[2:] == [["notify"], ["note", "notify"], ["notify"]], "left out, for longer each time"
        assert f"by memory instead of note: {told}" in decided[2].reason
    else:
        assert called[2:] == [["note", "notify"]] * 3
        assert (told in decided[2].reason) is (learning == "observe")
