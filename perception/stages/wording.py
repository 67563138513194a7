"""Wording of perceptions: the words that name a thing, and the similarity of two texts.

Similarity is the Jaccard index of single words and pairs of words, computed from a bottom-k sketch (Cohen and Kaplan,
"Summarizing data using bottom-k sketches", PODC 2007; exact up to `SKETCH` marks). Candidates come from prefix
filtering (Chaudhuri et al., "A primitive operator for similarity joins", ICDE 2006).
"""

from __future__ import annotations

import itertools
import json
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from itertools import islice
from math import ceil
from zlib import crc32

from spar.data.patterns import MOMENT, TIME_OF_DAY, UUID
from spar.types import Perception

NEAR_CHARACTERS = 10_000  # characters whose wording is compared; the text after them must be equal
SKETCH = 64  # marks in the sketch of a text: an error of about 0.04 at a similarity of 0.9
PREFIX = 8  # marks under which a text is indexed
#: Fields of a perception that give the state of a thing.
STATE_NAMES = ("status", "state", "level", "episode")

#: Words that describe the state of a thing: texts that differ in one of these are never similar.
TELLING = frozenset(
    b"not no never cannot isn aren wasn won don doesn didn "
    b"ok okay good bad healthy unhealthy normal abnormal high low up down on off open opened closed full empty "
    b"firing pending resolved recovered recovery restored fixed cleared problem alarm degraded operational "
    b"failed failing failure success succeeded successful passed completed aborted stable unstable rising falling "
    b"started stopped running paused resumed begun ended finished idle busy stuck hung crashed dead alive "
    b"online offline enabled disabled active inactive connected disconnected reachable unreachable refused "
    b"available unavailable responding ready blocked unblocked locked unlocked lost found back again still "
    b"triggered over silent heard missing "
    b"accepted rejected approved denied added changed removed created deleted true false null yes "
    b"debug info warning error critical fatal".split()
)
#: Words without a meaning of their own.
EMPTY = frozenset(
    b"a an the is are was were be been being it its has have had "
    b"now of at in to for by and or with as that this".split()
)

#: Times and random identifiers; texts that differ only in these are the same.
_NOISE = re.compile("|".join((MOMENT, TIME_OF_DAY, UUID)).encode(), re.IGNORECASE)
_TOKENS = re.compile(rb"[0-9a-z_\x80-\xff]+|[^\s0-9a-z_\x80-\xff]")
#: Measured numbers: with a unit or a decimal point. Other numbers may name something, as in "order 1001".
_MEASURED = re.compile(
    rb"(?<![\w.])\d{1,20}(?:\.\d{1,20})?\s?(?:%|(?:ms|s|min|h|[kmgt]?i?b|[kmgt]?hz)\b)|(?<![\w.])\d{1,20}\.\d{1,20}(?![\w.])"
)
#: Special words between blanks: they hold a digit, a capital letter or a sign that is not punctuation.
_SPECIAL = re.compile(rb"(?<!\S)(?![(\"']{0,2}[a-z]+(?:'[a-z]+)?[.,;:!?)\"']{0,3}(?!\S))\S+")
_DATA = re.compile(rb"\"\s{0,3}:")
_TRACEBACK = "Traceback (most recent call last)"


def naming(perception: Perception, *, has_fields: bool = False) -> frozenset[bytes]:
    """Return the words that identify the thing, without words for its state and without measured numbers.

    Args: has_fields: of data, the names of the fields are words too.
    """
    content = perception.content
    if isinstance(content, (Mapping, list, tuple)):
        return words_of("\n".join(_leaves(content, has_fields=has_fields)))
    return words_of(text_of(perception))


def _leaves(content: object, *, has_fields: bool) -> Iterator[str]:
    """Yield the values in data as texts, at most `NEAR_CHARACTERS` of them, without those that give a state."""
    left, count = [content], 0
    while left and count < NEAR_CHARACTERS:
        value, count = left.pop(), count + 1
        if isinstance(value, Mapping):
            items = [item for item in islice(value.items(), NEAR_CHARACTERS) if item[0] not in STATE_NAMES]
            left += itertools.chain.from_iterable(items) if has_fields else (field for _, field in items)
        elif isinstance(value, (list, tuple)):
            left += islice(value, NEAR_CHARACTERS)
        elif isinstance(value, (str, bool, int, float)):
            yield str(value)


