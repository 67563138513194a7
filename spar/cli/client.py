"""Client of the control API: sends requests to the running service over its Unix socket.

It uses `http.client` so that commands start quickly: the import of httpx takes longer than the service's answer.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlencode

import click

from spar.cli.answers import ServiceAnswer, versions
from spar.cli.context import Options, fail
from spar.client import client
from spar.client.client import NotRunningError as NotRunningError
from spar.data.text import printable
from spar.net.control_socket import SOCKET_NAME
from spar.service import exit_codes as exits

#: The exit code for each HTTP status of a refusal.
CODE_OF = {
    400: exits.CONFIG,
    403: exits.NO_PERMISSION,
    422: exits.USAGE,
    429: exits.UNFINISHED,
    503: exits.UNAVAILABLE,
    504: exits.TIMED_OUT,
}


class AbsentError(click.ClickException):
    """Error: the service knows no object of the requested name."""


@contextmanager
def service(options: Options, *, timeout: float = 30.0) -> Iterator[CommandClient]:
    """Connect to the running service. Without one the command ends with code 69.

    Args: timeout: seconds for each part of an answer.
    """
    folder = options.state_dir()
    try:
        yield connect(folder, timeout)
    except NotRunningError:
        fail(f"no service runs on {folder}; start it with: spar run", exits.UNAVAILABLE)


def connect(folder: Path, timeout: float = 30.0) -> CommandClient:
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
    return CommandClient(folder, timeout=timeout)


class CommandClient(client.Client):
    """Client of the service of a command. A refusal ends the command with its reason."""

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
            return str(json.loads(self.exchange("GET", "/v1/status?lanes=0")[1])["version"])
        except (client.BrokenOffError, NotRunningError, ValueError, LookupError, TypeError):
            return "unknown"

    def _object(self, fields: dict[str, Any]) -> ServiceAnswer:
        answer = ServiceAnswer(fields)
        answer.version = self.version
        return answer

    def stream(self, path: str, **params: Any) -> Iterator[tuple[str, str]]:
        """Yield the fields of a stream as they come, until it ends or the connection breaks.

        Raises: NotRunningError, with the reason if the service answers that it is not available now.
        """
        target = _target(path, params)
        try:
            yield from self.lines(target)
        except client.RefusedError as error:
            self._fail_refused(error.status, "GET", path, error.detail)
        except client.BrokenOffError:
            return

    def _ask(self, method: str, target: str, body: bytes | None = None) -> Any:
        try:
            status, content = self.exchange(method, target, body)
        except client.BrokenOffError as error:
            is_late = isinstance(error.__context__, TimeoutError)
            fail(str(error), exits.TIMED_OUT if is_late else exits.UNAVAILABLE)
        if 200 <= status < 300:
            return self.parsed(content)
        self._fail_refused(status, method, target.partition("?")[0], client.detail_of(content))

    def _fail_refused(self, status: int, method: str, path: str, reason: str) -> NoReturn:
        """End the command with the reason that the service gives; it may be of a version without this route."""
        if status == HTTPStatus.METHOD_NOT_ALLOWED or (status, reason[:10]) == (HTTPStatus.NOT_FOUND, "nothing at"):
            fail(f"the service has no {method} {path}: {versions(self.version())}", exits.UNAVAILABLE)
        if status == HTTPStatus.NOT_FOUND:
            raise AbsentError(printable(reason))
        fail(reason, CODE_OF.get(status, exits.FAILED))


def _target(path: str, params: dict[str, Any]) -> str:
    query = urlencode({key: value for key, value in params.items() if value is not None}, errors="replace")
    return f"{path}?{query}" if query else path


def _json(value: Any) -> bytes:
    """Return a value as JSON; surrogates, from arguments that were no UTF-8, become question marks."""
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
