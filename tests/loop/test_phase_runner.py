"""A runner keeps its deadlines whatever a phase does, and walks on without what will not end."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import anyio
import pytest

from spar.errors import PhaseTimeoutError
from spar.loop.phase_runner import NEVER, PhaseRunner
from spar.testing import Hang, VirtualClock

LATE, LEFT = (
    "took longer than 1 s and was cancelled",
    "took longer than 1 s, ignored its cancellation and was left behind",
)


class Walk:
    """A runner and what became of the coroutine that it runs."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock, self.runner = clock, PhaseRunner("walk", clock)
        self.ended: list[BaseException | None] = []
        self._end = asyncio.Event()

    def begin(self, main: Coroutine[Any, Any, Any]) -> None:
        self._end.clear()
        self.runner.start(main, self._has_ended)

    async def run(self, main: Coroutine[Any, Any, Any]) -> BaseException | None:
        """What the coroutine ended with; None if well."""
        self.begin(main)
        return await self.end()

    async def end(self) -> BaseException | None:
        await self._end.wait()
        return self.ended[-1]

    async def phase(self, phase: Coroutine[Any, Any, Any], timeout: float = 1.0, grace: float = 0.5) -> Any:
        """To be awaited inside the coroutine, as the loop does."""
        begun = self.clock.monotonic()
        try:
            waiting = phase.send(None)
        except StopIteration as end:
            return end.value
        return await self.runner.finish_phase(phase, waiting, begun, timeout, grace)

    async def late(
        self, phase: Coroutine[Any, Any, Any], timeout: float = 1.0, grace: float = 0.5
    ) -> PhaseTimeoutError:
        with pytest.raises(PhaseTimeoutError) as caught:
            await self.phase(phase, timeout, grace)
        return caught.value

    def _has_ended(self, error: BaseException | None) -> None:
        self.ended.append(error)
        self._end.set()


@pytest.fixture
async def walk(clock: VirtualClock) -> Walk:
    return Walk(clock)


def cancellations() -> int:
    task = asyncio.current_task()
    return task.cancelling()


# -- phases that keep their deadline ----------------------------------------------------------------------


# -- phases that are late ---------------------------------------------------------------------------------


def _in_a_shield(hang: Hang) -> Awaitable[Any]:
    async def wait() -> None:
        while True:
            try:
                await asyncio.shield(task)
                return
            except asyncio.CancelledError:
                continue

    task = asyncio.ensure_future(hang.wait())
    return wait()


async def _in_a_task_group(hang: Hang) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(hang.wait())
        group.create_task(asyncio.sleep(1000))


async def _in_an_anyio_task_group(hang: Hang) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(hang.wait)
        await anyio.sleep(1000)


async def _in_a_shielded_scope(hang: Hang) -> None:
    with anyio.CancelScope(shield=True):
        await hang.wait()


async def _while_cleaning_up(hang: Hang) -> None:
    try:
        await asyncio.sleep(1000)
    finally:
        await hang.wait()


@pytest.mark.parametrize(
    "phase", [_in_a_shield, _in_a_task_group, _in_an_anyio_task_group, _in_a_shielded_scope, _while_cleaning_up]
)
async def test_wherever_a_phase_hangs_the_runner_goes_on(walk: Walk, phase: Callable[[Hang], Any]) -> None:
    with Hang(ignore_cancel=True) as hang:

        async def hung() -> None:
            await phase(hang)

        async def main() -> None:
            assert str(await walk.late(hung())) == LEFT
            assert walk.clock.elapsed == pytest.approx(1.5)
            assert await walk.phase(asyncio.sleep(0.5, "goes on")) == "goes on"

        assert await walk.run(main()) is None
    await walk.clock.sleep(0.1)
    assert not walk.runner.left_behind


async def test_a_phase_that_never_stops_turning_is_late_too() -> None:
    clock = VirtualClock(patience=0.02)  # a loop that never waits moves its time only once patience is over
    walk = Walk(clock)

    async def spin() -> None:
        while True:
            await asyncio.sleep(0)

    async def main() -> None:
        assert str(await walk.late(spin())) == LATE

    assert await walk.run(main()) is None
    clock.close()


