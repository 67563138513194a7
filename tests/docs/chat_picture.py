"""The picture of `spar chat` in the documents; `make docs` draws it, a test compares what is written in it.

The screen is the real one on a real pseudo-terminal; only the service behind it is a table of answers.
"""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pyte
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_input
from rich.console import Console
from rich.text import Text

from spar.chat.screen import Screen
from spar.operations.review import list_approvals, show_approval
from spar.operations.runs import FollowRun, submit
from tests.docs.top_picture import FOLDER
from tests.docs.top_picture import words as words_of
from tests.process.conftest import PATIENCE, until

PICTURE = FOLDER / "chat.svg"
#: Cells of the picture.
COLUMNS, LINES = 100, 26
ANSWER = """The access log grew by **40 GB** since Monday:

| file | size |
|------|-----:|
| access.log | 41 GB |
| error.log | 0.2 GB |

I would rotate it: `logrotate --force /etc/logrotate.d/nginx`.
"""
CALL = {"tool": "shell", "params": {"argv": ["logrotate", "--force", "/etc/logrotate.d/nginx"]}}
QUESTION = """shell asks for your approval

  argv: logrotate --force /etc/logrotate.d/nginx

trust: trusted · expires in 15 minutes
"""


def event(stream: str, ago: float = 0.0, **data: Any) -> dict[str, Any]:
    at = datetime.now(UTC) - timedelta(seconds=ago)
    return {"seq": 1, "stream": stream, "at": at.isoformat(), "data": data}


def call(id: str, tool: str, params: Any, *ends: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events of a call."""
    yield event("tool", 2.0, call=id, tool=tool, phase="proposed", params=params)
    yield event("tool", 1.6, call=id, tool=tool, phase="start")
    yield from (event("tool", call=id, tool=tool, **end) for end in ends)


def first() -> Iterator[dict[str, Any]]:
    yield event("lifecycle", phase="start")
    yield from call("1", "files", {"path": "/var/lib/nginx"}, {"phase": "error", "error": "no such folder"})
    yield from call("2", "files", {"path": "/var/log/nginx"}, {"phase": "result", "output": "access.log 41 GB"})
    yield event("assistant", text=ANSWER, reset=False)
    yield event("lifecycle", phase="end", output=ANSWER, reply=ANSWER)


def second() -> Iterator[dict[str, Any]]:
    yield event("lifecycle", phase="start")
    yield event("tool", call="3", tool=CALL["tool"], phase="proposed", params=CALL["params"])
    yield event("tool", call="3", tool=CALL["tool"], phase="approval", state="requested")


class Events:
    """Events of one run; the stream stays open."""

    why = ""

    def __init__(self, events: Iterator[dict[str, Any]]) -> None:
        self._events, self._is_closed = events, threading.Event()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield from self._events
        self._is_closed.wait()

    def close(self) -> None:
        self._is_closed.set()


class Table:
    """A service that answers from a table."""

    def __init__(self) -> None:
        self._runs = iter(("run 1", "run 2", "run 3"))
        self._events = {"run 1": first, "run 2": second}

    def call(self, operation: Any, given: Any = None, **more: Any) -> Any:
        return SimpleNamespace(run_id=next(self._runs)) if operation is submit else SimpleNamespace(runs=())

    def answer(self, operation: Any, given: Any = None, **more: Any) -> Any:
        approval = {"id": "a1", "run_id": "run 2", "call": CALL, "digest": ""}
        return {list_approvals: [approval], show_approval: {"text": QUESTION}}.get(operation)

    def events(self, operation: Any, given: FollowRun, patience: float) -> Events:
        return Events(self._events.get(given.run_id, lambda: iter(()))())


def look_of(cell: Any) -> str:
    """Return the look of a cell of the terminal, in words of rich."""
    colour = {"brightblack": "bright_black", "brown": "yellow"}.get(cell.fg, cell.fg)
    return f"{colour} bold" if cell.bold else str(colour)


class Person:
    """A person at the pseudo-terminal, who types when the screen shows something."""

    def __init__(self, master: int) -> None:
        self._master, self._drawing = master, threading.Lock()
        self._screen = pyte.Screen(COLUMNS, LINES)
        self._stream = pyte.ByteStream(self._screen)
        self.svg = ""

    def read(self) -> None:
        """Draw what comes until the other side closes; this terminal knows no dim letters and shows them grey."""
        try:
            while data := os.read(self._master, 65_536):
                with self._drawing:
                    self._stream.feed(data.replace(b"\x1b[2m", b"\x1b[90m").replace(b"\x1b[0;2m", b"\x1b[0;90m"))
        except OSError:
            pass

    def sees(self, text: str) -> None:
        until(lambda: f"\n{text}" in "\n".join(["", *self._screen.display]), f"{text!r} on the screen", PATIENCE)

    def types(self, text: str) -> None:
        os.write(self._master, text.encode())

    def acts(self) -> None:
        """Have the conversation, keep the picture, and leave."""
        try:
            self.sees("alice  Ctrl-D leaves")
            self.types("why is the disk of web-3 full?\r")
            self.sees("I would rotate it")
            self.sees("alice  Ctrl-D leaves")
            self.types("do it, please\r")
            self.sees("run it? y")
            self.sees("works")
            self.types("y")
            self.sees("? y")
            with self._drawing:
                self.svg = self._drawn()
        finally:
            self.types("\x03\x03\x03")

    def _drawn(self) -> str:
        console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
        for number in range(LINES):
            cells = [self._screen.buffer[number][column] for column in range(COLUMNS)]
            parts = [("".join(cell.data for cell in cells), look) for look, cells in groupby(cells, look_of)]
            console.print(Text.assemble(*parts), no_wrap=True, overflow="crop")
        return console.export_svg(title="spar chat")


def drawn() -> str:
    """Return the picture as SVG."""
    master, slave = pty.openpty()
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    person = Person(master)
    threads = [threading.Thread(target=work, daemon=True) for work in (person.read, person.acts)]
    environ = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "LC_ALL": ""}
    with (
        os.fdopen(os.dup(slave)) as typed, os.fdopen(slave, "w", encoding="utf-8") as shown,
        patch.dict(os.environ, environ), patch.object(sys, "stdout", shown),
        create_app_session(input=create_input(typed)),
    ):  # fmt: skip
        os.environ.pop("NO_COLOR", None)
        screen = Screen(Table(), "alice", "steer", {})  # type: ignore[arg-type]
        screen.begin(0)
        for thread in threads:
            thread.start()
        screen.run()
        threads[1].join(PATIENCE)
    threads[0].join(PATIENCE)
    os.close(master)
    return person.svg


def words(svg: str) -> list[str]:
    """Return what is written in a picture, without the seconds that have passed."""
    return [re.sub(r"\d+\.\d+ s", "… s", text) for text in words_of(svg)]


def main() -> None:
    """Write the picture."""
    PICTURE.write_text("\n".join(map(str.rstrip, drawn().split("\n"))))


if __name__ == "__main__":
    main()
    sys.stdout.write(f"written: {PICTURE.name}\n")
