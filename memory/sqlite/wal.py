"""The write-ahead log as a file: its length, its salts, and its repair after a failed flush.

After a failed flush, Linux marks the pages that it could not write as written: the next flush succeeds and the pages
are lost. So a flush is never just repeated: the whole log is written again, and then flushed.
Source: A. Rebello et al., "Can Applications Recover from fsync Failures?", USENIX ATC 2020. The layout of the log:
sqlite.org/fileformat2.html, section 4.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from apsw import Connection

_HEAD, _FRAME_HEAD = 32, 24
_CHUNK = 1 << 16  # SQLite writes less than 128 KiB at once


def mend(connection: Connection) -> None:
    """Write the log again up to its last commit, cut off the bytes after that, and flush it.

    Raises: apsw.Error when this fails too; nothing is safer then than before.
    """
    import apsw

    number = frames(connection)
    page = int(str(connection.execute("PRAGMA page_size").get))
    end = _HEAD + number * (_FRAME_HEAD + page) if number > 0 else 0
    flags = [apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_READWRITE, 0]
    file = apsw.VFSFile(connection.open_vfs, connection.filename_wal, flags)  # as SQLite itself would open it
    try:
        for at in range(0, end, _CHUNK):
            file.xWrite(file.xRead(min(_CHUNK, end - at), at), at)
        file.xTruncate(end)
        file.xSync(apsw.SQLITE_SYNC_FULL)
    finally:
        file.xClose()


def frames(connection: Connection) -> int:
    """Return the number of frames (pages) of the log up to the last commit that this connection sees; -1 without a
    log."""
    import apsw

    return connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)[0]


def salts(path: str) -> bytes:
    """Return the salts of the log of the database at `path`; empty without a log. Never raises.

    SQLite gives the log new salts each time it begins to write it again from its start; this is a round.
    """
    try:
        with Path(f"{path}-wal").open("rb", buffering=0) as file:
            return file.read(_HEAD)[16:24]
    except OSError:
        return b""


def committed_frames(path: str) -> int:
    """Return the number of frames of the log of the database at `path` up to its last commit, by their heads.

    It is 0 without a log. SQLite also checks the content of the frames, and ignores all from the first damaged one on.
    """
    try:
        file = os.open(f"{path}-wal", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        head = os.pread(file, _HEAD, 0)
        if len(head) < _HEAD:
            return 0
        step = _FRAME_HEAD + int.from_bytes(head[8:12], "big")
        size, number, last = os.fstat(file).st_size, 0, 0
        while _HEAD + (number + 1) * step <= size:
            frame = os.pread(file, _FRAME_HEAD, _HEAD + number * step)
            number += 1
            if frame[8:16] != head[16:24]:  # a frame of an earlier round
                break
            if frame[4:8] != b"\0\0\0\0":
                last = number
        return last
    finally:
        os.close(file)
