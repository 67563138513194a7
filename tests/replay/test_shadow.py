"""A shadow: it decides beside an agent, and touches it in no case."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spar import Agent, Perception
from spar.config.tables.settings import Loaded
from spar.errors import ConfigError
from spar.events import CycleRecorded
from spar.replay import shadow as module
from spar.replay.shadow import Shadow
from spar.types import Action
from tests.replay.tapes import configured, cycle, decided, reading, rule

LIVE = configured(rule("all"))


class Bus:
    """Bus that passes events on at once."""

    def __init__(self) -> None:
        self.handlers: dict[type[Any], Callable[[Any], None]] = {}

    def subscribe(self, kind: type[Any], handler: Callable[[Any], None]) -> None:
        self.handlers[kind] = handler


def begun(loaded: Loaded) -> tuple[Shadow, Callable[[Any], None]]:
    """Return a shadow, and the function that offers it a record."""
    shadow, bus = Shadow(loaded, LIVE, "main"), Bus()
    shadow.attach(bus.subscribe)
    return shadow, lambda record: bus.handlers[CycleRecorded](CycleRecorded(record=record))


def wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


async def test_it_counts_how_often_it_agrees_and_reports_what_differs() -> None:
    shadow, offer = begun(configured(rule("all"), rule("more", when={"kind": "reading", "pattern": "[5-9]"})))
    for record in await decided(LIVE, [[reading(str(number))] for number in range(10)]):
        offer(record)
    offer(cycle(11, [reading()], None, phases={}, outcome="interrupted"))
    await asyncio.to_thread(wait, lambda: sum(shadow.state.agree.values()) == 11)

    assert shadow.state.agree == {"yes": 5, "no": 5, "unknown": 1}
    report = shadow.report()
    assert [(one.count, one.what) for one in report.disagreements] == [
        (5, "new: rule 'more'"), (5, "new: note by rule 'more'"),
    ]  # fmt: skip
    assert report.calls.added == 5
    assert report.line == "the defaults: 50.0% of 10 decisions agree, 1 unknown"
    shadow.close()


class Hanging:
    """Planner that hangs, and holds its thread."""

    gate = threading.Event()

    def __init__(self) -> None:
        Hanging.gate.clear()

    async def plan(self, perceptions: list[Perception]) -> None:
        self.gate.wait(60)


class Raising:
    async def plan(self, perceptions: list[Perception]) -> None:
        raise RuntimeError("broken")


async def test_one_that_hangs_drops_what_it_has_no_room_for_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 3)
    monkeypatch.setattr(module, "STUCK_AFTER", 0.0)
    shadow, offer = begun(configured(plan={"use": "tests.replay.test_shadow:Hanging"}))
    (record,) = await decided(LIVE, [[reading()]])
    offer(record)
    await asyncio.to_thread(wait, lambda: shadow.report().waiting == 0)
    for _ in range(8):
        offer(record)

    assert (shadow.state.dropped, shadow.report().waiting) == (5, 3)
    await asyncio.to_thread(wait, lambda: shadow.state.trouble != "")
    assert shadow.state.trouble.startswith("it decides about one cycle since")
    assert "5 dropped" in shadow.report().line
    Hanging.gate.set()
    await asyncio.to_thread(wait, lambda: sum(shadow.state.agree.values()) == 4)
    shadow.close()


async def test_one_that_raises_is_counted_as_unknown() -> None:
    shadow, offer = begun(configured(plan={"use": "tests.replay.test_shadow:Raising"}))
    for record in await decided(LIVE, [[reading()], [reading()]]):
        offer(record)
    await asyncio.to_thread(wait, lambda: shadow.state.agree["unknown"] == 2)

    assert list(shadow.report().unknown.values()) == [2]
    assert "broken" in next(iter(shadow.report().unknown))
    shadow.close()


def test_one_whose_parts_cannot_be_made_is_refused_before_the_start() -> None:
    with pytest.raises(ConfigError, match="gone"):
        Shadow(configured(plan={"use": "gone:Planner"}), LIVE, "main")


async def test_a_cycle_without_a_decision_is_offered_too() -> None:
    shadow = Shadow(LIVE, LIVE, "main")
    sensed = [[reading("1")], [reading("2")]]

    async def sense() -> list[Perception]:
        return sensed.pop() if sensed else []

    async def plan(perceptions: list[Perception]) -> Action | None:
        return None

    agent = Agent(sense=sense, plan=plan, loop_interval=0.001)
    shadow.attach(agent.events.subscribe)
    async with agent:
        await asyncio.to_thread(wait, lambda: shadow.state.agree["no"] == 2)

    assert [one.what for one in shadow.report().disagreements] == ["new: rule 'all'", "new: note by rule 'all'"]
    shadow.close()


def test_it_needs_no_thread_before_it_begins(tmp_path: Path) -> None:
    before = set(threading.enumerate())  # one of another test may still be ending
    shadow = Shadow(LIVE, LIVE, "main")
    begun = set(threading.enumerate()) - before
    shadow.close()
    assert not begun
