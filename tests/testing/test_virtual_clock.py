"""Time of a running loop moves when nothing else can happen, for everybody in it, and only then."""

from __future__ import annotations

import asyncio
import math
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio
import anyio.to_thread
import pytest
import uvloop

from spar.clock import Clock
from spar.testing import VirtualClock
from tests.effort import hang_guard

START = datetime(2026, 1, 1, tzinfo=UTC)


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run it in a loop of its own, where an hour is not waited for."""
    with hang_guard():
        asyncio.run(main)


@pytest.mark.parametrize("duty", [name for name in vars(Clock) if not name.startswith("_")])
async def test_it_is_a_clock_as_the_port_says(clock: VirtualClock, duty: str) -> None:
    assert hasattr(clock, duty)


# -- an hour passes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("years", [0.6, 5, 100])
async def test_timers_still_fire_after_years(clock: VirtualClock, years: float) -> None:
    await clock.sleep(years * 365 * 86_400)
    before = clock.elapsed

    for _ in range(10):
        await clock.sleep(0.1)

    assert clock.elapsed - before == pytest.approx(1.0, abs=1e-5)


async def test_the_loop_and_the_clock_agree(clock: VirtualClock) -> None:
    loop = asyncio.get_running_loop()
    real = loop.time()

    assert clock.monotonic() == real
    await clock.sleep(7)

    assert loop.time() == clock.monotonic() == anyio.current_time()


@pytest.mark.parametrize(
    "wait",
    [
        pytest.param(lambda: asyncio.sleep(90), id="asyncio.sleep"),
        pytest.param(lambda: anyio.sleep(90), id="anyio.sleep"),
        pytest.param(lambda: asyncio.wait([asyncio.Future()], timeout=90), id="asyncio.wait"),
    ],
)
async def test_waiting_that_knows_nothing_of_the_clock_is_virtual_too(clock: VirtualClock, wait: Any) -> None:
    await wait()

    assert clock.elapsed == 90.0


async def test_a_timeout_that_is_kept_does_not_move_time(clock: VirtualClock) -> None:
    async with asyncio.timeout(30):
        await clock.sleep(1)

    await asyncio.sleep(0)

    assert clock.elapsed == 1.0


async def test_sleeping_for_nothing_lets_others_run_and_takes_no_time(clock: VirtualClock) -> None:
    order: list[str] = []

    async def other() -> None:
        order.append("other")

    task = asyncio.create_task(other())
    await clock.sleep(0)
    order.append("self")
    await task

    assert order == ["other", "self"]
    assert clock.elapsed == 0.0


# -- callbacks --------------------------------------------------------------------------------------------


async def test_a_callback_may_ask_for_another_one(clock: VirtualClock) -> None:
    seen: list[float] = []

    def tick() -> None:
        seen.append(clock.elapsed)
        if len(seen) < 4:
            clock.call_at(clock.monotonic() + 1, tick)

    clock.call_at(clock.monotonic() + 1, tick)
    await clock.sleep(10)

    assert seen == [1.0, 2.0, 3.0, 4.0]


# -- the wall ---------------------------------------------------------------------------------------------


async def test_the_wall_clock_jumps_and_monotonic_does_not(clock: VirtualClock) -> None:
    await clock.sleep(60)

    clock.jump_wall(-3600)
    assert clock.now() == START + timedelta(seconds=60 - 3600)
    clock.set_wall(datetime(2030, 5, 1, tzinfo=UTC))
    await clock.sleep(1)

    assert clock.now() == datetime(2030, 5, 1, 0, 0, 1, tzinfo=UTC)
    assert clock.elapsed == 61.0


async def test_the_start_can_be_chosen_in_any_zone() -> None:
    with VirtualClock(start=datetime.fromisoformat("2027-03-28T01:59:59+01:00")) as clock:
        await clock.sleep(1)

        assert clock.now() == datetime(2027, 3, 28, 1, tzinfo=UTC)
        assert clock.now().tzinfo is UTC


def test_a_naive_wall_clock_is_refused() -> None:
    with pytest.raises(ValueError, match="aware datetime"):
        VirtualClock(start=datetime(2026, 1, 1))


async def test_identifiers_are_unique_and_sorted_by_virtual_time(clock: VirtualClock) -> None:
    ids = [clock.new_id() for _ in range(70_000)]  # more than a moment's counter holds
    clock.jump_wall(-3600)
    ids.append(clock.new_id())
    await clock.sleep(3600)
    ids.append(clock.new_id())

    assert len(set(ids)) == len(ids)
    assert sorted(ids) == ids
    assert {len(item) for item in ids} == {26}
    assert int(ids[-1][:16], 16) == int((START.timestamp() + 3600) * 1e9)


# -- advancing by hand ------------------------------------------------------------------------------------


async def test_without_autojump_time_moves_only_by_advance() -> None:
    with VirtualClock(autojump=False) as clock:
        sleeper = asyncio.create_task(clock.sleep(10))
        for _ in range(100):
            await asyncio.sleep(0)
        assert clock.elapsed == 0.0

        await clock.advance(9.5)
        assert clock.elapsed == 9.5
        assert not sleeper.done()
        await clock.advance(0.5)

        assert sleeper.done()
        assert clock.elapsed == 10.0


@pytest.mark.parametrize("autojump", [True, False])
async def test_advance_runs_everything_that_is_due_and_what_follows_from_it(autojump: bool) -> None:
    with VirtualClock(autojump=autojump) as clock:
        seen: list[tuple[str, float]] = []

        async def every_second(name: str) -> None:
            while True:
                await clock.sleep(1)
                await asyncio.sleep(0)
                seen.append((name, clock.elapsed))

        task = asyncio.create_task(every_second("a"))
        await clock.advance(3)
        task.cancel()

        assert seen == [("a", 1.0), ("a", 2.0), ("a", 3.0)]
        assert clock.elapsed == 3.0


async def test_two_may_advance_at_once_and_each_stops_at_its_own_time() -> None:
    with VirtualClock(autojump=False) as clock:
        seen: list[float] = []

        async def advance(seconds: float) -> None:
            await clock.advance(seconds)
            seen.append(clock.elapsed)

        await asyncio.gather(advance(5), advance(2), advance(2), advance(0))

        assert seen == [0.0, 2.0, 2.0, 5.0]


async def test_a_cancelled_advance_no_longer_moves_time() -> None:
    with VirtualClock(autojump=False) as clock:
        with clock.working():  # keeps time still until the advance is cancelled
            advance = asyncio.create_task(clock.advance(100))
            await asyncio.sleep(0)
            advance.cancel()
            await asyncio.wait([advance])
        await clock.advance(1)

        assert clock.elapsed == 1.0


@pytest.mark.parametrize("seconds", [-1.0, math.inf, math.nan])
async def test_time_is_not_advanced_by_what_is_no_duration(clock: VirtualClock, seconds: float) -> None:
    with pytest.raises(ValueError, match="advanced"):
        await clock.advance(seconds)


# -- what is real: files, threads, loops that never idle ----------------------------------------------------


async def test_a_loopback_conversation_takes_no_time(clock: VirtualClock) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, asyncio.timeout(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in range(50):
            writer.write(b"%d\n" % number)
            assert await reader.readline() == b"%d\n" % number
        writer.close()
        await writer.wait_closed()

    assert clock.elapsed == 0.0


async def test_a_file_that_becomes_ready_is_waited_for_when_there_is_no_timer(clock: VirtualClock) -> None:
    here, there = socket.socketpair()
    here.setblocking(False)
    writer = threading.Timer(0.02, lambda: there.send(b"x"))
    writer.start()

    with here, there:
        received = await asyncio.get_running_loop().sock_recv(here, 1)
        writer.join()

    assert received == b"x"
    assert clock.elapsed == 0.0


async def test_time_waits_for_a_working_thread(clock: VirtualClock) -> None:
    async with asyncio.timeout(5):
        with clock.working():
            product = await anyio.to_thread.run_sync(lambda: time.sleep(0.03) or "done")

    assert product == "done"
    assert clock.elapsed == 0.0


async def test_time_waits_for_the_loops_own_executor(clock: VirtualClock) -> None:
    async with asyncio.timeout(5):
        await asyncio.to_thread(time.sleep, 0.03)
        addresses = await asyncio.get_running_loop().getaddrinfo("localhost", 80)

    assert addresses
    assert clock.elapsed == 0.0


async def test_a_thread_that_never_ends_is_waited_for_once() -> None:
    release = threading.Event()
    with hang_guard(), VirtualClock(patience=0.1) as clock:
        started = time.monotonic()

        async def hang() -> None:
            with clock.working():
                await anyio.to_thread.run_sync(release.wait, abandon_on_cancel=True)

        task = asyncio.create_task(hang())
        for _ in range(1000):
            await clock.sleep(1)
        release.set()
        await task

        assert time.monotonic() - started >= 0.1

    assert clock.elapsed == 1000.0


def sums(release: threading.Event, seconds: float) -> str:
    """Occupy a processor for so long, or until somebody wants no more."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not release.is_set():
        sum(range(10_000))
    return "done"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what threads wait for")
