"""Senders of messages: their names, and the stored row of a sender.

A sender is `channel:address`: `mail:alice@example.org`. A pattern names several: those of a domain
(`mail:*@example.org`), all of a channel (`mail:*`).
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Literal

from msgspec import Struct

from spar.types import Trust

#: The kind of the rows in the store.
KIND: Final = "sender"
#: Session whose owner has the channels, of several nodes that run an agent.
CHANNELS: Final = "channels"
#: Most characters of a sender's name; no mail address is longer than 254 (RFC 5321).
LONGEST_SENDER: Final = 320
SenderStatus = Literal["waiting", "allowed", "denied"]
#: Letters whose case is ignored. Only ASCII letters: two addresses that merely look the same are different.
_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)
#: Whether messages of a sender are accepted, and why not.
Verdict = Literal["allowed", "denied", "unknown", "unverified"]


class SenderRow(Struct, frozen=True):
    """Row of one sender: the decision of a person about it, or that it waits for one.

    `messages` counts its messages that were not heard. `salt` and `digest` are those of its pairing code, which is
    valid until `expires_at`; `answered_at` is when it was last sent one.
    """

    id: str
    agent: str
    status: SenderStatus = "waiting"
    person: str = ""
    trust: Trust = "untrusted"
    messages: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None
    decided_at: datetime | None = None
    by: str = ""
    answered_at: datetime | None = None
    expires_at: datetime | None = None
    salt: str = ""
    digest: str = ""


class AllowedSender(Struct, frozen=True):
    """Settings of an allowed sender."""

    person: str = ""
    trust: Trust = "trusted"


class SenderRules(Struct, frozen=True):
    """Senders that the configuration names, by name or pattern."""

    allow: Mapping[str, AllowedSender] = {}
    deny: frozenset[str] = frozenset()


class Admission(Struct, frozen=True):
    """Verdict on a sender. `person` is empty if it is unknown who the sender is; `answer` is the text to send it, or
    ""."""

    sender: str
    verdict: Verdict
    person: str = ""
    trust: Trust = "untrusted"
    answer: str = ""

    @property
    def is_allowed(self) -> bool:
        """Return whether the sender's messages are accepted."""
        return self.verdict == "allowed"


def sender_of(channel: str, address: str) -> str:
    """Return the name of a sender in the form used for comparison.

    Raises: ValueError for an address that no list could name: empty, too long, or with spaces or control characters.
    """
    name = f"{channel}:{address.strip().translate(_LOWER)}"
    if name.endswith(":") or len(name) > LONGEST_SENDER:
        raise ValueError(f"a sender is channel:address with at most {LONGEST_SENDER} characters, found {name!r:.60}")
    if any(character.isspace() or not character.isprintable() for character in name) or "*" in name:
        raise ValueError(f"a sender's address has no space, no control character and no *, found {name!r:.60}")
    return name


def read_sender(name: str, *, may_be_pattern: bool = False) -> str:
    """Return a sender, or a pattern, as a person wrote it, in the form used for comparison.

    Raises: ValueError that says what is allowed.
    """
    channel, colon, address = name.strip().partition(":")
    pattern = may_be_pattern and (address == "*" or address.startswith("*@"))
    if not (channel and colon and address):
        raise ValueError(f"{name!r:.100}: must be channel:address, such as mail:alice@example.org")
    if not pattern:
        try:
            return sender_of(channel, address)
        except ValueError as error:
            more = "; mail:*@example.org and mail:* name several" if may_be_pattern else ""
            raise ValueError(f"{name!r:.100}: {error}{more}") from None
    if address == "*":
        return f"{channel}:*"
    return f"{channel}:*@{sender_of('', address[2:])[1:]}"


def patterns_of(sender: str) -> Iterable[str]:
    """Return the names under which a configuration may list a sender, the most exact first."""
    channel, _, address = sender.partition(":")
    _, at, domain = address.rpartition("@")
    return (sender, f"{channel}:*@{domain}", f"{channel}:*") if at else (sender, f"{channel}:*")


def rules_of(settings: Any) -> SenderRules:
    """Return the senders that the configuration names, its table `[senders]`, in the form that is compared."""
    allow = {
        read_sender(name, may_be_pattern=True): AllowedSender(entry.person, entry.trust)
        for entry in reversed(settings.allow)  # of two entries for one name the first counts
        for name in entry.senders
    }
    return SenderRules(allow, frozenset(read_sender(name, may_be_pattern=True) for name in settings.deny))


class Delivery(Struct, frozen=True):
    """Message to be sent. `sent` counts the parts that were sent; `reference` names an earlier message to be edited."""

    id: str
    channel: str
    address: str
    text: str
    at: datetime
    kind: Literal["answer", "note"] = "answer"
    reply: dict[str, Any] = {}
    session: str = ""
    run_id: str = ""
    state: Literal["waiting", "failed"] = "waiting"
    attempts: int = 0
    error: str = ""
    sent: int = 0
    reference: str = ""


class Direction(Struct, frozen=True):
    """State of a channel in one direction: its failures in a row, and the last error."""

    state: str
    failures: int = 0
    last_error: str | None = None


class ChannelState(Struct, frozen=True):
    """State of a channel: its directions, and its numbers of messages; `undelivered` ones are not tried again."""

    receiving: Direction
    sending: Direction
    waiting: int
    undelivered: int
    left_behind: int = 0
    accepted: int = 0
    known: int = 0
    refused: int = 0
    sent: int = 0
    failed: int = 0
