"""Writer of lines in a separate thread, so that a pipe that nobody reads never stops the caller.

The queue is bounded in lines and bytes; a line that does not fit is dropped and counted, and the count is written as
soon as there is room. The standard library writes the file, watches and rotates it; the queues of loguru and of the
standard library are not used, because they make the caller wait when they are full, or have no bound in bytes. A target
that fails (closed pipe, full disk) loses lines, is tried again with the next line, and never raises.
"""

from __future__ import annotations

import os
import select
import stat
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from logging import LogRecord, StreamHandler, makeLogRecord
from logging.handlers import RotatingFileHandler, WatchedFileHandler
from pathlib import Path
from typing import Any, Protocol

MAX_LINES = 10_000
MAX_BYTES = 16 * 1024 * 1024
#: Size in bytes at which a file is set aside; five older files are kept.
FILE_BYTES = 10 * 1024 * 1024
OLDER_FILES = 5
_CHUNK = 64 * 1024


class Target(Protocol):
    """Destination of lines. `write` may block for ever and may raise OSError or ValueError."""

    def write(self, lines: bytes) -> None: ...
    def close(self) -> None: ...


class Writer:
    """Writer to one target, with its thread. `dropped` counts lines that did not fit in the queue or that the target
    lost.

    Args:
        note: makes the line about the number of dropped lines.
        idle: called in the thread after `wait()` seconds without a line; None from `wait` means never.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        note: Callable[[int], bytes],
        wait: Callable[[], float | None] = lambda: None,
        idle: Callable[[], None] = lambda: None,
        *,
        max_lines: int = MAX_LINES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._target, self._note, self._wait, self._idle = target, note, wait, idle
        self._max_lines, self._max_bytes = max_lines, max_bytes
        self._lines: deque[bytes] = deque()
        self._news = threading.Condition()  # reentrant: a finalizer may log while its thread is logging
        self._bytes = self.dropped = self._reported = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=f"log {name}", daemon=True)
        self._thread.start()

    def put(self, line: bytes) -> None:
        """Queue a line, or count it as dropped. Never waits for the target, never raises."""
        with self._news:
            if self._is_closed or len(self._lines) >= self._max_lines or self._bytes >= self._max_bytes:
                self.dropped += 1
                return
            self._bytes += len(line)
            self._lines.append(line)
            self._news.notify()

    def close(self, timeout: float) -> bool:
        """Write the queued lines, for at most `timeout` seconds; return whether all of them were written in time."""
        with self._news:
            self._is_closed = True
            self._news.notify()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        is_over = False
        while not is_over:
            lines: list[bytes] = []
            with self._news:
                if not self._lines and not self._is_closed:
                    self._news.wait(self._wait())
                size = 0
                while self._lines and size < _CHUNK:
                    lines.append(self._lines.popleft())
                    size += len(lines[-1])
                self._bytes -= size
                is_over = self._is_closed and not self._lines
            if lines:
                self._write(lines)
            elif not is_over:
                self._idle()
        if self.dropped > self._reported:
            self._write([])
        with suppress(OSError, ValueError):
            self._target.close()

    def _write(self, lines: list[bytes]) -> None:
        dropped = self.dropped
        note = self._note(dropped - self._reported) if dropped > self._reported else b""
        try:
            self._target.write(note + b"".join(lines))
            self._reported = dropped
        except (OSError, ValueError):
            with self._news:
                self.dropped += len(lines)


class StreamOutput(StreamHandler[Any]):
    """Output to a text stream by the standard library. Errors go to the writer."""

    terminator = ""

    def write(self, lines: bytes) -> None:
        self.emit(makeLogRecord({"msg": lines.decode("utf-8", "replace")}))

    def handleError(self, record: LogRecord) -> None:
        raise


class FileOutput(StreamOutput, WatchedFileHandler, RotatingFileHandler):
    """Output to a file that is set aside as `.1`, `.2`, … when it grows too large; readable by its owner only. A file
    that somebody else has renamed or deleted is begun again with the next lines.

    Lines on a full disk count as lost; up to 8 KiB of them wait in the file's buffer and are written once there is
    room.
    """

    def __init__(self, path: Path, max_bytes: int, older: int) -> None:
        RotatingFileHandler.__init__(self, path, maxBytes=max_bytes, backupCount=older, encoding="utf-8")
        self._statstream()

    def _open(self) -> Any:
        return open(self.baseFilename, self.mode, encoding=self.encoding, opener=_open_private)

    def emit(self, record: LogRecord) -> None:
        self.reopenIfNeeded()
        RotatingFileHandler.emit(self, record)


def file_output(path: Path, *, max_bytes: int = FILE_BYTES, older: int = OLDER_FILES) -> Target:
    """Return an output to a file, or to the pipe or device of this name, as /dev/stdout is. Raises: OSError."""
    fd = _open_private(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return Descriptor(fd)
    os.close(fd)
    return FileOutput(path, max_bytes, older)


def _open_private(path: str | Path, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def stream_output(stream: Any) -> Target:
    """Return an output to a text stream, through a duplicate of its file descriptor if it has one."""
    try:
        return Descriptor(os.dup(stream.fileno()))
    except (OSError, ValueError, AttributeError):  # io.UnsupportedOperation is both of the first two
        return StreamOutput(stream)


class Descriptor:
    """Output to a file descriptor: Python's lock on `sys.stderr` is not held while a write blocks."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, lines: bytes) -> None:
        while lines:
            try:
                lines = lines[os.write(self._fd, lines) :]
            except BlockingIOError:  # another program made the pipe non-blocking
                select.select([], [self._fd], [], 1.0)

    def close(self) -> None:
        os.close(self._fd)
