"""Stage 1: counts a repeated perception instead of passing it on; passes on different things and returning states.

Two perceptions are the same by `key` if there is one (the keys of each untrusted source are separate), else by content
(with source, kind and subject), else by similar wording, for log lines and prose without a kind. Data is never
compared by wording, also when it is written as text, because one word or number can change its meaning. Nor are texts
similar that differ in more than plain words: in a number, a name, a path, a negating word, or the last line of a
traceback. A person's messages are the same only by key, because someone may say "yes" twice. Different sessions are
never compared, and an untrusted copy never hides a trusted one.

The perceptions of one source and subject are states of one thing. A different content ends the former state, so that
down, up, down are passed on as three. Without a subject, what names the thing replaces it (`perception.stages.states`).
A begin and an end are never the same, whatever their key and content.

`perception.stages.wording` computes the similarity. The window, the postings and the comparisons for one perception
are bounded, so the cost of one perception does not grow in a flood.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from perception.stages import wording
from perception.stages.states import Report, place_of, report_of
from spar.types import Perception, replace

MESSAGE = "message"  # kind of the messages of people
POSTINGS = 8  # latest texts stored under one mark
COMPARISONS = 12  # texts that one perception is compared with, at most


class DedupSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings `[perception.dedup]`: remember `window` perceptions for `seconds`; `similarity` 0 turns the comparison
    of wording off.

    Wording is compared for log lines and for text without a kind.
    """

    enabled: bool = True
    window: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    seconds: Annotated[float, Meta(ge=0, le=31_536_000)] = 300.0
    similarity: Annotated[float, Meta(ge=0, le=1)] = 0.95


class Decision(Struct, frozen=True):
    """Reason why a perception was not passed on by itself: its `id` and `source`, the stage and its reason.

    `at` is the perception's own time, None if it had none; `into` is the id of the perception that represents it, if
    one does.
    """

    id: str
    source: str
    stage: str
    reason: str
    at: datetime | None
    into: str = ""

    @classmethod
    def on(cls, perception: Perception, stage: str, reason: str, into: str = "") -> Decision:
        """Return a decision of a stage on a perception."""
        return cls(perception.id, perception.source, stage, reason, perception.at, into)


class StageResult(Struct, frozen=True):
    """Result of a stage: the remaining perceptions, the decisions on the removed ones, and the number of enriched
    ones.

    `added` are new perceptions of the stage, which follow the remaining ones; `notes` are the stage's other counts.
    """

    perceptions: list[Perception]
    decisions: list[Decision] = []
    touched: int = 0
    added: list[Perception] = []
    notes: Mapping[str, int] = {}


def enriched(perceptions: Sequence[Perception], change: Callable[[Perception], Perception]) -> StageResult:
    """Return the result of a stage that may change each perception by itself, and removes none."""
    changed = [change(perception) for perception in perceptions]
    return StageResult(changed, touched=sum(new is not old for new, old in zip(changed, perceptions, strict=True)))


class _Thing:
    """One thing with states: `state` is the hash of the newest content, `at` its time.

    `entry_count` is the number of remembered perceptions of it.
    """

    __slots__ = ("at", "entry_count", "place", "state")

    def __init__(self, place: bytes, state: int, at: float) -> None:
        self.place, self.state, self.at, self.entry_count = place, state, at, 0


class _Entry:
    """One perception that was passed on; `thing` is None for a person's message."""

    __slots__ = ("at", "bucket", "hidden", "id", "sketch", "state", "thing")

    def __init__(self, perception_id: str, at: float, bucket: int, sketch: array[int], state: int) -> None:
        self.id, self.at, self.bucket, self.sketch, self.state = perception_id, at, bucket, sketch, state
        self.thing: _Thing | None = None
        self.hidden = 0  # repetitions since this one was passed on

    def is_over(self, at: float) -> bool:
        """Return whether its thing was in another state by then, so that the same content is news again."""
        return self.thing is not None and self.thing.state != self.state and at >= self.thing.at


