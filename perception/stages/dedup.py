"""Stage 1: the same thing noticed again is counted, not passed on; a different thing and a state that returns are.

Sameness is decided by `key` if there is one, else by the content (with source, kind and subject), else, for
lines of logs and prose without a kind, by how much of its wording is shared. Data is never *nearly* the same, also
where it is written as text: there one word or number is the meaning. Nor are texts that differ in more than plain
words: in a number, a name, a path, a word that turns the meaning round, or the last line of a traceback. A person's
message is only ever the same by its key, for someone may say "yes" twice. Different sessions never meet here, and an
untrusted copy never stands in the way of a trusted one.

What a source says of one subject are states of one thing: another content ends the memory of the former one, so that
down, up, down come out as three. Without a subject the words that name the thing stand for it.

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
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from hashlib import blake2b
from itertools import islice
from math import ceil
from typing import Annotated, Any
from zlib import crc32

from msgspec import Meta, Struct

from spar.data.patterns import MOMENT, TIME_OF_DAY, UUID
from spar.types import Perception, replace

MESSAGE = "message"  # the kind of what people say
NEAR_CHARACTERS = 10_000  # wording is compared up to here; what follows must be equal
SKETCH = 64  # marks kept of a text: an error of about 0.04 at a likeness of 0.9
PREFIX = 8  # marks under which a text is found again
POSTINGS = 8  # latest texts kept under one mark
COMPARISONS = 12  # texts that one perception is compared with, at most

#: Words that say how a thing is, and not which: texts that differ in one of these are never nearly the same.
TELLING = frozenset(
    b"not no never cannot isn aren wasn won don doesn didn "
    b"ok okay good bad healthy unhealthy normal abnormal high low up down on off open opened closed full empty "
    b"firing pending resolved recovered recovery restored fixed cleared problem alarm degraded operational "
    b"failed failing failure success succeeded successful passed completed aborted stable unstable rising falling "
    b"started stopped running paused resumed begun ended finished idle busy stuck hung crashed dead alive "
    b"online offline enabled disabled active inactive connected disconnected reachable unreachable refused "
    b"available unavailable responding ready blocked unblocked locked unlocked lost found back again still "
    b"accepted rejected approved denied added changed removed created deleted true false null yes "
    b"debug info warning error critical fatal".split()
)
#: Words that name nothing.
EMPTY = frozenset(
    b"a an the is are was were be been being it its has have had "
    b"now of at in to for by and or with as that this".split()
)

#: Moments and random identifiers, which differ between texts without making them different.
_NOISE = re.compile("|".join((MOMENT, TIME_OF_DAY, UUID)).encode(), re.IGNORECASE)
_TOKENS = re.compile(rb"[0-9a-z_\x80-\xff]+|[^\s0-9a-z_\x80-\xff]")
#: Numbers that measure: with a unit, or a decimal point. Others may name something, as in "order 1001".
_MEASURED = re.compile(
    rb"(?<![\w.])\d{1,20}(?:\.\d{1,20})?\s?(?:%|(?:ms|s|min|h|[kmgt]?i?b|[kmgt]?hz)\b)|(?<![\w.])\d{1,20}\.\d{1,20}(?![\w.])"
)
#: What is no plain word, from blank to blank: it holds a digit, a capital letter or a sign that is no punctuation.
_SPECIAL = re.compile(rb"(?<!\S)(?![(\"']{0,2}[a-z]+(?:'[a-z]+)?[.,;:!?)\"']{0,3}(?!\S))\S+")
_DATA = re.compile(rb"\"\s{0,3}:")
_TRACEBACK = "Traceback (most recent call last)"


class DedupSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[perception.dedup]`: remember `window` perceptions for `seconds`; `similarity` 0 compares no wording.

    Wording is that of log lines and of text without a kind.
    """

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


class StageResult(Struct, frozen=True):
    """The result of a stage: perceptions kept, perceptions taken out, and the number of those enriched."""

    kept: list[Perception]
    decisions: list[Decision] = []
    touched: int = 0


class _Thing:
    """One thing that states are known of: the newest one (`state` stands for its content), and since when.

    `seen` counts the perceptions of it that are remembered.
    """

    __slots__ = ("at", "place", "seen", "state")

    def __init__(self, place: bytes, state: int, at: float) -> None:
        self.place, self.state, self.at, self.seen = place, state, at, 0


