"""Reader of the lines of a conversation, from a terminal or a pipe, also while output is being shown."""

from __future__ import annotations

import os
import select
import sys
from collections import deque
from collections.abc import Iterable
from typing import Final

#: Bytes of one line; the rest of a longer one is dropped, and a note says so.
LONGEST: Final = 1 << 20
#: Terminals on which a line cannot be edited.
DUMB: Final = ("", "dumb")


class Keyboard:
    """Reader of the lines that a person types. `wake` ends a wait from another thread.

    Attributes: is_terminal: whether the input and the output are a terminal; is_cut: whether a line was too long and
        was cut.
    """

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self.is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self.is_edited = self.is_terminal and os.environ.get("TERM", "") not in DUMB and _has_readline()
        self._lines: deque[str] = deque()
        self._incomplete, self._is_over, self._skips = b"", False, False
        self.is_cut = False
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def close(self) -> None:
        """Release the pipe."""
        os.close(self._reader)
        os.close(self._writer)

    def wake(self) -> None:
        """End the current wait, or the next one; from any thread."""
        try:
            os.write(self._writer, b"!")
        except BlockingIOError:
            pass  # the pipe is full of earlier wake-ups

    def remember(self, lines: Iterable[str]) -> None:
        """Add earlier lines to the history of the arrow keys."""
        if self.is_edited:
            import readline

            for line in lines:
                readline.add_history(line)

    def ask(self, prompt: str) -> str | None:
        """Return the next line, None at the end of the input. Raises: KeyboardInterrupt."""
        if self._lines:
            return self._lines.popleft()
        if self.is_edited and not self._incomplete and not self._is_over:
            try:
                return input(prompt)
            except EOFError:
                self._is_over = True
                return None
        if self.is_terminal:
            sys.stdout.write(prompt)
            sys.stdout.flush()
        while not self._lines and not self._is_over:
            self._read()
        return self._lines.popleft() if self._lines else None

    def wait(self, timeout: float | None = None, *, reads: bool = True) -> str | None:
        """Wait for a line and return it; return None after a call of `wake` or the timeout.

        Args: timeout: seconds, None for no limit; reads: whether lines are read; otherwise typed lines stay unread.
        """
        if reads and self._lines:
            return self._lines.popleft()
        descriptors = [self._reader, *([self._fd] if reads and not self._is_over else [])]
        ready, _, _ = select.select(descriptors, [], [], timeout)
        if self._reader in ready:
            os.read(self._reader, 4096)
        if self._fd in ready:
            self._read()
            return self._lines.popleft() if self._lines else None
        return None

    def _read(self) -> None:
        """Read the available bytes, and split them into lines."""
        try:
            chunk = os.read(self._fd, 65536)
        except OSError:  # the terminal has gone
            chunk = b""
        if not chunk:
            self._is_over = True
            if self._incomplete:
                self._add(self._incomplete)
                self._incomplete = b""
            return
        *complete, incomplete = (self._incomplete + chunk).split(b"\n")
        for line in complete:
            self._add(line)
        self._incomplete = incomplete[:LONGEST]
        self.is_cut = self.is_cut or len(incomplete) > LONGEST

    def _add(self, line: bytes) -> None:
        self.is_cut = self.is_cut or len(line) > LONGEST
        self._lines.append(line[:LONGEST].decode("utf-8", "replace").rstrip("\r"))


def _has_readline() -> bool:
    try:
        import readline  # lines can be edited and repeated from here on
    except ImportError:
        return False
    return readline is not None
