"""Reader of the lines of a conversation, from a terminal or a pipe, also while output is being shown."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

#: Bytes of one line; the rest of a longer one is dropped, and a note says so.
LONGEST: Final = 1 << 20
#: Terminals on which the cursor does not move.
DUMB: Final = ("", "dumb")


class Keyboard:
    """Reader of the lines that a person types. `wake` ends a wait from another thread.

    A terminal gives one line at a time, so nothing of the next one is read before it is waited for.

    Attributes: is_terminal: whether the input and the output are a terminal; is_able: whether its cursor moves, too;
        is_cut: whether a line was too long and was cut.
    """

    def __init__(self) -> None:
        self._input = sys.stdin.buffer
        self.is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self.is_able = self.is_terminal and os.environ.get("TERM", "") not in DUMB
        self.is_edited = self.is_able and _has_readline()
        self._is_over = self.is_cut = False
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)

    def close(self) -> None:
        """Release the pipe."""
        os.close(self._reader)
        os.close(self._writer)

    def wake(self) -> None:
        """End the current wait, or the next one; from any thread."""
        with suppress(BlockingIOError):  # the pipe is full of earlier wake-ups
            os.write(self._writer, b"!")

    def remember(self, lines: Iterable[str]) -> None:
        """Add earlier lines to the history of the arrow keys."""
        if self.is_edited:
            import readline

            for line in lines:
                readline.add_history(line)

    def ask(self, prompt: str) -> str | None:
        """Return the next line, None at the end of the input. Raises: KeyboardInterrupt."""
        if self.is_edited and not self._is_over:
            try:
                return input(prompt)
            except EOFError:
                self._is_over = True
        elif self.is_terminal:
            sys.stdout.write(prompt)
            sys.stdout.flush()
        return self._line()

    def wait(self, timeout: float | None = None, *, reads: bool = True) -> str | None:
        """Wait for a line and return it; return None after a call of `wake` or the timeout.

        Args: timeout: seconds, None for no limit; reads: whether lines are read; otherwise typed lines stay unread.
        """
        reads = reads and not self._is_over
        ready, _, _ = select.select([self._reader, *([self._input] if reads else [])], [], [], timeout)
        if self._reader in ready:
            os.read(self._reader, 4096)
        return self._line() if self._input in ready else None

    def _line(self) -> str | None:
        """Return the next line without its end, at most `LONGEST` bytes of it; None at the end of the input."""
        if self._is_over:
            return None
        line = rest = b""
        with suppress(OSError):  # the terminal has gone
            line = rest = self._input.readline(LONGEST + 1)
            while len(line) > LONGEST and rest and not rest.endswith(b"\n"):
                self.is_cut, rest = True, self._input.readline(LONGEST)
        self._is_over = not line.endswith(b"\n") and not self.is_cut
        return line[:LONGEST].decode("utf-8", "replace").rstrip("\r\n") if line else None


def _has_readline() -> bool:
    try:
        import readline  # lines can be edited and repeated from here on
    except ImportError:
        return False
    return readline is not None
