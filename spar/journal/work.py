"""The accepted work of an agent that this process has in hand, and the journal that keeps it."""

from __future__ import annotations

from spar.ports.store import Journal
from spar.records.journal import Item


class Work:
    """The work in hand, by id, and the journal while it is open; None where none is kept."""

    __slots__ = ("in_hand", "journal")

    def __init__(self) -> None:
        self.journal: Journal | None = None
        self.in_hand: dict[str, Item] = {}
