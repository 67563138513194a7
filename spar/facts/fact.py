"""Base of all facts."""

from __future__ import annotations

from msgspec import Struct


class Fact(Struct, frozen=True, tag=True, kw_only=True):
    """Something that happened in a session. Its place in the order of that session's facts is when it is told."""

    session: str
