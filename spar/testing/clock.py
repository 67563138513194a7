"""Virtual time for an asyncio loop that is already running: an hour of waiting takes milliseconds.

The clock is placed between the loop and its selector. When the loop would wait, real I/O is checked first; if nothing
is ready, time jumps to the next timer. *All* time of that loop is then virtual: `clock.sleep` and `clock.call_at`, but
also `asyncio.sleep`, `asyncio.timeout`, `anyio.fail_after` and `loop.call_later`.

Threads and other processes run in real time. While `clock.working()` is active (`spar.threads` uses it, and this clock
for `loop.run_in_executor`) the loop really waits for them. It waits for up to `patience` seconds in which no thread of
this process, and no process that it started, could run (on Linux; elsewhere up to `patience` seconds). Use it yourself
around a subprocess or a peer in another process. The clock does not virtualise `time.time` or `time.monotonic`.
Source of the idea: pytest-looptime, trio's MockClock with autojump.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any

from spar.clock import Timer

START = datetime(2026, 1, 1, tzinfo=UTC)
#: Seconds (three centuries) from which a timer is no reason to jump: `sleep(inf)` waits for I/O.
NEVER = 1e10
#: Turns of a loop that never idles between two looks at what it has worked.
SPINS = 1024
#: Factor of the patience for what is ready to run, because on a busy machine it waits for a processor.
MOST_PATIENCE = 50
#: Linux's states of a thread that waits only for a processor or a disk.
_BUSY = (b"R", b"D")


class VirtualClock:
    """`spar.clock.Clock` whose time moves only when the event loop has nothing else to do.

    `clock = VirtualClock()` in async code is enough: it attaches to the running loop, and detaches when the loop is
    closed. A clock made elsewhere (in a plain fixture) attaches when it is first used in a running loop. As a context
    manager, sync or async, it detaches at the end of the block; pending timers then keep their remaining time. One
    loop has one clock, and a clock one loop at a time.

    Args:
        start: what `now()` returns at the beginning; an aware datetime.
        autojump: with False time moves only by `advance`, and a loop that waits for a timer really waits.
        patience: how many real seconds to wait for a working thread (from the begin of its work; longer while a thread
            or a process only waits for a processor), and to let a loop spin that never waits, before time moves on
            nevertheless.
    """

    is_virtual = True

    def __init__(self, *, start: datetime = START, autojump: bool = True, patience: float = 0.2) -> None:
        self.autojump = autojump
        self.patience = patience
        self._loop: Any = None  # Any, because the replaced attributes of a loop are not in its public type
        self._is_closed = False
        self._at = self._origin = _aligned(time.monotonic())
        self._wall = _utc(start)
        self._wall_from = self._at
        self._workers: dict[object, float] = {}
        self._stops: list[tuple[float, int, asyncio.Future[None]]] = []
        self._stop_count = itertools.count().__next__
        self._id_lock = threading.Lock()
        self._id_from = int(self._wall.timestamp()) * 10**9
        self._last_id, self._id_tail = 0, secrets.token_hex(3)
        self._attach_if_running()

    # -- the port

    def now(self) -> datetime:
        """Return the virtual wall clock, UTC."""
        if self._loop is None:
            self._attach_if_running()
        return self._wall + timedelta(0, self._at - self._wall_from)

    def monotonic(self) -> float:
        """Return the loop's own `time()`; deadlines of `asyncio` and of this clock can be mixed."""
        if self._loop is None:
            self._attach_if_running()
        return self._at

    async def sleep(self, seconds: float) -> None:
        """Let virtual `seconds` pass; other tasks run meanwhile, also for 0."""
        self._running()
        await asyncio.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], object]) -> Timer:
        """Call back in the loop's thread once `monotonic()` has reached `when`."""
        timer: Timer = self._running().call_at(when, callback)
        return timer

    def new_id(self) -> str:
        """Return an id like `spar.ids.new_id`, by virtual time; later ids sort higher, whatever the wall clock is."""
        with self._id_lock:
            moment = (self._id_from + int(self.elapsed * 1e9)) << 16
            self._last_id = max(self._last_id + 1, moment)
            return f"{self._last_id:020x}{self._id_tail}"

    @contextmanager
    def working(self) -> Iterator[None]:
        """Stop time while something works outside the loop: really wait for it, up to `patience` seconds."""
        self._attach_if_running()
        token = object()
        self._workers[token] = time.monotonic() + self.patience
        try:
            yield
        finally:
            self._workers.pop(token, None)

    # -- for tests

    @property
    def elapsed(self) -> float:
        """Return the virtual seconds since the clock was first used; exact for whole and half seconds."""
        return self._at - self._origin

    async def advance(self, seconds: float) -> None:
        """Let exactly these seconds pass; return once everything due by then has run and the loop is idle."""
        if not 0 <= seconds < NEVER:
            raise ValueError(f"time can only be advanced by 0 to {NEVER:g} seconds, found {seconds!r}")
        reached: asyncio.Future[None] = self._running().create_future()
        stop = (self._at + seconds, self._stop_count(), reached)
        heapq.heappush(self._stops, stop)
        try:
            await reached
        finally:
            if stop in self._stops:  # cancelled: time must not move for it
                self._stops.remove(stop)
                heapq.heapify(self._stops)

    def set_wall(self, at: datetime) -> None:
        """Set the wall clock, like an administrator or a time server; `monotonic` does not move."""
        self._wall, self._wall_from = _utc(at), self._at

    def jump_wall(self, seconds: float) -> None:
        """Move the wall clock forwards or (negative) backwards; `monotonic` does not move."""
        self.set_wall(self.now() + timedelta(seconds=seconds))

    def close(self) -> None:
        """Restore the loop's selector and let its time go on as real time, from where it is. Idempotent.

        Afterwards `now` and `monotonic` stand still, and waiting with this clock is an error.
        """
        self._is_closed = True
        self._release()

    def __enter__(self) -> VirtualClock:
        self._is_closed = False
        self._attach_if_running()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    async def __aenter__(self) -> VirtualClock:
        return self.__enter__()

    async def __aexit__(self, *exc: Any) -> None:
        self.close()

    # -- attaching to a loop

    def _running(self) -> Any:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._attach(loop)
        return loop

    def _attach_if_running(self) -> None:
        if self._loop is None and not self._is_closed and (loop := asyncio._get_running_loop()) is not None:
            self._attach(loop)

    def _attach(self, loop: Any) -> None:
        if self._is_closed:
            raise RuntimeError("this VirtualClock was closed; enter it again, or make a new one")
        if self._loop is not None:
            raise RuntimeError("this VirtualClock drives another event loop; close it there first, or make a new one")
        selector = getattr(loop, "_selector", None)
        if isinstance(selector, _Selector):
            raise RuntimeError("this event loop already has a VirtualClock; share it, or close it first")
        if selector is None or not hasattr(loop, "_scheduled"):
            kind = f"{type(loop).__module__}.{type(loop).__qualname__}, which waits in its own way"
            raise RuntimeError(f"VirtualClock needs asyncio's default event loop, found {kind}")
        elapsed, wall = self._at - self._origin, self._at - self._wall_from
        self._at = _aligned(loop.time())
        self._origin, self._wall_from = self._at - elapsed, self._at - wall
        self._loop = loop
        self._resolution = loop._clock_resolution
        self._selector = selector
        loop._selector = _Selector(self, selector)
        loop.time = lambda: self._at
        loop.run_in_executor = self._run_in_executor
        loop.shutdown_default_executor = self._shutdown_default_executor
        self._move_to(self._at)

    def _release(self) -> None:
        """Detach from the loop. Its time stays continuous: pending timers keep their remaining time."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        for _, _, reached in self._stops:
            reached.cancel()
        self._stops.clear()
        loop._clock_resolution = self._resolution
        for name in ("time", "run_in_executor", "shutdown_default_executor"):
            loop.__dict__.pop(name, None)
        if isinstance(loop._selector, _Selector):
            loop._selector = self._selector
        if not loop.is_closed():
            real = type(loop).time
            ahead = self._at - real(loop)
            loop.time = lambda: real(loop) + ahead

    def _run_in_executor(self, *args: Any) -> Any:
        loop = self._loop
        future = type(loop).run_in_executor(loop, *args)
        token = object()
        self._workers[token] = time.monotonic() + self.patience
        future.add_done_callback(lambda _: self._workers.pop(token, None))
        return future

    async def _shutdown_default_executor(self, *args: Any) -> None:
        loop = self._loop
        self._release()  # the loop ends: joining its threads takes real time
        await type(loop).shutdown_default_executor(loop, *args)

    # -- moving time (called by the selector, in the loop's thread)

    def _move_to(self, when: float) -> None:
        self._at = when
        # A timer is due if it is earlier than time + resolution. After half a year the loop's fixed 1 ns is less than
        # one step of a float, so no timer would ever be due; more than one step would be too early.
        self._loop._clock_resolution = math.ulp(when)

    def _idle(self, selector: Any) -> Any:
        """Handle an idle loop: wait for threads, else let time jump, else really wait."""
        while (left := self._left()) > 0:
            if events := selector.select(left):
                return events
        if self._workers and (events := selector.select(0)):
            return events  # a thread ended meanwhile
        if self._jump():
            return []
        if not self._workers and _is_alone(self._loop, selector):
            raise RuntimeError(self._why_nothing_can_happen())
        return selector.select(None)

    def _left(self) -> float:
        """Return the real seconds for which the loop still waits for working threads; 0 for none."""
        if not self._workers:
            return 0.0
        left = max(tuple(self._workers.values())) - time.monotonic()
        if left <= 0 < left + (MOST_PATIENCE - 1) * self.patience and _is_any_busy():
            return self.patience
        return max(left, 0.0)

    def _jump(self) -> bool:
        """Move to the next timer, or to the next stop of `advance` if that is earlier; return False if there is
        neither."""
        timers = self._loop._scheduled
        due = timers[0]._when if timers else math.inf
        stop = self._stops[0][0] if self._stops else math.inf
        if due <= stop and due - self._at < NEVER and (self.autojump or self._stops):
            self._move_to(max(due, self._at))
            return True
        if not self._stops:
            return False
        self._move_to(max(stop, self._at))
        while self._stops and self._stops[0][0] <= self._at:
            reached = heapq.heappop(self._stops)[2]
            if not reached.done():
                reached.set_result(None)
        return True

    def _why_nothing_can_happen(self) -> str:
        waiting = sorted(_described(task) for task in asyncio.all_tasks(self._loop))
        cause = "no timer" if self.autojump else "time moves only by advance(), which nobody awaits"
        return f"the event loop would wait forever: {cause}, no I/O, no thread; waiting: {'; '.join(waiting[:10])}"


class _Selector:
    """Replacement of the loop's selector; everything except waiting is passed on."""

    def __init__(self, clock: VirtualClock, real: Any) -> None:
        self._clock, self._real = clock, real
        self._spins, self._spinning_since = 0, 0.0

    def select(self, timeout: float | None = None) -> Any:
        events = self._real.select(0)
        if timeout is None or timeout > 0:
            self._spins = 0
            return events or self._clock._idle(self._real)
        # A loop that always has something ready (an agent without an interval, an ignored cancellation) would never
        # let virtual time move, unlike real time. So after `patience` seconds of its processor the next timer is due.
        self._spins += 1
        if self._spins % SPINS == 0 and not events:
            worked = time.thread_time()  # on a busy machine a loop waits for a processor between two turns
            if self._spins == SPINS:
                self._spinning_since = worked
            elif worked - self._spinning_since > self._clock.patience:
                self._spins = 0
                self._clock._jump()
        return events

    def close(self) -> None:
        self._clock._release()
        self._real.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _aligned(seconds: float) -> float:
    """Return the seconds rounded up to 1/1024 s, so that adding whole seconds is exact."""
    return math.ceil(seconds * 1024) / 1024


def _utc(at: datetime) -> datetime:
    if at.tzinfo is None:
        raise ValueError(f"the wall clock needs an aware datetime, found {at!r}; add tzinfo=UTC")
    return at.astimezone(UTC)


def _is_any_busy() -> bool:
    """Return whether another thread, or a process below this one, waits only for a processor or a disk; False where
    the system does not tell."""
    mine, tasks = str(threading.get_native_id()), list(Path("/proc/self/task").glob("*"))
    for task in tasks:  # grows by the processes that the tasks have started
        with suppress(OSError):  # it has ended meanwhile
            if task.name != mine and (task / "stat").read_bytes().rpartition(b") ")[2][:1] in _BUSY:
                return True
            tasks += [Path("/proc", child, "task", child) for child in (task / "children").read_text().split()]
    return False


def _is_alone(loop: Any, selector: Any) -> bool:
    """Return whether nothing outside can wake the loop: no thread, no signal handler, no file except its own pipe."""
    return (
        threading.active_count() == 1 and not getattr(loop, "_signal_handlers", None) and len(selector.get_map()) <= 1
    )


def _described(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    place = f" at {frames[0].f_code.co_filename}:{frames[0].f_lineno}" if frames else ""
    return f"{task.get_name()}{place}"
