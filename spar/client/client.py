"""Client of the control API over `http.client`, which is imported quickly: commands use it, too.

A request that the service refuses because it still starts is repeated for `OPEN_WITHIN` seconds: it was not done.
A read whose connection broke is repeated once. A change is not, since it may have been carried out; one with an
idempotency key of its own (`RunBody.idempotency_key`) may be repeated by the caller.
"""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from spar.decoding import convert
from spar.net.control_socket import SOCKET_NAME, short_path
from spar.operations.operation import Operation

In = TypeVar("In", bound=Struct)
Out = TypeVar("Out")

#: Seconds that the service may take to accept a connection.
CONNECT_WITHIN: Final = 3.0
#: Seconds for which requests to a starting service are repeated, and between two attempts.
OPEN_WITHIN: Final = 10.0
ASK_EVERY: Final = 0.2
#: Seconds without an event or a heartbeat after which a stream counts as broken off; heartbeats come every 15 s.
SILENCE: Final = 45.0
#: Attempts to continue a stream without an event between them, and the seconds between two of them.
TRIES: Final = 30
AGAIN_AFTER: Final = 1.0


class NotRunningError(Exception):
    """Error: no service answers there, or it cannot be reached now."""


class BrokenOffError(Exception):
    """Error: the connection broke, or no answer came in time; a change may have been carried out or not."""


class RefusedError(Exception):
    """Error: the service refused a request. `status` is the HTTP status, `detail` the reason."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class MisfitError(Exception):
    """Error: an answer does not fit its type, because the service is of another version."""


class Client:
    """Client of one service, with a connection for each request; threads may share it.

    Args:
        place: The state directory of a service of this user, or the URL of its port.
        token: The access token for the port.
        timeout: Seconds for each part of an answer.
        sleep: Waits before a request is sent again.
    """

    def __init__(self, place: Path | str, *, token: str = "", timeout: float = 30.0,
                 sleep: Callable[[float], None] = time.sleep) -> None:  # fmt: skip
        self._place, self._token, self._timeout, self._sleep = place, token, timeout, sleep

    def call(self, operation: Operation[In, Out], given: In | None = None) -> Out:
        """Carry out an operation and return its answer.

        Args: given: the input; None for an operation without required fields.

        Raises: RefusedError; NotRunningError; BrokenOffError; MisfitError.
        """
        return self.typed(operation, self.answer(operation, given))

    def answer(self, operation: Operation[In, Any], given: In | None = None) -> Any:
        """Carry out an operation and return its answer as JSON values, also those that this version does not know.

        Raises: RefusedError; NotRunningError; BrokenOffError.
        """
        target, body = operation.request(operation.given() if given is None else given)
        try:
            status, content = self.exchange(operation.method, target, body)
        except BrokenOffError:
            if not operation.is_read:
                raise
            status, content = self.exchange(operation.method, target, body)
        if not 200 <= status < 300:
            raise RefusedError(status, detail_of(content))
        return json.loads(content)

    def typed(self, operation: Operation[Any, Out], answer: Any) -> Out:
        """Return the JSON values of an answer as a value of its type. Raises: MisfitError."""
        try:
            value: Out = convert(answer, operation.answer)
        except msgspec.ValidationError as error:
            raise MisfitError(f"the answer of {operation.name!r} does not fit: {error}; the service may be of another "
                              "version") from error  # fmt: skip
        return value

    def events(self, operation: Operation[In, Any], given: In) -> Generator[dict[str, Any]]:
        """Yield the events of a stream until it ends; a broken connection is continued after the last event.

        An endless stream is continued in the next process of the service, too.

        Raises: RefusedError; NotRunningError after `TRIES` attempts without an event.
        """
        after, tries, why = "", 0, ""
        target, _ = operation.request(given)
        while tries <= TRIES:
            headers = {"last-event-id": after} if after else {}
            try:
                for name, value in self.lines(target, headers):
                    if name == "id":
                        after, tries = value, 0
                    elif name == "data":
                        yield json.loads(value)
                if not operation.is_endless:
                    return
                why = "the service ended the stream"
            except (NotRunningError, BrokenOffError) as error:
                why = str(error)
            tries += 1
            self._sleep(AGAIN_AFTER)
        raise NotRunningError(why)

    def lines(self, target: str, headers: Mapping[str, str] | None = None) -> Iterator[tuple[str, str]]:
        """Yield the fields of a stream as they come, until it ends. Raises: as `events`; BrokenOffError."""
        with self._once_open("GET", target, None, headers or {}, max(self._timeout, SILENCE)) as response:
            if response.status != HTTPStatus.OK:
                detail = detail_of(response.read())
                if response.status in (503, 504):
                    raise NotRunningError(detail)
                raise RefusedError(response.status, detail)
            try:
                for line in response:
                    name, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(": ")
                    yield name, value
            except (OSError, http.client.HTTPException) as error:
                raise BrokenOffError(str(error)) from error

    def exchange(self, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Send a request and return the status and the body of its answer. Raises: NotRunningError, BrokenOffError."""
        try:
            with self._once_open(method, target, body, {}, self._timeout) as response:
                return response.status, response.read()
        except TimeoutError:
            raise BrokenOffError("the service did not answer in time") from None
        except (OSError, http.client.HTTPException) as error:
            raise BrokenOffError(f"the service broke the connection off: {error}") from None

    @contextmanager
    def _once_open(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str],
                   timeout: float) -> Iterator[http.client.HTTPResponse]:  # fmt: skip
        """Send a request and yield its answer; while the service starts, send it again."""
        until = time.monotonic() + OPEN_WITHIN
        while True:
            with closing(self._connection(timeout)) as connection:
                response = self._send(connection, method, target, body, headers)
                is_early = response.status == HTTPStatus.SERVICE_UNAVAILABLE and "retry-after" in response.headers
                if not is_early or time.monotonic() + ASK_EVERY > until:
                    with closing(response):
                        yield response
                    return
            self._sleep(ASK_EVERY)

    def _send(self, connection: http.client.HTTPConnection, method: str, target: str, body: bytes | None,
              headers: Mapping[str, str]) -> http.client.HTTPResponse:  # fmt: skip
        token = {"authorization": f"Bearer {self._token}"} if self._token else {}
        with suppress(BrokenPipeError):  # the service refused it before all of it was sent; its answer has the reason
            connection.request(method, target, body, {"connection": "close", **token, **headers})
        return connection.getresponse()

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        url = urlsplit(str(self._place))
        if url.scheme not in ("http", "https"):
            return _SocketConnection(Path(self._place) / SOCKET_NAME, timeout)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.netloc, timeout=timeout)
        try:
            connection.connect()
        except OSError as error:
            raise NotRunningError(f"{self._place}: {error.strerror or error}") from None
        return connection


class _SocketConnection(http.client.HTTPConnection):
    """Connection over a Unix socket."""

    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("spar")
        self._path, self._patience = path, timeout

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(CONNECT_WITHIN)
        try:
            with short_path(self._path) as reachable:
                self.sock.connect(reachable)
        except TimeoutError:
            self.close()
            raise
        except OSError:
            self.close()
            raise NotRunningError(f"no service runs on {self._path.parent}") from None
        self.sock.settimeout(self._patience)


def detail_of(content: bytes) -> str:
    """Return the reason of a refusal from its body."""
    try:
        return str(json.loads(content)["detail"])
    except (ValueError, KeyError, TypeError):
        return content.decode("utf-8", "replace")[:500]
