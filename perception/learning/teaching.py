"""Teaching: the examples of an agent, the training of its classifiers in a thread, and the changes that its owner makes
while it runs.

A taught example is first written to disk. It counts at once for equal texts, and for similar texts when the training
in the background has ended.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from perception.learning.examples import Example, LearningSettings, What
from perception.learning.learner import WHATS, Labels, Learnt, trained
from perception.learning.taught import TaughtExample, TaughtExamples
from spar.clock import ended
from spar.errors import ConflictError
from spar.events import ErrorOccurred, ExampleForgotten, ExampleTaught
from spar.ports.services import Embedder
from spar.protocols import Host
from spar.threads import Threads

#: Bound of the characters of a text to be read.
LONGEST_TRIED: Final = 10_000
#: Seconds that a person who teaches waits for the training.
PATIENCE: Final = 5.0


class Teaching:
    """Learning of one agent. Call all methods in its event loop.

    Args: learnt: the labels that the pipeline uses; written: the examples of the configuration; embedder: embeds
    texts, where vectors are used, so that meaning is learnt besides words.
    """

    def __init__(
        self,
        learnt: Learnt,
        settings: LearningSettings,
        written: Sequence[Example],
        host: Host,
        embedder: Embedder | None = None,
    ) -> None:
        self._learnt, self._settings, self._written, self._host = learnt, settings, written, host
        self._trained = partial(trained, keep=settings.keep, embedder=embedder)
        self._tell = partial(host.tell_problem, is_note=True)
        self._rows = TaughtExamples(host.agent, host.store, host.clock, self._tell)
        self._threads = Threads("learning", host.clock, limit=1)
        self._task: asyncio.Task[None] | None = None
        self._is_stale = False
        self._trainings, self._failure = 0, ""

    async def open(self) -> asyncio.Task[None] | None:
        """Read the taught examples, and begin to learn; return None when there is nothing to learn.

        Raises nothing: an error of the store is published, and the examples of the configuration are learnt.
        """
        if not self._settings.enabled:
            return None
        try:
            await self._rows.open()
        except Exception as error:  # the next opening reads them again
            self._host.events.publish(ErrorOccurred.of(error, "learning", "sense", "skip"))
        return self._begin()

    # -- the training

    def _examples(self, what: What) -> Sequence[Example]:
        """Return the examples of one sort: those of the configuration, then those of people."""
        taught = (Example(row.what, row.text, row.label) for row in self._rows.list())
        return [example for example in (*self._written, *taught) if example.what == what]

    def _begin(self) -> asyncio.Task[None] | None:
        """Begin to learn; return None when there is nothing to learn.

        Texts equal to an example are recognised at once, similar texts after the task has ended.
        """
        for what in WHATS:
            examples, former = self._examples(what), self._learnt.get(what)
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

    async def _train(self) -> None:
        while self._is_stale:
            self._is_stale = False
            for what in WHATS:
                if examples := self._examples(what):
                    try:
                        classifier = await self._threads.run(self._trained, examples)
                    except Exception as error:
                        self._failure = f"nothing new is learnt of {what}s: {error!r:.300}"
                        continue
                    self._trainings, self._failure = self._trainings + 1, ""
                    if not self._is_stale:
                        self._learnt[what] = Labels(examples, classifier)

    def learn_at_once(self) -> None:
        """Learn from the examples of the configuration, unless something was learnt already. It blocks until the
        training has ended; it is for use without an agent."""
        for what in WHATS if self._settings.enabled and not self._learnt else ():
            if examples := self._examples(what):
                self._learnt[what] = Labels(examples, self._trained(examples))

    # -- for its owner; `spar.ports.phases.OptionalSense` describes these methods

    async def teach(self, what: str, text: str, label: str, by: str) -> dict[str, Any]:
        """Store an example, and wait up to `PATIENCE` seconds until similar texts are recognised too.

        Raises: ValueError for a text, label or `what` out of bounds, ConflictError where learning is turned off,
        NoRoomError, NotReadyError without a store.
        """
        sort: What | None = next((known for known in WHATS if known == what), None)
        if sort is None:
            raise ValueError(f"{what!r:.40} cannot be taught; known: {', '.join(WHATS)}")
        if not self._settings.enabled:
            raise ConflictError("perception.learning.enabled = false: nothing is learnt")
        row = await self._rows.add(sort, text, label, by)
        self._host.events.publish(ExampleTaught(example=row.id, what=row.what, label=row.label, text=row.text, by=by))
        await self._ended(self._begin())
        return {**self.snapshot(), "what": sort, "label": label, "reading": self.read(text)[sort]}

    async def forget(self, row_id: str, by: str) -> dict[str, Any]:
        """Forget an example that was taught, and wait up to `PATIENCE` seconds until similar texts are recognised
        without it. Raises: LookupError for an unknown one."""
        row = await self._rows.drop(row_id)
        forgotten = ExampleForgotten(example=row.id, what=row.what, label=row.label, text=row.text, by=by)
        self._host.events.publish(forgotten)
        await self._ended(self._begin() if self._settings.enabled else None)
        return {**self.snapshot(), "what": row.what, "label": row.label, "text": row.text, "id": row.id}

    async def _ended(self, training: asyncio.Task[None] | None) -> None:
        """Wait until a training has ended, for `PATIENCE` seconds at most."""
        if training is not None:
            await ended(training, PATIENCE, self._host.clock)

    def list(self) -> dict[str, Any]:
        """Return the labels with their numbers of examples, and the examples that people taught, JSON-able."""
        return self._listed(self._rows.list())

    async def stored(self, agent: str, store: Any) -> dict[str, Any]:
        """Return the same for the rows of another agent in its store. Raises: the errors of the store."""
        taught = TaughtExamples(agent, store, self._host.clock, self._tell)
        await taught.open()
        return self._listed(taught.list())

    def _listed(self, rows: Sequence[TaughtExample]) -> dict[str, Any]:
        taught = Counter((row.what, row.label) for row in rows)
        written = Counter((example.what, example.label) for example in self._written)
        labels = [
            {"what": what, "label": label, "written": written[what, label], "taught": taught[what, label]}
            for what, label in sorted({*taught, *written})
        ]
        return {"labels": labels, "taught": rows, **self._figures(rows)}

    def read(self, text: str) -> dict[str, Any]:
        """Return the readings of a text by what was learnt, without the rules."""
        answer: dict[str, Any] = {}
        for what in WHATS:
            labels = self._learnt.get(what)
            reading = labels.read(text[:LONGEST_TRIED]) if labels else None
            answer[what] = None if labels is None or reading is None else {
                "label": reading.label, "confidence": round(reading.confidence, 3), "nearest": reading.nearest,
                "why": reading.why, "slots": labels.slots(reading.label, text) if reading.label else {},
            }  # fmt: skip
        return answer

    def snapshot(self) -> dict[str, Any]:
        """Return the numbers of examples and labels, JSON-able."""
        return self._figures(self._rows.list())

    def _figures(self, rows: Sequence[TaughtExample]) -> dict[str, Any]:
        return {
            "examples": len(self._written) + len(rows),
            "examples_taught": len(rows),
            "trained": self._trainings,
            "is_training": self._task is not None and not self._task.done(),
            "failure": self._failure,
        }
