"""Base of all facts."""

from __future__ import annotations

from msgspec import Struct


class Fact(Struct, frozen=True, tag=True, kw_only=True):
    """Something that happened in a session.

    `seq` is its place among the facts of its session, from 1; 0 until the fact is told.
    """

    session: str
    seq: int = 0
