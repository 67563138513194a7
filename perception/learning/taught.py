"""Table of what people taught: a durable row for each example, which says who taught it and when.

Only the owner's doors lead here; no sensor, no message and no tool does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Struct

from perception.learning.examples import Example, What, bounded
from perception.learning.features import normal
from spar.clock import Clock
from spar.errors import NoRoomError, NotReadyError
from spar.ports.optional import offers
from spar.protocols import Records

KIND: Final = "example"  # of the rows in the store
MOST: Final = 10_000  # examples of one agent


class TaughtExample(Struct, frozen=True):
    """An example that a person taught: `by` whom, and when."""

    id: str
    agent: str
    what: What
    text: str
    label: str
    by: str
    at: datetime

    @property
    def example(self) -> Example:
        return Example(self.what, self.text, self.label)


class TaughtExamples:
    """The examples that people taught one agent.

    Args: store: where they are kept; one without records keeps none; tell: is told what is wrong with which row.
    """

    def __init__(self, agent: str, store: Any, clock: Clock, tell: Callable[[str, str], None]) -> None:
        self._agent, self._store, self._clock, self._tell = agent, store, clock, tell
        self._rows: dict[str, TaughtExample] = {}

    async def open(self) -> None:
        """Read what was kept; a row that cannot be read is told, and left as it is. Raises: what the store raises."""
        if not offers(self._store, Records):
            return
        for record in await self._store.records(KIND):
            try:
                row = msgspec.convert(record.value, TaughtExample)
            except msgspec.ValidationError as error:
                self._tell(f"example {record.id}", f"its row cannot be read by this release: {error}")
                continue
            if row.agent == self._agent:
                self._rows[row.id] = row

    def list(self) -> Sequence[TaughtExample]:
        """Return all examples, the oldest first."""
        return sorted(self._rows.values(), key=lambda row: (row.at, row.id))

    async def add(self, what: What, text: str, label: str, by: str) -> TaughtExample:
        """Keep an example; the same text again takes the place of the former one. It is on disk when this returns.

        Raises: ValueError for a text or label out of bounds, NoRoomError beyond `MOST`, NotReadyError without a store.
        """
        example, store = bounded(what, text, label), self._store
        if not offers(store, Records):
            raise NotReadyError("nothing can be taught: the agent has no memory that keeps rows")
        mark = repr((self._agent, what, normal(example.text))).encode("utf-8", "backslashreplace")
        row_id = blake2b(mark, digest_size=6).hexdigest()
        if row_id not in self._rows and len(self._rows) >= MOST:
            raise NoRoomError(f"{MOST} examples are kept already; forget some, or move them to a file of examples")
        row = TaughtExample(row_id, self._agent, what, example.text, example.label, by, self._clock.now())
        await store.keep(KIND, row_id, msgspec.to_builtins(row))
        self._rows[row_id] = row
        return row

    async def drop(self, row_id: str) -> TaughtExample:
        """Forget an example, by its id or a unique beginning of it. Raises: LookupError for one that is not known."""
        found = [row for known, row in self._rows.items() if row_id and known.startswith(row_id)]
        if len(found) != 1:
            known = f"{len(found)} examples begin so" if found else f"{len(self._rows)} are kept"
            raise LookupError(f"no example {row_id!r:.60}: {known}; `spar learn list` shows their ids")
        await self._store.drop(KIND, found[0].id)
        del self._rows[found[0].id]
        return found[0]
