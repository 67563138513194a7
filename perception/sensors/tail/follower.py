"""Followed files, through rotation, copying, truncation and restarts. Blocking.

A renamed file is read on under its new name until it has been quiet for a while; the new file of the old name is read
from its beginning. A file that was copied and truncated is read on in the copy. A file that was not read to its end
when the process ended is searched by its inode, then by its contents.
"""

from __future__ import annotations

import glob
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from msgspec import Struct

from perception.sensors.tail.file import FollowedFile, Position, holds, key_of, last_line_end
from perception.sensors.tail.lines import Record
from spar.data.bounded import BoundedDict

#: Seconds for which a file that lost its name is read on after its last line.
LINGER: Final = 5.0
#: Bytes of one file, and of all, that are read in one turn.
_CHUNK: Final = 256 * 1024
_TURN: Final = 1024 * 1024
#: Bound of the neighbouring files that may be a copy or the renamed file.
_MOST_BESIDE: Final = 1000
#: Suffix that rotation adds to a file's name: numbers, dates, words.
_TURNED: Final = re.compile(r"[._-](\d[\d._T-]{0,30}|old|bak|prev)$")


class TurnNews(Struct):
    """Records of one turn, each with its file; the finished files; the errors, by path."""

    records: list[tuple[FollowedFile, Record]]
    done: list[FollowedFile]
    troubles: dict[str, OSError]
    is_full: bool = False


