"""Incoming mails: from raw bytes to the few values that are used; pure and bounded.

The library parses headers strictly by RFC 5322, at a cost that grows with the square of their length and the depth of
their nesting: both are bounded before. A mail that cannot be read within the bounds is an `UnreadableError`.
"""

from __future__ import annotations

import codecs
import email
import re
from collections.abc import Iterator
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import EmailPolicy
from hashlib import sha256
from typing import Any, Final

from msgspec import Struct

#: Characters of one header that are read.
LONGEST_HEADER: Final = 4096
#: Bounds of one mail: nested parts, lines that may begin a part, headers.
MOST_BOUNDARIES: Final = 30
MOST_PARTS: Final = 10_000
MOST_HEADERS: Final = 2000
#: Bound of the ids of earlier mails.
MOST_REFERENCES: Final = 100
#: Characters of a message's id, and of a subject, that are used.
LONGEST_ID, LONGEST_SUBJECT = 250, 300

_ID = re.compile(r"<([^<>\s]{1,250})>")
_BOUNDARY = re.compile(rb"boundary[\s*0-9]{0,20}=", re.IGNORECASE)
#: Types of mails and of their parts that report on another mail.
_REPORTS: Final = ("multipart/report", "message/delivery-status", "message/disposition-notification")
#: Encodings that are used by their names. All others are read as UTF-8, because some take very long for crafted input.
_CHARSETS: Final = (
    "|ascii|utf-8|utf-8-sig|utf-16|utf-16-le|utf-16-be|koi8-r|koi8-u|gb2312|gbk|gb18030|big5|big5hkscs|shift_jis|cp932"
    "|euc_jp|euc_kr|cp949|iso2022_jp|mac-roman|cp437|cp850|cp866|cp874|cp1250|cp1251|cp1252|cp1253|cp1254|cp1255|cp1256"
    "|cp1257|cp1258|iso8859-1|iso8859-2|iso8859-3|iso8859-4|iso8859-5|iso8859-6|iso8859-7|iso8859-8|iso8859-9"
    "|iso8859-10|iso8859-13|iso8859-14|iso8859-15|iso8859-16|"
)


class UnreadableError(ValueError):
    """Error for a mail that is not read: nested too deeply, too many headers, or not parsable by the library."""


class Attachment(Struct, frozen=True):
    """One attachment: the name that its sender gave it, and its bytes."""

    name: str
    content: bytes


class Mail(Struct, frozen=True):
    """Parsed mail.

    `sender` is the one address in From, "" when there is not exactly one readable address. `key` is the same for each
    delivery of one mail. `headers` are the raw ones, with lower-case names, in order.
    """

    sender: str
    subject: str
    message_id: str
    references: tuple[str, ...]
    text: str
    html: str
    headers: tuple[tuple[str, str], ...]
    attachments: tuple[Attachment, ...] = ()
    is_report: bool = False

    def all(self, name: str) -> list[str]:
        """Return the values of all headers of this name, the topmost first."""
        return [value for known, value in self.headers if known == name]

    def first(self, name: str) -> str:
        """Return the value of the topmost header of this name, "" without one."""
        return next((value for known, value in self.headers if known == name), "")

    @property
    def key(self) -> str:
        """Return a digest that is the same for another delivery of the mail; another sender cannot produce it."""
        whole = "\n".join(f"{name}:{value}" for name, value in self.headers if name in ("date", "subject"))
        identity = self.message_id or f"{whole}\n{self.text}\n{self.html}"
        return sha256(f"{self.sender}\n{identity}".encode("utf-8", "replace")).hexdigest()[:32]


class _Bounded(EmailPolicy):
    """Policy `email.policy.default` that reads only the beginning of a long header."""

    def header_source_parse(self, sourcelines: list[str]) -> tuple[str, str]:
        name, value = super().header_source_parse(sourcelines)
        known = value[:LONGEST_HEADER]
        if len(value) > LONGEST_HEADER and name.lower() == "authentication-results":
            known = known.partition(";")[0]  # a cut `header.d=example.org.evil.net` could name another domain
        return name[:100], known


_POLICY: Final = _Bounded(utf8=True)


