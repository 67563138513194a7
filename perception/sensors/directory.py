"""Notices files that appear, change or vanish in a directory.

watchfiles says that something happened and where; what is there is always found out by looking (`folder`), so an event
that was lost or merged loses nothing. It looks before and after the watch has begun, then where it is told to, and
everywhere once a minute. A file is reported when it has not changed for a while, and once, also over a restart. What
is in the files is for others to understand.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Ge, Le
from msgspec import Struct

from perception.hand import ended
from perception.sensors.folder import Entry, Folder, Text, readable
from perception.sensors.watch import Watch
from spar.policies import Backoff
from spar.protocols import Home, SensorContext
from spar.threads import Threads
from spar.types import Fault, Perception

HINTS = 10_000  # paths that events told of; with more it is cheaper to look everywhere
BATCH = 100  # files read in one go; the cursor moves on after each


class Kept(Struct, frozen=True, array_like=True):
    """A file that was dealt with. `digest` is empty when not all of it was read."""

    mtime: int
    size: int
    digest: str
    ctime: int


class DirectorySensor:
    """Files of a directory, as `file.added`, `file.changed` and `file.removed`.

    Args: path: the directory, made if it is missing; a relative one starts at the configuration's folder; recursive:
    also what is below; include, exclude: shell patterns of names (with a "/" in it: of the path below the directory),
    and a directory that is excluded is not entered; settle: seconds without a change until a file counts as written;
    read: bytes of a file that become its content; existing: report what is there at the first start.
    """

    remembered = 10_000  # files in the cursor
    rescan = 60.0  # seconds between two looks at everything, for what no event told of
    retry = 1.0  # seconds until a directory that is gone, a watch that broke or a full buffer is tried again
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
        self._folder = self.folder(
            Path(self._root), recursive=recursive, include=tuple(include), exclude=tuple(exclude)
        )
        self._recursive, self._settle, self._read, self._existing = recursive, settle, read, existing
        self._pump: asyncio.Task[None] | None = None
        self._watch: Watch | None = None

    async def open(self, ctx: SensorContext) -> None:
        """Raises: OSError naming the directory, when it is neither there nor can be made."""
        self._ctx, self._threads = ctx, Threads(f"sensor {ctx.name}", ctx.clock, limit=2)
        await self._threads.run(self._folder.make)
        known = _known_of(ctx.cursor, self._root)
        self._marks_only = known is None and not self._existing
        self._known, self._floor = known or ({}, 0)
        self._pending: dict[str, tuple[Entry | None, float]] = {}  # since when a file is as it is
        self._unreadable: dict[str, Entry] = {}
        self._hints: set[str] = set()
        self._look_at = self._watch_at = 0.0  # monotonic seconds: look everywhere, begin a watch
        self._must_poll = self._is_gone = False
        self._watch_error = ""
        self._nudge: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._pump = asyncio.get_running_loop().create_task(self._run(), name=f"directory sensor {ctx.name}")

    async def close(self) -> None:
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.cancel()
            await asyncio.wait([pump])
        self._stop_watching()

    # -- one turn after another: look, hand over what has settled, rest

    async def _run(self) -> None:
        clock, failures, backoff = self._ctx.clock, 0, Backoff(self.retry)
        while True:
            self._nudge = asyncio.get_running_loop().create_future()
            try:
                pause = await self._turn(clock.monotonic())
                failures, self._is_gone = 0, False
            except Exception as error:
                failures += 1
                is_gone = isinstance(error, FileNotFoundError)
                if not (is_gone and self._is_gone):  # that it is still gone is no news
                    self._tell(error)
                if is_gone:
                    self._stop_watching()
                self._is_gone, self._look_at = is_gone, 0.0
                pause = self.retry if is_gone else backoff.delay(failures)
            await ended(self._nudge, pause, clock)

    async def _turn(self, now: float) -> float:
        """Seconds until the next turn is needed. Raises: OSError when the directory cannot be read."""
        self._keep_watching(await self._threads.run(self._folder.identity), now)
        hints, self._hints = self._hints, set()
        is_everywhere = now >= self._look_at
        if not is_everywhere:
            paths = hints | {self._path_of(name) for name in self._pending}
            names = {readable(path) for path in paths}
            found, has_directory = await self._threads.run(self._folder.look, paths)
            is_everywhere = self._recursive and (has_directory or self._misses_directory(names - found.keys()))
        if is_everywhere:
            found = await self._threads.run(self._folder.scan)
            names = found.keys() | self._known.keys() | self._pending.keys()
            self._look_at = now + self.rescan
        if self._marks_only:
            self._marks_only = False
            self._known = {name: Kept(entry.mtime, entry.size, "", entry.ctime) for name, entry in found.items()}
            self._save()
        settled = self._settled(names, found, now, is_everywhere)
        if not await self._hand_over(settled):
            return self.retry
        until = [since + self._settle for _, since in self._pending.values()]
        until.append(self._look_at if self._watch is not None else self._watch_at)
        return max(min(until) - now, 0.005)

    def _settled(
        self, names: Iterable[str], found: dict[str, Entry], now: float, is_everywhere: bool
    ) -> list[tuple[str, Entry | None]]:
        """What is new, changed or gone (None) and has been so for a while; the rest of it is pending."""
        settled: list[tuple[str, Entry | None]] = []
        for name in names:
            entry, kept = found.get(name), self._known.get(name)
            if entry is None:
                is_news = kept is not None
            elif kept is not None:
                is_news = (entry.mtime, entry.size) != (kept.mtime, kept.size)
            else:
                is_news = entry.ctime > self._floor
            before = self._pending.get(name)
            if is_news and before is None and not is_everywhere and entry == self._unreadable.get(name, NOBODY):
                continue  # cannot be read, as is known; tried again when looking everywhere
            if not is_news:
                self._pending.pop(name, None)
                continue
            if before is None or before[0] != entry:
                before = self._pending[name] = (entry, now)
            if now - before[1] >= self._settle:
                settled.append((name, entry))
        return settled

    async def _hand_over(self, settled: list[tuple[str, Entry | None]]) -> bool:
        """False when the buffer is full: what is left stays pending."""
        for start in range(0, len(settled), BATCH):
            batch = settled[start : start + BATCH]
            contents = await self._threads.run(self._contents, [entry for _, entry in batch])
            try:
                for (name, entry), content in zip(batch, contents, strict=True):
                    if not self._deal_with(name, entry, content):
                        return False
            finally:
                self._save()
        return True

    def _contents(self, entries: list[Entry | None]) -> list[Text | OSError | None]:
        contents: list[Text | OSError | None] = []
        for entry in entries:
            try:
                contents.append(None if entry is None else self._folder.read(entry, self._read))
            except FileNotFoundError:
                contents.append(None)
            except OSError as error:
                contents.append(error)
        return contents

    def _deal_with(self, name: str, entry: Entry | None, content: Text | OSError | None) -> bool:
        """False when the perception was refused."""
        kept = self._known.get(name)
        if entry is None:
            if not self._ctx.push(self._removed(name)):
                return False
            self._known.pop(name, None)
        elif content is None:
            return True  # not as it was any more: it stays pending and is looked at again
        elif isinstance(content, OSError):
            if self._unreadable.get(name) != entry:
                self._tell(type(content)(f"cannot read {self._full(name)!r}: {content.strerror or content}"))
            self._unreadable[name] = entry
        else:
            digest = "" if content.truncated else content.digest
            is_touched = kept is not None and digest != "" and (digest, entry.size) == (kept.digest, kept.size)
            if not is_touched and not self._ctx.push(self._noticed(name, entry, content, is_new=kept is None)):
                return False
            self._known[name] = Kept(entry.mtime, entry.size, digest, entry.ctime)
        if entry is None or not isinstance(content, OSError):
            self._unreadable.pop(name, None)
        self._pending.pop(name, None)
        return True

    # -- the watch

    def _keep_watching(self, identity: tuple[int, int], now: float) -> None:
        watch = self._watch
        if watch is not None and watch.error is not None:
            # Refused, as for want of inotify watches: looking by itself needs none. Anything else, such as a name that
            # watchfiles cannot read, has ended this watch only, and the next one begins with a look at everything.
            self._must_poll = self._must_poll or isinstance(watch.error, OSError)
            if self._watch_error != str(watch.error):
                self._watch_error = str(watch.error)
                self._tell(watch.error)
        elif watch is not None and watch.identity == identity and not watch.is_stale:
            return
        self._stop_watching()
        if now >= self._watch_at:
            self._watch_at = now + self.retry
            self._watch = self.watch(
                self._root, identity, self._hinted, recursive=self._recursive, must_poll=self._must_poll
            )

    def _stop_watching(self) -> None:
        if self._watch is not None:
            self._watch.stop()
            self._watch = None

    def _hinted(self, paths: set[str] | None) -> None:
        """Events told of these full paths; None: everything may have changed."""
        if paths is None or len(self._hints) + len(paths) > HINTS:
            self._look_at = 0.0
        else:
            self._hints |= {os.path.relpath(path, self._root) for path in paths if path != self._root}
        if not self._nudge.done():
            self._nudge.set_result(None)

    def _misses_directory(self, missing: Iterable[str]) -> bool:
        """Whether one of the names that are not there was a directory of files that are known."""
        return any(name not in self._known and f"{name}/" in known for name in missing for known in self._known)

    # -- saying it

    def _noticed(self, name: str, entry: Entry, text: Text, *, is_new: bool) -> Perception:
        path = self._full(name)
        return self._perception(
            "file.added" if is_new else "file.changed",
            path,
            text.content,
            f"{path} {entry.mtime} {entry.size} {text.digest}",
            size=entry.size,
            truncated=text.truncated,
            binary=text.binary,
        )

    def _removed(self, name: str) -> Perception:
        path, kept = self._full(name), self._known[name]
        key = f"{path} {kept.mtime} {kept.size} removed {self._ctx.clock.now().isoformat()}"
        sentence = f"file {Path(path).name} was removed"
        return self._perception("file.removed", path, sentence, key, size=kept.size, truncated=False, binary=False)

    def _perception(self, kind: str, path: str, content: str, key: str, **attributes: Any) -> Perception:
        file = Path(path)
        return Perception(
            content,
            source=self._ctx.name,
            kind=kind,
            at=self._ctx.clock.now(),
            key=key,
            subject=path,
            trust="untrusted",
            attributes={"path": path, "name": file.name, "suffix": file.suffix, **attributes},
        )

    def _tell(self, error: Exception) -> None:
        fault = Fault.of(error, part=self._ctx.name, phase="sense")
        self._ctx.report("ErrorOccurred", cycle_id="", phase="sense", error=fault, policy="retry", exception=error)

    def _save(self) -> None:
        files, floor = self._known, self._floor
        if len(files) > self.remembered:
            # The oldest fall out of the cursor; "not changed since" is enough to know them by.
            newest = sorted(files, key=lambda name: files[name].ctime)
            floor = max(floor, files[newest[-self.remembered - 1]].ctime)
            files = {name: files[name] for name in newest[-self.remembered :]}
        kept = {name: [k.mtime, k.size, k.digest, k.ctime] for name, k in files.items()}
        self._ctx.checkpoint({"root": readable(self._root), "files": kept, "floor": floor})

    def _full(self, name: str) -> str:
        return f"{readable(self._root)}/{name}"

    def _path_of(self, name: str) -> str:
        entry = self._pending[name][0]
        return name if entry is None else entry.path


NOBODY = Entry("", 0, -1, 0)  # equal to no file


def _known_of(cursor: Any, root: str) -> tuple[dict[str, Kept], int] | None:
    """What a cursor of this directory remembers; None when there is none that can be read."""
    try:
        if cursor["root"] != readable(root):
            return None
        return {str(name): Kept(*kept) for name, kept in cursor["files"].items()}, int(cursor["floor"])
    except (TypeError, KeyError, ValueError, AttributeError):
        return None