def words_of(text: str) -> frozenset[bytes]:
    """Return the words of a text that may identify something."""
    head = _MEASURED.sub(b"@", _masked(text).lower())
    return (
        frozenset(token for token in _TOKENS.findall(head) if token[0] > 0x7F or token[:1].isalnum()) - TELLING - EMPTY
    )


def _masked(text: str) -> bytes:
    """Return the beginning of a text with times and identifiers masked."""
    return _NOISE.sub(b"@", text[:NEAR_CHARACTERS].encode("utf-8", "surrogatepass"))


def is_comparable(perception: Perception) -> bool:
    # Perceptions with a key are the same only by their key. One different word can change an alert or a mail.
    if perception.key is not None or not (perception.kind == "" or perception.kind.startswith("log.")):
        return False
    if "template" in perception.attributes:  # lines of different templates are different things
        return False
    return isinstance(perception.content, str) and not _is_data(perception.content)


def _is_data(text: str) -> bool:
    """Return whether a text holds data: an object, a list, or names with values."""
    ends = text.lstrip()[:1] + text.rstrip()[-1:]
    return ends in ("{}", "[]") or _DATA.search(text[:NEAR_CHARACTERS].encode("utf-8", "surrogatepass")) is not None


def wording(perception: Perception) -> tuple[int, array[int]]:
    """Return a bucket and the sketch of the text, which is its lowest marks in order. Only texts of one bucket can be
    similar."""
    text = perception.content
    head = _masked(text)
    tokens = _TOKENS.findall(head.lower())
    telling: list[object] = [*sorted(TELLING.intersection(tokens)), *_SPECIAL.findall(head), text[NEAR_CHARACTERS:]]
    if _TRACEBACK in text:
        telling.append(text.rstrip().rpartition("\n")[2])
    place = (perception.session, perception.trust, perception.source, perception.kind, perception.subject)
    bucket = int.from_bytes(digest((*place, telling), 8), "big")
    marks: set[int] = set()
    former = 0
    for token in tokens:
        marks.add(word := crc32(token))
        marks.add(crc32(token, former))  # the pair with the word before it
        former = word
    return bucket, array("I", sorted(marks)[:SKETCH])


def postings(bucket: int, sketch: array[int], similarity: float) -> Iterator[int]:
    """Yield the marks under which a text is indexed: two similar texts share at least one of them."""
    size = len(sketch)
    prefix = size - ceil(similarity * size - 1e-9) + 1
    for mark in sketch[: min(prefix, PREFIX)]:
        yield bucket << 32 | mark


def likeness(marks: set[int], sketch: array[int], other: array[int]) -> float:
    """Return the Jaccard index 0..1 of two texts, in the range that both sketches cover; `marks` is `sketch` as a
    set."""
    shared = len(marks.intersection(other))
    size, other_size = len(sketch), len(other)
    if size == SKETCH or other_size == SKETCH:
        reach = min(full[-1] for full in (sketch, other) if len(full) == SKETCH)
        size, other_size = bisect_right(sketch, reach), bisect_right(other, reach)
    union = size + other_size - shared
    return shared / union if union else 0.0


def text_of(perception: Perception) -> str:
    """Return the content as text, the same for equal content. Content that cannot be read equals nothing else."""
    content = perception.content
    if isinstance(content, str):
        return content
    make = partial(json.dumps, content, sort_keys=True, default=str)
    return represented(content, make, f"unreadable {perception.id}")


def represented(content: object, make: Callable[[], str], otherwise: str) -> str:
    """Return the text that `make` returns, else the representation of the content, else another text. Never raises."""
    for attempt in (make, partial(repr, content)):
        with suppress(Exception):  # circular, nested too deeply, with keys that are not text, or a broken __repr__
            return attempt()
    return otherwise


def digest(parts: tuple[object, ...], size: int) -> bytes:
    # The representation of a tuple separates its parts, and the encoding replaces lone surrogates.
    return blake2b(repr(parts).encode("utf-8", "backslashreplace"), digest_size=size).digest()


#: Sketch of a text that is not compared.
NOTHING = array("I")
