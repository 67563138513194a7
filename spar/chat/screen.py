"""Screen of a conversation: the input stays at the bottom while answers are written above it.

The terminal scrolls as usual: what stands for good is printed once, above the part that prompt_toolkit draws again.
Requests to the service run in threads, so that keys never wait for it.
"""

from __future__ import annotations

import asyncio
import re
import sys
from datetime import UTC, datetime
from typing import Any, Final

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import ANSI
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import BufferControl, Dimension, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.output.vt100 import Vt100_Output

from spar.chat.conversation import HOW, Conversation, OpenMessage
from spar.chat.view import RunView, dim, tinted
from spar.cli.printer import harmless, lasted
from spar.client.client import Client, ServiceError
from spar.data.text import printable
from spar.service import exit_codes as exits

#: Lines of what is written, and of the input, at most.
WRITTEN_LINES, INPUT_LINES = 14, 8
#: Lines and characters of a pasted text above which it is shown as a mark; characters of the texts that stay known for
#: messages of the history, and the form of a mark.
PASTED_LINES, PASTED, MOST_PASTED = 10, 1_000, 1_000_000
MARK: Final = re.compile(r"\[paste (\d+): \d+ lines, \d+ characters\]")
#: Seconds after which Esc is that key and not the beginning of a sequence, also over a slow line.
ESCAPE: Final = 0.1


class Screen(Conversation):
    """Conversation on a terminal whose cursor can be moved."""

    patience = 86_400.0
    printer: RunView

    def __init__(self, client: Client, session: str, mode: str, run_options: dict[str, Any],
                 longest: int | None = None) -> None:  # fmt: skip
        super().__init__(client, session, mode, run_options, RunView())
        self._longest = longest
        self._pasted: dict[str, str] = {}  # by their marks
        self._pastes = 0
        self._lines: list[str] = []
        self._is_asked = False  # the input is the answer to the call that is shown, since it was not begun before
        self._input = Buffer(multiline=True, history=InMemoryHistory(), on_text_changed=self._changed)
        self._app = self._application()
        self.printer.width = self._app.output.get_size().columns

    async def converse(self) -> int:
        clock = asyncio.get_running_loop().create_task(self._tick())
        try:
            return await self._app.run_async(set_exception_handler=False, pre_run=self.draw)
        except EOFError:  # the terminal has gone
            return exits.OK
        finally:
            clock.cancel()

    async def _tick(self) -> None:
        """Draw the seconds of the work in hand."""
        while True:
            await asyncio.sleep(1.0)
            if self.messages:
                self._app.invalidate()

    # -- how it is shown

    def put_note(self, text: str) -> None:
        self.put_text(dim(text))

    def put_text(self, text: str) -> None:
        self.printer.above += text.split("\n")
        self.draw()

    def put_message(self, text: str, *, is_earlier: bool = False) -> None:
        self.printer.put_message(text)
        if is_earlier:
            self._input.history.append_string(text)

    def tell_how(self, text: str) -> None:
        """Show nothing: it stands above the input as long as a call waits."""

    def lose(self, error: ServiceError, message: OpenMessage | None = None) -> None:
        super().lose(error)
        if message is not None and not self._input.text:
            self._input.text = message.text

    def draw(self) -> None:
        """Print the lines that stand for good above the others."""
        self._is_asked &= self._has_question
        if self._app.is_running and self.printer.above:
            text = "".join(f"{line}\n" for line in self.printer.above)
            self.printer.above.clear()
            self._app.renderer.erase()
            self._app.output.write_raw(text)
            self._app.output.flush()
        self._app.invalidate()

    def leave(self, code: int) -> None:
        if self._app.is_running and not self._app.is_done:
            self._app.exit(result=code)

    # -- the input

    @property
    def _has_question(self) -> bool:
        """Return whether a call of the run in hand waits for a decision."""
        return bool(self.current and self.waiting)

    async def ask(self, run_id: str) -> None:
        await super().ask(run_id)
        self._is_asked |= self._has_question and not self._input.text
        self.draw()

    async def answer(self, line: str) -> None:
        await super().answer(line)
        self._is_asked = self._has_question
        self.draw()

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
            self.in_background(self.say, typed, whole)
        elif typed.strip():
            self.in_background(self.answer if is_answer else self.carry_out, typed)

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
        self.interrupts = 0
        if not buffer.text:
            self._is_asked = self._has_question

    def _interrupt(self, event: KeyPressEvent) -> None:
        """Clear the input, or abort the run; leave at the second time."""
        interrupts = self.interrupts + 1
        if interrupts > 1:
            self.leave(exits.INTERRUPTED)
        elif self._input.text:
            self._input.reset()
        else:
            self._abort()
        self.interrupts = interrupts

    def _abort(self) -> None:
        if self.current:
            self.note("calling it off; Ctrl-C again leaves")
            self.abort()

    def _unfold(self, event: KeyPressEvent) -> None:
        self.printer.unfold()
        self.draw()

    def _end_of_input(self, event: KeyPressEvent) -> None:
        """Leave, if nothing is typed."""
        if self._input.text:
            self._input.delete()
        else:
            self.in_background(self.carry_out, "/quit")

    # -- the layout

    def _application(self) -> Application[int]:
        keys = KeyBindings()
        keys.add("enter")(self._enter)
        keys.add("c-j")(lambda event: self._input.newline(copy_margin=False))
        keys.add("escape", "enter")(lambda event: self._input.newline(copy_margin=False))
        keys.add("escape")(lambda event: self._abort())
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
        waiting = [f"  waits: {harmless(message.text, width)}" for message in self.messages if not message.is_shown]
        if len(waiting) > (most := max(room // 4, 1)):
            waiting = [*waiting[: most - 1], f"  {len(waiting) - most + 1} messages more wait"]
        asked = [tinted(HOW, fg="yellow")] if self._is_asked else []
        rest = max(min(room - len(waiting) - len(asked), WRITTEN_LINES), 0)
        below = self.printer.below(datetime.now(UTC), rest)
        self._lines = [*below, *map(dim, waiting), *asked][:room]

    def _status(self) -> str:
        """Return the last line."""
        if self.interrupts:
            return "Ctrl-C again leaves"
        if self.is_lost:
            return "service away; waiting for it"
        if self.messages:
            seconds = lasted(self.clock.monotonic() - self.since) if self.current else ""
            return f"works {seconds}  Esc interrupts, Enter adds a message"
        return f"{printable(self.session)}  Ctrl-D leaves, Alt-Enter: new line, Ctrl-O: calls in full"
