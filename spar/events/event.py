"""Base of all events."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class Event(Struct, kw_only=True):
    """A fact. `agent`, `seq` (strictly increasing for each agent) and `at` (UTC) are set when it is published."""

    agent: str = ""
    seq: int = 0
    at: datetime | None = None


class Gap(Event):
    """A slow reader has lost `missed` events (None: nobody counted them); a stream delivers this event instead."""

    missed: int | None
