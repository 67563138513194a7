"""Tool `note`: writes one dated entry. It is the simplest tool with an effect, and a new service begins with it.

An entry is a heading and the text, indented by four columns: in Markdown such a text is verbatim, so it cannot begin a
heading, show an image or look like another entry. Entries never interleave, and are on the disk when the call returns.
The tool `files` reads notes.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from typing import Annotated, Any

from annotated_types import Ge, Gt

from acting.tooling.tool_schema import object_schema, text_of
from spar.clock import Clock, SystemClock
from spar.data.text import disarmed
from spar.errors import ConfigError, PermanentError
from spar.fs.rooted import RootedDir, file_resource, open_file, split
from spar.protocols import Effect, Home, Host
from spar.threads import Threads

_LONGEST = {"text": 1 << 20, "title": 200}
_MOST_TAGS = 20


class NoteTool:
    """Appends to the file `path` in the workspace.

    At `max_bytes` the file becomes `path.1`, the former `path.1` becomes `path.2`, and so on; `keep` of them are kept.
    """

    name = "note"
    effect: Effect = "once"
    timeout = 15.0
    concurrency = 1
    safe_with_untrusted = True  # any text becomes only one more quoted entry
    brings_untrusted = False  # it returns where and when it wrote, and no text of the file
    schema = object_schema(
        name,
        "Write down a note for people to read, with its date.",
        {
            "text": {"type": "string", "description": "The text, which is kept as it is."},
            "title": {"type": "string", "description": "A short heading.", "maxLength": _LONGEST["title"]},
            "tags": {
                "type": "array",
                "items": {"type": "string"},
                "maxItems": _MOST_TAGS,
                "description": "Words to find the note by.",
            },
        },
        "text",
    )

    def __init__(
        self,
        *,
        home: Home,
        path: str = "notes.md",
        max_bytes: Annotated[int, Gt(0)] = 10 << 20,
        keep: Annotated[int, Ge(0)] = 9,
    ) -> None:
        try:
            self._parts = split(path)
        except ValueError as error:
            raise ConfigError(f"{error}; notes lie in the workspace {home.workspace!r}", path=("path",)) from None
        if not self._parts:
            raise ConfigError(f"path {path!r} must name a file in the workspace", path=("path",))
        self._folder, self._max_bytes, self._keep = RootedDir(home.workspace), max_bytes, keep
        #: The file as a resource: `files` must not replace it during a write.
        self.resources = (file_resource(self._folder.path, self._parts),)
        self._use(SystemClock())

    def attach(self, host: Host) -> None:
        """Date entries by the agent's clock."""
        self._use(host.clock)

    def _use(self, clock: Clock) -> None:
        self._clock, self._threads = clock, Threads(self.name, clock)

    async def __call__(self, *, text: str, title: str = "", tags: Sequence[str] = ()) -> dict[str, Any]:
        """Append the entry. Returns its `path` in the workspace, its size in `bytes` and `at`.

        Raises: ValueError for parameters out of bounds; OSError when the entry could not be written, not even in part.
        """
        text_of("text", text, limit=_LONGEST["text"])
        text_of("title", title, limit=_LONGEST["title"], empty=True)
        at = self._clock.now()
        entry = render(at, text, title, tags).encode()
        if len(entry) > self._max_bytes:
            raise PermanentError(f"the note has {len(entry)} bytes, more than a whole file of {self._max_bytes}")
        await self._threads.run(self._append, entry)
        return {"path": "/".join(self._parts), "bytes": len(entry), "at": at.isoformat()}

    def _append(self, entry: bytes) -> None:
        self._folder.make()
        with self._folder.entry(self._parts, make=True) as (parent, name):
            notes = self._open_locked(parent, name, len(entry))
            try:
                _write_whole(notes, entry, "/".join(self._parts))
            finally:
                os.close(notes)

    def _open_locked(self, parent: int, name: str, size: int) -> int:
        """Open and lock the notes file, and rotate it first if it has no room for `size` bytes more."""
        while True:
            notes = open_file(parent, name, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            try:
                fcntl.flock(notes, fcntl.LOCK_EX)
                if os.fstat(notes).st_size + size <= self._max_bytes and _is_still(parent, name, notes):
                    return notes
                if _is_still(parent, name, notes):
                    self._rotate(parent, name)
            except BaseException:
                os.close(notes)
                raise
            os.close(notes)  # the file was full, or another process has just rotated it

    def _rotate(self, parent: int, name: str) -> None:
        names = [name, *(f"{name}.{number}" for number in range(1, self._keep + 1))]
        if len(names) == 1:
            os.unlink(name, dir_fd=parent)
        for newer, older in reversed(list(pairwise(names))):
            try:
                os.rename(newer, older, src_dir_fd=parent, dst_dir_fd=parent)
            except FileNotFoundError:
                pass


def render(at: datetime, text: str, title: str = "", tags: Sequence[str] = ()) -> str:
    """Return the text of an entry. Only its heading begins in the first column.

    Raises: ValueError when `tags` is not a list of at most 20 texts.
    """
    if isinstance(tags, str) or not isinstance(tags, Sequence) or not all(isinstance(tag, str) for tag in tags):
        raise ValueError(f"'tags' must be a list of words, found {tags!r:.80}")
    if len(tags) > _MOST_TAGS:
        raise ValueError(f"'tags' must be at most {_MOST_TAGS}, found {len(tags)}")
    words = " ".join("#" + "-".join(disarmed(tag[:50]).split()) for tag in tags)
    heading = " · ".join(
        part for part in (f"{at:%Y-%m-%d %H:%M:%S} UTC", " ".join(disarmed(title).split()), words) if part
    )
    body = "\n".join(f"    {line}".rstrip(" ") for line in disarmed(text).split("\n"))
    return f"\n## {heading}\n\n{body}\n"  # the first newline ends a last line that a person left open


def _is_still(parent: int, name: str, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(name, dir_fd=parent, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _write_whole(descriptor: int, content: bytes, shown: str) -> None:
    """Write and flush content with one write; undo it if a full disk took only a part."""
    before = os.fstat(descriptor).st_size
    written = os.write(descriptor, content)
    if written < len(content):
        os.ftruncate(descriptor, before)
        raise OSError(errno.ENOSPC, f"{shown!r}: only {written} of {len(content)} bytes could be written")
    os.fsync(descriptor)
