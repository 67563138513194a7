"""Command `logs`: shows the log file of the service, filtered and formatted for people, and follows it."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from msgspec import Struct

from spar.cli.blocks import harmless
from spar.cli.commands.operate.log_file import LogFile
from spar.cli.context import Options, fail, write
from spar.cli.params import Time, Words
from spar.observe.formatting import pretty_line, time_of
from spar.service import exit_codes as exits

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
        with file:
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
    except OSError as error:
        fail(f"{file.path}: cannot be read: {error.strerror}", exits.NO_PERMISSION)


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
