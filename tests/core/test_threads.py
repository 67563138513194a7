"""Blocking code in threads of its owner."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
import time

import pytest

from spar.clock import SystemClock
from spar.errors import TransientError
from spar.testing import Hang
from spar.threads import Threads
from tests.waiting import cancelled, until


@pytest.mark.parametrize("kind", [StopIteration, GeneratorExit])
async def test_what_would_end_the_waiting_coroutine_is_an_ordinary_error(kind: type[BaseException]) -> None:
    def fail() -> None:
        raise kind

    with pytest.raises(RuntimeError, match=kind.__name__):
        await asyncio.wait_for(Threads("probe", SystemClock()).run(fail), 30.0)


async def test_context_variables_are_seen_by_the_function() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="nothing")
    variable.set("something")

    assert await Threads("probe", SystemClock()).run(variable.get) == "something"


async def test_no_more_than_the_limit_run_at_once() -> None:
    threads, lock, running, most = Threads("probe", SystemClock(), limit=2), threading.Lock(), 0, 0

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    await asyncio.gather(*(threads.run(work) for _ in range(8)))

    assert most == 2
    assert threads.left_behind == 0


async def test_cancellation_returns_at_once_and_counts_the_thread_until_it_ends() -> None:
    threads = Threads("probe", SystemClock())
    with Hang(blocking=True) as hang:
        running = asyncio.create_task(threads.run(hang.block))
        await until(lambda: hang.waiting == 1)

        await cancelled(running)
        assert threads.left_behind == 1
    await until(lambda: threads.left_behind == 0)


async def test_too_many_left_behind_refuse_further_work_until_one_ends() -> None:
    threads = Threads("probe", SystemClock(), limit=2)
    with Hang(blocking=True) as hang:
        running = [asyncio.create_task(threads.run(hang.block)) for _ in range(2)]
        await until(lambda: hang.waiting == 2)
        for task in running:
            task.cancel()
        await asyncio.wait(running)

        with pytest.raises(TransientError, match="probe: 2 earlier calls"):
            await threads.run(int)
    await until(lambda: threads.left_behind == 0)
    assert await threads.run(int) == 0


async def test_what_is_cancelled_while_it_waits_for_a_thread_is_never_begun_nor_counted() -> None:
    threads, begun = Threads("probe", SystemClock(), limit=1), []  # type: ignore[var-annotated]
    with Hang(blocking=True) as hang:
        first = asyncio.create_task(threads.run(hang.block))
        await until(lambda: hang.waiting == 1)
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(threads.run(begun.append, "second"), 0.01)
        assert threads.left_behind == 0
    await first

    assert begun == []
    assert await threads.run(int) == 0


def test_it_goes_on_in_another_event_loop_although_a_thread_of_the_first_still_hangs() -> None:
    threads = Threads("probe", SystemClock(), limit=2)
    with Hang(blocking=True) as hang:

        async def leave_one() -> None:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(threads.run(hang.block), 0.02)

        async def another() -> int:
            return await threads.run(int)

        asyncio.run(leave_one())
        assert threads.left_behind == 1
        assert asyncio.run(another()) == 0


def test_a_hung_thread_does_not_keep_the_process_alive() -> None:
    program = """
import asyncio, time
from spar.clock import SystemClock
from spar.threads import Threads

async def main():
    try:
        await asyncio.wait_for(Threads("probe", SystemClock()).run(time.sleep, 600), 0.05)
    except TimeoutError:
        print("left behind")

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)

    assert done.stdout == "left behind\n"


def test_threads_of_a_process_that_is_spar_s_take_short_turns() -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from spar.config.load import load\n"
        "from spar.service.exit_codes import CANNOT_CREATE\n"
        "from spar.service.process import CannotStartError\n"
        "from spar.service.process import run\n"
        "from spar.threads import TURN\n"
        "try:\n"
        "    run(load(environ={'SPAR_SERVICE__STATE_DIR': '/proc/none'}), lambda service: None)\n"
        "except CannotStartError as error:\n"
        "    assert error.code == CANNOT_CREATE, error\n"
        "assert abs(sys.getswitchinterval() - TURN) < 1e-6, sys.getswitchinterval()"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
