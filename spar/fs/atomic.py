"""Atomic changes of files, given the open folder and a name in it (see `rooted`): each happens wholly or not at all.

New content is written to a temporary file in the same folder, flushed, and renamed over the old file. A copy or a move
never replaces an existing file. Each change is on the disk when the function returns. All functions block.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

from spar.fs.rooted import file_kind, look, open_file
from spar.ids import new_id

_CHUNK = 1 << 20
_NO_REPLACE = 1
Entry = tuple[int, str]


def write_all(descriptor: int, content: bytes) -> None:
    """Write all bytes. Raises: OSError; a part may be written then."""
    unwritten = memoryview(content)
    while unwritten:
        unwritten = unwritten[os.write(descriptor, unwritten) :]


def make_durable(folder: int) -> None:
    """Flush a folder's entries to the disk, where the file system can do that."""
    try:
        os.fsync(folder)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise


@contextmanager
def _temporary_file(parent: int) -> Iterator[tuple[int, str]]:
    """Create a temporary file in the folder, and delete it at the end unless it was renamed."""
    name = f".spar-{new_id()}.tmp"
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666, dir_fd=parent)
    try:
        yield file, name
    finally:
        os.close(file)
        try:
            os.unlink(name, dir_fd=parent)
        except FileNotFoundError:
            pass


def replace_file(parent: int, name: str, content: bytes) -> None:
    """Replace a file's content and keep its mode. Raises: OSError; PermissionError for anything but a regular file."""
    try:
        mode: int | None = look(parent, name).st_mode & 0o777
    except FileNotFoundError:
        mode = None
    with _temporary_file(parent) as (file, temporary):
        write_all(file, content)
        if mode is not None:
            os.fchmod(file, mode)
        os.fsync(file)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
        make_durable(parent)


def copy_file(source: Entry, target: Entry) -> int:
    """Copy a file's content and return its size in bytes. A target with the same bytes counts as copied.

    Raises: FileExistsError for a target with other content, and other OSErrors.
    """
    original = open_file(*source, os.O_RDONLY)
    try:
        return _copy_open(original, target)
    finally:
        os.close(original)


def _copy_open(original: int, target: Entry) -> int:
    size, parent = os.fstat(original).st_size, target[0]
    with _temporary_file(parent) as (file, temporary):
        left = size  # a file that grows meanwhile is copied up to its first size
        while left and (chunk := os.read(original, min(_CHUNK, left))):
            write_all(file, chunk)
            left -= len(chunk)
        os.fsync(file)
        try:
            rename_new((parent, temporary), target)
        except FileExistsError:
            if not _is_same((parent, temporary), target):
                raise
        make_durable(parent)
    return size - left


def _is_same(one: Entry, other: Entry) -> bool:
    if look(*one).st_size != look(*other).st_size:
        return False
    first, second = open_file(*one, os.O_RDONLY), open_file(*other, os.O_RDONLY)
    try:
        while chunk := os.read(first, _CHUNK):
            if os.read(second, _CHUNK) != chunk:
                return False
        return True
    finally:
        os.close(first)
        os.close(second)


def move_entry(source: Entry, target: Entry) -> None:
    """Move a file or folder; between file systems a file is copied and then removed.

    Raises: FileExistsError when something is there already; PermissionError for links and special files.
    """
    status = os.stat(source[1], dir_fd=source[0], follow_symlinks=False)
    kind = file_kind(status.st_mode)
    if kind not in ("file", "folder"):
        raise PermissionError(f"{source[1]!r} is a {kind}, not a file or folder")
    try:
        rename_new(source, target)
    except OSError as error:
        if error.errno != errno.EXDEV or kind == "folder":
            raise
        _copy_and_delete(source, target)
    make_durable(target[0])
    make_durable(source[0])


def _copy_and_delete(source: Entry, target: Entry) -> None:
    original = open_file(*source, os.O_RDONLY)
    try:
        _copy_open(original, target)
        now = os.stat(source[1], dir_fd=source[0], follow_symlinks=False)
        if os.path.samestat(now, os.fstat(original)):  # else another process has replaced the file meanwhile
            os.unlink(source[1], dir_fd=source[0])
    finally:
        os.close(original)


def rename_new(source: Entry, target: Entry) -> None:
    """Rename to a name that does not exist yet. Raises: FileExistsError, and other OSErrors."""
    call = _renameat2()
    if call is not None:
        names = os.fsencode(source[1]), os.fsencode(target[1])
        if call(source[0], names[0], target[0], names[1], _NO_REPLACE) == 0:
            return
        code = ctypes.get_errno()
        if code not in (errno.ENOSYS, errno.EINVAL):  # EINVAL: not supported by this file system; or folder into itself
            raise OSError(code, os.strerror(code))
    try:
        os.stat(target[1], dir_fd=target[0], follow_symlinks=False)
    except FileNotFoundError:
        os.rename(source[1], target[1], src_dir_fd=source[0], dst_dir_fd=target[0])
    else:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


@cache
def _renameat2() -> Callable[..., int] | None:
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2  # glibc 2.28, musl 1.2.6
    except AttributeError:
        return None
    call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return call