class _Seen:
    """One perception that was let through, as far as it is remembered; of no thing if it is a person's message."""

    __slots__ = ("at", "bucket", "hidden", "id", "sketch", "state", "thing")

    def __init__(self, perception_id: str, at: float, bucket: int, sketch: array[int], state: int) -> None:
        self.id, self.at, self.bucket, self.sketch, self.state = perception_id, at, bucket, sketch, state
        self.thing: _Thing | None = None
        self.hidden = 0  # repetitions that came after this one had already been passed on

    def is_over(self, at: float) -> bool:
        """Return whether its thing was in another state by then, so that the same again is news."""
        return self.thing is not None and self.thing.state != self.state and at >= self.thing.at


class DedupWindow:
    """The perceptions let through lately, by identity and wording; the only thing that `dedup` changes."""

    def __init__(self) -> None:
        self.seen: dict[bytes, _Seen] = {}
        self.alike: dict[int, list[_Seen]] = {}
        self.things: dict[bytes, _Thing] = {}

    def nearest(
        self, bucket: int, sketch: array[int], at: float, settings: DedupSettings
    ) -> tuple[_Seen, float] | None:
        """Return the first one found in the window that is alike enough, and how much it is alike."""
        marks = set(sketch)
        compared: set[_Seen] = set()
        postings = [self.alike.get(posting, ()) for posting in _postings(bucket, sketch, settings.similarity)]
        # The rarest mark first: who shares it is most probably alike. Then the newest.
        for others in sorted(postings, key=len):
            for other in reversed(others):
                if other in compared or abs(at - other.at) > settings.seconds or other.is_over(at):
                    continue
                if len(compared) >= COMPARISONS:
                    return None
                compared.add(other)
                likeness = _likeness(marks, sketch, other.sketch)
                if likeness >= settings.similarity:
                    return other, likeness
        return None

    def remember(self, digest: bytes, seen: _Seen, place: bytes | None, settings: DedupSettings) -> None:
        self.forget(digest, settings)
        self.seen[digest] = seen
        if place is not None:
            thing = self.things.setdefault(place, _Thing(place, seen.state, seen.at))
            thing.seen += 1
            if seen.at >= thing.at:
                thing.state, thing.at = seen.state, seen.at
            seen.thing = thing
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
        if seen.thing is not None:
            seen.thing.seen -= 1
            if not seen.thing.seen:
                del self.things[seen.thing.place]
        for posting in _postings(seen.bucket, seen.sketch, settings.similarity):
            others = [other for other in self.alike.get(posting, ()) if other is not seen]
            if others:
                self.alike[posting] = others
            else:
                self.alike.pop(posting, None)


def dedup(window: DedupWindow, settings: DedupSettings, perceptions: Sequence[Perception]) -> StageResult:
    """Keep the first of each thing; the rest become decisions, and a count on the one that was kept.

    A thing that goes on comes through again once `seconds` have passed since it last did, with the number of
    its repetitions since then: a steady alarm is heard every five minutes, not once. One that was otherwise in
    between comes through at once; a copy that is older than the change does not.
    """
    kept: list[Perception] = []
    decisions: list[Decision] = []
    counts: dict[int, int] = {}  # position in `kept` → how many times it was seen
    places: dict[_Seen, int] = {}  # what was let through in this very batch → its position
    for perception in perceptions:
        text = _canonical(perception)
        digest = _identity(perception, text)
        if digest is None:
            kept.append(perception)
            continue
        at = perception.at.timestamp()
        former = window.seen.get(digest)
        same, reason = former, "the same key" if perception.key is not None else "the same content"
        if former is not None and (abs(at - former.at) > settings.seconds or former.is_over(at)):
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
        goes_on = former is not None and abs(at - former.at) <= 2 * settings.seconds and not former.is_over(at)
        if former is not None and former.hidden and goes_on:
            counts[len(kept)] = count_of(perception) + former.hidden
        seen = _Seen(perception.id, at, bucket, sketch, hash(text))
        window.remember(digest, seen, _place(perception, text), settings)
        places[seen] = len(kept)
        kept.append(perception)
    for place, count in counts.items():
        kept[place] = with_attributes(kept[place], count=count)
    return StageResult(kept, decisions, len(counts))


def count_of(perception: Perception) -> int:
    """Return how many times this was seen, at least 1."""
    count = perception.attributes.get("count")
    return count if type(count) is int and count > 0 else 1


def with_attributes(perception: Perception, **attributes: Any) -> Perception:
    return replace(perception, attributes={**perception.attributes, **attributes})


def _dropped(perception: Perception, reason: str, into: str) -> Decision:
    return Decision(perception.id, perception.source, "dedup", f"{reason} as {into}", perception.at, into)


def _identity(perception: Perception, text: str) -> bytes | None:
    """Return the digest by which it equals another; None if it has none."""
    if perception.key is not None:
        what: tuple[object, ...] = (perception.key,)
    elif perception.kind == MESSAGE:
        return None
    else:
        what = (perception.source, perception.kind, perception.subject, text)
    return _digest((perception.session, perception.trust, *what), 16)


