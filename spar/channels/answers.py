"""Answers of one agent on its channels, and its other messages to people.

A message to people (`MessageSent`) goes to the address from which the message of its run came. A message without such
a run goes to the conversation in its `route`. An answer that this process does not send is sent by the next one.

A row names the place of each owed answer. It is written before the run of the message, and closed with the last message
about it. So a process that dies between the end of a run and the sending of its answer still owes the answer, and one
that dies later does not send it twice.

On a channel that can edit its messages, people see an answer grow. The shown text changes at a bounded rate; then the
answer itself replaces it, and is delivered like any other message; so is the shown text if no answer comes. The row
says what is shown before it is, so the next process goes on with that message; if nobody has noted which one it is, it
is sent again under its id. Drafts are optional, so a failure only leaves them out. Where hooks judge the messages to
people, no draft is shown.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Container, Mapping
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from typing import Final, Literal

from spar.bus.subscriptions import Subscription
from spar.channels.outbox import Outbox, Owed, OwedAnswers
from spar.clock import Wake
from spar.data.text import comparable
from spar.data.text_blocks import blocks_of
from spar.errors import TransientError
from spar.events import AssistantDelta, MessageSent, RunEnded, RunStarted
from spar.loop.core import Core
from spar.ports.channel import Outgoing
from spar.runs.runs import Runs
from spar.threads import call_off
from spar.types import replace


def digest_of(text: str) -> str:
    """Return the digest of a sent text; texts that say the same have the same digest."""
    return blake2b(comparable(text).encode("utf-8", "replace"), digest_size=6).hexdigest()


class Answers:
    """Sender of messages to people, while the channels are open.

    Args: owed: the answers that people are owed, by run; talks: channel and address by session; outboxes: those of the
    channels, by name.
    """

    def __init__(self, core: Core, runs: Runs, owed: OwedAnswers, talks: Mapping[str, tuple[str, str]],
                 outboxes: Mapping[str, Outbox]) -> None:  # fmt: skip
        self._core, self._runs, self._owed, self._talks, self._outboxes = core, runs, owed, talks, outboxes
        self._subscriptions: list[Subscription] = []
        self._settling = asyncio.Lock()
        #: Digests of the texts that open answers were sent, by address; while answers are settled.
        self._sent: dict[tuple[str, str], set[str]] | None = None
        self._drafts: dict[str, Draft] = {}  # by run
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> None:
        """Begin to send, and send the answers that an earlier process owed."""
        subscribe = self._core.events.subscribe
        self._subscriptions = [subscribe(MessageSent, self.send), subscribe(RunEnded, self._on_run_ended)]
        if any(map(_shows_work, self._outboxes.values())):
            self._subscriptions += [subscribe(RunStarted, self._show), subscribe(AssistantDelta, self._show)]
        await self.settle(*self._owed.open())

    async def close(self) -> None:
        """Stop sending."""
        for unsubscribe in self._subscriptions:
            unsubscribe()
        await call_off(self._tasks)

    def _outbox_of(self, owed: Owed | None) -> Outbox | None:
        return None if owed is None else self._outboxes.get(owed.channel)

    def _show(self, event: RunStarted | AssistantDelta) -> None:
        """Begin or continue the draft of a run where people see its answer grow or the sign of writing."""
        owed, draft = self._owed.get(event.run_id), self._drafts.get(event.run_id)
        outbox = self._outbox_of(owed)
        if draft is None and owed is not None and outbox is not None and _shows_work(outbox):
            draft = self._drafts[event.run_id] = Draft(owed, self._owed, outbox, self._core)
            self._tasks.add(draft.task)
            draft.task.add_done_callback(self._tasks.discard)
        if draft is not None and isinstance(event, AssistantDelta):
            draft.grow(event)

    def send(self, event: MessageSent, id: str = "") -> None:
        """Send a message to people to its address or conversation. Args: id: names a text that may be repeated; a new
        one by default."""
        owed = self._owed.get(event.run_id)
        outbox = self._outbox_of(owed)
        if event.kind == "reasoning" and (outbox is None or not outbox.spec.reasoning):
            return
        if owed is not None and event.kind == "verbose":  # equal lines are all sent: each reports another step
            if outbox is not None:
                self._deliver(outbox, owed, id or self._core.clock.new_id(), event.text, "note")
        elif owed is not None and event.route in (event.session, owed.session):
            self._answer(owed, event.text, "answer" if event.is_answer else "note", event.part)
        else:
            self._send_to_conversation(event, id)

    def _answer(self, owed: Owed, text: str, kind: Literal["answer", "note"], part: int = 0) -> None:
        """Send a text of a run to the person who began the run, once; blocks of one answer (`part`) may be equal."""
        digest, outbox = digest_of(text), self._outbox_of(owed)
        if part:
            digest = f"{digest}.{part}"
        if outbox is None or digest in owed.told:
            return
        id = f"{owed.run_id}.{digest}"
        replaced = ""
        if kind == "answer":
            self._take_draft(outbox, owed, id)
            replaced, owed = owed.reference, replace(owed, reference="", shown="")
        self._deliver(outbox, owed, id, text, kind, replaced)
        self._owed.tell(owed, digest)
        if self._sent is not None:
            self._sent.setdefault(owed.place, set()).add(digest)

    def _take_draft(self, outbox: Outbox, owed: Owed, id: str) -> None:
        """Show nothing more of a run's answer, and have a message replace what is shown. Args: id: of that message."""
        if (draft := self._drafts.get(owed.run_id)) is not None:
            draft.stop()
            outbox.shown[id] = draft.settled
        elif owed.shown and not owed.reference:
            outbox.shown[id] = partial(reference_of, outbox, owed)

    def _send_to_conversation(self, event: MessageSent, id: str) -> None:
        """Send a text to the conversation of its route, if there is one. The answer to a message that came another way
        is not sent."""
        run = self._runs.find(event.run_id)
        if event.is_answer and run is not None and run.message.source == "message":
            return
        channel, address = self._talks.get(event.route, ("", ""))
        if (outbox := self._outboxes.get(channel)) is not None:
            id = f"{event.run_id or id or self._core.clock.new_id()}.{digest_of(event.text)}"
            outbox.deliver(id, address, event.text, session=event.route, run_id=event.run_id)

    @staticmethod
    def _deliver(outbox: Outbox, to: Owed, id: str, text: str, kind: Literal["answer", "note"],
                 reference: str = "") -> None:  # fmt: skip
        outbox.deliver(id, to.address, text, kind=kind, reply=to.reply, session=to.session, run_id=to.run_id,
                       reference=reference)  # fmt: skip

    def _on_run_ended(self, event: RunEnded) -> None:
        run = self._runs.find(event.run_id)
        self.end(event.run_id, event.reply, run.state.into if run is not None else "")

    def end(self, run_id: str, reply: str | None, into: str) -> None:
        """Note that a run has ended, so that its sender is owed nothing more. Args: into: the run it was merged
        into."""
        owed = self._owed.get(run_id)
        if owed is not None and not owed.is_done:
            other = self._owed.get(into)
            if reply and into and (other is None or other.place != owed.place):
                self._answer(owed, reply, "answer")  # the run that it was merged into answers other people
            self._close(run_id)
        if (draft := self._drafts.pop(run_id, None)) is not None:
            draft.stop()

    def _close(self, run_id: str) -> None:
        """Note that nothing more comes about a run; what is shown of an answer that did not come stands."""
        if (owed := self._owed.get(run_id)) is None:
            return
        if owed.shown and (outbox := self._outbox_of(owed)) is not None:
            id = draft_id(owed)
            self._take_draft(outbox, owed, id)
            self._deliver(outbox, owed, id, owed.shown, "note", owed.reference)
        self._owed.keep(replace(owed, is_done=True, reply={}, reference="", shown=""))

    async def settle_ended(self, before: Collection[str]) -> set[str]:
        """Send the answers that nodes have not left here, because they ended first: of runs that had ended at the last
        look already. Return the runs that have ended since. Args: before: those of the last look."""
        ended = {}
        for owed in self._owed.open():
            with suppress(LookupError):  # it is being accepted
                is_elsewhere = self._runs.find(owed.run_id) is None
                if is_elsewhere and (await self._runs.wait(owed.run_id, 0)).status != "timeout":
                    ended[owed.run_id] = owed
        await self.settle(*(owed for run_id, owed in ended.items() if run_id in before))
        return ended.keys() - set(before)

    async def settle(self, *answers: Owed) -> None:
        """Send the answers of runs that have ended, if they were not sent yet."""
        async with self._settling:
            self._sent = {}
            for owed in self._owed.open():
                self._sent.setdefault(owed.place, set()).update(owed.told)
            try:
                for owed in answers:
                    await self._settle(owed, self._sent.setdefault(owed.place, set()))
            finally:
                self._sent = None

    async def _settle(self, owed: Owed, sent: Container[str]) -> None:
        """Send the answer of a run that has ended, unless it was sent to the same address, perhaps by the run that
        this one was merged into."""
        try:
            status = await self._runs.wait(owed.run_id, 0)
        except LookupError:
            self._close(owed.run_id)
            return
        if status.status == "timeout":
            return
        if status.reply and any("." in digest for digest in owed.told):
            self._send_other_blocks(owed, status.reply)
        elif status.reply and digest_of(status.reply) not in sent:
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


