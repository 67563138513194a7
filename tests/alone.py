"""A process that forks others has one thread: what a fork finds half done in another thread stays half done."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Final

#: Seconds in which threads that have ended are gone for the kernel, too; `join` returns a moment before that.
_WITHIN: Final = 30.0


def wait_until_alone(what: str) -> None:
    """Wait until the threads of this process that have ended are gone. Raises: AssertionError if others are left."""
    end = time.monotonic() + _WITHIN
    while len(list(Path("/proc/self/task").iterdir())) > 1:
        names = [thread.name for thread in threading.enumerate()]
        assert time.monotonic() < end, f"{what} must have one thread, and has {names}"
        time.sleep(0.001)
