"""Journal in memory: what an agent whose memory keeps no journal knows of accepted work beside the states of its
sessions, which have the open work: the ids and keys by which work that comes again is recognized."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from spar.data.bounded import BoundedDict
from spar.errors import NotReadyError
from spar.facts import Fact, WorkAccepted, WorkChanged
from spar.records.journal import Item
from spar.types import Perception

#: The most ids of accepted work that are remembered; the same of keys.
REMEMBERED = 10_000


class JournalInMemory:
    """Journal of one agent that lives as long as its process, and its own `views`.

    Args: refusal: why it accepts no work; "" if it does.
    """

    is_behind, open_cycles = False, 0

    def __init__(self, refusal: str = "") -> None:
        self.refusal = refusal
        #: Kind, session, key and time of each item.
        self._accepted = BoundedDict[str, tuple[Literal["perception", "run"], str, str | None, datetime]](REMEMBERED)
        self._keys = BoundedDict[str, str](REMEMBERED)
        self.views = self

    async def safe(self) -> None:
        """Return at once: nothing is promised beyond the process. Raises: NotReadyError in the place of a memory that
        is not open, which was to keep it."""
        if self.refusal:
            raise NotReadyError(self.refusal)

    def append(self, fact: Fact, agent: str = "") -> None:
        """Remember accepted work; no other fact is kept."""
        if isinstance(fact, WorkAccepted | WorkChanged) and (item := fact.item).id not in self._accepted:
            self._accepted[item.id] = item.kind, item.session, item.key, item.at
            if item.key is not None:
                self._keys[item.key] = item.id

    async def commit(self, fact: Fact, agent: str) -> Item | None:
        """Accept work, or return that which came before under its id or key. Raises: NotReadyError if none is
        accepted."""
        await self.safe()
        if isinstance(fact, WorkAccepted):
            id, key = fact.item.id, fact.item.key
            id = id if id in self._accepted or key is None else self._keys.get(key, "")
            if (known := self._accepted.get(id)) is not None:
                return Item(id, Perception(""), *known)
        self.append(fact)
        return None

    async def spent(self) -> tuple[()]:
        """Return that no earlier process has used any budget."""
        return ()

    async def run(self, agent: str, run_id: str) -> tuple[None, None]:
        """Return that no earlier process has left this run."""
        return None, None
