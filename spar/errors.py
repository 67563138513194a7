"""Errors that a module may raise, and how any exception becomes a `Fault`.

Exceptions live at borders; inside, a failure is data. `Fault.of` (in `types`) asks this module what an
exception means. A group never hides what it holds: `unwrap` looks through it.
"""

from __future__ import annotations

import functools
import os
import traceback
from collections.abc import Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

#: Frames of an exception that are told, the innermost ones, and the most characters of their text.
TOLD_FRAMES, TOLD_CHARACTERS = 12, 4_000

#: Exceptions that end the process, whoever raises them.
ENDS_PROCESS = (KeyboardInterrupt, SystemExit)

_HOME = __file__.removesuffix("/spar/errors.py")
_PACKAGES = ("spar", "perception", "planning", "acting", "reflection", "memory")
#: Where code lies that is nobody's own: this program's, Python's, that of libraries.
_SHARED = (*(f"{_HOME}/{name}/" for name in _PACKAGES), os.__file__.removesuffix("/os.py"), "<")


class SparError(Exception):
    """Everything that spar itself raises on purpose."""


class TransientError(SparError):
    """It failed now and may well work later.

    Args: retry_after: seconds that the other side asked to be left alone, or None.
    """

    retry_after: float | None = None  # also of a subclass whose constructor does not call this one

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NotReadyError(TransientError):
    """The agent takes no work now: its journal is not open yet or not any more. `retry_after` is None when it stops."""


class PermanentError(SparError):
    """It will fail again in the same way: do not retry."""


class FencedError(PermanentError):
    """Another process has taken the data over: what this one does is no longer kept, and it must stop.

    Args: name: the file; own: the epoch in which this process opened it; found: the one that it has now.
    """

    def __init__(self, name: str, own: int, found: int) -> None:
        self.own, self.found = own, found
        super().__init__(
            f"{name!r} was taken over by another process (it is in epoch {found}, this process in {own}): "
            "nothing is written any more; stop this process and look at the other with: spar status"
        )


class LifecycleError(SparError):
    """The request makes no sense in the state that the agent is in.

    Args: action: what was asked; state: the agent's state; legal: what it may be asked instead.
    """

    def __init__(self, action: str, state: str, legal: tuple[str, ...] = ()) -> None:
        self.action, self.state, self.legal = action, state, legal
        hint = f"; legal now: {', '.join(legal)}" if legal else ""
        super().__init__(f"cannot {action} an agent that is {state}{hint}")


class ConfigError(SparError):
    """The configuration cannot be used; the message names key, value and what is allowed.

    Args: path: where the value stands, e.g. `("rules", 2, "match", "content")`; file and line are found from it.
    """

    def __init__(self, message: str, *, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


class ContractError(SparError, TypeError):
    """A part returned what its port does not allow; the message names the part."""


class PhaseTimeoutError(SparError, TimeoutError):
    """A phase or part ran past its deadline.

    `product` is what it returned between its cancellation and the end of the grace time, if anything;
    `was_left_behind` says that it ignored the cancellation and still runs.
    """

    product: object = None
    was_left_behind: bool = False


class InboxFullError(SparError):
    """The bounded inbox takes no more: the sender must try again later."""


class NoRoomError(InboxFullError):
    """Nothing more can be kept, as on a disk that is full: the sender must try again once there is room."""


class InDoubtError(SparError):
    """The call may or may not have had its effect; nobody here can tell. It must not be repeated blindly."""


class TooLargeError(PermanentError, ValueError):
    """A value is larger than may be kept in its place; nothing of it was kept. The message names the limit."""


class ConflictError(SparError):
    """A row was changed by somebody else meanwhile: read it again."""


def leaves(error: BaseException) -> Iterator[BaseException]:
    """The exceptions that a (nested) group holds, in order; a plain exception is its own only leaf."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def unwrap(error: BaseException) -> BaseException:
    """The one exception that decides what a group means.

    A `PermanentError` anywhere makes the whole permanent; otherwise a group of one is its only leaf,
    and a group of several stays what it is.
    """
    found = list(leaves(error))
    for leaf in found:
        if isinstance(leaf, PermanentError):
            return leaf
    return found[0] if len(found) == 1 else error


def place_of(error: BaseException) -> str:
    """Return where an exception was raised, in the code of whoever wrote the part: `mytools.py:9 in plan`.

    That is the innermost frame that is neither this program's nor a library's, or the innermost of all; empty for an
    exception that was never raised.
    """
    innermost: tuple[CodeType, int] | None = None
    is_own = False
    for frame, line in traceback.walk_tb(error.__traceback__):
        code = frame.f_code
        is_shared = code.co_filename.startswith(_SHARED) or "/site-packages/" in code.co_filename
        if not is_shared or not is_own:
            innermost, is_own = (code, line), is_own or not is_shared
    if innermost is None:
        return ""
    code, line = innermost
    return f"{code.co_filename.rpartition('/')[2]}:{line} in {code.co_name}"


def stack_of(error: BaseException) -> str:
    """Return the stack of an exception as text, its innermost frames."""
    try:
        return _formatted(error)[-TOLD_CHARACTERS:].rstrip()
    except Exception:  # a broken __str__, a circle of causes
        return "the stack cannot be shown"


def _formatted(error: BaseException) -> str:
    is_chained = error.__cause__ is not None or (error.__context__ is not None and not error.__suppress_context__)
    if is_chained or isinstance(error, BaseExceptionGroup) or error.__traceback__ is None:
        return "".join(traceback.format_exception(error, limit=-TOLD_FRAMES))
    walked = traceback.walk_tb(error.__traceback__)
    frames = tuple((frame.f_code.co_filename, frame.f_code, line) for frame, line in walked)
    return _format_frames(frames[-TOLD_FRAMES:]) + "".join(traceback.format_exception_only(error))


@functools.lru_cache(maxsize=128)
def _format_frames(frames: tuple[tuple[str, CodeType, int], ...]) -> str:
    """Return the lines of a traceback above the exception: formatted once for all that fail in the same place."""
    places = [(name, line, code.co_name, None) for name, code, line in frames]
    return "".join(["Traceback (most recent call last):\n", *traceback.StackSummary.from_list(places).format()])


def is_closing(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Tell whether an exception closes the coroutine of this task, which must then let it through.

    A coroutine is closed from outside, while its task does not run. A `GeneratorExit` that comes up while it runs was
    raised by somebody else's code in it, and is an error like any other.
    """
    if not isinstance(error, GeneratorExit):
        return False
    import asyncio  # not above: programs that load errors alone need no event loop

    try:
        return task is None or asyncio.current_task() is not task
    except RuntimeError:  # no event loop runs: it is gone, and its tasks with it
        return True
