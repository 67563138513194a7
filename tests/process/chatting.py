"""A person at a terminal: `spar chat` on a real pseudo-terminal, typed into and read, in lines or on its screen."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable
from typing import Any

import pyte

from tests.process.conftest import PATIENCE, Spar, until


class Chat:
    """`spar chat` on a pseudo-terminal. `text` is all that the terminal has shown."""

    #: What ends a typed line.
    enter = b"\n"

    def __init__(self, spar: Spar, *arguments: str, term: str = "xterm", size: tuple[int, int] = (200, 40)) -> None:
        master, slave = pty.openpty()
        self._master = master
        self._set_size(*size)
        attributes = termios.tcgetattr(slave)
        attributes[3] &= ~termios.ECHO  # what is typed is not shown: only what the program shows is looked at
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        environ = {**spar.environ, "TERM": term}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "spar", "chat", *arguments], cwd=spar.folder, env=environ, stdin=slave, stdout=slave,
            stderr=slave, start_new_session=True, preexec_fn=_take_terminal,
        )  # fmt: skip
        os.close(slave)
        self._shown = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                found = os.read(self._master, 65536)
            except OSError:  # the other side has closed
                return
            if not found:
                return
            self._take(found)

    def _take(self, found: bytes) -> None:
        self._shown += found

    def _set_size(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    @property
    def raw(self) -> bytes:
        return bytes(self._shown)

    @property
    def text(self) -> str:
        return self.raw.decode("utf-8", "replace").replace("\r\n", "\n")

    def say(self, line: str) -> None:
        """Type a line."""
        self.type(line)
        os.write(self._master, self.enter)

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._master, text.encode())

    def press(self, key: str) -> None:
        """Press a key with control: `c`, `d`."""
        os.write(self._master, bytes([ord(key.upper()) - 64]))

    def shows(self, text: str, times: int = 1) -> None:
        """Wait until the terminal has shown a text so often."""
        until(lambda: self.text.count(text) >= times, f"{text!r} {times} times in {self.text!r}", PATIENCE)

    def sees(self, condition: Callable[[str], Any]) -> None:
        until(lambda: condition(self.text), f"in {self.text!r}", PATIENCE)

    def left(self) -> int:
        """Press Ctrl-D until it has ended, and return the exit code.

        The kernel loses the key when the terminal passes from the run to the editor of lines at that very moment.
        """

        def has_ended() -> bool:
            if self.process.poll() is None:
                self.press("d")
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(1)
            return self.process.poll() is not None

        until(has_ended, f"the end after Ctrl-D in {self.text!r}", PATIENCE)
        return self.ended()

    def ended(self) -> int:
        """Return the exit code, once it has ended."""
        code = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(PATIENCE)
        os.close(self._master)


class ScreenChat(Chat):
    """`spar chat` on a terminal that draws. `text` is all that stands there, what has scrolled away included."""

    enter = b"\r"

    def __init__(self, spar: Spar, *arguments: str, size: tuple[int, int] = (200, 40), **more: Any) -> None:
        self._drawing = threading.Lock()
        self._screen = pyte.HistoryScreen(*size, history=100_000)
        self._stream = pyte.ByteStream(self._screen)
        super().__init__(spar, *arguments, size=size, **more)

    def _take(self, found: bytes) -> None:
        super()._take(found)
        with self._drawing:
            self._stream.feed(found)

    @property
    def text(self) -> str:
        return "\n".join([*self._scrolled(), *self.shown]).rstrip("\n")

    @property
    def shown(self) -> list[str]:
        """The lines of the screen."""
        with self._drawing:
            return [line.rstrip() for line in self._screen.display]

    def _scrolled(self) -> list[str]:
        with self._drawing:
            return ["".join(line[at].data for at in range(max(line, default=-1) + 1)).rstrip()
                    for line in self._screen.history.top]  # fmt: skip

    def resize(self, columns: int, lines: int) -> None:
        with self._drawing:
            self._screen.resize(lines, columns)
        self._set_size(columns, lines)

    def paste(self, text: str) -> None:
        """Paste a text, as a terminal does that says where it begins and ends."""
        pasted = b"\x1b[200~" + text.replace("\n", "\r").encode() + b"\x1b[201~"
        for at in range(0, len(pasted), 1024):  # a terminal takes no more at once
            os.write(self._master, pasted[at : at + 1024])


def _take_terminal() -> None:
    """Make the terminal that of the new session, so that Ctrl-C is a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
