"""An event loop whose scheduling follows from a seed: the same seed, the same order of everything.

What asyncio promises is kept: callbacks run in the order in which they were given to `call_soon`, and no step of a
task runs ahead of a callback that was ready before it. What it does not promise is drawn: in which order tasks that
are ready side by side take their steps (a task has one ready step at most), whether a step comes a turn late (as if
another callback had been in the way), and which of two timers of one moment fires first (each is late by less than a
microsecond).

Threads work in real time. The loop lets none of them race with it: before each turn it waits until those that were
begun have ended and the memory's writer has nothing left to do, and takes what they said in the order in which they
were begun. A thread that does not end in `PATIENCE` seconds is not waited for again; from then on the order is not
determined. Neither is what a thread sees of the real clock, nor random identifiers: a trace must name them anew.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from memory import Memory
from spar.errors import SparError

#: Real seconds that a turn of the loop waits for a thread.
PATIENCE = 5.0
#: Where the loop's time begins, whatever the machine's clock says: a float has the same roundings then.
ORIGIN = 1024.0
#: How often a step comes a turn late, and by how many seconds at most a timer does.
LATE_STEPS, LATE_TIMERS = 0.05, 1e-6
#: How often what a dying task begins is dropped, too.
LAST_BREATHS = 3
#: Threads that live as long as what they belong to.
RESIDENT = ("memory-writer",)


class Killed(BaseException):
    """The process dies at this point: not a line of it runs any more."""


class SeededLoop(asyncio.SelectorEventLoop):
    """See the module. `seed` None: everything in asyncio's own order, threads waited for all the same.

    `turns` counts. `killed_at` is the turn in which `Killed` is raised out of `run_until_complete`; `writers` are told
    to come to rest before each turn.
    """

    def __init__(self, seed: int | str | None = None) -> None:
        super().__init__()
        self.turns = 0
        self.killed_at: int | None = None
        self.writers: list[SteadyWriter] = []
        self._dice = None if seed is None else random.Random(f"{seed}/order")
        self._number = itertools.count().__next__
        self._numbers: weakref.WeakKeyDictionary[asyncio.Future[Any], int] = weakref.WeakKeyDictionary()
        self._home = threading.get_ident()
        self._strangers = set(threading.enumerate())
        self._said: list[tuple[int, asyncio.Handle]] = []
        self._at_turns: dict[int, Callable[[], object]] = {}

    def time(self) -> float:
        """A `VirtualClock` that takes hold of the loop starts from here."""
        return ORIGIN

    def at_turn(self, turn: int, act: Callable[[], object]) -> None:
        """Do something between two turns of the loop, when no callback runs."""
        self._at_turns[turn] = act

    # -- what asyncio leaves open

    def create_task(self, coro: Any, **more: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = super().create_task(coro, **more)
        self._numbers[task] = self._number()
        return task

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        late = 0.0 if self._dice is None else self._dice.random() * LATE_TIMERS
        return super().call_at(when + late, callback, *args, context=context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> asyncio.Handle:
        if threading.get_ident() == self._home:
            return super().call_soon_threadsafe(callback, *args, context=context)
        self._check_closed()
        handle = asyncio.Handle(callback, args, self, context)
        # The kernel numbers threads as they begin.
        self._said.append((threading.get_native_id(), handle))
        self._write_to_self()
        return handle

    def _run_once(self) -> None:
        self.turns += 1
        if act := self._at_turns.pop(self.turns, None):
            act()
        self._wait_for_threads()
        if self.killed_at is not None and self.turns >= self.killed_at:
            raise Killed
        super()._run_once()

    def _process_events(self, event_list: Any) -> None:
        super()._process_events(event_list)
        self._draw()

    def _draw(self) -> None:
        """Give the steps of tasks that stand side by side another order."""
        if self._dice is None or not self._ready:
            return
        ready = list(self._ready)
        self._ready.clear()
        for is_step, handles in itertools.groupby(ready, lambda handle: _task_of(handle) is not None):
            group = list(handles)
            if is_step:
                # By their age first: the order in which a set of tasks was gone through is not the same every time.
                group.sort(key=lambda handle: self._numbers.get(_task_of(handle), -1))
                self._dice.shuffle(group)
                group = [self._late(handle) if self._dice.random() < LATE_STEPS else handle for handle in group]
            self._ready.extend(group)

    def _late(self, handle: asyncio.Handle) -> asyncio.Handle:
        return asyncio.Handle(self._ready.append, (handle,), self)

    # -- threads

    def _wait_for_threads(self) -> None:
        for thread in threading.enumerate():
            if thread not in self._strangers and thread.name not in RESIDENT:
                thread.join(PATIENCE)
                if thread.is_alive():
                    self._strangers.add(thread)
        for writer in self.writers:
            writer.rest()
        if self._said:
            said, self._said = self._said, []
            self._ready.extend(handle for _, handle in sorted(said, key=lambda each: each[0]))


class SteadyWriter:
    """Waits for the writer of a memory; and holds it up, as a slow disk does: what is accepted then stays in the queue.

    It knows the inside of the memory, for nothing public says that everything was answered.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._gate: threading.Event | None = None
        self._seen: tuple[Any, int] = (None, 0)

    def rest(self) -> None:
        """Return when all that was accepted is committed and everybody who waited for it was told."""
        writer = self._writer or self._seen[0]  # a memory forgets its file before that is closed
        if writer is None or self._gate is not None:
            return
        if writer.queue.is_closing:
            self._join(writer)
            return
        if self._seen == (writer, writer.queue.accepted):
            return
        # A second unit after the first has run is in a later group, and a group is answered before the next begins.
        for _ in range(2):
            if not self._passed(writer, threading.Event()):
                self._join(writer)
                return
        until = time.monotonic() + PATIENCE
        while writer.queue.items and time.monotonic() < until:
            time.sleep(0)
        self._seen = (writer, writer.queue.accepted)

    def hold(self) -> None:
        """Let nothing be committed until `go_on`."""
        self.rest()
        writer = self._writer
        if writer is None or self._gate is not None:
            return
        gate, begun = threading.Event(), threading.Event()

        def wait(connection: Any) -> None:
            begun.set()
            gate.wait()

        try:
            writer.offer(wait)
        except SparError:  # it is closing
            return
        self._gate = gate
        begun.wait(PATIENCE)

    def go_on(self) -> None:
        gate, self._gate = self._gate, None
        if gate is not None:
            gate.set()

    def drop(self) -> None:
        """Let go of the file as the kernel does when a process has died; the folder was copied before."""
        opened, writer = self.memory._opened, self._writer
        if opened is None or writer is None:
            return
        if opened._readers is not None:
            opened._readers.close()
        writer.queue.close(PATIENCE)
        self.go_on()
        self._join(writer)

    @property
    def _writer(self) -> Any:
        return None if self.memory._opened is None else self.memory._opened._writer

    @staticmethod
    def _passed(writer: Any, passed: threading.Event) -> bool:
        """Whether a unit of work that does nothing has run; False when the writer is about to end."""
        try:
            while not writer.offer(lambda connection: passed.set()):
                time.sleep(0.001)
        except SparError:
            return False
        return passed.wait(PATIENCE)

    @staticmethod
    def _join(writer: Any) -> None:
        """Wait until the thread of this writer has ended."""
        for thread in threading.enumerate():
            if getattr(getattr(thread, "_target", None), "__self__", None) is writer:
                thread.join(PATIENCE)


