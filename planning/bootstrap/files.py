"""Files whose text stands in the prompt of each request, as they were last read.

Before each request a thread checks all files, for a bounded time, and reads those that have changed. When a file cannot
be read any more, the prompt has its last text and the planner reports a problem. No run ends because of it.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import Struct
from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field

from planning.bootstrap.reading import Key, Reading, UnreadableError, find_file, key_of, read_text
from spar.clock import Clock
from spar.errors import ConfigError, TransientError
from spar.hooks import PromptFile
from spar.protocols import Home
from spar.threads import Threads
from spar.types import Trust

#: Characters of one file and of all files that a prompt may have.
LONGEST: Final = 20_000
LONGEST_IN_ALL: Final = 60_000
MOST_FILES: Final = 50
#: Seconds that the check of all files may take.
WITHIN: Final = 5.0


class FileTable(BaseModel):
    """A file in the configuration that is written as a table, with its path and options."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: Annotated[str, Field(min_length=1)]
    trust: Trust | None = None
    required: bool = False


class _Known(Struct, frozen=True):
    """State of one file at its last check: its path and key, its text as it was last read, and its problem."""

    at: tuple[str, Key] | None = None
    reading: Reading | None = None
    problem: str = ""
    is_missing: bool = False


class PromptFiles:
    """The files of one planner.

    `files` has the existing files with the text for the prompt; `version` counts its changes. `reads` counts files
    read, `looks` counts checks of all files. `problems` has a sentence by name of file.

    Args: named: names or tables. A relative name is looked up beside the configuration first, then in the workspace.
    Raises: ConfigError for a duplicate name, too many files, or a required file that does not exist.
    """

    def __init__(self, named: Sequence[str | FileTable], home: Home | None) -> None:
        self._tables = tuple(FileTable(path=item) if isinstance(item, str) else item for item in named)
        self._folders = (home.config, home.workspace) if home is not None else (".",)
        self._workspace = os.path.realpath(home.workspace) if home is not None else os.devnull
        self._known: dict[str, _Known] = {}
        self._threads: Threads | None = None
        self.files: tuple[PromptFile, ...] = ()
        self.problems: dict[str, str] = {}
        #: Names of optional files that do not exist. This is not a problem.
        self.missing: tuple[str, ...] = ()
        self.version = self.reads = self.looks = 0
        self._check_config()

    def __bool__(self) -> bool:
        return bool(self._tables)

    def attach(self, clock: Clock) -> None:
        """Create the threads; their work counts as work on this clock."""
        self._threads = Threads("prompt files", clock, limit=1)

    async def look(self) -> None:
        """Check all files, and read those that have changed. Raises nothing but CancelledError."""
        if not self._tables:
            return
        if self._threads is None:
            self.look_now()
            return
        try:
            async with asyncio.timeout(WITHIN):
                known = await self._threads.run(self._check_all, dict(self._known))
        except (TimeoutError, TransientError):
            self.problems = {"files": f"could not be looked at within {WITHIN:g} s; told is what was read last"}
            return
        self._set_state(known)

    def look_now(self) -> None:
        """Check all files in this thread. Blocks."""
        self._set_state(self._check_all(self._known))

    def _check_config(self) -> None:
        names = [table.path for table in self._tables]
        if len(names) > MOST_FILES:
            raise ConfigError(f"{len(names)} files, expected at most {MOST_FILES}", path=("files",))
        for number, table in enumerate(self._tables):
            if table.path in names[:number]:
                raise ConfigError(f"{table.path!r} stands there twice", path=("files", number))
            if not table.required:
                continue
            try:
                match = find_file(table.path, self._folders)
            except UnreadableError as error:
                raise ConfigError(f"{table.path!r} {error}", path=("files", number)) from error
            if match is None:
                where = " and ".join(map(str, self._folders))
                raise ConfigError(
                    f"{table.path!r} is required and not there; looked in {where}", path=("files", number)
                )

    def _check_all(self, known: dict[str, _Known]) -> dict[str, _Known]:
        return {table.path: self._check_one(table.path, known.get(table.path, _Known())) for table in self._tables}

    def _check_one(self, name: str, known: _Known) -> _Known:
        """Return the state of a file now; read it only if it has changed. Blocks."""
        at: tuple[str, Key] | None = None
        try:
            match = find_file(name, self._folders)
            if match is None:
                return _Known(is_missing=True)
            at = (match[0], key_of(match[1]))
            if known.at == at:
                return known
            self.reads += 1
            return _Known(at, read_text(match[0], LONGEST, inside=self._workspace))
        except UnreadableError as error:
            return _Known(at if error.stays else None, known.reading, str(error))

    def _set_state(self, known: dict[str, _Known]) -> None:
        self.looks += 1
        if known == self._known and self.looks > 1:
            return
        self._known = known
        files = cut_to_bounds(
            [self._prompt_file(table, state) for table in self._tables if (state := known[table.path]).reading]
        )
        self.version += files != self.files
        self.files = files
        missing = [table for table in self._tables if known[table.path].is_missing]
        self.missing = tuple(table.path for table in missing if not table.required)
        required = [table.path for table in missing if table.required]
        self.problems = {  # replaced as a whole: other threads read it
            **{file.name: file.left_out for file in files if file.left_out},
            **{name: why for name, state in known.items() if (why := self._problem_of(state))},
            **dict.fromkeys(required, "is required and not there any more"),
        }

    def _problem_of(self, state: _Known) -> str:
        if not state.problem:
            return ""
        return f"{state.problem}{'; told is what was read last' if state.reading is not None else ''}"

    def _prompt_file(self, table: FileTable, state: _Known) -> PromptFile:
        reading = state.reading
        assert reading is not None
        trust: Trust = table.trust or ("untrusted" if reading.is_inside else "trusted")
        of = f"{reading.length:,}" if reading.length else f"{reading.size:,} bytes"
        left_out = "" if reading.is_whole else f"only its first {len(reading.text):,} characters of {of} are told"
        return PromptFile(table.path, reading.text, trust, reading.path, left_out)


def cut_to_bounds(files: Sequence[PromptFile]) -> tuple[PromptFile, ...]:
    """Return the files cut to the bounds for one file and for all. `left_out` of a cut file says what is missing."""
    left, bounded_files = LONGEST_IN_ALL, []
    for file in files:
        file = replace(file, text=file.text.encode("utf-8", "replace").decode())  # a lone surrogate cannot be sent
        most = min(LONGEST, left)
        if len(file.text) > most:
            left_out = f"only its first {most:,} characters of {len(file.text):,} are told"
            if most < LONGEST:
                left_out += f", as all files together may have {LONGEST_IN_ALL:,}"
            file = replace(file, text=file.text[:most], left_out=left_out)
        left -= len(file.text)
        bounded_files.append(file)
    return tuple(bounded_files)
