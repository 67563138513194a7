"""Output of lines in a separate thread, so that a pipe that nobody reads never stops the caller.

The queue is bounded in lines and bytes; a line that does not fit is dropped and counted, and the count is written as
soon as there is room. Handlers of the standard library write the lines, watch the file and rotate it; the queues of
loguru and of the standard library are not used, because they make the caller wait when they are full, or have no bound
in bytes. A handler that fails (closed pipe, full disk) loses lines, and is tried again with the next line.
"""

from __future__ import annotations

import os
import select
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from logging import LogRecord, StreamHandler, makeLogRecord
from logging.handlers import RotatingFileHandler, WatchedFileHandler
from pathlib import Path
from queue import Empty, SimpleQueue
from sys import getsizeof
from typing import Any

from spar.observe.formatting import make_line

#: Most lines, and most bytes of them, that wait; most lines that are written at once.
MAX_LINES, MAX_BYTES, AT_ONCE = 10_000, 16 * 1024 * 1024, 64
#: Size in bytes at which a file is set aside; five older files are kept.
FILE_BYTES = 10 * 1024 * 1024
OLDER_FILES = 5


class StreamOutput(StreamHandler[Any]):
    """Handler of the standard library that raises its errors."""

    def handleError(self, record: LogRecord) -> None:
        raise


class FileOutput(StreamOutput, WatchedFileHandler, RotatingFileHandler):
    """Handler of a file that is set aside as `.1`, `.2`, … when it grows too large; readable by its owner only. A file
    that somebody else has renamed or deleted is begun again with the next line.

    Lines on a full disk count as lost; up to 8 KiB of them wait in the file's buffer and are written once there is
    room.
    """

    def __init__(self, path: Path, max_bytes: int = FILE_BYTES, older: int = OLDER_FILES) -> None:
        RotatingFileHandler.__init__(self, path, maxBytes=max_bytes, backupCount=older, encoding="utf-8")
        self._statstream()

    def _open(self) -> Any:
        return open(self.baseFilename, "a", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600))

    def emit(self, record: LogRecord) -> None:
        self.reopenIfNeeded()
        RotatingFileHandler.emit(self, record)


class Descriptor:
    """Stream to a file descriptor of its own: Python's lock on `sys.stderr` is not held while a write blocks."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __del__(self) -> None:
        os.close(self._fd)

    def write(self, text: str) -> None:
        rest = text.encode("utf-8", "replace")
        while rest:
            try:
                rest = rest[os.write(self._fd, rest) :]
            except BlockingIOError:  # another program made the pipe non-blocking
                select.select([], [self._fd], [], 1.0)


def file_output(path: Path) -> StreamOutput:
    """Return the handler of a file, or of the pipe or device of this name, as /dev/stdout is. Raises: OSError."""
    if path.exists() and not path.is_file():
        return StreamOutput(Descriptor(os.open(path, os.O_WRONLY)))
    return FileOutput(path)


class Writer:
    """Queue and thread of one handler. `dropped` counts lines that did not fit in the queue or that the handler lost.

    Args:
        render: makes the text of a line.
        wait: called in the thread before it waits for the next line; returns after how many seconds it is called again
            without one, or None.
    """

    def __init__(self, handler: StreamHandler[Any], render: Callable[[Mapping[str, Any]], str],
                 wait: Callable[[], float | None] = lambda: None) -> None:  # fmt: skip
        self._handler, self._render, self._wait = handler, render, wait
        self._lines: SimpleQueue[str] = SimpleQueue()
        self._lock = threading.RLock()  # a finalizer may log while its thread is logging
        self._bytes = self.dropped = self._reported = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def put(self, line: Mapping[str, Any]) -> None:
        """Queue a line, or count it as dropped. Never waits for the handler."""
        text = self._render(line)
        with self._lock:
            if self._is_closed or self._lines.qsize() >= MAX_LINES or self._bytes >= MAX_BYTES:
                self.dropped += 1
            else:
                self._bytes += getsizeof(text)
                self._lines.put(text)

    def close(self, timeout: float) -> bool:
        """Write the queued lines, for at most `timeout` seconds; return whether all of them were written in time."""
        with self._lock:
            self._is_closed = True
            self._lines.put("")
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        lines: list[str] = []
        while lines[-1:] != [""]:
            with suppress(Empty):
                lines = [self._lines.get(timeout=self._wait())]
                lines += [self._lines.get() for _ in range(min(self._lines.qsize(), AT_ONCE - 1))]
                self._write(lines)
        with suppress(OSError, ValueError):
            self._handler.close()

    def _write(self, lines: list[str]) -> None:
        """Write lines, of which the last one may be empty, below the number of those that were dropped before."""
        with self._lock:
            self._bytes -= sum(map(getsizeof, lines))
            dropped = self.dropped
        texts = list(filter(None, lines))
        if count := dropped - self._reported:
            texts.insert(0, self._render(make_line("warning", "spar.logs", "log lines dropped", {"count": count})))
        try:
            if texts:
                self._handler.emit(makeLogRecord({"msg": "\n".join(texts)}))
            self._reported = dropped
        except (OSError, ValueError):
            with self._lock:
                self.dropped += len(lines) - ("" in lines)
