"""Message of a person in a mail: the new text, notes on attachments and on omitted parts; pure.

A mail whose new text begins with "/" may be a command, so nothing is put before or behind it. Quoted text is never a
command.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

from msgspec import Struct

from spar.channels.mail.content.attachments import Saved
from spar.channels.mail.content.html_text import text_of
from spar.channels.mail.content.incoming import Mail
from spar.channels.mail.content.quoted import NewText, new_text
from spar.channels.mail.reply import answer_subject

#: Characters of a mail's text that are read.
LONGEST_TEXT: Final = 100_000


class MailText(Struct, frozen=True):
    """Message of a mail: its text, and the attributes of its perception."""

    text: str
    attributes: dict[str, Any]


def message_of(mail: Mail, saved: Sequence[Saved], original: str) -> MailText:
    """Return the message of a mail.

    Args: saved: its attachments; original: the address of the whole mail.
    """
    whole = mail.text if mail.text.strip() else text_of(mail.html)
    new = new_text(whole[:LONGEST_TEXT])
    attributes: dict[str, Any] = {
        "subject": mail.subject, "message_id": mail.message_id, "original": original,
        "attachments": [outcome.path for outcome in saved if outcome.path],
        "quoted_lines": new.quoted,
    }  # fmt: skip
    if new.text.startswith("/"):
        return MailText(new.text, attributes)
    is_reply = answer_subject(mail.subject) == mail.subject
    head = f"Subject: {mail.subject}\n\n" if mail.subject and not is_reply else ""
    text = new.text or _only_quoted(whole[:LONGEST_TEXT])
    return MailText("\n\n".join(filter(None, (head + text, *_notes(new, saved, len(whole))))), attributes)


def session_of(channel: str, mail: Mail, by: str) -> str:
    """Return the conversation of a mail, "" for that of its sender.

    A thread belongs to one sender: a mail that names the ids of another person's mails does not join that person's
    conversation.
    """
    if by == "sender":
        return ""
    root = next(iter(mail.references), mail.message_id)
    return f"{channel}:{mail.sender.lower()}#{sha256(root.encode('utf-8', 'replace')).hexdigest()[:12]}"


def _only_quoted(whole: str) -> str:
    text = whole.strip()
    return f"[this mail has no text of its own; it quotes:]\n{text}" if text else "[this mail has no text]"


def _notes(new: NewText, saved: Sequence[Saved], length: int) -> list[str]:
    """Return the notes on omitted parts and attachments, so that no part is left out silently."""
    notes = []
    if length > LONGEST_TEXT:
        notes.append(f"[the mail has {length} characters; {LONGEST_TEXT} were read]")
    if new.quoted and new.text:
        notes.append(f"[{new.quoted} lines of quoted mails left out]")
    if saved:
        notes.append("\n".join(("Attachments:", *(outcome.line() for outcome in saved))))
    return notes
