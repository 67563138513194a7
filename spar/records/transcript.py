"""Transcript of a session, in order: its values, and its port.

It only ever grows. What a cycle of a run adds becomes durable together with the cycle's end, so a call never stands
there without its result. A compaction is an entry as well: what it sums up stays, and is not read to the model again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal, Protocol, runtime_checkable

from msgspec import Struct, field

from spar.checks import shorten
from spar.types import utcnow

#: Characters of a note at the entry of a compaction.
LONGEST_NOTE: Final = 2_000

#: `user`: {text, id, trust, outcome}: a message; `turn`: {calls: [{call, status, reason, output, error}], reason,
#: output, said}: what one cycle of a run planned and what came of it; `end`: {status, error, output, reply}: how a run
#: ended;
#: `compaction`: {summary, kept, note, by, first_kept, tokens_before, tokens_after}: entries before `first_kept` are
#: read no more; of two for the same `first_kept` the second says all that the first does;
#: `reset`: {reason, by, ended, begun}: a conversation ended, and what stands before is read no more.
EntryKind = Literal["user", "turn", "end", "compaction", "reset"]


class Entry(Struct, frozen=True):
    """One entry; `seq` grows strictly within its session (0: not kept yet)."""

    kind: EntryKind
    body: dict[str, Any]
    run_id: str = ""
    seq: int = 0
    at: datetime = field(default_factory=utcnow)

    @property
    def has_usable_note(self) -> bool:
        """Return whether its note, if it has one, is a text of at most 2,000 characters."""
        note = self.body.get("note", "")
        return isinstance(note, str) and len(note) <= LONGEST_NOTE

    def noted(self, note: str) -> Entry:
        """Return the entry of a compaction with a note, which the model reads behind the summary.

        Raises: TypeError, ValueError for a note that is no text of at most 2,000 characters.
        """
        if not isinstance(note, str):
            raise TypeError(f"a note is a text, found {shorten(note, 60)}")
        if len(note) > LONGEST_NOTE:
            raise ValueError(f"the note has {len(note)} characters, expected at most {LONGEST_NOTE}")
        return Entry(self.kind, {**self.body, "note": note}, self.run_id, self.seq, self.at)


@runtime_checkable
class Transcripts(Protocol):
    """The transcripts of one agent's sessions, as a planner is lent them."""

    async def read(self, session: str) -> Sequence[Entry]:
        """Return the entries since the last compaction, oldest first; the compaction entry is the first one. Nothing
        from before the last reset is among them."""
        ...

    async def compact(self, session: str, run_id: str, entry: Entry) -> None:
        """Add a compaction; kept when this returns. Raises: FencedError when the run is not its session's any more."""
        ...
