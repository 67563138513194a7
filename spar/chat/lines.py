"""Conversation in lines: on a pipe each line is a message, on a simple terminal lines are also read during a run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import click

from spar.chat.conversation import Conversation, OpenMessage
from spar.cli.context import Options, write
from spar.cli.printer import RunPrinter
from spar.client.client import Client, NotRunningError, ServiceError
from spar.data.text import one_line, printable
from spar.operations.runs import is_end
from spar.service import exit_codes as exits

#: Bytes of one line; the rest of a longer one is dropped, and a note says so.
LONGEST: Final = 1 << 20
#: Terminals on which the cursor does not move.
DUMB: Final = ("", "dumb")


class Keyboard:
    """Reader of the lines that a person types, or of a pipe.

    Attributes: is_terminal: whether the input and the output are a terminal; is_able: whether its cursor moves, too;
        is_cut: whether the last line was too long and was cut; remember: adds a line to those of the arrow keys.
    """

    def __init__(self) -> None:
        self.is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self.is_able = self.is_terminal and os.environ.get("TERM", "") not in DUMB
        self.is_cut = False
        self.remember: Callable[[str], object] = lambda line: None
        if self.is_able:
            with suppress(ImportError):
                import readline  # from here on, lines can be edited and repeated

                self.remember = readline.add_history

    def line(self) -> str | None:
        """Return the next line without its end, at most `LONGEST` bytes of it; None at the end of the input."""
        if self.is_able:
            try:
                return input()
            except EOFError:
                return None
        line, self.is_cut = b"", False
        with suppress(OSError):  # the terminal has gone
            line = rest = sys.stdin.buffer.readline(LONGEST + 1)
            while len(line) > LONGEST and rest and not rest.endswith(b"\n"):
                self.is_cut, rest = True, sys.stdin.buffer.readline(LONGEST)
        return line[:LONGEST].decode("utf-8", "replace").rstrip("\r\n") if line else None


class Lines(Conversation):
    """Conversation in lines, on a pipe or a simple terminal."""

    def __init__(self, options: Options, client: Client, keyboard: Keyboard, session: str, mode: str,
                 run_options: dict[str, Any]) -> None:  # fmt: skip
        super().__init__(client, session, mode, run_options, RunPrinter())
        self._options, self._keyboard = options, keyboard
        self._is_asking = keyboard.is_terminal and not options.as_json
        self._has_failed, self._is_idle = False, asyncio.Event()

    # -- how it is shown

    def put_note(self, text: str) -> None:
        if self._keyboard.is_terminal:  # else the note goes another way than the answer
            self.printer.end_line()
        click.echo(printable(text), err=True)

    def put_text(self, text: str) -> None:
        self.printer.end_line()
        write(text)

    def put_message(self, text: str, *, is_earlier: bool = False) -> None:
        if is_earlier:
            write(f"> {one_line(printable(text), 500)}")
            self._keyboard.remember(one_line(text, 500))

    def show_event(self, event: dict[str, Any], *, is_silent: bool) -> None:
        if is_end(event):
            self.interrupts = 0
            self._has_failed = event["data"]["phase"] == "error" if not is_silent else self._has_failed
        if self._options.as_json:
            write(json.dumps(event))
            return
        super().show_event(event, is_silent=is_silent)
        if event["data"].get("state") == "requested" and not self._is_asking:
            self.note(f"{event['data']['tool']} waits for approval: spar approvals list")

    def draw(self) -> None:
        if self.messages:
            self._is_idle.clear()
        else:
            self._is_idle.set()

    def lose(self, error: ServiceError, message: OpenMessage | None = None) -> None:
        self._has_failed = True
        if isinstance(error, NotRunningError) and not self._over.done():
            self._over.set_exception(error)
        else:
            super().lose(error)

    def leave(self, code: int) -> None:
        if not self._over.done():
            self._over.set_result(code)

    # -- what is typed

    async def converse(self) -> int:
        loop = asyncio.get_running_loop()
        self._over: asyncio.Future[int] = loop.create_future()
        self.draw()
        loop.add_signal_handler(signal.SIGINT, self._interrupt)
        looks = termios.tcgetattr(0) if self._keyboard.is_able else None
        self.in_background(self._read)
        try:
            return await self._over
        finally:
            if looks is not None:  # the thread that edits a line goes with the process
                termios.tcsetattr(0, termios.TCSADRAIN, looks)

    async def _read(self) -> None:
        """Carry out the lines to their end; those of a pipe one after another."""
        while (line := await self.threads.run(self._keyboard.line)) is not None:
            if self._keyboard.is_cut:
                self.note("the line was too long: a message has at most 1 MiB, the rest was left out")
            if line.startswith("/"):
                await self.carry_out(line)
            elif line.strip() and self._is_asking and self.waiting:
                self.in_background(self.answer, line)
            elif line.strip():
                await self.say(line, line)
            if not self._keyboard.is_terminal:
                await self._is_idle.wait()
        await self._is_idle.wait()
        self.leave(exits.FAILED if self._has_failed and not self._keyboard.is_terminal else exits.OK)

    async def ask(self, run_id: str) -> None:
        if self._is_asking:
            await super().ask(run_id)

    def _interrupt(self) -> None:
        """Abort the current run at the first Ctrl-C, leave at the second."""
        self.interrupts += 1
        if self.interrupts > 1:
            self.leave(exits.INTERRUPTED)
        elif self.current:
            self.note("calling it off; Ctrl-C again leaves")
            self.abort()
        else:
            self.note("Ctrl-C again leaves")
