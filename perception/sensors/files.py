"""The files of one directory as they are known: dealt with, changed since, ready to be handed over; pure but for that.

Remembered is a row for each file that was dealt with. A cursor says until when everything was dealt with: that is all
there is where nobody keeps rows.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct

from perception.sensors.folder import Entry

BATCH = 32  # files read in one go; the cursor moves on after each
BATCH_BYTES = 16 * 1024 * 1024  # of what is read in one go, one file at least

#: When a file changed, as the order in which files are handed over: ns since 1970, then by name.
Moment = tuple[int, str]
Waiting = tuple[int, str, int, "Entry | None"]

NOBODY = Entry("", 0, -1, 0)  # equal to no file
NEVER: Moment = (-1, "")
EVER: Moment = (1 << 63, "")


class Kept(Struct, frozen=True, array_like=True):
    """A file that was dealt with. `digest` is empty when not all of it was read."""

    mtime: int
    size: int
    digest: str
    ctime: int


class News(Struct):
    """The result of a look: files that changed, since when, and files that are as known (again).

    `marked` are files that count as dealt with, though nothing of them is known.
    """

    pending: dict[str, tuple[Entry | None, float]]
    settled: dict[str, Entry | None]
    quiet: list[str]
    marked: dict[str, Kept]


class Files:
    """The files of one directory, as one opening of the sensor knows them.

    `known` are dealt with, `pending` not as they are known, since when (monotonic seconds), `ready` the same for long
    enough, `unreadable` as they were when they could not be read.
    """

    def __init__(self, known: dict[str, Kept], marked_until: Moment | None, floor: Moment) -> None:
        self.known = known
        self.marked_until = marked_until  # of what is not known, what changed until then counts as dealt with
        self.floor = floor  # what changed until then was dealt with, but for what waits
        self.pending: dict[str, tuple[Entry | None, float]] = {}
        self.ready: dict[str, Entry | None] = {}
        self.unreadable: dict[str, Entry] = {}
        self._order: list[Waiting] = []  # a heap of what is ready; what was replaced is in it too
        self._count = 0

    def news(self, names: Iterable[str] | None, found: Mapping[str, Entry], now: float, settle: float) -> News:
        """Say what is news of these names (None: of all); changes nothing, so that it may run in a thread."""
        is_everywhere = names is None
        if names is None:
            names = {*found, *self.known, *self.pending, *self.ready}
        news = News({}, {}, [], {})
        for name in names:
            entry, kept = found.get(name), self.known.get(name)
            if entry is not None and kept is None and self.marked_until and (entry.ctime, name) <= self.marked_until:
                news.marked[name] = Kept(entry.mtime, entry.size, "", entry.ctime)
                continue
            if entry is None:
                is_news = kept is not None
            else:
                is_news = kept is None or (entry.mtime, entry.size) != (kept.mtime, kept.size)
            if not is_news:
                news.quiet.append(name)
            elif name in self.ready and self.ready[name] == entry:
                continue
            elif name not in self.pending and not is_everywhere and entry == self.unreadable.get(name, NOBODY):
                continue  # cannot be read, as is known; tried again when looking everywhere
            else:
                before = self.pending.get(name)
                since = now if before is None or before[0] != entry else before[1]
                if now - since >= settle:
                    news.settled[name] = entry
                else:
                    news.pending[name] = (entry, since)
        return news

    def take(self, news: News, now_ns: int) -> None:
        """Take over what a look has found; costs what there is of news."""
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
        """Let a file be handed over, in the order of change."""
        self.ready[name] = entry
        self._count += 1  # so that two of one file are never compared further
        heapq.heappush(self._order, (changed_at, name, self._count, entry))

    def batch(self, read: int) -> list[Waiting]:
        """Take the next files to be read, the one that changed first before the others."""
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
        """Return the cursor for a store without rows: until when everything was dealt with."""
        waiting = [(entry.ctime, name) for name, (entry, _) in self.pending.items() if entry is not None]
        waiting += [(entry.ctime, name) for name, entry in self.unreadable.items()]
        waiting += [(changed_at, name) for changed_at, name, _, _ in self._order[:1]]
        floor = self.floor
        if waiting and (first := min(waiting)) <= floor:
            floor = (first[0] - 1, "")
        return {"root": root, "floor": [*floor], "count": len(self.known)}


def folders_of(names: Iterable[str]) -> set[str]:
    """Every directory above these files, each once."""
    folders: set[str] = set()
    for name in names:
        parent = name.rpartition("/")[0]
        while parent and parent not in folders:
            folders.add(parent)
            parent = parent.rpartition("/")[0]
    return folders


def kept_of(row: Any) -> Kept | None:
    try:
        return msgspec.convert(row, Kept)
    except msgspec.ValidationError:
        return None


def read_cursor(cursor: Any) -> tuple[str | None, Moment, int, dict[str, Kept]]:
    """Return the content of a cursor: of which directory, until when, of how many files, and, from an earlier version,
    which.

    The directory is None when it cannot be read.
    """
    try:
        root, floor, count = cursor["root"], cursor["floor"], cursor.get("count", 0)
        former = {str(name): Kept(*kept) for name, kept in cursor.get("files", {}).items()}
        until = (int(floor), "\U0010ffff") if isinstance(floor, int) else (int(floor[0]), str(floor[1]))
        return root if isinstance(root, str) else None, until, int(count), former
    except (TypeError, KeyError, ValueError, AttributeError, IndexError):
        return None, NEVER, 0, {}
