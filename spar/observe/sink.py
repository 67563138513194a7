"""Sink of all lines once logging is configured: leaves out repetitions and passes the others to each output's writer.

Lines of the standard library's logging and of loguru arrive here too. Only this module configures both, and `close`
restores them. Lines are rendered here and not by loguru, whose formats show values whole and unmasked.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, TextIO

from loguru import logger

from spar.errors import ConfigError
from spar.observe import logs
from spar.observe.formatting import json_line, make_line, pretty_line, text_of
from spar.observe.logs import LEVELS
from spar.observe.writer import Target, Writer, file_output, stream_output

#: Fields that tell lines apart: lines with the same message but different values here are different.
IDENTITY = ("agent", "phase", "tool", "sensor", "part")
#: Most different lines within the time; beyond them no line is left out. Most characters by which they are told apart.
MAX_KEYS, LONGEST = 1000, 500


#: Line as it is told from others: its level, its logger, its message, and its fields of `IDENTITY`.
Line = tuple[str, str, str, tuple[tuple[str, str], ...]]


class Repeats:
    """Limit of `limit` equal lines in `within` seconds, for each message of each agent (and phase, tool, sensor)."""

    def __init__(self, clock: Callable[[], float], *, limit: int = 10, within: float = 60.0) -> None:
        self._clock, self._limit, self._within = clock, limit, within
        self._counts: Counter[Line] = Counter()  # of the time that ends at `_ends`
        self._ends = 0.0
        self._due: list[tuple[Line, int]] = []  # left out lines of earlier times, with their numbers
        self._lock = threading.RLock()  # a finalizer may log while its thread is logging

    def leaves_out(self, level: str, logger: str, message: Any, fields: Mapping[str, Any]) -> bool:
        """Return whether a line is one repetition too many, and count it. The line itself need not be made for this."""
        texts = {name: text_of(value)[:LONGEST] for name in IDENTITY if (value := fields.get(name)) is not None}
        line = (level, logger, text_of(message)[:LONGEST], tuple(texts.items()))
        with self._lock:
            self._turn(self._clock())
            if line not in self._counts and len(self._counts) >= MAX_KEYS:
                return False  # a thousand different lines in a minute: this one is new too
            self._counts[line] += 1
            return self._counts[line] > self._limit

    def wait(self) -> float | None:
        """Return the seconds until there may be a number to report; None: not before further lines come."""
        with self._lock:
            if self._due:
                return 0.0
            is_full = any(count >= self._limit for count in self._counts.values())
            return max(self._ends - self._clock(), 0.0) if is_full else None

    def due(self, *, all_of_them: bool = False) -> list[tuple[Line, int]]:
        """Return the lines whose time is over, with the numbers of left out ones, and forget them."""
        with self._lock:
            self._turn(self._ends if all_of_them else self._clock())
            due, self._due = self._due, []
        return due

    def _turn(self, now: float) -> None:
        """Begin the next time, once the present one is over."""
        if now >= self._ends:
            left_out = ((line, count - self._limit) for line, count in self._counts.items())
            self._due += [(line, count) for line, count in left_out if count > 0]
            self._counts.clear()
            self._ends = now + self._within


Render = Callable[[Mapping[str, Any]], bytes]

#: Libraries that log each request and each job; only their warnings and errors are written.
QUIET = (
    "uvicorn", "uvicorn.error", "uvicorn.access", "httpx", "httpcore", "httpx2", "mcp", "apscheduler", "watchfiles",
    "asyncio",
)  # fmt: skip


class Logs:
    """Logging of the whole process as configured; an earlier configuration is closed first.

    Args:
        level: the least important level that is written.
        format: "json", "pretty" (with colour on a terminal, unless NO_COLOR is set), "auto": pretty on a terminal.
        stream: the present `sys.stderr` by default.
        file: gets the same lines as JSON.
    Raises: ConfigError if the file cannot be opened.
    """

    def __init__(self, level: str = "info", format: Literal["auto", "json", "pretty"] = "auto", *,
                 stream: TextIO | None = None, file: str | Path | None = None) -> None:  # fmt: skip
        global _active
        if _active is not None:
            _active.close()
        #: Function that returns further fields of a line, for the fields that it has.
        self.names: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
        self._repeats = Repeats(time.monotonic)
        self._outputs: list[tuple[Writer, Render]] = []
        if file is not None:
            try:
                self._write_to("file", file_output(Path(file)), json_line)
            except OSError as error:
                sentence = f"log.file = {str(file)!r}: cannot be opened: {error.strerror or error}"
                raise ConfigError(sentence, path=("log", "file")) from None
        if (stream := stream or sys.stderr) is not None:
            is_terminal = False
            with suppress(AttributeError, OSError, ValueError):
                is_terminal = stream.isatty()
            colour = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
            is_pretty = format == "pretty" or (format == "auto" and is_terminal)
            self._write_to(
                "stream", stream_output(stream), partial(pretty_line, colour=colour) if is_pretty else json_line
            )
        self._undo = ExitStack()
        _take_standard_library(self._undo)
        _take_loguru(self._undo)
        self._is_open = True
        atexit.register(self.close)
        self.set_level(level)
        _active = self

    def _write_to(self, name: str, target: Target, render: Render) -> None:
        writer = Writer(name, target, partial(_note, render), self._repeats.wait, self._report_repeats)
        self._outputs.append((writer, render))

    @property
    def dropped(self) -> int:
        """Return the number of lines that were lost because an output stalled or failed."""
        return sum(writer.dropped for writer, _ in self._outputs)

    def set_level(self, level: str) -> None:
        """Change the least important level that is written."""
        logs.direct(self.emit, level)
        logging.root.setLevel(LEVELS[level])

    def emit(self, level: str, name: str, message: Any, fields: Mapping[str, Any], error: BaseException | None) -> None:
        """Write one line, whichever library logged it; of warnings and errors only so many equal ones."""
        if level in ("debug", "info") or not self._repeats.leaves_out(level, name, message, fields):
            if self.names is not None and (names := self.names(fields)):
                fields = {**fields, **names}
            self._write(make_line(level, name, message, fields, error))

    def close(self, timeout: float = 2.0) -> bool:
        """Write the queued lines, for at most `timeout` seconds, and restore the former configuration.

        Returns: whether everything was written in time.
        """
        global _active
        if not self._is_open:
            return True
        self._is_open = False
        if _active is self:
            _active = None
            logs.direct(None)
        atexit.unregister(self.close)
        self._undo.close()
        self._report_repeats(all_of_them=True)
        until = time.monotonic() + timeout
        # Close every writer, also after one that was too late.
        in_time = [writer.close(max(until - time.monotonic(), 0.0)) for writer, _ in self._outputs]
        return all(in_time)

    def _write(self, line: Mapping[str, Any]) -> None:
        for writer, render in self._outputs:
            writer.put(render(line))

    def _report_repeats(self, all_of_them: bool = False) -> None:
        for (level, name, message, identity), count in self._repeats.due(all_of_them=all_of_them):
            fields = {**dict(identity), "of": message, "count": count}
            self._write(make_line(level, name, "repeated lines left out", fields))


#: Function that starts to write logs for the whole process.
configure = Logs
_active: Logs | None = None
#: The number of loguru's own handler.
_default = 0


def _note(render: Render, count: int) -> bytes:
    return render(make_line("warning", "spar.logs", "log lines dropped", {"count": count}))


def _take_loguru(undo: ExitStack) -> None:
    """Receive loguru's lines in place of its own handler."""
    if _remove(_default):
        undo.callback(_restore)
    # Only a function is a format to which loguru adds no stack.
    handler = logger.add(_Receiver(), level=0, format=lambda record: "{message}", backtrace=False, diagnose=False)
    undo.callback(_remove, handler)


