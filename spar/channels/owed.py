"""Owed answers of people on channels: for each accepted message, the place of its answer.

A row is written before the run of the message, and closed with the last message about it. So a process that dies
between the end of a run and the sending of its answer still owes the answer, and one that dies later does not send it
twice.

All changes within one turn of the event loop are written at its end, once. The row of a message to send may then be
on disk before the digest of its text: the message is found waiting by its id, and not enqueued twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Final

import msgspec
from msgspec import Struct

from spar.channels.deliveries import KeepsRows
from spar.data.reply import comparable
from spar.decoding import convert
from spar.types import replace

#: Bounds of the answered messages that are remembered, time and number: within them a repeated one is recognised.
REMEMBERED_FOR: Final = timedelta(days=7)
MOST_ANSWERED: Final = 10_000
#: Texts of one run whose digests are remembered as sent.
MOST_TOLD: Final = 200


class Owed(Struct, frozen=True):
    """Place of the answer of a run. `told` are digests of the texts that were sent, `is_done`: nothing more comes,
    `reference` names the shown message of a growing answer."""

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
        """Return the value after another text was sent."""
        return self if len(self.told) >= MOST_TOLD else replace(self, told=(*self.told, digest))


class OwedAnswers:
    """Owed answers of one agent, by run. Args: rows: where they are stored, None: only in memory."""

    def __init__(self, rows: KeepsRows | None) -> None:
        self._rows = rows
        self._items: dict[str, Owed] = {}
        self._unwritten: dict[str, Owed] = {}

    def restore(self, values: Iterable[Mapping[str, Any]], now: datetime) -> None:
        """Load the answers of an earlier process; those that were answered long ago are forgotten."""
        answers = sorted((convert(value, Owed) for value in values), key=lambda owed: owed.at)
        for owed in answers:
            self._items[owed.run_id] = owed
        for owed in answers:
            if owed.is_done and now - owed.at > REMEMBERED_FOR:
                self.drop(owed.run_id)

    def get(self, run_id: str) -> Owed | None:
        """Return the place of the answer of a run; None for a run that no person on a channel began."""
        return self._items.get(run_id)

    def open(self) -> list[Owed]:
        """Return the answers that are not done, the oldest first."""
        return [owed for owed in self._items.values() if not owed.is_done]

    def keep(self, owed: Owed) -> None:
        """Store one, at the end of this turn of the event loop."""
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self.write)
        self._items[owed.run_id] = self._unwritten[owed.run_id] = owed
        if len(self._items) > MOST_ANSWERED:
            self._forget_oldest()

    def write(self) -> None:
        """Write all changes now."""
        while self._unwritten:
            run_id, owed = self._unwritten.popitem()
            if self._rows is not None:
                self._rows.keep(f"run/{run_id}", msgspec.to_builtins(owed))

    def forget(self, session: str) -> None:
        """Forget the runs of a session; the caller deletes their rows."""
        self.write()
        self._items = {run_id: owed for run_id, owed in self._items.items() if owed.session != session}

    def _forget_oldest(self) -> None:
        """Forget the oldest answered ones, a tenth of the bound."""
        done = [run_id for run_id, owed in self._items.items() if owed.is_done]
        for run_id in done[: MOST_ANSWERED // 10]:
            self.drop(run_id)

    def drop(self, run_id: str) -> None:
        """Forget a run, if it is known."""
        self._unwritten.pop(run_id, None)
        if self._items.pop(run_id, None) is not None and self._rows is not None:
            self._rows.drop(f"run/{run_id}")


def digest_of(text: str) -> str:
    """Return the digest of a sent text; texts that say the same have the same digest."""
    return blake2b(comparable(text).encode("utf-8", "replace"), digest_size=6).hexdigest()
