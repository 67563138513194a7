"""Composition of mails: an answer in the thread of the mail that it answers; pure.

Only the ids and the subject of another mail reach a header, each on one line; besides, the library refuses a header
with a line end.
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

from spar.channels.mail.automatic import LOOP_HEADER, OWN_HEADER
from spar.channels.mail.content.incoming import LONGEST_ID, LONGEST_SUBJECT, Mail

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
