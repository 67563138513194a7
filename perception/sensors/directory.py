"""Sensor that reports files that appear, change or vanish in a directory.

watchfiles only reports that something happened and where; the sensor always looks at the directory itself (`folder`),
so a lost or merged event loses nothing. It looks before and after the watch has begun, then at the reported places,
and everywhere once a minute. A file is reported when it has not changed for a while, and once, also over a restart.
Other parts interpret the content.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
from annotated_types import Ge, Le

from perception.sensors.files import BATCH, EVER, NEVER, Files, KnownFile, folders_of, read_cursor
from perception.sensors.folder import Entry, Folder, Text, readable
from perception.sensors.watch import Watch
from spar.backoff import Backoff
from spar.clock import Wake
from spar.decoding import converted
from spar.protocols import Home, SensorContext
from spar.threads import Threads, call_off
from spar.types import Perception

ROOT = "/"  # key of the row that names the directory of the others; no file has this name
HINTS = 10_000  # bound of the paths from events; with more it is cheaper to look everywhere


class DirectorySensor:
    """Files of a directory, as `file.added`, `file.changed` and `file.removed`.

    Args: path: the directory, created if it is missing; a relative one starts at the configuration's folder;
    recursive: also the directories below; include, exclude: shell patterns of names (with a "/" in it: of the path
    below the directory), and an excluded directory is not entered; settle: seconds without a change until a file
    counts as written; read: bytes of a file that become its content; existing: report the files that exist at the
    first start.
    """

    rescan = 60.0  # seconds between two complete looks, for changes without an event
    retry = 1.0  # seconds until the next try with a missing directory, a broken watch or a full buffer
    watch = Watch
    folder = Folder

    def __init__(
        self,
        path: str,
        *,
        home: Home,
        recursive: bool = False,
        include: Sequence[str] = ("*",),
        exclude: Sequence[str] = (".*", "*.tmp", "*.part", "~*"),
        settle: Annotated[float, Ge(0), Le(86_400)] = 0.3,
        read: Annotated[int, Ge(0), Le(100_000_000)] = 65_536,
        existing: bool = True,
    ) -> None:
        self._root = os.path.normpath(Path(home.config, Path(path).expanduser()).absolute())
        self._folder = self.folder(Path(self._root), recursive=recursive, include=tuple(include),
                                   exclude=tuple(exclude))  # fmt: skip
        self._recursive, self._settle, self._read, self._existing = recursive, settle, read, existing
        self._pump: asyncio.Task[None] | None = None
        self._watch: Watch | None = None

    async def open(self, ctx: SensorContext) -> None:
        """Begin to watch. Raises: OSError with the directory's name when it neither exists nor can be created."""
        self._ctx, self._threads = ctx, Threads(f"sensor {ctx.name}", ctx.clock, limit=2)
        await self._threads.run(self._folder.make)
        self._files = await self._load(ctx)
        self._known = self._files.known
        self._hints: set[str] = set()
        self._look_at = self._watch_at = 0.0  # monotonic seconds: look everywhere, begin a watch
        self._must_poll = self._is_gone = False
        self._watch_error = ""
        self._nudge = Wake(ctx.clock)
        self._pump = asyncio.get_running_loop().create_task(self._run(), name=f"directory sensor {ctx.name}")

    async def _load(self, ctx: SensorContext) -> Files:
        """Return the files that earlier processes handled: a row for each file, and in the cursor the time until which
        all were handled."""
        rows, this_root = dict(await ctx.rows.list()), readable(self._root)
        root, floor, count, former = read_cursor(ctx.cursor)
        written = rows.pop(ROOT, None)
        if (written or root) != this_root:  # the rows are of another directory, or there are none
            for name in rows:
                ctx.rows.drop(name)
            known, marked_until = dict[str, KnownFile](), None if self._existing else EVER
            floor = NEVER
        else:
            known = {name: known_file for name, row in rows.items() if (known_file := converted(row, KnownFile))}
            # Without rows only the cursor says which files were handled: an earlier version wrote it, or the store has
            # no rows.
            marked_until = floor if written is None and (former or count) else None
            for name, known_file in former.items() if written is None else ():
                known[name] = known_file
                ctx.rows.keep(name, msgspec.to_builtins(known_file))
        if marked_until is None:  # else the row is written after the marking, so that a broken off one is repeated
            ctx.rows.keep(ROOT, this_root)
        return Files(known, marked_until, floor)

    async def close(self) -> None:
        pump, self._pump = self._pump, None
        if pump is not None:
            await call_off([pump])
        self._stop_watching()

    # -- turns: look, push the settled files, wait

    async def _run(self) -> None:
        clock, failures, backoff = self._ctx.clock, 0, Backoff(self.retry)
        while True:
            try:
                pause = await self._turn(clock.monotonic())
                failures, self._is_gone = 0, False
            except Exception as error:
                failures += 1
                is_gone = isinstance(error, FileNotFoundError)
                if not (is_gone and self._is_gone):  # a directory that is still missing is reported once
                    self._ctx.report_error(error)
                if is_gone:
                    self._stop_watching()
                self._is_gone, self._look_at = is_gone, 0.0
                pause = self.retry if is_gone else backoff.delay(failures)
            await self._nudge.sleep(pause)

    async def _turn(self, now: float) -> float:
        """Do one turn; return the seconds until the next one. Raises: OSError when the directory cannot be read."""
        files = self._files
        self._keep_watching(await self._threads.run(self._folder.identity), now)
        hints, self._hints = self._hints, set()
        names: set[str] | None = None
        if now < self._look_at:
            paths = hints | {name if entry is None else entry.path for name, (entry, _) in files.pending.items()}
            names = {readable(path) for path in paths}
            entries, has_directory = await self._threads.run(self._folder.look, paths)
            if self._recursive and (
                has_directory or await self._threads.run(self._misses_directory, names - entries.keys())
            ):
                names = None
        if names is None:
            entries = await self._threads.run(self._folder.scan)
            self._look_at = now + self.rescan
        news = await self._threads.run(files.news, names, entries, now, self._settle)
        files.take(news, int(self._ctx.clock.now().timestamp() * 1e9))
        if files.marked_until is not None:
            await self._mark(news.marked)
            files.marked_until = None
        if not await self._hand_over():
            return self.retry
        until = [since + self._settle for _, since in files.pending.values()]
        until.append(self._look_at if self._watch is not None else self._watch_at)
        return max(min(until) - now, 0.005)

    async def _mark(self, marked: dict[str, KnownFile]) -> None:
        """Remember files without reporting them; for the first complete look."""
        for number, (name, known_file) in enumerate(marked.items()):
            self._remember(name, known_file)
            if number % BATCH == BATCH - 1:
                await asyncio.sleep(0)
        self._ctx.rows.keep(ROOT, readable(self._root))
        self._ctx.checkpoint(self._files.cursor(readable(self._root)))

    async def _hand_over(self) -> bool:
        """Push the files that are ready; return False when the buffer is full, and then the others stay ready."""
        files = self._files
        while batch := files.batch(self._read):
            dealt_with = 0
            try:
                contents = await self._threads.run(lambda: [self._content(entry) for *_, entry in batch])
                for (changed_at, name, _, entry), content in zip(batch, contents, strict=True):
                    if not self._deal_with(name, entry, content):
                        return False
                    dealt_with += 1
                    files.floor = max(files.floor, (changed_at, name)) if entry is not None else files.floor
            finally:
                for changed_at, name, _, entry in batch[dealt_with:]:
                    files.put(name, entry, changed_at)
                if dealt_with:
                    self._ctx.checkpoint(files.cursor(readable(self._root)))
        return True

    def _content(self, entry: Entry | None) -> Text | OSError | None:
        try:
            return None if entry is None else self._folder.read(entry, self._read)
        except FileNotFoundError:
            return None
        except OSError as error:
            return error

    def _deal_with(self, name: str, entry: Entry | None, content: Text | OSError | None) -> bool:
        """Push and remember one file; return False when the perception was refused."""
        files, known_file = self._files, self._known.get(name)
        if entry is None:
            if not self._ctx.push(self._removed(name)):
                return False
            self._known.pop(name, None)
            self._ctx.rows.drop(name)
        elif content is None:
            files.pending[name] = (entry, self._ctx.clock.monotonic())  # it has changed again: look at it again
            return True
        elif isinstance(content, OSError):
            if files.unreadable.get(name) != entry:
                self._ctx.report_error(
                    type(content)(f"cannot read {self._full(name)!r}: {content.strerror or content}")
                )
            files.unreadable[name] = entry
            return True
        else:
            digest = "" if content.truncated else content.digest
            former = None if known_file is None else (known_file.digest, known_file.size)
            is_touched = digest != "" and (digest, entry.size) == former
            if not is_touched and not self._ctx.push(self._noticed(name, entry, content, is_new=known_file is None)):
                return False
            self._remember(name, KnownFile(entry.mtime, entry.size, digest, entry.ctime))
        files.unreadable.pop(name, None)
        return True

    def _remember(self, name: str, known_file: KnownFile) -> None:
        """Remember a file, also for the next process."""
        self._known[name] = known_file
        self._ctx.rows.keep(name, msgspec.to_builtins(known_file))

    # -- the watch

    def _keep_watching(self, identity: tuple[int, int], now: float) -> None:
        watch = self._watch
        if watch is not None and watch.error is not None:
            # An OSError means that watching was refused, for example because there are too few inotify watches; polling
            # needs none. Any other error, such as a name that watchfiles cannot read, has ended only this watch, and
            # the next one begins with a complete look.
            self._must_poll = self._must_poll or isinstance(watch.error, OSError)
            if self._watch_error != str(watch.error):
                self._watch_error = str(watch.error)
                self._ctx.report_error(watch.error)
        elif watch is not None and watch.identity == identity and not watch.is_stale:
            return
        self._stop_watching()
        if now >= self._watch_at:
            self._watch_at = now + self.retry
            self._watch = self.watch(self._root, identity, self._hinted, recursive=self._recursive,
                                     must_poll=self._must_poll)  # fmt: skip

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def _hinted(self, paths: set[str] | None) -> None:
        """Note the paths of events; None: everything may have changed."""
        if paths is None or len(self._hints) + len(paths) > HINTS:
            self._look_at = 0.0
        else:
            self._hints |= paths
        if not self._nudge.is_set:
            self._nudge.set()

    def _misses_directory(self, missing: Iterable[str]) -> bool:
        """Return whether one of the missing names was a directory of known files."""
        unknown = {name for name in missing if name not in self._known}
        return bool(unknown) and not unknown.isdisjoint(folders_of(self._known))

    # -- perceptions

    def _noticed(self, name: str, entry: Entry, text: Text, *, is_new: bool) -> Perception:
        path = self._full(name)
        key = f"{path} {entry.mtime} {entry.size} {text.digest}"
        return self._perception("file.added" if is_new else "file.changed", path, text.content, key, entry.size,
                                truncated=text.truncated, binary=text.binary)  # fmt: skip

    def _removed(self, name: str) -> Perception:
        path, known_file = self._full(name), self._known[name]
        key = f"{path} {known_file.mtime} {known_file.size} removed {self._ctx.clock.now().isoformat()}"
        sentence = f"file {Path(path).name} was removed"
        return self._perception("file.removed", path, sentence, key, known_file.size, truncated=False, binary=False)

    def _perception(self, kind: str, path: str, content: str, key: str, size: int, **attributes: bool) -> Perception:
        name = path.rpartition("/")[2]
        dot = name.rfind(".")
        suffix = name[dot:] if 0 < dot < len(name) - 1 else ""
        attributes_now = {"path": path, "name": name, "suffix": suffix, "size": size, **attributes}
        return self._ctx.perception(content, kind, key=key, subject=path, attributes=attributes_now)

    def _full(self, name: str) -> str:
        return f"{readable(self._root)}/{name}"
