"""Values of a stored session, and of its use by a message and its end by a reset.

A session is a key under which conversations follow one another, each with an ordinal. Messages of the key go to the
newest conversation; a reset ends it, and the next message begins a new one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from spar.records.run_options import NO_OPTIONS, RunOptions
from spar.records.transcript import Entry


class Origin(Struct, frozen=True):
    """Origin of a session: the interface of its first message (`door`), the channel and the sender if there is one, and
    the person known as this sender."""

    door: str = ""
    channel: str = ""
    sender: str = ""
    person: str = ""


class SessionRecord(Struct, frozen=True, gc=False):
    """Row of one session.

    `ordinal` counts its conversations from 1; `began_at` is when the present one began, `used_at` when its newest
    message came. `title` and `defaults` (options of its runs) are set by people; a reset keeps them.
    """

    key: str
    created_at: datetime
    began_at: datetime
    used_at: datetime
    ordinal: int = 1
    title: str = ""
    defaults: RunOptions = NO_OPTIONS
    origin: Origin = Origin()

    @property
    def id(self) -> str:
        """Return the id of the present conversation."""
        return id_of(self.key, self.ordinal)


class Reset(Struct, frozen=True):
    """End of one conversation, the one of a session with this `ordinal`; it takes effect once.

    `reason` is "reset" (somebody requested it, `by`), "idle" or "daily"; `id` names it among the runs that write to the
    transcript.
    """

    id: str
    session: str
    ordinal: int
    at: datetime
    reason: Literal["reset", "idle", "daily"] = "reset"
    by: str = ""

    @property
    def entry(self) -> Entry:
        """Return the entry at which reading of the transcript begins."""
        body = {"reason": self.reason, "by": self.by, "ended": id_of(self.session, self.ordinal),
                "begun": id_of(self.session, self.ordinal + 1)}  # fmt: skip
        return Entry("reset", body, self.run_id, at=self.at)

    @property
    def run_id(self) -> str:
        """Return the run id under which it writes; entries of earlier runs are refused from then on."""
        return f"reset:{self.id}"


class SessionUse(Struct, frozen=True):
    """Use of a session by an accepted message: its time, its origin, and the reset that precedes it."""

    at: datetime
    origin: Origin = Origin()
    reset: Reset | None = None


def id_of(key: str, ordinal: int) -> str:
    """Return the id of one conversation of a session."""
    return f"{key}#{ordinal}"
