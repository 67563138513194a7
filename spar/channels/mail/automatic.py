"""Mails that no person wrote: bounces, automatic answers, mailing lists, the agent's own. None of them reaches a
planner.

Answering one begins a loop (RFC 3834 section 2). Pure.
"""

from __future__ import annotations

from typing import Final

from spar.channels.mail.content.incoming import Mail

#: Headers with the address of the agent that wrote a mail: one for agents of this kind, one for other programs.
OWN_HEADER: Final = "x-spar-agent"
LOOP_HEADER: Final = "x-loop"
_LISTS: Final = ("list-id", "list-post", "list-unsubscribe", "list-help", "list-owner", "mailing-list")
_DAEMONS: Final = ("mailer-daemon", "mail-daemon", "postmaster", "noreply", "no-reply", "donotreply", "bounce")


def reason_not_to_plan(mail: Mail, address: str) -> str:
    """Return the reason not to answer a mail: `bounce`, `own`, `agent`, `automatic` or `list`; "" for a person's mail.

    Args: address: the agent's own.
    """
    sender = mail.sender.lower()
    path = mail.first("return-path").strip()
    local = sender.partition("@")[0]
    if mail.is_report or path in ("<>", "< >") or local in ("mailer-daemon", "mail-daemon", "postmaster"):
        return "bounce"
    if sender == address.lower() or address.lower() in (value.strip().lower() for value in mail.all(OWN_HEADER)):
        return "own"
    if any(address.lower() in value.lower() for value in mail.all(LOOP_HEADER)):
        return "own"
    if mail.first(OWN_HEADER):
        return "agent"
    if any(mail.first(name) for name in _LISTS) or mail.first("precedence").strip().lower() in ("list", "bulk", "junk"):
        return "list"
    submitted = mail.first("auto-submitted").partition(";")[0].strip().lower()
    if submitted not in ("", "no") or local in _DAEMONS:
        return "automatic"
    if (
        mail.first("x-autoreply")
        or mail.first("x-autorespond")
        or mail.first("x-auto-response-suppress").lower() == "all"
    ):
        return "automatic"
    return ""
