"""Files that a model is told before each request, as they were last read.

They are looked at before each request and read only when one of them has changed, in a thread and for a bounded time.
A file that cannot be read any more is told as it was read last, and what is wrong with it is a problem that somebody
can mend: no run ends because of it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Struct
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field

from planning.bootstrap.reading import Key, Reading, UnreadableError, found_at, key_of, read_text
from spar.clock import Clock
from spar.errors import ConfigError, TransientError
from spar.protocols import Home
from spar.records.prompt import PromptFile
from spar.threads import Threads
from spar.types import Trust

#: Characters that are told of one file, and of all.
LONGEST: Final = 20_000
LONGEST_IN_ALL: Final = 60_000
MOST_FILES: Final = 50
#: Seconds that looking at all of them may take.
WITHIN: Final = 5.0


class FileTable(BaseModel):
    """One file, where its name alone does not say enough."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Annotated[str, Field(min_length=1)]
    trust: Trust | None = None
    required: bool = False


class _Known(Struct, frozen=True):
    """A file at its last look: what was found where, the text as it was last read, and what is wrong."""

    at: tuple[str, Key] | None = None
    reading: Reading | None = None
    problem: str = ""
    is_missing: bool = False


class PromptFiles:
    """The files of one planner.

    `told` are those that there are, as they are to be told; `version` counts their changes; `reads` counts the files
    that were read, `looks` the times that all were looked at. `problems` says by name what is wrong.

    Args: named: names (relative ones are looked for beside the configuration first, then in the workspace) or tables.
    Raises: ConfigError for a name twice, too many of them, or a required file that is not there.
    """

    def __init__(self, named: Sequence[str | FileTable], home: Home | None) -> None:
        self._tables = tuple(FileTable(path=each) if isinstance(each, str) else each for each in named)
        self._folders = (home.config, home.workspace) if home is not None else (".",)
        self._workspace = os.path.realpath(home.workspace) if home is not None else os.devnull
        self._known: dict[str, _Known] = {}
        self._threads: Threads | None = None
        self.told: tuple[PromptFile, ...] = ()
        self.problems: dict[str, str] = {}
        #: Names of files that are not there, which may be as it should be.
        self.missing: tuple[str, ...] = ()
        self.version = self.reads = self.looks = 0
        self._check()

    def __bool__(self) -> bool:
        return bool(self._tables)

    def attach(self, clock: Clock) -> None:
        """Let the threads count as work on this clock."""
        self._threads = Threads("prompt files", clock, limit=1)

    async def look(self) -> None:
        """Look at all files, and read those that have changed. Raises nothing but CancelledError."""
        if not self._tables:
            return
        if self._threads is None:
            self.look_now()
            return
        try:
            async with asyncio.timeout(WITHIN):
                known = await self._threads.run(self._looked_at, dict(self._known))
        except (TimeoutError, TransientError):
            self.problems = {"files": f"could not be looked at within {WITHIN:g} s; told is what was read last"}
            return
        self._take(known)

    def look_now(self) -> None:
        """Do the same at once; blocks."""
        self._take(self._looked_at(self._known))

    def _check(self) -> None:
        names = [each.path for each in self._tables]
        if len(names) > MOST_FILES:
            raise ConfigError(f"{len(names)} files, expected at most {MOST_FILES}", path=("files",))
        for number, table in enumerate(self._tables):
            if table.path in names[:number]:
                raise ConfigError(f"{table.path!r} stands there twice", path=("files", number))
            if not table.required:
                continue
            try:
                found = found_at(table.path, self._folders)
            except UnreadableError as error:
                raise ConfigError(f"{table.path!r} {error}", path=("files", number)) from error
            if found is None:
                where = " and ".join(map(str, self._folders))
                raise ConfigError(
                    f"{table.path!r} is required and not there; looked in {where}", path=("files", number)
                )

    def _looked_at(self, known: dict[str, _Known]) -> dict[str, _Known]:
        return {each.path: self._look_at(each.path, known.get(each.path, _Known())) for each in self._tables}

    def _look_at(self, name: str, known: _Known) -> _Known:
        """Return what is known of a file now. Blocks."""
        at: tuple[str, Key] | None = None
        try:
            found = found_at(name, self._folders)
            if found is None:
                return _Known(is_missing=True)
            at = (found[0], key_of(found[1]))
            if known.at == at:
                return known
            self.reads += 1
            return _Known(at, read_text(found[0], LONGEST, inside=self._workspace))
        except UnreadableError as error:
            return _Known(at if error.stays else None, known.reading, str(error))

    def _take(self, known: dict[str, _Known]) -> None:
        self.looks += 1
        if known == self._known and self.looks > 1:
            return
        self._known = known
        told = bounded([self._file(table, found) for table in self._tables if (found := known[table.path]).reading])
        self.version += told != self.told
        self.told = told
        self.missing = tuple(each.path for each in self._tables if known[each.path].is_missing and not each.required)
        required = [each.path for each in self._tables if each.required and known[each.path].is_missing]
        self.problems = {  # made as a whole: other threads read it
            **{each.name: each.left_out for each in told if each.left_out},
            **{name: why for name, found in known.items() if (why := self._problem(found))},
            **dict.fromkeys(required, "is required and not there any more"),
        }

    def _problem(self, found: _Known) -> str:
        if not found.problem:
            return ""
        return f"{found.problem}{'; told is what was read last' if found.reading is not None else ''}"

    def _file(self, table: FileTable, found: _Known) -> PromptFile:
        reading = found.reading
        assert reading is not None
        trust: Trust = table.trust or ("untrusted" if reading.is_inside else "trusted")
        of = f"{reading.length:,}" if reading.length else f"{reading.size:,} bytes"
        left_out = "" if reading.is_whole else f"only its first {len(reading.text):,} characters of {of} are told"
        return PromptFile(table.path, reading.text, trust, reading.path, left_out)


def bounded(files: Sequence[PromptFile]) -> tuple[PromptFile, ...]:
    """Return the files, each and all together no longer than they may be; what is left out is said in each."""
    left, found = LONGEST_IN_ALL, []
    for each in files:
        each = replace(each, text=each.text.encode("utf-8", "replace").decode())  # a half of a sign cannot be sent
        most = min(LONGEST, left)
        if len(each.text) > most:
            said = f"only its first {most:,} characters of {len(each.text):,} are told"
            if most < LONGEST:
                said += f", as all files together may have {LONGEST_IN_ALL:,}"
            each = replace(each, text=each.text[:most], left_out=said)
        left -= len(each.text)
        found.append(each)
    return tuple(found)
