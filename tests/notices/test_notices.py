"""Notices of alerts: once for each episode, with its end, again where telling fails, and never in the way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from spar import Agent
from spar.channels.notices import MOST_WAITING, SETTLE, Notices
from spar.channels.outbox import TurnRows
from spar.config.load import from_mapping
from spar.errors import ConfigError, TransientError
from spar.events import Event, HealthAlert, HealthRecovered, NotifierFailed, NotifierRestored
from spar.health.alerts import Kind
from spar.health.reported import ApprovalAlerts, alert_quarantines
from spar.ports.channel import Notice, NotifierSpec, QuietHours
from spar.records.approvals import Approval
from spar.testing import VirtualClock
from spar.types import Call
from tests.doubles import KeptRows, heard


class Teller:
    """Notifier that keeps what it tells; fails, or hangs, while it is told to."""

    def __init__(self) -> None:
        self.told: list[Notice] = []
        self.tries = 0
        self.error: Exception | None = None
        self.hangs = False

    async def notify(self, title: str, text: str, *, urgency: str = "normal") -> None:
        raise AssertionError("a notice is delivered whole")

    async def deliver(self, notice: Notice) -> None:
        self.tries += 1
        while self.hangs:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue
        if self.error is not None:
            raise self.error
        self.told.append(notice)

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(each.state, each.kind) for each in self.told]


class Place:
    """Nodes of one agent, of which one has the channels."""

    def __init__(self) -> None:
        self.parts: dict[Any, Node] = {}

    def forward(self, to: str, notice: Notice) -> None:
        """Have the node with the channels send a notice."""
        (part,) = (part for part, node in self.parts.items() if node.has_channels)
        part.by_name[to].add(notice)

    async def give(self, node: Node) -> None:
        """Give the channels to a node."""
        for other in self.parts.values():
            other.has_channels = other is node
        for part, other in self.parts.items():
            await (part.begin() if other is node else part.end())


class Node:
    """One of several nodes: what an agent sees of the others."""

    def __init__(self, place: Place) -> None:
        self.place, self.has_channels = place, False

    def owns(self, session: str) -> bool:
        return self.has_channels

    has = owns

    async def hold(self, session: str, part: Any) -> None:
        self.has_channels = not self.place.parts
        self.place.parts[part] = self
        await (part.begin() if self.has_channels else part.end())


class Desk:
    """An agent that runs, with its notices."""

    def __init__(
        self, clock: VirtualClock, rows: KeptRows | None = None, place: Place | None = None, **terms: Any
    ) -> None:
        self.clock, self.rows, self.teller = clock, rows or KeptRows(), Teller()
        self.agent = Agent(clock=clock, loop_interval="off", attach=["senders", "channels"])
        self.events: list[Event] = []
        self.agent.events.subscribe(NotifierFailed, self.events.append)
        self.agent.events.subscribe(NotifierRestored, self.events.append)
        spec = NotifierSpec("ops", self.teller, **terms)
        self.node = None if place is None else Node(place)
        forward = (place or Place()).forward
        self.notices = Notices(self.agent.core, [spec], TurnRows(self.rows), forward)
        for kind in (HealthAlert, HealthRecovered):
            self.agent.events.subscribe(kind, self.notices.take)
        self.agent.attachments.get("channels").notifiers = self.notices.by_name

    async def __aenter__(self) -> Desk:
        await self.agent.start()
        self.agent.core.shared = self.node
        await self.notices.open()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.notices.close()
        self.agent.core.shared = None
        await self.agent.stop()

    def alert(self, kind: Kind = "disk", **more: Any) -> None:
        self.agent.health.judge.alert(kind, f"{kind} is in trouble", **more)


async def test_an_episode_is_told_once_and_its_end_once(clock: VirtualClock) -> None:
    async with Desk(clock) as desk:
        for _ in range(3):
            desk.alert()
        desk.alert("provider", what="a")
        desk.alert("provider", what="b")
        await clock.sleep(1)
        desk.agent.health.recovered("disk")
        desk.agent.health.recovered("disk")
        await clock.sleep(1)
        assert desk.teller.said == [("raised", "disk"), ("raised", "provider"), ("raised", "provider"),
                                    ("recovered", "disk")]  # fmt: skip
        assert len({each.id for each in desk.teller.told}) == 4
        assert desk.teller.told[0].alert_id == desk.teller.told[3].alert_id
        assert {key.partition("/")[0] for key in desk.rows.rows} == {"open"}


async def test_a_test_is_sent_at_once_and_what_is_wrong_is_returned(clock: VirtualClock) -> None:
    async with Desk(clock) as desk:
        assert await desk.notices.test("ops") == ""
        assert [each.state for each in desk.teller.told] == ["test"]
        desk.teller.error = TransientError("it answered 500")
        assert "it answered 500" in await desk.notices.test("ops")
        with pytest.raises(LookupError, match="no notifier named 'nobody'; known: ops"):
            await desk.notices.test("nobody")


async def test_terms_say_which_alerts_and_how_often(clock: VirtualClock) -> None:
    async with Desk(clock, kinds=("disk",), min_severity="critical", repeat=60.0) as desk:
        desk.alert("provider", severity="critical")
        desk.alert("disk")
        await clock.sleep(1)
        assert desk.teller.told == []
        desk.alert("disk", severity="critical")
        await clock.sleep(130)
        assert [each.text for each in desk.teller.told] == [
            "disk is in trouble", "still: disk is in trouble", "still: disk is in trouble",
        ]  # fmt: skip
        desk.agent.health.recovered("provider")
        desk.agent.health.recovered("disk")
        await clock.sleep(200)
        assert desk.teller.said[3:] == [("recovered", "disk")]


async def test_no_timer_goes_on_after_the_end(clock: VirtualClock) -> None:
    rows = KeptRows()
    async with Desk(clock, rows, repeat=60.0) as desk:
        desk.alert()
        await clock.sleep(1)
    async with Desk(clock, rows, repeat=60.0):  # has a former episode, which is over after a while
        await clock.sleep(1)
    before = dict(rows.rows)

    await clock.sleep(SETTLE + 600)
    assert rows.rows == before
    assert not any(key.startswith("out/") for key in before)


async def test_of_several_nodes_one_sends_the_notices_of_all_each_once(clock: VirtualClock) -> None:
    rows, place = KeptRows(), Place()
    first, second = Desk(clock, rows, place), Desk(clock, rows, place)
    async with first:
        await clock.sleep(1)
        async with second:
            first.alert("disk")
            second.alert("memory")
            await clock.sleep(10)
            assert sorted(first.teller.said) == [("raised", "disk"), ("raised", "memory")]
            first.teller.error = OSError("no way")
            second.alert("provider", what="a")
            await clock.sleep(10)
            await place.give(second.node)  # its node is gone, with an alert that is open
            second.agent.health.recovered("memory")
            await clock.sleep(SETTLE + 60)
            assert second.teller.said == [("raised", "provider"), ("recovered", "memory")]
            assert first.teller.said[2:] == []
            assert rows.rows == {}


async def test_a_store_that_fails_at_the_start_is_told_and_ends_nothing(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: KeptRows) -> Mapping[str, Any]:
        raise TransientError("the disk is away")

    monkeypatch.setattr(KeptRows, "list", broken)
    async with Desk(clock) as desk:
        desk.alert()
        await clock.sleep(1)
        assert desk.teller.said == [("raised", "disk")]


async def test_a_notifier_that_fails_is_tried_again_and_is_itself_no_alert(clock: VirtualClock) -> None:
    async with Desk(clock) as desk:
        alerts = heard(desk.agent, HealthAlert)
        desk.teller.error = OSError("no way")
        desk.alert()
        await clock.sleep(300)
        assert 3 < desk.teller.tries < 40
        (failed,) = desk.events
        assert isinstance(failed, NotifierFailed)
        assert (failed.notifier, failed.reason, failed.waiting) == ("ops", "no way", 1)
        desk.teller.error = None
        await clock.sleep(700)
        assert desk.teller.said == [("raised", "disk")]
        assert isinstance(desk.events[-1], NotifierRestored)
        assert len(alerts) == 1


async def test_a_notifier_that_hangs_holds_up_nobody_and_is_not_asked_twice_at_once(clock: VirtualClock) -> None:
    async with Desk(clock, timeout=5.0) as desk:
        desk.teller.hangs = True
        desk.alert()
        cycles = desk.agent.stats.total_cycles
        desk.agent.wake()
        for _ in range(60):
            await asyncio.sleep(0)
        state = desk.notices.snapshot()[0]
        assert state["waiting"] == 1
        assert desk.agent.stats.total_cycles > cycles
        await clock.sleep(60)
        assert desk.teller.tries == 1
        assert "an earlier attempt hangs" in desk.notices.snapshot()[0]["last_error"]
        desk.teller.hangs = False


async def test_a_notice_is_given_up_in_time_and_the_oldest_of_too_many_goes(clock: VirtualClock) -> None:
    async with Desk(clock, give_up_after=3_600.0) as desk:
        desk.teller.error = OSError("no way")
        for number in range(MOST_WAITING + 3):
            desk.alert("provider", what=str(number))
        await clock.sleep(1)
        state = desk.notices.snapshot()[0]
        assert (state["waiting"], state["given_up"]) == (MOST_WAITING, 3)
        states = [row["state"] for key, row in desk.rows.rows.items() if key.startswith("out/")]
        assert (states.count("waiting"), states.count("failed")) == (MOST_WAITING, 3)
        await clock.sleep(86_400)
        assert desk.notices.snapshot()[0]["given_up"] > 3


async def test_a_notice_that_was_given_up_is_listed_over_a_restart_until_it_is_sent_again_or_forgotten(
    clock: VirtualClock,
) -> None:
    rows = KeptRows()
    async with Desk(clock, rows, give_up_after=60.0) as first:
        first.teller.error = OSError("no way")
        first.alert("runs", session="alice")
        first.alert("disk")
        await clock.sleep(600)
    async with Desk(clock, rows) as second:
        channels = second.agent.attachments.get("channels")
        assert [(row.text, row.state) for row in channels.undelivered()] == [
            ("spar main: warning runs in session alice: runs is in trouble", "failed"),
            ("spar main: warning disk: disk is in trouble", "failed"),
        ]
        await channels.forget("alice")
        (row,) = channels.undelivered()
        channels.holder_of(row.id).retry(row.id)
        await clock.sleep(1)
        assert second.teller.said == [("raised", "disk")]
        assert channels.undelivered() == []
    assert not any(key.startswith("out/") for key in rows.rows)


async def test_a_restart_sends_what_waits_and_goes_on_with_the_same_episodes(clock: VirtualClock) -> None:
    rows = KeptRows()
    first = Desk(clock, rows)
    async with first:
        first.alert("disk")
        await clock.sleep(1)
        first.teller.error = OSError("no way")
        first.alert("provider", what="a")
        first.alert("memory")
        await clock.sleep(1)
    waiting = {row["reply"]["id"] for key, row in rows.rows.items() if key.startswith("out/")}
    assert first.teller.said == [("raised", "disk")]
    assert len(waiting) == 2

    async with Desk(clock, rows) as second:
        second.alert("disk")  # it is open again: the same episode
        await clock.sleep(SETTLE + 60)
        second.agent.health.recovered("disk")
        await clock.sleep(60)
        raised = [each for each in second.teller.told if each.state == "raised"]
        assert {each.id for each in raised} == waiting
        assert sorted(second.teller.said) == [
            ("raised", "memory"), ("raised", "provider"), ("recovered", "disk"), ("recovered", "memory"),
            ("recovered", "provider"),
        ]  # fmt: skip
        assert rows.rows == {}


async def test_a_row_of_another_version_stays_on_disk_and_keeps_no_other_from_being_read(clock: VirtualClock) -> None:
    rows = KeptRows()
    async with Desk(clock, rows) as desk:
        desk.teller.error = OSError("no way")
        desk.alert("disk")
        await clock.sleep(1)
    rows.rows |= {"open/a": {"odd": 1}, "out/a": {"odd": 1}}
    async with Desk(clock, rows) as desk:
        await clock.sleep(SETTLE + 60)
        assert sorted(desk.teller.said) == [("raised", "disk"), ("recovered", "disk")]
    assert rows.rows == {"open/a": {"odd": 1}, "out/a": {"odd": 1}}


async def test_a_notice_that_an_earlier_version_left_is_sent_once(clock: VirtualClock) -> None:
    left = Notice("e1.raised.critical", "disk", "raised", "critical", "spar main: disk", "full", clock.now(), "main")
    rows = KeptRows()
    rows.rows = {f"out/{name}/{left.id}": msgspec.to_builtins(left) for name in ("ops", "gone")}
    async with Desk(clock, rows) as desk:
        await clock.sleep(1)
        assert [each.id for each in desk.teller.told] == [left.id]
    assert rows.rows == {}


async def test_an_alert_that_is_still_open_is_told_again_after_a_restart_too_and_once_each_time(
    clock: VirtualClock,
) -> None:
    rows = KeptRows()
    async with Desk(clock, rows, repeat=60.0) as first:
        first.alert("disk")
        first.alert("disk", severity="critical")
        await clock.sleep(70)
        assert [each.text for each in first.teller.told] == ["disk is in trouble"] * 2 + ["still: disk is in trouble"]

    async with Desk(clock, rows, repeat=60.0) as second:
        second.alert("disk", severity="critical")
        await clock.sleep(130)
        assert [each.text for each in second.teller.told] == ["still: disk is in trouble"] * 2


async def test_a_sensor_or_channel_in_quarantine_is_an_alert_until_it_works(clock: VirtualClock) -> None:
    from spar.events import ChannelQuarantined, ChannelRestored, SensorQuarantined, SensorRestored

    async with Desk(clock) as desk:
        alert_quarantines(desk.agent.core, desk.agent.health)
        publish = desk.agent.events.publish
        publish(ChannelQuarantined(channel="mail", part="send", reason="no"))
        publish(ChannelQuarantined(channel="mail", part="receive", reason="no"))
        publish(SensorQuarantined(sensor="inbox", reason="no"))
        texts = {key: alert.message for key, alert in desk.agent.health.alerts.items()}
        assert texts == {"channel:mail/send": "channel mail cannot send: no",
                         "channel:mail/receive": "channel mail cannot receive: no",
                         "sensor:inbox": "sensor inbox is in quarantine: no"}  # fmt: skip
        publish(ChannelRestored(channel="mail", part="send"))
        publish(SensorRestored(sensor="inbox"))
        assert set(desk.agent.health.alerts) == {"channel:mail/receive"}


async def test_an_approval_that_waits_too_long_is_an_alert(clock: VirtualClock) -> None:
    from spar.events import ApprovalRequested, ApprovalResolved

    class Pending:
        rows: tuple[Approval, ...] = ()

        def pending(self, now: Any) -> list[Approval]:
            return list(self.rows)

    async with Desk(clock) as desk:
        pending = Pending()
        ApprovalAlerts(desk.agent.core, desk.agent.health, pending.pending)
        now = clock.now()
        pending.rows = (Approval("a1", Call("deploy"), "d", now, now + timedelta(days=1)),)
        desk.agent.events.publish(ApprovalRequested(call=Call("deploy")))
        await clock.sleep(890)
        assert desk.agent.health.kinds == set()
        await clock.sleep(20)
        assert desk.agent.health.kinds == {"approval"}
        pending.rows = ()
        desk.agent.events.publish(ApprovalResolved(call=Call("deploy")))
        await clock.sleep(5)
        assert desk.agent.health.kinds == set()
        await clock.sleep(100)
        assert desk.teller.said == [("raised", "approval"), ("recovered", "approval")]


# -- quiet hours


def night(hour: int, minute: int = 0) -> datetime:
    """Return a time of day in the machine's own zone."""
    return datetime(2026, 3, 10, hour, minute).astimezone()


