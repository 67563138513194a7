"""Table of the examples that people taught: a durable row for each, with its author and time.

Only the owner's interfaces (CLI, HTTP, program) change it; no sensor, message or tool does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from hashlib import blake2b
from typing import Any, Final

from msgspec import Struct

from perception.learning.examples import What, bounded
from perception.learning.features import normal
from spar.clock import Clock
from spar.errors import NoRoomError, NotReadyError
from spar.ports.any_part import offers
from spar.ports.rows import KeptRows
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


class TaughtExamples:
    """Examples that people taught one agent.

    Args: store: where the rows are stored; without `Records` nothing is stored; tell: reports a row and its problem.
    """

    def __init__(self, agent: str, store: Any, clock: Clock, tell: Callable[[str, str], None]) -> None:
        self._agent, self._store, self._clock = agent, store, clock
        self._rows = KeptRows(KIND, TaughtExample, lambda row: row.agent == agent, lambda id, error: tell(
            f"example {id}", f"its row cannot be read by this release: {error}"))  # fmt: skip
        if offers(store, Records):
            self._rows.store = store

    async def open(self) -> None:
        """Read the stored rows; a row that cannot be read is reported, and left as it is. Raises: the errors of the
        store."""
        await self._rows.open(self._rows.store)

    def list(self) -> Sequence[TaughtExample]:
        """Return all examples, the oldest first."""
        return sorted(self._rows.values.values(), key=lambda row: (row.at, row.id))

    async def add(self, what: What, text: str, label: str, by: str) -> TaughtExample:
        """Store an example; it replaces one with the same text. It is on disk when this returns.

        Raises: ValueError for a text or label out of bounds, NoRoomError beyond `MOST`, NotReadyError without a store.
        """
        example = bounded(what, text, label)
        if not offers(self._store, Records):
            raise NotReadyError("nothing can be taught: the agent has no memory that keeps rows")
        mark = repr((self._agent, what, normal(example.text))).encode("utf-8", "backslashreplace")
        row_id = blake2b(mark, digest_size=6).hexdigest()
        if (is_new := row_id not in self._rows.values) and len(self._rows.values) >= MOST:
            raise NoRoomError(f"{MOST} examples are kept already; forget some, or move them to a file of examples")
        row = TaughtExample(row_id, self._agent, what, example.text, example.label, by, self._clock.now())
        await (self._rows.add(row) if is_new else self._rows.change(row_id, lambda before: row))
        return row

    async def drop(self, row_id: str) -> TaughtExample:
        """Forget an example, by its id or a unique beginning of it. Raises: LookupError when no example, or more than
        one, fits."""
        rows = self._rows.values
        matches = [row for known_id, row in rows.items() if row_id and known_id.startswith(row_id)]
        if len(matches) != 1:
            known = f"{len(matches)} examples begin so" if matches else f"{len(rows)} are kept"
            raise LookupError(f"no example {row_id!r:.60}: {known}; `spar examples list` shows their ids")
        await self._rows.drop(matches[0].id)
        return matches[0]
