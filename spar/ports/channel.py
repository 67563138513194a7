"""Port of a channel: the connection between the agent and people on another service, such as mail or a chat.

A channel receives people's messages and sends the agent's. The agent decides who these people are, what a message
starts and what they are told. `receive` runs while the channel is open; it passes each message to `await
context.accept(...)` and acknowledges it to the other side only after this has returned, because the message is on disk
then. A message whose acceptance raised is not acknowledged; the other side or the channel offers it again.

A message to send waits on disk until `send` has returned. After an exception, `send` is called again for the same
message, with the same `id`, after a back-off. A channel whose other side knows such ids passes the id on, so that
nobody reads a message twice. `PermanentError` says that this message can never be sent.

Of several nodes that run an agent one receives and sends at a time. So `receive` reads its `rows` anew each time it is
called: another node may have changed them.

Of notifiers of alerts, any `spar.protocols.Notifier` is enough; one with `deliver` gets the whole notice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, time
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from spar.clock import Clock
from spar.errors import ContractError, PermanentError
from spar.ports.any_part import offers
from spar.protocols import Home, ModuleRows


class Notice(Struct, frozen=True):
    """Message to people about an alert.

    `id` stays the same at each attempt, also after a restart; `alert_id` is the same for all notices of one episode. A
    `digest` stands for several notices that waited for the end of quiet hours.
    """

    id: str
    kind: str
    state: Literal["raised", "recovered", "test", "digest"]
    severity: str
    title: str
    text: str
    at: datetime
    agent: str = ""
    session: str = ""
    alert_id: str = ""


class DeliversNotices(Protocol):
    """Notifier that gets the whole notice."""

    async def deliver(self, notice: Notice) -> None:
        """Deliver the notice; raise when it cannot have arrived. A repeated notice has the same id."""


class QuietHours(Struct, frozen=True):
    """Hours of each day, in the machine's own time zone, in which only critical alerts are sent.

    `begin` may be after `end`, which is then on the next day.
    """

    begin: time
    end: time

    @classmethod
    def parse(cls, text: str) -> QuietHours:
        """Return the hours that a text such as `22:00-07:00` states. Raises: ValueError with a sentence."""
        begin, dash, end = text.partition("-")
        try:
            hours = cls(time.fromisoformat(begin.strip()), time.fromisoformat(end.strip()))
        except ValueError:
            dash = ""
        if not dash or hours.begin == hours.end or hours.begin.tzinfo or hours.end.tzinfo:
            raise ValueError('must be two different times of day, such as "22:00-07:00"')
        return hours

    def covers(self, at: datetime) -> bool:
        """Return whether a time lies in these hours."""
        now = at.astimezone().time()
        if self.begin < self.end:
            return self.begin <= now < self.end
        return now >= self.begin or now < self.end


class NotifierSpec(Struct, frozen=True):
    """Notifier and its settings.

    `kinds` are the kinds of alerts that it gets (none: all), `min_severity` the least severity. `repeat` is after how
    many seconds an alert is sent again (0: only once), `timeout` the seconds of one attempt, `give_up_after` the
    seconds after which a notice is given up. In `quiet` hours it gets only critical alerts. The last three are those of
    a channel.
    """

    name: str
    notifier: Any
    kinds: tuple[str, ...] = ()
    min_severity: Literal["warning", "critical"] = "warning"
    repeat: float = 0.0
    timeout: float = 20.0
    give_up_after: float = 86_400.0
    quiet: QuietHours | None = None
    max_failures: int = 5
    within: float = 60.0
    probe_after: float = 600.0

    @classmethod
    def checked(cls, name: str, notifier: Any, quiet: str = "", **terms: Any) -> NotifierSpec:
        """Return a notifier with its settings as they are written. Raises: ContractError if it cannot work."""
        from spar.ports.any_part import offers  # the tables of settings load this module
        from spar.protocols import Notifier, Warns

        if not offers(notifier, Notifier):
            raise ContractError(f"{name!r} makes {notifier!r:.100}, which has no method 'notify'")
        if offers(notifier, Warns) and (warnings := list(notifier.warnings())):
            raise ContractError(f"{name!r} cannot work: {warnings[0]}")
        return cls(name, notifier, quiet=QuietHours.parse(quiet) if quiet else None, **terms)

    def wants(self, kind: str, severity: str) -> bool:
        """Return whether it gets alerts of this kind and severity."""
        return (not self.kinds or kind in self.kinds) and (severity == "critical" or self.min_severity == "warning")


#: Most characters of an id, of an address, and of a received message.
LONGEST_ID, LONGEST_ADDRESS, LONGEST_TEXT = 1_000, 320, 1_000_000


class ChannelLimits(Struct, frozen=True):
    """Limits of a channel.

    `text` is the most characters of one message: a longer text is sent in several. `can_edit` says that sent messages
    can be changed, so that people see an answer grow; `edit_every` is the least number of seconds between two edits.
    `typing_every` is after how many seconds the sign that the agent is writing must be repeated (0: there is none).
    `every` is the least number of seconds between two messages.
    """

    text: int = 4_000
    can_edit: bool = False
    edit_every: float = 1.0
    typing_every: float = 0.0
    every: float = 0.0


class Incoming(Struct, frozen=True):
    """Message that a channel has received.

    `id` is the other side's own id: the same id means the same message. `address` is where answers go, `sender` is the
    author ("": the address); `is_verified` says whether the channel has verified the sender. `session` names the
    conversation ("": one for each address). `reply` is returned with each answer, JSON-able and small (for example a
    message's subject and references); `attributes` become those of the perception. A message with a `refusal` is not
    heard, because the channel cannot accept it (for example because it is too large): its sender, if allowed, gets this
    text.
    """

    id: str
    address: str
    text: str
    sender: str = ""
    is_verified: bool = True
    session: str = ""
    reply: dict[str, Any] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)
    refusal: str = ""


class Accepted(Struct, frozen=True):
    """Result of accepting a message; in each case it can be acknowledged.

    `accepted`: it is on disk, as the run `run_id`; `known`: it was accepted before; `refused`: it is neither heard nor
    stored, for the `reason`.
    """

    status: Literal["accepted", "known", "refused"]
    run_id: str = ""
    reason: str = ""


class Outgoing(Struct, frozen=True):
    """Message for people.

    `kind` is `answer` of a run, `note` for other texts, `draft` for an answer that grows. `reply` is that of the
    message that is answered, {} if there is none. `part` counts from 1 if a text is sent in several `parts`; each part
    has its own `id`, the same at each attempt.
    """

    id: str
    address: str
    text: str
    kind: Literal["answer", "note", "draft"] = "answer"
    reply: dict[str, Any] = field(default_factory=dict)
    session: str = ""
    run_id: str = ""
    part: int = 1
    parts: int = 1


class ChannelContext(Struct, frozen=True):
    """Context in which a channel receives.

    `accept(message)` returns once the message is on disk; it raises InboxFullError, NoRoomError, NotReadyError or
    LifecycleError while nothing can be accepted, and ValueError for a message that never can be. `ready()` reports that
    receiving works: until then the channel counts as opening. `rows` are small durable rows of the channel.
    `hears(sender)` says whether a sender is allowed now; for others nothing must be fetched or stored. Their messages
    are passed to `accept` all the same, so that they are counted and answered.
    """

    name: str
    clock: Clock
    accept: Callable[[Incoming], Awaitable[Accepted]]
    ready: Callable[[], None] = lambda: None
    rows: ModuleRows | None = None
    home: Home | None = None
    hears: Callable[[str], bool] = lambda sender: True


class Channel(Protocol):
    """Channel. All its methods are async, except `limits`, and end when they are cancelled. A class that inherits from
    this one has only to define what it can do: a notifier only sends."""

    @property
    def limits(self) -> ChannelLimits:
        """Return the limits of the channel."""
        return ChannelLimits()

    async def receive(self, context: ChannelContext) -> None:
        """Receive messages until cancelled. A return or an exception is a failure, after which it is called again."""
        context.ready()
        await asyncio.Event().wait()

    async def send(self, message: Outgoing) -> str:
        """Send a message; return a reference for editing it ("" if it cannot be edited).

        Raises: PermanentError for a message that can never be sent; any other error leads to another attempt.
        """

    async def edit(self, reference: str, message: Outgoing) -> None:
        """Replace the text of a sent message. Called only if `limits.can_edit`.

        Raises: PermanentError if it cannot be changed any more; it is then sent as a new message.
        """
        raise PermanentError("a message that was sent cannot be changed")

    async def typing(self, address: str) -> None:
        """Show that the agent is writing. Called only if `limits.typing_every` is more than 0."""
        return


#: Methods that an object needs to be a channel.
METHODS = ("receive", "send", "edit", "typing")


class ChannelSpec(Struct, frozen=True):
    """Configured channel and its settings; all but the count are in seconds.

    `timeout` is for sending, editing and typing. After `max_failures` failures `within` so many seconds, the failing
    half (receiving or sending) is quarantined and tried again after `probe_after`. `session` names the conversation of
    all its messages ("": one for each address), `mode` is the queue mode of a message in a busy conversation. `stream`
    says whether an answer is shown while it grows, if the channel can edit. A message that cannot be sent within
    `give_up_after` is put aside. `reasoning` asks for the model's reasoning before the answer, if `runs.reasoning` is
    "reply".

    Raises: ContractError when the name is not text or the channel is not a channel.
    """

    name: str
    channel: Channel
    timeout: float = 30.0
    max_failures: int = 5
    within: float = 60.0
    probe_after: float = 600.0
    session: str = ""
    mode: str | None = None
    stream: bool = True
    give_up_after: float = 86_400.0
    reasoning: bool = False

    @property
    def shows_growth(self) -> bool:
        """Return whether people see an answer grow."""
        return self.stream and self.channel.limits.can_edit

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ContractError(f"ChannelSpec(name, channel): the name must be text, found {self.name!r:.60}")
        is_channel = not isinstance(self.channel, type) and offers(self.channel, Channel)
        if not is_channel or not isinstance(self.channel.limits, ChannelLimits):
            raise ContractError(
                f"ChannelSpec({self.name!r}, channel): a channel is an object with limits (of the type ChannelLimits), "
                f"{', '.join(METHODS)}, found {self.channel!r:.60}"
            )
