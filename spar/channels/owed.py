"""The answers that people on channels are owed: for each message that was taken in, the place of its answer.

A row is written with the run of the message, and closed with the last that is told of it; so that a process that dies
between the end of a run and the sending of its answer owes it still, and one that dies later does not tell it twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Struct

from spar.channels.deliveries import KeepsRows
from spar.data.reply import comparable
from spar.types import replace

#: How long, and of how many messages, it is known that they were answered: for so long one may be delivered again.
REMEMBERED_FOR: Final = timedelta(days=7)
MOST_ANSWERED: Final = 10_000
#: Texts of one run of which it is known that people were told them.
MOST_TOLD: Final = 200


class Owed(Struct, frozen=True):
    """Place of the answer of a run. `told` are digests of what was told already, `is_done`: nothing more comes,
    `reference` is that of what is shown of an answer that grows."""

    run_id: str
    channel: str
    address: str
    at: datetime
    session: str = ""
    reply: dict[str, Any] = {}
    told: tuple[str, ...] = ()
    is_done: bool = False
    reference: str = ""

    def telling(self, digest: str) -> Owed:
        """Return it once people are told another text."""
        return self if len(self.told) >= MOST_TOLD else replace(self, told=(*self.told, digest))


class OwedAnswers:
    """The owed answers of one agent, by run. Args: rows: where they are kept, None: in memory only."""

    def __init__(self, rows: KeepsRows | None) -> None:
        self._rows = rows
        self._items: dict[str, Owed] = {}

    def restore(self, values: Iterable[Mapping[str, Any]], now: datetime) -> None:
        """Take what an earlier process kept; what was answered long ago is forgotten."""
        found = sorted((msgspec.convert(value, Owed) for value in values), key=lambda each: each.at)
        for owed in found:
            self._items[owed.run_id] = owed
        for owed in found:
            if owed.is_done and now - owed.at > REMEMBERED_FOR:
                self._forget(owed.run_id)

    def get(self, run_id: str) -> Owed | None:
        """Return the place of the answer of a run; None for a run of nobody on a channel."""
        return self._items.get(run_id)

    def open(self) -> list[Owed]:
        """Return those that may have something to be told yet, oldest first."""
        return [each for each in self._items.values() if not each.is_done]

    def keep(self, owed: Owed) -> None:
        """Write one."""
        self._items[owed.run_id] = owed
        if self._rows is not None:
            self._rows.keep(f"run/{owed.run_id}", msgspec.to_builtins(owed))
        if len(self._items) > MOST_ANSWERED:
            self._forget_oldest()

    def forget(self, session: str) -> None:
        """Know nothing of the runs of a session any more; their rows are left to whoever forgets it."""
        self._items = {run_id: owed for run_id, owed in self._items.items() if owed.session != session}

    def _forget_oldest(self) -> None:
        """Forget a tenth of those that were answered."""
        done = [run_id for run_id, each in self._items.items() if each.is_done]
        for run_id in done[: MOST_ANSWERED // 10]:
            self._forget(run_id)

    def _forget(self, run_id: str) -> None:
        del self._items[run_id]
        if self._rows is not None:
            self._rows.drop(f"run/{run_id}")


def digest_of(text: str) -> str:
    """Return what is kept of a text that was told; two that say the same have the same."""
    return blake2b(comparable(text).encode("utf-8", "replace"), digest_size=6).hexdigest()
