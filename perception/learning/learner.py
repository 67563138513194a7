"""Learner: trains the classifiers of intents and kinds in a thread, and hands them to the pipeline when they are ready.

Two sets of the same examples are one training: a reload that changes none of them costs nothing.
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
from spar.ports.embedder import Embedder
from spar.threads import Threads

#: Trained classifiers that are kept for the next time somebody has the same examples.
CACHED: Final = 4
#: Labels below which there is nothing to tell apart: then only the examples themselves are known.
FEWEST: Final = 2
WHATS: Final[tuple[What, ...]] = ("intent", "kind")
_cache: OrderedDict[bytes, Classifier] = OrderedDict()


class Labels:
    """The labels of one sort, as far as they are learnt.

    Args: examples: what people said holds before what is written; classifier: None until it is trained.
    """

    def __init__(self, examples: Sequence[Example], classifier: Classifier | None) -> None:
        self.classifier = classifier
        self._by_heart = {normal(example.text): example.label for example in examples}
        by_label: dict[str, list[str]] = {}
        for example in examples:
            by_label.setdefault(example.label, []).append(example.text)
        self._marked = {label: MarkedSlots(texts) for label, texts in by_label.items()}

    def read(self, text: str) -> Reading | None:
        """Return what a text is read as; None while nothing is known yet. Raises nothing."""
        if (label := self._by_heart.get(normal(text))) is not None:
            return Reading(label, 0.99, label, "an example says so")
        return None if self.classifier is None else self.classifier.read(text)

    def slots(self, label: str, text: str) -> dict[str, str]:
        """Return the slots of a text with this label."""
        marked = self._marked.get(label)
        return {**entities(text), **(marked.find(text) if marked else {})}


#: What the pipeline reads by, by sort of label; what is not in it was not learnt. Read from any thread.
Learnt = dict[What, Labels]


class Learner:
    """Trains what the pipeline reads by.

    Args: learnt: where the result goes, by sort of label; written: the examples of the configuration; embedder: has it
    learn what is meant, too, and not the words alone.
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
        """Return whether a training is under way."""
        return self._task is not None and not self._task.done()

    def examples(self, what: What) -> list[Example]:
        """Return the examples of one sort: those that are written, then those that people taught."""
        return [each for each in (*self._written, *self._taught) if each.what == what]

    def begin(self, taught: Sequence[Example]) -> asyncio.Task[None] | None:
        """Learn from these and what is written; call in the event loop. None when there is nothing to learn.

        The texts themselves are known by heart at once, texts like them when the task has ended.
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
        """Learn from what is written, unless something was learnt; it takes its time, for a look without an agent."""
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
    """Return the classifier of these examples, from the cache if they were learnt before; None for a single label."""
    digest = blake2b(
        msgspec.msgpack.encode((keep, embedder.fingerprint if embedder else "", examples)), digest_size=16
    ).digest()
    if (known := _cache.get(digest)) is not None:
        _cache.move_to_end(digest)
        return known
    if len({example.label for example in examples}) < FEWEST:
        return None
    train = LinearModel if embedder is None else vector_training(embedder)
    classifier = Classifier([(unmarked(each.text), each.label) for each in examples], keep=keep, train=train)
    _cache[digest] = classifier
    while len(_cache) > CACHED:
        _cache.popitem(last=False)
    return classifier
