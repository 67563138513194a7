"""The parts that both transports of MCP share: a bound, our errors, and a server's messages beside the protocol.

Nothing here needs the MCP library.
"""

from __future__ import annotations

import re
from collections import deque

from spar.data.scrub import scrub
from spar.data.text import disarmed

MOST_MESSAGE = 4 << 20
"""Bytes of one message of a server."""

# JSON-RPC error codes of ours, which stand for what became of a request; no server uses them.
NOT_SENT, UNSURE, TOO_LARGE = -32790, -32791, -32792

_KEPT, _LONGEST, _FEW = 20, 300, 5
#: A line that begins with the name of an error, as `ValueError: …` of Python or `Error: …` of Node does.
_ERROR = re.compile(
    r"(?:Uncaught )?[A-Za-z_][A-Za-z0-9_.]{0,80}(?:Error|Exception)\b|(?:Error|Exception|ERROR|error)\b"
)


class ServerDiagnostics:
    """The last lines of standard error, what was no message, and how many messages were too long."""

    __slots__ = ("_own", "_stray", "dropped", "lines", "strays")

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=_KEPT)
        self._own = 0  # how many of them the program that runs now has said
        self.strays = self.dropped = 0
        self._stray = b""

    def begin(self) -> None:
        """Another program begins: what the last one said explains nothing any more."""
        self._own = 0

    def hear(self, line: bytes) -> None:
        """A line of standard error."""
        if text := _shown(line):
            self.lines.append(text)
            self._own = min(self._own + 1, _KEPT)

    def found_stray(self, line: bytes) -> None:
        """A line of standard output that is no message."""
        self.strays += 1
        self._stray = line[: 4 * _LONGEST]

    def last(self) -> str:
        """Its last words that tell why, to end a sentence with: the first that names an error, else the last few.

        The last line of a program that failed is rarely its reason: stacks and versions come after it.
        """
        own = list(self.lines)[-self._own :] if self._own else []
        if not own:
            return ""
        named = next((line for line in own if _ERROR.match(line)), None) or next(
            (line for line in own if "error" in line.lower()), None
        )
        if named is not None:
            return f"; it said: {named}"
        return f"; it said last: {' | '.join(own[-_FEW:])}"

    def stray(self) -> str:
        """Such a line, to end a sentence with."""
        return f", such as: {_shown(self._stray)}" if self._stray else ""


def _shown(line: bytes) -> str:
    return scrub(disarmed(line[: 4 * _LONGEST].decode("utf-8", "replace")).strip())[:_LONGEST]