class Follower:
    """Files of some patterns.

    Args: patterns: absolute paths, perhaps with `*`, `?`, `[…]` and `**`; open: opens a file at an offset; most: files
    that are followed at once; flush_after: seconds after which an incomplete record counts as complete.
    """

    def __init__(self, patterns: tuple[str, ...], open: Callable[[str, int], FollowedFile], *, most: int,
                 flush_after: float) -> None:  # fmt: skip
        self._patterns, self._open, self._most, self._flush_after = patterns, open, most, flush_after
        self.files: dict[str, FollowedFile] = {}
        self._positions: dict[str, Position] = {}
        self._ended: BoundedDict[str, int] = BoundedDict(_MOST_BESIDE)  # with the times of their last writes
        self._gone: BoundedDict[str, tuple[str, Position]] = BoundedDict(_MOST_BESIDE)  # names without a file: the last
        self._copies: dict[str, tuple[str, Position]] = {}  # copies of what is read: the key of the other one

    def restore(self, positions: Mapping[str, Position]) -> None:
        """Load the positions of files, by their keys."""
        self._positions = dict(positions)

    def close(self) -> None:
        """Close all files."""
        for file in self.files.values():
            file.close()
        self.files = {}

    def mark(self) -> list[FollowedFile]:
        """Follow the existing files from their end on, and return them."""
        troubles: dict[str, OSError] = {}
        for path, key in self._matching(troubles):
            if key not in self.files:
                self._follow(path, None, troubles)
        return list(self.files.values())

    def turn(self, now: float) -> TurnNews:
        """Look for files, then read the new bytes of each, within bounds."""
        troubles: dict[str, OSError] = {}
        self._look(now, troubles)
        news = TurnNews([], [], troubles)
        room = _TURN
        for file in list(self.files.values()):
            try:
                self._check_contents(file, now, troubles)
                records = file.read(min(_CHUNK, max(room, 1)))
            except OSError as error:
                troubles[file.path] = error
                continue
            room -= sum(record.end - record.begin for record in records)
            if file.has_read or not file.quiet_since:
                file.quiet_since = now
            elif now - file.quiet_since >= self._flush_after:
                records += file.flush(lines_too=False)
            if file.is_left and not file.has_more and now - file.quiet_since >= LINGER:
                records += file.flush(lines_too=True)
                news.done.append(file)
            news.records += [(file, record) for record in records]
            news.is_full = news.is_full or file.has_more
            if room <= 0:
                news.is_full = True
                break
        for key in list(self.files)[:1]:  # the next turn begins with another file
            self.files[key] = self.files.pop(key)
        return news

    def keys(self) -> set[str]:
        """Return the keys of files that are followed, or will be once they can be read, of the last files of names that
        have none now, and of those that were read to their end after the last write of one of these: a later process
        would take them for files that it never saw."""
        known = dict(self._known()) | dict(self._gone.values())
        oldest = min((position.changed_at for position in known.values()), default=0)
        return {*known, *(key for key, at in self._ended.items() if oldest and at >= oldest)}

    def forget(self, file: FollowedFile) -> None:
        """Stop following a file that was read to its end."""
        file.close()
        self._ended[file.key] = file.last.changed_at
        self.files.pop(file.key, None)
        if not _TURNED.search(file.path) and all(other.path != file.path for other in self.files.values()):
            self._gone[file.path] = file.key, file.last

    # -- the files

    def _look(self, now: float, troubles: dict[str, OSError]) -> None:
        named, gone = set[str](), list(self._gone.values())
        for path, key in self._matching(troubles):
            named.add(key)
            self._gone.pop(path, None)
            file = self.files.get(key)
            if file is not None:
                file.path, file.is_left = path, False
            elif key in self._positions:
                self._resume(path, self._positions.pop(key), now, troubles)
            else:
                try:
                    self._follow_new(path, key, troubles)
                except FileNotFoundError:
                    continue
        for file in self.files.values():
            if file.key not in named and not file.is_left:
                file.is_left, file.quiet_since = True, now
        for left in [*(file.last for file in self.files.values() if file.is_left), *(last for _, last in gone)]:
            self._read_between(left, now, troubles)
        for key in [key for key in self._positions if key not in named]:
            self._find_again(key, self._positions.pop(key), now, troubles)

    def _matching(self, troubles: dict[str, OSError]) -> Iterator[tuple[str, str]]:
        count = 0
        for pattern in self._patterns:
            has_magic = glob.has_magic(pattern)
            paths = sorted(glob.glob(pattern, recursive=True)) if has_magic else [pattern]  # noqa: PTH207
            for path in paths:
                try:
                    status = os.stat(path)  # noqa: PTH116 - of many, often
                except FileNotFoundError:
                    continue
                except OSError as error:
                    troubles[path] = error
                    continue
                if not stat.S_ISREG(status.st_mode):
                    continue
                count += 1
                if count > self._most:
                    troubles[pattern] = OSError(f"{pattern!r} names more than {self._most} files; the rest is not read")
                    return
                yield path, key_of(status)

    def _follow(self, path: str, offset: int | None, troubles: dict[str, OSError], *,
                left_at: float | None = None) -> None:  # fmt: skip
        """Follow a file. Args: offset: where its reading begins, None: behind the last complete line; left_at: when it
        lost its name (0: with its first turn), None: it has its name."""
        try:
            file = self._open(path, last_line_end(path) if offset is None else offset)
        except FileNotFoundError:
            return
        except OSError as error:
            troubles[path] = error
            return
        if file.key in self.files:
            file.close()
            return
        self.files[file.key] = file
        self._copies.pop(file.key, None)
        if left_at is not None:
            file.is_left, file.quiet_since = True, left_at

    def _resume(self, path: str, position: Position, now: float, troubles: dict[str, OSError]) -> None:
        """Follow a file that an earlier process followed."""
        try:
            os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            troubles[path] = error
            self._positions[key_of(os.stat(path))] = position  # keep it until the file can be read  # noqa: PTH116
            return
        if holds(path, position):
            self._follow(path, position.offset, troubles)
        else:
            self._read_on_beside(position, troubles)
            self._follow(path, 0, troubles)
            self._read_between(position, now, troubles)

    def _find_again(self, key: str, position: Position, now: float, troubles: dict[str, OSError]) -> None:
        """Read on in a file that was renamed while no process followed it, if it is found under another name."""
        for path, other in self._beside(position.path, with_itself=True):  # under a name that is no pattern's
            if other == key and holds(path, position):
                self._follow(path, position.offset, troubles, left_at=now)
                break
        else:
            self._read_on_beside(position, troubles)
        self._read_between(position, now, troubles)

    def _read_between(self, left: Position, now: float, troubles: dict[str, OSError]) -> None:
        """Follow files that had the name only between two looks: unknown neighbours of the file that lost its name,
        written since."""
        begin = os.path.basename(left.path)  # noqa: PTH119
        known = {*self.files, *self._positions, *self._copies, *self._ended}
        for path, key in self._beside(left.path, since=left.changed_at):
            name = os.path.basename(path)  # noqa: PTH119
            if key in known or not name.startswith(begin) or not _TURNED.fullmatch(name[len(begin) :]):
                continue
            if left.offset and holds(path, left):
                continue  # a copy of the file
            self._follow(path, 0, troubles, left_at=now)

    # -- copies

    def _check_contents(self, file: FollowedFile, now: float, troubles: dict[str, OSError]) -> None:
        """Read a truncated file from its beginning; the unread bytes are read in its copy, if there is one."""
        if file.has_other_contents():
            position = file.last
            file.begin_again()
            self._read_on_beside(position, troubles)
            self._read_between(position, now, troubles)

    def _read_on_beside(self, position: Position, troubles: dict[str, OSError]) -> None:
        if not position.offset:
            return
        for path, key in self._beside(position.path):
            if holds(path, position):
                if key not in self.files:
                    self._follow(path, position.offset, troubles, left_at=0.0)
                return

    def _follow_new(self, path: str, key: str, troubles: dict[str, OSError]) -> None:
        """Follow a new file from its beginning. A copy of a followed file waits until it is known whether the original
        is truncated, and the copy is read on here, or the original is read as far as the copy reaches."""
        if key not in self._copies:
            original_position = next((pair for pair in self._known() if pair[1].offset and holds(path, pair[1])), None)
            if original_position is None:
                self._follow(path, 0, troubles)
                return
            self._copies[key] = original_position
        other, position = self._copies[key]
        original = self.files.get(other)
        size = os.stat(path).st_size  # noqa: PTH116
        if original is None and other not in self._positions:
            self._follow(path, position.offset, troubles)
        elif original is not None and original.offset >= size:
            self._follow(path, size, troubles)

    def _known(self) -> Iterator[tuple[str, Position]]:
        yield from ((key, file.last) for key, file in self.files.items())
        yield from self._positions.items()

    def _beside(self, path: str, since: int = 0, *, with_itself: bool = False) -> Iterator[tuple[str, str]]:
        """Yield the files of the same folder whose names begin alike and that were written `since`, the newest first;
        the one with this very name only where `with_itself`."""
        folder, name = os.path.split(path)
        stem = name.split(".", 1)[0] if "." in name else name
        neighbours: list[tuple[float, str, str]] = []
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if (with_itself or entry.name != name) and entry.name.startswith(stem) and entry.is_file():
                        status = entry.stat()
                        if status.st_mtime_ns >= since:
                            neighbours.append((-status.st_mtime, entry.path, key_of(status)))
                        if len(neighbours) >= _MOST_BESIDE:
                            break
        except OSError:
            return
        for _, neighbour, key in sorted(neighbours):
            yield neighbour, key
