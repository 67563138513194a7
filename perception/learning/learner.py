"""Learnt labels of intents and kinds, and the training of their classifiers.

Equal sets of examples are trained only once, so a reload that changes no example costs nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from perception.learning.classifier import Classifier, Reading
from perception.learning.examples import Example, What
from perception.learning.features import normal
from perception.learning.linear import LinearModel
from perception.learning.slots import MarkedSlots, entities, unmarked
from perception.learning.vectors import vector_training
from spar.ports.services import Embedder

#: Trained classifiers in the cache, by their examples.
CACHED: Final = 4
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
        self._by_heart = {normal(example.text): example.label for example in examples}
        by_label: dict[str, list[str]] = {}
        for example in examples:
            by_label.setdefault(example.label, []).append(example.text)
        self._marked = {label: MarkedSlots(texts) for label, texts in by_label.items()}

    def read(self, text: str) -> Reading | None:
        """Return the reading of a text; None while nothing is known yet. Raises nothing."""
        if (label := self._by_heart.get(normal(text))) is not None:
            return Reading(label, 0.99, label, "an example says so")
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
