"""Message of a person in a mail: the new text, notes on attachments and on omitted parts; and the answer to it, a mail
in the same thread; pure.

A mail whose new text begins with "/" may be a command, so nothing is put before or behind it. Quoted text is never a
command. Only the ids and the subject of another mail reach a header of an answer, each on one line; besides, the
library refuses a header with a line end.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from hashlib import sha256
from typing import Any, Final

from msgspec import Struct

from spar.channels.mail.content.attachments import Saved
from spar.channels.mail.content.incoming import LONGEST_ID, LONGEST_SUBJECT, Mail
from spar.channels.mail.content.text import NewText, new_text, text_of
from spar.channels.mail.origin import LOOP_HEADER, OWN_HEADER

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


#: Bound of the earlier mails that an answer names: the first of its thread, and the last ones.
MOST_REFERENCES: Final = 20
_PREFIXES: Final = ("re:", "aw:", "sv:", "antw:", "vs:", "odp:")


def reply_of(mail: Mail) -> dict[str, Any]:
    """Return the data of a mail that its answer needs; JSON-able and small."""
    ids = [*mail.references, mail.message_id] if mail.message_id else list(mail.references)
    return {"subject": mail.subject, "message_id": mail.message_id, "references": _fewer(ids)}


def answer_subject(subject: str) -> str:
    """Return the subject of an answer."""
    line = " ".join(subject.split())[:LONGEST_SUBJECT] or "your message"
    return line if line.lower().startswith(_PREFIXES) else f"Re: {line}"


def compose(own: Address, to: str, text: str, reply: dict[str, Any], *, id: str, at: datetime,
            subject: str = "") -> EmailMessage:  # fmt: skip
    """Return a mail to one person.

    Args: own: the agent's address; reply: data of the mail that it answers (`reply_of`), {} where there is none; id:
    the same at each attempt, so that mail servers recognise a repetition; subject: of a mail that answers none.

    Raises: ValueError for an invalid address.
    """
    message = EmailMessage(policy=SMTP)
    local, at_sign, domain = to.rpartition("@")
    if not (local and at_sign and domain) or not to.isprintable() or any(sign in to for sign in ' <>,;:"\\'):
        raise ValueError(f"{to!r:.100} is no address that a mail can go to")
    message["From"] = own
    message["To"] = Address(username=local, domain=domain)
    message["Subject"] = answer_subject(str(reply.get("subject", ""))) if reply else subject or "A message from spar"
    message["Date"] = format_datetime(at)
    message["Message-ID"] = message_id(id, own.domain)
    earlier = [known_id for known_id in reply.get("references", ()) if _is_id(known_id)]
    if _is_id(reply.get("message_id")):
        message["In-Reply-To"] = f"<{reply['message_id']}>"
    if earlier:
        message["References"] = " ".join(f"<{earlier_id}>" for earlier_id in earlier)
    message["Auto-Submitted"] = "auto-replied" if reply else "auto-generated"
    message[OWN_HEADER] = own.addr_spec
    message[LOOP_HEADER] = own.addr_spec
    message.set_content(text.encode("utf-8", "replace").decode() + "\n", charset="utf-8")
    return message


def message_id(id: str, domain: str) -> str:
    """Return the id of a mail, which is the same at each attempt to send it."""
    return f"<spar.{sha256(id.encode('utf-8', 'replace')).hexdigest()[:32]}@{domain}>"


def _fewer(ids: Sequence[str]) -> list[str]:
    known = list(dict.fromkeys(known_id[:LONGEST_ID] for known_id in ids))
    return known if len(known) <= MOST_REFERENCES else [known[0], *known[1 - MOST_REFERENCES :]]


def _is_id(value: Any) -> bool:
    is_text = isinstance(value, str) and 0 < len(value) <= LONGEST_ID and value.isascii() and value.isprintable()
    return is_text and not any(sign in value for sign in " <>")
