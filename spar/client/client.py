"""Client of the control API over `http.client`, which is imported quickly: commands use it, too.

A request that the service refuses because it still starts is repeated for `OPEN_WITHIN` seconds: it was not done. A
request whose connection broke is repeated once if that is safe: for a read, and for a change that the service makes
only once (`Operation.may_repeat`). With `patience`, a client waits for a service that is away.
"""

from __future__ import annotations

import http.client
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from spar.decoding import convert, misfit
from spar.net.control_socket import SOCKET_NAME, SocketConnection
from spar.operations.operation import Operation

In = TypeVar("In", bound=Struct)
Out = TypeVar("Out")

#: Seconds that the service may take to accept a connection, and to answer beside what an operation may take.
CONNECT_WITHIN: Final = 3.0
ANSWER_WITHIN: Final = 20.0
#: Seconds for which requests to a starting service are repeated, and between two attempts.
OPEN_WITHIN: Final = 10.0
ASK_EVERY: Final = 0.2
#: Seconds without an event or a heartbeat after which a stream counts as broken off; heartbeats come every 15 s.
SILENCE: Final = 45.0
#: Seconds for which a stream is tried again without an event between the attempts.
PATIENCE: Final = 30.0
#: Seconds before the next attempt, and before that of a stream that was refused and never gives up.
AGAIN_AFTER: Final = 0.5
AGAIN_AFTER_REFUSAL: Final = 10.0
#: Events that a reader holds; further ones wait in the service, which says how many it had to drop.
MOST_EVENTS: Final = 10_000


class ServiceError(Exception):
    """Error: a request has no answer that can be used."""


class NotRunningError(ServiceError):
    """Error: no service answers there, or it cannot be reached now."""


class BrokenOffError(ServiceError):
    """Error: the connection broke; a change may have been carried out or not."""


class TimedOutError(BrokenOffError):
    """Error: no answer came in time; a change may have been carried out or not."""


class RefusedError(ServiceError):
    """Error: the service refused a request. `status` is the HTTP status, `detail` the reason, `request` the method and
    the path."""

    def __init__(self, status: int, detail: str, request: str = "") -> None:
        super().__init__(detail)
        self.status, self.detail, self.request = status, detail, request

    @property
    def is_of_route(self) -> bool:
        """Return whether the service, of another version, has no such route."""
        is_unknown = self.status == HTTPStatus.NOT_FOUND and self.detail.startswith("nothing at")
        return is_unknown or self.status == HTTPStatus.METHOD_NOT_ALLOWED


