"""List of senders: those that the configuration names, and those that people have decided about or that wait."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from msgspec import Struct

from spar.records.senders import AllowedSender, SenderRow, SenderRules, SenderStatus, read_sender
from spar.types import Trust


class SenderView(Struct, frozen=True):
    """Sender in a list. `origin` is "settings" or "people"; `messages` counts the messages that were not accepted."""

    sender: str
    status: SenderStatus
    origin: str
    person: str = ""
    trust: Trust = "untrusted"
    messages: int = 0
    first_at: datetime | None = None
    last_at: datetime | None = None
    decided_at: datetime | None = None
    by: str = ""
    code_expires_at: datetime | None = None


def view_of(row: SenderRow) -> SenderView:
    """Return a row as it is listed."""
    return SenderView(row.id, row.status, "people", row.person, row.trust, row.messages, row.first_at, row.last_at,
                      row.decided_at, row.by, row.expires_at)  # fmt: skip


def views_of(rows: Iterable[SenderRow], rules: SenderRules, status: str | None) -> list[SenderView]:
    """Return the senders of a status (None: all): first those with a row, the newest first, then the configured
    ones."""
    configured = [SenderView(name, "allowed", "settings", terms.person, terms.trust)
                  for name, terms in rules.allow.items()]  # fmt: skip
    configured += [SenderView(name, "denied", "settings") for name in sorted(rules.deny)]
    newest = sorted(rows, key=_newest, reverse=True)
    return [view for view in (*map(view_of, newest), *configured) if status in (None, view.status)]


def _newest(row: SenderRow) -> tuple[float, str]:
    at = row.last_at or row.decided_at or row.first_at
    return (at.timestamp() if at is not None else 0.0, row.id)


def rules_of(settings: Any) -> SenderRules:
    """Return the senders that the configuration names, its table `[senders]`, in the form that is compared."""
    allow = {
        read_sender(name, may_be_pattern=True): AllowedSender(entry.person, entry.trust)
        for entry in reversed(settings.allow)  # of two entries for one name the first counts
        for name in entry.senders
    }
    return SenderRules(allow, frozenset(read_sender(name, may_be_pattern=True) for name in settings.deny))