@contextmanager
def running(loop: SeededLoop) -> Iterator[SeededLoop]:
    """A loop to run things in, closed at the end with all that is left in it, as if the process had ended.

    The garbage of cycles is collected afterwards and not in between: when depends on the history of the process.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield loop
    finally:
        _forget(loop)
        if was_enabled:
            gc.enable()


def _forget(loop: SeededLoop) -> None:
    """Drop what still runs in a loop, unheard: what its coroutines do in their last breath is of no account."""
    hook, sys.unraisablehook = sys.unraisablehook, lambda unraisable: None
    loop.set_exception_handler(lambda loop, context: None)
    asyncio._set_running_loop(loop)  # what they begin then belongs to it, and is dropped with it
    dropped: set[asyncio.Task[Any]] = set()
    try:
        # Outside of a task no timeout begins, so that a coroutine which was to be awaited within one never is.
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            for _ in range(LAST_BREATHS):
                tasks = asyncio.all_tasks(loop) - dropped
                for task in sorted(tasks, key=lambda each: loop._numbers.get(each, -1)):
                    task._log_destroy_pending = False  # type: ignore[attr-defined]
                    try:
                        task.get_coro().close()  # type: ignore[union-attr]
                    except BaseException:  # it is dead, whatever it says
                        pass
                dropped |= tasks
            asyncio._set_running_loop(None)
            loop._ready.clear()
            loop._scheduled.clear()
            loop.close()
            gc.collect()  # also what an earlier process left: a coroutine that never began says so when it goes
    finally:
        asyncio._set_running_loop(None)
        sys.unraisablehook = hook


def _task_of(handle: asyncio.Handle) -> Any:
    """The task whose next step a handle is; None for any other callback."""
    callback = handle._callback
    owner = getattr(callback, "__self__", None)
    return owner if isinstance(owner, asyncio.Task) and getattr(callback, "__name__", "") != "cancel" else None
