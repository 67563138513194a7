"""Stage 4: how much it matters, 0..1, and why. A priority that somebody has set stays.

A score is a sum that can be read: what its kind is worth, what the words, the rules, its intent, its source,
severity, deadline, novelty, repetition, trust and age add or take, and how sure the sensor was. Every summand
leaves a sentence in `attributes["why"]`. Age is counted from the newest perception of the batch, so the same batch
always gets the same scores.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from math import log2
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from perception.stages.classify import Glob, Rule, read_rules, text_of
from perception.stages.dedup import MESSAGE, StageResult, count_of, with_attributes
from perception.stages.urgency import Summand, age, deadline, novelty, severity
from spar.data.patterns import is_open
from spar.types import Perception, replace

DEFAULT = 0.5  # what a kind is worth that no pattern fits
TRUSTED = 0.05  # for a source whose text may steer the agent
KEYWORDS_CAP = 0.3  # all words together add or take at most this
REPEATED = (0.04, 0.2)  # for each doubling of the count; at most

#: What a kind is worth to begin with: an exact name before a shell pattern, the first pattern that fits.
BASE: dict[str, float] = {
    MESSAGE: 0.7,
    "alert": 0.7,
    "log.error": 0.5,
    "log.warning": 0.4,
    "log.line": 0.2,
    "schedule.tick": 0.5,
    "link": 0.3,
    "file.*": 0.4,
    "host.*": 0.45,
    "*": 0.4,
}

#: What a word or phrase adds, once, wherever it stands; the longest that fits counts.
KEYWORDS: dict[str, float] = {
    "urgent": 0.2,
    "urgently": 0.2,
    "emergency": 0.25,
    "critical": 0.2,
    "immediately": 0.15,
    "right away": 0.15,
    "asap": 0.15,
    "as soon as possible": 0.15,
    "outage": 0.2,
    "data loss": 0.25,
    "breach": 0.2,
    "fatal": 0.15,
    "out of memory": 0.15,
    "no space left": 0.15,
    "important": 0.1,
    "deadline": 0.1,
    "fyi": -0.1,
    "no rush": -0.15,
    "no hurry": -0.15,
    "not urgent": -0.1,
    "not critical": -0.1,
    "not important": -0.1,
    "low priority": -0.15,
    "whenever you have time": -0.15,
}

#: Used together with the rules of the configuration; written as they are. All that fit add up.
BUILT_IN: tuple[dict[str, Any], ...] = (
    {"intent": "report_problem", "add": 0.15, "because": "it reports a problem"},
    {"intent": "request", "add": 0.1, "because": "it asks for something to be done"},
    {"intent": "question", "add": 0.05, "because": "it asks a question"},
    {"intent": ["confirm", "deny"], "add": 0.1, "because": "it may be an answer that is waited for"},
    {"intent": "greeting", "add": -0.2, "because": "it is only a greeting"},
    {"intent": "report_recovered", "add": -0.05, "because": "it reports that a problem is over"},
)

Share = Annotated[float, Meta(ge=0, le=1)]
Change = Annotated[float, Meta(ge=-1, le=1)]
Weight = Annotated[float, Meta(ge=0, le=5)]


class PriorityRule(Rule, frozen=True, kw_only=True):
    """A rule that adds `add` (-1..1) to the priority, `because` of this."""

    filters: ClassVar[tuple[str, ...]] = ("source", "kind", "intent")
    add: Change
    because: str = "a rule says so"
    kind: Glob | None = None
    intent: Glob | None = None


class PriorityWeights(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[perception.priority.weights]`: how much each term counts; 0 turns it off, 2 doubles it."""

    severity: Weight = 1.0
    intent: Weight = 1.0
    source: Weight = 1.0
    age: Weight = 1.0
    deadline: Weight = 1.0
    novelty: Weight = 1.0


class PrioritySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[perception.priority]`: `base` and `keywords` go over the built-in ones key by key (0 turns a word off);
    `sources` says what sources add, by their name or a shell pattern, the first that fits."""

    enabled: bool = True
    base: dict[str, Share] = {}
    keywords: dict[str, Change] = {}
    sources: dict[str, Change] = {}
    weights: PriorityWeights = PriorityWeights()
    rules: tuple[PriorityRule, ...] = ()


class Scale:
    """The settings made ready: tables merged, words compiled. Made once, then only read."""

    def __init__(self, settings: PrioritySettings) -> None:
        worth = {**settings.base, **{kind: base for kind, base in BASE.items() if kind not in settings.base}}
        self.worth: Mapping[str, float] = worth
        self.globs = [(Glob(kind), base) for kind, base in worth.items() if is_open(kind)]
        self.rules, self.of_intent = settings.rules, _built_in()
        self.weights_of = settings.weights
        self.sources = [(Glob(source), change) for source, change in settings.sources.items()]
        self.weights = {word.casefold(): weight for word, weight in {**KEYWORDS, **settings.keywords}.items() if word}
        longest_first = sorted(self.weights, key=len, reverse=True)
        self.words = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)", re.IGNORECASE)


def prioritise(scale: Scale, perceptions: Sequence[Perception]) -> StageResult:
    """Give each perception a priority and the reasons for it; the order stays as it is."""
    newest = max((perception.at for perception in perceptions), default=None)
    kept: list[Perception] = []
    touched = 0
    for perception in perceptions:
        if newest is not None and perception.priority is None:
            perception = _scored(perception, [*_summands(scale, perception, newest)])
            touched += 1
        elif not isinstance(perception.attributes.get("why"), list):
            perception = with_attributes(perception, why=[f"its sensor set it to {perception.importance:g}"])
        kept.append(perception)
    return StageResult(kept, touched=touched)


def _summands(scale: Scale, perception: Perception, newest: datetime) -> Iterator[Summand]:
    kind = perception.kind
    base = scale.worth.get(kind)
    if base is None:
        base = next((worth for glob, worth in scale.globs if glob.fits(kind)), DEFAULT)
    yield base, f"{kind or 'a perception without a kind'} starts at {base:g}"
    text = text_of(perception)
    yield from _wording(scale, text)
    of = scale.weights_of
    for rule in scale.rules:
        if rule.find(perception, text) is not None:
            yield rule.add, rule.because
    for rule in scale.of_intent:
        if rule.find(perception, text) is not None:
            yield rule.add * of.intent, rule.because
    for glob, change in scale.sources:
        if glob.fits(perception.source):
            yield change * of.source, f"it comes from {perception.source!r}"
            break
    terms = (
        (of.severity, severity(perception)),
        (of.deadline, deadline(perception, newest)),
        (of.novelty, novelty(perception)),
        (of.age, age(perception, newest)),
    )
    for weight, found in terms:
        for change, because in found:
            yield change * weight, because
    count = count_of(perception)
    if count > 1:
        step, most = REPEATED
        yield min(most, step * log2(count)), f"it was seen {count} times"
    if perception.trust == "trusted":
        yield TRUSTED, "its source is trusted"


def _wording(scale: Scale, text: str) -> Iterator[Summand]:
    left = KEYWORDS_CAP
    found = {word.casefold(): None for word in scale.words.findall(text)}
    for word in found:
        weight = scale.weights.get(word, 0.0)
        change = max(-left, min(left, weight))
        if change:
            left -= abs(change)
            yield change, f"it says {word!r}"


def _scored(perception: Perception, summands: list[Summand]) -> Perception:
    score = sum(change for change, _ in summands)
    why = [summands[0][1], *(f"{sentence} ({change:+.2g})" for change, sentence in summands[1:] if change)]
    if perception.confidence < 1:
        # A reading that nobody is sure of still counts for half, so that a doubtful fire alarm is looked at.
        score *= 0.5 + 0.5 * perception.confidence
        why.append(f"its sensor is only {perception.confidence:.0%} sure (×{0.5 + 0.5 * perception.confidence:.2g})")
    return _explained(perception, round(max(0.0, min(1.0, score)), 4), why)


def _explained(perception: Perception, priority: float, why: list[str]) -> Perception:
    return replace(perception, priority=priority, attributes={**perception.attributes, "why": why})


@cache
def _built_in() -> tuple[PriorityRule, ...]:
    return read_rules(BUILT_IN, PriorityRule)
