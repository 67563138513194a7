"""Reader of a log file and its rotated predecessors, from the oldest line on; it follows the file over rotation.

At a rotation the service renames `spar.log.1` to `spar.log.2` and so on, the full `spar.log` to `spar.log.1`, and
begins a new file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Final

#: Bytes of one line that are read; the rest of a longer one, which is none of spar's, is skipped.
LONGEST: Final = 256 * 1024
#: Largest number of rotated files that are read.
OLDER: Final = 100
_CHUNK: Final = 64 * 1024


class LogFile:
    """Reader of the lines of a log, without their line feeds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None
        self._incomplete = b""

    def __enter__(self) -> LogFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()

    def exists(self) -> bool:
        return self.path.exists() or bool(self._aside())

    def earlier(self) -> Iterator[bytes]:
        """Yield the existing lines, the oldest first. Raises: OSError."""
        self._open()
        yield from self._set_aside(self._file)
        yield from self.more()

    def more(self) -> Iterator[bytes]:
        """Yield the complete lines that were written since the last call. Raises: OSError."""
        if self._file is None and not self._open():
            return
        while self._file is not None:
            yield from self._lines(self._file)
            if not self._is_replaced(self._file):
                return
            # The writer has begun another file; the rest of this one is read first.
            old = self._file
            yield from self._lines(old)
            yield from self._end()
            self._file = None
            with old:
                self._open()
                yield from self._set_aside(self._file, old)

    def _set_aside(self, current: IO[bytes] | None, read: IO[bytes] | None = None) -> Iterator[bytes]:
        """Yield the lines of the rotated files that are older than `current` and newer than `read`, the oldest first.

        All files are opened, the newest first, before one is read: so a rotation meanwhile neither loses nor repeats
        a line.
        """
        with ExitStack() as open_files:
            files: list[IO[bytes]] = []
            for path in self._aside():
                with suppress(FileNotFoundError):  # the oldest file was deleted just now
                    file: IO[bytes] = open_files.enter_context(path.open("rb"))
                    if read is not None and _is_same(file, read):
                        break
                    if not any(_is_same(file, other) for other in (*files, *([current] if current else []))):
                        files.append(file)
            for older in reversed(files):
                self._incomplete = b""
                yield from self._lines(older)
                yield from self._end()

    def _lines(self, file: IO[bytes]) -> Iterator[bytes]:
        """Yield the complete lines up to the end of a file; an incomplete last line is stored for the next call."""
        while chunk := file.read(_CHUNK):
            *complete, self._incomplete = (self._incomplete + chunk).split(b"\n")
            self._incomplete = self._incomplete[:LONGEST]
            yield from (line[:LONGEST] for line in complete if line)

    def _end(self) -> Iterator[bytes]:
        """Yield the last line of a file if it has no line feed."""
        if self._incomplete:
            yield self._incomplete
            self._incomplete = b""

    def _open(self) -> bool:
        """Open the file; return False if it does not exist."""
        try:
            self._file, self._incomplete = self.path.open("rb"), b""
        except FileNotFoundError:
            return False
        return True

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _is_replaced(self, file: IO[bytes]) -> bool:
        """Return whether the path names another file now, or this one was truncated."""
        opened = os.fstat(file.fileno())
        try:
            current = self.path.stat()
        except FileNotFoundError:
            return False  # during a rotation; the next call sees the new file
        return not os.path.samestat(opened, current) or current.st_size < file.tell()

    def _aside(self) -> list[Path]:
        """Return the rotated files, the newest first."""
        paths: list[Path] = []
        for number in range(1, OLDER + 1):
            path = self.path.with_name(f"{self.path.name}.{number}")
            if not path.exists():
                break
            paths.append(path)
        return paths


def _is_same(one: IO[bytes], other: IO[bytes]) -> bool:
    return os.path.sameopenfile(one.fileno(), other.fileno())
