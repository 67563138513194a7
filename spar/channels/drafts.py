"""Answers that people see grow, on channels that can change what they have sent, and the sign that the agent writes.

What is shown of an answer is changed at a bounded rate; the answer itself then takes its place, and is delivered as any
other. Nothing here is owed: what fails is left out. Where hooks judge what people are told nothing is shown before they
have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

from spar.bus.subscriptions import Subscription
from spar.channels.owed import Owed, OwedAnswers
from spar.channels.supervisor import ChannelSupervisor
from spar.events import AssistantDelta, RunEnded, RunStarted
from spar.loop.core import Core
from spar.ports.channel import Outgoing
from spar.types import replace

#: Beginnings of an answer that tells people nothing.
SILENT: Final = "NO_REPLY"
#: What stands behind a text that grows.
GROWING: Final = " …"


class Draft:
    """Answer of one run as far as it is shown. `is_taken`: the answer comes and takes its place."""

    def __init__(self, owed: Owed, supervisor: ChannelSupervisor) -> None:
        self.owed, self.supervisor = owed, supervisor
        self.reference = owed.reference  # what an earlier process showed
        self.text, self.shown = "", ""
        self.is_putting = self.is_over = self.is_taken = False
        self.news = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    @property
    def is_silent(self) -> bool:
        """Return whether the answer may yet be one that tells people nothing."""
        return SILENT.startswith(self.text.strip()[: len(SILENT)])

    def stop(self) -> None:
        """Show no more; what is being shown just now is waited for by `settled`."""
        self.is_over = True
        if self.task is not None and not self.is_putting:
            self.task.cancel()

    async def settled(self) -> str:
        """Return the reference of what is shown, once nothing of it is on its way any more."""
        if self.task is not None:
            await asyncio.wait([self.task])
        return self.reference


class Drafts:
    """The growing answers of one agent, a task for each run that somebody on a channel began."""

    def __init__(self, core: Core, owed: OwedAnswers, supervisors: Mapping[str, ChannelSupervisor]) -> None:
        self._core, self._owed, self._supervisors = core, owed, supervisors
        self._drafts: dict[str, Draft] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._subscriptions: tuple[Subscription, ...] = ()

    def open(self) -> None:
        """Listen, if any channel shows what is written."""
        limits = [each.spec.channel.limits for each in self._supervisors.values()]
        events = self._core.events
        if any(each.typing_every or each.can_edit for each in limits):
            self._subscriptions = (events.subscribe(RunStarted, self._begun), events.subscribe(RunEnded, self._ended),
                                   events.subscribe(AssistantDelta, self._grown))  # fmt: skip

    async def close(self) -> None:
        """Show no more."""
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
        draft = self._drafts[run_id] = Draft(owed, supervisor)
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
        """Return what is shown of an answer, which now comes itself; None where nothing is."""
        draft = self._drafts.get(run_id)
        if draft is not None:
            draft.is_taken = True
            draft.stop()
        return draft

    def _ended(self, event: RunEnded) -> None:
        draft = self._drafts.pop(event.run_id, None)
        if draft is not None and draft.task is not None:
            draft.stop()
            if draft.reference and not draft.is_taken:  # it was called off: what was shown stands as it is
                self._spawn(self._finish(draft))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="end of a draft")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _finish(self, draft: Draft) -> None:
        reference = await draft.settled()
        with suppress(Exception):  # it is only shown
            await draft.supervisor.edit(reference, _message(draft, draft.shown))

    async def _show(self, draft: Draft) -> None:
        """Show what is written as it grows, and that something is."""
        supervisor, limits = draft.supervisor, draft.supervisor.spec.channel.limits
        can_edit = limits.can_edit and supervisor.spec.stream and "message_sending" not in self._core.hooks.used
        while not draft.is_over:
            try:
                if limits.typing_every and not draft.shown:
                    await supervisor.typing(draft.owed.address)
                if can_edit and draft.text.strip() and not draft.is_silent and draft.text != draft.shown:
                    draft.is_putting = True
                    await self._put(draft)
            except Exception:  # it is only shown; the answer itself is delivered
                return
            finally:
                draft.is_putting = False
            draft.news.clear()
            if not draft.is_over:
                every = limits.edit_every if draft.shown or not limits.typing_every else limits.typing_every
                await self._rest(draft, every, can_edit=can_edit)

    async def _rest(self, draft: Draft, every: float, *, can_edit: bool) -> None:
        """Wait until there is something to be shown again."""
        if draft.shown:
            await self._core.clock.sleep(every)  # a bounded rate
            await draft.news.wait()
        elif can_edit:
            timer = self._core.clock.call_at(self._core.clock.monotonic() + every, draft.news.set)
            try:
                await draft.news.wait()
            finally:
                timer.cancel()
        else:
            await self._core.clock.sleep(every)

    async def _put(self, draft: Draft) -> None:
        """Show the text as it is now; the reference of what is shown is kept with what is owed."""
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
