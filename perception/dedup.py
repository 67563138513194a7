"""Stage 1: the same thing noticed again is counted, not passed on.

Sameness is decided by `key` if there is one, else by the content (with source, kind and subject), else, for
prose, by how much of its wording is shared. Structured content is never *nearly* the same: there one word or
number is the meaning. A person's message is only ever the same by its key, for someone may say "yes" twice.
Different sessions never meet here, and an untrusted copy never stands in the way of a trusted one.

Likeness is the Jaccard index of single words and pairs of words, taken from a bottom-k sketch (Cohen and
Kaplan, "Summarizing data using bottom-k sketches", PODC 2007; exact up to `SKETCH` marks); candidates are
found by prefix filtering (Chaudhuri et al., "A primitive operator for similarity joins", ICDE 2006). The
window, the postings and the comparisons for one perception are bounded, so a flood costs no more each.
"""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import datetime
from hashlib import blake2b
from math import ceil
from typing import Annotated, Any
from zlib import crc32

from msgspec import Meta, Struct

from spar.types import Perception, replace

MESSAGE = "message"  # the kind of what people say
NEAR_CHARACTERS = 10_000  # wording is compared up to here; what follows must be equal
SKETCH = 64  # marks kept of a text: an error of about 0.04 at a likeness of 0.9
PREFIX = 8  # marks under which a text is found again
POSTINGS = 8  # latest texts kept under one mark
COMPARISONS = 12  # texts that one perception is compared with, at most

#: What may differ between two texts without making them different: moments and random identifiers.
NOISE = (
    rb"\d{4}-\d\d-\d\d[t ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:z|[+-]\d\d:?\d\d)?",
    rb"\b\d\d:\d\d:\d\d(?:[.,]\d+)?",
    rb"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
)

#: Words that turn a meaning round: texts that differ in one of these are never nearly the same.
TELLING = frozenset(
    b"not no never cannot isn aren wasn won don doesn didn "
    b"ok okay good bad healthy unhealthy normal abnormal high low up down on off open closed full empty "
    b"firing resolved recovered restored fixed failed failing failure success succeeded successful passed "
    b"started stopped running dead alive online offline enabled disabled connected disconnected "
    b"accepted rejected approved denied added changed removed created deleted true false yes "
    b"debug info warning error critical fatal".split()
)

_NOISE = re.compile(b"|".join(NOISE))
_TOKENS = re.compile(rb"[0-9a-z_\x80-\xff]+|[^\s0-9a-z_\x80-\xff]")


class DedupSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[perception.dedup]`: remember `window` perceptions for `seconds`; `similarity` 0 compares no wording."""

    enabled: bool = True
    window: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    seconds: Annotated[float, Meta(ge=0, le=31_536_000)] = 300.0
    similarity: Annotated[float, Meta(ge=0, le=1)] = 0.9


class Decision(Struct, frozen=True):
    """Why a perception did not come out by itself: its `id` and `source`, which stage took it out and why.

    `at` is the perception's own time, None if it had none; `into` the id of the one that stands for it, if one does.
    """

    id: str
    source: str
    stage: str
    reason: str
    at: datetime | None
    into: str = ""


class Sifted(Struct, frozen=True):
    """What a stage made of a batch: what it kept, what it took out, and to how many it added something."""

    kept: list[Perception]
    decisions: list[Decision] = []
    touched: int = 0


class _Seen:
    """One perception that was let through, as far as it is remembered."""

    __slots__ = ("at", "bucket", "hidden", "id", "sketch")

    def __init__(self, perception_id: str, at: float, bucket: int, sketch: array[int]) -> None:
        self.id, self.at, self.bucket, self.sketch = perception_id, at, bucket, sketch
        self.hidden = 0  # repetitions that came after this one had already been passed on


class DedupWindow:
    """What was let through lately, by what it is and by its wording; the only thing that `dedup` changes."""

    def __init__(self) -> None:
        self.seen: dict[bytes, _Seen] = {}
        self.alike: dict[int, list[_Seen]] = {}

    def nearest(
        self, bucket: int, sketch: array[int], at: float, settings: DedupSettings
    ) -> tuple[_Seen, float] | None:
        """The first one found in the window that is alike enough, and how much it is alike."""
        marks = set(sketch)
        compared: set[_Seen] = set()
        postings = [self.alike.get(posting, ()) for posting in _postings(bucket, sketch, settings.similarity)]
        # The rarest mark first: who shares it is most probably alike. Then the newest.
        for others in sorted(postings, key=len):
            for other in reversed(others):
                if other in compared or abs(at - other.at) > settings.seconds:
                    continue
                if len(compared) >= COMPARISONS:
                    return None
                compared.add(other)
                likeness = _likeness(marks, sketch, other.sketch)
                if likeness >= settings.similarity:
                    return other, likeness
        return None

    def remember(self, digest: bytes, seen: _Seen, settings: DedupSettings) -> None:
        self.forget(digest, settings)
        self.seen[digest] = seen
        for posting in _postings(seen.bucket, seen.sketch, settings.similarity):
            others = self.alike.setdefault(posting, [])
            others.append(seen)
            if len(others) > POSTINGS:
                del others[0]
        while len(self.seen) > settings.window:
            self.forget(next(iter(self.seen)), settings)

    def shed(self, settings: DedupSettings) -> int:
        """Forget the older half, for want of memory; how many that were. What repeats them comes through again."""
        older = list(self.seen)[: len(self.seen) // 2]
        for digest in older:
            self.forget(digest, settings)
        return len(older)

    def forget(self, digest: bytes, settings: DedupSettings) -> None:
        seen = self.seen.pop(digest, None)
        if seen is None:
            return
        for posting in _postings(seen.bucket, seen.sketch, settings.similarity):
            others = [other for other in self.alike.get(posting, ()) if other is not seen]
            if others:
                self.alike[posting] = others
            else:
                self.alike.pop(posting, None)


def dedup(window: DedupWindow, settings: DedupSettings, perceptions: Sequence[Perception]) -> Sifted:
    """Keep the first of each thing; the rest become decisions, and a count on the one that was kept.

    A thing that goes on comes through again once `seconds` have passed since it last did, with the number of
    its repetitions since then: a steady alarm is heard every five minutes, not once.
    """
    kept: list[Perception] = []
    decisions: list[Decision] = []
    counts: dict[int, int] = {}  # position in `kept` → how many times it was seen
    places: dict[_Seen, int] = {}  # what was let through in this very batch → its position
    for perception in perceptions:
        digest = _identity(perception)
        if digest is None:
            kept.append(perception)
            continue
        at = perception.at.timestamp()
        former = window.seen.get(digest)
        same, reason = former, "the same key" if perception.key is not None else "the same content"
        if former is not None and abs(at - former.at) > settings.seconds:
            same = None
        bucket, sketch = 0, _NOTHING
        if same is None and settings.similarity and _is_comparable(perception):
            bucket, sketch = _wording(perception)
            if found := window.nearest(bucket, sketch, at, settings):
                same, reason = found[0], f"nearly the same words ({found[1]:.0%} alike)"
        if same is not None:
            decisions.append(_dropped(perception, reason, same.id))
            if (place := places.get(same)) is not None:
                counts[place] = counts.get(place, count_of(kept[place])) + count_of(perception)
            else:
                same.hidden += count_of(perception)
            continue
        if former is not None and former.hidden and abs(at - former.at) <= 2 * settings.seconds:
            counts[len(kept)] = count_of(perception) + former.hidden
        seen = _Seen(perception.id, at, bucket, sketch)
        window.remember(digest, seen, settings)
        places[seen] = len(kept)
        kept.append(perception)
    for place, count in counts.items():
        kept[place] = with_attributes(kept[place], count=count)
    return Sifted(kept, decisions, len(counts))


def count_of(perception: Perception) -> int:
    """How many times this was seen, at least 1."""
    count = perception.attributes.get("count")
    return count if type(count) is int and count > 0 else 1


def with_attributes(perception: Perception, **attributes: Any) -> Perception:
    return replace(perception, attributes={**perception.attributes, **attributes})


def _dropped(perception: Perception, reason: str, into: str) -> Decision:
    return Decision(perception.id, perception.source, "dedup", f"{reason} as {into}", perception.at, into)


def _identity(perception: Perception) -> bytes | None:
    """What makes it the same as another, as a digest; None if nothing does."""
    if perception.key is not None:
        what: tuple[object, ...] = (perception.key,)
    elif perception.kind == MESSAGE:
        return None
    else:
        what = (perception.source, perception.kind, perception.subject, _canonical(perception))
    return _digest((perception.session, perception.trust, *what), 16)


def _canonical(perception: Perception) -> str:
    """The content as text, the same for equal content. What cannot be read is like nothing else."""
    content = perception.content
    if isinstance(content, str):
        return content
    try:
        return json.dumps(content, sort_keys=True, default=str)
    except Exception:
        try:
            return repr(content)
        except Exception:
            return f"unreadable {perception.id}"


def _digest(parts: tuple[object, ...], size: int) -> bytes:
    # The representation of a tuple keeps its parts apart and has no lone surrogates left.
    return blake2b(repr(parts).encode("utf-8", "backslashreplace"), digest_size=size).digest()


def _is_comparable(perception: Perception) -> bool:
    # A key says what is the same, so two keys say what is not.
    return perception.key is None and perception.kind != MESSAGE and isinstance(perception.content, str)


def _wording(perception: Perception) -> tuple[int, array[int]]:
    """A bucket, within which texts may be alike at all, and the sketch of the text: its lowest marks in order."""
    text = perception.content
    head = text[:NEAR_CHARACTERS].lower().encode("utf-8", "surrogatepass")
    tokens = _TOKENS.findall(_NOISE.sub(b"@", head))
    telling = sorted(TELLING.intersection(tokens))
    place = (perception.session, perception.trust, perception.source, perception.kind, perception.subject)
    bucket = int.from_bytes(_digest((*place, telling, text[NEAR_CHARACTERS:]), 8), "big")
    marks: set[int] = set()
    former = 0
    for token in tokens:
        marks.add(word := crc32(token))
        marks.add(crc32(token, former))  # the pair with the word before it
        former = word
    return bucket, array("I", sorted(marks)[:SKETCH])


def _postings(bucket: int, sketch: array[int], similarity: float) -> Iterator[int]:
    """Where a text is filed: two texts that are alike enough share one of their first marks."""
    size = len(sketch)
    prefix = size - ceil(similarity * size - 1e-9) + 1
    for mark in sketch[: min(prefix, PREFIX)]:
        yield bucket << 32 | mark


def _likeness(marks: set[int], sketch: array[int], other: array[int]) -> float:
    """The Jaccard index 0..1 of two texts (`marks` is `sketch` as a set), as far as both sketches reach."""
    shared = len(marks.intersection(other))
    size, other_size = len(sketch), len(other)
    if size == SKETCH or other_size == SKETCH:
        reach = min(full[-1] for full in (sketch, other) if len(full) == SKETCH)
        size, other_size = bisect_right(sketch, reach), bisect_right(other, reach)
    union = size + other_size - shared
    return shared / union if union else 0.0


_NOTHING = array("I")