def _canonical(perception: Perception) -> str:
    """Return the content as text, the same for equal content. What cannot be read is like nothing else."""
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


def _place(perception: Perception, text: str) -> bytes | None:
    """Return the thing that it is a state of, as a digest; None for what people say, which is none."""
    if perception.kind == MESSAGE:
        return None
    where = (perception.session, perception.trust, perception.source)
    if perception.subject:
        return _digest((*where, perception.subject), 16)
    return _digest((*where, perception.kind, sorted(words_of(text))), 16)


def naming(perception: Perception) -> frozenset[bytes]:
    """Return the words that say which thing it is about, without those that say how it is and without measured
    numbers."""
    content = perception.content
    if isinstance(content, (Mapping, list, tuple)):  # names of fields name nothing of the thing
        return words_of("\n".join(_leaves(content)))
    return words_of(_canonical(perception))


def _leaves(content: object) -> Iterator[str]:
    """Return the values in data as texts, up to `NEAR_CHARACTERS` of them."""
    left, count = [content], 0
    while left and count < NEAR_CHARACTERS:
        value, count = left.pop(), count + 1
        if isinstance(value, Mapping):
            left += islice(value.values(), NEAR_CHARACTERS)
        elif isinstance(value, (list, tuple)):
            left += islice(value, NEAR_CHARACTERS)
        elif isinstance(value, (str, bool, int, float)):
            yield str(value)


def words_of(text: str) -> frozenset[bytes]:
    """Return the words of a text that name something."""
    head = _MEASURED.sub(b"@", _quieted(text).lower())
    return (
        frozenset(token for token in _TOKENS.findall(head) if token[0] > 0x7F or token[:1].isalnum()) - TELLING - EMPTY
    )


def _quieted(text: str) -> bytes:
    """Return the beginning of a text without what may differ."""
    return _NOISE.sub(b"@", text[:NEAR_CHARACTERS].encode("utf-8", "surrogatepass"))


def _is_comparable(perception: Perception) -> bool:
    # A key says what is the same, so two keys say what is not; so do two words of an alert, or of a mail.
    if perception.key is not None or not (perception.kind == "" or perception.kind.startswith("log.")):
        return False
    return isinstance(perception.content, str) and not _is_data(perception.content)


def _is_data(text: str) -> bool:
    """Return whether a text holds data: it is an object or a list, or there are names with values in it."""
    ends = text.lstrip()[:1] + text.rstrip()[-1:]
    return ends in ("{}", "[]") or _DATA.search(text[:NEAR_CHARACTERS].encode("utf-8", "surrogatepass")) is not None


def _wording(perception: Perception) -> tuple[int, array[int]]:
    """A bucket, within which texts may be alike at all, and the sketch of the text: its lowest marks in order."""
    text = perception.content
    head = _quieted(text)
    tokens = _TOKENS.findall(head.lower())
    telling: list[object] = [*sorted(TELLING.intersection(tokens)), *_SPECIAL.findall(head), text[NEAR_CHARACTERS:]]
    if _TRACEBACK in text:
        telling.append(text.rstrip().rpartition("\n")[2])
    place = (perception.session, perception.trust, perception.source, perception.kind, perception.subject)
    bucket = int.from_bytes(_digest((*place, telling), 8), "big")
    marks: set[int] = set()
    former = 0
    for token in tokens:
        marks.add(word := crc32(token))
        marks.add(crc32(token, former))  # the pair with the word before it
        former = word
    return bucket, array("I", sorted(marks)[:SKETCH])


def _postings(bucket: int, sketch: array[int], similarity: float) -> Iterator[int]:
    """Return the marks by which a text is filed: two texts that are alike enough share one of them."""
    size = len(sketch)
    prefix = size - ceil(similarity * size - 1e-9) + 1
    for mark in sketch[: min(prefix, PREFIX)]:
        yield bucket << 32 | mark


def _likeness(marks: set[int], sketch: array[int], other: array[int]) -> float:
    """Return the Jaccard index 0..1 of two texts (`marks` is `sketch` as a set), as far as both sketches reach."""
    shared = len(marks.intersection(other))
    size, other_size = len(sketch), len(other)
    if size == SKETCH or other_size == SKETCH:
        reach = min(full[-1] for full in (sketch, other) if len(full) == SKETCH)
        size, other_size = bisect_right(sketch, reach), bisect_right(other, reach)
    union = size + other_size - shared
    return shared / union if union else 0.0


_NOTHING = array("I")
