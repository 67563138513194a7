"""Operations on one file or folder below a rooted folder: read, list, describe, write, copy, move, delete.

Reads are bounded. A write of a whole file is atomic, and copying or moving never replaces an existing file. Each
operation returns a JSON object about its result, and raises OSError when it fails.
"""

from __future__ import annotations

import base64
import codecs
import heapq
import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct

from spar.data.text import disarmed
from spar.fs.atomic import copy_file, make_durable, move_entry, replace_file, write_all
from spar.fs.rooted import RootedDir, file_kind, look, open_file
from spar.protocols import Effect

_MOST_ENTRIES: Final = 1000


class Place(Struct, frozen=True):
    """The target of a path: `parts` below `folder`. `is_own` is false for a folder outside of the workspace."""

    folder: RootedDir
    parts: tuple[str, ...]
    is_own: bool = True


def read(place: Place, encoding: str, most: int) -> dict[str, Any]:
    """Return the first `most` bytes of a file, as text or base64."""
    with place.folder.entry(place.parts) as (parent, name):
        file = open_file(parent, name, os.O_RDONLY)
        try:
            size, content = os.fstat(file).st_size, bytearray()
            while len(content) <= most and (chunk := os.read(file, most + 1 - len(content))):
                content += chunk
        finally:
            os.close(file)
    is_cut = len(content) > most
    del content[most:]
    answer: dict[str, Any] = {"bytes": size, "truncated": is_cut, "encoding": encoding}
    if encoding == "base64":
        return {**answer, "content": base64.b64encode(content).decode()}
    try:
        text, is_lossy = _decode(content, "strict", is_cut), False
    except UnicodeDecodeError:
        text, is_lossy = _decode(content, "replace", is_cut), True
    return {**answer, "content": text, "lossy": is_lossy}


def _decode(content: bytearray, errors: str, is_cut: bool) -> str:
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
        described = []
        for name in names:
            try:
                described.append(
                    {"name": disarmed(name), **_describe_status(os.stat(name, dir_fd=folder, follow_symlinks=False))}
                )
            except FileNotFoundError:
                pass  # deleted meanwhile
    return {"entries": described, "total": total, "truncated": total > _MOST_ENTRIES}


def describe(place: Place) -> dict[str, Any]:
    """Describe a file or folder."""
    if not place.parts:
        with place.folder.directory(()) as folder:
            return _describe_status(os.fstat(folder))
    with place.folder.entry(place.parts) as (parent, name):
        return _describe_status(os.stat(name, dir_fd=parent, follow_symlinks=False))


def _describe_status(status: os.stat_result) -> dict[str, Any]:
    try:
        modified_at = datetime.fromtimestamp(status.st_mtime, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        modified_at = None  # a date outside of the calendar's range
    return {"kind": file_kind(status.st_mode), "bytes": status.st_size, "modified_at": modified_at}


def write(place: Place, content: bytes) -> dict[str, Any]:
    """Write a whole file, and create its folders."""
    with place.folder.entry(place.parts, make=True) as (parent, name):
        replace_file(parent, name, content)
    return {"bytes": len(content)}


def append(place: Place, content: bytes) -> dict[str, Any]:
    """Append to a file; create it, and its folders, if there is none."""
    with place.folder.entry(place.parts, make=True) as (parent, name):
        file = open_file(parent, name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            write_all(file, content)
            os.fsync(file)
            return {"bytes": os.fstat(file).st_size}
        finally:
            os.close(file)


def make_folder(place: Place) -> dict[str, Any]:
    """Create a folder with its parents."""
    with place.folder.directory(place.parts, make=True):
        return {"kind": "folder"}


def delete(place: Place) -> dict[str, Any]:
    """Delete a file, a link (not its target) or an empty folder; one that does not exist is no error."""
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
    """Copy a file to a path that does not exist, or that has the same content."""
    with place.folder.entry(place.parts) as source, to.folder.entry(to.parts, make=True) as target:
        return {"to": "/".join(to.parts), "bytes": copy_file(source, target)}


def move(place: Place, to: Place) -> dict[str, Any]:
    """Move a file or folder to a path that does not exist; from outside of the workspace only regular files."""
    with place.folder.entry(place.parts) as source, to.folder.entry(to.parts, make=True) as target:
        if not place.is_own:
            look(*source)
        move_entry(source, target)
    return {"to": "/".join(to.parts)}


#: What the path of an operation must allow: to read there, to take something away, to change anything.
READ, TAKE, CHANGE = range(3)


class Operation(Struct, frozen=True):
    """Operation of the tool: its function, the effect of a call, and the right that the `path` of a call needs."""

    carry_out: Callable[..., dict[str, Any]]
    effect: Effect
    right: int = CHANGE


#: The operations by the names that callers use.
OPERATIONS: Final[Mapping[str, Operation]] = {
    "read": Operation(read, "read", READ),
    "list": Operation(list_entries, "read", READ),
    "stat": Operation(describe, "read", READ),
    "write": Operation(write, "idempotent"),
    "mkdir": Operation(make_folder, "idempotent"),
    "delete": Operation(delete, "idempotent"),
    "copy": Operation(copy, "idempotent", READ),  # a copy that is already there, byte for byte, counts as made
    "append": Operation(append, "once"),
    "move": Operation(move, "once", TAKE),
}


_SECRETS = re.compile(
    r"\.env(\..*)?|\.ssh|\.gnupg|\.aws|\.azure|\.kube|\.docker|\.netrc|_netrc|\.pgpass|\.my\.cnf|\.pypirc|\.npmrc"
    r"|\.git-credentials|id_(rsa|dsa|ecdsa|ed25519)(_sk)?"
)
_EXECUTED = re.compile(
    r"\.git|git~\d|\.gitconfig|\.gitmodules|\.hg|\.envrc|\.(k|c|tc)?shrc|\.bashrc|\.zshrc|\.zshenv|\.zlogin|\.zlogout"
    r"|\.z?profile|\.bash_(profile|login|logout|aliases)|\.inputrc|\.xinitrc|\.xprofile|\.xsessionrc|\.pythonrc|\.pdbrc"
    r"|\.vimrc|\.vscode|\.idea|\.cursor|\.claude|\.roo|\.zed|\.mcp\.json|\.config"
)
_EXAMPLES = re.compile(r"\.env\.(example|sample|template|dist)")


def protected(parts: Sequence[str], *, change: bool) -> str:
    """Return the first component that no tool may read (with `change`: or change), even with approval, or "".

    Secrets, and files that others execute: a hook in `.git`, a line in `.bashrc` or a setting of an editor runs later
    with more rights than a tool has. Names are compared like in the most lenient file systems (case, width, invisible
    characters, trailing dots), so that every spelling is found. The service's own configuration and state need no
    entry: no workspace may hold them.
    """
    for part in parts:
        name = _folded(part)
        if _SECRETS.fullmatch(name) and not _EXAMPLES.fullmatch(name):
            return part
        if change and _EXECUTED.fullmatch(name):
            return part
    return ""


def _folded(name: str) -> str:
    wide = unicodedata.normalize("NFKC", name)
    seen = "".join(sign for sign in wide if unicodedata.category(sign) not in ("Cf", "Cc", "Mn"))
    return seen.partition(":")[0].rstrip(". ").casefold()  # NTFS: `.git::$INDEX_ALLOCATION`, `.git. .`
