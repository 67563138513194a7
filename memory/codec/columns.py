"""Values in the form of a row's columns: texts without NUL and lone surrogates, times, bodies with a checksum."""

from __future__ import annotations

from datetime import UTC, datetime
from hashlib import blake2b
from zlib import crc32

MAX_TEXT = 1 << 16  # characters of a text in a column, and at first of each text in a row that is too large


class AlteredError(ValueError):
    """Error of a text that does not fit its checksum."""


def sealed(text: str) -> str:
    """Add a checksum to a text of `encode`, so that each changed bit on the disk is noticed."""
    return f"{text}\n{crc32(text.encode('ascii')):08x}"


def is_safe(text: str, limit: int = MAX_TEXT) -> bool:
    """Return whether a column can store a text unchanged, by a quick check that may say False too often."""
    return len(text) <= limit and text.isascii() and "\0" not in text


def safe(text: object, limit: int = MAX_TEXT) -> str:
    """Return a text that a column can store: lone surrogates and NUL become escapes, at most `limit` characters.

    A longer text keeps its beginning and gets a digest of the whole at its end, so that different texts stay different.
    """
    result = text if type(text) is str else text_of(text)
    if is_safe(result, limit):
        return result
    if len(result) > limit:
        mark = blake2b(result.encode(errors="surrogatepass"), digest_size=12).hexdigest()
        result = f"{result[: max(limit - len(mark) - 1, 0)]}…{mark}" if limit > 2 * len(mark) else result[:limit]
    if "\0" in result:
        result = result.replace("\0", "\\x00")
    try:
        result.encode()
    except UnicodeEncodeError:
        result = result.encode(errors="backslashreplace").decode()
    return result


def seconds(at: datetime) -> float:
    """Return the seconds since 1970; a time without a zone is taken as UTC."""
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def text_of(value: object) -> str:
    """Return any object as text; its `repr` if it is no text."""
    if isinstance(value, str):  # a subclass
        return str.__str__(value)
    try:
        return repr(value)
    except Exception:
        return f"<{type(value).__name__} that cannot be shown>"