class DedupWindow:
    """Perceptions that were passed on lately, by identity and wording; the only object that `dedup` changes."""

    def __init__(self) -> None:
        self.entries: dict[bytes, _Entry] = {}
        self.alike: dict[int, list[_Entry]] = {}
        self.things: dict[bytes, _Thing] = {}

    def nearest(
        self, bucket: int, sketch: array[int], at: float, settings: DedupSettings
    ) -> tuple[_Entry, float] | None:
        """Return the first similar entry of the window, and the similarity."""
        marks = set(sketch)
        compared: set[_Entry] = set()
        postings = [self.alike.get(posting, ()) for posting in wording.postings(bucket, sketch, settings.similarity)]
        # The rarest mark first, because texts that share it are most probably similar. Then the newest.
        for others in sorted(postings, key=len):
            for other in reversed(others):
                if other in compared or abs(at - other.at) > settings.seconds or other.is_over(at):
                    continue
                if len(compared) >= COMPARISONS:
                    return None
                compared.add(other)
                likeness = wording.likeness(marks, sketch, other.sketch)
                if likeness >= settings.similarity:
                    return other, likeness
        return None

    def remember(self, digest: bytes, entry: _Entry, place: bytes | None, settings: DedupSettings) -> None:
        self.forget(digest, settings)
        self.entries[digest] = entry
        if place is not None:
            thing = self.things.setdefault(place, _Thing(place, entry.state, entry.at))
            thing.entry_count += 1
            if entry.at >= thing.at:
                thing.state, thing.at = entry.state, entry.at
            entry.thing = thing
        for posting in wording.postings(entry.bucket, entry.sketch, settings.similarity):
            others = self.alike.setdefault(posting, [])
            others.append(entry)
            if len(others) > POSTINGS:
                del others[0]
        while len(self.entries) > settings.window:
            self.forget(next(iter(self.entries)), settings)

    def shed(self, settings: DedupSettings) -> int:
        """Forget the older half to free memory, and return their number. Their repetitions are passed on again."""
        older = list(self.entries)[: len(self.entries) // 2]
        for digest in older:
            self.forget(digest, settings)
        return len(older)

    def forget(self, digest: bytes, settings: DedupSettings) -> None:
        entry = self.entries.pop(digest, None)
        if entry is None:
            return
        if entry.thing is not None:
            entry.thing.entry_count -= 1
            if not entry.thing.entry_count:
                del self.things[entry.thing.place]
        for posting in wording.postings(entry.bucket, entry.sketch, settings.similarity):
            others = [other for other in self.alike.get(posting, ()) if other is not entry]
            if others:
                self.alike[posting] = others
            else:
                self.alike.pop(posting, None)


def dedup(window: DedupWindow, settings: DedupSettings, perceptions: Sequence[Perception]) -> StageResult:
    """Pass on the first perception of each thing. The others become decisions and increase its count.

    A repeated thing is passed on again once `seconds` have passed since it last was, with the number of its
    repetitions since then: a steady alarm is passed on every five minutes, not once. A thing that was in another state
    in between is passed on at once, but a copy that is older than the change is not.
    """
    remaining: list[Perception] = []
    decisions: list[Decision] = []
    counts: dict[int, int] = {}  # position in `remaining` → number of times it was seen
    places: dict[_Entry, int] = {}  # entry of this batch → its position in `remaining`
    for perception in perceptions:
        text, report = wording.text_of(perception), report_of(perception)
        digest = _identity(perception, text, report)
        if digest is None:
            remaining.append(perception)
            continue
        at = perception.at.timestamp()
        former = window.entries.get(digest)
        same, reason = former, "the same key" if perception.key is not None else "the same content"
        if former is not None and (abs(at - former.at) > settings.seconds or former.is_over(at)):
            same = None
        bucket, sketch = 0, wording.NOTHING
        if same is None and settings.similarity and wording.is_comparable(perception):
            bucket, sketch = wording.wording(perception)
            if nearest := window.nearest(bucket, sketch, at, settings):
                same, reason = nearest[0], f"nearly the same words ({nearest[1]:.0%} alike)"
        if same is not None:
            decisions.append(Decision.on(perception, "dedup", f"{reason} as {same.id}", same.id))
            if (place := places.get(same)) is not None:
                counts[place] = counts.get(place, count_of(remaining[place])) + count_of(perception)
            else:
                same.hidden += count_of(perception)
            continue
        goes_on = former is not None and abs(at - former.at) <= 2 * settings.seconds and not former.is_over(at)
        if former is not None and former.hidden and goes_on:
            counts[len(remaining)] = count_of(perception) + former.hidden
        entry = _Entry(perception.id, at, bucket, sketch, hash((text, report.state)))
        window.remember(digest, entry, _place(perception, report), settings)
        places[entry] = len(remaining)
        remaining.append(perception)
    for place, count in counts.items():
        remaining[place] = with_attributes(remaining[place], count=count)
    return StageResult(remaining, decisions, len(counts))


def count_of(perception: Perception) -> int:
    """Return how many times the perception was seen, at least 1."""
    count = perception.attributes.get("count")
    return count if type(count) is int and count > 0 else 1


def with_attributes(perception: Perception, **attributes: Any) -> Perception:
    return replace(perception, attributes={**perception.attributes, **attributes})


def _identity(perception: Perception, text: str, report: Report) -> bytes | None:
    """Return the digest that equal perceptions share; None for a perception that equals no other. An end equals no
    begin, even under one key."""
    if perception.key is not None:
        # Trusted sources share their keys; an untrusted source that knows a key hides nothing of another source.
        whose = () if perception.trust == "trusted" else (perception.source,)
        what: tuple[object, ...] = ("key", *whose, perception.key)
    elif perception.kind == MESSAGE or "template_id" in perception.attributes:
        return None  # the stage `templates` has counted the lines already
    else:
        what = (perception.source, perception.kind, perception.subject, text)
    return wording.digest((perception.session, perception.trust, report.state, *what), 16)


def _place(perception: Perception, report: Report) -> bytes | None:
    """Return the digest of the place that the perception is a state of; None for a person's message."""
    if perception.kind == MESSAGE:
        return None
    where = (perception.session, perception.trust, perception.source)
    return wording.digest((*where, *place_of(perception, report)), 16)
