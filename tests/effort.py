"""What a test may say of cost without a clock: how much work was done, counted, and that something does not hang.

A slow machine takes longer for the same work, it does not do more of it. Counted is what this thread does in Python:
each line, each turn of a loop, each call, of a C function too, which counts as one however long it takes. What such
a function does (a search by a regular expression) is out of sight, so all that can be said is that it ends.
"""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Effort:
    """The steps that this thread takes within the block, those of all the tasks that have their turn in it too."""

    def __init__(self) -> None:
        self.steps = 0

    def __enter__(self) -> Effort:
        self._before = sys.gettrace(), sys.getprofile(), gc.isenabled()
        gc.disable()  # it comes when it likes, and those whom it calls back would be counted

        def traced(
            frame: Any, event: str, arg: Any
        ) -> Any:  # a closure: a method for each line takes half as long again
            self.steps += 1
            return traced

        def profiled(frame: Any, event: str, arg: Any) -> None:
            if event == "c_call":
                self.steps += 1

        sys.setprofile(profiled)
        sys.settrace(traced)
        return self

    def __exit__(self, *exc: object) -> None:
        trace, profile, collects = self._before
        sys.settrace(trace)
        sys.setprofile(profile)
        if collects:
            gc.enable()


def effort(work: Callable[[], object]) -> int:
    """How many steps the work takes once everything that is only done the first time is done."""
    work()
    with Effort() as counted:
        work()
    return counted.steps


def growth(work: Callable[[int], object], size: int) -> float:
    """How many times as many steps it takes to do twice as much: about 2 if they grow with it, 4 with its square."""
    work(1)
    with Effort() as once:
        work(size)
    with Effort() as twice:
        work(2 * size)
    return twice.steps / once.steps


@contextmanager
def hang_guard(seconds: float = 60.0) -> Iterator[None]:
    """Fail if the block does not end at all. No measure of speed: much more than it takes on the slowest machine."""

    def bark(*args: Any) -> None:
        pytest.fail(f"hang guard: after {seconds:g} s it is not over, as if it never would be")

    before = signal.signal(signal.SIGALRM, bark)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
