"""Stage 1: the same thing noticed again is counted, not passed on; a different thing and a state that returns are.

Sameness is decided by `key` if there is one (untrusted sources have each their own keys), else by the content (with
source, kind and subject), else, for lines of logs and prose without a kind, by how much of its wording is shared. Data
is never *nearly* the same, also where it is written as text: there one word or number is the meaning. Nor are texts
that differ in more than plain words: in a number, a name, a path, a word that turns the meaning round, or the last line
of a traceback. A person's message is only ever the same by its key, for someone may say "yes" twice. Different sessions
never meet here, and an untrusted copy never stands in the way of a trusted one.

What a source says of one subject are states of one thing: another content ends the memory of the former one, so that
down, up, down come out as three. Without a subject the words that name the thing stand for it.

How much two texts are alike is `perception.stages.wording`'s affair. The window, the postings and the comparisons for
one perception are bounded, so a flood costs no more each.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any

from msgspec import Meta, Struct

from perception.stages import wording
from spar.types import Perception, replace

MESSAGE = "message"  # the kind of what people say
POSTINGS = 8  # latest texts kept under one mark
COMPARISONS = 12  # texts that one perception is compared with, at most


class DedupSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[perception.dedup]`: remember `window` perceptions for `seconds`; `similarity` 0 compares no wording.

    Wording is that of log lines and of text without a kind.
    """

    enabled: bool = True
    window: Annotated[int, Meta(ge=1, le=1_000_000)] = 10_000
    seconds: Annotated[float, Meta(ge=0, le=31_536_000)] = 300.0
    similarity: Annotated[float, Meta(ge=0, le=1)] = 0.95


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
    """The result of a stage: perceptions kept, perceptions taken out, and the number of those enriched.

    `added` are perceptions that the stage has made and that go on behind those kept; `notes` is what else it counts.
    """

    kept: list[Perception]
    decisions: list[Decision] = []
    touched: int = 0
    added: list[Perception] = []
    notes: Mapping[str, int] = {}


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
        postings = [self.alike.get(posting, ()) for posting in wording.postings(bucket, sketch, settings.similarity)]
        # The rarest mark first: who shares it is most probably alike. Then the newest.
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

    def remember(self, digest: bytes, seen: _Seen, place: bytes | None, settings: DedupSettings) -> None:
        self.forget(digest, settings)
        self.seen[digest] = seen
        if place is not None:
            thing = self.things.setdefault(place, _Thing(place, seen.state, seen.at))
            thing.seen += 1
            if seen.at >= thing.at:
                thing.state, thing.at = seen.state, seen.at
            seen.thing = thing
        for posting in wording.postings(seen.bucket, seen.sketch, settings.similarity):
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
        for posting in wording.postings(seen.bucket, seen.sketch, settings.similarity):
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
        text = wording.text_of(perception)
        digest = _identity(perception, text)
        if digest is None:
            kept.append(perception)
            continue
        at = perception.at.timestamp()
        former = window.seen.get(digest)
        same, reason = former, "the same key" if perception.key is not None else "the same content"
        if former is not None and (abs(at - former.at) > settings.seconds or former.is_over(at)):
            same = None
        bucket, sketch = 0, wording.NOTHING
        if same is None and settings.similarity and wording.is_comparable(perception):
            bucket, sketch = wording.wording(perception)
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
        # Trusted sources may mean one thing by one key; a stranger who knows a key hides nothing of another source.
        whose = () if perception.trust == "trusted" else (perception.source,)
        what: tuple[object, ...] = ("key", *whose, perception.key)
    elif perception.kind == MESSAGE or "template_id" in perception.attributes:
        return None  # lines of one template have been counted already
    else:
        what = (perception.source, perception.kind, perception.subject, text)
    return wording.digest((perception.session, perception.trust, *what), 16)


def _place(perception: Perception, text: str) -> bytes | None:
    """Return the thing that it is a state of, as a digest; None for what people say, which is none."""
    if perception.kind == MESSAGE:
        return None
    where = (perception.session, perception.trust, perception.source)
    if perception.subject:
        return wording.digest((*where, perception.subject), 16)
    return wording.digest((*where, perception.kind, sorted(wording.words_of(text))), 16)