# -- what stays whole in the phase that was left behind ---------------------------------------------------


async def test_timeouts_and_scopes_of_the_phase_go_on_in_its_own_task(walk: Walk) -> None:
    seen: list[Any] = []

    async def stubborn() -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            pass  # ignores the deadline
        mine = asyncio.current_task()
        try:
            async with asyncio.timeout(5):
                await asyncio.sleep(100)
        except TimeoutError:
            seen.append(("asyncio.timeout", round(walk.clock.elapsed, 3)))
        with anyio.move_on_after(5) as scope:
            await anyio.sleep(100)
        seen.append(("move_on_after", scope.cancelled_caught, round(walk.clock.elapsed, 3)))
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 1)
        seen.append(("same task", asyncio.current_task() is mine))

    async def main() -> None:
        assert (await walk.late(stubborn())).was_left_behind
        seen.append("the loop is elsewhere")
        await walk.phase(walk.clock.sleep(20), 30)

    assert await walk.run(main()) is None
    assert seen == [
        "the loop is elsewhere",
        ("asyncio.timeout", 6.0),
        ("move_on_after", True, 11.0),
        ("same task", True),
    ]


async def test_a_scope_that_was_open_at_the_hand_over_closes_where_it_was_opened(walk: Walk) -> None:
    seen: list[Any] = []

    async def stubborn() -> None:
        mine = asyncio.current_task()
        with anyio.move_on_after(8) as scope:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(100)
            mine.uncancel()  # as asyncio asks of who swallows a cancellation
            await anyio.sleep(100)
        seen.append((scope.cancelled_caught, round(walk.clock.elapsed, 3), cancellations()))

    async def main() -> None:
        assert (await walk.late(stubborn())).was_left_behind
        await walk.phase(walk.clock.sleep(20), 30)

    assert await walk.run(main()) is None
    assert seen == [(True, 8.0, 0)]
    assert not walk.runner.left_behind


async def test_context_variables_keep_working_on_both_sides_of_a_hand_over(walk: Walk) -> None:
    whose: contextvars.ContextVar[str] = contextvars.ContextVar("whose", default="nobody's")
    seen: list[str] = []
    with Hang(ignore_cancel=True) as hang:

        async def stubborn() -> None:
            token = whose.set("the phase's")
            await hang.wait()
            whose.reset(token)
            seen.append(whose.get())

        async def main() -> None:
            token = whose.set("the loop's")
            assert (await walk.late(stubborn())).was_left_behind
            hang.release()
            await walk.phase(walk.clock.sleep(0.1))
            whose.reset(token)
            seen.append(whose.get())

        assert await walk.run(main()) is None
    assert seen == ["the loop's", "nobody's"]


async def test_what_a_left_phase_returns_or_raises_disturbs_nobody(walk: Walk) -> None:
    complaints: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
    hangs = [Hang(ignore_cancel=True) for _ in range(3)]

    async def stubborn(hang: Hang, error: BaseException | None) -> int:
        await hang.wait()
        if error is not None:
            raise error
        return 7

    async def main() -> None:
        for hang, error in zip(hangs, (None, ValueError("too late"), asyncio.CancelledError()), strict=True):
            assert (await walk.late(stubborn(hang, error))).was_left_behind
        for hang in hangs:
            hang.release()
        assert await walk.phase(asyncio.sleep(0.5, "undisturbed")) == "undisturbed"

    assert await walk.run(main()) is None
    gc.collect()
    assert not complaints
    assert not walk.runner.left_behind


# -- cancelled from outside -------------------------------------------------------------------------------


async def _swallowing(clock: VirtualClock) -> str:
    try:
        await clock.sleep(100)
    except asyncio.CancelledError:
        return "swallowed"
    return "slept"


async def _turning_it_into_an_error(clock: VirtualClock) -> str:
    try:
        await clock.sleep(100)
    except asyncio.CancelledError:
        raise OSError("connection lost") from None
    return "slept"


