"""A beat of the kernel's: how long after each of its times the event loop comes round to it.

The timers of asyncio are late by up to a millisecond by themselves, because the selector counts in those; a timer
of the kernel that is watched like a socket is not. It counts the beats that nobody came round to in time, and each
of them is accounted for from when it was due, so that a long hold-up is not one late beat but many.

On a machine that others use, most of a delay may be the wait for a processor, which the kernel counts for each
thread. What is left without it says what the process itself is to blame for, by up to a beat too little.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

PERIOD = 0.001  # seconds
_MONOTONIC, _NONBLOCK, _ABSOLUTE = 1, os.O_NONBLOCK, 1
_timespecs = struct.Struct("qqqq")  # the period and the first time, in seconds and nanoseconds each


@dataclass(frozen=True, slots=True)
class Beat:
    """Seconds by which the loop was late; and without its thread's wait for a processor."""

    late: float
    own: float


@contextmanager
def beating() -> Iterator[list[Beat]]:
    """Every beat that the loop has come round to."""
    libc = ctypes.CDLL(None, use_errno=True)
    timer = libc.timerfd_create(_MONOTONIC, _NONBLOCK)
    if timer < 0:
        raise OSError(ctypes.get_errno(), "no timer to be had from the kernel")
    statistics = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
    found: list[Beat] = []
    due, waited = time.monotonic() + PERIOD, seconds_waited(statistics)

    def heard() -> None:
        nonlocal due, waited
        now, before, waited = time.monotonic(), waited, seconds_waited(statistics)
        beats = int.from_bytes(os.read(timer, 8), "little")
        for _ in range(beats):
            late = max(now - due, 0.0)
            found.append(Beat(late, max(late - (waited - before), 0.0)))
            due += PERIOD

    seconds, fraction = divmod(due, 1)
    terms = _timespecs.pack(0, round(PERIOD * 1e9), int(seconds), int(fraction * 1e9))
    libc.timerfd_settime(timer, _ABSOLUTE, terms, None)
    loop = asyncio.get_running_loop()
    loop.add_reader(timer, heard)
    try:
        yield found
    finally:
        loop.remove_reader(timer)
        os.close(timer)
        os.close(statistics)


def seconds_waited(statistics: int) -> float:
    """How long the thread has been ready to run and had no processor, all in all."""
    return int(os.pread(statistics, 64, 0).split()[1]) / 1e9
