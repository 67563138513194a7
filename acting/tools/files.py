"""Tool `files`: reads and changes files in one folder of the workspace, and copies or moves files from named folders.

`fs/rooted` opens every path, so no link, `..` or race leads out; `fs/operations` has the operations. There is no
recursive delete, no change of modes and no search.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from annotated_types import Gt

from acting.tooling.context import ToolContext
from acting.tooling.tool_schema import object_schema
from acting.tools.file_operations import CHANGE, OPERATIONS, READ, TAKE, Place, protected
from spar.clock import Clock, SystemClock
from spar.errors import ConfigError
from spar.fs.rooted import RootedDir, file_resource, split
from spar.protocols import Effect, Home, Host
from spar.threads import Threads


class FilesTool:
    """Files in `root`, a folder of the workspace (the workspace itself by default).

    Files in the folders `readable` may also be read and copied from, those in `movable` also moved away; both are
    given absolutely or relative to the configuration. `max_read` and `max_write` are bytes.
    """

    name = "files"
    effect: Effect = "once"
    timeout = 60.0
    concurrency = 4
    # The tool is confined, and no data leaves the machine by it. A rule on `op` can demand that people approve a delete
    # or an overwrite that follows from text from outside.
    safe_with_untrusted = True
    brings_untrusted = True  # anybody may have written a file in the workspace
    schema = object_schema(
        name,
        "Read, write and arrange files in the workspace.",
        {
            "op": {"enum": list(OPERATIONS), "description": "What to do. delete takes a file or an empty folder."},
            "path": {"type": "string", "description": "A file or folder in the workspace, which is '.'."},
            "to": {"type": "string", "description": "For copy and move: the new path, which must not exist."},
            "content": {"type": "string", "description": "For write and append: the content."},
            "encoding": {"enum": ["utf-8", "base64"], "description": "Of the content; base64 if it is no text."},
        },
        "op",
        "path",
    )

    def __init__(
        self,
        *,
        home: Home,
        root: str = ".",
        readable: Sequence[str] = (),
        movable: Sequence[str] = (),
        max_read: Annotated[int, Gt(0)] = 1 << 20,
        max_write: Annotated[int, Gt(0)] = 10 << 20,
    ) -> None:
        self._workspace, self._max_read, self._max_write = RootedDir(home.workspace), max_read, max_write
        parts = _inside(self._workspace.path, os.path.join(self._workspace.path, root))  # noqa: PTH118
        if parts is None:
            raise ConfigError(f"root {root!r} must lie in the workspace {home.workspace!r}", path=("root",))
        self._root, self._config, self._home = parts, home.config, home
        self._sources: list[tuple[RootedDir, int]] = []
        home.keep_apart(self._workspace.path, "root")
        for key, folders, right in (("movable", movable, TAKE), ("readable", readable, READ)):
            for folder in folders:
                source = RootedDir(os.path.join(home.config, folder))  # noqa: PTH118
                home.keep_apart(source.path, key)
                self._sources.append((source, right))
        self._use(SystemClock())

    def _prefix(self, session: str) -> tuple[str, ...]:
        """Return the folder in the workspace that the paths of a session are relative to."""
        return (*self._home.parts_of(session), *self._root)

    def attach(self, host: Host) -> None:
        """Count threads as work on the agent's clock."""
        self._use(host.clock)

    def _use(self, clock: Clock) -> None:
        self._threads = Threads(self.name, clock, limit=self.concurrency)

    def effect_of(self, params: Mapping[str, Any]) -> Effect:
        """Return the effect of a call with these parameters. Never raises."""
        op = params.get("op")
        return OPERATIONS[op].effect if isinstance(op, str) and op in OPERATIONS else self.effect

    def resources_of(self, params: Mapping[str, Any], session: str = "main") -> tuple[str, ...]:
        """Return the resources that a call of a session holds: the paths that it reads or writes. Never raises."""
        op, places = params.get("op"), []
        of_path = OPERATIONS[op].right if isinstance(op, str) and op in OPERATIONS else CHANGE
        for key, right in (("path", of_path), ("to", CHANGE)):
            try:
                place = self._place(params[key], right, session)
                places.append(file_resource(place.folder.path, place.parts))
            except (KeyError, ValueError, OSError):
                pass  # no path, or none that the call could use
        return tuple(dict.fromkeys(places))

    async def __call__(
        self,
        *,
        op: str,
        path: str,
        to: str | None = None,
        content: str | None = None,
        encoding: str = "utf-8",
        context: ToolContext | None = None,
    ) -> dict[str, Any]:
        """Carry out one operation. Returns its result, always with `path`.

        Raises: ValueError for parameters that do not fit together or cannot be a path; PermissionError for a path
        outside or that is no regular file; FileNotFoundError, FileExistsError and other OSErrors, with path and reason.
        """
        if not isinstance(op, str) or op not in OPERATIONS:
            raise ValueError(f"'op' must be one of {', '.join(OPERATIONS)}, found {op!r}")
        if (content is not None) != (op in ("write", "append")):
            raise ValueError(f"'content' is for write and append, and they need it; the operation is {op!r}")
        if (to is not None) != (op in ("copy", "move")):
            raise ValueError(f"'to' is for copy and move, and they need it; the operation is {op!r}")
        if encoding not in ("utf-8", "base64"):
            raise ValueError(f"'encoding' must be utf-8 or base64, found {encoding!r}")
        session = "main" if context is None else context.session
        place = self._place(path, OPERATIONS[op].right, session)
        more: dict[str, Any] = {}
        if op == "read":
            more = {"encoding": encoding, "most": self._max_read}
        if content is not None:
            more["content"] = self._bytes(content, encoding)
        if to is not None:
            more["to"] = self._place(to, CHANGE, session)
        return {"path": path, **await self._threads.run(self._do, op, path, place, more, session)}

    def _do(self, op: str, path: str, place: Place, more: dict[str, Any], session: str) -> dict[str, Any]:
        try:
            self._workspace.make()
            if own := self._home.parts_of(session):
                with self._workspace.directory(own, make=True):
                    pass
            return OPERATIONS[op].carry_out(place, **more)
        except OSError as error:
            reason = error.strerror.lower() if error.strerror else str(error)
            raise type(error)(f"cannot {op} {path!r}: {reason}") from error

    def _place(self, path: str, wanted: int, session: str) -> Place:
        """Return a path's target. Raises: PermissionError if it is outside or protected, ValueError for no path."""
        place = self._find_place(path, wanted, session)
        if name := protected(place.parts, change=wanted > READ):
            done = "changed" if wanted > READ else "read"
            raise PermissionError(f"path {path!r} leads over {name!r}, which is {done} by no tool")
        return place

    def _find_place(self, path: str, wanted: int, session: str) -> Place:
        """Return a path's target, which may be in a source folder (`readable`, `movable`) or in the workspace."""
        if not isinstance(path, str) or not path:
            raise ValueError(f"a path must be text that is not empty, found {path!r}")
        if wanted < CHANGE:
            for folder, right in self._sources:
                parts = _inside(folder.path, os.path.join(self._config, path))  # noqa: PTH118
                if parts is not None and right >= wanted:
                    return Place(folder, parts, is_own=False)
        prefix = self._prefix(session)
        if path.startswith("/"):
            root = os.path.join(self._workspace.path, *prefix)  # noqa: PTH118
            parts = _inside(root, path)
            if parts is None:
                known = ", ".join([root, *(folder.path for folder, right in self._sources if right >= wanted)])
                raise PermissionError(f"path {path!r} lies outside of what may be used for this: {known}")
            return Place(self._workspace, prefix + parts)
        return Place(self._workspace, prefix + split(path))

    def _bytes(self, content: str, encoding: str) -> bytes:
        if not isinstance(content, str):
            raise ValueError(f"'content' must be text, found {type(content).__name__}")
        try:
            data = content.encode() if encoding == "utf-8" else base64.b64decode(content, validate=True)
        except UnicodeEncodeError as error:
            raise ValueError(f"'content' has a lone surrogate at {error.start}, which is no text; use base64") from None
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"'content' is no base64: {error}") from None
        if len(data) > self._max_write:
            raise ValueError(f"'content' has {len(data)} bytes, more than the {self._max_write} that may be written")
        return data


def _inside(folder: str, path: str) -> tuple[str, ...] | None:
    """Return the components of `path` below `folder`, by their text alone; None when it lies elsewhere."""
    relative = os.path.relpath(os.path.normpath(path), os.path.normpath(folder))
    return None if relative.split("/")[0] == ".." else split(relative)
