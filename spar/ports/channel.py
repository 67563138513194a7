"""The port of a channel: the way between the agent and people on some other service, such as mail or a chat.

A channel takes in what people write and sends what they are told; who they are, what a message sets going and what is
told of it is decided by the agent. `receive` runs for as long as the channel is open; each message is handed over by
`await context.accept(...)` and acknowledged to the other side only after that has returned: then it is on disk. A
message whose acceptance raised is not acknowledged, and offered again by the other side or by the channel.

What is to be sent waits on disk until `send` has returned. One that raises is called again for the same message, with
the same `id`, after a back-off: a channel whose other side knows such ids passes it on, so that nobody reads a message
twice. `PermanentError` says that this message can never be sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct, field

from spar.clock import Clock
from spar.errors import ContractError
from spar.ports.optional import offers
from spar.protocols import Home, ModuleRows

#: Characters of an id, of an address, and of a message that is received.
LONGEST_ID, LONGEST_ADDRESS, LONGEST_TEXT = 1_000, 320, 1_000_000


class ChannelLimits(Struct, frozen=True):
    """The limits of a channel.

    `text` is the most characters of one message: a longer one is sent in several. `can_edit` says that what was sent
    can be changed, so that people see an answer grow, an edit each `edit_every` seconds at most. `typing_every` is how
    often the sign that the agent is writing has to be repeated (0: there is none). `every` is the least number of
    seconds between two messages.
    """

    text: int = 4_000
    can_edit: bool = False
    edit_every: float = 1.0
    typing_every: float = 0.0
    every: float = 0.0


class Incoming(Struct, frozen=True):
    """A message that a channel has received.

    `id` is the other side's own for it: the same one again is the same message. `address` is where answers go, `sender`
    who wrote it ("": the address); `is_verified` says whether the channel knows that it was the sender. `session` names
    the conversation ("": one for each address). `reply` is given back with each answer, JSON-able and small (a
    message's subject and references, say); `attributes` stand in the perception. With a `refusal` the message is not
    heard, because the channel cannot take it in (it is too large, say): its sender, if it is let in, is told this text.
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
    """Answer to a message that was handed over; in each case it can be acknowledged.

    `accepted`: it is on disk, as the run `run_id`; `known`: it was accepted before; `refused`: it is not heard, and not
    kept, `reason` says why.
    """

    status: Literal["accepted", "known", "refused"]
    run_id: str = ""
    reason: str = ""


class Outgoing(Struct, frozen=True):
    """A message that people are to be told. `kind` is `answer` of a run, `note` for what is said besides, `draft` for
    an answer that grows. `reply` is that of the message that is answered, {} where none is. `part` counts from 1 where
    a text is sent in `parts`; each part has an `id` of its own, the same at each attempt."""

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

    `accept(message)` hands a message over and returns once it is on disk; it raises InboxFullError, NoRoomError,
    NotReadyError or LifecycleError while nothing can be taken, and ValueError for what can never be. `ready()` says
    that receiving works: until then the channel counts as opening. `rows` are small durable rows of the channel's own.
    `hears(sender)` says whether a sender is let in now: of one that is not nothing has to be fetched or saved. The
    message is handed over all the same, so that it is counted, and its sender answered.
    """

    name: str
    clock: Clock
    accept: Callable[[Incoming], Awaitable[Accepted]]
    ready: Callable[[], None] = lambda: None
    rows: ModuleRows | None = None
    home: Home | None = None
    hears: Callable[[str], bool] = lambda sender: True


@runtime_checkable
class Channel(Protocol):
    """A channel. All its methods but `limits` are async, and end when they are cancelled."""

    @property
    def limits(self) -> ChannelLimits:
        """The limits of the channel."""
        ...

    async def receive(self, context: ChannelContext) -> None:
        """Take messages in until cancelled; to return or to raise is a failure, after which it is called again."""
        ...

    async def send(self, message: Outgoing) -> str:
        """Send a message; return a reference by which it can be edited ("" where it cannot).

        Raises: PermanentError for one that can never be sent; anything else is tried again.
        """
        ...

    async def edit(self, reference: str, message: Outgoing) -> None:
        """Put another text in the place of one that was sent. Called only where `limits.can_edit`.

        Raises: PermanentError where it cannot be changed any more; it is then sent anew.
        """
        ...

    async def typing(self, address: str) -> None:
        """Show that the agent is writing. Called only where `limits.typing_every` is more than 0."""
        ...


#: What an object needs to be a channel.
METHODS = ("receive", "send", "edit", "typing")


class ChannelSpec(Struct, frozen=True):
    """One configured channel and how it is kept; all but the count in seconds.

    `timeout` is for sending, editing and typing; after `max_failures` `within` so long a part of it that fails
    (receiving, sending) is quarantined and tried again `probe_after`. `session` names the conversation of all its
    messages ("": one for each address), `mode` what becomes of a message in a busy one. `stream` says whether an answer
    is shown as it grows, where the channel can edit; what cannot be sent `give_up_after` is put aside. `reasoning` asks
    for the model's thoughts before the answer, where `runs.reasoning` is "reply".

    Raises: ContractError when the name is no text or the channel is none.
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

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ContractError(f"ChannelSpec(name, channel): the name must be text, found {self.name!r:.60}")
        is_channel = not isinstance(self.channel, type) and offers(self.channel, Channel)
        if not is_channel or not isinstance(self.channel.limits, ChannelLimits):
            raise ContractError(
                f"ChannelSpec({self.name!r}, channel): a channel is an object with limits (of the type ChannelLimits), "
                f"{', '.join(METHODS)}, found {self.channel!r:.60}"
            )
