"""Folder whose files are listed and read, blocking; the directory sensor does it in a thread.

It never leaves the directory: a symlink counts only when it leads to a regular file inside, and a directory behind a
symlink is not entered. It remembers nothing.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from spar.data.patterns import glob

SNIFF = 8_192  # bytes in which a NUL means that a file is binary

Tests = tuple[tuple[bool, Callable[[str], bool]], ...]  # whether the test is for the path, and the test


class Entry(Struct, frozen=True):
    """File with its status. `path` is relative, as the file system spells it; times in ns since 1970."""

    path: str
    mtime: int
    size: int
    ctime: int


class Text(Struct, frozen=True):
    """Beginning of a file. `digest` is that of the bytes that were read."""

    content: str
    digest: str
    truncated: bool
    binary: bool


class Folder:
    """One directory, and the rules for its files. All methods block and may raise OSError."""

    def __init__(self, root: Path, *, recursive: bool, include: tuple[str, ...], exclude: tuple[str, ...]) -> None:
        self.root, self._recursive = root, recursive
        self._include, self._exclude = _tests(include), _tests(exclude)

    def make(self) -> None:
        """Create the directory if it is missing. Raises: OSError of the same class with the directory's name."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            next(self.root.iterdir(), None)  # raises if it cannot be read
        except OSError as error:
            raise type(error)(f"cannot watch the directory {str(self.root)!r}: {error.strerror or error}") from error

    def identity(self) -> tuple[int, int]:
        """Return the identity of the directory at the path. Raises: FileNotFoundError, NotADirectoryError."""
        try:
            status = self.root.stat()
        except FileNotFoundError as error:
            raise FileNotFoundError(f"the directory {str(self.root)!r} is gone") from error
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(f"{str(self.root)!r} is not a directory any more")
        return status.st_dev, status.st_ino

    def scan(self) -> dict[str, Entry]:
        """Return every matching file, by its readable name."""
        return {readable(entry.path): entry for entry in self._below("")}

    def look(self, paths: Iterable[str]) -> tuple[dict[str, Entry], bool]:
        """Return the matching files among these relative paths, and whether one of the paths is a directory."""
        entries: dict[str, Entry] = {}
        has_directory = False
        for path in paths:
            parent, _, name = path.rpartition("/")
            if self._is_excluded(path) or (parent and not self._is_inside(parent)):
                continue
            try:
                status = self._full(path).lstat()
            except OSError:
                continue
            if stat.S_ISDIR(status.st_mode):
                has_directory = True
            elif (entry := self._entry(path, name, status)) is not None:
                entries[readable(path)] = entry
        return entries, has_directory

    def read(self, entry: Entry, limit: int) -> Text | None:
        """Return the file's first `limit` bytes; None when the file has changed since `entry`."""
        real = self._full(entry.path).resolve()
        # Another object may have replaced the file just now: follow no symlink, and do not wait for a pipe's writer.
        with os.fdopen(os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not self._holds(real) or not _is_same(entry, os.fstat(file.fileno())):
                return None
            beginning = file.read(limit)
            if not _is_same(entry, os.fstat(file.fileno())):
                return None
        truncated, binary = len(beginning) < entry.size, b"\0" in beginning[:SNIFF]
        # "replace", because a lone surrogate would break the database, the log and the model's request.
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        name = readable(real.name)
        content = f"binary file {name}, {entry.size} bytes" if binary else decoder.decode(beginning, not truncated)
        return Text(content, hashlib.blake2b(beginning, digest_size=12).hexdigest(), truncated, binary)

    # -- matching files

    def _below(self, parent: str) -> Iterator[Entry]:
        try:
            items = os.scandir(self._full(parent))
        except OSError:
            if not parent:
                raise
            return  # the subdirectory has vanished, or may not be read
        with items:
            for item in items:
                path = f"{parent}/{item.name}" if parent else item.name
                if self._is_excluded(path):
                    continue
                try:
                    if item.is_dir(follow_symlinks=False):
                        if self._recursive:
                            yield from self._below(path)
                    elif (entry := self._entry(path, item.name, item.stat(follow_symlinks=False))) is not None:
                        yield entry
                except OSError:
                    continue

    def _entry(self, path: str, name: str, status: os.stat_result) -> Entry | None:
        if ("/" in path and not self._recursive) or not _matches(path, name, self._include):
            return None
        if stat.S_ISLNK(status.st_mode):
            full = self._full(path)
            try:
                status = full.stat()
                if not self._holds(full.resolve()):
                    return None
            except (OSError, RuntimeError):  # a broken or circular symlink
                return None
        if not stat.S_ISREG(status.st_mode):
            return None
        return Entry(path, status.st_mtime_ns, status.st_size, status.st_ctime_ns)

    def _is_excluded(self, path: str) -> bool:
        parts = path.split("/")
        return any(_matches("/".join(parts[: i + 1]), part, self._exclude) for i, part in enumerate(parts))

    def _is_inside(self, parent: str) -> bool:
        """Return whether a subdirectory is a real one, not one behind a symlink."""
        return self._full(parent).resolve() == self.root.resolve() / parent

    def _holds(self, real: Path) -> bool:
        return real.is_relative_to(self.root.resolve())

    def _full(self, path: str) -> Path:
        return self.root / path


def readable(path: str) -> str:
    """Return a path that any encoder accepts: bytes that are not UTF-8 are written as `\\udcff`."""
    return path.encode("utf-8", "backslashreplace").decode()


def _tests(patterns: Iterable[str]) -> Tests:
    return tuple(("/" in pattern, glob(pattern)) for pattern in patterns)


def _matches(path: str, name: str, tests: Tests) -> bool:
    return any(test(path if is_of_path else name) for is_of_path, test in tests)


def _is_same(entry: Entry, status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) and (entry.mtime, entry.size) == (status.st_mtime_ns, status.st_size)