@pytest.mark.parametrize("phase", [_swallowing, _turning_it_into_an_error])
async def test_a_phase_cannot_keep_a_runner_whose_task_somebody_else_cancelled(walk: Walk, phase: Any) -> None:
    went_on = False

    async def main() -> None:
        nonlocal went_on
        with contextlib.suppress(OSError):
            await walk.phase(phase(walk.clock), 1000)
        went_on = not walk.runner.is_cancelled

    walk.begin(main())
    await walk.clock.sleep(1)
    walk.runner.task.cancel()
    await walk.end()

    assert not went_on


async def test_a_scope_that_another_task_of_the_phase_cancels_is_the_phase_s_own_affair(walk: Walk) -> None:
    async def phase() -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(_cancelling, group.cancel_scope)
            await asyncio.sleep(100)
        return "in time"

    async def main() -> None:
        assert await walk.phase(phase(), 1000) == "in time"
        assert not walk.runner.is_cancelled

    assert await walk.run(main()) is None


async def _cancelling(scope: anyio.CancelScope) -> None:
    scope.cancel()


@pytest.mark.parametrize(("by", "ignoring"), [("cancel", True), ("cancel", False), ("its task", False)])
async def test_a_cancellation_from_outside_is_not_lost_while_the_phase_is_late(
    walk: Walk, by: str, ignoring: bool
) -> None:
    with Hang(ignore_cancel=ignoring) as hang:

        async def cleaning_up() -> None:
            try:
                await walk.clock.sleep(100)
            finally:
                await hang.wait()

        async def main() -> None:
            await walk.phase(cleaning_up(), 1.0, 10.0)

        walk.begin(main())
        await walk.clock.sleep(1.25)
        if by == "cancel":
            walk.runner.cancel()
        else:
            walk.runner.task.cancel()

        assert isinstance(await walk.end(), asyncio.CancelledError)
        assert walk.clock.elapsed <= 11.0
        assert bool(walk.runner.left_behind) == ignoring


async def test_a_cancellation_that_a_phase_makes_and_takes_back_is_its_own_affair(walk: Walk) -> None:
    async def phase() -> str:
        task = asyncio.current_task()
        task.cancel()  # as an old library for timeouts does it, which never takes its count back
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            return "in time"
        return "too late"

    async def main() -> None:
        assert await walk.phase(phase(), 1000) == "in time"
        assert cancellations() == 0
        assert not walk.runner.is_cancelled

    assert await walk.run(main()) is None


async def test_a_runner_cancelled_before_its_first_step_ends_too(walk: Walk) -> None:
    steps: list[int] = []

    async def main() -> None:
        steps.append(1)

    walk.begin(main())
    walk.runner.cancel()

    assert isinstance(await walk.end(), asyncio.CancelledError)
    assert walk.runner.task is None
    assert steps == []


async def test_a_deadline_is_shown_only_while_a_phase_waits(walk: Walk) -> None:
    async def failing() -> None:
        raise ValueError("no")

    async def main() -> None:
        with pytest.raises(ValueError, match="no"):
            await walk.phase(failing())
        assert walk.runner.deadline == NEVER
        assert await walk.phase(asyncio.sleep(0.5, 7)) == 7
        assert walk.runner.deadline == NEVER

    assert await walk.run(main()) is None


async def test_cancelling_or_abandoning_a_runner_that_does_not_run_does_nothing(walk: Walk) -> None:
    walk.runner.cancel()
    walk.runner.abandon()

    async def main() -> None:
        assert await walk.phase(asyncio.sleep(0.5, 7)) == 7

    assert await walk.run(main()) is None


# -- abandoned --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("steps", [("cancel", "abandon"), ("abandon", "cancel")], ids=" then ".join)
async def test_an_abandoned_phase_is_left_at_once_also_when_its_runner_is_cancelled(
    walk: Walk, steps: tuple[str, ...]
) -> None:
    with Hang(ignore_cancel=True) as hang:

        async def main() -> None:
            await walk.phase(hang.wait(), 1000, 1000)

        walk.begin(main())
        await walk.clock.sleep(1)
        for step in steps:
            getattr(walk.runner, step)()
        assert isinstance(await walk.end(), asyncio.CancelledError)
        assert (hang.waiting, walk.clock.elapsed) == (1, pytest.approx(1))


