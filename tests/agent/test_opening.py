"""A part is opened and closed by one task, whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from spar.agent.lifespan import Opening
from spar.testing import Hang, VirtualClock


class Part:
    def __init__(
        self, opening: Callable[[], Awaitable[Any]] | None = None, closing: Callable[[], Awaitable[Any]] | None = None
    ) -> None:
        self.opening, self.closing = opening, closing
        self.log: list[str] = []
        self.tasks: list[Any] = []

    async def __aenter__(self) -> Part:
        self.tasks.append(asyncio.current_task())
        self.log.append("opening")
        if self.opening is not None:
            await self.opening()
        self.log.append("open")
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.tasks.append(asyncio.current_task())
        self.log.append("closing")
        if self.closing is not None:
            await self.closing()
        self.log.append("closed")


async def test_a_part_that_ignores_that_its_opening_was_called_off_is_left(clock: VirtualClock) -> None:
    with Hang(ignore_cancel=True) as hang:
        opening = Opening(Part(opening=hang.wait), "part")

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(opening.open(), 3.0)

        assert clock.elapsed < 6.0


@pytest.mark.parametrize("ignores", [False, True])
async def test_a_part_that_hangs_in_closing_is_cancelled_and_given_up(ignores: bool, clock: VirtualClock) -> None:
    with Hang(ignore_cancel=ignores) as hang:
        opening = Opening(Part(closing=hang.wait), "part")
        await opening.open()

        error = await opening.close(4.0)

        assert str(error) == "part did not close within 4 s"
        assert hang.cancelled >= 1
        assert clock.elapsed == pytest.approx(4.0, abs=1.0)


class Group:
    """Holds a task group open, whose child fails after a while."""

    def __init__(self, *, swallows: bool = False) -> None:
        self.swallows = swallows

    async def __aenter__(self) -> Group:
        self.group = anyio.create_task_group()
        await self.group.__aenter__()
        self.group.start_soon(self.child)
        return self

    async def child(self) -> None:
        await anyio.sleep(1.0)
        raise ValueError("child broke")

    async def __aexit__(self, *exc: Any) -> bool | None:
        try:
            return await self.group.__aexit__(*exc)
        except ExceptionGroup:
            if self.swallows:
                return True
            raise


@pytest.mark.parametrize("swallows", [False, True])
async def test_a_part_that_ends_by_itself_is_told_once_and_can_be_opened_again(
    swallows: bool, clock: VirtualClock
) -> None:
    lost: list[BaseException] = []
    opening = Opening(Group(swallows=swallows), "group", lambda _, error: lost.append(error))
    await opening.open()

    await asyncio.sleep(2.0)

    assert len(lost) == 1
    assert isinstance(lost[0], RuntimeError if swallows else ExceptionGroup)
    assert not opening.is_open
    await opening.open()
    assert opening.is_open
    await asyncio.sleep(2.0)
    assert await opening.close() is None
    assert len(lost) == 2


def test_it_is_not_open_any_more_when_its_event_loop_is_gone() -> None:
    part = Part()
    opening = Opening(part, "part")

    asyncio.run(opening.open())

    assert not opening.is_open
    assert part.log == ["opening", "open", "closing", "closed"]

    async def again() -> None:
        await opening.open()
        assert opening.is_open
        assert await opening.close() is None

    asyncio.run(again())
    assert part.log == ["opening", "open", "closing", "closed"] * 2
