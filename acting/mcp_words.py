"""What both ways to an MCP server share: a bound, the errors that we add, what a server says beside the protocol.

Nothing here needs the MCP library.
"""

from __future__ import annotations

from collections import deque

from acting.tools import visible
from spar.scrub import scrub

MOST_MESSAGE = 4 << 20
"""Bytes of one message of a server."""

# JSON-RPC error codes of ours, which stand for what became of a request; no server uses them.
NOT_SENT, UNSURE, TOO_LARGE = -32790, -32791, -32792

_KEPT, _LONGEST = 20, 300


class Words:
    """The last lines of standard error, what was no message, and how many messages were too long."""

    __slots__ = ("_stray", "dropped", "lines", "strays")

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=_KEPT)
        self.strays = self.dropped = 0
        self._stray = b""

    def hear(self, line: bytes) -> None:
        """A line of standard error."""
        if text := _shown(line):
            self.lines.append(text)

    def found_stray(self, line: bytes) -> None:
        """A line of standard output that is no message."""
        self.strays += 1
        self._stray = line[: 4 * _LONGEST]

    def last(self) -> str:
        """Its last words, to end a sentence with."""
        return f"; it said last: {self.lines[-1]}" if self.lines else ""

    def stray(self) -> str:
        """Such a line, to end a sentence with."""
        return f", such as: {_shown(self._stray)}" if self._stray else ""


def _shown(line: bytes) -> str:
    return scrub(visible(line[: 4 * _LONGEST].decode("utf-8", "replace")).strip())[:_LONGEST]
