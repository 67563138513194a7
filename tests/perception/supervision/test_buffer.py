"""What a flood leaves of a sensor's perceptions: as the sensor's policy has it, bounded, and every one counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import pytest

from perception.sense import Sense
from perception.sensors.schedule import ScheduleSensor
from perception.supervision.buffer import CURSOR, MOST_BYTES, SensorBuffer, most_important, size_of
from spar import Agent
from spar.config.lines import Sources
from spar.config.load import from_mapping
from spar.config.tables.settings import Loaded
from spar.events import SensorQuarantined, SensorRestored
from spar.parts.factory import Parts
from spar.protocols import SensorSpec
from spar.testing import VirtualClock
from spar.types import Perception
from tests.doubles import heard

Policy = Literal["refuse", "latest", "sample"]


def buffer(policy: Policy, limit: int = 10) -> SensorBuffer:
    found = SensorBuffer(
        SensorSpec("flood", ScheduleSensor(interval=60), when_full=policy), limit, lambda: None, lambda lie: None
    )
    found.is_open = True
    return found


def contents(buffer: SensorBuffer) -> list[Any]:
    return [item.content for item in taken(buffer, 10**9)]


def taken(buffer: SensorBuffer, at_most: int) -> list[Perception]:
    items = most_important([buffer], at_most, MOST_BYTES)
    buffer.release()
    return items


NOTHING: Any = object()  # no cursor; a cursor may have any value


def unsaved(buffer: SensorBuffer) -> Any:
    """The cursor that may be saved now; who asks saves it."""
    changes = buffer.unconfirmed.take("")
    assert [change.key for change in changes] in ([], [CURSOR])
    return changes[0].value if changes else NOTHING


def flood(buffer: SensorBuffer, number: int, keys: int = 0) -> list[bool]:
    return [buffer(Perception(index, key=str(index % keys) if keys else None)) for index in range(number)]


def test_the_latest_of_each_key_is_kept_in_the_place_of_the_one_before_and_without_a_key_the_oldest_goes() -> None:
    one, plain = buffer("latest"), buffer("latest")
    assert all(flood(one, 1000, keys=7) + flood(plain, 25))
    found = contents(one)
    assert found[-7:] == list(range(993, 1000))
    assert len(found) == 10
    assert one.shed["replaced"] + one.shed["oldest"] == one.dropped == 990
    assert one.shed["replaced"] > 0
    assert plain.shed["oldest"] == plain.dropped == 15
    assert contents(plain) == list(range(15, 25))


def test_a_sample_is_spread_over_the_flood() -> None:
    one = buffer("sample", 100)
    assert all(flood(one, 10_000))
    found = contents(one)
    assert 50 <= len(found) <= 100
    assert found == sorted(found)
    assert found[-1] == 9_999
    assert one.shed["sampled"] == one.dropped == 10_000 - len(found)


@pytest.mark.parametrize("policy", ["refuse", "latest", "sample"])
@pytest.mark.parametrize("keys", [0, 3])
def test_everything_handed_over_was_taken_shed_or_still_waits(policy: Policy, keys: int) -> None:
    one, count, offered = buffer(policy, 8), 0, 0
    for turn in range(200):
        offered += len(flood(one, turn % 23, keys))
        assert one.waiting <= 8
        count += len(taken(one, turn % 5))
        assert count + one.dropped + one.waiting == offered


@pytest.mark.parametrize("policy", ["refuse", "latest", "sample"])
def test_what_waits_is_bounded_in_bytes_too(policy: Policy) -> None:
    one, text = buffer(policy, 10_000), "x" * (MOST_BYTES // 8)
    kept = [one(Perception(text)) for _ in range(20)]
    assert one.waiting <= 8
    assert sum(kept) == (8 if policy == "refuse" else 20)
    assert not one(Perception("x" * (MOST_BYTES + 1)))
    assert one.shed["refused"] == (13 if policy == "refuse" else 1)
    contents(one)
    assert one(Perception(text))


@pytest.mark.parametrize("policy", ["latest", "sample"])
def test_a_cursor_waits_for_what_was_handed_over_before_it_and_not_for_what_was_shed(policy: Policy) -> None:
    one = buffer(policy, 4)
    flood(one, 4)
    one.checkpoint("after four")
    taken(one, 2)
    assert unsaved(one) is NOTHING
    flood(one, 40)  # the last two of the four are shed
    taken(one, 1)
    assert unsaved(one) == "after four"


@pytest.mark.parametrize("policy", ["refuse", "latest", "sample"])
def test_a_perception_of_a_poll_that_no_buffer_takes_is_an_error_of_the_sensor(policy: Policy) -> None:
    one = buffer(policy)
    with pytest.raises(
        OverflowError, match=f"'flood' returned 3 perceptions; 1 of them is larger than {MOST_BYTES} bytes"
    ):
        one.accept([Perception("before"), Perception("x" * (MOST_BYTES + 1)), Perception("behind")])
    assert contents(one) == ["before", "behind"]


def test_the_policy_of_a_sensor_is_configured() -> None:
    settings = from_mapping({"sensors": [{"use": "host", "when_full": "latest"}, {"use": "messages"}]})
    specs = Parts(Loaded(settings, Sources())).sensors()
    assert [spec.when_full for spec in specs] == ["latest", "refuse"]
    snapshot = Sense(specs, buffer=1).snapshot()["sensors"]["host"]
    assert snapshot["shed"] == {"refused": 0, "replaced": 0, "oldest": 0, "sampled": 0, "outranked": 0}


async def test_for_want_of_memory_the_older_half_of_what_was_seen_is_forgotten() -> None:
    sense = Sense()
    for number in range(100):
        sense.pipeline.process([Perception(f"number {number}", key=str(number))])
    sense.pipeline.process([Perception("again", key="99")])
    assert sense.shed() == 51  # half of a hundred, and what was dropped
    assert len(sense.pipeline.dropped) == 0
    assert sense.pipeline.process([Perception("again", key="0")])
    assert not sense.pipeline.process([Perception("again", key="99")])


def test_what_is_taken_at_once_is_bounded_in_bytes_but_for_one() -> None:
    one = buffer("refuse")
    for content in ("x" * 50, {"a": ["y" * 40]}, "z" * 500):
        one(Perception(content))

    assert [len(most_important([one], 10, 90)) for _ in range(4)] == [1, 1, 1, 0]


def test_in_a_flood_that_never_ends_cursors_go_on_and_are_no_more_than_wait() -> None:
    one = buffer("latest", 10)
    for number in range(1_000):
        one(Perception(number))
        one.checkpoint(number)
        assert one.unconfirmed.steps <= 22
        if number % 4 == 3:
            taken(one, 2)

    assert 980 < unsaved(one) < 999


def test_behind_one_that_nobody_takes_the_cursors_of_a_flood_stay_few_and_the_last_one_counts() -> None:
    one = buffer("latest", 4)
    one(Perception("important", priority=1.0))
    for number in range(1_000):
        one(Perception(number))
        one.checkpoint(number)
        assert one.unconfirmed.steps <= 11

    assert unsaved(one) is NOTHING
    assert [item.content for item in taken(one, 1)] == ["important"]
    assert unsaved(one) == 996
    assert len(contents(one)) == 3
    assert unsaved(one) == 999


@pytest.mark.parametrize("attributes", [{"body": "x" * 1000}, {"body": ["x" * 500] * 2}])
def test_attributes_take_room_as_content_does(attributes: dict[str, Any]) -> None:
    assert size_of(Perception("content")) == 7
    assert size_of(Perception("content", attributes=attributes)) > 1000


class LooksAtTheLock(Mapping[str, Any]):
    """Content that notes whether the buffer is locked while it is read."""

    def __init__(self) -> None:
        self.buffer: SensorBuffer | None = None
        self.was_locked: list[bool] = []

    def __iter__(self) -> Iterator[str]:
        self.was_locked.append(self.buffer._lock.locked())
        return iter(())

    def __getitem__(self, name: str) -> Any:
        raise KeyError(name)

    def __len__(self) -> int:
        return 0


def test_content_is_measured_while_other_threads_may_push() -> None:
    found, content = buffer("refuse"), LooksAtTheLock()
    content.buffer = found
    found(Perception(content))
    found.accept([Perception(content)])

    assert found.waiting == 2
    assert len(content.was_locked) >= 2
    assert not any(content.was_locked)


# -- sensors in quarantine, tried again by somebody's word instead of after their time


class Broken:
    every = 1.0

    def __init__(self) -> None:
        self.is_well, self.polls = False, 0

    async def poll(self) -> list[Perception]:
        self.polls += 1
        if not self.is_well:
            raise OSError("no")
        return []


async def test_a_sensor_in_quarantine_is_tried_at_once_when_somebody_says_so(clock: VirtualClock) -> None:
    sensor = Broken()
    sense = Sense([SensorSpec("broken", sensor)])  # type: ignore[arg-type]
    agent = Agent(sense=sense, loop_interval=1.0, clock=clock)
    told = heard(agent, SensorQuarantined, SensorRestored)
    async with agent:
        sense.restore("broken")  # it is well as far as anybody knows: nothing happens
        await clock.sleep(60)
        assert [type(event) for event in told] == [SensorQuarantined]
        polls = sensor.polls
        sense.restore("broken")
        await clock.sleep(5)
        assert (sensor.polls, len(told)) == (polls + 1, 1)  # still broken: in quarantine as before
        sensor.is_well = True
        sense.restore("broken")
        await clock.sleep(5)
        assert [type(event) for event in told] == [SensorQuarantined, SensorRestored]
        assert sense.snapshot()["sensors"]["broken"]["state"] == "ok"


def test_a_sensor_that_is_not_there_cannot_be_restored() -> None:
    with pytest.raises(LookupError, match="no sensor 'x'; known: none"):
        Sense().restore("x")
