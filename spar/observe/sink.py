"""Sink of all lines once logging is configured: leaves out repetitions and passes the others to each output's writer.

Lines of the standard library's logging and of loguru arrive here too. Only this module configures both, and `close`
restores them. Lines are rendered here and not by loguru, whose formats show values whole and unmasked; loguru writes
them and rotates the file, behind the bounded queue of each output.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, TextIO

import loguru
from loguru import logger

from spar.data.scrub import Scrubber
from spar.errors import ConfigError
from spar.observe import logs
from spar.observe.formatting import Line, json_line, make_line, pretty_line
from spar.observe.logs import LEVELS
from spar.observe.repeats import IDENTITY, Repeats
from spar.observe.writer import Target, Writer, file_output, stream_output

Render = Callable[[Line, datetime], bytes]

#: Libraries that log each request and each job; only their warnings and errors are written.
QUIET = (
    "uvicorn", "uvicorn.error", "uvicorn.access", "httpx", "httpcore", "httpx2", "mcp", "apscheduler", "watchfiles",
    "asyncio",
)  # fmt: skip


def configure(
    level: Literal["debug", "info", "warning", "error"] = "info",
    format: Literal["auto", "json", "pretty"] = "auto",
    *,
    stream: TextIO | None = None,
    file: str | Path | None = None,
) -> Logs:
    """Start writing logs for the whole process; an earlier configuration is closed first.

    Args:
        level: the least important level that is written.
        format: "json", "pretty" (with colour on a terminal, unless NO_COLOR is set), "auto": pretty on a terminal.
        stream: the present `sys.stderr` by default.
        file: gets the same lines as JSON.
    Raises: ConfigError if the file cannot be opened.
    """
    if _active is not None:
        _active.close()
    stream = sys.stderr if stream is None else stream
    is_terminal = _is_terminal(stream)
    colour = is_terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    is_pretty = format == "pretty" or (format == "auto" and is_terminal)
    outputs: list[tuple[str, Target, Render]] = []
    if file is not None:
        try:
            outputs.append(("file", file_output(Path(file)), json_line))
        except OSError as error:
            sentence = f"log.file = {str(file)!r}: cannot be opened: {error.strerror or error}"
            raise ConfigError(sentence, path=("log", "file")) from None
    if stream is not None:
        outputs.append(
            ("stream", stream_output(stream), partial(pretty_line, colour=colour) if is_pretty else json_line)
        )
    return Logs(level, outputs)


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, OSError, ValueError):
        return False


class Logs:
    """Logging as configured; made by `configure`."""

    def __init__(self, level: str, outputs: Sequence[tuple[str, Target, Render]]) -> None:
        global _active
        self._scrub = Scrubber()
        #: Function that returns further fields of a line, for the fields that it has.
        self.names: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
        self._repeats = Repeats(time.monotonic)
        self._writers = [
            (
                Writer(name, target, note=partial(_note, render), wait=self._repeats.wait, idle=self._report_repeats),
                render,
            )
            for name, target, render in outputs
        ]
        self._stdlib, self._loguru = _StandardLibrary(), _Loguru(self.emit)
        self._is_open = True
        atexit.register(self.close)
        self.set_level(level)
        _active = self

    @property
    def dropped(self) -> int:
        """Return the number of lines that were lost because an output stalled or failed."""
        return sum(writer.dropped for writer, _ in self._writers)

    @property
    def left_out(self) -> int:
        """Return the number of lines that were left out because they repeated others."""
        return self._repeats.left_out

    def shed(self) -> int:
        """Report repetitions at once and forget the lines; return how many lines were remembered."""
        remembered = len(self._repeats)
        self._report_repeats(all_of_them=True)
        return remembered

    def hide(self, *values: str) -> None:
        """Hide these secrets in all lines, wherever they occur."""
        self._scrub.hide(*values)

    def set_level(self, level: str) -> None:
        """Change the least important level that is written."""
        self.level = level
        logs.direct(self.emit, level)
        self._stdlib.set_level(level)
        self._loguru.set_level(level)

    def emit(self, level: str, name: str, message: Any, fields: Mapping[str, Any], error: BaseException | None) -> None:
        """Write one line, whichever library logged it."""
        may_repeat = level in ("debug", "info")
        if not may_repeat and self._repeats.leaves_out(level, name, message, fields):
            return
        if self.names is not None and (names := self.names(fields)):
            fields = {**fields, **names}
        line = make_line(level, name, message, fields, error, self._scrub)
        if may_repeat or self._repeats.admit(line):
            self._write(line)

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
        self._stdlib.undo()
        self._loguru.undo()
        self._report_repeats(all_of_them=True)
        until = time.monotonic() + timeout
        # Close every writer, also after one that was too late.
        in_time = [writer.close(max(until - time.monotonic(), 0.0)) for writer, _ in self._writers]
        return all(in_time)

    def _write(self, line: Line) -> None:
        at = datetime.now(UTC)
        for writer, render in self._writers:
            writer.put(render(line, at))

    def _report_repeats(self, all_of_them: bool = False) -> None:
        for line, count in self._repeats.due(all_of_them=all_of_them):
            fields: dict[str, Any] = {key: line.fields[key] for key in IDENTITY if key in line.fields}
            fields |= {"of": line.message, "count": count}
            self._write(Line(line.level, "repeated lines left out", line.logger, fields, {}))


_active: Logs | None = None


def _note(render: Render, count: int) -> bytes:
    return render(Line("warning", "log lines dropped", "spar.logs", {"count": count}, {}), datetime.now(UTC))


class _Loguru:
    """Handler of loguru's lines. It replaces loguru's default handler, and `undo` adds one like it again."""

    _default = 0

    def __init__(self, emit: logs.Emit) -> None:
        self._emit = emit
        self._handler: int | None = None
        self._had_default = self._remove(type(self)._default)

    def set_level(self, level: str) -> None:
        before = self._handler
        self._handler = logger.add(
            self._receive,
            level=LEVELS[level],
            format=lambda record: "",
            colorize=False,
            backtrace=False,
            diagnose=False,
        )
        self._remove(before)

    def undo(self) -> None:
        self._remove(self._handler)
        if self._had_default:
            type(self)._default = logger.add(_to_stderr, diagnose=False)

    def _receive(self, message: loguru.Message) -> None:
        """Pass on a line from loguru. loguru calls this in any thread, one line at a time."""
        record = message.record
        level, error = record["level"].name.lower(), record["exception"]
        level = "info" if level == "success" else level
        fields = {**logs.context(), **record["extra"]}
        self._emit(level, record["name"] or "", record["message"], fields, error.value if error else None)

    @staticmethod
    def _remove(handler: int | None) -> bool:
        try:
            logger.remove(-1 if handler is None else handler)
        except ValueError:  # the program has removed it itself
            return False
        return True


def _to_stderr(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)


class _StandardLibrary(logging.Handler):
    """Handler of the lines of the standard library's logging and of warnings; it replaces all other handlers."""

    def __init__(self) -> None:
        super().__init__()
        root = logging.root
        self._before = root.handlers[:], root.level
        self._levels = {name: logging.getLogger(name).level for name in QUIET}
        root.handlers[:] = [self]
        for name in QUIET:
            logging.getLogger(name).setLevel(logging.WARNING)
        logging.captureWarnings(True)

    def set_level(self, level: str) -> None:
        self.setLevel(LEVELS[level])
        logging.root.setLevel(LEVELS[level])

    def undo(self) -> None:
        logging.captureWarnings(False)
        logging.root.handlers[:], level = self._before
        logging.root.setLevel(level)
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # arguments that do not fit the message: write both
            message = f"{record.msg} {record.args}"
        level = next((name for name in reversed(LEVELS) if LEVELS[name] <= record.levelno), "debug")
        logs.say(level, record.name, message.strip(), {}, record.exc_info[1] if record.exc_info else None)