def read_mail(raw: bytes) -> Mail:
    """Return the mail of these bytes. Raises: UnreadableError."""
    boundaries = sum(1 for _ in _BOUNDARY.finditer(raw))
    if boundaries > MOST_BOUNDARIES:
        raise UnreadableError(f"its parts are nested {boundaries} times, at most {MOST_BOUNDARIES} are read")
    if raw.count(b"\n--") > MOST_PARTS:
        raise UnreadableError(f"it has more than {MOST_PARTS} parts")
    try:
        message = email.message_from_bytes(raw, policy=_POLICY)
        assert isinstance(message, EmailMessage)
        return _mail(message)
    except UnreadableError:
        raise
    except Exception as error:  # the library raises errors of any kind, from AttributeError to RecursionError
        raise UnreadableError(f"it cannot be parsed: {type(error).__name__}") from None


def _mail(message: EmailMessage) -> Mail:
    headers = tuple((name.lower(), _flat(str(value))) for name, value in message.raw_items())
    if len(headers) > MOST_HEADERS:
        raise UnreadableError(f"it has {len(headers)} headers, at most {MOST_HEADERS} are read")
    parts = list(_leaves(message))
    bodies = {part.get_content_type(): part for part in reversed(parts) if _is_body(part)}  # the first of each type
    text, html = bodies.get("text/plain"), bodies.get("text/html")
    kinds = {part.get_content_type() for part in (message, *parts)}
    return Mail(
        sender=_sender(message, headers),
        subject=_flat(str(_header(message, "subject") or ""))[:LONGEST_SUBJECT],
        message_id=next(iter(_ids(headers, "message-id")), ""),
        references=tuple(dict.fromkeys([*_ids(headers, "references"), *_ids(headers, "in-reply-to")])),
        text=_text(text) if text is not None else "",
        html=_text(html) if html is not None else "",
        headers=headers,
        attachments=tuple(_attachment(part) for part in parts if part is not text and part is not html),
        is_report=not kinds.isdisjoint(_REPORTS),
    )


def _leaves(part: EmailMessage) -> Iterator[EmailMessage]:
    """Yield the parts with their own content; a mail inside a mail is one of them."""
    waiting: list[Any] = [part]
    while waiting:
        part = waiting.pop(0)
        if part.is_multipart() and part.get_content_maintype() == "multipart":
            waiting[:0] = list(part.iter_parts())
        else:
            yield part


def _is_body(part: EmailMessage) -> bool:
    return part.get_content_disposition() != "attachment" and part.get_filename() is None


def _text(part: EmailMessage) -> str:
    payload = part.get_payload(decode=True)
    charset = str(part.get_content_charset() or "utf-8")
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):
        name = ""
    content = payload if isinstance(payload, bytes) else b""
    text = content.decode(name if name and f"|{name}|" in _CHARSETS else "utf-8", "replace")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _attachment(part: EmailMessage) -> Attachment:
    is_mail = part.is_multipart()
    content = b"".join(map(bytes, part.iter_parts())) if is_mail else part.get_payload(decode=True)
    name = part.get_filename() or ("mail.eml" if is_mail else f"part.{part.get_content_subtype()}")
    return Attachment(_flat(name), content if isinstance(content, bytes) else b"")


def _sender(message: EmailMessage, headers: tuple[tuple[str, str], ...]) -> str:
    """Return the address in From; "" unless there is exactly one From with one address, without any defect."""
    value = _header(message, "from") if sum(name == "from" for name, _ in headers) == 1 else None
    addresses: tuple[Address, ...] = () if value is None or value.defects else value.addresses
    if len(addresses) != 1 or not (addresses[0].username and addresses[0].domain):
        return ""
    address = addresses[0].addr_spec
    return address if "@" in address and '"' not in address else ""


def _header(message: EmailMessage, name: str) -> Any:
    """Return a header as the library reads it; None for one that it cannot read, for which it raises any error."""
    try:
        return message[name]
    except Exception:
        return None


def _ids(headers: tuple[tuple[str, str], ...], name: str) -> list[str]:
    """Return the ids in the topmost header of this name, in order; of too many the first and the last ones."""
    value = next((value for known, value in headers if known == name), "")
    ids = _ID.findall(value)
    return ids if len(ids) <= MOST_REFERENCES else [ids[0], *ids[1 - MOST_REFERENCES :]]


def _flat(text: str) -> str:
    """Return a text on one line, without control characters and lone surrogates."""
    whole = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return " ".join("".join(sign if sign.isprintable() or sign.isspace() else " " for sign in whole).split())
