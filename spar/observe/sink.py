"""Sink of all lines once logging is configured: through loguru to the writers, with the lines of other libraries.

loguru and the standard library's logging are set up here and nowhere else, and put back as they were on `close`.
"""

from __future__ import annotations

import atexit
import logging
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import loguru
from loguru import logger

from spar.data.scrub import Scrubber
from spar.observe.formatting import LEVELS, Line, make_line
from spar.observe.repeats import IDENTITY, Repeats
from spar.observe.writer import Target, Writer

Render = Callable[[Line, datetime], bytes]
Said = Callable[[int, str, Any, Mapping[str, Any], BaseException | None], None]

#: Libraries that tell each request and each job; from them only what went wrong.
QUIET = (
    "uvicorn", "uvicorn.error", "uvicorn.access", "httpx", "httpcore", "httpx2", "mcp", "apscheduler", "watchfiles",
    "asyncio",
)  # fmt: skip

_FOREIGN_LEVELS = {"trace": "debug", "success": "info"}


class Logs:
    """Logging as it was configured; made by `spar.observe.logs.configure`."""

    def __init__(
        self,
        level: str,
        outputs: Sequence[tuple[str, Target, Render]],
        said: Said,
        context: Callable[[], Mapping[str, Any]],
        switch: Callable[[Logs, str | None], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        repeats: int = 10,
    ) -> None:
        self.level = level
        self._scrub = Scrubber()
        self._context, self._switch = context, switch
        self._repeats = Repeats(clock, limit=repeats)
        self._writers = [
            (
                Writer(
                    name,
                    target,
                    note=self._note(render),
                    # One thread is enough to tell of repetitions.
                    wait=self._repeats.wait if number == 0 else lambda: None,
                    idle=self._tell_repeats if number == 0 else lambda: None,
                ),
                render,
            )
            for number, (name, target, render) in enumerate(outputs)
        ]
        self._stdlib = _Interception(said, level)
        self._handler = self._add_handler()
        self._default = _Default()
        self._is_open = True
        atexit.register(self.close)
        switch(self, level)

    @property
    def dropped(self) -> int:
        """Lines that were lost because an output stalled or failed."""
        return sum(writer.dropped for writer, _ in self._writers)

    @property
    def left_out(self) -> int:
        """Lines that were left out because they repeated others."""
        return self._repeats.left_out

    def shed(self) -> int:
        """Tell of repetitions at once and remember none; how many lines were remembered."""
        remembered = len(self._repeats)
        self._tell_repeats(all_of_them=True)
        return remembered

    def hide(self, *values: str) -> None:
        """Never write these secrets, wherever they turn up."""
        self._scrub.hide(*values)

    def set_level(self, level: str) -> None:
        """Change the least important level that is written."""
        self.level = level
        old, self._handler = self._handler, self._add_handler()
        logger.remove(old)
        logging.root.setLevel(LEVELS[level])
        self._switch(self, level)

    def emit(self, level: str, name: str, message: Any, fields: Mapping[str, Any], error: BaseException | None) -> None:
        """Take one line of our own. It is copied before loguru takes its lock."""
        line = make_line(level, name, message, fields, error, self._scrub)
        logger.bind(spar=line).log(level.upper(), line.message)

    def close(self, timeout: float = 2.0) -> bool:
        """Write what is queued, for at most `timeout` seconds, and put everything back as it was.

        Returns: whether everything was written in time.
        """
        if not self._is_open:
            return True
        self._is_open = False
        self._switch(self, None)
        atexit.unregister(self.close)
        self._stdlib.undo()
        logger.remove(self._handler)
        self._default.restore()
        self._tell_repeats(all_of_them=True)
        until = time.monotonic() + timeout
        # Every one is closed, also after one that was too late.
        in_time = [writer.close(max(until - time.monotonic(), 0.0)) for writer, _ in self._writers]
        return all(in_time)

    def _add_handler(self) -> int:
        return logger.add(
            self._receive,
            level=LEVELS[self.level],
            format=lambda record: "",
            colorize=False,
            backtrace=False,
            diagnose=False,
        )

    def _receive(self, message: loguru.Message) -> None:
        """Called by loguru, in whatever thread, one at a time."""
        record = message.record
        line = record["extra"].get("spar")
        if not isinstance(line, Line):
            level = record["level"].name.lower()
            fields = {**self._context(), **record["extra"]}
            error = record["exception"].value if record["exception"] else None
            level = _FOREIGN_LEVELS.get(level, level)
            line = make_line(level, record["name"] or "", record["message"], fields, error, self._scrub)
        if record["level"].no < LEVELS["warning"] or self._repeats.admit(line):
            self._write(line, record["time"])

    def _write(self, line: Line, at: datetime) -> None:
        for writer, render in self._writers:
            writer.put(render(line, at))

    def _tell_repeats(self, all_of_them: bool = False) -> None:
        for line, count in self._repeats.due(all_of_them=all_of_them):
            said: dict[str, Any] = {key: line.fields[key] for key in IDENTITY if key in line.fields}
            said |= {"of": line.message, "count": count}
            self._write(Line(line.level, "repeated lines left out", line.logger, said, {}), datetime.now(UTC))

    @staticmethod
    def _note(render: Render) -> Callable[[int], bytes]:
        def note(count: int) -> bytes:
            return render(Line("warning", "log lines dropped", "spar.logs", {"count": count}, {}), datetime.now(UTC))

        return note


def _to_stderr(text: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(text)


class _Default:
    """The handler that loguru begins with, taken away while our own is there. Its like is given back, once."""

    _number = 0

    def __init__(self) -> None:
        try:
            logger.remove(type(self)._number)
        except ValueError:  # the program has taken it away itself
            self._was_there = False
        else:
            self._was_there = True

    def restore(self) -> None:
        if self._was_there:
            type(self)._number = logger.add(_to_stderr, diagnose=False)


class _Interception:
    """The standard library's logging and warnings, sent our way."""

    def __init__(self, said: Said, level: str) -> None:
        root = logging.root
        self._handlers, self._level = root.handlers[:], root.level
        self._levels = {name: logging.getLogger(name).level for name in QUIET}
        root.handlers[:] = [_Forward(said)]
        root.setLevel(LEVELS[level])
        for name in QUIET:
            logging.getLogger(name).setLevel(logging.WARNING)
        logging.captureWarnings(True)

    def undo(self) -> None:
        logging.captureWarnings(False)
        logging.root.handlers[:] = self._handlers
        logging.root.setLevel(self._level)
        for name, level in self._levels.items():
            logging.getLogger(name).setLevel(level)


class _Forward(logging.Handler):
    def __init__(self, said: Said) -> None:
        super().__init__()
        self._said = said

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception:  # arguments that do not fit the message: say what there is
            message = f"{record.msg} {record.args}"
        error = record.exc_info[1] if record.exc_info else None
        self._said(record.levelno, record.name, message.strip(), {}, error)
