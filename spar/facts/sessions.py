"""Facts of failed work and of conversations."""

from __future__ import annotations

from spar.facts.fact import Fact


class RetryPlanned(Fact, frozen=True, kw_only=True):
    """Failed work waits until `due_at` (seconds since 1970) for its next attempt. `attempts` counts those so far."""

    item: str
    attempts: int
    due_at: float


class PutAside(Fact, frozen=True, kw_only=True):
    """Work was put aside after too many attempts, until a person decides about it."""

    item: str
    attempts: int
    reason: str


class LetterAnswered(Fact, frozen=True, kw_only=True):
    """A person decided about work that had been put aside: it is tried again, or dropped."""

    item: str
    is_tried_again: bool


class ConversationReset(Fact, frozen=True, kw_only=True):
    """The conversation of a session ended; `ordinal` is the number of the next one."""

    ordinal: int
    reason: str
    by: str = ""
