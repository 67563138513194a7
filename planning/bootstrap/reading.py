"""Reading of one text file for a prompt, with bounds and checks. Its functions block and are for a thread.

A tool may have written the file in the workspace: a link could lead to a secret of the service, a pipe could block, a
second hard link may belong to a file elsewhere. So the file is opened without following its last link. Its real path is
checked after it is open, so that nobody can swap the file in between.
"""

from __future__ import annotations

import codecs
import os
import stat
from pathlib import Path
from typing import Final

from msgspec import Struct

from spar.errors import SparError

#: Largest number of bytes of one character in UTF-8.
_WIDEST: Final = 4
#: Attempts to read a file that changes while it is read.
_MOST_TRIES: Final = 3

Key = tuple[int, int, int, int]


class UnreadableError(SparError):
    """A file cannot be used in a prompt. The message is the end of a sentence that begins with the file's name.

    `stays`: the error lasts until the file changes, so the file need not be read again before.
    """

    def __init__(self, message: str, *, stays: bool = True) -> None:
        super().__init__(message)
        self.stays = stays


class Reading(Struct, frozen=True):
    """Text of a file as it was read.

    `text` has its first characters; `is_whole` says whether these are all. `path` is its real path; `is_inside` says
    whether that lies in the workspace. `size` is in bytes, `length` in characters (0: not counted).
    """

    text: str
    path: str
    is_inside: bool
    is_whole: bool
    size: int
    length: int


def key_of(status: os.stat_result) -> Key:
    """Return a key that changes whenever the file changes: time, size, inode and device."""
    return status.st_mtime_ns, status.st_size, status.st_ino, status.st_dev


def find_file(name: str, folders: tuple[str, ...]) -> tuple[str, os.stat_result] | None:
    """Return path and status of the first file of this name in these folders; None if no folder has it.

    Raises: UnreadableError when the system cannot say whether the file exists.
    """
    for folder in folders:
        path = os.path.join(folder, name)  # noqa: PTH118 - a thousand times a minute
        try:
            return path, os.stat(path)  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            raise UnreadableError(f"cannot be looked at: {_reason(error)}", stays=False) from error
    return None


def read_text(path: str, most: int, *, inside: str) -> Reading:
    """Return the first `most` characters of a file. Args: inside: the real path of the workspace.

    Raises: UnreadableError for a file that is not regular, is not text, leads out of the workspace or keeps changing.
    """
    for _ in range(_MOST_TRIES):
        try:
            reading = _read(path, most, inside)
        except OSError as error:
            raise UnreadableError(f"cannot be read: {_reason(error)}", stays=False) from error
        if reading is not None:
            return reading
    raise UnreadableError("keeps changing while it is read", stays=False)


def _read(path: str, most: int, inside: str) -> Reading | None:
    """Return the reading; None if the file changed while it was read."""
    is_named_inside = _leads_through(path, inside)
    # Opening a device already acts on it, so check the type before.
    _refuse_special(os.stat(path, follow_symlinks=not is_named_inside))  # noqa: PTH116
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC | (os.O_NOFOLLOW if is_named_inside else 0)
    opened = os.open(path, flags)
    try:
        before = os.fstat(opened)
        _refuse_special(before)
        real = os.path.realpath(f"/proc/self/fd/{opened}")
        is_inside = Path(real).is_relative_to(inside)
        if is_named_inside and not is_inside:
            raise UnreadableError("leads out of the workspace")
        if is_inside and before.st_nlink > 1:
            raise UnreadableError(f"has {before.st_nlink} hard links and may belong to a file elsewhere")
        with open(opened, "rb", closefd=False) as file:
            content = file.read(_WIDEST * most + _WIDEST)
        if key_of(os.fstat(opened)) != key_of(before):
            return None
    finally:
        os.close(opened)
    is_end = len(content) >= before.st_size
    text = _text(content, is_end=is_end)
    is_whole = is_end and len(text) <= most
    return Reading(text[:most], real, is_inside, is_whole, before.st_size, len(text) if is_end else 0)


def _leads_through(path: str, folder: str) -> bool:
    """Return whether a parent of the path, with its links resolved, lies in this folder (a real path)."""
    return any(Path(os.path.realpath(parent)).is_relative_to(folder) for parent in Path(path).parents)


def _text(content: bytes, *, is_end: bool) -> str:
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(content, final=is_end)
    except UnicodeDecodeError:
        raise UnreadableError("is no text in UTF-8") from None
    if "\0" in text:
        raise UnreadableError("is no text: it holds NUL")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _refuse_special(status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise UnreadableError("is a symbolic link, which is not followed in the workspace")
    if not stat.S_ISREG(status.st_mode):
        what = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise UnreadableError(f"is {what}")


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__
