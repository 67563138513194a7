"""Session of an agent as it is kept: its values, and the terms on which a message uses it or a reset ends it.

A session is a key under which conversations follow one another, each with an ordinal. Messages of the key go to the
newest conversation; a reset ends that one, and the next message begins a new one.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from spar.records.run_options import NO_OPTIONS, RunOptions
from spar.records.transcript import Entry


class Origin(Struct, frozen=True):
    """Origin of a session: the door that its first message came through, the channel and the sender if there is one,
    and the person whom that is known as."""

    door: str = ""
    channel: str = ""
    sender: str = ""
    person: str = ""


class SessionRecord(Struct, frozen=True):
    """One session.

    `ordinal` counts its conversations from 1; `began_at` is when the present one began, `used_at` when its newest
    message came. `title` and `defaults` (options of its runs) are what people set; a reset keeps them.
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
    """End of one conversation, that of a session with this `ordinal`: it takes effect once.

    `reason` is "reset" (somebody asked for it, `by`), "idle" or "daily"; `id` names it among the runs that write in the
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
        """Return the entry after which the reading of the transcript begins."""
        body = {"reason": self.reason, "by": self.by, "ended": id_of(self.session, self.ordinal),
                "begun": id_of(self.session, self.ordinal + 1)}  # fmt: skip
        return Entry("reset", body, self.run_id, at=self.at)

    @property
    def run_id(self) -> str:
        """Return the name under which it writes: what the runs before it still add is refused from then on."""
        return f"reset:{self.id}"


class SessionUse(Struct, frozen=True):
    """Use of a session by a message that is accepted: when, from where, and the reset that comes before it."""

    at: datetime
    origin: Origin = Origin()
    reset: Reset | None = None


def id_of(key: str, ordinal: int) -> str:
    """Return the id of one conversation of a session."""
    return f"{key}#{ordinal}"
