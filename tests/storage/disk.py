"""A disk that remembers in which order it was written, so that the power can be cut at any moment afterwards.

SQLite reaches files through a VFS. `Disk` is one that does everything on real files in one folder and writes down
each write, truncation, flush, creation and deletion, and what was acknowledged between them. `Cutter` goes through
that and rebuilds what a real disk may hold when the power fails at one point: what was flushed is there; of what was
not, each write is there, or not, or only some of its sectors; a file's name is sure once its folder was flushed.

A flush can be made to fail as on Linux since 2018 ("fsyncgate"): what was to be written is then lost at random, and a
later flush that succeeds does not bring it back. A disk can be given a size, and be full.

It takes writes within a sector to leave the sector's other bytes alone, as SQLite does unless told otherwise. Source
of the method: SQLite's own crash tests (sqlite.org/testing.html), ALICE (Pillai et al., OSDI 2014).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import apsw

SECTOR = 512
_LOGS = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
_numbers = count()


@dataclass(slots=True)
class Op:
    """One thing that happened. `kind`: create, delete, folder (flushed), write, truncate, sync, unsynced, ack."""

    kind: str
    file: int = 0  # the file, whatever its name
    name: str = ""
    at: int = 0  # an offset or a size
    content: bytes = b""
    ack: Any = None


class Disk(apsw.VFS):
    """A folder whose database files are written through here while `in_use`.

    `fails(kind, name)` is asked before each read, write, truncate, sync and delete, and may raise what SQLite meets;
    `capacity` in bytes is how much all files in the folder may take.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.name = f"disk-{next(_numbers)}"
        super().__init__(self.name, "unix")
        self.ops: list[Op] = []
        self.fails: Callable[[str, str], None] = lambda kind, name: None
        self.capacity: int | None = None
        self.fired = 0
        self._files: dict[str, int] = {}
        self._next_file = count(1).__next__
        for path in sorted(self.folder.iterdir()):
            if path.is_file() and not path.name.endswith("-shm"):
                file = self._files[path.name] = self._next_file()
                content = path.read_bytes()
                self.ops += [Op("create", file, path.name), Op("write", file, path.name, 0, content)]
                self.ops += [Op("sync", file, path.name), Op("folder")]
        self.begins_at = len(self.ops)

    def acknowledge(self, ack: Any) -> None:
        """Note that somebody was told that this is safe."""
        self.ops.append(Op("ack", ack=ack))

    @contextmanager
    def in_use(self) -> Iterator[Disk]:
        """Every connection that is opened in the block and names no VFS goes through this disk."""
        # SQLite has no use for some errors of its disk; apsw hands those to whoever listens for what is lost.
        listener, sys.unraisablehook = sys.unraisablehook, lambda lost: None
        usual = apsw.vfs_names()[0]
        apsw.set_default_vfs(self.name)
        try:
            yield self
        finally:
            apsw.set_default_vfs(usual)
            self.unregister()
            sys.unraisablehook = listener

    # -- what SQLite asks for

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        path = Path(name.filename() if isinstance(name, apsw.URIFilename) else name or "")
        if name is None or path.parent != self.folder:
            return apsw.VFSFile("unix", name, flags)
        opened = _File(self, name, flags, path.name)
        if path.name not in self._files:
            self._files[path.name] = self._next_file()
            self.ops.append(Op("create", self._files[path.name], path.name))
        opened.file = self._files[path.name]
        return opened

    def xDelete(self, name: str, sync_folder: bool) -> None:
        path = Path(name)
        self.check("delete", path.name)
        super().xDelete(name, sync_folder)
        if path.parent == self.folder:
            self._files.pop(path.name, None)
            self.ops.append(Op("delete", name=path.name))
            if sync_folder:
                self.ops.append(Op("folder"))

    def check(self, kind: str, name: str) -> None:
        try:
            self.fails(kind, name)
        except apsw.Error:
            self.fired += 1
            raise

    def used(self) -> int:
        """Bytes that all files in the folder take."""
        return sum(path.stat().st_size for path in self.folder.iterdir() if not path.name.endswith("-shm"))

    def has_room(self, more: int) -> bool:
        return self.capacity is None or more <= 0 or self.used() + more <= self.capacity


