"""Client of the control API: sends requests to the running service over its Unix socket.

It uses `http.client` so that commands start quickly: the import of httpx takes longer than the service's answer.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlencode

import click

from spar.cli.answers import ServiceAnswer, versions
from spar.cli.context import Options, fail
from spar.data.text import printable
from spar.server.sockets import SOCKET_NAME, short_path
from spar.service import exit_codes as exits

#: Seconds that the service may take to accept a connection.
CONNECT_WITHIN = 3.0
#: Seconds for which requests to a starting service are repeated, and between two attempts.
OPEN_WITHIN, ASK_EVERY = 10.0, 0.2

#: The exit code for each HTTP status of a refusal.
CODE_OF = {
    400: exits.CONFIG,
    403: exits.NO_PERMISSION,
    422: exits.USAGE,
    429: exits.UNFINISHED,
    503: exits.UNAVAILABLE,
    504: exits.TIMED_OUT,
}


class NotRunningError(Exception):
    """Error: no service answers in the state directory."""


class AbsentError(click.ClickException):
    """Error: the service knows no object of the requested name."""


@contextmanager
def service(options: Options, *, timeout: float = 30.0) -> Iterator[Client]:
    """Connect to the running service. Without one the command ends with code 69.

    Args: timeout: seconds for each part of an answer.
    """
    folder = options.state_dir()
    try:
        yield connect(folder, timeout)
    except NotRunningError:
        fail(f"no service runs on {folder}; start it with: spar run", exits.UNAVAILABLE)


def connect(folder: Path, timeout: float = 30.0) -> Client:
    """Return a client of the service whose state directory is `folder`.

    Args: timeout: seconds for each part of an answer.
    Raises: NotRunningError. A socket of another user ends the command.
    """
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
    return Client(path, timeout)


class _Connection(http.client.HTTPConnection):
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
            raise NotRunningError from None
        self.sock.settimeout(self._patience)


class Client:
    """Client of the service, with a connection for each request. A refusal ends the command with its reason."""

    def __init__(self, path: Path, timeout: float) -> None:
        self._path, self._timeout = path, timeout

    def get(self, path: str, **params: Any) -> Any:
        return self._ask("GET", _target(path, params))

    def post(self, path: str, body: Any = None) -> Any:
        return self._ask("POST", path, b"" if body is None else _json(body))

    def patch(self, path: str, body: Any) -> Any:
        return self._ask("PATCH", path, _json(body))

    def delete(self, path: str) -> Any:
        return self._ask("DELETE", path)

    def send(self, method: str, target: str, body: bytes | None = None) -> Any:
        """Send a request and return its answer."""
        return self._ask(method, target, body)

    def act(self, verb: str, body: Any = None) -> Any:
        """Send a verb to the service's agent and return its answer."""
        return self.post(f"/v1/agent:{verb}", body)

    def parsed(self, text: str | bytes) -> Any:
        """Return the JSON value of an answer or an event; a field that an object lacks is an UnsaidError when read."""
        return json.loads(text, object_hook=self._object)

    def version(self) -> str:
        """Return the version of the service; "unknown" if it does not say it."""
        try:
            return str(json.loads(self._request("GET", "/v1/status?lanes=0")[1])["version"])
        except (click.ClickException, NotRunningError, ValueError, LookupError, TypeError):
            return "unknown"

    def _object(self, fields: dict[str, Any]) -> ServiceAnswer:
        answer = ServiceAnswer(fields)
        answer.version = self.version
        return answer

    def lines(self, path: str, **params: Any) -> Iterator[str]:
        """Yield the lines of an answer as they come, until it ends or the connection breaks.

        Raises: NotRunningError, with the reason if the service answers that it is not available now.
        """
        try:
            with closing(self._once_open("GET", _target(path, params))) as response:
                if response.status != HTTPStatus.OK:
                    body = response.read()
                    if response.status in (503, 504):
                        raise NotRunningError(_detail(body))
                    self._fail_refused(response.status, "GET", path, body)
                for line in response:
                    yield line.decode("utf-8", "replace").rstrip("\r\n")
        except (OSError, http.client.HTTPException):
            return

    def _ask(self, method: str, target: str, body: bytes | None = None) -> Any:
        status, content = self._request(method, target, body)
        if 200 <= status < 300:
            return self.parsed(content)
        self._fail_refused(status, method, target.partition("?")[0], content)

    def _request(self, method: str, target: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Send a request and return the status and the body of its answer."""
        try:
            with closing(self._once_open(method, target, body)) as response:
                return response.status, response.read()
        except TimeoutError:
            fail("the service did not answer in time", exits.TIMED_OUT)
        except (OSError, http.client.HTTPException) as error:
            fail(f"the service broke the connection off: {error}", exits.UNAVAILABLE)

    def _fail_refused(self, status: int, method: str, path: str, body: bytes) -> NoReturn:
        """End the command with the reason that the service gives; it may be of a version without this route."""
        reason = _detail(body)
        if status == HTTPStatus.METHOD_NOT_ALLOWED or (status, reason[:10]) == (HTTPStatus.NOT_FOUND, "nothing at"):
            fail(f"the service has no {method} {path}: {versions(self.version())}", exits.UNAVAILABLE)
        if status == HTTPStatus.NOT_FOUND:
            raise AbsentError(printable(reason))
        fail(reason, CODE_OF.get(status, exits.FAILED))

    def _once_open(self, method: str, target: str, body: bytes | None = None) -> http.client.HTTPResponse:
        """Send a request and return its answer. While the service starts (503 with `Retry-After`), repeat the request
        for `OPEN_WITHIN` seconds."""
        until = time.monotonic() + OPEN_WITHIN
        while True:
            response = self._send(method, target, body)
            is_early = response.status == HTTPStatus.SERVICE_UNAVAILABLE and "retry-after" in response.headers
            if not is_early or time.monotonic() + ASK_EVERY > until:
                return response
            response.close()
            time.sleep(ASK_EVERY)

    def _send(self, method: str, target: str, body: bytes | None) -> http.client.HTTPResponse:
        connection = _Connection(self._path, self._timeout)
        try:
            connection.request(method, target, body, {"connection": "close"})
        except BrokenPipeError:
            pass  # the service refused the request before all of it was sent; its answer has the reason
        except BaseException:
            connection.close()
            raise
        try:
            return connection.getresponse()
        except BaseException:
            connection.close()
            raise


def _target(path: str, params: dict[str, Any]) -> str:
    query = urlencode({key: value for key, value in params.items() if value is not None}, errors="replace")
    return f"{path}?{query}" if query else path


def _detail(body: bytes) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace")[:500]


def _json(value: Any) -> bytes:
    """Return a value as JSON; surrogates, from arguments that were no UTF-8, become question marks."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
