"""Plan of a compaction: the part of a session's transcript that is about to be summarised, and changes by hooks.

A hook at `before_compaction` gets one and may rewrite it:

    return Decision.rewrite(ctx.value.keeping("The customer number is 4711."))
    return Decision.rewrite(ctx.value.summed_up("They agreed on Friday, 9:00."))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct
from msgspec.structs import force_setattr

from spar.checks import shorten
from spar.records.transcript import Entry

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