class _File(apsw.VFSFile):
    def __init__(self, disk: Disk, name: Any, flags: list[int], short: str) -> None:
        super().__init__("unix", name, flags)
        self.disk, self.short, self.file = disk, short, 0
        self.is_new_log = bool(flags[0] & _LOGS and flags[0] & apsw.SQLITE_OPEN_CREATE)
        self.is_read_only = bool(flags[1] & apsw.SQLITE_OPEN_READONLY)

    def xLock(self, level: int) -> None:
        try:
            super().xLock(level)
        except apsw.IOError:
            if self.is_read_only:  # it asks for more when it closes; SQLite takes any no, apsw only this one
                raise apsw.BusyError("open read-only") from None
            raise

    def xRead(self, amount: int, at: int) -> bytes:
        self.disk.check("read", self.short)
        return super().xRead(amount, at)

    def xWrite(self, content: bytes, at: int) -> None:
        self.disk.check("write", self.short)
        if not self.disk.has_room(at + len(content) - self.xFileSize()):
            self.disk.fired += 1
            raise apsw.FullError("the disk is full")
        super().xWrite(content, at)
        self.disk.ops.append(Op("write", self.file, self.short, at, bytes(content)))

    def xTruncate(self, size: int) -> None:
        self.disk.check("truncate", self.short)
        super().xTruncate(size)
        self.disk.ops.append(Op("truncate", self.file, self.short, size))

    def xSync(self, flags: int) -> None:
        try:
            self.disk.check("sync", self.short)
        except apsw.Error:
            self.disk.ops.append(Op("unsynced", self.file, self.short))
            raise
        # Not handed on to the real disk: which flush was asked for is written down, and that is all that counts here.
        self.disk.ops.append(Op("sync", self.file, self.short))
        if self.is_new_log:  # SQLite flushes the folder with the first flush of a log that it made
            self.is_new_log = False
            self.disk.ops.append(Op("folder"))


@dataclass
class _Content:
    """What a file surely holds, and what was written since it was flushed."""

    sure: bytearray = field(default_factory=bytearray)
    pending: list[Op] = field(default_factory=list)


class Cutter:
    """Goes through what a disk was told, forwards; `cut` says what is left if the power fails there."""

    def __init__(self, ops: list[Op], seed: int) -> None:
        self._ops, self._at, self._random = ops, 0, Random(seed)
        self._contents: dict[int, _Content] = {}
        self._names: dict[str, int] = {}
        self._pending: list[Op] = []  # creations and deletions that may not be on disk yet
        self.acks: list[Any] = []

    def go_to(self, at: int) -> None:
        """Let everything before `ops[at]` happen."""
        while self._at < at:
            self._happen(self._ops[self._at])
            self._at += 1

    def cut(self, folder: Path) -> None:
        """Write the files that are left into an empty folder."""
        chance = self._random
        likely = chance.choice([0.0, 0.2, 0.5, 0.8, 1.0])  # all of one kind is as likely as any mixture
        names = dict(self._names)
        for op in self._pending:
            if chance.random() < likely:
                _rename(names, op)
        for name, file in names.items():
            content = self._contents[file]
            left = bytearray(content.sure)
            for op in content.pending:
                _apply(left, op, chance, likely)
            (folder / name).write_bytes(left)

    def _happen(self, op: Op) -> None:
        if op.kind == "ack":
            self.acks.append(op.ack)
        elif op.kind == "folder":
            for each in self._pending:
                _rename(self._names, each)
            self._pending.clear()
        elif op.kind in ("create", "delete"):
            if op.kind == "create":
                self._contents[op.file] = _Content()
            self._pending.append(op)
        else:
            content = self._contents[op.file]
            if op.kind in ("write", "truncate"):
                content.pending.append(op)
                return
            for each in content.pending:
                _apply(content.sure, each, self._random, 1.0 if op.kind == "sync" else 0.5)
            content.pending.clear()


def _rename(names: dict[str, int], op: Op) -> None:
    if op.kind == "create":
        names[op.name] = op.file
    else:
        names.pop(op.name, None)


def _apply(content: bytearray, op: Op, chance: Random, likely: float) -> None:
    """Let a write or a truncation come true, or not, or in part."""
    if op.kind == "truncate":
        if likely == 1.0 or chance.random() < likely:
            del content[op.at :]
            content.extend(bytes(op.at - len(content)))
        return
    if likely == 1.0:
        _put(content, op.at, op.content)
        return
    if chance.random() < 0.5:  # as a whole or not at all
        if chance.random() < likely:
            _put(content, op.at, op.content)
        return
    at, end = op.at, op.at + len(op.content)
    while at < end:
        upto = min(end, (at // SECTOR + 1) * SECTOR)
        if chance.random() < likely:
            _put(content, at, op.content[at - op.at : upto - op.at])
        at = upto


def _put(content: bytearray, at: int, piece: bytes) -> None:
    if at > len(content):
        content.extend(bytes(at - len(content)))
    content[at : at + len(piece)] = piece


def empty(folder: Path) -> Path:
    """The folder, made or emptied."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_file():
            path.unlink()
        else:
            _remove(path)
    return folder


def _remove(folder: Path) -> None:
    empty(folder)
    folder.rmdir()
