"""Screen of a conversation: the input stays at the bottom while answers are written above it.

The terminal scrolls as usual: what stands for good is printed once, above the part that prompt_toolkit draws again.
Requests to the service run in threads, so that keys never wait for it.
"""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from msgspec import Struct, field
from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import BufferControl, Dimension, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.output.vt100 import Vt100_Output

from spar.cli.client import ending
from spar.cli.commands.conversation.chat.conversation import ABSORBED, Conversation, Left, earlier
from spar.cli.commands.conversation.chat.questions import HOW, Questions
from spar.cli.commands.conversation.chat.view import RunView, dim, tinted
from spar.cli.top.words import harmless, lasted
from spar.client.async_client import Paced
from spar.client.client import Client, EventReader, ServiceError
from spar.clock import SystemClock
from spar.data.text import printable
from spar.operations.runs import FollowRun, follow, is_end
from spar.service import exit_codes as exits
from spar.threads import Threads

#: Seconds for which the screen waits for a service that is away.
PATIENT: Final = 86_400.0
#: Seconds between two drawings of what arrives; keys are drawn at once.
EVERY: Final = 0.05
#: Lines of what is written, and of the input, at most.
WRITTEN_LINES, INPUT_LINES = 14, 8
#: Lines and characters of a pasted text above which it is shown as a mark; characters of the texts that stay known for
#: messages of the history, and the form of a mark.
PASTED_LINES, PASTED, MOST_PASTED = 10, 1_000, 1_000_000
MARK: Final = re.compile(r"\[paste (\d+): \d+ lines, \d+ characters\]")
#: Seconds after which Esc is that key and not the beginning of a sequence, also over a slow line.
ESCAPE: Final = 0.1


class _Message(Struct):
    """Message of this conversation and its run: `text` is "" for a run that went on before it."""

    text: str
    is_shown: bool
    run_id: str = ""
    is_absorbed: bool = False
    reader: EventReader | None = None
    events: deque[dict[str, Any]] = field(default_factory=deque)


