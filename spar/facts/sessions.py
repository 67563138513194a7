"""Facts of failed work and of conversations."""

from __future__ import annotations

from spar.facts.fact import Fact
from spar.records.journal import DeadLetter, Item, Unfinished
from spar.records.session import Reset
from spar.records.transcript import Entry


class RetryPlanned(Fact, frozen=True, kw_only=True):
    """Failed work waits until `item.due_at` for its next attempt; `item.attempts` counts those so far."""

    item: Item


class PutAside(Fact, frozen=True, kw_only=True):
    """Work was put aside after too many attempts, until a person decides about it."""

    item: Item
    reason: str


class LetterAnswered(Fact, frozen=True, kw_only=True):
    """A person decided about work that had been put aside: it is tried again, or dropped."""

    letter: DeadLetter
    is_tried_again: bool


class ConversationReset(Fact, frozen=True, kw_only=True):
    """The conversation of a session ended. One that has ended already is not ended again.

    `entries` are those of its runs, before the entry of the reset; from now on, entries of earlier runs are refused.
    `cut` is the current cycle as the next process shall see it; None for none.
    """

    reset: Reset
    entries: tuple[Entry, ...] = ()
    cut: Unfinished | None = None