def _shows_work(outbox: Outbox) -> bool:
    """Return whether people see an answer grow, or the sign of writing."""
    return outbox.spec.shows_growth or outbox.channel.limits.typing_every > 0


#: Beginning of an answer that is not sent to people.
SILENT: Final = "NO_REPLY"
#: End of a text that still grows.
GROWING: Final = " …"
NEVER: Final = float("inf")


def draft_id(owed: Owed) -> str:
    """Return the id of the message in which an answer grows."""
    return f"{owed.run_id}.draft"


def growing(owed: Owed) -> Outgoing:
    """Return the message that shows an answer grow."""
    return Outgoing(draft_id(owed), owed.address, f"{owed.shown}{GROWING}", "draft", owed.reply, owed.session,
                    owed.run_id)  # fmt: skip


async def reference_of(outbox: Outbox, owed: Owed) -> str:
    """Return the reference of the message in which an answer grows; "" if there is none. One whose reference nobody has
    noted is sent again. Raises: TransientError."""
    if owed.reference or not owed.shown:
        return owed.reference
    try:
        return await outbox.send(growing(owed))
    except TransientError:
        raise
    except Exception:  # anybody may have written the channel; a draft is optional
        return ""


class Draft:
    """Shown part of one run's answer, and the sign of writing before it. `is_over`: the run has ended, or its answer
    comes."""

    def __init__(self, owed: Owed, answers: OwedAnswers, outbox: Outbox, core: Core) -> None:
        self._owed, self._answers, self._outbox, self._clock = owed, answers, outbox, core.clock
        self._limits = outbox.channel.limits
        self._can_edit = outbox.spec.shows_growth and "message_sending" not in core.hooks.used
        self._text = ""
        self._is_putting = self._is_over = False
        self._news = Wake(core.clock)
        self.task = asyncio.create_task(self._show(), name=f"draft of {owed.run_id}")

    def grow(self, event: AssistantDelta) -> None:
        """Add a piece of the answer."""
        if event.reset:
            self._text = event.text
        elif len(self._text) < self._limits.text:
            self._text += event.text
        self._news.set()

    def stop(self) -> None:
        """Show nothing more; `settled` waits for an edit in progress."""
        self._is_over = True
        if not self._is_putting:
            self.task.cancel()

    async def settled(self) -> str:
        """Return the reference of the shown message, after the last edit has ended. Raises: as `reference_of`."""
        await asyncio.wait([self.task])
        return await reference_of(self._outbox, self._owed)

    async def _show(self) -> None:
        """Show the growing text and the sign of writing."""
        try:
            with suppress(Exception):  # a draft is optional; the answer itself is delivered
                await self._follow()
            while not self._is_over:
                await self._news.sleep(None)
        except asyncio.CancelledError:
            if not self._is_over:
                raise

    async def _follow(self) -> None:
        """Show each when it is due: the sign of writing until text is shown, and the changed text at a bounded rate."""
        next_edit = next_sign = self._clock.monotonic()
        while not self._is_over:
            now, every = self._clock.monotonic(), self._limits.typing_every
            if now >= (sign_due := next_sign if every and not self._owed.shown else NEVER):
                await self._outbox.typing(self._owed.address)
                sign_due = next_sign = now + every
            if now >= (edit_due := next_edit if self._is_changed else NEVER):
                await self._put()
                next_edit = now + self._limits.edit_every
                continue
            due = min(sign_due, edit_due)
            await self._news.sleep(due - now if due < NEVER else None)

    @property
    def _visible(self) -> str:
        """Return as much of the text as a message holds."""
        return self._text[: max(1, self._limits.text - len(GROWING))]

    @property
    def _is_changed(self) -> bool:
        """Return whether there is text to show; one that may still become a silent answer is none."""
        is_silent = SILENT.startswith(self._text.strip()[: len(SILENT)])
        return self._can_edit and not is_silent and self._visible != self._owed.shown

    async def _put(self) -> None:
        """Show the present text, once the next process would know that it may be shown."""
        self._is_putting = True
        try:
            self._note(shown=self._visible)
            if self._owed.reference:
                await self._outbox.edit(self._owed.reference, growing(self._owed))
                return
            await self._answers.safe()
            try:
                self._note(reference=await self._outbox.send(growing(self._owed)))
            except Exception:
                self._note(shown="")
                raise
        finally:
            self._is_putting = False

    def _note(self, **changes: str) -> None:
        """Note what is shown, also in the row of the answer until that has come."""
        self._owed = replace(self._owed, **changes)
        owed = self._answers.get(self._owed.run_id)
        if owed is not None and not owed.is_done and not self._is_over:
            self._answers.keep(replace(owed, **changes))
