"""Answer that people see grow, on a channel that can edit its messages, and the sign that the agent writes.

The shown text changes at a bounded rate; then the answer itself replaces it, and is delivered like any other message.
Drafts are optional, so a failure only leaves them out. Where hooks judge the messages to people, no draft is shown.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from spar.channels.outbox import Outbox
from spar.channels.owed import Owed, OwedAnswers
from spar.events import AssistantDelta
from spar.loop.core import Core
from spar.loop.wake import Wake
from spar.ports.channel import Outgoing
from spar.types import replace

#: Beginning of an answer that is not sent to people.
SILENT: Final = "NO_REPLY"
#: End of a text that still grows.
GROWING: Final = " …"
NEVER: Final = float("inf")


class Draft:
    """Shown part of one run's answer, and the sign of writing before it.

    `is_over`: the run has ended, or its answer comes; `is_taken`: the answer comes and replaces it.
    """

    def __init__(self, owed: Owed, answers: OwedAnswers, outbox: Outbox, core: Core) -> None:
        self._owed, self._answers, self._outbox, self._clock = owed, answers, outbox, core.clock
        self._limits = outbox.channel.limits
        self._can_edit = outbox.spec.shows_growth and "message_sending" not in core.hooks.used
        self._reference = owed.reference  # of the message that an earlier process showed
        self._text, self._shown = "", ""
        self._is_putting = self._is_over = self._is_taken = False
        self._news = Wake(core.clock)
        self.task = asyncio.create_task(self._show(), name=f"draft of {owed.run_id}")

    def grow(self, event: AssistantDelta) -> None:
        """Add a piece of the answer."""
        if event.reset:
            self._text = event.text
        elif len(self._text) < self._limits.text:
            self._text += event.text
        self._news.set()

    def stop(self, *, is_taken: bool = False) -> None:
        """Show nothing more; `settled` waits for an edit in progress."""
        self._is_over, self._is_taken = True, self._is_taken or is_taken
        if not self._is_putting:
            self.task.cancel()

    async def settled(self) -> str:
        """Return the reference of the shown message, after the last edit has ended."""
        await asyncio.wait([self.task])
        return self._reference

    async def _show(self) -> None:
        """Show the growing text and the sign of writing. If no answer comes, the shown text stays."""
        try:
            with suppress(Exception):  # a draft is optional; the answer itself is delivered
                await self._follow()
            while not self._is_over:
                await self._news.sleep(None)
        except asyncio.CancelledError:
            if not self._is_over:
                raise
        if self._shown and not self._is_taken:
            with suppress(Exception):
                await self._outbox.edit(self._reference, self._message(self._shown))

    async def _follow(self) -> None:
        """Show each when it is due: the sign of writing until text is shown, and the changed text at a bounded rate."""
        next_edit = next_sign = self._clock.monotonic()
        while not self._is_over:
            now, every = self._clock.monotonic(), self._limits.typing_every
            if now >= (sign_due := next_sign if every and not self._shown else NEVER):
                await self._outbox.typing(self._owed.address)
                sign_due = next_sign = now + every
            if now >= (edit_due := next_edit if self._is_changed else NEVER):
                await self._put()
                next_edit = now + self._limits.edit_every
                continue
            due = min(sign_due, edit_due)
            await self._news.sleep(due - now if due < NEVER else None)

    @property
    def _is_changed(self) -> bool:
        """Return whether there is text to show; one that may still become a silent answer is none."""
        is_silent = SILENT.startswith(self._text.strip()[: len(SILENT)])
        return self._can_edit and not is_silent and self._text != self._shown

    async def _put(self) -> None:
        """Show the present text; the reference of the message is stored with the owed answer."""
        text, self._is_putting = self._text, True
        message = self._message(text[: max(1, self._limits.text - len(GROWING))] + GROWING)
        try:
            if self._reference:
                await self._outbox.edit(self._reference, message)
            else:
                self._reference = await self._outbox.send(message)
                owed = self._answers.get(self._owed.run_id)
                if owed is not None and not owed.is_done and not self._is_taken:
                    self._answers.keep(replace(owed, reference=self._reference))
        finally:
            self._is_putting = False
        self._shown = text

    def _message(self, text: str) -> Outgoing:
        owed = self._owed
        return Outgoing(f"{owed.run_id}.draft", owed.address, text[: self._limits.text], "draft", owed.reply,
                        owed.session, owed.run_id)  # fmt: skip
