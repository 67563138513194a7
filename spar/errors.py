"""Errors that a module may raise, and how any exception becomes a `Fault`.

Exceptions are raised at borders; inside, a failure is data. `Fault.of` (in `types`) uses this module to interpret an
exception. `unwrap` looks through exception groups, so that a group hides nothing.
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

#: Most frames of an exception's stack that are reported, the innermost ones, and the most characters of their text.
TOLD_FRAMES, TOLD_CHARACTERS = 12, 4_000

#: Exceptions that end the process, wherever they are raised.
ENDS_PROCESS = (KeyboardInterrupt, SystemExit)

_HOME = __file__.removesuffix("/spar/errors.py")
_PACKAGES = ("spar", "perception", "planning", "acting", "reflection", "memory")
#: Folders of shared code, as opposed to a user's own: this program's, Python's, that of libraries.
_SHARED = (*(f"{_HOME}/{name}/" for name in _PACKAGES), os.__file__.removesuffix("/os.py"), "<")


class SparError(Exception):
    """Base of all errors that spar raises on purpose."""


class TransientError(SparError):
    """Error of something that failed now and may succeed later.

    Args: retry_after: seconds to wait that the other side asked for, or None.
    """

    retry_after: float | None = None  # also for a subclass whose constructor does not call this one

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class NotReadyError(TransientError):
    """Error of an agent that accepts no work now: its journal is not open. `retry_after` is None when it is
    stopping."""


class PermanentError(SparError):
    """Error of something that will fail again in the same way: do not retry."""


class FencedError(PermanentError):
    """Error of a process whose data another process has taken over: its writes are not stored any more, and it must
    stop.

    Args: name: the file; own: the epoch in which this process opened it; found: its present epoch.
    """

    def __init__(self, name: str, own: int, found: int) -> None:
        self.own, self.found = own, found
        super().__init__(
            f"{name!r} was taken over by another process (it is in epoch {found}, this process in {own}): "
            "nothing is written any more; stop this process and look at the other with: spar status"
        )


class LifecycleError(SparError):
    """Error of a request that is not possible in the agent's present state.

    Args: action: the request; state: the agent's state; legal: the possible requests.
    """

    def __init__(self, action: str, state: str, legal: tuple[str, ...] = ()) -> None:
        self.action, self.state, self.legal = action, state, legal
        hint = f"; legal now: {', '.join(legal)}" if legal else ""
        super().__init__(f"cannot {action} an agent that is {state}{hint}")


#: Path of a setting: keys of tables, indices of lists.
KeyPath = tuple[str | int, ...]


class ConfigError(SparError):
    """Error of a configuration that cannot be used; the message names key, value and what is allowed.

    Args: path: the place of the value, for example `("rules", 2, "match", "content")`; it leads to file and line.
    """

    def __init__(self, message: str, *, path: tuple[str | int, ...] = ()) -> None:
        super().__init__(message)
        self.path = path


class DamagedError(ConfigError):
    """Error of a store that is no database, or not a whole one."""


class DamagedRowError(PermanentError):
    """Error of a row of a store that was altered, or that the disk damaged."""


class BadDataError(SparError, ValueError):
    """Error of data that a person gave and that cannot be read; the message names the place."""


class ContractError(SparError, TypeError):
    """Error of a part that returned a value which its port does not allow; the message names the part."""


class PhaseTimeoutError(SparError, TimeoutError):
    """Error of a phase or part that exceeded its deadline.

    `product` is the value that it returned between its cancellation and the end of the grace time, if any
    (`has_product`); `was_left_behind` says that it ignored the cancellation and still runs.
    """

    product: object = None
    has_product: bool = False
    was_left_behind: bool = False


class InboxFullError(SparError):
    """Error of a full inbox: the sender must try again later."""


class NoRoomError(InboxFullError):
    """Error of a store without room, for example on a full disk: the sender must try again once there is room."""


class InDoubtError(SparError):
    """Error of a call of which it is unknown whether it had its effect. It must not be repeated blindly."""


class TooLargeError(PermanentError, ValueError):
    """Error of a value that exceeds the limit of its place; nothing of it was stored. The message names the limit."""


class ConflictError(SparError):
    """Error of a row that was changed in the meantime: read it again."""


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a (nested) group, in order; a plain exception is its own only leaf."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def unwrap(error: BaseException) -> BaseException:
    """Return the exception that decides what a group means.

    A `PermanentError` anywhere makes the whole group permanent; otherwise a group of one counts as its only leaf, and a
    group of several stays as it is.
    """
    all_leaves = list(leaves(error))
    for leaf in all_leaves:
        if isinstance(leaf, PermanentError):
            return leaf
    return all_leaves[0] if len(all_leaves) == 1 else error


def place_of(error: BaseException) -> str:
    """Return where an exception was raised, in the code of the part's author: `mytools.py:9 in plan`.

    This is the innermost frame that belongs neither to this program nor to a library, or else the innermost frame; ""
    for an exception that was never raised.
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
    """Return the stack of an exception as text, with its innermost frames."""
    try:
        return _format(error)[-TOLD_CHARACTERS:].rstrip()
    except Exception:  # a broken __str__, a circle of causes
        return "the stack cannot be shown"


def _format(error: BaseException) -> str:
    is_chained = error.__cause__ is not None or (error.__context__ is not None and not error.__suppress_context__)
    if is_chained or isinstance(error, BaseExceptionGroup) or error.__traceback__ is None:
        return "".join(traceback.format_exception(error, limit=-TOLD_FRAMES))
    walked = traceback.walk_tb(error.__traceback__)
    frames = tuple((frame.f_code.co_filename, frame.f_code, line) for frame, line in walked)
    return _format_frames(frames[-TOLD_FRAMES:]) + "".join(traceback.format_exception_only(error))


@functools.lru_cache(maxsize=128)
def _format_frames(frames: tuple[tuple[str, CodeType, int], ...]) -> str:
    """Return the lines of a traceback above the exception, cached for all errors at the same place."""
    places = [(name, line, code.co_name, None) for name, code, line in frames]
    return "".join(["Traceback (most recent call last):\n", *traceback.StackSummary.from_list(places).format()])


def is_closing(error: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Return whether an exception closes the coroutine of this task, which must then let it through.

    A coroutine is closed from outside, while its task does not run. A `GeneratorExit` that occurs while it runs was
    raised by other code inside it, and is an error like any other.
    """
    if not isinstance(error, GeneratorExit):
        return False
    import asyncio  # not at the top: programs that load only this module need no event loop

    try:
        return task is None or asyncio.current_task() is not task
    except RuntimeError:  # no event loop runs any more, and its tasks are gone
        return True
