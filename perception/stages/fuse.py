"""Stage 5: merges the perceptions of one subject into one; its `evidence` holds the parts.

The strongest part (highest priority, then the newest) gives the content, the kind and the id, unless its source has a
newer perception of the same thing. For one thing ("firing", then "resolved") the newest state decides, and an older
one gets the newer one's id in `attributes["superseded"]`. The whole has the priority of the strongest part that is not
superseded, and it is trusted only if every part is. Messages of people are never fused, because each needs its own
answer; nor are perceptions of different sessions. `attributes["count"]` is the number of times the subject was noticed
within the window, also in earlier batches. Those can no longer be fused, but they still count;
`attributes["earlier"]` is their number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated

from msgspec import Meta, Struct

from perception.stages.dedup import MESSAGE, Decision, StageResult, count_of, with_attributes
from perception.stages.wording import naming, words_of
from spar.data.bounded import BoundedDict
from spar.types import Perception, replace

SUBJECTS = 10_000  # subjects whose count is remembered
EVIDENCE = 1_000  # parts stored in one perception: the strongest ones
COMPARISONS = 12  # bound of the things that one part is compared with

Topic = tuple[str, str]  # session, subject


class FuseSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings `[perception.fuse]`: parts belong together when they are within `seconds` of the first."""

    enabled: bool = True
    seconds: Annotated[float, Meta(ge=0, le=31_536_000)] = 60.0


class FuseWindow:
    """Counts of subjects, each with the start of its window (seconds since 1970); the only object that `fuse`
    changes."""

    def __init__(self) -> None:
        self.counts: BoundedDict[Topic, tuple[float, int]] = BoundedDict(SUBJECTS)

    def add(self, topic: Topic, at: float, count: int, seconds: float) -> int:
        """Add to the count of a subject; return how often it was noticed in the window that `at` falls into."""
        begun, total = self.counts.get(topic, (at, 0))
        if abs(at - begun) > seconds:
            begun, total = at, 0
        self.counts[topic] = (begun, total + count)
        return total + count


def fuse(window: FuseWindow, settings: FuseSettings, perceptions: Sequence[Perception]) -> StageResult:
    """Replace the parts of each subject by one perception, at the position of the first of them."""
    topics: dict[Topic, list[int]] = {}
    for place, perception in enumerate(perceptions):
        if perception.subject and perception.kind != MESSAGE:
            topics.setdefault((perception.session, perception.subject), []).append(place)
    if not topics:
        return StageResult(list(perceptions))
    slots: list[Perception | None] = list(perceptions)
    decisions: list[Decision] = []
    touched = 0
    for topic, places in topics.items():
        for cluster in _clusters(perceptions, places, settings.seconds):
            parts = [perceptions[place] for place in cluster]
            whole, head = _whole(parts)
            count = window.add(topic, parts[0].at.timestamp(), sum(map(count_of, parts)), settings.seconds)
            if count > count_of(whole):
                whole = with_attributes(whole, count=count, earlier=count - sum(map(count_of, parts)))
                touched += 1
            reason = f"the same subject {topic[1]!r} as {whole.id} within the window"
            decisions += (Decision.on(part, "fuse", reason, whole.id) for part in [*parts[:head], *parts[head + 1 :]])
            for place in cluster:
                slots[place] = None
            slots[min(cluster)] = whole
    return StageResult([perception for perception in slots if perception is not None], decisions, touched)


def new_count(perception: Perception) -> int:
    """Return how many times the perception was seen in its batch, at least 1."""
    earlier = perception.attributes.get("earlier")
    return max(count_of(perception) - (earlier if type(earlier) is int else 0), 1)


def _clusters(perceptions: Sequence[Perception], places: list[int], seconds: float) -> Iterator[list[int]]:
    """Yield the positions in the order of time, in clusters whose parts are within `seconds` of the first."""
    cluster: list[int] = []
    for place in sorted(places, key=lambda place: perceptions[place].at):
        if cluster and (perceptions[place].at - perceptions[cluster[0]].at).total_seconds() > seconds:
            yield cluster
            cluster = []
        cluster.append(place)
    if cluster:
        yield cluster


def _whole(parts: list[Perception]) -> tuple[Perception, int]:
    """Return one perception for parts in the order of time, and the index of the part that represents them."""
    if len(parts) == 1:
        return parts[0], 0
    ages = _ages(parts)
    parts = [part if age.newer is None else with_attributes(part, superseded=age.newer)
             for part, age in zip(parts, ages, strict=True)]  # fmt: skip
    by_strength = sorted(range(len(parts)), key=lambda i: (ages[i].newer is None, parts[i].importance, i), reverse=True)
    head = next(i for i in by_strength if ages[i].may_speak)
    others = [i for i in by_strength if i != head]
    chosen = sorted([head, *others[: EVIDENCE - 1]])
    evidence = tuple(parts[i] for i in chosen)
    trust = "trusted" if all(part.trust == "trusted" for part in parts) else "untrusted"
    why = parts[head].attributes.get("why")
    role = "the strongest" if all(age.may_speak for age in ages) else "the newest state"
    sentence = f"{len(parts)} perceptions of {parts[head].subject!r} stand together; this is {role}"
    fused = replace(parts[head], evidence=evidence, trust=trust, priority=parts[by_strength[0]].priority)
    return with_attributes(fused, why=[*why, sentence] if isinstance(why, list) else [sentence]), head


class _Age(Struct, frozen=True):
    """State of a part relative to later ones: `newer` is the id of the next state of the same thing, if there is one.

    `may_speak` is true when its source has no newer part about the same thing, or about a more or less exactly named
    one. Log lines report events, so a later line never supersedes them.
    """

    newer: str | None
    may_speak: bool


def _ages(parts: list[Perception]) -> list[_Age]:
    """Return the age of each part; the parts are in the order of time."""
    subject = words_of(parts[0].subject or "")
    latest: dict[str, dict[frozenset[bytes], str]] = {}  # by source: the words of a thing → id of its newest state
    near: dict[str, dict[frozenset[bytes], None]] = {}  # by source: the same words without numbers
    ages: list[_Age] = []
    for part in reversed(parts):
        if part.kind.startswith("log."):
            ages.append(_Age(None, True))
            continue
        words, things = naming(part) - subject, latest.setdefault(part.source, {})
        bare, others = frozenset(w for w in words if not w.isdigit()) or words, near.setdefault(part.source, {})
        # One is near whose words are a part of the other's: "backup failed: no space", "backup succeeded".
        is_named_since = any(bare <= other or other <= bare for other in islice(others, COMPARISONS))
        ages.append(_Age(things.get(words), not is_named_since))
        things.setdefault(words, part.id)
        others.setdefault(bare)
    return ages[::-1]
