"""Answers that people see grow, on channels that can edit their messages, and the sign that the agent writes.

The shown text changes at a bounded rate; then the answer itself replaces it, and is delivered like any other message.
Drafts are optional, so a failure only leaves them out. Where hooks judge the messages to people, no draft is shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

from spar.bus.subscriptions import Subscription
from spar.channels.owed import Owed, OwedAnswers
from spar.channels.supervisor import ChannelSupervisor
from spar.clock import Clock
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
    """Shown part of one run's answer. `is_taken`: the answer comes and replaces it."""

    def __init__(self, owed: Owed, supervisor: ChannelSupervisor, clock: Clock) -> None:
        self.owed, self.supervisor = owed, supervisor
        self.reference = owed.reference  # of the message that an earlier process showed
        self.text, self.shown = "", ""
        self.is_putting = self.is_over = self.is_taken = False
        self.news = Wake(clock)
        self.task: asyncio.Task[None] | None = None

    @property
    def is_silent(self) -> bool:
        """Return whether the answer may still become one that is not sent to people."""
        return SILENT.startswith(self.text.strip()[: len(SILENT)])

    def stop(self) -> None:
        """Show nothing more; `settled` waits for an edit in progress."""
        self.is_over = True
        if self.task is not None and not self.is_putting:
            self.task.cancel()

    async def settled(self) -> str:
        """Return the reference of the shown message, after the last edit has ended."""
        if self.task is not None:
            await asyncio.wait([self.task])
        return self.reference


class Drafts:
    """Growing answers of one agent, with a task for each run of a person on a channel."""

    def __init__(self, core: Core, owed: OwedAnswers, supervisors: Mapping[str, ChannelSupervisor]) -> None:
        self._core, self._owed, self._supervisors = core, owed, supervisors
        self._drafts: dict[str, Draft] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._subscriptions: tuple[Subscription, ...] = ()

    def open(self) -> None:
        """Subscribe to the events, if any channel shows drafts or the sign of writing."""
        limits = [supervisor.spec.channel.limits for supervisor in self._supervisors.values()]
        events = self._core.events
        if any(limit.typing_every or limit.can_edit for limit in limits):
            self._subscriptions = (events.subscribe(RunStarted, self._begun), events.subscribe(RunEnded, self._ended),
                                   events.subscribe(AssistantDelta, self._grown))  # fmt: skip

    async def close(self) -> None:
        """Show nothing more."""
        for unsubscribe in self._subscriptions:
            unsubscribe()
        tasks = {draft.task for draft in self._drafts.values() if draft.task is not None} | self._ending
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._drafts.clear()

    def _begun(self, event: RunStarted) -> None:
        self._draft_of(event.run_id)

    def _draft_of(self, run_id: str) -> Draft | None:
        draft = self._drafts.get(run_id)
        owed = self._owed.get(run_id) if draft is None else None
        if owed is None:
            return draft
        supervisor = self._supervisors.get(owed.channel)
        if supervisor is None:
            return None
        limits = supervisor.spec.channel.limits
        if not limits.typing_every and not (limits.can_edit and supervisor.spec.stream):
            return None
        draft = self._drafts[run_id] = Draft(owed, supervisor, self._core.clock)
        draft.task = asyncio.create_task(self._show(draft), name=f"draft of {run_id}")
        return draft

    def _grown(self, event: AssistantDelta) -> None:
        draft = self._draft_of(event.run_id)
        if draft is None:
            return
        most = draft.supervisor.spec.channel.limits.text
        draft.text = event.text if event.reset else (draft.text + event.text if len(draft.text) < most else draft.text)
        draft.news.set()

    def take(self, run_id: str) -> Draft | None:
        """Return the draft of an answer, which the answer itself will now replace; None when there is none."""
        draft = self._drafts.get(run_id)
        if draft is not None:
            draft.is_taken = True
            draft.stop()
        return draft

    def _ended(self, event: RunEnded) -> None:
        draft = self._drafts.pop(event.run_id, None)
        if draft is not None and draft.task is not None:
            draft.stop()
            if draft.reference and not draft.is_taken:  # no answer will come: the shown text stays
                self._spawn(self._finish(draft))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="end of a draft")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _finish(self, draft: Draft) -> None:
        reference = await draft.settled()
        with suppress(Exception):  # a draft is optional
            await draft.supervisor.edit(reference, _message(draft, draft.shown))

    async def _show(self, draft: Draft) -> None:
        """Show the growing text and the sign of writing."""
        supervisor, limits = draft.supervisor, draft.supervisor.spec.channel.limits
        can_edit = limits.can_edit and supervisor.spec.stream and "message_sending" not in self._core.hooks.used
        while not draft.is_over:
            try:
                if limits.typing_every and not draft.shown:
                    await supervisor.typing(draft.owed.address)
                if can_edit and draft.text.strip() and not draft.is_silent and draft.text != draft.shown:
                    draft.is_putting = True
                    await self._put(draft)
            except Exception:  # a draft is optional; the answer itself is delivered
                return
            finally:
                draft.is_putting = False
            draft.news.clear()
            if draft.is_over:
                return
            every = limits.edit_every if draft.shown else limits.typing_every or limits.edit_every
            if draft.shown or not can_edit:
                await self._core.clock.sleep(every)  # a bounded rate
            if can_edit:
                await draft.news.sleep(None if draft.shown else every)

    async def _put(self, draft: Draft) -> None:
        """Show the present text; the reference of the message is stored with the owed answer."""
        text = draft.text
        most = draft.supervisor.spec.channel.limits.text
        message = _message(draft, text[: max(1, most - len(GROWING))] + GROWING)
        if draft.reference:
            await draft.supervisor.edit(draft.reference, message)
        else:
            draft.reference = await draft.supervisor.send(message)
            owed = self._owed.get(draft.owed.run_id)
            if owed is not None and not owed.is_done and not draft.is_taken:
                self._owed.keep(replace(owed, reference=draft.reference))
        draft.shown = text


def _message(draft: Draft, text: str) -> Outgoing:
    owed, most = draft.owed, draft.supervisor.spec.channel.limits.text
    return Outgoing(f"{owed.run_id}.draft", owed.address, text[:most], "draft", owed.reply, owed.session, owed.run_id)
