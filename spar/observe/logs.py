"""Logs: a constant message with values beside it, one JSON object a line, without delaying the work.

    log = get_logger("spar.sensors")
    log.warning("sensor failed", agent="main", sensor="host", seconds=0.2)

Inside a call, lines of tools and of the libraries that they use also get the cycle and the run of the call. A log call
never raises and never waits. Until `spar.observe.sink.configure` is called (by the service, not by an agent
in a user's program), lines below warning are ignored; warnings and errors go to loguru, as that program has configured
it, as one line of text. Importing this module changes no handler and does not import loguru.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

#: Function that writes a line. Arguments: its level, the logger's name, the message, the fields, and an exception.
Emit = Callable[[str, str, Any, Mapping[str, Any], BaseException | None], None]

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}


class Logger:
    """Source of lines under a name. Fields may have any value; an exception as a value is shown as one line."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, message: str, /, **fields: Any) -> None:
        if threshold <= 10:
            say("debug", self._name, message, fields, None)

    def info(self, message: str, /, **fields: Any) -> None:
        if threshold <= 20:
            say("info", self._name, message, fields, None)

    def warning(self, message: str, /, **fields: Any) -> None:
        if threshold <= 30:
            say("warning", self._name, message, fields, None)

    def error(self, message: str, /, **fields: Any) -> None:
        say("error", self._name, message, fields, None)

    def exception(self, message: str, error: BaseException | None = None, /, **fields: Any) -> None:
        """Log an error with the stack of `error`, or of the exception that is being handled."""
        say("error", self._name, message, fields, error or sys.exc_info()[1])


#: Function that returns a logger. This is cheap and may be called at import.
get_logger = Logger


def say(level: str, name: str, message: Any, fields: Mapping[str, Any], error: BaseException | None) -> None:
    """Send one line, with the cycle and the run of the call that it is written in; never raises."""
    try:
        from spar.protocols import CALLED_FOR  # a program that writes no line loads no more than this module

        cycle_id, run_id = CALLED_FOR.get()
        if cycle_id:
            fields = {"cycle": cycle_id, **({"run": run_id} if run_id else {}), **fields}
        emit(level, name, message, fields, error)
    except Exception:
        return  # a failure to log must not disturb the caller


def direct(to: Emit | None = None, level: str = "warning") -> None:
    """Send each line from `level` on to a function, by default to loguru as it is configured."""
    global emit, threshold
    emit, threshold = to or to_loguru, LEVELS[level]


def to_loguru(level: str, name: str, message: Any, fields: Mapping[str, Any], error: BaseException | None) -> None:
    """Write a line of text in a user's program, without stacks, which would show variables."""
    from loguru import logger

    from spar.observe.formatting import make_line, text_line

    logger.opt(depth=3).log(level.upper(), text_line(make_line(level, name, message, fields, error)))


#: The least important level that is sent, and the function that gets each line.
threshold = LEVELS["warning"]
emit: Emit = to_loguru