async def test_an_abandoned_runner_never_takes_another_step(walk: Walk) -> None:
    steps: list[str] = []
    with Hang(ignore_cancel=True) as hang:

        async def main() -> None:
            try:
                await hang.wait()  # not in a phase
                steps.append("went on")
            finally:
                steps.append("was closed")

        walk.begin(main())
        await walk.clock.sleep(1)
        walk.runner.abandon()
        assert await walk.end() is None
        assert walk.runner.task is None
        assert len(walk.runner.left_behind) == 1

        other = asyncio.Event()
        walk.begin(_setting(other))
        assert await walk.end() is None
        assert steps == ["was closed"], "its end came before another ran in its place"
    await walk.clock.sleep(0.1)

    assert steps == ["was closed"]
    assert len(walk.ended) == 2
    assert not walk.runner.left_behind


async def _setting(event: asyncio.Event) -> None:
    event.set()


# -- nothing is leaked, and everything ends ---------------------------------------------------------------


async def test_a_thousand_hand_overs_leak_nothing(walk: Walk) -> None:
    class Canary:
        pass

    canaries: list[weakref.ref[Canary]] = []
    hang = Hang(ignore_cancel=True)
    threads, tasks = set(threading.enumerate()), len(asyncio.all_tasks())

    async def stubborn(canary: Canary) -> Canary:
        await hang.wait()
        return canary

    async def main() -> None:
        for _ in range(1000):
            canary = Canary()
            canaries.append(weakref.ref(canary))
            assert (await walk.late(stubborn(canary), 0.001, 0.001)).was_left_behind
            del canary
        assert len(walk.runner.left_behind) == 1000

    assert await walk.run(main()) is None
    hang.release()
    await walk.clock.sleep(1)
    gc.collect()

    assert not walk.runner.left_behind
    assert len(asyncio.all_tasks()) == tasks
    assert not set(threading.enumerate()) - threads  # those of earlier tests may have ended meanwhile
    assert [canary() for canary in canaries if canary() is not None] == []


@pytest.mark.process
def test_a_program_ends_whose_sense_swallows_its_cancellation() -> None:
    program = """
import asyncio
from spar import Agent

async def sense():
    try:
        await asyncio.sleep(1000)
    except asyncio.CancelledError:
        return []

async def main():
    await Agent(sense=sense).start()
    await asyncio.sleep(0.1)

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False, text=True)
    assert done.returncode == 0


def test_a_runner_ends_when_its_event_loop_is_shut_down() -> None:
    ended: list[Any] = []
    tidied: list[str] = []

    async def forgetful() -> None:
        clock = VirtualClock()
        runner = PhaseRunner("forgotten", clock)

        async def phase() -> None:
            try:
                await asyncio.sleep(1000)
            finally:
                tidied.append("phase")

        async def main() -> None:
            work = phase()
            await runner.finish_phase(work, work.send(None), clock.monotonic(), 10_000, 0.5)

        runner.start(main(), ended.append)
        await asyncio.sleep(1)

    asyncio.run(forgetful())

    assert tidied == ["phase"]
    assert [type(error) for error in ended] == [asyncio.CancelledError]


@pytest.mark.process
@pytest.mark.parametrize(("raised", "status"), [("SystemExit(3)", 3), ("KeyboardInterrupt()", 130)])
def test_the_end_of_the_process_is_raised_through_a_runner(raised: str, status: int) -> None:
    program = f"""
import asyncio
from spar import Agent

async def sense():
    await asyncio.sleep(0.01)
    raise {raised}

async def main():
    async with Agent(sense=sense):
        await asyncio.sleep(30)

try:
    asyncio.run(main())
except KeyboardInterrupt:
    raise SystemExit(130)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=20, check=False, text=True)
    assert done.returncode == status
    assert "Traceback" not in done.stderr
