"""Operations on one file or folder beneath a rooted folder: read, list and describe it, write it, move and copy it.

Reads are bounded. What is written appears whole or not at all, and nothing that exists is destroyed by moving or
copying. Each returns what it found or did, fit to be shown, and raises OSError when that cannot be.
"""

from __future__ import annotations

import base64
import codecs
import heapq
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct

from acting.fs.atomic import copy_file, make_durable, move_entry, replace_file, write_all
from acting.fs.rooted import RootedDir, file_kind, look, open_file
from spar.data.text import disarmed

_MOST_ENTRIES: Final = 1000


class Place(Struct, frozen=True):
    """The target of a path: `parts` beneath `folder`; a folder that `is_own` is not, holds foreign documents."""

    folder: RootedDir
    parts: tuple[str, ...]
    is_own: bool = True


def read(place: Place, encoding: str, most: int) -> dict[str, Any]:
    """Return the first `most` bytes of a file, as text or base64."""
    with place.folder.entry(place.parts) as (parent, name):
        file = open_file(parent, name, os.O_RDONLY)
        try:
            size, found = os.fstat(file).st_size, bytearray()
            while len(found) <= most and (chunk := os.read(file, most + 1 - len(found))):
                found += chunk
        finally:
            os.close(file)
    is_cut = len(found) > most
    del found[most:]
    answer: dict[str, Any] = {"bytes": size, "truncated": is_cut, "encoding": encoding}
    if encoding == "base64":
        return {**answer, "content": base64.b64encode(found).decode()}
    try:
        text, is_lossy = _decoded(found, "strict", is_cut), False
    except UnicodeDecodeError:
        text, is_lossy = _decoded(found, "replace", is_cut), True
    return {**answer, "content": text, "lossy": is_lossy}


def _decoded(content: bytearray, errors: str, is_cut: bool) -> str:
    return codecs.getincrementaldecoder("utf-8")(errors).decode(bytes(content), final=not is_cut)


def list_entries(place: Place) -> dict[str, Any]:
    """Return the entries of a folder, described, the first by name."""
    total = 0

    def counted(entries: Iterable[os.DirEntry[str]]) -> Iterator[str]:
        nonlocal total
        for entry in entries:
            total += 1
            yield entry.name

    with place.folder.directory(place.parts) as folder:
        with os.scandir(folder) as entries:
            names = heapq.nsmallest(_MOST_ENTRIES, counted(entries))
        found = []
        for name in names:
            try:
                found.append(
                    {"name": disarmed(name), **_described(os.stat(name, dir_fd=folder, follow_symlinks=False))}
                )
            except FileNotFoundError:
                pass  # it went meanwhile
    return {"entries": found, "total": total, "truncated": total > _MOST_ENTRIES}


def describe(place: Place) -> dict[str, Any]:
    """Describe a file or folder."""
    if not place.parts:
        with place.folder.directory(()) as folder:
            return _described(os.fstat(folder))
    with place.folder.entry(place.parts) as (parent, name):
        return _described(os.stat(name, dir_fd=parent, follow_symlinks=False))


def _described(status: os.stat_result) -> dict[str, Any]:
    try:
        modified_at = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        modified_at = None  # a date that no calendar has
    return {"kind": file_kind(status.st_mode), "bytes": status.st_size, "modified_at": modified_at}


def write(place: Place, content: bytes) -> dict[str, Any]:
    """Write a file anew, with the folders that lead to it."""
    with place.folder.entry(place.parts, make=True) as (parent, name):
        replace_file(parent, name, content)
    return {"bytes": len(content)}


def append(place: Place, content: bytes) -> dict[str, Any]:
    """Write to the end of a file, made if there is none."""
    with place.folder.entry(place.parts, make=True) as (parent, name):
        file = open_file(parent, name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            write_all(file, content)
            os.fsync(file)
            return {"bytes": os.fstat(file).st_size}
        finally:
            os.close(file)


def make_folder(place: Place) -> dict[str, Any]:
    """Make a folder and those that lead to it."""
    with place.folder.directory(place.parts, make=True):
        return {"kind": "folder"}


def delete(place: Place) -> dict[str, Any]:
    """Delete a file, a link (not what it means) or an empty folder; that it is gone already is as good."""
    try:
        with place.folder.entry(place.parts) as (parent, name):
            status = os.stat(name, dir_fd=parent, follow_symlinks=False)
            remove = os.rmdir if file_kind(status.st_mode) == "folder" else os.unlink
            remove(name, dir_fd=parent)
            make_durable(parent)
            return {"existed": True}
    except FileNotFoundError:
        return {"existed": False}


def copy(place: Place, to: Place) -> dict[str, Any]:
    """Copy a file to where nothing stands, or the same already."""
    with place.folder.entry(place.parts) as source, to.folder.entry(to.parts, make=True) as target:
        return {"to": "/".join(to.parts), "bytes": copy_file(source, target)}


def move(place: Place, to: Place) -> dict[str, Any]:
    """Move an entry to where nothing stands; out of a foreign folder only documents."""
    with place.folder.entry(place.parts) as source, to.folder.entry(to.parts, make=True) as target:
        if not place.is_own:
            look(*source)
        move_entry(source, target)
    return {"to": "/".join(to.parts)}


#: By the name that callers use.
OPERATIONS: Final[Mapping[str, Callable[..., dict[str, Any]]]] = {
    "read": read,
    "list": list_entries,
    "stat": describe,
    "write": write,
    "append": append,
    "mkdir": make_folder,
    "delete": delete,
    "copy": copy,
    "move": move,
}
