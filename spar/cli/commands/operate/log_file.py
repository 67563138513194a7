"""File of log lines with the older ones that were set aside: read from the oldest line on, and followed over rotation.

The service renames a full file `spar.log` to `spar.log.1`, that to `.2`, and begins a new one.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Final

#: Bytes of one line that are kept; a longer one is no line of ours, and what is more is passed over.
LONGEST: Final = 256 * 1024
#: The most files that were set aside that are looked for.
OLDER: Final = 100
_CHUNK: Final = 64 * 1024


class LogFile:
    """Reader of the lines of a log, each without its line feed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None
        self._rest = b""

    def __enter__(self) -> LogFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._close()

    def exists(self) -> bool:
        return self.path.exists() or bool(self._aside())

    def earlier(self) -> Iterator[bytes]:
        """Yield what is there, the oldest line first. Raises: OSError."""
        self._open()
        yield from self._set_aside(self._file)
        yield from self.more()

    def more(self) -> Iterator[bytes]:
        """Yield the whole lines that have come since. Raises: OSError."""
        if self._file is None and not self._open():
            return
        while self._file is not None:
            yield from self._lines(self._file)
            if not self._is_replaced(self._file):
                return
            # The writer has gone on to another file; what it wrote to this one before is read now.
            read = self._file
            yield from self._lines(read)
            yield from self._end()
            self._file = None
            with read:
                self._open()
                yield from self._set_aside(self._file, read)

    def _set_aside(self, current: IO[bytes] | None, read: IO[bytes] | None = None) -> Iterator[bytes]:
        """Yield the lines of the files that were set aside before `current` and after `read`, the oldest first.

        All are opened before one is read, the newest first: so no line is missed or told twice when the writer goes on
        meanwhile.
        """
        with ExitStack() as opened:
            files: list[IO[bytes]] = []
            for path in self._aside():
                with suppress(FileNotFoundError):  # it was the oldest one, and has just gone
                    file: IO[bytes] = opened.enter_context(path.open("rb"))
                    if read is not None and _is_same(file, read):
                        break
                    if not any(_is_same(file, known) for known in (*files, *([current] if current else []))):
                        files.append(file)
            for each in reversed(files):
                self._rest = b""
                yield from self._lines(each)
                yield from self._end()

    def _lines(self, file: IO[bytes]) -> Iterator[bytes]:
        """Yield whole lines to the end of a file; the beginning of one that is not yet whole is kept."""
        while chunk := file.read(_CHUNK):
            *whole, self._rest = (self._rest + chunk).split(b"\n")
            self._rest = self._rest[:LONGEST]
            yield from (line[:LONGEST] for line in whole if line)

    def _end(self) -> Iterator[bytes]:
        """Yield what stands at the end of a file without a line feed."""
        if self._rest:
            yield self._rest
            self._rest = b""

    def _open(self) -> bool:
        try:
            self._file, self._rest = self.path.open("rb"), b""
        except FileNotFoundError:
            return False
        return True

    def _close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _is_replaced(self, file: IO[bytes]) -> bool:
        """Return whether another file has the name now, or this one was emptied."""
        ours = os.fstat(file.fileno())
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return False  # it is being renamed: the next look sees the new one
        return not os.path.samestat(ours, there) or there.st_size < file.tell()

    def _aside(self) -> list[Path]:
        """Return the files that were set aside, the newest first."""
        found: list[Path] = []
        for number in range(1, OLDER + 1):
            path = self.path.with_name(f"{self.path.name}.{number}")
            if not path.exists():
                break
            found.append(path)
        return found


def _is_same(one: IO[bytes], other: IO[bytes]) -> bool:
    return os.path.sameopenfile(one.fileno(), other.fileno())
