"""Values as the columns of a row take them: texts without NUL and lone surrogates, times, bodies with a checksum."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import blake2b
from zlib import crc32

MAX_TEXT = 1 << 16  # characters of a text in a column, and at first of each text in a row that is too large


class AlteredError(ValueError):
    """A text does not say any more what was written."""


def sealed(text: str) -> str:
    """Add a checksum to what `encode` wrote, so that no bit of it can change unseen while it lies on disk."""
    return f"{text}\n{crc32(text.encode('ascii')):08x}"


def unsealed(text: str) -> str:
    """Remove the checksum; a text without one is given back as it is. Raises: AlteredError when the checksum does not
    fit."""
    if text[-9:-8] != "\n":
        return text
    body = text[:-9]
    if f"{crc32(body.encode(errors='replace')):08x}" != text[-8:]:
        raise AlteredError("its checksum does not fit: it was altered")
    return body


def is_safe(text: str, limit: int = MAX_TEXT) -> bool:
    """Return whether a quick look finds that a column takes a text as it is."""
    return len(text) <= limit and text.isascii() and "\0" not in text


def safe(text: object, limit: int = MAX_TEXT) -> str:
    """Text that a column takes: lone surrogates and NUL replaced by their escapes, never longer than `limit`.

    What is longer keeps its beginning and has a digest of the whole at its end: what differs stays different.
    """
    kept = text if type(text) is str else text_of(text)
    if is_safe(kept, limit):
        return kept
    if len(kept) > limit:
        mark = blake2b(kept.encode(errors="surrogatepass"), digest_size=12).hexdigest()
        kept = f"{kept[: max(limit - len(mark) - 1, 0)]}…{mark}" if limit > 2 * len(mark) else kept[:limit]
    if "\0" in kept:
        kept = kept.replace("\0", "\\x00")
    try:
        kept.encode()
    except UnicodeEncodeError:
        kept = kept.encode(errors="backslashreplace").decode()
    return kept


def seconds(at: datetime) -> float:
    """Return the seconds since 1970; a time without a zone is taken as UTC."""
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def text_of(value: object) -> str:
    """Return any object as text: its `repr`, where it is none."""
    if isinstance(value, str):  # a subclass
        return str.__str__(value)
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__} that cannot be shown>"