class Screen(Conversation):
    """Conversation on a terminal whose cursor can be moved."""

    patience = PATIENT
    printer: RunView

    def __init__(self, client: Client, session: str, mode: str, run_options: dict[str, Any],
                 longest: int | None = None) -> None:  # fmt: skip
        super().__init__(client, session, mode, run_options, RunView())
        self._longest = longest
        self._clock = SystemClock()
        self._threads = Threads("chat", self._clock, limit=32)
        self._messages: deque[_Message] = deque()  # the first is that of the run in hand
        self._questions = Questions(self)
        self._pasted: dict[str, str] = {}  # by their marks
        self._pastes = 0
        self._lines: list[str] = []
        self._interrupts, self._since = 0, 0.0
        self._has_question = False  # a call that waits for a decision is shown
        self._is_asked = False  # the input is the answer to it, since it was not begun before
        self._is_lost = False
        self._sending, self._answering = asyncio.Lock(), asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._input = Buffer(multiline=True, history=InMemoryHistory(), on_text_changed=self._changed)
        self._app = self._application()

    def begin(self, history: int) -> None:
        """Show earlier messages, and follow the open runs of the session."""
        self.printer.width = self._app.output.get_size().columns
        for text, is_message in earlier(self.client, self.session, history):
            if is_message:
                self.printer.put_message(text)
                self._input.history.append_string(text)
            else:
                self.printer.put(text)
        self.note(f"session {self.session}; /help says what can be said besides")
        self._messages.extend(_Message("", True, run_id) for run_id in self.open_runs())
        if self._messages:
            self.note("a run goes on here:")

    def run(self) -> int:
        """Show the conversation until the person leaves; return the exit code. Raises: Left."""
        return asyncio.run(self._run())

    async def _run(self) -> int:
        self._loop, self._arrivals = asyncio.get_running_loop(), Paced(self._look, EVERY)
        self._loop.add_signal_handler(signal.SIGTERM, self._leave, exits.INTERRUPTED)
        for message in self._messages:
            self._follow(message)
        clock = self._loop.create_task(self._tick())
        try:
            return await self._app.run_async(set_exception_handler=False, pre_run=self._print)
        except EOFError:  # the terminal has gone
            return exits.OK
        finally:
            clock.cancel()
            for message in self._messages:
                if message.reader is not None:
                    message.reader.close()

    async def _tick(self) -> None:
        """Draw the seconds of the work in hand."""
        while True:
            await asyncio.sleep(1.0)
            if self._messages:
                self._app.invalidate()

    # -- how it is shown

    def note(self, text: str) -> None:
        self._in_loop(self._stand, [dim(text)])

    def tell(self, text: str) -> None:
        self._in_loop(self._stand, text.split("\n"))

    def tell_how(self, text: str) -> None:
        """Show nothing: it stands above the input as long as a call waits."""

    def note_lost(self) -> None:
        self._in_loop(self._set_lost, True)

    def _set_lost(self, is_lost: bool) -> None:
        """Say once that the service is away."""
        if is_lost and not self._is_lost:
            super().note_lost()
        self._is_lost = is_lost

    def _stand(self, lines: list[str]) -> None:
        self.printer.above += lines
        self._print()

    def _in_loop(self, work: Callable[..., object], *given: Any) -> None:
        """Do something in the event loop, from any thread; before it runs, at once."""
        if self._loop is None:
            work(*given)
        else:
            with suppress(RuntimeError):  # the loop has ended, and with it the conversation
                self._loop.call_soon_threadsafe(work, *given)

    def _print(self) -> None:
        """Print the lines that stand for good above the others."""
        if self._app.is_running and self.printer.above:
            text = "".join(f"{line}\n" for line in self.printer.above)
            self.printer.above.clear()
            self._app.renderer.erase()
            self._app.output.write_raw(text)
            self._app.output.flush()
        self._app.invalidate()

    # -- messages and their runs

    def waiting_runs(self) -> list[str]:
        return [message.run_id for message in list(self._messages)[1:]]

    async def _say(self, typed: str, whole: str) -> None:
        """Send a message; what is typed during a run is listed until the run takes it in, or its own begins.

        Args: whole: the typed text with the pasted ones."""
        message = _Message(typed, not self._messages)
        if message.is_shown:
            self.printer.put_message(typed)
        self._messages.append(message)
        self._print()
        try:
            async with self._sending:  # one after another, in the order in which they were typed
                message.run_id = await self._threads.run(self.send, whole)
        except ServiceError as error:
            self._messages.remove(message)
            self.note(ending(self.client, error)[0])
            if not self._input.text:
                self._input.text = typed
            return
        self._set_lost(False)
        self._follow(message)

    def _follow(self, message: _Message) -> None:
        stream = self.client.events(follow, FollowRun(message.run_id), self.patience)
        message.reader = EventReader(stream, self._arrivals.ask)
        self._look()

    def _look(self) -> None:
        """Take the events that have come, and show those of the run in hand."""
        for message in self._messages:
            if message.reader is not None:
                message.events.extend(events := message.reader.take())
                if any(event["data"].get("outcome") in ABSORBED for event in events):
                    message.is_absorbed = True
                    self._show_message(message)
        while self._messages and self._messages[0].events:
            self._show_event(self._messages[0], self._messages[0].events.popleft())
        if self._messages and (reader := self._messages[0].reader) is not None:
            if reader.is_over and not self._messages[0].events:
                self._end(self._messages[0])
                self.note(f"the run cannot be followed any more: {reader.error}")
            self._set_lost(bool(reader.stream.why))
        self._print()

    def _show_message(self, message: _Message) -> None:
        if not message.is_shown:
            message.is_shown = True
            self.printer.put_message(message.text)

    def _show_event(self, message: _Message, event: dict[str, Any]) -> None:
        """Show an event of the run in hand."""
        self._show_message(message)
        if self.current != message.run_id:
            self.current, self._since, self._interrupts = message.run_id, self._clock.monotonic(), 0
        data, is_over = event["data"], is_end(event)
        if not (is_over and message.is_absorbed) and data.get("phase") != "outcome":
            self.printer.show(event)
        if is_over:
            self._end(message)
        elif data.get("phase") == "approval" or event["stream"] == "gap":
            self._in_background(self._ask, message.run_id)

    def _end(self, message: _Message) -> None:
        """Forget a run that is over."""
        if message.reader is not None:
            message.reader.close()
        self._messages.remove(message)
        self.printer.begin_anew()
        if self._questions.is_open:
            self._in_background(self._leave_questions, message.run_id)
        self.current, self._is_lost, self._has_question, self._is_asked = "", False, False, False

    # -- the input

    async def _ask(self, run_id: str) -> None:
        """Ask for the approvals of a run."""
        async with self._answering:
            await self._threads.run(self._questions.look, run_id)
            if self.current != run_id:
                await self._threads.run(self._questions.leave, run_id)
            self._has_question = self._questions.is_open
            self._is_asked = self._has_question and (self._is_asked or not self._input.text)
        self._app.invalidate()

    async def _leave_questions(self, run_id: str) -> None:
        async with self._answering:
            await self._threads.run(self._questions.leave, run_id)

    async def _answer(self, line: str) -> None:
        async with self._answering:
            if self._questions.is_open:
                await self._threads.run(self._questions.answer, line)
            self._has_question = self._is_asked = self._questions.is_open
        self._app.invalidate()

    async def _command_of(self, line: str) -> None:
        try:
            await self._threads.run(self.is_command, line)
        except Left as left:
            self._leave(left.args[0])

    def _in_background(self, work: Callable[..., Any], *given: Any) -> None:
        """Begin work that a key or an event asks for; an error of the service is said."""

        async def guarded() -> None:
            try:
                await work(*given)
            except ServiceError as error:
                self.note(str(error))

        self._app.create_background_task(guarded())

    def _enter(self, event: KeyPressEvent) -> None:
        """Take the text of the input as a command, an answer or a message."""
        if self._input.document.text_before_cursor.endswith("\\"):
            self._input.delete_before_cursor()
            self._input.newline(copy_margin=False)
            return
        typed, is_answer = self._input.text, self._is_asked
        is_message = not (is_answer or typed.startswith("/"))
        whole = MARK.sub(lambda mark: self._pasted.get(mark[0], mark[0]), typed)
        if is_message and (why := self._refusal(typed, whole)):
            self.note(why)
            return
        self._input.reset(append_to_history=True)
        if is_message and typed.strip():
            self._in_background(self._say, typed, whole)
        elif typed.strip():
            self._in_background(self._answer if is_answer else self._command_of, typed)

    def _refusal(self, typed: str, whole: str) -> str:
        """Return why a message cannot be sent, so that it stays in the input; "" if it can."""
        for mark in MARK.finditer(typed):
            if mark[0] not in self._pasted and int(mark[1]) <= self._pastes:
                return f"the text of {mark[0]} is not known any more: paste it again"
        if self._longest is not None and len(whole) > self._longest:
            return f"not sent: a message may have {self._longest} characters, this one has {len(whole)}"
        return ""

    def _paste(self, event: KeyPressEvent) -> None:
        """Insert a pasted text; a long one as a mark, which stands for it in the message."""
        text = event.data.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + 1
        if lines > PASTED_LINES or len(text) > PASTED:
            self._pastes += 1
            mark = f"[paste {self._pastes}: {lines} lines, {len(text)} characters]"
            self._forget_pasted(len(text))
            self._pasted[mark] = text
            text = mark
        self._input.insert_text(text)

    def _forget_pasted(self, more: int) -> None:
        """Forget the oldest pasted texts that the input does not have, so that there is room for another one."""
        held = more + sum(map(len, self._pasted.values()))
        for mark in [mark for mark in self._pasted if mark not in self._input.text]:
            if held <= MOST_PASTED:
                return
            held -= len(self._pasted.pop(mark))

    def _changed(self, buffer: Buffer) -> None:
        self._interrupts = 0
        if not buffer.text:
            self._is_asked = self._has_question

    def _interrupt(self, event: KeyPressEvent) -> None:
        """Clear the input, or abort the run; leave at the second time."""
        interrupts = self._interrupts + 1
        if interrupts > 1:
            self._leave(exits.INTERRUPTED)
        elif self._input.text:
            self._input.reset()
        else:
            self._abort()
        self._interrupts = interrupts

    def _escape(self, event: KeyPressEvent) -> None:
        self._abort()

    def _abort(self) -> None:
        if self.current:
            self.note("calling it off; Ctrl-C again leaves")
            self.abort()

    def _unfold(self, event: KeyPressEvent) -> None:
        self.printer.unfold()
        self._print()

    def _end_of_input(self, event: KeyPressEvent) -> None:
        """Leave, if nothing is typed."""
        if self._input.text:
            self._input.delete()
        else:
            self._in_background(self._command_of, "/quit")

    def _leave(self, code: int) -> None:
        if self._app.is_running and not self._app.is_done:
            self._app.exit(result=code)

    # -- the layout

    def _application(self) -> Application[int]:
        keys = KeyBindings()
        keys.add("enter")(self._enter)
        keys.add("c-j")(lambda event: self._input.newline(copy_margin=False))
        keys.add("escape", "enter")(lambda event: self._input.newline(copy_margin=False))
        keys.add("escape")(self._escape)
        keys.add("c-c")(self._interrupt)
        keys.add("<sigint>")(self._interrupt)
        keys.add("c-d")(self._end_of_input)
        keys.add("c-o")(self._unfold)
        keys.add("c-z")(lambda event: event.app.suspend_to_background())
        keys.add(Keys.BracketedPaste)(self._paste)
        below = Window(
            FormattedTextControl(lambda: ANSI("\n".join(self._lines))),
            height=lambda: Dimension.exact(len(self._lines)), dont_extend_height=True,
        )  # fmt: skip
        typed = Window(
            BufferControl(self._input), height=self._input_height, wrap_lines=True, dont_extend_height=True,
            get_line_prefix=lambda line, wrapped: "  " if line or wrapped else "? " if self._is_asked else "> ",
        )  # fmt: skip
        status = Window(FormattedTextControl(self._status), height=Dimension(max=1), style="fg:ansibrightblack")
        output = Vt100_Output.from_pty(sys.stdout)
        output.enable_cpr = False  # the answer of a terminal on a slow line would be waited for
        app: Application[int] = Application(
            Layout(HSplit([below, typed, status]), focused_element=typed), key_bindings=keys, output=output,
            erase_when_done=True, before_render=self._compose,
        )  # fmt: skip
        app.ttimeoutlen = app.timeoutlen = ESCAPE
        return app

    def _input_height(self) -> Dimension:
        rows = self._app.output.get_size().rows
        return Dimension(min=1, max=max(min(INPUT_LINES, rows // 3), 1))

    def _compose(self, app: Application[int]) -> None:
        """Compose the lines that still change, each within the width of the terminal."""
        size = app.output.get_size()
        self.printer.width = width = size.columns
        room = max(size.rows - (self._input_height().max + 2), 0)
        waiting = [f"  waits: {harmless(message.text, width)}" for message in self._messages if not message.is_shown]
        if len(waiting) > (most := max(room // 4, 1)):
            waiting = [*waiting[: most - 1], f"  {len(waiting) - most + 1} messages more wait"]
        asked = [tinted(HOW, fg="yellow")] if self._is_asked else []
        rest = max(min(room - len(waiting) - len(asked), WRITTEN_LINES), 0)
        below = self.printer.below(datetime.now(UTC), rest)
        self._lines = [*below, *map(dim, waiting), *asked][:room]

    def _status(self) -> str:
        """Return the last line."""
        if self._interrupts:
            return "Ctrl-C again leaves"
        if self._is_lost:
            return "service away; waiting for it"
        if self._messages:
            seconds = lasted(self._clock.monotonic() - self._since) if self.current else ""
            return f"works {seconds}  Esc interrupts, Enter adds a message"
        return f"{printable(self.session)}  Ctrl-D leaves, Alt-Enter: new line, Ctrl-O: calls in full"
