"""Messages to people, as an outbox keeps them."""

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
