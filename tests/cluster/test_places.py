"""Sensors of a place: one of the nodes there has them, whichever node has their session; nothing is lost or doubled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg
import pytest

from memory.postgres.store import PostgresMemory
from perception import Sense
from perception.supervision import placed
from spar import Agent, SensorSpec
from spar.errors import ConfigError, TransientError
from spar.protocols import SensorContext
from spar.types import Perception
from tests.waiting import until

pytestmark = pytest.mark.process


class Counter:
    """Sensor that counts from its cursor on, as far as it is told."""

    def __init__(self) -> None:
        self.most = self.at = self.opened = 0
        self.context: Any = None

    def open(self, context: SensorContext) -> None:
        self.context, self.at = context, context.cursor or 0
        self.opened += 1

    def poll(self) -> list[Perception]:
        new = [Perception(f"n{number}", kind="number") for number in range(self.at + 1, self.most + 1)]
        self.at = max(self.at, self.most)
        self.context.checkpoint(self.at)
        return new


class Node:
    """An agent with one placed sensor; `seen` is what the cycles of all nodes noticed."""

    def __init__(self, url: str, seen: list[str], place: str = "") -> None:
        async def plan(perceptions: Sequence[Perception]) -> None:
            seen.extend(perception.text for perception in perceptions if perception.kind == "number")

        self.counter = Counter()
        sense = Sense([SensorSpec("counter", self.counter, every=0.02, place="plant")])
        memory = PostgresMemory(url, nodes=True, place=place)
        self.agent = Agent(sense=sense, plan=plan, memory=memory, loop_interval="off", name="main")
        self.sense = sense

    @property
    def state(self) -> str:
        return str(self.sense.snapshot()["sensors"]["counter"]["state"])


async def test_a_placed_sensor_runs_on_one_node_of_its_place_and_goes_on_from_its_cursor_on_the_next(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placed, "BEAT", 0.05)
    monkeypatch.setattr(placed, "LOOK_EVERY", 0.05)
    seen: list[str] = []
    here, there, other = Node(url, seen, "plant"), Node(url, seen, "plant"), Node(url, seen, "office")
    for node in (here, there, other):
        node.counter.most = 3
    async with other.agent:
        await until(lambda: other.state == "nowhere")
        assert seen == []
        async with there.agent, here.agent:
            await until(lambda: len(seen) >= 3)
            await until(lambda: sorted(node.state for node in (here, there, other)) == ["elsewhere", "elsewhere", "ok"])
            first, second = sorted((here, there), key=lambda node: node.state, reverse=True)
            await first.agent.stop()
            await until(lambda: any(node.agent.core.is_ready("main") for node in (second, other)))
            second.counter.most = 5
            await until(lambda: len(seen) >= 5)
            assert second.state == "ok"
    assert other.counter.opened == 0
    assert seen == ["n1", "n2", "n3", "n4", "n5"]


async def test_what_was_accepted_before_a_crash_and_is_noticed_again_is_not_accepted_again(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placed, "AGAIN_AFTER", 0.05)
    seen: list[str] = []
    node = Node(url, seen, "plant")
    save, failures = placed.PlacedSensors._save, 2

    async def fails(self: Any, *given: Any) -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            node.counter.most += 1  # what is noticed after that is more than before
            raise TransientError("the process ends here")
        await save(self, *given)

    monkeypatch.setattr(placed.PlacedSensors, "_save", fails)
    node.counter.most = 3
    async with node.agent:
        await until(lambda: len(seen) >= 5 and failures < 0)
    assert node.counter.opened == 3
    assert sorted(seen) == ["n1", "n2", "n3", "n4", "n5"]
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM item").fetchone() == (5,)


def test_a_place_without_nodes_is_refused() -> None:
    with pytest.raises(ConfigError, match="delete place"):
        PostgresMemory("postgresql:///x", place="plant")
