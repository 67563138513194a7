"""Message of a person in a mail: the new text, notes on attachments and on omitted parts; the attachments, saved into
the workspace; and the answer to it, a mail in the same thread.

A mail whose new text begins with "/" may be a command, so nothing is put before or behind it. Quoted text is never a
command. Only the ids and the subject of another mail reach a header of an answer, each on one line; besides, the
library refuses a header with a line end.

Tools write to the workspace too, so no link in it is followed, and nothing is overwritten except an earlier copy of
the same attachment. The sender chooses the names, so only their harmless characters are used.
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

from spar.fs.atomic import replace_file
from spar.fs.rooted import RootedDir
from spar.mail.incoming import LONGEST_ID, LONGEST_SUBJECT, Attachment, Mail
from spar.mail.origin import LOOP_HEADER, OWN_HEADER
from spar.mail.text import NewText, new_text, text_of

#: Characters of a mail's text that are read.
LONGEST_TEXT: Final = 100_000


#: The folder in the workspace.
FOLDER: Final = "mail"
#: Bytes of one saved attachment, and of all of a mail.
LARGEST, LARGEST_SUM = 5 * 1024 * 1024, 10 * 1024 * 1024
#: Characters of a file's name.
LONGEST_NAME: Final = 100


class Saved(Struct, frozen=True):
    """Outcome for one attachment: its path in the workspace, or the reason for leaving it out."""

    name: str
    size: int
    path: str = ""
    left_out: str = ""

    def line(self) -> str:
        """Return the outcome as a line for people."""
        outcome = f"saved as {self.path}" if self.path else f"left out: {self.left_out}"
        return f"- {self.name} ({size_text(self.size)}), {outcome}"


def save(attachments: Sequence[Attachment], workspace: str, mail: str, most: int) -> list[Saved]:
    """Save the attachments that fit into `mail/<mail>/` of the workspace. It blocks, so call it in a thread.

    Args: mail: the key of the mail, which is safe as a name; most: the number of attachments that are saved.
    """
    outcomes: list[Saved] = []
    names: set[str] = set()
    total = 0
    for number, attachment in enumerate(attachments):
        name, size = harmless(attachment.name, number), len(attachment.content)
        while name in names:
            name = f"{number}-{name}"
        names.add(name)
        if number >= most:
            outcomes.append(Saved(name, size, left_out=f"at most {most} attachments of a mail are saved"))
        elif size > LARGEST:
            outcomes.append(Saved(name, size, left_out=f"larger than {size_text(LARGEST)}"))
        elif total + size > LARGEST_SUM:
            outcomes.append(Saved(name, size, left_out=f"all together more than {size_text(LARGEST_SUM)}"))
        else:
            total += size
            outcomes.append(_saved(attachment, name, workspace, mail))
    return outcomes


def size_text(size: int) -> str:
    """Return a number of bytes for people: `12 kB`, `5.2 MB`."""
    return f"{size} bytes" if size < 1000 else f"{size / 1e3:.0f} kB" if size < 1e6 else f"{size / 1e6:.1f} MB"


def harmless(name: str, number: int) -> str:
    """Return a file name that can neither leave its folder nor be hidden."""
    base = name.replace("\\", "/").rpartition("/")[2]
    safe = "".join(sign if (sign.isalnum() and sign.isprintable()) or sign in "._-" else "_" for sign in base)
    while len(safe.encode()) > LONGEST_NAME * 2 or len(safe) > LONGEST_NAME:
        safe = safe[1:]
    return safe.lstrip(".-") or f"attachment-{number + 1}"


def _saved(attachment: Attachment, name: str, workspace: str, mail: str) -> Saved:
    size = len(attachment.content)
    try:
        with RootedDir(workspace).entry((FOLDER, mail, name), make=True) as (folder, file):
            replace_file(folder, file, attachment.content)
    except OSError as error:
        return Saved(name, size, left_out=f"it cannot be saved: {error.strerror or error}")
    return Saved(name, size, path=f"{FOLDER}/{mail}/{name}")


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
    quote = whole[:LONGEST_TEXT].strip()
    only_quoted = f"[this mail has no text of its own; it quotes:]\n{quote}" if quote else "[this mail has no text]"
    text = new.text or only_quoted
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
    for header, ids in (("In-Reply-To", [reply.get("message_id")]), ("References", reply.get("references", ()))):
        if known := [f"<{known_id}>" for known_id in ids if _is_id(known_id)]:
            message[header] = " ".join(known)
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
