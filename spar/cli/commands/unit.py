"""Commands for the service under systemd: write and start its unit, show it, remove it; and its log file.

At a rotation the service renames `spar.log.1` to `spar.log.2` and so on, the full `spar.log` to `spar.log.1`, and
begins a new file.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

import click
import msgspec
from msgspec import Struct

from spar.cli.blocks import harmless
from spar.cli.context import Options, Time, Words, fail, file_errors, refusals, show, write
from spar.data.text import printable
from spar.observe.formatting import pretty_line, time_of
from spar.service import exit_codes as exits
from spar.service.unit import WRITTEN_BY, UnitTerms, unit

if TYPE_CHECKING:
    from spar.config.tables.settings import Loaded

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
        write(pretty_line(fields, colour=colour, is_dated=True))

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


#: Folders of the units of the system's manager, and of a user's manager below its configuration folder.
SYSTEM_UNITS = Path("/etc/systemd/system")
USER_UNITS = Path("systemd/user")
#: Properties that `systemctl show` prints.
SHOWN = ("LoadState", "ActiveState", "SubState", "Result", "NRestarts", "MainPID", "ExecMainStatus")

#: Beginnings of systemctl's lines about successful steps, which may precede its error.
_DONE = ("Created symlink", "Removed ")

_user = click.option("--user", "is_user", is_flag=True, help="Use your own service manager instead of the system's.")
_name = click.option("--name", default="spar", show_default=True, metavar="NAME", help="The name of the unit.")


@click.group("service")
def service_unit() -> None:
    """Let systemd run the service: install, show and remove its unit; show its log."""


service_unit.add_command(logs)


@service_unit.command()
@_user
@_name
@click.option(
    "--as", "user", metavar="USER", help="The user it runs as (default: the owner of the configuration's folder)."
)
@click.option("--credential", "credentials", multiple=True, metavar="NAME:FILE",
              help="Where a credential of the configuration is (default: /etc/credstore/NAME).")  # fmt: skip
@click.option("--no-start", is_flag=True, help="Write the unit only.")
@click.option("--print", "only_print", is_flag=True, help="Show the unit and write nothing.")
@click.pass_obj
def install(options: Options, /, is_user: bool, name: str, user: str | None, no_start: bool, **more: Any) -> None:
    """Write a systemd unit for this configuration, and start it now and at each boot.

    It runs with watchdog and confinement as the user who owns the configuration's folder. A repeated install replaces
    the unit that spar has written before, and no other.

    \b
    Examples:
      sudo spar -c /etc/spar/config.toml service install
      spar service install --user
      sudo spar service install --credential openai:/root/openai.key
      spar service install --print
    """
    text = _text(options, user, more["credentials"], is_user=is_user)
    if more["only_print"]:
        click.echo(text, nl=False)
        return
    path = _unit_path(name, is_user=is_user)
    if path.exists() and not path.read_text(errors="replace").startswith(WRITTEN_BY):
        fail(f"{path}: there is a unit that spar has not written; choose another --name", exits.CANNOT_CREATE)
    with file_errors(path, "; run it with sudo, or with --user", exits.NO_PERMISSION):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    if not no_start:
        _systemctl("daemon-reload", is_user=is_user, hint=f"{path} is written")
        log = f"journalctl {'--user ' if is_user else ''}-u {path.stem}"
        hint = f"{path} is written; why it does not start stands in: {log}"
        _systemctl("enable", "--now", path.name, is_user=is_user, hint=hint)
    which = f"-c {options.config_path} " if options.config_path else ""
    sentence = f"{path} written" + ("" if no_start else f", {path.stem} started; look at it with: spar {which}status")
    show(options, {"unit": str(path), "started": not no_start}, sentence)


@service_unit.command()
@_user
@_name
@click.pass_obj
def uninstall(options: Options, is_user: bool, name: str) -> None:
    """Stop the service and remove its unit; its state directory stays.

    \b
    Example:
      sudo spar service uninstall
    """
    path = _unit_path(name, is_user=is_user)
    if not path.exists():
        fail(f"{path}: there is no such unit")
    if not path.read_text(errors="replace").startswith(WRITTEN_BY):
        fail(f"{path}: spar has not written this unit; take it away by hand", exits.CANNOT_CREATE)
    _systemctl("disable", "--now", path.name, is_user=is_user, hint="nothing was taken away")
    with file_errors(path, code=exits.NO_PERMISSION, did="taken away"):
        path.unlink()
    _systemctl("daemon-reload", is_user=is_user, hint=f"{path} is gone")
    show(options, {"removed": str(path)}, f"{path} taken away; what the service keeps is still there")


@service_unit.command("status")
@_user
@_name
@click.pass_obj
def unit_status(options: Options, is_user: bool, name: str) -> None:
    """Show systemd's state of the unit; `spar status` shows what the service does.

    \b
    Example:
      spar service status
    """
    words = "show", "--property", ",".join(SHOWN), f"{name}.service"
    output = _systemctl(*words, is_user=is_user, hint="nothing is known")
    properties = dict(line.partition("=")[::2] for line in output.splitlines() if "=" in line)
    if properties.get("LoadState") == "not-found":
        fail(f"there is no unit {name}; spar service install writes one", exits.UNAVAILABLE)
    restarts, pid = properties.get("NRestarts", "?"), properties.get("MainPID", "0")
    parts = [f"{name}: {properties.get('ActiveState', '?')} ({properties.get('SubState', '?')})"]
    parts += [f"process {pid}"] if pid != "0" else [f"ended with {properties.get('ExecMainStatus', '?')}"]
    show(options, properties, printable(", ".join([*parts, f"restarted {restarts} times"])))


def _text(options: Options, user: str | None, credentials: Sequence[str], *, is_user: bool) -> str:
    """Return the text of the unit for the configuration. A configuration that allows none ends the command."""
    loaded = options.load()
    if loaded.path is None:
        fail("there is no config.toml; write one with: spar init", exits.CONFIG)
    if options.overrides:
        fail("--set is not kept in a unit; write it into the configuration", exits.USAGE)
    folder = loaded.folder.resolve()
    runs_as = None if is_user else user or _owner(folder)
    if runs_as == "root":
        fail(f"it would run as root, who owns {folder}: give the folder to a user of its own (chown), or say --as USER",
             exits.NO_PERMISSION)  # fmt: skip
    if runs_as is not None and not _is_known(runs_as):
        fail(f"--as {printable(runs_as)[:40]!r}: this machine knows no such user", exits.USAGE)
    settings = loaded.settings
    folders = (settings.service.state_dir, settings.service.workspace)
    writes = tuple(dict.fromkeys([folder, *((folder / path).resolve() for path in folders)]))
    terms = UnitTerms(Path(sys.executable), loaded.path.resolve(), folder, runs_as, writes, settings.service.drain,
                      _credentials(loaded, credentials), bool(settings.memory.options.get("standby")))  # fmt: skip
    try:
        return unit(terms)
    except ValueError as error:
        fail(str(error), exits.CONFIG)


def _credentials(loaded: Loaded, given: Sequence[str]) -> tuple[str, ...]:
    """Return the credentials that the configuration names, with their files. Others end the command.

    Args: given: the values of `--credential`.
    """
    from spar.parts.factory import secrets_of

    with refusals():
        names = dict.fromkeys(secret.name for secret in secrets_of(loaded) if secret.origin == "credential")
    files = {}
    for credential in given:
        name, _, file = credential.partition(":")
        if name not in names:
            known = ", ".join(names) or "none"
            sentence = f"--credential {printable(name)[:40]!r}: the configuration names no such credential"
            fail(f"{sentence}; it names: {known}", exits.USAGE)
        if not Path(file).is_absolute():
            fail(f"--credential {printable(credential)[:80]!r}: must be NAME:FILE with an absolute path", exits.USAGE)
        files[name] = f"{name}:{file}"
    return tuple(files.get(name, name) for name in names)


def _owner(folder: Path) -> str:
    """Return the name of the owner of a folder. An owner without a name ends the command."""
    try:
        return folder.owner()
    except KeyError:
        fail(f"{folder} is owned by user {folder.stat().st_uid}, who has no name; say --as USER", exits.NO_PERMISSION)


def _is_known(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except (KeyError, ValueError):
        return False
    return True


def _unit_path(name: str, *, is_user: bool) -> Path:
    """Return the file of a unit. A malformed name ends the command."""
    if not name or len(name) > 100 or not all(sign.isascii() and (sign.isalnum() or sign in "-_.@") for sign in name):
        fail(f"--name {printable(name)[:40]!r}: letters, digits and - _ . @ only, at most 100", exits.USAGE)
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return (home / USER_UNITS if is_user else SYSTEM_UNITS) / f"{name}.service"


def _systemctl(*words: str, is_user: bool, hint: str) -> str:
    """Run systemctl and return its output. A failure, or a machine without systemctl, ends the command.

    Args: hint: the end of the error's sentence.
    """
    program = shutil.which("systemctl")
    if program is None:
        fail(f"systemctl is not there: this machine has no systemd; {hint}", exits.UNAVAILABLE)
    result = subprocess.run([program, *(["--user"] if is_user else []), *words], capture_output=True, text=True)
    if result.returncode != 0:
        errors = [line for line in result.stderr.splitlines() if line.strip() and not line.startswith(_DONE)]
        why = printable(errors[0] if errors else f"exit {result.returncode}")
        fail(f"systemctl {words[0]}: {why.rstrip('.')}; {hint}", exits.UNAVAILABLE)
    return result.stdout
