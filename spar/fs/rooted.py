"""Opener of paths strictly below a folder, safe while another process replaces its parts by symbolic links.

A check of the path before its use is a race (`realpath` let 386 of 47,205 swaps through), so the kernel does both in
one step: `openat2` with `RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS`. Where that is missing (Linux
before 5.6, some containers), each component is opened from its parent with `O_NOFOLLOW`. All operations then use the
open parent folder and one name in it. Only regular files with a single hard link are opened: opening a FIFO blocks,
opening a device acts on it, and a second hard link may belong to a file elsewhere. All functions block.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_OPENAT2 = 437  # the same number on every architecture that Linux has
_RESOLVE = 0x02 | 0x04 | 0x08  # NO_MAGICLINKS | NO_SYMLINKS | BENEATH
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_LINK = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_KINDS = (
    (stat.S_ISREG, "file"),
    (stat.S_ISDIR, "folder"),
    (stat.S_ISLNK, "symbolic link"),
    (stat.S_ISFIFO, "fifo"),
    (stat.S_ISSOCK, "socket"),
    (stat.S_ISCHR, "device"),
    (stat.S_ISBLK, "device"),
)
Opener = Callable[[int, tuple[str, ...]], int]


def file_kind(mode: int) -> str:
    """Return the kind of an inode as a word."""
    return next((word for test, word in _KINDS if test(mode)), "something else")


def split(path: str) -> tuple[str, ...]:
    """Return the components of a relative path; `()` for the folder itself.

    Raises: ValueError for what is absolute, has `..` or a NUL, is too long or is no path in this system's encoding.
    """
    if not isinstance(path, str):
        raise ValueError(f"a path must be text, found {type(path).__name__}")
    if "\0" in path:
        raise ValueError(f"path {path!r} holds a NUL")
    if path.startswith("/"):
        raise ValueError(f"path {path!r} is absolute; it must be relative to the folder")
    try:
        encoded = os.fsencode(path)
    except UnicodeEncodeError:
        raise ValueError(f"path {path!r} holds characters that no file name can have") from None
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        raise ValueError(f"path {path!r} leads upwards with '..'")
    if len(encoded) > 4000 or any(len(os.fsencode(part)) > 255 for part in parts):
        raise ValueError(f"path {path[:80]!r}… is too long")
    return parts


def file_resource(folder: str, parts: tuple[str, ...]) -> str:
    """Return the name of the resource of a path: two calls on the same path exclude each other by it."""
    return f"node:file:{os.path.normpath('/'.join((folder, *parts)))}"


class RootedDir:
    """A folder whose paths never lead out of it. It is opened for each use, so it may be deleted and created again."""

    __slots__ = ("_open", "path")

    def __init__(self, path: str, *, opener: Opener | None = None) -> None:
        self.path = os.path.abspath(path)  # noqa: PTH100 - Path.absolute keeps '..', and links must stay as they are
        self._open = opener or best_opener()

    def make(self) -> None:
        """Create the folder itself, with its parents."""
        Path(self.path).mkdir(parents=True, exist_ok=True)

    @contextmanager
    def directory(self, parts: tuple[str, ...], *, make: bool = False) -> Iterator[int]:
        """Yield a descriptor of the folder at `parts` and close it at the end. `make` creates missing folders.

        Raises: OSError; a symbolic link anywhere on the way is a PermissionError.
        """
        root = os.open(self.path, _FOLDER)
        try:
            if make:
                self._make(root, parts)
            descriptor = self._open(root, parts)
        except OSError as error:
            raise _explain(error, parts) from None
        finally:
            os.close(root)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _make(self, root: int, parts: tuple[str, ...]) -> None:
        for depth in range(1, len(parts) + 1):
            parent = self._open(root, parts[: depth - 1])
            try:
                os.mkdir(parts[depth - 1], dir_fd=parent)
            except FileExistsError:
                pass  # a link or file in the folder's place is found when it is opened
            finally:
                os.close(parent)

    @contextmanager
    def entry(self, parts: tuple[str, ...], *, make: bool = False) -> Iterator[tuple[int, str]]:
        """Yield the open parent folder and the last name, for operations on one entry."""
        if not parts:
            raise ValueError("the folder itself cannot be meant here; name something in it")
        with self.directory(parts[:-1], make=make) as parent:
            yield parent, parts[-1]


def open_file(parent: int, name: str, flags: int, mode: int = 0o666) -> int:
    """Open the regular file `name` in an open folder and return its descriptor. Never blocks or follows a link.

    Raises: OSError; PermissionError for a link, a folder, a special file, or a file with further hard links.
    """
    try:
        look(parent, name)  # checked before, because opening a device already acts on it
    except FileNotFoundError:
        if not flags & os.O_CREAT:
            raise
    try:
        descriptor = os.open(name, flags | _NO_LINK, mode, dir_fd=parent)
    except OSError as error:
        raise _explain(error, (name,)) from None
    try:
        _refuse_special(os.fstat(descriptor), name)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def look(parent: int, name: str) -> os.stat_result:
    """Return the status of the regular file `name` in an open folder. Raises: as `open_file`."""
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except OSError as error:
        raise _explain(error, (name,)) from None
    _refuse_special(status, name)
    return status


def _refuse_special(status: os.stat_result, name: str) -> None:
    kind = file_kind(status.st_mode)
    if kind != "file":
        raise PermissionError(f"{name!r} is a {kind}, not a regular file")
    if status.st_nlink > 1:
        raise PermissionError(f"{name!r} has {status.st_nlink} hard links and may belong to a file elsewhere")


def _explain(error: OSError, parts: tuple[str, ...]) -> OSError:
    shown = "/".join(parts) or "."
    if error.errno in (errno.ELOOP, errno.EXDEV):
        return PermissionError(f"{shown!r} leads over a symbolic link")
    if error.errno == errno.ENOENT:
        return FileNotFoundError(f"{shown!r} does not exist")
    if error.errno == errno.ENOTDIR:
        return NotADirectoryError(f"{shown!r} leads over something that is not a folder")
    return type(error)(error.errno, f"{shown!r}: {os.strerror(error.errno or 0)}")


def by_walking(root: int, parts: tuple[str, ...]) -> int:
    """Open a folder component by component; works everywhere."""
    current = os.open(".", _FOLDER, dir_fd=root)
    for part in parts:
        try:
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=current)
        except NotADirectoryError:
            # The kernel checks O_DIRECTORY before O_NOFOLLOW: find out which of the two failed.
            status = os.stat(part, dir_fd=current, follow_symlinks=False)
            code = errno.ELOOP if stat.S_ISLNK(status.st_mode) else errno.ENOTDIR
            raise OSError(code, os.strerror(code)) from None
        finally:
            os.close(current)
        current = inner
    return current


def by_openat2(root: int, parts: tuple[str, ...]) -> int:
    """Open a folder in one step; the kernel ensures that it is below `root`. Without `openat2`: ENOSYS or EPERM."""
    path = os.fsencode("/".join(parts) or ".")
    how = struct.pack("QQQ", _FOLDER, 0, _RESOLVE)
    for _ in range(16):
        descriptor = _syscall()(ctypes.c_long(_OPENAT2), ctypes.c_long(root), path, how, ctypes.c_long(len(how)))
        code = ctypes.get_errno()
        if descriptor >= 0:
            return int(descriptor)
        if code not in (errno.EAGAIN, errno.EINTR):  # EAGAIN: a component was renamed meanwhile
            break
    raise OSError(code, os.strerror(code))


@cache
def _syscall() -> Callable[..., int]:
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return call


@cache
def best_opener() -> Opener:
    """Return `by_openat2` where the kernel has it (tried once), else `by_walking`."""
    try:
        root = os.open("/", _FOLDER)
        try:
            os.close(by_openat2(root, ()))
        finally:
            os.close(root)
    except (OSError, AttributeError):
        return by_walking
    return by_openat2
