"""Stage 4: sets the priority 0..1 and its reasons. A priority that is already set stays.

A score is a sum. It begins with the value of the kind; the words, the rules, the intent, the source, severity,
deadline, novelty, repetition, trust and age add to it or subtract from it, and a low confidence of the sensor reduces
it. Each summand adds a sentence to `attributes["why"]`. The age is counted from the newest perception of the batch, so
the same batch always gets the same scores.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from math import log2
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct

from perception.stages.classify import Rule, read_rules, text_of
from perception.stages.dedup import MESSAGE, StageResult, count_of, with_attributes
from perception.stages.urgency import Summand, age, deadline, novelty, severity
from spar.checks import shorten
from spar.data.patterns import Glob, is_open
from spar.types import Perception, replace

DEFAULT = 0.5  # value of a kind that no pattern fits
TRUSTED = 0.05  # for a source whose text may steer the agent
KEYWORDS_CAP = 0.3  # bound of what all keywords together add or subtract
REPEATED = (0.04, 0.2)  # summand for each doubling of the count, and its bound

#: Base values of kinds. An exact name goes before a shell pattern; of the patterns the first that fits decides.
BASE: dict[str, float] = {
    MESSAGE: 0.7, "alert": 0.7, "log.error": 0.5, "log.warning": 0.4, "log.line": 0.2, "schedule.tick": 0.5,
    "link": 0.3, "file.*": 0.4, "host.*": 0.45, "*": 0.4,
}  # fmt: skip

#: Summands for words and phrases. Each counts once; where several fit at one place, the longest counts.
KEYWORDS: dict[str, float] = {
    **dict.fromkeys(("emergency", "data loss"), 0.25),
    **dict.fromkeys(("urgent", "urgently", "critical", "outage", "breach"), 0.2),
    **dict.fromkeys(("immediately", "right away", "asap", "as soon as possible", "fatal", "out of memory",
                     "no space left"), 0.15),
    **dict.fromkeys(("important", "deadline"), 0.1),
    **dict.fromkeys(("fyi", "not urgent", "not critical", "not important"), -0.1),
    **dict.fromkeys(("no rush", "no hurry", "low priority", "whenever you have time"), -0.15),
}  # fmt: skip

#: Rules that apply together with those of the configuration, in the same format. All that fit add up.
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
    """Rule that adds `add` (-1..1) to the priority; `because` is the reason."""

    filters: ClassVar[tuple[str, ...]] = ("source", "kind", "intent")
    add: Change
    because: str = "a rule says so"
    kind: Glob | None = None
    intent: Glob | None = None


class PriorityWeights(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings `[perception.priority.weights]`: the factor of each term; 0 turns it off, 2 doubles it."""

    severity: Weight = 1.0
    intent: Weight = 1.0
    source: Weight = 1.0
    age: Weight = 1.0
    deadline: Weight = 1.0
    novelty: Weight = 1.0


class PrioritySettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings `[perception.priority]`. `base` and `keywords` override the built-in tables key by key (0 turns a word
    off). `sources` are summands by the name or shell pattern of a source; the first that fits counts."""

    enabled: bool = True
    base: dict[str, Share] = {}
    keywords: dict[str, Change] = {}
    sources: dict[str, Change] = {}
    weights: PriorityWeights = PriorityWeights()
    rules: tuple[PriorityRule, ...] = ()


class Scale:
    """Compiled settings: merged tables and compiled words. It does not change after its construction."""

    def __init__(self, settings: PrioritySettings) -> None:
        worth = {**settings.base, **{kind: base for kind, base in BASE.items() if kind not in settings.base}}
        self.worth: Mapping[str, float] = worth
        self.rules, self.of_intent = settings.rules, _built_in()
        self.weights_of = settings.weights
        self.sources = [(Glob(source), change) for source, change in settings.sources.items()]
        self.weights = {word.casefold(): weight for word, weight in {**KEYWORDS, **settings.keywords}.items() if word}
        longest_first = sorted(self.weights, key=len, reverse=True)
        self.words = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, longest_first))})(?!\w)", re.IGNORECASE)
        self.globs = [(Glob(kind), base) for kind, base in worth.items() if is_open(kind)]


def prioritise(scale: Scale, perceptions: Sequence[Perception]) -> StageResult:
    """Give each perception a priority with reasons; the order stays the same."""
    newest = max((perception.at for perception in perceptions), default=None)
    scored: list[Perception] = []
    touched = 0
    for perception in perceptions:
        if newest is not None and perception.priority is None:
            perception = _scored(perception, [*_summands(scale, perception, newest)])
            touched += 1
        elif not isinstance(perception.attributes.get("why"), list):
            perception = with_attributes(perception, why=[f"its sensor set it to {perception.importance:g}"])
        scored.append(perception)
    return StageResult(scored, touched=touched)


def _summands(scale: Scale, perception: Perception, newest: datetime) -> Iterator[Summand]:
    kind = perception.kind
    base = scale.worth.get(kind)
    if base is None:
        base = next((worth for glob, worth in scale.globs if glob.fits(kind)), DEFAULT)
    yield base, f"{kind or 'a perception without a kind'} starts at {base:g}"
    text = text_of(perception)
    yield from _wording(scale, text)
    weights = scale.weights_of
    for rule in scale.rules:
        if rule.find(perception, text) is not None:
            yield rule.add, rule.because
    for rule in scale.of_intent:
        if rule.find(perception, text) is not None:
            yield rule.add * weights.intent, rule.because
    for glob, change in scale.sources:
        if glob.fits(perception.source):
            yield change * weights.source, f"it comes from {perception.source!r}"
            break
    terms = (
        (weights.severity, severity(perception)),
        (weights.deadline, deadline(perception, newest)),
        (weights.novelty, novelty(perception)),
        (weights.age, age(perception, newest)),
    )
    for weight, summands in terms:
        for change, because in summands:
            yield change * weight, because
    count = count_of(perception)
    if count > 1:
        step, most = REPEATED
        yield min(most, step * log2(count)), f"it was seen {shorten(count)} times"
    if perception.trust == "trusted":
        yield TRUSTED, "its source is trusted"


def _wording(scale: Scale, text: str) -> Iterator[Summand]:
    left = KEYWORDS_CAP
    words = {word.casefold(): None for word in scale.words.findall(text)}
    for word in words:
        weight = scale.weights.get(word, 0.0)
        if change := max(-left, min(left, weight)):
            left -= abs(change)
            yield change, f"it says {word!r}"


def _scored(perception: Perception, summands: list[Summand]) -> Perception:
    score = sum(change for change, _ in summands)
    why = [summands[0][1], *(f"{sentence} ({change:+.2g})" for change, sentence in summands[1:] if change)]
    if perception.confidence < 1:
        # Confidence 0 still leaves half of the score, so that a doubtful fire alarm gets attention.
        score *= 0.5 + 0.5 * perception.confidence
        why.append(f"its sensor is only {perception.confidence:.0%} sure (×{0.5 + 0.5 * perception.confidence:.2g})")
    priority = round(max(0.0, min(1.0, score)), 4)
    return replace(perception, priority=priority, attributes={**perception.attributes, "why": why})


@cache
def _built_in() -> tuple[PriorityRule, ...]:
    return read_rules(BUILT_IN, PriorityRule)
