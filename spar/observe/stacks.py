"""Stack of a waiting task, down to the innermost frame.

asyncio's own `Task.print_stack` shows the outermost coroutine alone. Its chain of awaits is followed here: through
coroutines and generators, and through objects that drive a coroutine by hand (the phase runner does).
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

#: Awaits that are followed; a stack this deep is shown from its beginning.
DEEPEST = 100


def stack_of_task(task: asyncio.Task[Any]) -> str:
    """The frames in which a task waits, outermost first, as text."""
    frames = [(frame, frame.f_lineno) for frame in _frames(task.get_coro())]
    return "".join(traceback.StackSummary.extract(iter(frames)).format()).rstrip()


def _frames(awaited: Any) -> Iterator[FrameType]:
    for _ in range(DEEPEST):
        if awaited is None:
            return
        frame = _first(awaited, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None:
            yield frame
        driver = None if frame is None else frame.f_locals.get("self")
        awaited = _first(awaited, "cr_await", "gi_yieldfrom", "ag_await") or getattr(driver, "coroutine", None)


def _first(value: Any, *names: str) -> Any:
    return next((found for name in names if (found := getattr(value, name, None)) is not None), None)
