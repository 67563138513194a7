"""What ends more than the work that raises it, and whether a coroutine is being closed."""

from __future__ import annotations

import asyncio
from typing import Any

#: What ends the process, whoever raises it.
ENDS_PROCESS = (KeyboardInterrupt, SystemExit)


def is_closing(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Tell whether an exception closes the coroutine of this task, which must then let it through.

    A coroutine is closed from outside, while its task does not run. A `GeneratorExit` that comes up while it runs was
    raised by somebody else's code in it, and is an error like any other.
    """
    if not isinstance(error, GeneratorExit):
        return False
    try:
        return task is None or asyncio.current_task() is not task
    except RuntimeError:  # no event loop runs: it is gone, and its tasks with it
        return True
