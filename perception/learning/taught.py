"""Table of the examples that people taught: a durable row for each, with its author and time.

Only the owner's interfaces (CLI, HTTP, program) change it; no sensor, message or tool does.
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
from spar.decoding import convert
from spar.errors import NoRoomError, NotReadyError
from spar.ports.optional.any_part import offers
from spar.protocols import Records

KIND: Final = "example"  # of the rows in the store
MOST: Final = 10_000  # examples of one agent


class TaughtExample(Struct, frozen=True):
    """Example that a person taught: `by` is the person, `at` the time."""

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
    """Examples that people taught one agent.

    Args: store: where the rows are stored; without `Records` nothing is stored; tell: reports a row and its problem.
    """

    def __init__(self, agent: str, store: Any, clock: Clock, tell: Callable[[str, str], None]) -> None:
        self._agent, self._store, self._clock, self._tell = agent, store, clock, tell
        self._rows: dict[str, TaughtExample] = {}

    async def open(self) -> None:
        """Read the stored rows; a row that cannot be read is reported, and left as it is. Raises: the errors of the
        store."""
        if not offers(self._store, Records):
            return
        for record in await self._store.records(KIND):
            try:
                row = convert(record.value, TaughtExample)
            except msgspec.ValidationError as error:
                self._tell(f"example {record.id}", f"its row cannot be read by this release: {error}")
                continue
            if row.agent == self._agent:
                self._rows[row.id] = row

    def list(self) -> Sequence[TaughtExample]:
        """Return all examples, the oldest first."""
        return sorted(self._rows.values(), key=lambda row: (row.at, row.id))

    async def add(self, what: What, text: str, label: str, by: str) -> TaughtExample:
        """Store an example; it replaces one with the same text. It is on disk when this returns.

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
        """Forget an example, by its id or a unique beginning of it. Raises: LookupError when no example, or more than
        one, fits."""
        matches = [row for known_id, row in self._rows.items() if row_id and known_id.startswith(row_id)]
        if len(matches) != 1:
            known = f"{len(matches)} examples begin so" if matches else f"{len(self._rows)} are kept"
            raise LookupError(f"no example {row_id!r:.60}: {known}; `spar examples list` shows their ids")
        await self._store.drop(KIND, matches[0].id)
        del self._rows[matches[0].id]
        return matches[0]
