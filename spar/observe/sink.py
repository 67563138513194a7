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
from spar.observe.writer import Descriptor, StreamOutput, Writer, file_output

#: Fields that tell lines apart: lines with the same message but different values here are different.
IDENTITY = ("agent", "phase", "tool", "sensor", "part")
#: Equal lines that are written within so many seconds.
LIMIT, WITHIN = 10, 60.0
#: Most different lines that are counted; then their time is over. Most characters by which they are told apart.
MAX_KEYS, LONGEST = 1000, 500


class Repeats:
    """Limit of equal lines within a time, for each message of each agent (and phase, tool, sensor).

    Args: write: gets a line with the number of those that were left out, once the time is over.
    """

    def __init__(self, clock: Callable[[], float], write: Callable[[Mapping[str, Any]], object]) -> None:
        self._clock, self._write = clock, write
        self._counts: Counter[tuple[str, str, str, tuple[tuple[str, str], ...]]] = Counter()
        self._ends = 0.0
        self._lock = threading.RLock()  # a finalizer may log while its thread is logging

    def leaves_out(self, level: str, logger: str, message: Any, fields: Mapping[str, Any]) -> bool:
        """Return whether a line is one repetition too many, and count it. The line itself need not be made for this."""
        texts = {name: text_of(value)[:LONGEST] for name in IDENTITY if (value := fields.get(name)) is not None}
        line = (level, logger, text_of(message)[:LONGEST], tuple(texts.items()))
        self.wait(is_over=len(self._counts) >= MAX_KEYS)
        with self._lock:
            self._ends = self._ends if self._counts else self._clock() + WITHIN
            self._counts[line] += 1
            return self._counts[line] > LIMIT

    def wait(self, *, is_over: bool = False) -> float | None:
        """Write what was left out, if the time is over; return the seconds until then, None if nothing is counted."""
        with self._lock:
            counts = self._counts if is_over or self._clock() >= self._ends else Counter()
            left_out = counts - Counter(dict.fromkeys(counts, LIMIT))
            counts.clear()
            seconds = max(self._ends - self._clock(), 0.0) if self._counts else None
        for (level, name, of, identity), count in left_out.items():
            self._write(make_line(level, name, "repeated lines left out", dict(identity, of=of, count=count)))
        return seconds


#: Libraries that log each request and each job; only their warnings and errors are written.
QUIET = ("uvicorn", "httpx", "httpcore", "httpx2", "mcp", "apscheduler", "watchfiles", "asyncio")


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
        for former in [*_open]:
            former.close()
        #: Function that returns further fields of a line, for the fields that it has.
        self.names: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
        self._repeats = Repeats(time.monotonic, self._write)
        self._writers: list[Writer] = []
        if file is not None:
            try:
                self._writers.append(Writer(file_output(Path(file)), json_line, self._repeats.wait))
            except OSError as error:
                sentence = f"log.file = {str(file)!r}: cannot be opened: {error.strerror or error}"
                raise ConfigError(sentence, path=("log", "file")) from None
        if (target := stream or sys.stderr) is not None:
            is_terminal = False
            with suppress(AttributeError, OSError, ValueError):
                is_terminal = target.isatty()
                target = Descriptor(os.dup(target.fileno()))
            colour = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
            is_pretty = format == "pretty" or (format == "auto" and is_terminal)
            render = partial(pretty_line, colour=colour) if is_pretty else json_line
            self._writers.append(Writer(StreamOutput(target), render, self._repeats.wait))
        self._undo = undo = ExitStack()
        undo.callback(setattr, logging.root, "handlers", logging.root.handlers)
        logging.root.handlers = [_Receiver()]
        for library in map(logging.getLogger, ("", *QUIET)):
            undo.callback(library.setLevel, library.level)
            library.setLevel(logging.WARNING)
        undo.callback(logging.captureWarnings, False)
        logging.captureWarnings(True)
        undo.enter_context(suppress(ValueError))  # a program may remove the handlers of loguru itself
        with suppress(ValueError, IndexError):
            logger.remove(_of_loguru.pop())
            undo.callback(_restore_loguru)
        # Only a function is a format to which loguru adds no stack.
        handler = logger.add(_Receiver(), level=0, format=lambda record: "{message}", backtrace=False, diagnose=False)
        undo.callback(logger.remove, handler)
        undo.callback(logs.direct)
        undo.callback(_open.remove, self)
        _open.append(self)
        atexit.register(self.close)
        self.set_level(level)

    @property
    def dropped(self) -> int:
        """Return the number of lines that were lost because an output stalled or failed."""
        return sum(writer.dropped for writer in self._writers)

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
        self._undo.close()
        atexit.unregister(self.close)
        self._repeats.wait(is_over=True)
        until = time.monotonic() + timeout
        # Close every writer, also after one that was too late.
        return False not in [writer.close(max(until - time.monotonic(), 0.0)) for writer in self._writers]

    def _write(self, line: Mapping[str, Any]) -> None:
        for writer in self._writers:
            writer.put(line)


#: Function that starts to write logs for the whole process.
configure = Logs
_open: list[Logs] = []
#: The number of loguru's own handler; none if the program has removed it.
_of_loguru = [0]


def _restore_loguru() -> None:
    """Add a handler of loguru as it is at the start of a program."""
    _of_loguru.append(logger.add(lambda text: print(text, end="", file=sys.stderr), diagnose=False))  # noqa: T201


class _Receiver(logging.Handler):
    """Receiver of the lines of the standard library, and of those that loguru makes lines of the standard library."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # arguments that do not fit the message: write both
            message = f"{record.msg} {record.args}"
        if record.levelno >= logs.threshold:
            level = next((name for name in reversed(LEVELS) if LEVELS[name] <= record.levelno), "debug")
            error = record.exc_info[1] if record.exc_info else None
            logs.say(level, record.name or "", message.strip(), vars(record).get("extra", {}), error)
