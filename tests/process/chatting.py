"""A person at a terminal: `spar chat` on a real pseudo-terminal, typed into and read, in lines or on its screen."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import queue
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import pyte

from tests.process.conftest import PATIENCE, Spar, until
from tests.process.template import Forked, take_terminal

#: A place without Unicode, as a machine without locales has it.
WITHOUT_UNICODE = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


class Line:
    """A line to a terminal on which everything is late by some seconds, in its order."""

    def __init__(self, takes: Callable[[bytes], object], late: float) -> None:
        self._takes, self._late = takes, late
        self._queue: queue.SimpleQueue[tuple[float, bytes]] = queue.SimpleQueue()
        if late:
            threading.Thread(target=self._run, daemon=True).start()

    def put(self, data: bytes) -> None:
        if self._late:
            self._queue.put((time.monotonic() + self._late, data))
        else:
            self._takes(data)

    def _run(self) -> None:
        while True:
            due, data = self._queue.get()
            time.sleep(max(due - time.monotonic(), 0.0))
            self._takes(data)


class Chat:
    """`spar chat` on a pseudo-terminal. `text` is all that the terminal has shown."""

    #: What ends a typed line; the command.
    enter, command = b"\n", "chat"

    def __init__(
        self, spar: Spar, *arguments: str, term: str = "xterm", size: tuple[int, int] = (200, 40), late: float = 0.0,
        environ: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self._taken, self._typed = Line(self._take, late), Line(self._write, late)
        master, slave = pty.openpty()
        self._master = master
        self._set_size(*size)
        attributes = termios.tcgetattr(slave)
        attributes[3] &= ~termios.ECHO  # what is typed is not shown: only what the program shows is looked at
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        self.process = Forked(
            [sys.executable, "-m", "spar", self.command, *arguments], cwd=spar.folder, stdin=slave, stdout=slave,
            env={**spar.environ, "TERM": term, **environ}, stderr=slave, start_new_session=True,
            preexec_fn=take_terminal,
        )  # fmt: skip
        os.close(slave)
        self._shown = bytearray()
        #: Cleared while the line takes nothing: what the program shows then waits on its side.
        self.flows = threading.Event()
        self.flows.set()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            self.flows.wait()
            try:
                found = os.read(self._master, 65536)
            except OSError:  # the other side has closed
                return
            if not found:
                return
            self._taken.put(found)

    def _write(self, typed: bytes) -> None:
        with contextlib.suppress(OSError):  # it has ended meanwhile
            os.write(self._master, typed)

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
        self._typed.put(self.enter)

    def type(self, text: str) -> None:
        """Press keys."""
        self._typed.put(text.encode())

    def press(self, key: str) -> None:
        """Press a key with control: `c`, `d`."""
        self._typed.put(bytes([ord(key.upper()) - 64]))

    def shows(self, text: str, times: int = 1) -> None:
        """Wait until the terminal has shown a text so often."""
        until(lambda: self.text.count(text) >= times, lambda: f"{text!r} {times} times in {self.text!r}", PATIENCE)

    def sees(self, condition: Callable[[str], Any]) -> None:
        until(lambda: condition(self.text), lambda: f"in {self.text!r}", PATIENCE)

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

    @property
    def has_whole_lines(self) -> bool:
        """Return whether the terminal gives whole lines, which it edits itself."""
        return bool(termios.tcgetattr(self._master)[3] & termios.ICANON)

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
            self._typed.put(pasted[at : at + 1024])


class ScreenTop(ScreenChat):
    """`spar top` on a terminal that draws."""

    command = "top"
