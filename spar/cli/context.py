"""Common part of all commands: the configuration, the store, and how to print."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click
from msgspec import Struct

from spar.data.text import printable
from spar.service import exit_codes as exits

if TYPE_CHECKING:
    from spar.config.load import Loaded


class Options(Struct, frozen=True):
    """The options that stand before a command."""

    config_path: Path | None
    overrides: tuple[str, ...]
    as_json: bool

    def load(self) -> Loaded:
        """Return the configuration. Ends the command with code 78 and what is wrong."""
        with refusals():
            return self.load_again()

    def load_again(self) -> Loaded:
        """Return the configuration, for a service that reads it once more. Raises: ConfigError."""
        from spar.config.load import load

        given = {}
        for item in self.overrides:
            key, equals, value = item.partition("=")
            if not equals:
                fail(f"--set {item!r}: must be KEY=VALUE, e.g. --set log.level=debug", exits.USAGE)
            given[key] = value
        return load(self.config_path, overrides=given)

    @contextmanager
    def agent(self) -> Iterator[Any]:
        """Build an agent here and hold its state directory meanwhile. Ends the command when a service has that."""
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
        loaded = self.load()
        return loaded.folder / loaded.settings.service.state_dir


@contextmanager
def refusals(code: int = exits.CONFIG) -> Iterator[None]:
    """End the command, with this code, where the configuration cannot be used."""
    from spar.errors import ConfigError

    try:
        yield
    except ConfigError as error:
        fail(str(error), code)


def fail(message: str, code: int = exits.FAILED) -> NoReturn:
    """End the command with a message on standard error."""
    error = click.ClickException(printable(message))
    setattr(error, "exit_code", code)  # noqa: B010 - click declares it for the class
    raise error


def show(options: Options, value: Any, text: str | None = None) -> None:
    """Print an answer: as JSON if that was asked for, else the text (or the JSON, indented)."""
    if options.as_json:
        write(json.dumps(value))
    elif text is None:
        write(json.dumps(value, indent=2, ensure_ascii=False))
    else:
        write(printable(text))


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


def from_store(options: Options, question: Callable[[Any], Awaitable[Any]]) -> Any:
    """Return the answer of the store as plain JSON.

    The store is opened for reading only, which a running service does not mind.
    """
    import asyncio

    import msgspec

    from spar.config.factory import Parts
    from spar.errors import SparError
    from spar.server.answers import encode

    loaded = options.load()
    with refusals():
        memory = Parts(loaded).memory(read_only=True)

    async def ask() -> Any:
        async with memory as store:
            return await question(store)

    try:
        return msgspec.json.decode(encode(asyncio.run(ask())))
    except SparError as error:
        fail(str(error), exits.UNAVAILABLE)
    except LookupError as error:
        fail(str(error.args[0]))
