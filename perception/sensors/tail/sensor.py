"""Sensor that follows files and reports each line, or each record of several lines.

It reads only as fast as its lines are taken: while the buffer is full, the other lines stay in the file. The position
in each file is a row, which moves with each line in the transaction that opens the line's cycle. Lines are untrusted,
whoever wrote them.
"""

from __future__ import annotations

import asyncio
import codecs
import os
from collections import deque
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from annotated_types import Ge, Le, Len

from perception.sensors.tail.file import FollowedFile, Position
from perception.sensors.tail.follower import Follower, TurnNews
from perception.sensors.tail.lines import Lines, Record, Records
from spar.backoff import Backoff
from spar.data.patterns import Pattern
from spar.decoding import converted
from spar.errors import ConfigError
from spar.protocols import Home, SensorContext
from spar.threads import Threads, call_off
from spar.types import Perception

BEGUN: Final = "begun"  # key of the row that tells that an earlier process has begun; no file has such a key
_FULL: Final = 0.25  # seconds until the next try with a full buffer
_AT_ONCE: Final = 200  # lines that are pushed before other tasks of the event loop run
#: Encodings whose line break is two bytes; all others must have one byte.
_WIDE: Final = ("utf-16-le", "utf-16-be")


class TailSensor:
    """Lines of files as they are written, as `log` unless `kind` says otherwise.

    Args: paths: files, perhaps with `*`, `?`, `[…]`, `**`; relative ones start at the configuration's folder; start:
    where to begin in files that exist at the first start; later files are read from their beginning; encoding: of the
    files; longest: bytes of a line and characters of a record that are stored; begins: a pattern (RE2) of lines that
    begin a record, other lines belong to the record before; most_lines: of a record; flush_after: seconds after which
    a record counts as complete; most_files: followed at once; look_every: seconds between two looks.
    """

    def __init__(
        self,
        paths: Annotated[Sequence[str], Len(1)],
        *,
        home: Home,
        start: Literal["end", "beginning"] = "end",
        encoding: str = "utf-8",
        longest: Annotated[int, Ge(80), Le(1 << 20)] = 64 * 1024,
        begins: str = "",
        most_lines: Annotated[int, Ge(1), Le(100_000)] = 500,
        flush_after: Annotated[float, Ge(0), Le(3600)] = 1.0,
        most_files: Annotated[int, Ge(1), Le(1000)] = 256,
        look_every: Annotated[float, Ge(0.01), Le(3600)] = 0.5,
        kind: str = "log",
    ) -> None:
        lines = partial(Lines, _known_encoding(encoding), longest)
        records = partial(Records, _pattern(begins), longest, most_lines)
        patterns = tuple(os.path.normpath(Path(home.config, Path(path).expanduser()).absolute()) for path in paths)
        follow = partial(FollowedFile, lines=lines, records=records)
        self._make = partial(Follower, patterns, follow, most=most_files, flush_after=flush_after)
        self._start, self._pause, self._kind = start, look_every, kind
        self._pump: asyncio.Task[None] | None = None
        self._work: asyncio.Task[TurnNews] | None = None  # in a thread, which goes on when nobody waits for it
        self._follower: Follower | None = None

    async def open(self, ctx: SensorContext) -> None:
        """Load the positions of earlier processes and begin to follow."""
        self._ctx, self._threads = ctx, Threads(f"sensor {ctx.name}", ctx.clock, limit=2)
        self._waiting: deque[tuple[FollowedFile, Record]] = deque()
        self._done: list[FollowedFile] = []
        self._reported: dict[str, str] = {}
        self._follower = self._make()
        rows = dict(await ctx.rows.list())
        has_begun = rows.pop(BEGUN, None) is not None
        self._follower.restore({key: at for key, row in rows.items() if (at := converted(row, Position)) is not None})
        self._rows = set(rows)
        if not has_begun:
            if self._start == "end":
                for file in await self._threads.run(self._follower.mark):
                    self._keep(file)
            ctx.rows.keep(BEGUN, True)
        self._pump = asyncio.get_running_loop().create_task(self._run(), name=f"tail sensor {ctx.name}")

    async def close(self) -> None:
        """Stop following; repeated calls do nothing."""
        pump, self._pump = self._pump, None
        if pump is not None:
            await call_off([pump])
        if self._follower is not None:
            if self._work is not None and not self._work.done():  # else its thread would read reused descriptors
                self._work.add_done_callback(partial(_closed, self._follower))
            else:
                self._follower.close()

    # -- turns: push, look and read, wait

    async def _run(self) -> None:
        clock, failures, backoff = self._ctx.clock, 0, Backoff(self._pause)
        while True:
            try:
                pause = await self._turn(clock.monotonic())
                failures = 0
            except Exception as error:
                failures += 1
                self._tell("", error)
                pause = backoff.delay(failures)
            await clock.sleep(pause)

    async def _turn(self, now: float) -> float:
        """Do one turn; return the seconds until the next one."""
        follower = self._follower
        assert follower is not None
        if not await self._hand_over():
            return _FULL
        for file in self._done:
            follower.forget(file)
        self._done = []
        for key in self._rows - follower.keys():
            self._ctx.rows.drop(key)
            self._rows.discard(key)
        self._work = asyncio.get_running_loop().create_task(self._threads.run(follower.turn, now))
        news = await asyncio.shield(self._work)
        for file in follower.files.values():
            if file.offset and file.key not in self._rows:  # a copy of what was read: a later process is to know it
                self._keep(file)
        self._waiting.extend(news.records)
        self._done = news.done
        for path, error in news.troubles.items():
            self._tell(path, error)
        for path in self._reported.keys() - news.troubles.keys():
            del self._reported[path]
        if not await self._hand_over():
            return _FULL
        return 0.0 if news.is_full else self._pause

    async def _hand_over(self) -> bool:
        """Push the waiting records; return False when there is no room, and then nothing more is read."""
        count = 0
        while self._waiting:
            count += 1
            if not count % _AT_ONCE:
                await asyncio.sleep(0)
            file, record = self._waiting[0]
            if not self._ctx.push(self._perception(file, record)):
                return False
            self._waiting.popleft()
            file.offset = record.end
            self._keep(file)
        return True

    def _keep(self, file: FollowedFile) -> None:
        self._ctx.rows.keep(file.key, msgspec.to_builtins(file.position()))
        self._rows.add(file.key)

    def _perception(self, file: FollowedFile, record: Record) -> Perception:
        attributes = {"path": file.path, "offset": record.begin, "lines": record.lines}
        attributes |= {"left_out": record.left_out} if record.left_out else {}
        return self._ctx.perception(record.text, self._kind,
                                    attributes=attributes | ({"binary": True} if record.is_odd else {}))  # fmt: skip

    def _tell(self, path: str, error: Exception) -> None:
        """Report an error of a file, once until it is gone."""
        words = f"{type(error).__name__}: {error}"
        if self._reported.get(path) == words:
            return
        self._reported[path] = words
        self._ctx.report_error(error)


def _closed(follower: Follower, work: asyncio.Task[TurnNews]) -> None:
    """Close a follower after its last turn, whose error is dropped."""
    if not work.cancelled():
        work.exception()
    follower.close()


def _known_encoding(name: str) -> str:
    known = 'known are those of Python with a line break of one byte, such as "utf-8" or "latin-1", and utf-16-le, -be'
    try:
        encoding = codecs.lookup(name).name
        is_fit = encoding in _WIDE or "\n".encode(encoding) == b"\n"
        b"a".decode(encoding)
    except (LookupError, ValueError, TypeError):
        is_fit, encoding = name.lower() in _WIDE, name.lower()
    if not is_fit:
        raise ConfigError(f"no encoding to read lines in: {name!r:.60}; {known}", path=("encoding",))
    return encoding


def _pattern(text: str) -> Pattern | None:
    try:
        return Pattern(text) if text else None
    except ValueError as error:
        raise ConfigError(str(error), path=("begins",)) from None
