"""Learnt labels of intents and kinds, and the training of their classifiers.

Equal sets of examples are trained only once, so a reload that changes no example costs nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import blake2b
from typing import Final

import msgspec

from perception.learning.classifier import Classifier, Reading
from perception.learning.examples import Example, What
from perception.learning.features import LONGEST, normal
from perception.learning.linear import LinearModel
from perception.learning.vectors import vector_training
from spar.data.patterns import Pattern
from spar.ports.services import Embedder

#: Trained classifiers in the cache, by their examples.
CACHED: Final = 4
#: Confidence for a text that equals an example: a person may mean it differently this time.
BY_HEART: Final = 0.99
#: Labels that a classifier needs; with fewer, only the texts of the examples are recognised.
FEWEST: Final = 2
WHATS: Final[tuple[What, ...]] = ("intent", "kind")
_cache: OrderedDict[bytes, Classifier] = OrderedDict()


class Labels:
    """Learnt labels of one sort.

    Args: examples: examples of people go before examples of the configuration; classifier: None until it is trained.
    """

    def __init__(self, examples: Sequence[Example], classifier: Classifier | None) -> None:
        self.classifier = classifier
        self._by_heart = {normal(unmarked(example.text)): example.label for example in examples}
        by_label: dict[str, list[str]] = {}
        for example in examples:
            by_label.setdefault(example.label, []).append(example.text)
        self._marked = {label: MarkedSlots(texts) for label, texts in by_label.items()}

    def read(self, text: str) -> Reading | None:
        """Return the reading of a text; None while nothing is known yet. Raises nothing."""
        if (label := self._by_heart.get(normal(unmarked(text)))) is not None:
            return Reading(label, BY_HEART, label, "an example says so")
        return None if self.classifier is None else self.classifier.read(text)

    def slots(self, label: str, text: str) -> dict[str, str]:
        """Return the slots of a text with this label."""
        marked = self._marked.get(label)
        return {**entities(text), **(marked.find(text) if marked else {})}


#: Learnt labels that the pipeline uses, by their sort; a missing sort was not learnt. Any thread may read it.
Learnt = dict[What, Labels]


def trained(examples: Sequence[Example], keep: float, embedder: Embedder | None = None) -> Classifier | None:
    """Return the classifier of these examples, from the cache if possible; None for fewer than two labels."""
    digest = blake2b(
        msgspec.msgpack.encode((keep, embedder.fingerprint if embedder else "", examples)), digest_size=16
    ).digest()
    if (known := _cache.get(digest)) is not None:
        _cache.move_to_end(digest)
        return known
    if len({example.label for example in examples}) < FEWEST:
        return None
    train = LinearModel if embedder is None else vector_training(embedder)
    classifier = Classifier([(unmarked(example.text), example.label) for example in examples], keep=keep, train=train)
    _cache[digest] = classifier
    while len(_cache) > CACHED:
        _cache.popitem(last=False)
    return classifier


# -- slots: hosts, services, files, durations, numbers and quoted words, and the marks `{slot}` of examples. All
# patterns are matched in time linear in the text (RE2), in its first `LONGEST` characters.

#: Bound of the marked examples that become patterns; more would hardly find anything new.
MOST_MARKED: Final = 500

#: Patterns of the built-in slots; the first match in the text counts.
_ENTITIES: Final = {
    "quoted": r"[\"“„«`](?P<quoted>[^\"“”„«»`]{1,200})[\"”“»`]",
    "file": r"(?:^|[\s\"'(=])(?P<file>(?:~|\.{1,2})?/[\w.@+-][\w./@+-]{0,200}|[\w-]{1,80}\.(?:log|conf|toml|ya?ml|json|"
    r"csv|txt|pdf|md|py|sh|sql|xml|ini|service|tar|gz|zip|docx?|xlsx?|png|jpe?g))\b",
    "host": r"\b(?P<host>(?:\d{1,3}\.){3}\d{1,3}|(?:[a-z0-9][a-z0-9-]{0,60}\.){1,8}(?:com|org|net|io|dev|local|"
    r"internal|lan|example|edu|gov)|[a-z]{2,20}-?\d{1,4}(?:-[a-z0-9]{1,20})?)\b",
    "service": r"(?i)\b(?P<service>[a-z][\w@-]{1,60}\.service)\b|\b(?:service|daemon|container|deployment|unit) "
    r"(?P<named>[a-z][\w@.-]{1,60})",
    "duration": r"(?i)\b(?P<duration>\d{1,9}(?:\.\d{1,6})? ?(?:ms|milliseconds?|s|secs?|seconds?|m|min|mins|minutes?|h|"
    r"hrs?|hours?|d|days?|weeks?|months?|years?))\b",
    "number": r"(?:^|[\s$€£(=])(?P<number>-?\d{1,15}(?:[.,]\d{1,9})?)(?:[\s%€.,;:!?)]|$)",
}  # fmt: skip


@cache
def _entities() -> dict[str, Pattern]:
    return {slot: Pattern(text) for slot, text in _ENTITIES.items()}


def entities(text: str) -> dict[str, str]:
    """Return the first match of each built-in slot in a text."""
    slots: dict[str, str] = {}
    for slot, pattern in _entities().items():
        if groups := pattern.search(text[:LONGEST]):
            slots[slot] = next(iter(groups.values()))
    return slots


class MarkedSlots:
    """Slots that examples of one label mark: "restart {service} on {host}". The value of a mark is one word, or words
    in quotes.

    Args: examples: texts; those without a mark are ignored.
    """

    def __init__(self, examples: Iterable[str]) -> None:
        marked = [text for text in examples if "{" in text]
        patterns = [_pattern(text) for text in marked[:MOST_MARKED]]
        self._patterns = [pattern for pattern in patterns if pattern is not None]

    def find(self, text: str) -> dict[str, str]:
        """Return the slots of the first marked example that fits a text."""
        for pattern in self._patterns:
            if slots := pattern.search(text[:LONGEST]):
                return {slot: value.strip("\"'“”.,!?") for slot, value in slots.items()}
        return {}


def unmarked(text: str) -> str:
    """Return an example without the braces of its marks, for training."""
    return text.replace("{", " ").replace("}", " ") if "{" in text else text


def _pattern(text: str) -> Pattern | None:
    """Return the pattern of a marked example; None when its braces are not marks."""
    parts, slots, remaining = ["(?i)"], set[str](), text
    while "{" in remaining:
        before, _, remaining = remaining.partition("{")
        slot, _, remaining = remaining.partition("}")
        if not slot.isascii() or not slot.isidentifier() or slot in slots:
            return None
        slots.add(slot)
        parts += [_plain(before), rf"(?P<{slot}>\"[^\"]{{1,200}}\"|'[^']{{1,200}}'|\S{{1,200}})"]
    return Pattern("".join([*parts, _plain(remaining)]))


def _plain(text: str) -> str:
    """Return the pattern of some words with any blanks between them."""
    words = r"\s+".join("".join(rf"\x{{{ord(c):x}}}" if not c.isalnum() else c for c in word) for word in text.split())
    return (r"\s+" if text[:1].isspace() else "") + words + (r"\s+" if words and text[-1:].isspace() else "")