async def test_a_thread_that_only_wants_for_a_processor_is_waited_for_beyond_patience() -> None:
    with hang_guard(), VirtualClock(patience=0.05) as clock:
        async with asyncio.timeout(5):
            product = await asyncio.to_thread(sums, threading.Event(), 0.5)

    assert product == "done"
    assert clock.elapsed == 0.0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what processes wait for")
async def test_a_process_that_a_thread_waits_for_is_waited_for_while_it_works() -> None:
    work = "import time; t = time.process_time()\nwhile time.process_time() < t + 0.5: pass"
    with hang_guard(), VirtualClock(patience=0.2) as clock:
        async with asyncio.timeout(5):
            await asyncio.to_thread(subprocess.run, [sys.executable, "-c", work], check=True)

    assert clock.elapsed == 0.0


async def test_a_thread_that_occupies_a_processor_for_ever_is_waited_for_once() -> None:
    release = threading.Event()
    with hang_guard(), VirtualClock(patience=0.01) as clock:
        task = asyncio.create_task(asyncio.to_thread(sums, release, 60.0))
        for _ in range(100):
            await clock.sleep(1)
        release.set()
        await task

    assert clock.elapsed == 100.0


async def test_time_goes_by_though_the_loop_never_waits() -> None:
    with VirtualClock(patience=0.02) as clock:

        async def spin() -> None:
            while True:
                await asyncio.sleep(0)

        task = asyncio.create_task(spin())
        await clock.sleep(10)
        task.cancel()

        assert clock.elapsed == 10.0


