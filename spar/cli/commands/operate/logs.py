"""Command `logs`: shows the log file of the service, filtered and formatted for people, and follows it.

At a rotation the service renames `spar.log.1` to `spar.log.2` and so on, the full `spar.log` to `spar.log.1`, and
begins a new file.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final

import click
import msgspec
from msgspec import Struct

from spar.cli.blocks import harmless
from spar.cli.context import Options, fail, file_errors, write
from spar.cli.params import Time, Words
from spar.observe.formatting import pretty_line, time_of
from spar.service import exit_codes as exits

#: Bytes of one line that are read; the rest of a longer one, which is none of spar's, is skipped.
LONGEST: Final = 256 * 1024
#: Largest number of rotated files that are read.
OLDER: Final = 100
_CHUNK: Final = 64 * 1024


class LogFile:
    """Reader of the lines of a log, without their line feeds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._paths = [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, OLDER + 1))]
        self._file: IO[bytes] | None = None
        self._incomplete = b""

    def __enter__(self) -> LogFile:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()

    def exists(self) -> bool:
        return any(path.exists() for path in self._paths)

    def more(self) -> Iterator[bytes]:
        """Yield the complete lines that were written since the last call; at first all, the oldest first.

        Raises: OSError.
        """
        newer = self._newer()
        if self._file is not None:
            yield from self._lines(self._file)
        for file in reversed(newer):
            if self._file is not None:  # the writer has begun another one: the last line may have no line feed
                self._file.close()
                yield from filter(None, [self._incomplete])
            self._file, self._incomplete = file, b""
            yield from self._lines(file)

    def _newer(self) -> list[IO[bytes]]:
        """Open the files that were begun after the one that is read, the newest first.

        All are open before one is read: so a rotation meanwhile neither loses nor repeats a line.
        """
        files: list[IO[bytes]] = []
        for path in self._paths:
            with suppress(FileNotFoundError):  # a rotation is going on, or there are no more
                file = path.open("rb")
                if self._file is not None and _is_same(file, self._file):
                    file.close()
                    if os.fstat(self._file.fileno()).st_size < self._file.tell():  # it was emptied
                        self._file.seek(0)
                        self._incomplete = b""
                    break
                if any(_is_same(file, other) for other in files):
                    file.close()
                else:
                    files.append(file)
        return files

    def _lines(self, file: IO[bytes]) -> Iterator[bytes]:
        """Yield the complete lines up to the end of a file; an incomplete last line is stored for the next call."""
        while chunk := file.read(_CHUNK):
            *complete, self._incomplete = (self._incomplete + chunk).split(b"\n")
            self._incomplete = self._incomplete[:LONGEST]
            yield from (line[:LONGEST] for line in complete if line)


def _is_same(one: IO[bytes], other: IO[bytes]) -> bool:
    return os.path.sameopenfile(one.fileno(), other.fileno())


LEVELS: Final = ("debug", "info", "warning", "error", "critical")
#: Seconds between two reads of a followed file.
EVERY: Final = 0.25
#: Characters that are shown of a damaged line.
DAMAGED: Final = 200


class LineFilter(Struct, frozen=True):
    """Filter of lines: a line must fit each field that is not None; `level` is the least important level."""

    session: str | None = None
    cycle: str | None = None
    level: str | None = None
    since: datetime | None = None

    def takes(self, text: bytes) -> bool:
        """Return whether a line fits. One without a level, or without a time, fits any; a damaged one has no session
        and no cycle."""
        line = parsed(text) or {}
        level, at = line.get("level"), time_of(line)
        return (
            self.session in (None, line.get("session"))
            and (self.cycle is None or str(line.get("cycle", "")).startswith(self.cycle))
            and (self.level is None or level not in LEVELS or LEVELS.index(level) >= LEVELS.index(self.level))
            and (self.since is None or at is None or at >= self.since)
        )


#: The words for a level; the usual short ones besides.
_WORDS: Final = {**{level: level for level in LEVELS[:-1]}, "warn": "warning", "err": "error"}


@click.command()
@click.option("-f", "--follow", "is_followed", is_flag=True, help="Go on with what comes, over rotation, until Ctrl-C.")
@click.option("-n", "--lines", "number", type=click.IntRange(0, 100_000), default=50, show_default=True,
              help="How many at most, the newest; with --since all of them.")  # fmt: skip
@click.option("--session", help="Only lines of this session.")
@click.option("--cycle", help="Only lines of this cycle; a beginning of its id is enough.")
@click.option("--level", type=Words(_WORDS), help="Only lines of this level and more important ones.")
@click.option("--since", type=Time(), help="Only lines since a time (2026-11-22T18:00) or for a duration (15m).")
@click.pass_obj
def logs(options: Options, is_followed: bool, number: int, session: str | None, cycle: str | None, level: str | None,
         since: datetime | None) -> None:  # fmt: skip
    """Show the log file of the service (log.file), the oldest line first, whether the service runs or not.

    A damaged line is shown as such. With --json each line is printed as it stands in the file.

    \b
    Examples:
      spar service logs
      spar service logs -f --level warning
      spar service logs --since 15m --session alice
      spar service logs --cycle 18ea10a4 --json
    """
    line_filter = LineFilter(session, cycle, level, since)
    file = LogFile(_path(options))
    show = _raw if options.as_json else _pretty()
    if not file.exists() and not is_followed:
        fail(f"{file.path}: is not there; the service writes it as soon as it runs: spar run", exits.UNAVAILABLE)
    try:
        with file_errors(file.path, code=exits.NO_PERMISSION, did="read"), file:
            lines = filter(line_filter.takes, file.more())
            for text in lines if since is not None else deque(lines, maxlen=number):
                show(text)
            if is_followed and not file.exists():
                click.echo(f"{file.path} is not there yet; waiting for it", err=True)
            while is_followed:
                for text in filter(line_filter.takes, file.more()):
                    show(text)
                time.sleep(EVERY)
    except KeyboardInterrupt:
        raise SystemExit(exits.OK) from None


def parsed(text: bytes) -> dict[str, Any] | None:
    """Return the fields of a line, None for a damaged one."""
    try:
        fields = msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) and "msg" in fields else None


def _raw(text: bytes) -> None:
    write(text.decode("utf-8", "backslashreplace"))


def _pretty() -> Callable[[bytes], None]:
    """Return a function that prints a line in the format of the service's terminal output."""
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def show(text: bytes) -> None:
        fields = parsed(text)
        if fields is None:
            damaged = text[: 8 * DAMAGED].decode("utf-8", "backslashreplace")
            write(f"damaged line: {harmless(damaged, DAMAGED)}")
            return
        line = pretty_line(fields, colour=colour, is_dated=True)
        write(line.decode("utf-8", "replace").rstrip("\n"))

    return show


def _path(options: Options) -> Path:
    """Return the path of the log file. Without one the command ends with advice."""
    loaded = options.load("log.file")
    if (name := loaded.settings.log.file) is not None:
        return loaded.folder / name
    fail(
        "the log goes to standard error of `spar run` and into no file; where systemd runs it: journalctl -u spar "
        '(with spar service install --user: journalctl --user -u spar); to have a file: [log] file = "spar.log" in '
        "config.toml, then start it again",
        exits.UNAVAILABLE,
    )
