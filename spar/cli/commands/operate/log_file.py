"""Reader of a log file and its rotated predecessors, from the oldest line on; it follows the file over rotation.

At a rotation the service renames `spar.log.1` to `spar.log.2` and so on, the full `spar.log` to `spar.log.1`, and
begins a new file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
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
        self._paths = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, OLDER + 1))]
        self._file: IO[bytes] | None = None
        self._incomplete = b""

    def __enter__(self) -> LogFile:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def exists(self) -> bool:
        return any(path.exists() for path in self._paths)

    def more(self) -> Iterator[bytes]:
        """Yield the complete lines that were written since the last call; at first all, the oldest first.

        Raises: OSError.
        """
        newer = self._newer()
        if self._file is not None:
            yield from self._lines(self._file)
        for file in reversed(newer):
            if self._file is not None:  # the writer has begun another one: the last line may have no line feed
                self._file.close()
                yield from filter(None, [self._incomplete])
            self._file, self._incomplete = file, b""
            yield from self._lines(file)

    def _newer(self) -> list[IO[bytes]]:
        """Open the files that were begun after the one that is read, the newest first.

        All are open before one is read: so a rotation meanwhile neither loses nor repeats a line.
        """
        files: list[IO[bytes]] = []
        for path in self._paths:
            with suppress(FileNotFoundError):  # a rotation is going on, or there are no more
                file = path.open("rb")
                if self._file is not None and _is_same(file, self._file):
                    file.close()
                    if os.fstat(self._file.fileno()).st_size < self._file.tell():  # it was emptied
                        self._file.seek(0)
                        self._incomplete = b""
                    break
                if any(_is_same(file, other) for other in files):
                    file.close()
                else:
                    files.append(file)
        return files

    def _lines(self, file: IO[bytes]) -> Iterator[bytes]:
        """Yield the complete lines up to the end of a file; an incomplete last line is stored for the next call."""
        while chunk := file.read(_CHUNK):
            *complete, self._incomplete = (self._incomplete + chunk).split(b"\n")
            self._incomplete = self._incomplete[:LONGEST]
            yield from (line[:LONGEST] for line in complete if line)


def _is_same(one: IO[bytes], other: IO[bytes]) -> bool:
    return os.path.sameopenfile(one.fileno(), other.fileno())
