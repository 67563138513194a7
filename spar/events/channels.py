"""Events of channels and of the senders of messages there."""

from __future__ import annotations

from spar.events.event import Event


class SenderMet(Event):
    """A message came from a sender who is not allowed: `unknown` or `denied`; `messages` counts the messages of this
    sender."""

    sender: str
    verdict: str
    messages: int = 0


class SenderDecided(Event):
    """A person has allowed (`allowed`) or blocked (`denied`) a sender."""

    sender: str
    status: str
    person: str = ""
    trust: str = "untrusted"
    by: str = ""


class MessageDelivered(Event):
    """A message was sent on a channel or by a notifier, after so many `attempts`."""

    channel: str
    message_id: str
    address: str
    run_id: str = ""
    session: str = ""
    attempts: int = 1


class MessageUndeliverable(Event):
    """A message could not be sent on a channel or by a notifier and was put aside, until somebody has it sent again or
    drops it."""

    channel: str
    message_id: str
    address: str
    reason: str
    run_id: str = ""
    session: str = ""


class ChannelQuarantined(Event):
    """A channel failed too often at its `part` (`receive` or `send`); this part is not used until it is tried again."""

    channel: str
    part: str
    reason: str


class ChannelRestored(Event):
    """A part of a channel has left quarantine."""

    channel: str
    part: str