QUIET = QuietHours.parse("22:00-07:00")


async def test_in_quiet_hours_only_what_is_critical_is_told_and_the_rest_follows_as_one_notice(
    clock: VirtualClock,
) -> None:
    clock.set_wall(night(23))
    async with Desk(clock, quiet=QUIET) as desk:
        desk.alert("provider", what="a")
        desk.alert("disk", severity="critical")
        desk.alert("budget")
        desk.agent.health.recovered("budget")
        await clock.sleep(3600)
        assert desk.teller.said == [("raised", "disk")]
        assert desk.notices.snapshot()[0]["is_quiet"]
        assert desk.notices.snapshot()[0]["waiting"] == 3

        await clock.sleep(7 * 3600 + 60)
        assert desk.teller.said == [("raised", "disk"), ("digest", "quiet")]
        digest = desk.teller.told[-1]
        assert digest.title == "spar main: 3 notices of the quiet hours"
        lines = digest.text.splitlines()
        assert [line.partition(": ")[0] for line in lines] == [
            "23:00 spar main", "23:00 spar main", "23:00 spar main",
        ]  # fmt: skip
        assert ["provider is in trouble" in lines[0], "budget is in trouble" in lines[1], "over" in lines[2]] == [
            True
        ] * 3
        assert desk.notices.snapshot()[0]["sent"] == 2
        assert {key.partition("/")[0] for key in desk.rows.rows} == {"open"}
        desk.alert("memory")
        await clock.sleep(1)
        assert desk.teller.said[-1] == ("raised", "memory")