async def test_a_burst_of_ready_work_does_not_move_time(clock: VirtualClock) -> None:
    asyncio.get_running_loop().call_later(1, lambda: None)
    before = clock.monotonic()

    for _ in range(3000):
        await asyncio.sleep(0)

    assert clock.monotonic() == before


FOREVER = """
import asyncio
from spar.testing import VirtualClock
async def main():
    VirtualClock().now()
    await asyncio.Event().wait()
try:
    asyncio.run(main())
except RuntimeError as error:
    print(error)
"""


def test_a_loop_that_would_wait_forever_says_who_waits() -> None:
    # A process of its own: only with one thread is it sure that nothing can happen.
    done = subprocess.run([sys.executable, "-c", FOREVER], capture_output=True, text=True, timeout=30, check=True)

    assert "would wait forever: no timer, no I/O, no thread" in done.stdout
    assert "Task-1 at <string>:6" in done.stdout


# -- taking hold and letting go -----------------------------------------------------------------------------


async def test_a_clock_made_in_async_code_takes_hold_at_once() -> None:
    clock = VirtualClock()

    await asyncio.sleep(3600)

    assert clock.elapsed == 3600.0


def test_a_clock_made_outside_takes_hold_at_its_first_use() -> None:
    clock = VirtualClock()

    async def main() -> None:
        await clock.sleep(3600)

    run(main())

    assert clock.elapsed == 3600.0


def test_a_clock_goes_on_in_the_next_loop() -> None:
    clock = VirtualClock()

    async def main() -> None:
        async with asyncio.timeout(5):
            await clock.sleep(4)

    for _ in range(3):
        run(main())

    assert clock.elapsed == 12.0
    assert clock.now() == START + timedelta(seconds=12)


def test_the_loop_is_itself_again_after_the_block() -> None:
    async def main() -> None:
        loop: Any = asyncio.get_running_loop()
        selector, resolution = loop._selector, loop._clock_resolution
        async with VirtualClock() as clock:
            assert loop._selector is not selector
            await clock.sleep(100)
            inside = loop.time()
        assert loop._selector is selector
        assert loop._clock_resolution == resolution
        assert loop.time() >= inside  # never back
        started = time.monotonic()
        await asyncio.sleep(0.02)
        assert time.monotonic() - started >= 0.019

    run(main())


def test_pending_timers_keep_their_remaining_time_when_the_clock_lets_go() -> None:
    async def main() -> None:
        with VirtualClock() as clock:
            task = asyncio.create_task(clock.sleep(1000.02))
            await clock.sleep(1000)
        await task

    run(main())


async def test_a_closed_clock_stands_still_and_refuses_to_wait() -> None:
    with VirtualClock() as clock:
        await clock.sleep(5)
    clock.close()

    assert clock.now() == START + timedelta(seconds=5)
    with pytest.raises(RuntimeError, match="was closed"):
        await clock.sleep(1)


async def test_a_closed_clock_can_be_entered_again() -> None:
    clock = VirtualClock()
    for _ in range(2):
        with clock:
            await clock.sleep(5)

    assert clock.elapsed == 10.0


async def test_a_second_clock_on_a_loop_is_refused(clock: VirtualClock) -> None:
    await clock.sleep(1)

    with pytest.raises(RuntimeError, match="already has a VirtualClock"):
        await VirtualClock().sleep(1)


async def test_one_clock_for_two_loops_is_refused(clock: VirtualClock) -> None:
    await clock.sleep(1)

    def elsewhere() -> None:
        asyncio.run(clock.sleep(1))

    with clock.working(), pytest.raises(RuntimeError, match="another event loop"):
        await anyio.to_thread.run_sync(elsewhere)


def test_a_loop_that_waits_in_its_own_way_is_refused_with_a_reason() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"default event loop, found uvloop\.Loop"):
            await VirtualClock().sleep(1)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def test_it_works_under_anyio_and_in_debug_mode() -> None:
    async def main() -> float:
        clock = VirtualClock()
        async with anyio.create_task_group() as group:
            group.start_soon(clock.sleep, 60)
            group.start_soon(anyio.sleep, 90)
        return clock.elapsed

    assert anyio.run(main, backend_options={"debug": True}) == 90.0


async def test_other_threads_may_read_the_time(clock: VirtualClock) -> None:
    await clock.sleep(60)

    with clock.working():
        read = await anyio.to_thread.run_sync(lambda: (clock.now(), clock.monotonic()))

    assert read == (clock.now(), clock.monotonic())
