"""Logs: a constant message and values beside it, one JSON object a line, never in the way of the work.

    log = get_logger("spar.sensors")
    with bound(agent="main", cycle=cycle_id):
        log.warning("sensor failed", sensor="host", seconds=0.2)

A log call never raises and never waits. Until `configure` is called (by the service, not by an agent in somebody's
program) everything below warning is ignored; warnings and errors go to loguru as that program has set it up, as one
line of text. Importing this module touches no handler and does not import loguru.
"""

from __future__ import annotations

import contextvars
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, TextIO

if TYPE_CHECKING:
    from spar.observe.sink import Logs

DEBUG, INFO, WARNING, ERROR = 10, 20, 30, 40
_NAMES = {DEBUG: "debug", INFO: "info", WARNING: "warning", ERROR: "error"}

_context: contextvars.ContextVar[Mapping[str, Any]] = contextvars.ContextVar("log_context", default={})  # noqa: B039
_active: Logs | None = None
_threshold = WARNING


class Logger:
    """Says things under a name. Fields may have any value; an exception as a value is shown as one line."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def debug(self, message: str, /, **fields: Any) -> None:
        if _threshold <= DEBUG:
            _say(DEBUG, self._name, message, fields, None)

    def info(self, message: str, /, **fields: Any) -> None:
        if _threshold <= INFO:
            _say(INFO, self._name, message, fields, None)

    def warning(self, message: str, /, **fields: Any) -> None:
        if _threshold <= WARNING:
            _say(WARNING, self._name, message, fields, None)

    def error(self, message: str, /, **fields: Any) -> None:
        if _threshold <= ERROR:
            _say(ERROR, self._name, message, fields, None)

    def exception(self, message: str, error: BaseException | None = None, /, **fields: Any) -> None:
        """An error with its stack: of `error`, or of the exception that is being handled."""
        _say(ERROR, self._name, message, fields, error or sys.exc_info()[1])


def get_logger(name: str) -> Logger:
    """A logger; costs nothing, may be called at import."""
    return Logger(name)


class bound:
    """Adds fields to every line that is said inside, also in tasks begun inside: `agent cycle phase call tool`."""

    __slots__ = ("_fields", "_token")

    def __init__(self, **fields: Any) -> None:
        self._fields = fields
        self._token: contextvars.Token[Mapping[str, Any]] | None = None

    def __enter__(self) -> None:
        self._token = _context.set({**_context.get(), **self._fields})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        try:
            if self._token is not None:
                _context.reset(self._token)
        except ValueError:
            pass  # left in another context than entered (a generator closed elsewhere): there is nothing to take back


def configure(
    level: Literal["debug", "info", "warning", "error"] = "info",
    format: Literal["auto", "json", "pretty"] = "auto",
    *,
    stream: TextIO | None = None,
    file: str | Path | None = None,
) -> Logs:
    """Begin to write logs for the whole process; an earlier configuration is closed first.

    Args:
        level: the least important lines to write.
        format: "json", "pretty" (with colour on a terminal, unless NO_COLOR is set), "auto": pretty on a terminal.
        stream: `sys.stderr` as it is now, by default.
        file: gets the same lines as JSON.
    Raises: ConfigError if the file cannot be opened.
    """
    from spar.observe.formatting import json_line, pretty_line
    from spar.observe.sink import Logs
    from spar.observe.writer import RotatedFile, Target, target_of

    if _active is not None:
        _active.close()
    stream = sys.stderr if stream is None else stream
    is_terminal = _is_terminal(stream)
    colour = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    is_pretty = format == "pretty" or (format == "auto" and is_terminal)
    render = partial(pretty_line, colour=colour) if is_pretty else json_line
    outputs: list[tuple[str, Target, Any]] = []
    if file is not None:
        try:
            outputs.append(("file", RotatedFile(Path(file)), json_line))
        except OSError as error:
            from spar.errors import ConfigError

            sentence = f"log.file = {str(file)!r}: cannot be opened: {error.strerror or error}"
            raise ConfigError(sentence, path=("log", "file")) from None
    if stream is not None:
        outputs.append(("stream", target_of(stream), render))

    return Logs(level, outputs, _say, _context.get, _switch)


def _switch(logs: Logs, level: str | None) -> None:
    """`logs` writes from `level` on now, or (None) no more."""
    global _active, _threshold
    if level is not None:
        _active, _threshold = logs, next(number for number, name in _NAMES.items() if name == level)
    elif _active is logs:
        _active, _threshold = None, WARNING


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, OSError, ValueError):
        return False


def _say(level: int, name: str, message: Any, fields: Mapping[str, Any], error: BaseException | None) -> None:
    try:
        if level < _threshold:
            return
        word = _NAMES.get(level) or _NAMES[max((known for known in _NAMES if known <= level), default=DEBUG)]
        inherited = _context.get()
        said = {**inherited, **fields} if inherited else fields
        if _active is not None:
            _active.emit(word, name, message, said, error)
        else:
            _say_unconfigured(word, name, message, said, error)
    except Exception:
        return  # whoever logs has something better to do than to handle this


def _say_unconfigured(
    level: str, name: str, message: Any, fields: Mapping[str, Any], error: BaseException | None
) -> None:
    """Warnings and errors in somebody's own program: a line of text, without stacks that would show variables."""
    from loguru import logger

    from spar.data.scrub import scrub
    from spar.observe.formatting import fields_text, make_line

    line = make_line(level, name, message, fields, error, scrub)
    shown = {**line.fields, **{key: value for key, value in line.error.items() if key != "error.stack"}}
    text = f"{line.message}  {fields_text(shown)}" if shown else line.message
    logger.opt(depth=3).log(level.upper(), text)
