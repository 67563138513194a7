"""`check_sensor` lets good sensors pass and names the duty that a bad one breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from spar.protocols import SensorContext
from spar.testing import ScriptedSensor, check_sensor
from spar.types import Perception, utcnow
from tests.testing.test_contracts import breaks, deaf


async def test_a_good_sensor_passes() -> None:
    await check_sensor(lambda: ScriptedSensor(["polled"], pushed=["pushed"], every=1.0))


async def test_a_sensor_of_plain_functions_that_leaves_out_what_it_does_not_need_passes() -> None:
    class Plain:
        def poll(self) -> list[Perception]:
            return [Perception("x")]

    await check_sensor(Plain)


async def test_a_sensor_is_given_back_its_cursor_and_what_was_provoked_is_noticed() -> None:
    happened: list[str] = []
    cursors: list[Any] = []

    class Counting:
        every = 0.0

        async def open(self, ctx: SensorContext) -> None:
            self.context, self.at = ctx, ctx.cursor or 0
            cursors.append(ctx.cursor)

        async def poll(self) -> list[Perception]:
            new, self.at = happened[self.at :], len(happened)
            self.context.checkpoint(self.at)
            return [Perception(text) for text in new]

        async def close(self) -> None:
            pass

    await check_sensor(Counting, provoke=lambda: happened.append("x"))

    assert cursors[-1] == 1


class Silent:
    """A sensor that keeps every duty; the bad ones below differ in one point."""

    every: Any = 0.0

    async def open(self, ctx: SensorContext) -> None:
        self.context = ctx

    async def poll(self) -> Any:
        await asyncio.sleep(0)
        return []

    async def close(self) -> None:
        await asyncio.sleep(0)


class NegativeEvery(Silent):
    every = -1


def polled(found: Any) -> Callable[[], Silent]:
    """A sensor whose poll returns what a function does, or raises this."""

    class Polled(Silent):
        async def poll(self) -> Any:
            if isinstance(found, BaseException):
                raise found
            return found()

    return Polled


class EndlessPoll(Silent):
    async def poll(self) -> Any:
        await asyncio.sleep(60)


class DeafPoll(Silent):
    polls = 0

    async def poll(self) -> Any:
        self.polls += 1
        await (asyncio.sleep(0) if self.polls == 1 else deaf())
        return []


class SwallowingPoll(Silent):
    async def poll(self) -> Any:
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            return []
        return []


class TranslatingPoll(Silent):
    async def poll(self) -> Any:
        try:
            await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            raise ValueError("interrupted") from None
        return []


class PoisonedByCancellation(Silent):
    is_locked = False

    async def poll(self) -> Any:
        if self.is_locked:
            raise RuntimeError("locked")
        self.is_locked = True
        await asyncio.sleep(0)
        self.is_locked = False
        return []


class ClosesOnlyWhatOpened(Silent):
    async def close(self) -> None:
        assert self.context


class ClosesOnce(Silent):
    async def close(self) -> None:
        if hasattr(self, "context"):
            del self.context
            self.was_open = True
        elif hasattr(self, "was_open"):
            raise RuntimeError("already closed")


class OpensOnce(Silent):
    async def open(self, ctx: SensorContext) -> None:
        if hasattr(self, "context"):
            raise RuntimeError("already opened")
        self.context = ctx


class HangsWhenClosed(Silent):
    is_closed = False

    async def poll(self) -> Any:
        await asyncio.sleep(60 if self.is_closed else 0)
        return []

    async def close(self) -> None:
        self.is_closed = True


class LeavesATask(Silent):
    async def open(self, ctx: SensorContext) -> None:
        self.context = ctx
        self.task = asyncio.create_task(asyncio.sleep(0.3), name="the forgotten one")


class OddCursor(Silent):
    async def poll(self) -> Any:
        self.context.checkpoint(object())
        return []


class AcceptsText(Silent):
    async def open(self, ctx: SensorContext) -> None:
        await ctx.accept("text")  # type: ignore[arg-type]


class PushesText(Silent):
    async def open(self, ctx: SensorContext) -> None:
        ctx.push("text")  # type: ignore[arg-type]


class Nothing:
    every = 0.0


@pytest.mark.parametrize(
    ("sensor", "duty"),
    [
        (NegativeEvery, r"sensor\.every must be seconds"),
        (Nothing, r"must have poll\(\), or open\(\)"),
        (polled(lambda: None), "must be a list of Perception, found NoneType"),
        (polled(lambda: ["text"]), "must be a list of Perception, found str"),
        (polled(lambda: [Perception("a", id="x"), Perception("b", id="x")]), "different ids, found 'x' twice"),
        (polled(lambda: [Perception("a", at=utcnow().replace(tzinfo=None))]), "aware times"),
        (
            polled(lambda: [Perception("a", priority=7)]),
            r"Perception\.priority must be a number from 0 to 1 or None, found int \(7\)",
        ),
        (polled(lambda: [Perception(object())]), "must be JSON-able"),
        (AcceptsText, "push must be a list of Perception, found str"),
        (PushesText, "push must be a list of Perception, found str"),
        (polled(KeyError("nothing new")), r"poll\(\) must not raise here, but raised KeyError"),
        (polled(SystemExit(3)), r"poll\(\) must not raise here, but raised SystemExit"),
        (polled(asyncio.CancelledError()), "raised CancelledError though nobody cancelled it"),
        (EndlessPoll, r"poll\(\) must come to an end, but did not within 0\.1 s"),
        (DeafPoll, r"must let its cancellation through, but did not end within 0\.03 s"),
        (SwallowingPoll, r"swallowed it and returned \[\]"),
        (TranslatingPoll, "turned it into ValueError"),
        (PoisonedByCancellation, r"poll\(\) after one that was cancelled must not raise"),
        (ClosesOnlyWhatOpened, r"close\(\) of one that never opened must not raise"),
        (ClosesOnce, r"close\(\) a second time must not raise"),
        (OpensOnce, r"open\(\) again after close must not raise"),
        (HangsWhenClosed, r"poll\(\) of a closed one must come to an end"),
        (LeavesATask, "left tasks running: .*the forgotten one"),
        (OddCursor, "checkpoints must be JSON-able"),
    ],
)
async def test_a_bad_sensor_is_caught(sensor: Any, duty: str) -> None:
    await breaks(check_sensor, sensor, duty)


async def test_a_sensor_that_misses_what_was_provoked_is_caught() -> None:
    await breaks(check_sensor, Silent, "noticed nothing", provoke=lambda: None)


async def test_what_a_sensor_accepts_counts_as_noticed() -> None:
    class Webhook(Silent):
        is_closed = False

        async def close(self) -> None:
            self.is_closed = True

        async def post(self) -> None:
            if self.is_closed:
                return
            perception = Perception("posted")
            assert await self.context.accept(perception)
            assert not await self.context.accept(perception)

    hooks: list[Webhook] = []

    def make() -> Webhook:
        hooks.append(Webhook())
        return hooks[-1]

    await check_sensor(make, provoke=lambda: hooks[-1].post())


async def test_a_sensor_that_pushes_after_close_is_caught() -> None:
    sensors: list[SensorContext] = []

    class Restless(Silent):
        async def open(self, ctx: SensorContext) -> None:
            sensors.append(ctx)

    def provoke() -> None:
        sensors[-1].push(Perception("x"))

    await breaks(check_sensor, Restless, "must not push once it is closed", provoke=provoke)


async def test_a_sensor_whose_opening_is_deaf_is_caught() -> None:
    class DeafOpening(Silent):
        async def open(self, ctx: SensorContext) -> None:
            await deaf()

    await breaks(check_sensor, DeafOpening, r"sensor\.open\(\) must let its cancellation through")


async def test_a_sensor_that_breaks_a_duty_is_closed_nevertheless() -> None:
    closed: list[str] = []

    class Noted(Silent):
        async def poll(self) -> Any:
            return ["text"]

        async def close(self) -> None:
            closed.append("closed")

    await breaks(check_sensor, Noted, "found str")

    assert len(closed) == 3  # never opened, cut short, and this one
