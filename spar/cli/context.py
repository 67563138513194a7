"""Common part of all commands: their options and the types of these, the configuration, answers and errors."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click
from msgspec import Struct
from msgspec.structs import replace

from spar.data.text import printable
from spar.service import exit_codes as exits

if TYPE_CHECKING:
    from spar.cli.blocks import Block
    from spar.config.tables.settings import Loaded

#: The default of `service.state_dir`.
STATE_DIR = "state"
#: Environment variables of the service that do not concern its state directory.
NO_FOLDER = tuple(f"SPAR_SERVICE__{name}" for name in ("PORT", "HOST", "HOSTS", "METRICS", "DRAIN"))


class Options(Struct, frozen=True):
    """The options of `spar` itself, which every command gets."""

    config_path: Path | None
    overrides: tuple[str, ...]
    as_json: bool

    def by(self, other: Path | None) -> Options:
        """Return the options of another configuration, these ones without it."""
        return self if other is None else replace(self, config_path=other)

    def load(self, *keys: str) -> Loaded:
        """Return the configuration, or only the tables of these keys.

        An invalid configuration ends the command with code 78.
        """
        with refusals():
            return self.read(*keys)

    def read(self, *keys: str) -> Loaded:
        """Return the configuration as `load` does. Raises: ConfigError."""
        from spar.config.load import load

        return load(self.config_path, overrides=self._overrides(), only=keys)

    def load_again(self, loaded: Loaded) -> Loaded:
        """Return the configuration that a service was started with, as its file is now. Raises: ConfigError."""
        from spar.config.load import load_again

        return load_again(loaded, overrides=self._overrides())

    def _overrides(self) -> dict[str, str]:
        """Return the values of `--set` by their keys. A wrong one ends the command."""
        values = {}
        for item in self.overrides:
            key, equals, value = item.partition("=")
            if not equals:
                fail(f"--set {item!r}: must be KEY=VALUE, e.g. --set log.level=debug", exits.USAGE)
            values[key] = value
        return values

    @contextmanager
    def agent(self) -> Iterator[Any]:
        """Build an agent in this process and lock its state directory meanwhile. A running service ends the command."""
        from spar.agent.agent import build_agent
        from spar.service.process import CannotStartError, take_state_dir

        loaded = self.load()
        try:
            with refusals():
                lock = take_state_dir(loaded)
        except CannotStartError as error:
            fail(str(error), error.code)
        try:
            with refusals():
                agent = build_agent(loaded)
            yield agent
        finally:
            lock.release()

    def state_dir(self) -> Path:
        """Return the folder of the service's state and socket. Without a valid one the command ends with code 78.

        A request to the running service needs no more of the configuration. Reading all of it would take longer than
        the service takes to answer, and commands such as `stop` must work although the configuration has an error.
        """
        folder = quick_state_dir(self.config_path, self.overrides, os.environ)
        if folder is not None:
            return folder
        loaded = self.load()
        return loaded.folder / loaded.settings.service.state_dir


def quick_state_dir(config: Path | None, overrides: Iterable[str], environ: Mapping[str, str]) -> Path | None:
    """Return the state directory that the configuration file names, read without loading the settings.

    Returns: None if an option or a variable may change it, or the file cannot be read.
    """
    from spar.config.lines import PACKAGED, find, read
    from spar.errors import ConfigError

    pairs = [text.partition("=") for text in overrides]
    if any(not equals or key.lower().startswith("service") for key, equals, _ in pairs):
        return None
    if any(name.upper().startswith("SPAR_SERVICE") and name.upper() not in NO_FOLDER for name in environ):
        return None
    path = find(environ) if config is None else config
    try:
        file = None if path is None else read(path, folder=Path.cwd() if (config, path) == (None, PACKAGED) else None)
    except ConfigError:
        return None
    service = {} if file is None else file.table.get("service", {})
    state_dir = service.get("state_dir", STATE_DIR) if isinstance(service, dict) else None
    if not isinstance(state_dir, str) or state_dir != state_dir.strip() or not state_dir:
        return None
    return (Path.cwd() if file is None else file.folder) / state_dir


@contextmanager
def refusals(code: int = exits.CONFIG) -> Iterator[None]:
    """End the command with a code if the body raises ConfigError."""
    from spar.errors import ConfigError

    try:
        yield
    except ConfigError as error:
        fail(str(error), code)


def fail(message: str, code: int = exits.FAILED) -> NoReturn:
    """End the command with a message on standard error; known secrets are masked."""
    from spar.data.scrub import mask

    error = click.ClickException(printable(mask(message)))
    setattr(error, "exit_code", code)  # noqa: B010 - click declares it for the class
    raise error


@contextmanager
def file_errors(
    path: object, hint: str = "", code: int = exits.CANNOT_CREATE, *, did: str = "written"
) -> Iterator[None]:
    """End the command with a code if a file cannot be written, or whatever else the body does with it."""
    try:
        yield
    except OSError as error:
        fail(f"{path}: cannot be {did}: {error.strerror or error}{hint}", code)


def show(options: Options, value: Any, block: Block | None = None, *more: Block) -> None:
    """Print an answer: as JSON with `--json`, else as blocks, or as indented JSON if there are none."""
    if options.as_json:
        write(json.dumps(value))
    elif block is None:
        text = json.dumps(value, indent=2, ensure_ascii=False)
        write(text if printable(text) == text else json.dumps(value, indent=2))
    else:
        write(rendered(block, *more))


def rendered(*blocks: Block) -> str:
    """Return blocks as the text for standard output: drawn for a terminal, else plain lines."""
    from spar.cli.blocks import plain

    if sys.stdout.isatty() and any(not isinstance(block, str) for block in blocks):
        from spar.cli.screen import draw, is_drawn

        if is_drawn():
            return draw(blocks)
    return "\n".join(map(plain, blocks))


def write(text: str, end: str = "\n") -> None:
    """Print a text, by default with a line end.

    Characters that the encoding lacks are escaped. A reader that has gone (a broken pipe) ends the command with code 0.
    """
    encoding = sys.stdout.encoding or "utf-8"
    try:
        sys.stdout.write(f"{text}{end}".encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        discard(sys.stdout)
        raise SystemExit(exits.OK) from None
    except OSError as error:
        discard(sys.stdout)
        fail(f"standard output cannot be written: {error.strerror}")


def discard(stream: TextIO) -> None:
    """Redirect a stream to the null device. Else Python fails again when it flushes the rest at the exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Time(click.ParamType[datetime]):
    """Parameter type of a time as people write it, local without a zone, or of how long ago it is."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        from spar.config.tables.section import seconds

        try:
            return datetime.fromisoformat(value).astimezone()
        except (ValueError, OverflowError):
            if value.isdigit() or (ago := seconds(value)) is None:
                sentence = "must be a time (2026-01-31, 2026-11-22T18:00) or a duration (15m), up to a hundred years"
                self.fail(f"{value!r}: {sentence}", param, ctx)
        return datetime.now(UTC) - timedelta(seconds=ago)


class Duration(click.ParamType[float]):
    """Parameter type of a number of seconds, or of a duration as people write it."""

    name = "DURATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from spar.config.tables.section import seconds

        if not (length := seconds(value)):
            self.fail(f'{value!r}: must be a number of seconds > 0, or a duration like "30s", "5m", "1h"', param, ctx)
        return length


class Json(click.ParamType[Any]):
    """Type of a JSON value; `kind` is what it must be."""

    name = "JSON"

    def __init__(self, kind: Any) -> None:
        self._kind, self._words = kind, "JSON, a text in quotation marks" if kind is Any else "a JSON object"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from spar.decoding import decode

        try:
            return decode(value.encode(), self._kind)
        except (ValueError, RecursionError) as error:
            self.fail(f"{value!r:.200}: must be {self._words}: {error}", param, ctx)


class Words(click.Choice[Any]):
    """Type of a value that is typed as a word."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(list(values), case_sensitive=False)
        self._values = values

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._values[super().convert(value, param, ctx)]


#: Option that names another configuration.
other_configuration = click.option(
    "--config", "other", metavar="FILE", type=click.Path(path_type=Path),
    help="By this configuration; default: by the present one.",
)  # fmt: skip
