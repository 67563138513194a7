"""Message of a person in a mail: what is new in it, what came with it, and what was left out; pure but for the saving.

A mail whose new text begins with "/" may be a command: nothing is put before it or behind it. What is only quoted never
is one.
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
    """Message that a mail is: its text, and what stands beside it in the perception."""

    text: str
    attributes: dict[str, Any]


def message_of(mail: Mail, saved: Sequence[Saved], original: str) -> MailText:
    """Return the message of a mail.

    Args: saved: its attachments; original: where the whole mail is.
    """
    whole = mail.text if mail.text.strip() else text_of(mail.html)
    new = new_text(whole[:LONGEST_TEXT])
    attributes: dict[str, Any] = {
        "subject": mail.subject, "message_id": mail.message_id, "original": original,
        "attachments": [each.path for each in saved if each.path],
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

    A thread belongs to one sender: naming the ids of another's mails leads into no conversation but one's own.
    """
    if by == "sender":
        return ""
    root = next(iter(mail.references), mail.message_id)
    return f"{channel}:{mail.sender.lower()}#{sha256(root.encode('utf-8', 'replace')).hexdigest()[:12]}"


def _only_quoted(whole: str) -> str:
    text = whole.strip()
    return f"[this mail has no text of its own; it quotes:]\n{text}" if text else "[this mail has no text]"


def _notes(new: NewText, saved: Sequence[Saved], length: int) -> list[str]:
    """Return what is said of that which was left out, so that nothing is in silence."""
    notes = []
    if length > LONGEST_TEXT:
        notes.append(f"[the mail has {length} characters; {LONGEST_TEXT} were read]")
    if new.quoted and new.text:
        notes.append(f"[{new.quoted} lines of quoted mails left out]")
    if saved:
        notes.append("\n".join(("Attachments:", *(each.line() for each in saved))))
    return notes
