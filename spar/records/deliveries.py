"""Messages to people, as an outbox keeps them, and the state of the channels that carry them."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from msgspec import Struct


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
