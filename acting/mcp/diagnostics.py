"""Shared parts of both transports of MCP: a bound, our error codes, and a record of a server's other output.

This module does not import the MCP library.
"""

from __future__ import annotations

import re
from collections import deque

from spar.data.scrub import scrub
from spar.data.text import disarmed

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