class MisfitError(ServiceError, ValueError):
    """Error: an answer does not fit its type, because the service is of another version. `field` is the missing field,
    "" for any other misfit."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class JsonObject(dict[str, Any]):
    """JSON object of an answer or an event. Reading a field that it lacks raises MisfitError."""

    __slots__ = ()

    def __missing__(self, field: str) -> Any:
        raise MisfitError(f"the service's answer has no {field!r}", field)


class Client:
    """Client of one service, with a connection for each request; threads may share it.

    Args:
        place: The state directory of a service of this user, or the URL of its port.
        token: The access token for the port.
        timeout: Seconds for each part of an answer; default: what the operation may take, and `ANSWER_WITHIN`.
        sleep: Waits before a request is sent again.
    """

    def __init__(self, place: Path | str, *, token: str = "", timeout: float | None = None,
                 sleep: Callable[[float], None] = time.sleep) -> None:  # fmt: skip
        self._place, self._token, self._timeout, self.sleep = place, token, timeout, sleep

    def call(self, operation: Operation[In, Out], given: In | None = None, *, patience: float = 0.0,
             lost: Callable[[], object] = lambda: None) -> Out:  # fmt: skip
        """Carry out an operation and return its answer. Args and raises: as `answer`; MisfitError."""
        return self.typed(operation, self.answer(operation, given, patience=patience, lost=lost))

    def answer(self, operation: Operation[In, Any], given: In | None = None, *, patience: float = 0.0,
               lost: Callable[[], object] = lambda: None) -> Any:  # fmt: skip
        """Carry out an operation and return its answer as JSON values, also those that this version does not know.

        Args:
            given: The input; None for an operation without required fields.
            patience: Seconds for which the request is repeated while no service can answer it.
            lost: Called before the first repetition.

        Raises: RefusedError; NotRunningError; BrokenOffError.
        """
        given = operation.given() if given is None else given
        may_repeat, tries = operation.may_repeat(given), 0
        (target, body), patient = operation.request(given), operation.seconds(given)
        timeout = patient + ANSWER_WITHIN if self._timeout is None else self._timeout
        while True:
            try:
                return self._answer(operation.method, target, body, timeout)
            except ServiceError as error:
                tries += 1
                is_once = tries == 1 and type(error) is BrokenOffError
                if not _may_pass(error, may_repeat) or not (is_once or patience):
                    raise
                if tries * AGAIN_AFTER > max(patience, AGAIN_AFTER):
                    raise NotRunningError(str(error)) from error
            if tries == 1:
                lost()
            self.sleep(AGAIN_AFTER)

    def _answer(self, method: str, target: str, body: bytes | None, timeout: float) -> Any:
        try:
            with self._once_open(method, target, body, {}, timeout) as response:
                status, content = response.status, response.read()
        except TimeoutError:
            raise TimedOutError("the service did not answer in time") from None
        except (OSError, http.client.HTTPException) as error:
            raise BrokenOffError(f"the service broke the connection off: {error}") from None
        if not 200 <= status < 300:
            raise RefusedError(status, detail_of(content), f"{method} {target.partition('?')[0]}")
        return parsed(content)

    @staticmethod
    def typed(operation: Operation[Any, Out], answer: Any) -> Out:
        """Return the JSON values of an answer as a value of its type. Raises: MisfitError."""
        try:
            value: Out = convert(answer, operation.answer)
        except msgspec.ValidationError as error:
            raise MisfitError(f"the answer of {operation.name!r} does not fit this version: {error}",
                              misfit(error).missing or "") from error  # fmt: skip
        return value

    def events(self, operation: Operation[In, Any], given: In, patience: float = PATIENCE) -> ResumingStream[In]:
        """Return the events of a stream. Args: as `ResumingStream`."""
        return ResumingStream(self, operation, given, patience)

    def lines(self, target: str, headers: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """Yield the fields of a stream as they come, until it ends. Raises: RefusedError, NotRunningError,
        BrokenOffError."""
        try:
            with self._once_open("GET", target, None, headers, SILENCE) as response:
                if response.status != HTTPStatus.OK:
                    path = target.partition("?")[0]
                    raise RefusedError(response.status, detail_of(response.read()), f"GET {path}")
                for line in response:
                    name, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(": ")
                    yield name, value
        except (OSError, http.client.HTTPException) as error:
            raise BrokenOffError(f"the connection broke off: {error}") from error

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
            self.sleep(ASK_EVERY)

    def _send(self, connection: http.client.HTTPConnection, method: str, target: str, body: bytes | None,
              headers: Mapping[str, str]) -> http.client.HTTPResponse:  # fmt: skip
        token = {"authorization": f"Bearer {self._token}"} if self._token else {}
        with suppress(BrokenPipeError):  # the service refused it before all of it was sent; its answer has the reason
            connection.request(method, target, body, {"connection": "close", **token, **headers})
        return connection.getresponse()

    def _connection(self, timeout: float) -> http.client.HTTPConnection:
        url = urlsplit(str(self._place))
        if url.scheme not in ("http", "https"):
            return _to_socket(Path(self._place), timeout)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.netloc, timeout=timeout)
        try:
            connection.connect()
        except OSError as error:
            raise NotRunningError(f"{self._place}: {error.strerror or error}") from None
        return connection


def _to_socket(folder: Path, timeout: float) -> SocketConnection:
    """Return a connection to the service with this state directory."""
    connection = SocketConnection(folder / SOCKET_NAME, CONNECT_WITHIN, timeout)
    try:
        connection.connect()
    except TimeoutError:
        raise
    except PermissionError:
        reason = f"{folder / SOCKET_NAME}: permission denied; the service runs as another user"
        raise RefusedError(HTTPStatus.FORBIDDEN, reason) from None
    except OSError:
        raise NotRunningError(f"no service runs on {folder}") from None
    return connection


class ResumingStream(Generic[In]):
    """Events of a stream, each once and in order, until the last one; a broken connection is continued after the last
    event that came, also in the next process of the service.

    Iterating raises: RefusedError; NotRunningError.

    Args:
        patience: Seconds of attempts without an event between them; an infinite one ends at no refusal either.
    Attributes:
        is_live: Whether it is connected.
        connections: How often it has connected.
        why: Why it is not connected now; "" while it is, and before the first attempt.
        is_refused: Whether the service answers, but not with events.
        changed: Called when it has connected or lost the connection.
    """

    def __init__(self, client: Client, operation: Operation[In, Any], given: In, patience: float) -> None:
        self._client, self._operation, self._patience = client, operation, patience
        self._target, _ = operation.request(given)
        self._is_closed = self.is_live = self.is_refused = False
        self.connections, self.why = 0, ""
        self.changed: Callable[[], object] = lambda: None

    def close(self) -> None:
        """End the iteration with the next event or heartbeat; from any thread."""
        self._is_closed = True

    def __iter__(self) -> Iterator[dict[str, Any]]:
        after, tries, fields = "", 0, dict[str, str]()
        while not self._is_closed:
            error: ServiceError = BrokenOffError("the service ended the stream")
            try:
                for name, value in self._client.lines(self._target, {"last-event-id": after} if after else {}):
                    if self._is_closed:
                        return
                    self._connected()
                    if name:
                        fields[name] = value
                    elif not value:  # an empty line ends an event; only then it has come as a whole
                        after, tries = fields.pop("id", after), 0
                        if (data := fields.pop("data", None)) is not None:
                            event = parsed(data)
                            yield event
                            if self._operation.ends(event):
                                return
            except ServiceError as broken:
                error = broken
            finally:
                self.is_live = False
            tries += 1
            self.is_refused = not _may_pass(error, may_repeat=True)
            if self.is_refused and self._patience < math.inf:
                raise error
            if tries * AGAIN_AFTER > self._patience:
                raise NotRunningError(str(error)) from error
            fields.clear()
            self.why = str(error)
            self.changed()
            self._client.sleep(AGAIN_AFTER_REFUSAL if self.is_refused else AGAIN_AFTER)

    def _connected(self) -> None:
        if not self.is_live:
            self.is_live, self.is_refused, self.why = True, False, ""
            self.connections += 1
            self.changed()


class EventReader:
    """Reader of a stream in a thread, for programs that wait for more than its events.

    Args: arrived: called in the thread after each event, each change of the connection, and the end, until `close`.
    Attributes: stream: the stream; error: the reason why it has ended early, None without one.
    """

    def __init__(self, stream: ResumingStream[Any], arrived: Callable[[], object] = lambda: None) -> None:
        self.stream, self._arrived = stream, arrived
        self.error: Exception | None = None
        self._events = Queue[dict[str, Any]](MOST_EVENTS)
        self._has_ended = False
        self._telling = threading.Lock()
        stream.changed = self._tell
        threading.Thread(target=self._read, name="events", daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Return whether no event comes any more."""
        return self._has_ended and self._events.empty()

    def take(self, most: int = MOST_EVENTS) -> list[dict[str, Any]]:
        """Return the events that have come, at most `most`."""
        batch: list[dict[str, Any]] = []
        with suppress(Empty):
            while len(batch) < most:
                batch.append(self._events.get_nowait())
        return batch

    def close(self) -> None:
        """Stop reading. The thread ends with the next event or heartbeat, or with the process."""
        with self._telling:
            self._arrived = lambda: None
        self.stream.close()
        self.take()  # the thread may wait for room

    def _read(self) -> None:
        try:
            for event in self.stream:
                self._events.put(event)
                self._tell()
        except Exception as error:  # whoever takes the events raises it
            self.error = error
        self._has_ended = True
        self._tell()

    def _tell(self) -> None:
        with self._telling:
            self._arrived()


def _may_pass(error: ServiceError, may_repeat: bool) -> bool:
    """Return whether the same request may succeed later. Args: may_repeat: whether it may be carried out twice."""
    if isinstance(error, RefusedError):
        return error.status in (429, 503) or (may_repeat and error.status == HTTPStatus.GATEWAY_TIMEOUT)
    return isinstance(error, NotRunningError) or (may_repeat and isinstance(error, BrokenOffError))


def parsed(text: str | bytes) -> Any:
    """Return the JSON value of an answer or an event. Raises: MisfitError."""
    try:
        return json.loads(text, object_hook=JsonObject)
    except ValueError as error:
        raise MisfitError(f"the service's answer is no JSON: {error}") from None


def detail_of(content: bytes) -> str:
    """Return the reason of a refusal from its body."""
    try:
        return str(json.loads(content)["detail"])
    except (ValueError, KeyError, TypeError):
        return content.decode("utf-8", "replace")[:500]