def _restore() -> None:
    """Add a handler of loguru as it is at the start of a program."""
    global _default
    _default = logger.add(_to_stderr, diagnose=False)


def _to_stderr(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)


def _remove(handler: int) -> bool:
    """Remove a handler of loguru; return False if the program has removed it itself."""
    try:
        logger.remove(handler)
    except ValueError:
        return False
    return True


def _take_standard_library(undo: ExitStack) -> None:
    """Receive the lines of the standard library's logging and warnings, in place of all handlers."""
    root = logging.root
    undo.callback(setattr, root, "handlers", root.handlers)
    root.handlers = [_Receiver()]
    for library in map(logging.getLogger, ("", *QUIET)):
        undo.callback(library.setLevel, library.level)
        library.setLevel(logging.WARNING)
    logging.captureWarnings(True)
    undo.callback(logging.captureWarnings, False)


class _Receiver(logging.Handler):
    """Receiver of the lines of the standard library, and of those that loguru makes lines of the standard library."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # arguments that do not fit the message: write both
            message = f"{record.msg} {record.args}"
        if logs.is_written(record.levelno):
            level = next((name for name in reversed(LEVELS) if LEVELS[name] <= record.levelno), "debug")
            error = record.exc_info[1] if record.exc_info else None
            logs.say(level, record.name or "", message.strip(), vars(record).get("extra", {}), error)
