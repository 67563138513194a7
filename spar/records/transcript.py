"""Transcript of a session, in order: its values, and its port.

It only ever grows. What a cycle of a run adds becomes durable together with the cycle's end, so a call never stands
there without its result. A compaction is an entry as well: what it sums up stays, and is not read to the model again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal, Protocol, runtime_checkable

from msgspec import Struct, field

from spar.types import utcnow

#: `user`: {text, id, trust, outcome}: a message; `turn`: {calls: [{call, status, reason, output, error}], reason,
#: output}: what one cycle of a run planned and what came of it; `end`: {status, error, output, reply}: how a run ended;
#: `compaction`: {summary, first_kept, tokens_before, tokens_after}: entries before `first_kept` are read no more;
#: `reset`: {reason, by, ended, begun}: a conversation ended, and what stands before is read no more.
EntryKind = Literal["user", "turn", "end", "compaction", "reset"]


class Entry(Struct, frozen=True):
    """One entry; `seq` grows strictly within its session (0: not kept yet)."""

    kind: EntryKind
    body: dict[str, Any]
    run_id: str = ""
    seq: int = 0
    at: datetime = field(default_factory=utcnow)


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
