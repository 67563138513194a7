"""Learner: trains the classifiers of intents and kinds in a thread, and gives them to the pipeline when they are
ready.

Equal sets of examples are trained only once, so a reload that changes no example costs nothing.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

import msgspec

from perception.learning.classifier import Classifier, Reading
from perception.learning.examples import Example, LearningSettings, What
from perception.learning.features import normal
from perception.learning.linear import LinearModel
from perception.learning.slots import MarkedSlots, entities, unmarked
from perception.learning.vectors import vector_training
from spar.clock import Clock
from spar.ports.services import Embedder
from spar.threads import Threads

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


class Learner:
    """Trainer of the labels that the pipeline uses.

    Args: learnt: receives the results, by sort of label; written: the examples of the configuration; embedder: embeds
    texts, so that meaning is learnt besides words.
    """

    def __init__(
        self,
        learnt: Learnt,
        settings: LearningSettings,
        written: Sequence[Example],
        clock: Clock,
        embedder: Embedder | None = None,
    ) -> None:
        self._learnt, self._settings, self._written, self._embedder = learnt, settings, written, embedder
        self._threads = Threads("learning", clock, limit=1)
        self._taught: Sequence[Example] = ()
        self._task: asyncio.Task[None] | None = None
        self._is_stale = False
        self.trained, self.failure = 0, ""

    @property
    def is_busy(self) -> bool:
        """Return whether a training is in progress."""
        return self._task is not None and not self._task.done()

    def examples(self, what: What) -> list[Example]:
        """Return the examples of one sort: those of the configuration, then those of people."""
        return [example for example in (*self._written, *self._taught) if example.what == what]

    def begin(self, taught: Sequence[Example]) -> asyncio.Task[None] | None:
        """Learn from these examples and those of the configuration; call it in the event loop. Return None when there
        is nothing to learn.

        Texts equal to an example are recognised at once, similar texts after the task has ended.
        """
        self._taught = taught
        if not self._settings.enabled:
            return None
        for what in WHATS:
            examples, former = self.examples(what), self._learnt.get(what)
            if examples:
                self._learnt[what] = Labels(examples, former.classifier if former else None)
            else:
                self._learnt.pop(what, None)
        if not self._learnt:
            return None
        self._is_stale = True
        if self._task is None or self._task.done() or self._task.get_loop().is_closed():
            self._task = asyncio.get_running_loop().create_task(self._train(), name="learning from examples")
        return self._task

    def learn_at_once(self) -> None:
        """Learn from the examples of the configuration, unless something was learnt already. It blocks until the
        training has ended; it is for use without an agent."""
        for what in WHATS if self._settings.enabled and not self._learnt else ():
            if examples := self.examples(what):
                self._learnt[what] = Labels(examples, trained(examples, self._settings.keep, self._embedder))

    async def _train(self) -> None:
        while self._is_stale:
            self._is_stale = False
            for what in WHATS:
                if examples := self.examples(what):
                    try:
                        classifier = await self._threads.run(trained, examples, self._settings.keep, self._embedder)
                    except Exception as error:
                        self.failure = f"nothing new is learnt of {what}s: {error!r:.300}"
                        continue
                    self.trained, self.failure = self.trained + 1, ""
                    if not self._is_stale:
                        self._learnt[what] = Labels(examples, classifier)


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
