"""Answers of one agent on its channels, and its other messages to people.

A message to people (`MessageSent`) goes to the address from which the message of its run came. A message without such
a run goes to the conversation in its `route`. An answer that this process does not send is sent by the next one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Literal

from spar.bus.subscriptions import Subscription
from spar.channels.drafts import Draft
from spar.channels.outbox import Outbox
from spar.channels.owed import Owed, OwedAnswers, digest_of
from spar.events import AssistantDelta, MessageSent, RunEnded, RunStarted
from spar.loop.core import Core
from spar.runs.messages.text_blocks import blocks_of
from spar.runs.runs import Runs
from spar.types import replace


class Answers:
    """Sender of messages to people, while the channels are open.

    Args: owed: the answers that people are owed, by run; talks: channel and address by session; outboxes: those of the
    channels, by name.
    """

    def __init__(self, core: Core, runs: Runs, owed: OwedAnswers, talks: Mapping[str, tuple[str, str]],
                 outboxes: Mapping[str, Outbox]) -> None:  # fmt: skip
        self._core, self._runs, self._owed, self._talks, self._outboxes = core, runs, owed, talks, outboxes
        self._subscriptions: list[Subscription] = []
        self._drafts: dict[str, Draft] = {}  # by run
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Begin to send, and send the answers that an earlier process owed."""
        subscribe = self._core.events.subscribe
        self._subscriptions = [subscribe(MessageSent, self._on_message), subscribe(RunEnded, self._on_run_ended)]
        if any(map(_shows_work, self._outboxes.values())):
            self._subscriptions += [subscribe(RunStarted, self._draft_of), subscribe(AssistantDelta, self._on_piece)]
        for owed in self._owed.open():
            await self.settle(owed)

    async def close(self) -> None:
        """Stop sending."""
        for unsubscribe in self._subscriptions:
            unsubscribe()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _outbox_of(self, owed: Owed | None) -> Outbox | None:
        return None if owed is None else self._outboxes.get(owed.channel)

    def _draft_of(self, event: RunStarted | AssistantDelta) -> Draft | None:
        """Return the draft of a run, begun where people see its answer grow or the sign of writing."""
        owed = self._owed.get(event.run_id)
        outbox = self._outbox_of(owed)
        if event.run_id not in self._drafts and owed is not None and outbox is not None and _shows_work(outbox):
            draft = self._drafts[event.run_id] = Draft(owed, self._owed, outbox, self._core)
            self._tasks.add(draft.task)
            draft.task.add_done_callback(self._tasks.discard)
        return self._drafts.get(event.run_id)

    def _on_piece(self, event: AssistantDelta) -> None:
        if (draft := self._draft_of(event)) is not None:
            draft.grow(event)

    def _on_message(self, event: MessageSent) -> None:
        """Send a message to people to its address or conversation."""
        owed = self._owed.get(event.run_id)
        outbox = self._outbox_of(owed)
        if event.kind == "reasoning" and (outbox is None or not outbox.spec.reasoning):
            return
        if owed is not None and event.kind == "verbose":  # equal lines are all sent: each reports another step
            self._deliver(owed, self._core.clock.new_id(), event.text, "note")
        elif owed is not None and event.route in (event.session, owed.session):
            self._answer(owed, event.text, "answer" if event.is_answer else "note", event.part)
        else:
            self._send_to_conversation(event)

    def _answer(self, owed: Owed, text: str, kind: Literal["answer", "note"], part: int = 0) -> None:
        """Send a text of a run to the person who began the run, once; blocks of one answer (`part`) may be equal."""
        digest, outbox = digest_of(text), self._outbox_of(owed)
        if part:
            digest = f"{digest}.{part}"
        if outbox is None or digest in owed.told:
            return
        id, new = f"{owed.run_id}.{digest}", owed.telling(digest)
        if kind == "answer":
            if (draft := self._drafts.get(owed.run_id)) is not None:
                draft.stop(is_taken=True)
                outbox.shown[id] = draft.settled
            new = replace(new, reference="")
        self._deliver(owed, id, text, kind, owed.reference if kind == "answer" else "")
        self._owed.keep(new)

    def _send_to_conversation(self, event: MessageSent) -> None:
        """Send a text to the conversation of its route, if there is one. The answer to a message that came another way
        is not sent."""
        run = self._runs.find(event.run_id)
        if event.is_answer and run is not None and run.message.source == "message":
            return
        if (talk := self._talks.get(event.route)) is not None:
            clock = self._core.clock
            id = f"{event.run_id or clock.new_id()}.{digest_of(event.text)}"
            self._deliver(Owed(event.run_id, *talk, clock.now(), event.route), id, event.text, "note")

    def _deliver(self, to: Owed, id: str, text: str, kind: Literal["answer", "note"], reference: str = "") -> None:
        if (outbox := self._outboxes.get(to.channel)) is not None:
            outbox.deliver(id, to.address, text, kind=kind, reply=to.reply, session=to.session, run_id=to.run_id,
                           reference=reference)  # fmt: skip

    def _on_run_ended(self, event: RunEnded) -> None:
        """Note that a run has ended, so that its sender is owed nothing more."""
        owed = self._owed.get(event.run_id)
        if owed is not None and not owed.is_done:
            run = self._runs.find(event.run_id)
            whole = run.state.into if run is not None else ""
            if event.reply and whole and not _goes_to_same(owed, self._owed.get(whole)):
                self._answer(owed, event.reply, "answer")  # the run that it was merged into answers other people
            self._close(event.run_id)
        if (draft := self._drafts.pop(event.run_id, None)) is not None:
            draft.stop()

    def _close(self, run_id: str) -> None:
        if (owed := self._owed.get(run_id)) is not None:
            self._owed.keep(replace(owed, is_done=True, reply={}))

    async def settle(self, owed: Owed) -> None:
        """Send the answer of a run that has ended, if it was not sent yet."""
        try:
            status = await self._runs.wait(owed.run_id, 0)
        except LookupError:
            self._close(owed.run_id)
            return
        if status.status == "timeout":
            return
        if status.reply and any("." in digest for digest in owed.told):
            self._send_other_blocks(owed, status.reply)
        elif status.reply and not self._was_sent(owed, status.reply):
            self._answer(owed, status.reply, "answer")
        self._close(owed.run_id)

    def _send_other_blocks(self, owed: Owed, reply: str) -> None:
        """Send the blocks of an answer that an earlier process did not send."""
        settings = self._core.settings.runs
        sent_counts = Counter(digest.partition(".")[0] for digest in owed.told)
        part = max(int(digest.partition(".")[2] or 0) for digest in owed.told)
        for text in blocks_of(reply, settings.block_min, settings.block_max):
            if sent_counts[digest_of(text)] > 0:
                sent_counts[digest_of(text)] -= 1
            else:
                part += 1
                self._answer(self._owed.get(owed.run_id) or owed, text, "answer", part)

    def _was_sent(self, owed: Owed, text: str) -> bool:
        """Return whether a text was sent to the same people, perhaps by the run that this one was merged into."""
        digest = digest_of(text)
        return any(digest in other.told for other in self._owed.open() if _goes_to_same(owed, other))


def _shows_work(outbox: Outbox) -> bool:
    """Return whether people see an answer grow, or the sign of writing."""
    return outbox.spec.shows_growth or outbox.channel.limits.typing_every > 0


def _goes_to_same(owed: Owed, other: Owed | None) -> bool:
    """Return whether two answers go to the same address."""
    return other is not None and (owed.channel, owed.address) == (other.channel, other.address)
