"""Owed answers of people on channels: for each accepted message, the place of its answer.

A row is written before the run of the message, and closed with the last message about it. So a process that dies
between the end of a run and the sending of its answer still owes the answer, and one that dies later does not send it
twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any, Final

from msgspec import Struct

from spar.channels.outbox import TurnRows
from spar.data.reply import comparable
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


class OwedAnswers(dict[str, Owed]):
    """Owed answers of one agent, by run: of each that a person on a channel began."""

    def __init__(self, rows: TurnRows, answers: Iterable[Owed], now: datetime) -> None:
        """Load the answers of an earlier process; those that were answered long ago are forgotten."""
        answers = sorted(answers, key=lambda owed: owed.at)
        super().__init__((owed.run_id, owed) for owed in answers)
        self._rows = rows
        for owed in answers:
            if owed.is_done and now - owed.at > REMEMBERED_FOR:
                self.drop(owed.run_id)

    def open(self) -> list[Owed]:
        """Return the answers that are not done, the oldest first."""
        return [owed for owed in self.values() if not owed.is_done]

    def keep(self, owed: Owed) -> None:
        """Store one; of too many the oldest answered ones are forgotten, a tenth of the bound."""
        self[owed.run_id] = owed
        self._rows.keep(f"run/{owed.run_id}", owed)
        if len(self) > MOST_ANSWERED:
            done = [run_id for run_id, owed in self.items() if owed.is_done]
            for run_id in done[: MOST_ANSWERED // 10]:
                self.drop(run_id)

    def drop(self, run_id: str) -> None:
        """Forget a run, if it is known."""
        if self.pop(run_id, None) is not None:
            self._rows.drop(f"run/{run_id}")


def digest_of(text: str) -> str:
    """Return the digest of a sent text; texts that say the same have the same digest."""
    return blake2b(comparable(text).encode("utf-8", "replace"), digest_size=6).hexdigest()
