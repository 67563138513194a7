"""Stage 5: perceptions of one subject become one; the parts stay in its `evidence`.

The strongest part (highest priority, then the newest) gives the content, the kind and the id; the whole is
trusted only if every part is. What people say is never fused, for each message wants an answer of its own, nor
is anything across sessions. `attributes["count"]` says how often the subject was noticed within the window, also
in earlier batches: what has already been passed on cannot be fused any more, but it still counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from perception.dedup import MESSAGE, Decision, Sifted, count_of, with_attributes
from spar.types import Perception, replace

SUBJECTS = 10_000  # subjects whose count is remembered
EVIDENCE = 1_000  # parts kept of one perception: the strongest

Topic = tuple[str, str]  # session, subject


class FuseSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[perception.fuse]`: parts belong together that lie within `seconds` of the first."""

    enabled: bool = True
    seconds: Annotated[float, Meta(ge=0, le=31_536_000)] = 60.0


class FuseWindow:
    """How often each subject was noticed since when (seconds since 1970); the only thing that `fuse` changes."""

    def __init__(self) -> None:
        self.counts: dict[Topic, tuple[float, int]] = {}

    def add(self, topic: Topic, at: float, count: int, seconds: float) -> int:
        """Count a subject; returns how often it was noticed in the window that `at` falls into."""
        begun, total = self.counts.pop(topic, (at, 0))
        if abs(at - begun) > seconds:
            begun, total = at, 0
        self.counts[topic] = (begun, total + count)
        if len(self.counts) > SUBJECTS:
            del self.counts[next(iter(self.counts))]
        return total + count


def fuse(window: FuseWindow, settings: FuseSettings, perceptions: Sequence[Perception]) -> Sifted:
    """Replace the parts of each subject by one perception, at the place where the first of them stood."""
    topics: dict[Topic, list[int]] = {}
    for place, perception in enumerate(perceptions):
        if perception.subject and perception.kind != MESSAGE:
            topics.setdefault((perception.session, perception.subject), []).append(place)
    if not topics:
        return Sifted(list(perceptions))
    standing: list[Perception | None] = list(perceptions)
    decisions: list[Decision] = []
    touched = 0
    for topic, places in topics.items():
        for cluster in _clusters(perceptions, places, settings.seconds):
            parts = [perceptions[place] for place in cluster]
            by_strength = sorted(range(len(parts)), key=lambda i: (parts[i].importance, i), reverse=True)
            whole = _whole(parts, by_strength)
            count = window.add(topic, parts[0].at.timestamp(), sum(map(count_of, parts)), settings.seconds)
            if count > count_of(whole):
                whole = with_attributes(whole, count=count)
                touched += 1
            decisions += (_merged(parts[i], whole) for i in by_strength[1:])
            for place in cluster:
                standing[place] = None
            standing[min(cluster)] = whole
    return Sifted([perception for perception in standing if perception is not None], decisions, touched)


def _clusters(perceptions: Sequence[Perception], places: list[int], seconds: float) -> Iterator[list[int]]:
    """The places in order of time, cut wherever one lies too long after the first of its cluster."""
    cluster: list[int] = []
    for place in sorted(places, key=lambda place: perceptions[place].at):
        if cluster and (perceptions[place].at - perceptions[cluster[0]].at).total_seconds() > seconds:
            yield cluster
            cluster = []
        cluster.append(place)
    if cluster:
        yield cluster


def _whole(parts: list[Perception], by_strength: list[int]) -> Perception:
    """One perception for parts in order of time, given their places from the strongest to the weakest."""
    if len(parts) == 1:
        return parts[0]
    strongest = parts[by_strength[0]]
    evidence = tuple(parts[i] for i in sorted(by_strength[:EVIDENCE]))
    trust = "trusted" if all(part.trust == "trusted" for part in parts) else "untrusted"
    why = strongest.attributes.get("why")
    sentence = f"{len(parts)} perceptions of {strongest.subject!r} stand together; this is the strongest"
    fused = replace(strongest, evidence=evidence, trust=trust)
    return with_attributes(fused, why=[*why, sentence] if isinstance(why, list) else [sentence])


def _merged(part: Perception, whole: Perception) -> Decision:
    reason = f"the same subject {part.subject!r} as {whole.id} within the window"
    return Decision(part.id, part.source, "fuse", reason, part.at, whole.id)
