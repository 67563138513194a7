"""Answers that people see grow, on channels that can edit their messages, and the sign that the agent writes.

The shown text changes at a bounded rate; then the answer itself replaces it, and is delivered like any other message.
Drafts are optional, so a failure only leaves them out. Where hooks judge the messages to people, no draft is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from spar.bus.subscriptions import Subscription
from spar.channels.outbox import Outbox
from spar.channels.owed import Owed, OwedAnswers
from spar.events import AssistantDelta, RunEnded, RunStarted
from spar.loop.core import Core
from spar.loop.wake import Wake
from spar.ports.channel import Outgoing
from spar.types import replace

#: Beginning of an answer that is not sent to people.
SILENT: Final = "NO_REPLY"
#: End of a text that still grows.
GROWING: Final = " …"


class Draft:
    """Shown part of one run's answer, and the sign of writing before it.

    `is_over`: the run has ended, or its answer comes; `is_taken`: the answer comes and replaces it.
    """

    def __init__(self, owed: Owed, answers: OwedAnswers, supervisor: Outbox, core: Core) -> None:
        self._owed, self._answers, self._supervisor, self._clock = owed, answers, supervisor, core.clock
        self._limits = supervisor.spec.channel.limits
        self._can_edit = self._limits.can_edit and supervisor.spec.stream and "message_sending" not in core.hooks.used
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
                await self._supervisor.edit(self._reference, self._message(self._shown))

    async def _follow(self) -> None:
        limits, can_edit = self._limits, self._can_edit
        while not self._is_over:
            if limits.typing_every and not self._shown:
                await self._supervisor.typing(self._owed.address)
            is_silent = SILENT.startswith(self._text.strip()[: len(SILENT)])  # or may still become so
            if can_edit and not is_silent and self._text != self._shown:
                await self._put()
            self._news.clear()
            if self._is_over:
                return
            every = limits.edit_every if self._shown else limits.typing_every or limits.edit_every
            if self._shown or not can_edit:
                await self._clock.sleep(every)  # a bounded rate
            if can_edit:
                await self._news.sleep(None if self._shown else every)

    async def _put(self) -> None:
        """Show the present text; the reference of the message is stored with the owed answer."""
        text, self._is_putting = self._text, True
        message = self._message(text[: max(1, self._limits.text - len(GROWING))] + GROWING)
        try:
            if self._reference:
                await self._supervisor.edit(self._reference, message)
            else:
                self._reference = await self._supervisor.send(message)
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


class Drafts:
    """Growing answers of one agent, with a task for each run of a person on a channel."""

    def __init__(self, core: Core, owed: OwedAnswers, supervisors: Mapping[str, Outbox]) -> None:
        self._core, self._owed, self._supervisors = core, owed, supervisors
        self._drafts: dict[str, Draft] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._subscriptions: tuple[Subscription, ...] = ()

    def open(self) -> None:
        """Subscribe to the events, if any channel shows drafts or the sign of writing."""
        limits = [supervisor.spec.channel.limits for supervisor in self._supervisors.values()]
        events = self._core.events
        if any(limit.typing_every or limit.can_edit for limit in limits):
            self._subscriptions = (
                events.subscribe(RunStarted, self._on_begin),
                events.subscribe(RunEnded, self._on_end),
                events.subscribe(AssistantDelta, self._on_piece),
            )

    async def close(self) -> None:
        """Show nothing more."""
        for unsubscribe in self._subscriptions:
            unsubscribe()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._drafts.clear()

    def take(self, run_id: str) -> Draft | None:
        """Return the draft of an answer, which the answer itself will now replace; None when there is none."""
        draft = self._drafts.get(run_id)
        if draft is not None:
            draft.stop(is_taken=True)
        return draft

    def _on_begin(self, event: RunStarted | AssistantDelta) -> Draft | None:
        """Return the draft of a run, begun where people see its answer grow or the sign of writing."""
        owed = self._owed.get(event.run_id)
        supervisor = self._supervisors.get(owed.channel) if owed is not None else None
        if event.run_id not in self._drafts and owed is not None and supervisor is not None:
            limits = supervisor.spec.channel.limits
            if limits.typing_every or (limits.can_edit and supervisor.spec.stream):
                draft = self._drafts[event.run_id] = Draft(owed, self._owed, supervisor, self._core)
                self._tasks.add(draft.task)
                draft.task.add_done_callback(self._tasks.discard)
        return self._drafts.get(event.run_id)

    def _on_piece(self, event: AssistantDelta) -> None:
        if (draft := self._on_begin(event)) is not None:
            draft.grow(event)

    def _on_end(self, event: RunEnded) -> None:
        if (draft := self._drafts.pop(event.run_id, None)) is not None:
            draft.stop()
