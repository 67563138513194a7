"""Conversation in lines: on a pipe each line is a message, on a simple terminal lines are also read during a run."""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Final

import click

from spar.cli.client import ending
from spar.cli.commands.conversation.chat.conversation import ABSORBED, Conversation, Left, earlier
from spar.cli.commands.conversation.chat.keyboard import Keyboard
from spar.cli.commands.conversation.chat.questions import Questions
from spar.cli.context import Options, write
from spar.cli.printer import RunPrinter
from spar.client.client import Client, EventReader, NotRunningError, ServiceError
from spar.data.text import one_line, printable
from spar.operations.runs import FollowRun, follow, is_end
from spar.service import exit_codes as exits

PROMPT: Final = "> "


class Lines(Conversation):
    """Conversation in lines, on a pipe or a simple terminal."""

    def __init__(self, options: Options, client: Client, keyboard: Keyboard, session: str, mode: str,
                 run_options: dict[str, Any]) -> None:  # fmt: skip
        super().__init__(client, session, mode, run_options, RunPrinter())
        self._options, self._keyboard = options, keyboard
        self._questions = Questions(self)
        self._pending: deque[str] = deque()  # runs of lines that were typed during another run
        self._has_failed, self._interrupts = False, 0

    def note(self, text: str) -> None:
        self.printer.end_line()
        click.echo(printable(text), err=True)

    def tell(self, text: str) -> None:
        write(text)

    def waiting_runs(self) -> deque[str]:
        return self._pending

    def begin(self, history: int) -> None:
        """Show earlier messages, and collect the open runs of the session."""
        texts = earlier(self.client, self.session, history)
        for text, is_message in texts:
            write(f"> {one_line(printable(text), 500)}" if is_message else printable(text))
        self._keyboard.remember(one_line(text, 500) for text, is_message in texts if is_message)
        self.note(f"session {self.session}; /help says what can be said besides")
        self._pending.extend(self.open_runs())
        if self._pending:
            self.note("a run goes on here:")

    def run(self) -> int:
        """Read and handle lines until the end of the conversation; return the exit code."""
        while self._pending:
            self._follow(self._pending.popleft())
        while True:
            try:
                line = self._keyboard.ask(PROMPT)
                self._tell_cut()
            except KeyboardInterrupt:
                self._interrupts += 1
                write("")
                if self._interrupts > 1:
                    return exits.INTERRUPTED
                self.note("Ctrl-C again leaves")
                continue
            self._interrupts = 0
            if line is None:
                return exits.FAILED if self._has_failed and not self._keyboard.is_terminal else exits.OK
            if line.strip() and not self.is_command(line):
                self._say(line)
                while self._pending:
                    self._follow(self._pending.popleft())

    def _tell_cut(self) -> None:
        """Print a note if the last line was cut."""
        if self._keyboard.is_cut:
            self._keyboard.is_cut = False
            self.note("the line was too long: a message has at most 1 MiB, the rest was left out")

    # -- messages and their runs

    def _say(self, text: str) -> None:
        """Send a message, and note its run as pending."""
        try:
            self._pending.append(self.send(text))
        except NotRunningError:
            raise
        except ServiceError as error:
            self._has_failed = True
            self.note(ending(self.client, error)[0])
        except KeyboardInterrupt:
            self.note("given up; whether it was taken is not known")

    def _follow(self, run_id: str) -> None:
        """Show a run to its end, and handle the lines that are typed meanwhile."""
        self.current, self._interrupts = run_id, 0
        reader = EventReader(self.client.events(follow, FollowRun(run_id), self.patience), self._keyboard.wake)
        is_loss_noted, is_absorbed, is_over = False, False, False
        try:
            while not is_over:
                try:
                    line = self._keyboard.wait(reads=self._keyboard.is_terminal)
                    if line is not None:
                        self._handle_line(line, run_id)
                    while not is_over and (events := reader.take(1)):
                        is_absorbed = is_absorbed or events[0]["data"].get("outcome") in ABSORBED
                        is_over = self._show_event(events[0], is_absorbed=is_absorbed)
                    if reader.is_over and not is_over:
                        raise NotRunningError(str(reader.error))
                    if reader.stream.why and not is_loss_noted:
                        self.note_lost()
                    is_loss_noted = bool(reader.stream.why)
                except KeyboardInterrupt:
                    self._on_interrupt()
        finally:
            reader.close()
            self.current, self._interrupts = "", 0
            self._questions.leave(run_id)

    def _show_event(self, event: dict[str, Any], *, is_absorbed: bool) -> bool:
        """Show an event; return whether it is the last one."""
        data, stream = event["data"], event["stream"]
        is_over = is_end(event)
        if self._options.as_json:
            write(json.dumps(event))
        elif not (is_over and is_absorbed) and data.get("phase") != "outcome":
            self.printer.show(event)
        if is_over:
            self.printer.begin_anew()
            if not is_absorbed:
                self._has_failed = data["phase"] == "error"
        elif (stream == "tool" and data["phase"] == "approval") or stream == "gap":
            self._ask_approvals(event["run_id"])
        return is_over

    def _ask_approvals(self, run_id: str) -> None:
        """Show the approvals of a run: as questions in a terminal, else as notes."""
        if self._keyboard.is_terminal and not self._options.as_json:
            self.printer.end_line()
            self._questions.look(run_id)
        elif not self._options.as_json:
            for tool in self._questions.find_new(run_id):
                self.note(f"{tool} waits for approval: spar approvals list")

    def _handle_line(self, line: str, run_id: str) -> None:
        """Handle a line that was typed during a run: a command, an answer to an approval, or a message."""
        self._tell_cut()
        if not line.strip() or self.is_command(line):
            return
        if self._questions.is_open:
            self._questions.answer(line)
        else:
            self._say(line)

    def _on_interrupt(self) -> None:
        """Abort the current run at the first Ctrl-C, leave at the second."""
        self._interrupts += 1
        if self._interrupts > 1:
            raise Left(exits.INTERRUPTED)
        self.printer.end_line()
        self.note("calling it off; Ctrl-C again leaves")
        self.abort()
