"""The conversations of one agent on its channels: what is received becomes runs, what people are told is sent.

A message is accepted once it, its run and where the answer goes are on disk; its id is its idempotency key, so that the
other side may deliver it again. What the agent tells people (`MessageSent`) goes where the message of the run came
from; what belongs to no such run goes to the conversation that is named as its route.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from spar.bus.subscriptions import Subscription
from spar.channels.deliveries import Deliveries, Delivery
from spar.channels.drafts import Drafts
from spar.channels.messages import check_message, session_of, short_digest
from spar.channels.owed import Owed, OwedAnswers, digest_of
from spar.channels.supervisor import ChannelSupervisor
from spar.errors import ConfigError, InboxFullError, SparError
from spar.events import MessageSent, RunEnded
from spar.loop.core import Core
from spar.ports.channel import (
    Accepted,
    ChannelContext,
    ChannelSpec,
    Incoming,
)
from spar.protocols import Home, ModuleRows
from spar.records.senders import Admission
from spar.records.session import Origin
from spar.runs.messages.text_blocks import blocks_of
from spar.runs.run import Receipt, Run
from spar.runs.runs import Runs
from spar.types import Perception, replace

#: The owner of the rows.
OWNER: Final = "channels"


class KnowsSenders(Protocol):
    """Table of who is who."""

    async def meet(self, channel: str, address: str, *, is_verified: bool = True) -> Admission: ...
    def knows(self, channel: str, address: str) -> bool: ...


class HasRows(Protocol):
    """The state of an agent, as far as channels need it."""

    @property
    def journal(self) -> Any: ...
    def rows_of(self, name: str) -> ModuleRows | None: ...


class Submit(Protocol):
    """Submission of a message, with where it came from."""

    def __call__(self, message: Perception, session: str, mode: str | None, key: str | None, /, *,
                 origin: Origin | None = None) -> Awaitable[Receipt]: ...  # fmt: skip


class Channels:
    """The channels of one agent. Without any, nothing listens and nothing is kept."""

    __slots__ = ("_core", "_deliveries", "_drafts", "_home", "_owed", "_runs", "_senders", "_specs", "_state",
                 "_submit", "_subscriptions", "_talks", "supervisors")  # fmt: skip

    def __init__(self, core: Core, runs: Runs, state: HasRows, senders: KnowsSenders, submit: Submit,
                 home: Home | None) -> None:  # fmt: skip
        self._core, self._runs, self._state = core, runs, state
        self._senders, self._submit, self._home = senders, submit, home
        self._specs: tuple[ChannelSpec, ...] = ()
        self._subscriptions: tuple[Subscription, ...] = ()
        self._owed = OwedAnswers(None)
        self._talks: dict[str, tuple[str, str]] = {}  # channel and address by session
        self._drafts: Drafts | None = None
        self.supervisors: dict[str, ChannelSupervisor] = {}

    def take(self, specs: Sequence[ChannelSpec]) -> None:
        """Have these channels from the next start on. Raises: ConfigError for two of one name."""
        names = [spec.name for spec in specs]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"channels must differ in name, found {twice[0]!r} twice", path=("channels",))
        self._specs = tuple(specs)

    # -- life

    async def open(self) -> None:
        """Take up what an earlier process left, and begin to receive and to send. Raises: what the store raises."""
        if not self._specs or self.supervisors:
            return
        rows = self._state.rows_of(OWNER)
        kept: Mapping[str, Any] = {} if rows is None else await rows.list()
        self._owed = OwedAnswers(rows)
        self._owed.restore((value for key, value in kept.items() if key.startswith("run/")), self._core.clock.now())
        self._talks = {key[5:]: (value[0], value[1]) for key, value in kept.items() if key.startswith("talk/")}
        self.supervisors = {spec.name: self._made(spec, rows) for spec in self._specs}
        self._restore(value for key, value in kept.items() if key.startswith("out/"))
        events = self._core.events
        self._subscriptions = (events.subscribe(MessageSent, self._told), events.subscribe(RunEnded, self._ended))
        self._drafts = Drafts(self._core, self._owed, self.supervisors)
        self._drafts.open()
        await self._catch_up()
        for supervisor in self.supervisors.values():
            supervisor.start()

    def _restore(self, values: Iterable[Any]) -> None:
        """Have what waits on disk sent, oldest first; what is for a channel that is not there now stays on disk."""
        homeless: Counter[str] = Counter()
        deliveries = [msgspec.convert(value, Delivery) for value in values]
        for delivery in sorted(deliveries, key=lambda each: (each.at, each.id)):
            if (supervisor := self.supervisors.get(delivery.channel)) is not None:
                supervisor.deliveries.restore(delivery)
            else:
                homeless[delivery.channel] += 1
        for channel, number in homeless.items():
            self._core.log.warning("messages wait for a channel that is not configured", agent=self._core.name,
                                   channel=channel, number=number)  # fmt: skip

    def _made(self, spec: ChannelSpec, rows: Any) -> ChannelSupervisor:
        own = self._state.rows_of(f"{OWNER}.{spec.name}")
        context = ChannelContext(spec.name, self._core.clock, partial(self.accept, spec), rows=own, home=self._home,
                                 hears=partial(self._senders.knows, spec.name))  # fmt: skip
        return ChannelSupervisor(spec, self._core, Deliveries(rows), context, self._sent)

    async def _sent(self) -> None:
        """Return once it is on disk what was sent."""
        if (journal := self._state.journal) is not None:
            with suppress(SparError):  # it is being closed, or cannot write now: what was sent may be sent again
                await journal.safe()

    async def close(self) -> None:
        """End receiving and sending; what was not sent waits on disk."""
        for unsubscribe in self._subscriptions:
            unsubscribe()
        if self._drafts is not None:
            await self._drafts.close()
        await asyncio.gather(*(supervisor.close() for supervisor in self.supervisors.values()))
        self._subscriptions, self._drafts, self.supervisors = (), None, {}

    def snapshot(self) -> dict[str, Any]:
        """Return how each channel is doing, JSON-able; from any thread."""
        return {name: supervisor.snapshot() for name, supervisor in list(self.supervisors.items())}

    # -- receiving

    async def accept(self, spec: ChannelSpec, message: Incoming) -> Accepted:
        """Take a message in: when this returns it is on disk, or is not to be heard.

        Raises: InboxFullError, NoRoomError, NotReadyError, LifecycleError while nothing can be taken.
        """
        supervisor = self.supervisors[spec.name]
        try:
            accepted = await self._accept(spec, message, supervisor)
        except (ValueError, PermissionError) as error:  # that it is offered again would change nothing
            accepted = Accepted("refused", reason=str(error))
        supervisor.counts[accepted.status] += 1
        return accepted

    async def _accept(self, spec: ChannelSpec, message: Incoming, supervisor: ChannelSupervisor) -> Accepted:
        check_message(message)
        admission = await self._senders.meet(spec.name, message.sender or message.address,
                                             is_verified=message.is_verified)  # fmt: skip
        if not admission.is_allowed:
            if admission.answer:
                self._deliver(supervisor, admission.answer, message.address, "note", reply=message.reply)
            return Accepted("refused", reason=f"its sender is {admission.verdict}")
        if message.refusal:  # told again after a crash it has the same id
            id = f"refusal.{short_digest(message.id)}"
            self._deliver(supervisor, message.refusal, message.address, "note", id, message.reply)
            return Accepted("refused", reason=message.refusal)
        if supervisor.deliveries.is_full:
            raise InboxFullError(f"channel {spec.name!r} has too many messages to send; try again later")
        key = f"channel:{spec.name}:{short_digest(message.id)}"
        session = session_of(spec, message)
        attributes = {**message.attributes, "channel": spec.name, "address": message.address,
                      "person": admission.person}  # fmt: skip
        perception = Perception(message.text, source=spec.name, kind="message", session=session, trust=admission.trust,
                                attributes=attributes)  # fmt: skip
        origin = Origin("channel", spec.name, message.address[:200], admission.person[:200])
        receipt = await self._submit(perception, session, spec.mode, key, origin=origin)
        if self._owed.get(receipt.run_id) is not None:
            return Accepted("known", receipt.run_id)
        owed = Owed(receipt.run_id, spec.name, message.address, self._core.clock.now(), session, message.reply)
        self._owed.keep(owed)
        self._talk(session, spec.name, message.address)
        await self._settle(owed)  # a process that died right after it had accepted the run may have left it answered
        if (journal := self._state.journal) is not None:
            await journal.safe()
        return Accepted("accepted", receipt.run_id)

    def _talk(self, session: str, channel: str, address: str) -> None:
        """Note with whom a session talks."""
        if self._talks.get(session) != (channel, address):
            self._talks[session] = (channel, address)
            if (rows := self._state.rows_of(OWNER)) is not None:
                rows.keep(f"talk/{session}", [channel, address])

    async def forget(self, session: str) -> None:
        """Forget with whom a session talked and what was told there; what waits to be sent is sent, and forgotten then.

        Raises: what the store raises.
        """
        self._talks.pop(session, None)
        self._owed.forget(session)
        waiting: set[str] = set()
        for supervisor in self.supervisors.values():
            supervisor.deliveries.forget(session)
            waiting.update(supervisor.deliveries.items)
        if (rows := self._state.rows_of(OWNER)) is None:
            return
        for key, value in (await rows.list()).items():
            kind, _, id = key.partition("/")
            of = id if kind == "talk" else value["session"]
            if of == session and not (kind == "out" and id in waiting):
                rows.drop(key)

    # -- sending

    def _told(self, event: MessageSent) -> None:
        """People are told something: send it to where it belongs."""
        owed = self._owed.get(event.run_id)
        if event.kind == "reasoning" and not self._asks_for_thoughts(owed):
            return
        if owed is None:
            self._tell_conversation(event)
        elif event.kind == "verbose":  # the same line twice says that the same was done twice
            if (supervisor := self.supervisors.get(owed.channel)) is not None:
                self._deliver(supervisor, event.text, owed.address, "note", "", owed.reply, owed.session, owed.run_id)
        elif event.route in (event.session, owed.session):
            self._answer(owed, event.text, "answer" if event.is_answer else "note", event.part)
        else:
            self._tell_conversation(event)

    def _asks_for_thoughts(self, owed: Owed | None) -> bool:
        supervisor = self.supervisors.get(owed.channel) if owed is not None else None
        return supervisor is not None and supervisor.spec.reasoning

    def wants_blocks(self, run: Run) -> bool:
        """Return whether the answer of a run is to be told in blocks: not where people see it grow."""
        owed = self._owed.get(run.id)
        supervisor = self.supervisors.get(owed.channel) if owed is not None else None
        return supervisor is None or not (supervisor.spec.channel.limits.can_edit and supervisor.spec.stream)

    def _answer(self, owed: Owed, text: str, kind: Any, part: int = 0) -> None:
        """Send a text of a run to who began it, once; blocks of one answer (`part`) may say the same."""
        digest, supervisor = digest_of(text), self.supervisors.get(owed.channel)
        if part:
            digest = f"{digest}.{part}"
        if supervisor is None or digest in owed.told:
            return
        is_answer = kind == "answer"
        draft = self._drafts.take(owed.run_id) if is_answer and self._drafts is not None else None
        reference = owed.reference if is_answer else ""
        self._owed.keep(replace(owed.telling(digest), reference="" if is_answer else owed.reference))
        id = f"{owed.run_id}.{digest}"
        if draft is not None:
            supervisor.shown[id] = draft.settled
        self._deliver(supervisor, text, owed.address, kind, id, owed.reply, owed.session, owed.run_id, reference)

    def _tell_conversation(self, event: MessageSent) -> None:
        """Send a text by its route, if that is a conversation; the answer to a message of another door is not."""
        talk = self._talks.get(event.route)
        run = self._runs.find(event.run_id)
        if talk is None or (event.is_answer and run is not None and run.message.source == "message"):
            return
        if (supervisor := self.supervisors.get(talk[0])) is not None:
            id = f"{event.run_id or self._core.clock.new_id()}.{digest_of(event.text)}"
            self._deliver(supervisor, event.text, talk[1], "note", id, {}, event.route, event.run_id)

    def _deliver(self, supervisor: ChannelSupervisor, text: str, address: str, kind: Any, id: str = "",
                 reply: dict[str, Any] | None = None, session: str = "", run_id: str = "",
                 reference: str = "") -> None:  # fmt: skip
        clock = self._core.clock
        delivery = Delivery(id or clock.new_id(), supervisor.spec.name, address, text, clock.now(), kind, reply or {},
                            session, run_id, reference=reference)  # fmt: skip
        if supervisor.deliveries.add(delivery):
            supervisor.wake()

    def _ended(self, event: RunEnded) -> None:
        """A run has ended: who began it is owed nothing more."""
        owed = self._owed.get(event.run_id)
        if owed is None or owed.is_done:
            return
        run = self._runs.find(event.run_id)
        whole = self._owed.get(run.into.id) if run is not None and run.into is not None else None
        if event.reply and run is not None and run.into is not None and not _is_same(owed, whole):
            self._answer(owed, event.reply, "answer")  # what it became a part of was answered to somebody else
        self._close(event.run_id)

    def _close(self, run_id: str) -> None:
        owed = self._owed.get(run_id)
        if owed is not None:
            self._owed.keep(replace(owed, is_done=True, reply={}))

    async def _catch_up(self) -> None:
        """Tell what an earlier process owed and did not come to."""
        for owed in self._owed.open():
            await self._settle(owed)

    async def _settle(self, owed: Owed) -> None:
        """Tell how a run has ended, if it has, and if nobody was told."""
        try:
            status = await self._runs.wait(owed.run_id, 0)
        except LookupError:
            self._close(owed.run_id)
            return
        if status.status == "timeout":
            return
        if status.reply and any("." in digest for digest in owed.told):
            self._tell_other_blocks(owed, status.reply)
        elif status.reply and not self._was_told(owed, status.reply):
            self._answer(owed, status.reply, "answer")
        self._close(owed.run_id)

    def _tell_other_blocks(self, owed: Owed, reply: str) -> None:
        """Send the blocks of an answer that an earlier process did not come to."""
        settings = self._core.settings.runs
        told = Counter(digest.partition(".")[0] for digest in owed.told)
        part = max(int(digest.partition(".")[2] or 0) for digest in owed.told)
        for text in blocks_of(reply, settings.block_min, settings.block_max):
            if told[digest_of(text)] > 0:
                told[digest_of(text)] -= 1
            else:
                part += 1
                self._answer(self._owed.get(owed.run_id) or owed, text, "answer", part)

    def _was_told(self, owed: Owed, text: str) -> bool:
        """Return whether somebody was told a text, perhaps by another run that this one became a part of."""
        digest = digest_of(text)
        return any(digest in each.told for each in self._owed.open() if _is_same(owed, each))

    # -- what could not be delivered

    def undelivered(self) -> list[Delivery]:
        """Return the messages that were put aside, and those that were tried in vain so far; from any thread."""
        found: list[Delivery] = []
        for supervisor in list(self.supervisors.values()):
            found += list(supervisor.deliveries.failed.values())
            found += [each for each in list(supervisor.deliveries.items.values()) if each.attempts]
        return found

    def retry(self, id: str) -> Delivery:
        """Have a message tried again that was put aside. Raises: LookupError."""
        supervisor = self._of(id)
        delivery = supervisor.deliveries.retry(id)
        supervisor.wake()
        return delivery

    def drop(self, id: str) -> Delivery:
        """Forget a message that was put aside. Raises: LookupError."""
        return self._of(id).deliveries.drop(id)

    def _of(self, id: str) -> ChannelSupervisor:
        for supervisor in self.supervisors.values():
            if id in supervisor.deliveries.failed:
                return supervisor
        raise LookupError(f"no message {id!r:.100} was put aside; spar channels failed")


def _is_same(owed: Owed, other: Owed | None) -> bool:
    """Return whether two answers go to the same people."""
    return other is not None and (owed.channel, owed.address) == (other.channel, other.address)
