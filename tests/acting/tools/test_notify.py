"""Telling people through several ways, and not too often."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from acting.tools.notify import NotifyTool
from spar.errors import ConfigError, PermanentError, TransientError
from spar.events import Event
from spar.hooks import Hooks
from spar.protocols import Host
from spar.testing import RecordingNotifier, VirtualClock, check_tool


class Broken:
    """Cannot tell anybody."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    async def notify(self, title: str, text: str, *, urgency: str = "normal") -> None:
        raise self.error


class Kept:
    """Remembers; a plain blocking one that is opened, closed and attached."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str]] = []
        self.life: list[str] = []

    def attach(self, host: Host) -> None:
        self.life.append(f"attached to {host.agent}")

    async def __aenter__(self) -> Kept:
        self.life.append("opened")
        return self

    async def __aexit__(self, *error: object) -> None:
        self.life.append("closed")

    def notify(self, title: str, text: str, *, urgency: str = "normal") -> None:
        self.seen.append((title, text, urgency))


class Quiet:
    def publish(self, event: Event) -> None: ...


def host(clock: VirtualClock) -> Host:
    return Host(agent="main", clock=clock, events=Quiet(), hooks=Hooks(), wake=lambda: None)


async def test_by_default_the_log_is_told(caplog: pytest.LogCaptureFixture) -> None:
    answer = await NotifyTool()(title="disk", text="full")

    assert answer == {"delivered": ["log"], "failed": {}}
    assert [(record.name, record.levelno, record.getMessage()) for record in caplog.records] == [
        ("spar.notify", logging.WARNING, "disk: full")
    ]


async def test_every_way_is_attached_opened_told_and_closed_with_the_tool(clock: VirtualClock) -> None:
    one, other = Kept(), Kept()
    tool = NotifyTool(via=[one, other])

    tool.attach(host(clock))
    async with tool:
        answer = await tool(title="t", text="x", urgency="critical")

    assert one.seen == other.seen == [("t", "x", "critical")]
    assert one.life == other.life == ["attached to main", "opened", "closed"]
    assert answer == {"delivered": ["Kept", "Kept#1"], "failed": {}}


async def test_one_way_that_works_is_enough_and_the_others_are_named() -> None:
    answer = await NotifyTool(via=["log", Broken(TransientError("no line")), Broken(ValueError())])(title="t")

    assert answer == {"delivered": ["log"], "failed": {"Broken": "no line", "Broken#2": "ValueError"}}


@pytest.mark.parametrize(
    ("second", "kind"), [(TransientError("no line"), TransientError), (PermanentError("no line"), PermanentError)]
)
async def test_when_no_way_works_the_call_fails_with_every_reason_for_ever_if_none_ever_will(
    second: Exception, kind: type[Exception]
) -> None:
    with pytest.raises(kind, match="nobody could be told: Broken: no bell; Broken#1: no line"):
        await NotifyTool(via=[Broken(PermanentError("no bell")), Broken(second)])(title="t")


async def test_a_way_that_hangs_does_not_hold_up_the_others(clock: VirtualClock) -> None:
    class Hung:
        async def notify(self, title: str, text: str, *, urgency: str = "normal") -> None:
            await asyncio.Event().wait()

    kept = RecordingNotifier()
    began = clock.monotonic()

    answer = await NotifyTool(via=[Hung(), kept])(title="t")

    assert answer["delivered"] == ["RecordingNotifier"]
    assert clock.monotonic() - began < NotifyTool.timeout


async def test_a_flood_is_held_back_counted_and_told_of(clock: VirtualClock) -> None:
    kept = Kept()
    tool = NotifyTool(via=[kept], per_minute=3)
    tool.attach(host(clock))
    refused = 0
    for _ in range(10):
        try:
            await tool(title="t", text="x")
        except TransientError as error:
            refused += error.retry_after == 60
    await clock.sleep(61)

    await tool(title="t", text="x")
    await tool(title="t", text="x")

    assert refused == 7
    assert [text for _, text, _ in kept.seen] == [
        "x", "x", "x", "x\n(7 earlier messages were suppressed, there were too many)", "x",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"title": ""}, "'title' must not be empty"),
        ({"title": 5}, "'title' must be text"),
        ({"title": "x" * 201}, "'title' must have at most 200"),
        ({"title": "x", "text": None}, "'text' must be text"),
        ({"title": "x", "urgency": "huge"}, "'urgency' must be one of low, normal, critical"),
    ],
)
async def test_wrong_parameters_are_named_and_not_counted(params: dict[str, Any], reason: str) -> None:
    tool = NotifyTool(per_minute=1)

    with pytest.raises(ValueError, match=reason):
        await tool(**params)

    await tool(title="still allowed")


def test_a_notifier_is_made_from_its_options_or_named_by_module_and_class() -> None:
    own = "acting.notifiers:LogNotifier"
    tool = NotifyTool(via=["log", {"use": "webhook", "url": "https://example.org/hook", "timeout": 5}, own])

    assert list(tool._notifiers) == ["log", "webhook", own]


@pytest.mark.parametrize(
    ("via", "path", "reason"),
    [
        ("log", ("via",), "must be a list"),
        (["lgo"], ("via", 0), "no notifier named 'lgo'; known: desktop, log, mail, webhook"),
        (["log", 5], ("via", 1), "a name or a table with 'use', found 5"),
        ([{"url": "x"}], ("via", 0), "a name or a table with 'use'"),
        ([{"use": "webhook"}], ("via", 0), "cannot be made: .*'url'"),
        (
            [{"use": "webhook", "ulr": "x"}],
            ("via", 0, "ulr"),
            "no option 'ulr'; known: url, timeout, secret, headers, private",
        ),
        ([{"use": "webhook", "url": "http://x", "timeout": -1}], ("via", 0, "timeout"), "timeout: .*greater than 0"),
        ([{"use": "webhook", "url": "http://x", "secret": 55}], ("via", 0, "secret"), "valid string, found a int"),
        ([{"use": "webhook", "url": "x"}], ("via", 0, "url"), "must begin with http"),
        ([{"use": "log", "x": 1}], ("via", 0, "x"), "no option 'x'; known: none"),
        (["no.such:Thing"], ("via", 0), "cannot be loaded"),
        (["acting.notifiers:Nothing"], ("via", 0), "cannot be loaded"),
    ],
)
def test_a_notifier_that_cannot_be_made_is_refused_with_its_place(via: Any, path: tuple[Any, ...], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        NotifyTool(via=via)

    assert caught.value.path == path


async def test_it_keeps_the_contract_of_a_tool() -> None:
    await check_tool(NotifyTool, params={"title": "contract"})
