"""Conversations of one agent on its channels: received messages become runs.

A message is accepted once the address of the answer, the message and its run are on disk. Its id is its idempotency
key, so the other side may deliver it again. `spar.channels.answers` sends the answers.

Of several nodes that run an agent one has the channels: the owner of the session `OWNER`. The others leave to it what
people are to be sent, and ask it about the channels.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

import msgspec

from spar.attaching import Attaching, Services
from spar.channels.answers import Answers
from spar.channels.outbox import MOST_WAITING, Outbox, Owed, OwedAnswers, TurnRows, read_rows, restore
from spar.channels.senders import Senders
from spar.errors import ConfigError, InboxFullError, NotReadyError, TransientError
from spar.ports.channel import (
    LONGEST_ADDRESS,
    LONGEST_ID,
    LONGEST_TEXT,
    Accepted,
    ChannelContext,
    ChannelSpec,
    Incoming,
)  # fmt: skip
from spar.records.senders import CHANNELS, ChannelState, Delivery, Direction
from spar.records.session import Origin
from spar.types import Perception

if TYPE_CHECKING:
    from spar.channels.forwarding import Forwarding
    from spar.ports.channel import Notice

#: Owner of the rows.
OWNER: Final = CHANNELS
#: Characters of a session's name.
LONGEST_SESSION: Final = 256
#: Bytes of the data that a message gets back with its answer.
LARGEST_REPLY: Final = 16_384
#: Sessions whose address is kept: as many as a memory keeps sessions. Its retention deletes sessions without a word.
MOST_TALKS: Final = 100_000


class Talks(dict[str, tuple[str, str]]):
    """Channel and address of the conversation of each session, the last used last; at most `most`."""

    def note(self, session: str, talk: tuple[str, str], rows: TurnRows, most: int = MOST_TALKS) -> None:
        """Note the address of a message; one session too many drops the one that is unused for longest."""
        is_known = self.pop(session, None) == talk
        self[session] = talk
        if not is_known:
            rows.keep(f"talk/{session}", talk)
        while len(self) > most:
            oldest = next(iter(self))
            del self[oldest]
            rows.drop(f"talk/{oldest}")


class Channels:
    """Channels of one agent. Without any, nothing is received and nothing is stored.

    Raises: ConfigError for two of one name.
    """

    def __init__(self, specs: Sequence[ChannelSpec], services: Services, senders: Senders) -> None:
        names = [spec.name for spec in specs]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"channels must differ in name, found {twice[0]!r} twice", path=("channels",))
        self._specs, self._services, self._senders = tuple(specs), services, senders
        self.core, self._submit = services.core, services.submit
        self.answers: Answers | None = None
        self._forwarding: Forwarding | None = None  # None if no other node runs the agent
        self._taking: asyncio.Task[None] | None = None
        self._is_here = False
        self.supervisors: dict[str, Outbox] = {}
        #: The outboxes of the notifiers of the service that runs the agent.
        self.notifiers: Mapping[str, Outbox] = {}
        self._rows, self._talks = TurnRows(None), Talks()
        self._owed = OwedAnswers(self._rows, (), self.core.clock.now())

    # -- life

    async def open(self) -> None:
        """Begin to receive and to send, where the channels are. Raises: the errors of the store."""
        shared, services = self.core.shared, self._services
        if shared is not None and (self._specs or self.notifiers):
            from spar.channels.forwarding import Forwarding

            rows = TurnRows(services.rows(f"{OWNER}.forwarded"))
            self._forwarding = Forwarding(self.core, services.runs, self._specs, rows, lambda: self._is_here)
            shared.on_request(OWNER, self.do)
            await shared.hold(OWNER, self)
        elif shared is None:
            await self.begin()

    async def begin(self) -> None:
        """Load the rows of an earlier process, and begin to receive and to send. Raises: the errors of the store."""
        if self._is_here or not (self._specs or self._forwarding is not None):
            return
        try:
            await self._begin()
        finally:
            if not self._is_here:  # it failed, or the session was lost meanwhile
                await self.end()

    async def _begin(self) -> None:
        rows = TurnRows(self._services.rows(OWNER))
        stored = await rows.list()
        if self._forwarding is not None:
            await self._senders.read()  # people may have decided at another node
        self._rows, self._owed = rows, OwedAnswers(rows, read_rows(stored, "run/", Owed), self.core.clock.now())
        self._talks = Talks({key[5:]: (value[0], value[1]) for key, value in stored.items() if key.startswith("talk/")})
        self.supervisors = {spec.name: self._supervisor_of(spec) for spec in self._specs}
        homeless = Counter(delivery.channel for delivery in restore(self.supervisors, stored))
        for channel, number in homeless.items():  # they stay on disk
            self.core.log.warning("messages wait for a channel that is not configured", agent=self.core.name,
                                   channel=channel, number=number)  # fmt: skip
        self.answers = Answers(self.core, self._services.runs, self._owed, self._talks, self.supervisors)
        self._is_here = self.core.has(OWNER)
        await self.answers.open()
        if not self._is_here:
            return
        for supervisor in self.supervisors.values():
            supervisor.start()
        if self._forwarding is not None:
            taking = self._forwarding.take(self.answers, self.notifiers)
            self._taking = asyncio.create_task(taking, name="messages of nodes")

    def _supervisor_of(self, spec: ChannelSpec) -> Outbox:
        channel_rows = self._services.rows(f"{OWNER}.{spec.name}")
        context = ChannelContext(spec.name, self.core.clock, partial(self.accept, spec), rows=channel_rows,
                                 home=self._services.home, hears=partial(self._senders.knows, spec.name))  # fmt: skip
        return Outbox(spec, self.core, self._rows, context)

    async def end(self) -> None:
        """Stop receiving and sending; unsent messages wait on disk."""
        self._is_here = False
        if self._taking is not None:
            self._taking.cancel()
        if self.answers is not None:
            await self.answers.close()
        if self._taking is not None:
            await asyncio.wait([self._taking])
        await asyncio.gather(*(supervisor.close() for supervisor in self.supervisors.values()))
        for supervisor in self.supervisors.values() if self._forwarding is not None else ():
            supervisor.leave()
        self._rows.write()
        self._taking, self.answers, self.supervisors = None, None, {}

    def lose(self) -> None:
        """Stop at once, and store nothing more: what is written later is written under no lease."""
        self._is_here = False
        self._rows.void()
        for supervisor in self.supervisors.values():
            supervisor.cut()

    def forward(self, to: str, notice: Notice) -> None:
        """Leave a notice for a notifier to the node that has the channels."""
        from spar.channels.forwarding import Forwarded

        if self._forwarding is not None:
            self._forwarding.put(Forwarded(to=to, notice=notice))

    async def close(self) -> None:
        """Stop receiving and sending, and leave nothing to other nodes any more."""
        await self.end()
        if self._forwarding is not None:
            self._forwarding.close()
            self._forwarding = None

    def snapshot(self, *, has_report: bool = True) -> dict[str, Any]:
        """Return the state of each channel, JSON-able. It may be called from any thread. Args: as `Outbox.snapshot`."""
        if self.is_elsewhere:
            state = msgspec.to_builtins(ChannelState(Direction("elsewhere"), Direction("elsewhere"), 0, 0))
            return {spec.name: state for spec in self._specs}
        return {name: supervisor.snapshot(has_report=has_report) for name, supervisor in list(self.supervisors.items())}

    async def ask(self, work: str, **given: str) -> Any:
        """Have the node with the channels do a work (`do`); return its result, as plain values if that is another node.

        Raises: as the methods that do it; SparError if no node does it.
        """
        if self.is_elsewhere and self.core.shared is not None:
            return await self.core.shared.ask(OWNER, OWNER, work=work, **given)
        return await self.do(work, **given)

    async def do(self, work: str, **given: str) -> Any:
        """Do on this node what is asked of the channels, for people and other nodes. Raises: as `ask`."""
        if self.is_elsewhere:
            raise TransientError("the channels begin on this node just now; try again")
        works: dict[str, Callable[..., Any]] = {
            "list": partial(self.snapshot, has_report=False),
            "notifiers": lambda: [outbox.snapshot() for outbox in self.notifiers.values()],
            "failed": self.undelivered, "test": self.test, "forget": self.forget_here,
            "retry": lambda id: self.holder_of(id).retry(id), "drop": lambda id: self.holder_of(id).drop(id),
        }  # fmt: skip
        result = works[work](**given)
        return await result if asyncio.iscoroutine(result) else result

    @property
    def is_elsewhere(self) -> bool:
        """Return whether another node has the channels."""
        return self._forwarding is not None and not self._is_here

    @property
    def outboxes(self) -> list[Outbox]:
        """Return the outboxes of the channels and of the notifiers."""
        return [*self.supervisors.values(), *self.notifiers.values()]

    # -- receiving

    async def accept(self, spec: ChannelSpec, message: Incoming) -> Accepted:
        """Accept or refuse a message: when this returns, an accepted one is on disk.

        Raises: InboxFullError, NoRoomError, NotReadyError, LifecycleError while no message can be accepted.
        """
        if (supervisor := self.supervisors.get(spec.name)) is None:
            raise NotReadyError(f"channel {spec.name!r} is closed")
        try:
            accepted = await self._accept(spec, message, supervisor)
        except (ValueError, PermissionError) as error:  # offering it again would not help
            accepted = Accepted("refused", reason=str(error))
        supervisor.counts[accepted.status] += 1
        return accepted

    async def _accept(self, spec: ChannelSpec, message: Incoming, supervisor: Outbox) -> Accepted:
        check_message(message)
        admission = await self._senders.meet(spec.name, message.sender or message.address,
                                             is_verified=message.is_verified)  # fmt: skip
        refuse = partial(supervisor.deliver, address=message.address, reply=message.reply)
        if not admission.is_allowed:
            if admission.answer:
                refuse(self.core.clock.new_id(), text=admission.answer)
            return Accepted("refused", reason=f"its sender is {admission.verdict}")
        if message.refusal:  # the id is the same if it is sent again after a crash
            refuse(f"refusal.{short_digest(message.id)}", text=message.refusal)
            return Accepted("refused", reason=message.refusal)
        if len(supervisor.items) >= MOST_WAITING:
            raise InboxFullError(f"channel {spec.name!r} has too many messages to send; try again later")
        key = f"channel:{spec.name}:{short_digest(message.id)}"
        session = session_of(spec, message)
        attributes = {**message.attributes, "channel": spec.name, "address": message.address,
                      "person": admission.person}  # fmt: skip
        perception = Perception(message.text, source=spec.name, kind="message", session=session, trust=admission.trust,
                                attributes=attributes)  # fmt: skip
        origin = Origin("channel", spec.name, message.address[:200], admission.person[:200])
        new_id = ""

        def owe(run_id: str) -> None:
            nonlocal new_id
            new_id = run_id
            owed = Owed(run_id, spec.name, message.address, self.core.clock.now(), session, message.reply)
            self._owed.keep(owed)
            self._talks.note(session, (spec.name, message.address), self._rows)
            self._rows.write()

        try:
            run_id = (await self._submit(perception, session, spec.mode, key, origin=origin, on_run=owe)).run_id
        except Exception:  # after a cancellation the run may be on disk; the next start finds out
            self._owed.drop(new_id)
            self._rows.write()
            raise
        if run_id == new_id:
            return Accepted("accepted", run_id)
        self._owed.drop(new_id)  # meanwhile the message was accepted as another run
        if self._owed.get(run_id) is not None:
            return Accepted("known", run_id)
        owe(run_id)  # its row was lost, and it may have ended
        if self.answers is not None and (owed := self._owed.get(run_id)) is not None:
            await self.answers.settle(owed)
        await self._rows.safe()
        return Accepted("accepted", run_id)

    async def forget(self, session: str) -> None:
        """Forget the address and the answers of a session. Messages that wait to be sent are sent, and forgotten after
        that.

        Raises: the errors of the store.
        """
        await self.ask("forget", id=session)

    async def forget_here(self, id: str) -> None:
        """Forget the session `id` as the node that has the channels. Raises: the errors of the store."""
        self._talks.pop(id, None)
        for run_id in [run_id for run_id, owed in self._owed.items() if owed.session == id]:
            self._owed.drop(run_id)
        for outbox in self.outboxes:
            outbox.forget(id)
        waiting = {id for supervisor in self.supervisors.values() for id in supervisor.items}
        rows = self._services.rows(OWNER)  # also of an agent that has no channel any more
        if rows is None:
            return
        self._rows.write()
        for key, value in (await rows.list()).items():
            kind, _, name = key.partition("/")
            session = name if kind == "talk" else value["session"]
            if session == id and not (kind == "out" and name in waiting):
                rows.drop(key)

    def shows_growth(self, run_id: str) -> bool:
        """Return whether people see the answer of a run grow."""
        owed = self._owed.get(run_id)
        supervisor = self.supervisors.get(owed.channel) if owed is not None else None
        return supervisor is not None and supervisor.spec.shows_growth

    async def test(self, name: str, address: str) -> str:
        """Send a test message through a channel to an address, or through a notifier; return what was wrong.

        Raises: LookupError for an unknown name; ValueError for a channel without an address, or one that is none.
        """
        if len(address) > LONGEST_ADDRESS:
            raise ValueError(f"'to' has {len(address)} characters, at most {LONGEST_ADDRESS} are an address")
        outbox = self.supervisors.get(name) if address else self.notifiers.get(name)
        if outbox is None and name in self.supervisors:
            raise ValueError(f"'to' is missing: channel {name!r} needs the address that the message goes to")
        if outbox is None:
            known = ", ".join(self.supervisors if address else [*self.supervisors, *self.notifiers]) or "none"
            raise LookupError(f"no channel {'' if address else 'or notifier '}named {name!r:.100}; known: {known}")
        return await outbox.test(address)

    # -- undelivered messages

    def undelivered(self) -> list[Delivery]:
        """Return the messages that were put aside, and those with failed attempts. It may be called from any thread."""
        deliveries: list[Delivery] = []
        for outbox in self.outboxes:
            deliveries += list(outbox.failed.values())
            deliveries += [delivery for delivery in list(outbox.items.values()) if delivery.attempts]
        return deliveries

    def holder_of(self, id: str) -> Outbox:
        """Return the outbox in which a message was put aside. Raises: LookupError."""
        for outbox in self.outboxes:
            if id in outbox.failed:
                return outbox
        raise LookupError(f"no message {id!r:.100} was put aside; spar channels failed")


class ChannelAttachment:
    """Attachment of the channels of a configuration or a program; it needs that of senders."""

    name = "channels"

    def __init__(self, channels: Sequence[ChannelSpec] = ()) -> None:
        self._specs = channels

    def attach(self, agent: Attaching) -> Channels:
        """Attach the channels. Raises: ConfigError for two of one name."""
        channels = Channels(self._specs, agent.services, agent.needs(Senders))
        agent.open(channels.open)
        agent.close(channels.close)
        agent.forgets(channels.forget)
        agent.grows(channels.shows_growth)
        return channels


def session_of(spec: ChannelSpec, message: Incoming) -> str:
    """Return the session of a message: the channel's, its own, or one for each address."""
    session = spec.session or message.session or f"{spec.name}:{message.address}"
    return session if len(session) <= LONGEST_SESSION else f"{session[:200]}…{short_digest(session)}"


def short_digest(text: str) -> str:
    """Return a short name for a text of any length."""
    return blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()


def check_message(message: Incoming) -> None:
    """Check that a channel may hand over a message. Raises: ValueError."""
    if not isinstance(message, Incoming):
        raise ValueError(f"a channel must hand over an Incoming, found {message!r:.100}")
    for name, value, most in (("id", message.id, LONGEST_ID), ("address", message.address, LONGEST_ADDRESS)):
        if not isinstance(value, str) or not 0 < len(value) <= most:
            raise ValueError(f"the {name} of a message has 1 to {most} characters, found {value!r:.60}")
    if len(message.text) > LONGEST_TEXT:
        raise ValueError(f"a message has at most {LONGEST_TEXT} characters, found {len(message.text)}")
    if len(msgspec.json.encode((message.reply, message.attributes))) > LARGEST_REPLY:
        raise ValueError(f"reply and attributes of a message take at most {LARGEST_REPLY} bytes")
