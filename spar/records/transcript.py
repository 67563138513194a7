"""Transcript of a session, in order: its values, and its port.

Entries are only added. Those of a run's cycle become durable together with the cycle's end, so a call never stands
there without its result. A compaction is an entry too: the entries that it summarises stay, but the model does not read
them again. A hook at `before_compaction` gets the plan of one (`Compaction`) and may rewrite it:

    return Decision.rewrite(ctx.value.keeping("The customer number is 4711."))
    return Decision.rewrite(ctx.value.summed_up("They agreed on Friday, 9:00."))
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal, Protocol, runtime_checkable

from msgspec import Struct, field
from msgspec.structs import force_setattr

from spar.checks import shorten
from spar.types import replace, utcnow

#: Most characters of a note in the entry of a compaction.
LONGEST_NOTE: Final = 2_000

#: Bodies of the kinds of entries.
#: `user`: {text, id, trust, outcome}: a message.
#: `turn`: {calls: [{call, status, reason, output, error}], reason, output, said, additions, signed}: the plan and the
#: results of one cycle of a run; `additions` and `signed` are those of its action.
#: `end`: {status, error, output, reply}: the end of a run.
#: `compaction`: {summary, kept, note, by, first_kept, tokens_before, tokens_after}: entries before `first_kept` are not
#: read any more; of two with the same `first_kept` the second contains all of the first.
#: `reset`: {reason, by, ended, begun}: the end of a conversation; earlier entries are not read any more.
EntryKind = Literal["user", "turn", "end", "compaction", "reset"]


class Entry(Struct, frozen=True):
    """Entry of a transcript; `seq` grows strictly within its session (0: not stored yet)."""

    kind: EntryKind
    body: dict[str, Any]
    run_id: str = ""
    seq: int = 0
    at: datetime = field(default_factory=utcnow)

    @property
    def shown(self) -> Entry:
        """Return the entry as people may read it: without what is only for the provider of a model, such as its
        thoughts."""
        if "signed" not in self.body:
            return self
        return replace(self, body={name: value for name, value in self.body.items() if name != "signed"})

    @property
    def call_ids(self) -> tuple[str, ...]:
        """Return the ids of its calls."""
        calls = self.body.get("calls") if isinstance(self.body.get("calls"), list) else ()
        return tuple(str(row["call"].get("_id")) for row in calls or () if isinstance(row.get("call"), dict))

    @property
    def line(self) -> str:
        """Return the entry as one line for people."""
        body = self.body
        if self.kind == "turn":
            calls = body.get("calls") if isinstance(body.get("calls"), list) else []
            outcomes = [f"{result['call'].get('_tool', '?')}: {result.get('status', '?')}" for result in calls or ()
                        if isinstance(result, dict) and isinstance(result.get("call"), dict)]  # fmt: skip
            return "; ".join([*outcomes, *([_text(body["output"])] if body.get("output") is not None else [])])
        if self.kind == "reset":
            by = f" by {body['by']}" if body.get("by") else ""
            return f"{body.get('begun', '')} begins: {body.get('reason', '')}{by}"
        field = {"user": "text", "end": "reply", "compaction": "summary"}[self.kind]
        return _text(body.get("error") or body.get(field) or body.get("status") or "")

    @property
    def has_usable_note(self) -> bool:
        """Return whether its note, if it has one, is a text of at most 2,000 characters."""
        note = self.body.get("note", "")
        return isinstance(note, str) and len(note) <= LONGEST_NOTE

    def noted(self, note: str) -> Entry:
        """Return the entry of a compaction with a note, which the model reads after the summary.

        Raises: TypeError, ValueError for a note that is not a text of at most 2,000 characters.
        """
        if not isinstance(note, str):
            raise TypeError(f"a note is a text, found {shorten(note, 60)}")
        if len(note) > LONGEST_NOTE:
            raise ValueError(f"the note has {len(note)} characters, expected at most {LONGEST_NOTE}")
        return Entry(self.kind, {**self.body, "note": note}, self.run_id, self.seq, self.at)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def still_read(entries: Sequence[Entry]) -> Sequence[Entry]:
    """Return the entries that a planner still reads, of all entries of a session: those since the last reset, or the
    last summary since then and what it kept."""
    begun = max((number for number, entry in enumerate(entries, 1) if entry.kind == "reset"), default=0)
    summary = next((entry for entry in reversed(entries[begun:]) if entry.kind == "compaction"), None)
    if summary is None:
        return entries[begun:]
    first = int(summary.body.get("first_kept") or summary.seq)
    return [summary, *(entry for entry in entries[begun:] if entry.kind != "compaction" and entry.seq >= first)]


class FoundEntry(Struct, frozen=True):
    """Entry that a search found, and its session."""

    session: str
    entry: Entry


class TranscriptSummary(Struct, frozen=True):
    """Summary of one session's transcript: the number and bytes of its entries, time and run of the last entry."""

    session: str
    entries: int
    bytes: int
    last_at: datetime
    run_id: str


@runtime_checkable
class Transcripts(Protocol):
    """Transcripts of one agent's sessions, for its planner."""

    async def read(self, session: str) -> Sequence[Entry]:
        """Return the entries since the last compaction, the oldest first; the compaction entry is the first one.

        None from before the last reset is among them.
        """

    async def compact(self, session: str, run_id: str, entry: Entry) -> None:
        """Add a compaction; durable when this returns. Raises: FencedError when another run has taken over the
        session."""


CompactionReason = Literal["overflow", "threshold"]

#: Most characters of all texts that are kept literally, and of a summary by a hook.
MOST_KEPT: Final = 8_000
LONGEST_SUMMARY: Final = 20_000


class CompactionPlan(Struct, frozen=True):
    """Plan of a compaction.

    `entries` are to be summarised, the oldest first, including the last summary; `identifiers` are the paths,
    addresses, names and numbers in people's messages there, which the summary must repeat. `keep` are texts that are
    kept literally, whatever the summary says: at first those of the last compaction, at most 8,000 characters in all.
    `summary` is a hook's own ("": a model writes it), at most 20,000 characters.

    Raises: TypeError, ValueError for `keep` or `summary` that cannot be used.
    """

    session: str
    reason: CompactionReason
    entries: tuple[Entry, ...]
    identifiers: tuple[str, ...] = ()
    keep: Sequence[str] = ()
    summary: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.keep, str) or not all(isinstance(text, str) for text in self.keep):
            raise TypeError(f"keep is a list of texts, found {shorten(self.keep, 60)}")
        texts = tuple(dict.fromkeys(text for text in self.keep if text.strip()))
        force_setattr(self, "keep", texts)
        if (size := sum(map(len, texts))) > MOST_KEPT:
            raise ValueError(f"what is kept to the letter has {size} characters, expected at most {MOST_KEPT} in all")
        if not isinstance(self.summary, str):
            raise TypeError(f"a summary is a text, found {shorten(self.summary, 60)}")
        if len(self.summary) > LONGEST_SUMMARY:
            raise ValueError(f"the summary has {len(self.summary)} characters, expected at most {LONGEST_SUMMARY}")

    def keeping(self, *texts: str) -> CompactionPlan:
        """Return this plan with these texts kept literally too. Raises: TypeError, ValueError."""
        return CompactionPlan(self.session, self.reason, self.entries, self.identifiers, (*self.keep, *texts),
                              self.summary)  # fmt: skip

    def summed_up(self, summary: str) -> CompactionPlan:
        """Return this plan with a summary, so that no model writes one. Raises: TypeError, ValueError."""
        return CompactionPlan(self.session, self.reason, self.entries, self.identifiers, self.keep, summary)
