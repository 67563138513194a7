"""Policy for senders: from a sender, as a channel names it, to a person and a trust; pure.

The configuration names senders exactly, by the domain of their address or by their channel. The most exact name
counts, and of two equally exact ones the denial. A person's decision about one sender (its row) goes before exact
names that are allowed, and after those that are denied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spar.records.senders import Admission, AllowedSender, SenderRow, SenderRules, patterns_of, read_sender

if TYPE_CHECKING:
    from spar.config.tables.senders import SenderSettings


def rules_of(settings: SenderSettings) -> SenderRules:
    """Return the senders that the configuration names, in the form that is compared."""
    allow = {
        read_sender(name, may_be_pattern=True): AllowedSender(entry.person, entry.trust)
        for entry in reversed(settings.allow)  # of two entries for one name the first counts
        for name in entry.senders
    }
    return SenderRules(allow, frozenset(read_sender(name, may_be_pattern=True) for name in settings.deny))


def judge(sender: str, rules: SenderRules, row: SenderRow | None) -> Admission:
    """Return the verdict on a sender whose address is known to be its own."""
    for name in patterns_of(sender):
        if name in rules.deny:
            return Admission(sender, "denied")
        if name == sender and row is not None and row.status == "denied":
            return Admission(sender, "denied", row.person)
        if name == sender and row is not None and row.status == "allowed":
            return Admission(sender, "allowed", row.person, row.trust)
        if (allowed := rules.allow.get(name)) is not None:
            return Admission(sender, "allowed", allowed.person, allowed.trust)
    return Admission(sender, "unknown")
