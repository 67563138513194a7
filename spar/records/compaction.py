"""Plan of a compaction: what of a session's transcript is about to be summed up, and what hooks want of it.

A hook at `before_compaction` is shown one and may rewrite it:

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

#: Characters of all texts together that are kept to the letter, and of a summary that a hook brings.
MOST_KEPT: Final = 8_000
LONGEST_SUMMARY: Final = 20_000


class CompactionPlan(Struct, frozen=True):
    """Plan of a compaction.

    `entries` are to be summed up, oldest first, the last summary among them; `identifiers` are the paths, addresses,
    names and numbers found in what people said there, which the summary has to repeat. `keep` is what stays to the
    letter, whatever the summary says: at first what the last compaction kept, at most 8,000 characters in all.
    `summary` is a hook's own ("": a model is asked for one), at most 20,000 characters.

    Raises: TypeError, ValueError for `keep` or `summary` that cannot be used.
    """

    session: str
    reason: CompactionReason
    entries: tuple[Entry, ...]
    identifiers: tuple[str, ...] = ()
    keep: Sequence[str] = ()
    summary: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.keep, str) or not all(isinstance(each, str) for each in self.keep):
            raise TypeError(f"keep is a list of texts, found {shorten(self.keep, 60)}")
        texts = tuple(dict.fromkeys(each for each in self.keep if each.strip()))
        force_setattr(self, "keep", texts)
        if (size := sum(map(len, texts))) > MOST_KEPT:
            raise ValueError(f"what is kept to the letter has {size} characters, expected at most {MOST_KEPT} in all")
        if not isinstance(self.summary, str):
            raise TypeError(f"a summary is a text, found {shorten(self.summary, 60)}")
        if len(self.summary) > LONGEST_SUMMARY:
            raise ValueError(f"the summary has {len(self.summary)} characters, expected at most {LONGEST_SUMMARY}")

    def keeping(self, *texts: str) -> CompactionPlan:
        """Return this plan with these texts kept to the letter as well. Raises: TypeError, ValueError."""
        return CompactionPlan(self.session, self.reason, self.entries, self.identifiers, (*self.keep, *texts),
                              self.summary)  # fmt: skip

    def summed_up(self, summary: str) -> CompactionPlan:
        """Return this plan with a summary, so that no model is asked for one. Raises: TypeError, ValueError."""
        return CompactionPlan(self.session, self.reason, self.entries, self.identifiers, self.keep, summary)
