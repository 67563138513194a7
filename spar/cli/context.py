"""What every command needs: the configuration, the running service, and how to print."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

import click
from msgspec import Struct

from spar.service import exit_codes as exits

if TYPE_CHECKING:
    import httpx

    from spar.config.load import Loaded

#: Seconds that the service may take to accept a connection.
CONNECT_WITHIN = 3.0
#: Seconds for which a service that starts is asked again, and between two times.
OPEN_WITHIN, ASK_EVERY = 10.0, 0.2


class Options(Struct, frozen=True):
    """The options that stand before a command."""

    config_path: Path | None
    overrides: tuple[str, ...]
    as_json: bool

    def load(self) -> Loaded:
        """The configuration. Ends the command with code 78 and what is wrong."""
        from spar.errors import ConfigError

        try:
            return self.load_again()
        except ConfigError as error:
            fail(str(error), exits.CONFIG)

    def load_again(self) -> Loaded:
        """The same, for a service that reads it once more. Raises: ConfigError."""
        from spar.config.load import load

        given = {}
        for item in self.overrides:
            key, equals, value = item.partition("=")
            if not equals:
                fail(f"--set {item!r}: must be KEY=VALUE, e.g. --set log.level=debug", exits.USAGE)
            given[key] = value
        return load(self.config_path, overrides=given)

    def state_dir(self) -> Path:
        loaded = self.load()
        return loaded.folder / loaded.settings.service.state_dir


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


#: Control characters, which would move the cursor or retitle the window of whoever looks, as text.
_HARMLESS = {number: f"\\x{number:02x}" for number in (*range(32), *range(127, 160)) if chr(number) not in "\n\t"}


def printable(text: str) -> str:
    """Text from anywhere, fit for a terminal."""
    return text.translate(_HARMLESS)


def one_line(text: str) -> str:
    return " ".join(text.split())


def from_store(options: Options, question: Callable[[Any], Awaitable[Any]]) -> Any:
    """Return the answer of the store as plain JSON.

    The store is opened for reading only, which a running service does not mind.
    """
    import asyncio

    import msgspec

    from spar.config.factory import Parts
    from spar.errors import ConfigError, SparError
    from spar.server.answers import encode

    try:
        memory = Parts(options.load()).memory(read_only=True)
    except ConfigError as error:
        fail(str(error), exits.CONFIG)

    async def ask() -> Any:
        async with memory as store:
            return await question(store)

    try:
        return msgspec.json.decode(encode(asyncio.run(ask())))
    except SparError as error:
        fail(str(error), exits.UNAVAILABLE)
    except LookupError as error:
        fail(str(error.args[0]))


class NotRunningError(Exception):
    """No service answers in the state directory."""


@contextmanager
def service(options: Options, *, timeout: float = 30.0) -> Iterator[Client]:
    """A connection to the running service. Ends the command with code 69 when there is none."""
    folder = options.state_dir()
    try:
        with connect(folder, timeout) as client:
            yield client
    except NotRunningError:
        fail(f"no service runs on {folder}; start it with: spar run", exits.UNAVAILABLE)


@contextmanager
def connect(folder: Path, timeout: float) -> Iterator[Client]:
    """The same. Raises: NotRunningError."""
    import httpx

    from spar.server.sockets import SOCKET_NAME, short_path

    path = folder / SOCKET_NAME
    try:
        path.stat()
        may_enter = os.access(path, os.W_OK)
    except PermissionError:
        may_enter = False
    except OSError:
        raise NotRunningError from None
    if not may_enter:
        fail(f"{path}: permission denied; the service runs as another user", exits.NO_PERMISSION)
    with short_path(path) as reachable:
        limits = httpx.Timeout(timeout, connect=CONNECT_WITHIN)
        transport = httpx.HTTPTransport(uds=reachable)
        with httpx.Client(transport=transport, base_url="http://spar", timeout=limits, trust_env=False) as client:
            yield Client(client)


class Client:
    """Asks the service. What it refuses ends the command with its reason."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def get(self, path: str, **params: Any) -> Any:
        return self._ask("GET", path, params={key: value for key, value in params.items() if value is not None})

    def post(self, path: str, body: Any = None) -> Any:
        return self._ask("POST", path, content=b"" if body is None else _json(body))

    def delete(self, path: str) -> Any:
        return self._ask("DELETE", path)

    def lines(self, path: str, **params: Any) -> Iterator[str]:
        """The lines of an answer as they come; ends with it, or when the connection breaks.

        Raises: NotRunningError, with the reason where the service says that it cannot answer now.
        """
        import httpx

        try:
            with closing(self._once_open("GET", path, is_streamed=True, params=params)) as response:
                if not response.is_success:
                    response.read()
                    if response.status_code in (503, 504):
                        raise NotRunningError(_detail(response))
                    _refused(response)
                yield from response.iter_lines()
        except httpx.ConnectError:
            raise NotRunningError from None
        except (httpx.TimeoutException, httpx.TransportError):
            return

    def _once_open(self, method: str, path: str, *, is_streamed: bool = False, **given: Any) -> httpx.Response:
        """The service's answer; one that starts and says when to ask again is asked again, for a while."""
        until = time.monotonic() + OPEN_WITHIN
        while True:
            request = self._client.build_request(method, path, **given)
            response = self._client.send(request, stream=is_streamed)
            is_early = response.status_code == 503 and "retry-after" in response.headers
            if not is_early or time.monotonic() + ASK_EVERY > until:
                return response
            response.close()
            time.sleep(ASK_EVERY)

    def _ask(self, method: str, path: str, **given: Any) -> Any:
        import httpx

        try:
            response = self._once_open(method, path, **given)
        except httpx.ConnectError:
            raise NotRunningError from None
        except httpx.TimeoutException:
            fail("the service did not answer in time", exits.TIMED_OUT)
        except httpx.TransportError as error:
            fail(f"the service broke the connection off: {error}", exits.UNAVAILABLE)
        if response.is_success:
            return response.json()
        _refused(response)


def _refused(response: httpx.Response) -> NoReturn:
    """End the command with what the service has against it."""
    fail(_detail(response), CODE_OF.get(response.status_code, exits.FAILED))


def _detail(response: httpx.Response) -> str:
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return response.text[:500]


def _json(value: Any) -> bytes:
    """What cannot be encoded (bytes of an argument that were no text) becomes a question mark."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


#: What the service's refusals mean to the shell.
CODE_OF = {
    400: exits.CONFIG,
    403: exits.NO_PERMISSION,
    422: exits.USAGE,
    429: exits.UNFINISHED,
    503: exits.UNAVAILABLE,
    504: exits.TIMED_OUT,
}