async def test_one_notice_that_waited_is_told_as_it_is_and_not_given_up_for_having_waited(clock: VirtualClock) -> None:
    clock.set_wall(night(23))
    async with Desk(clock, quiet=QUIET, give_up_after=60.0) as desk:
        desk.alert()
        desk.teller.error = OSError("no line")
        await clock.sleep(8 * 3600 + 30)
        assert desk.teller.tries
        desk.teller.error = None
        await clock.sleep(60)
        assert desk.teller.said == [("raised", "disk")]


async def test_what_was_held_when_the_process_died_is_told_in_the_morning_as_one_with_the_same_id(
    clock: VirtualClock,
) -> None:
    rows = KeptRows()
    clock.set_wall(night(23))
    async with Desk(clock, rows, quiet=QUIET) as desk:
        desk.alert("provider", what="a")
        desk.alert("budget")
        await clock.sleep(1)
        assert desk.teller.told == []
    clock.set_wall(night(23) + timedelta(hours=9))
    copies = [KeptRows(), KeptRows()]
    for each in copies:
        each.rows = dict(rows.rows)
    told = []
    for each in copies:
        async with Desk(clock, each, quiet=QUIET) as desk:
            await clock.sleep(1)
            told += desk.teller.told
    assert [notice.state for notice in told] == ["digest", "digest"]
    assert told[0].id == told[1].id


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("22:00-07:00", (22, 23, 0, 6), (7, 12, 21)), ("12:00-14:00", (12, 13), (11, 14, 0))],
)
def test_quiet_hours_may_pass_midnight(text: str, inside: tuple[int, ...], outside: tuple[int, ...]) -> None:
    hours = QuietHours.parse(text)

    assert all(hours.covers(night(hour)) for hour in inside)
    assert not any(hours.covers(night(hour)) for hour in outside)


@pytest.mark.parametrize(
    "text", ["22", "22:00", "25:00-07:00", "22:00-22:00", "22:00-07:00Z", "night", "22:00-07:00-08:00"]
)
def test_hours_that_are_none_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(ConfigError, match=r'notifiers\[0\].quiet.*must be two different times.*"22:00-07:00"'):
        from_mapping({"notifiers": [{"use": "log", "quiet": text}]})
