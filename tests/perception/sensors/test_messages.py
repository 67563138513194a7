"""The terms under which a message becomes a perception."""

from __future__ import annotations

from typing import Any

import pytest

from perception.pipeline import Pipeline
from perception.sense import Sense
from perception.sensors.messages import MessagesSensor
from spar import Agent
from spar.protocols import SensorSpec
from spar.types import Perception


def test_a_message_is_heard_on_the_terms_of_its_sensor() -> None:
    heard = MessagesSensor(trust="untrusted", priority=0.2).hear("hello", "alice")

    assert (heard.text, heard.kind, heard.session, heard.trust, heard.priority) == (
        "hello",
        "message",
        "alice",
        "untrusted",
        0.2,
    )


@pytest.mark.parametrize("hear", [MessagesSensor().hear, Sense().hear])
def test_what_people_say_is_weighed_by_its_words(hear: Any) -> None:
    urgent, idle = (
        hear("URGENT: outage on db1, please fix it!", "main"),
        hear("fyi, no rush: cake in the kitchen", "main"),
    )
    first, last = Pipeline().process([idle, urgent])

    assert (urgent.priority, idle.priority) == (None, None)
    assert (first.content, last.content) == (urgent.content, idle.content)
    assert first.importance > 0.7 > last.importance


def test_a_message_that_is_too_long_is_refused_with_both_lengths() -> None:
    with pytest.raises(ValueError, match="may have 10 characters, this one has 11"):
        MessagesSensor(longest=10).hear("x" * 11, "main")


async def test_what_is_submitted_goes_by_the_configured_terms() -> None:
    seen: list[Perception] = []

    async def plan(perceptions: list[Perception]) -> None:
        seen.extend(perceptions)

    sense = Sense([SensorSpec("messages", MessagesSensor(trust="untrusted"))])
    async with Agent(sense=sense, plan=plan, loop_interval="off") as agent:
        receipt = await agent.submit("hello")
        status = await agent.wait(receipt.run_id, timeout=10)

    assert status.status == "ok"
    assert [(item.text, item.trust) for item in seen] == [("hello", "untrusted")]


async def test_a_sensor_that_only_hears_is_never_polled_and_is_well() -> None:
    sense = Sense([SensorSpec("messages", MessagesSensor())])
    async with Agent(sense=sense, loop_interval=0) as agent:
        while agent.stats.total_cycles < 20:
            await agent.clock.sleep(0.001)
        snapshot = sense.snapshot()["sensors"]["messages"]

    assert (snapshot["state"], snapshot["polls"]) == ("ok", 0)
