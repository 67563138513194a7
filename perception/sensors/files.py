"""Files of one directory in the states handled, changed since, and ready to be pushed; no I/O.

Each handled file has a row in the store. A cursor holds the time until which all files were handled; it is the only
memory where the store has no rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from perception.sensors.folder import Entry

BATCH = 32  # files read in one batch; the cursor moves after each batch
BATCH_BYTES = 16 * 1024 * 1024  # bytes read in one batch, at least one file

#: Time of a file's change, which is the order of pushing: ns since 1970, then the name.
Moment = tuple[int, str]
Waiting = tuple[int, str, int, "Entry | None"]

NOBODY = Entry("", 0, -1, 0)  # equal to no file
NEVER: Moment = (-1, "")
EVER: Moment = (1 << 63, "")


class KnownFile(Struct, frozen=True, array_like=True):
    """File that was handled. `digest` is empty when the file was not read completely."""

    mtime: int
    size: int
    digest: str
    ctime: int


class News(Struct):
    """Result of a look: changed files with the time since when, and files that are unchanged (again).

    `marked` are files that count as handled without being reported.
    """

    pending: dict[str, tuple[Entry | None, float]]
    settled: dict[str, Entry | None]
    quiet: list[str]
    marked: dict[str, KnownFile]


class Files:
    """Files of one directory, from one opening of the sensor to its close.

    `known` files are handled. `pending` files differ from the known state, since a time in monotonic seconds. `ready`
    files have not changed for long enough. `unreadable` holds the files that could not be read, in their state at that
    time.
    """

    def __init__(self, known: dict[str, KnownFile], marked_until: Moment | None, floor: Moment) -> None:
        self.known = known
        self.marked_until = marked_until  # unknown files that changed until then count as handled
        self.floor = floor  # files that changed until then are handled, except the waiting ones
        self.pending: dict[str, tuple[Entry | None, float]] = {}
        self.ready: dict[str, Entry | None] = {}
        self.unreadable: dict[str, Entry] = {}
        self._order: list[Waiting] = []  # a heap of the ready files, and of replaced entries
        self._count = 0

    def news(self, names: Iterable[str] | None, entries: Mapping[str, Entry], now: float, settle: float) -> News:
        """Return the news about these names (None: all names). It changes nothing, so that it may run in a thread."""
        is_everywhere = names is None
        if names is None:
            names = {*entries, *self.known, *self.pending, *self.ready}
        news = News({}, {}, [], {})
        for name in names:
            entry, known_file = entries.get(name), self.known.get(name)
            until = self.marked_until if known_file is None else None
            if entry is not None and until and (entry.ctime, name) <= until:
                news.marked[name] = KnownFile(entry.mtime, entry.size, "", entry.ctime)
            elif _state_of(entry) == _state_of(known_file):
                news.quiet.append(name)
            elif name in self.ready and self.ready[name] == entry:
                continue
            elif name not in self.pending and not is_everywhere and entry == self.unreadable.get(name, NOBODY):
                continue  # known to be unreadable; the next complete look tries again
            else:
                before = self.pending.get(name)
                since = now if before is None or before[0] != entry else before[1]
                if now - since >= settle:
                    news.settled[name] = entry
                else:
                    news.pending[name] = (entry, since)
        return news

    def take(self, news: News, now_ns: int) -> None:
        """Apply the news of a look; the cost depends on the number of news only."""
        for name in news.quiet:
            self.pending.pop(name, None)
            self.ready.pop(name, None)
        for name, pending in news.pending.items():
            self.pending[name] = pending
            self.ready.pop(name, None)
        for name, entry in news.settled.items():
            self.pending.pop(name, None)
            self.put(name, entry, now_ns if entry is None else entry.ctime)

    def put(self, name: str, entry: Entry | None, changed_at: int) -> None:
        """Make a file ready, in the order of change."""
        self.ready[name] = entry
        self._count += 1  # two entries of one file differ in it, so the heap never compares the entries
        heapq.heappush(self._order, (changed_at, name, self._count, entry))

    def batch(self, read: int) -> list[Waiting]:
        """Take the next files to read, the one that changed first before the others."""
        batch: list[Waiting] = []
        size = 0
        while self._order and len(batch) < BATCH:
            _, name, _, entry = self._order[0]
            if self.ready.get(name, NOBODY) != entry:  # replaced or gone meanwhile
                heapq.heappop(self._order)
                continue
            size += 0 if entry is None else min(entry.size, read)
            if batch and size > BATCH_BYTES:
                break
            batch.append(heapq.heappop(self._order))
            del self.ready[name]
        return batch

    def cursor(self, root: str) -> dict[str, Any]:
        """Return the cursor for a store without rows: the time until which all files were handled."""
        waiting = [(entry.ctime, name) for name, (entry, _) in self.pending.items() if entry is not None]
        waiting += [(entry.ctime, name) for name, entry in self.unreadable.items()]
        waiting += [(changed_at, name) for changed_at, name, _, _ in self._order[:1]]
        floor = self.floor
        if waiting and (first := min(waiting)) <= floor:
            floor = (first[0] - 1, "")
        return {"root": root, "floor": [*floor], "count": len(self.known)}


def _state_of(file: Entry | KnownFile | None) -> tuple[int, int] | None:
    return None if file is None else (file.mtime, file.size)


def folders_of(names: Iterable[str]) -> set[str]:
    """Return every directory above these files, each once."""
    folders: set[str] = set()
    for name in names:
        parent = name.rpartition("/")[0]
        while parent and parent not in folders:
            folders.add(parent)
            parent = parent.rpartition("/")[0]
    return folders


def read_cursor(cursor: Any) -> tuple[str | None, Moment, int, dict[str, KnownFile]]:
    """Return the content of a cursor: directory, time, number of files, and the files of an earlier version's cursor.

    The directory is None when the cursor cannot be read.
    """
    try:
        root, floor, count = cursor["root"], cursor["floor"], cursor.get("count", 0)
        former = {str(name): KnownFile(*row) for name, row in cursor.get("files", {}).items()}
        until = (int(floor), "\U0010ffff") if isinstance(floor, int) else (int(floor[0]), str(floor[1]))
        return root if isinstance(root, str) else None, until, int(count), former
    except (TypeError, KeyError, ValueError, AttributeError, IndexError):
        return None, NEVER, 0, {}
