"""Masks for the varying words of a line: times, addresses, identifiers, durations, numbers, paths.

A word with a digit or a slash varies. Its class matters only to people, and is found when a template is shown. So
masking a line costs one translation and one split, for any text.
"""

from __future__ import annotations

from functools import cache, lru_cache

from spar.data.patterns import Pattern

CHARACTERS = 4_000  # bound of the characters of a line that are read
WORDS = 64  # words of a line that identify its template; the words after them vary
VARIES = "*"

Words = tuple[str, ...]  # the words of a line

#: All digits become "0", and a bar between fields separates words like a blank.
_SIGNS = bytes.maketrans(b"123456789/|", b"0000000000 ")
_DIGITS = str.maketrans("123456789|", "000000000 ")
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_CALENDAR = frozenset(f"{sign}{word}" for word in (*_DAYS, *_MONTHS) for sign in ("", "["))
#: Classes of varying words, as a template shows them; the first that fits decides.
_KINDS: tuple[tuple[str, str], ...] = (
    ("<time>", r"\A\W*(?:\d{4}[-./]\d\d[-./]\d\d\S*|\d\d?[:.]\d\d[:.]\d\d\S*|\d\d?/\w{3}/\d{4}\S*)\W*\z"),
    ("<address>", r"\A\W*(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){3,7})(?::\d+|/\d+)?\W*\z"),
    ("<id>", r"\A\W*[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}\W*\z"),
    ("<hex>", r"\A\W*(?:0x[0-9A-Fa-f]+|[0-9A-Fa-f]*[A-Fa-f][0-9A-Fa-f]{7,})\W*\z"),
    ("<duration>", r"\A\W*\d+(?:\.\d+)?(?:ns|us|µs|ms|s|sec|secs|min|h)\W*\z"),
    ("<number>", r"\A\W*\d+(?:[.,]\d+)*%?\W*\z"),
    ("<path>", r"\A\S*/\S*\z"),
)


def words_of_line(line: str) -> Words:
    """Return the words of a line with `VARIES` in place of the varying ones; at most `WORDS` words and one `VARIES`
    for the rest."""
    # Translating bytes takes a tenth of the time, and so does searching text.
    signs = line[:CHARACTERS].encode("utf-8", "replace").translate(_SIGNS)
    words = signs.decode("utf-8", "replace").split(None, WORDS)
    if len(words) > WORDS or len(line) > CHARACTERS:
        words[WORDS:] = [VARIES]
    return tuple([VARIES if "0" in word or word in _CALENDAR else word for word in words])


def shown(words: Words, example: str) -> str:
    """Return a template in a form for people; the example gives the classes of the varying words."""
    example_words = example[:CHARACTERS].translate(_DIGITS).split(None, WORDS)
    if len(example_words) != len(words):
        example_words = list(words)
    return " ".join(
        _kind(example_word) if word == VARIES else word for word, example_word in zip(words, example_words, strict=True)
    )


@lru_cache(4_096)
def _kind(word: str) -> str:
    return next((name for name, pattern in _patterns() if pattern.search(word) is not None), "<*>")


@cache
def _patterns() -> tuple[tuple[str, Pattern], ...]:
    return tuple((name, Pattern(text)) for name, text in _KINDS)
