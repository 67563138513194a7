"""Options that say how an MCP server is reached: as a program, or at exactly one host and port.

The options are read and checked before anything is started.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from acting.process.detect import Confinement
from acting.process.program import Program, environment, find_program
from spar.data.scrub import scrub
from spar.data.text import disarmed
from spar.errors import ConfigError, PermanentError
from spar.net.addresses import Guard
from spar.net.http_client import read_headers
from spar.ports.services import objection_to_words
from spar.threads import Threads

PASSED = ("LANG", "LC_ALL", "LC_CTYPE", "TZ")
"""The environment variables that a program gets by default."""
_UNFIT = re.compile(r"[\x00-\x20\x7f-\x9f\\]")


class ServerLocation:
    """The way to one server: starts its program or opens its URL.

    Raises: ConfigError for options that make no sense.
    """

    def __init__(
        self,
        command: tuple[str, ...],
        url: str,
        headers: Mapping[str, str],
        env: tuple[str, ...],
        confinement: Confinement,
    ) -> None:
        if bool(command) == bool(url):
            options = "both" if url else "neither"
            raise ConfigError(f"an MCP server is reached by 'command' or by 'url', found {options}", path=("command",))
        _check_command(command, env)
        try:
            self._headers = read_headers(headers)
        except ValueError as error:
            raise ConfigError(str(error), path=("headers",)) from None
        self._guard = _guard_of(url) if url else Guard()
        self._command, self._url, self._env, self._confinement = command, url, env, confinement
        #: The URL or the name of the program, and the sandbox level of the last start.
        self.shown, self.level = url or command[0], 0

    def prepare(self) -> None:
        """Find out which sandbox is available, if one is wanted. This blocks: call it in a thread."""
        if self._command and self._confinement.level:
            self._confinement.find()

    def connect(self, words: ServerDiagnostics, resolver: Threads, silence: float) -> AbstractAsyncContextManager[Any]:
        """Return a new transport.

        Args: words: takes the output of a program; resolver: the threads that resolve names; silence: the seconds for
        which an HTTP answer may send nothing.

        Raises: PermanentError when the program or the required sandbox is not available.
        """
        transport: AbstractAsyncContextManager[Any]
        if self._url:
            transport = import_module("acting.mcp.http").stream(
                self._url, self._headers, self._guard, resolver, silence
            )
        else:
            words.begin()
            transport = import_module("acting.mcp.stdio").pipes(self._program(), words)
        return transport

    def _program(self) -> Program:
        env, name = self._environment(), self._command[0]
        path = find_program(name, env)
        if path is None:
            raise PermanentError(f"program {name!r} is not there or cannot be executed; PATH is {env['PATH']!r}")
        workspace, spec = self._confinement.workspace, self._confinement.spec()
        os.makedirs(workspace, exist_ok=True)  # noqa: PTH103 - quick, and nearly always there
        self.level = spec.level if spec else 0
        return Program(path, self._command, workspace, env, sandbox=spec)

    def _environment(self) -> dict[str, str]:
        values = dict(entry.split("=", 1) for entry in self._env if "=" in entry)
        names = [entry for entry in self._env if "=" not in entry]
        return {**environment(names, workspace=self._confinement.workspace), **values}


def _check_command(command: tuple[str, ...], env: tuple[str, ...]) -> None:
    if command and (why := objection_to_words("command", command)):
        raise ConfigError(why, path=("command",))
    if command and "/" in command[0] and not command[0].startswith("/"):
        raise ConfigError(
            f"{command[0]!r} begins in no folder: give an absolute path, or a name that is found on PATH",
            path=("command", 0),
        )
    for index, entry in enumerate(env):
        if not re.fullmatch(r"[A-Za-z_]\w*", entry.partition("=")[0], re.ASCII) or "\0" in entry:
            raise ConfigError(f"{entry!r:.100} must be NAME or NAME=value", path=("env", index))


def _guard_of(url: str) -> Guard:
    """Return a guard that permits only the host and port of the URL. Raises: ConfigError for an unusable URL."""
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        is_fine = parts.scheme in ("http", "https") and parts.hostname and not _UNFIT.search(url)
        if not is_fine or parts.username is not None or parts.password is not None or "%" in (parts.hostname or ""):
            raise ValueError("it must begin with http:// or https://, name a host, and hold no name, password or space")
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        return Guard.of([f"{host}:{port}"])
    except ValueError as error:
        raise ConfigError(f"{url!r:.200} is no usable URL: {error}", path=("url",)) from None


MOST_MESSAGE = 4 << 20
"""Bytes of one message of a server."""

# Our own JSON-RPC error codes for a request: not sent, sent with an unknown outcome, answer too large. No server uses
# them.
NOT_SENT, UNSURE, TOO_LARGE = -32790, -32791, -32792

_KEPT, _LONGEST, _FEW = 20, 300, 5
#: A line that begins with the name of an error, as `ValueError: …` of Python or `Error: …` of Node does.
_ERROR = re.compile(
    r"(?:Uncaught )?[A-Za-z_][A-Za-z0-9_.]{0,80}(?:Error|Exception)\b|(?:Error|Exception|ERROR|error)\b"
)


class ServerDiagnostics:
    """The last lines of standard error (`lines`), and counts: lines of standard output that are no messages (`strays`),
    messages that were too long (`dropped`)."""

    __slots__ = ("_last_stray", "_own_lines", "dropped", "lines", "strays")

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=_KEPT)
        self._own_lines = 0  # how many of these lines come from the program that runs now
        self.strays = self.dropped = 0
        self._last_stray = b""

    def begin(self) -> None:
        """Mark the start of another program: the lines before it do not explain its end."""
        self._own_lines = 0

    def hear(self, line: bytes) -> None:
        """Record a line of standard error."""
        if text := _shown(line):
            self.lines.append(text)
            self._own_lines = min(self._own_lines + 1, _KEPT)

    def found_stray(self, line: bytes) -> None:
        """Record a line of standard output that is no message."""
        self.strays += 1
        self._last_stray = line[: 4 * _LONGEST]

    def last(self) -> str:
        """Return the end of a sentence with the likely reason: the first line that names an error, else the last lines.

        The last line of a failed program is rarely the reason: stacks and versions come after it.
        """
        lines = list(self.lines)[-self._own_lines :] if self._own_lines else []
        if not lines:
            return ""
        named = next((line for line in lines if _ERROR.match(line)), None) or next(
            (line for line in lines if "error" in line.lower()), None
        )
        if named is not None:
            return f"; it said: {named}"
        return f"; it said last: {' | '.join(lines[-_FEW:])}"

    def stray(self) -> str:
        """Return the end of a sentence with the last line that is no message."""
        return f", such as: {_shown(self._last_stray)}" if self._last_stray else ""


def _shown(line: bytes) -> str:
    return scrub(disarmed(line[: 4 * _LONGEST].decode("utf-8", "replace")).strip())[:_LONGEST]
