"""Common part of all commands: the configuration, the store, and how to print."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click
from msgspec import Struct

from spar.data.text import printable
from spar.service import exit_codes as exits

if TYPE_CHECKING:
    from spar.cli.blocks import Block
    from spar.config.load import Loaded


#: The default of `service.state_dir`.
STATE_DIR = "state"
#: All that who asks the store needs to know.
STORE = ("memory", "vectors", "agent.name", "service.state_dir", "service.workspace", "acting.workspace")
#: Variables of the service that do not say where its state is.
NO_FOLDER = (
    "SPAR_SERVICE__PORT",
    "SPAR_SERVICE__HOST",
    "SPAR_SERVICE__HOSTS",
    "SPAR_SERVICE__METRICS",
    "SPAR_SERVICE__DRAIN",
)


class Time(click.DateTime):
    """A time as people write it; local, if it names no zone."""

    def __init__(self) -> None:
        super().__init__(
            ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S%z"]
        )

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        return "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is no time; write for example 2026-01-31, or 2026-01-31T14:30", param, ctx)


class Options(Struct, frozen=True):
    """The options that stand before a command."""

    config_path: Path | None
    overrides: tuple[str, ...]
    as_json: bool

    def load(self, *keys: str) -> Loaded:
        """Return the configuration, or only the tables of these keys.

        Ends the command with code 78 and what is wrong.
        """
        with refusals():
            return self.load_again(*keys)

    def load_again(self, *keys: str) -> Loaded:
        """Return the configuration, for a service that reads it once more. Raises: ConfigError."""
        from spar.config.load import load, load_only

        given = {}
        for item in self.overrides:
            key, equals, value = item.partition("=")
            if not equals:
                fail(f"--set {item!r}: must be KEY=VALUE, e.g. --set log.level=debug", exits.USAGE)
            given[key] = value
        if keys:
            return load_only(keys, self.config_path, overrides=given)
        return load(self.config_path, overrides=given)

    @contextmanager
    def agent(self) -> Iterator[Any]:
        """Build an agent here and hold its state directory meanwhile. Ends the command when a service has that."""
        from spar.agent.agent import build_agent
        from spar.service.process.refusal import CannotStartError
        from spar.service.process.run import take_state_dir

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
        """Return the folder of the service's state and socket. Ends the command with code 78 where nothing says it.

        Who asks the running service needs no more of the configuration than this: all of it takes longer to read than
        the service takes to answer, and a mistake in it is no reason not to answer, nor not to stop.
        """
        found = quick_state_dir(self.config_path, self.overrides, os.environ)
        if found is not None:
            return found
        loaded = self.load()
        return loaded.folder / loaded.settings.service.state_dir


def quick_state_dir(config: Path | None, overrides: Iterable[str], environ: Mapping[str, str]) -> Path | None:
    """Return the folder that the file alone names; None where something else has a say, or the file cannot be read."""
    from spar.config.lines import PACKAGED, find, read
    from spar.errors import ConfigError

    given = [text.partition("=") for text in overrides]
    if any(not equals or key.lower().startswith("service") for key, equals, _ in given):
        return None
    if any(name.upper().startswith("SPAR_SERVICE") and name.upper() not in NO_FOLDER for name in environ):
        return None
    found = find(environ) if config is None else config
    try:
        file = (
            None if found is None else read(found, folder=Path.cwd() if (config, found) == (None, PACKAGED) else None)
        )
    except ConfigError:
        return None
    service = {} if file is None else file.table.get("service", {})
    named = service.get("state_dir", STATE_DIR) if isinstance(service, dict) else None
    if not isinstance(named, str) or named != named.strip() or not named:
        return None
    return (Path.cwd() if file is None else file.folder) / named


@contextmanager
def refusals(code: int = exits.CONFIG) -> Iterator[None]:
    """End the command, with this code, where the configuration cannot be used."""
    from spar.errors import ConfigError

    try:
        yield
    except ConfigError as error:
        fail(str(error), code)


def fail(message: str, code: int = exits.FAILED) -> NoReturn:
    """End the command with a message on standard error, without what is known to be a secret."""
    from spar.data.scrub import mask

    error = click.ClickException(printable(mask(message)))
    setattr(error, "exit_code", code)  # noqa: B010 - click declares it for the class
    raise error


def show(options: Options, value: Any, block: Block | None = None, *more: Block) -> None:
    """Print an answer: as JSON if that was asked for, else its blocks (or the JSON, indented)."""
    if options.as_json:
        write(json.dumps(value))
    elif block is None:
        text = json.dumps(value, indent=2, ensure_ascii=False)
        write(text if printable(text) == text else json.dumps(value, indent=2))
    else:
        write(rendered(block, *more))


def rendered(*blocks: Block) -> str:
    """Return blocks as text for standard output: drawn for a terminal, else plain lines."""
    from spar.cli.blocks import plain

    if sys.stdout.isatty() and any(not isinstance(block, str) for block in blocks):
        from spar.cli.screen import draw, is_drawn

        if is_drawn():
            return draw(blocks)
    return "\n".join(map(plain, blocks))


def write(text: str, end: str = "\n") -> None:
    """Print any text, by default a line, also where the terminal cannot show all of it; whoever reads may have gone."""
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
    """Send what a stream still holds, and all that follows, nowhere: else Python fails on it once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def from_store(options: Options, question: Callable[[Any], Awaitable[Any]], *, read_only: bool = True) -> Any:
    """Return the answer of the store as plain JSON.

    The store is opened for reading only, which a running service does not mind, unless something is to be changed.
    """
    import asyncio

    import msgspec

    from spar.config.factory import Parts
    from spar.errors import SparError
    from spar.server.encoding import encode

    loaded = options.load(*STORE)
    with refusals():
        memory = Parts(loaded).memory(read_only=read_only)

    async def ask() -> Any:
        async with memory as store:
            return await question(store)

    try:
        return msgspec.json.decode(encode(asyncio.run(ask())))
    except SparError as error:
        fail(str(error), exits.UNAVAILABLE)
    except LookupError as error:
        fail(str(error.args[0]))
