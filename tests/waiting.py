"""What a test may wait for that comes in its own time."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

import pytest


async def cancelled(task: asyncio.Future[Any]) -> None:
    """Cancel a task and wait until it has ended so."""
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def until(is_so: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait until something is so, in real time, and return it. Raises: AssertionError after so many seconds.

    What takes a coroutine to find out is asked less often.
    """
    ends_at = time.monotonic() + seconds
    while True:
        asked = is_so()
        if found := await asked if (is_long := inspect.iscoroutine(asked)) else asked:
            return found
        assert time.monotonic() < ends_at, f"it did not become so within {seconds:g} s"
        await asyncio.sleep(0.02 if is_long else 0.002)
