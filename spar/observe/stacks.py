"""Stack of a waiting task, down to the innermost frame.

asyncio's own `Task.print_stack` shows only the outermost coroutine. This module follows the chain of awaits: through
coroutines and generators, and through objects that drive a coroutine by hand, as the phase runner does.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any

#: Most awaits that are followed; a deeper stack is shown from its beginning.
DEEPEST = 100


def stack_of_task(task: asyncio.Task[Any]) -> str:
    """Return the frames in which a task waits as text, the outermost first."""
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
    return next((member for name in names if (member := getattr(value, name, None)) is not None), None)
