"""Teaching: the examples of an agent, and the changes that its owner makes while it runs.

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
from perception.learning.learner import WHATS, Learner, Learnt
from perception.learning.taught import TaughtExample, TaughtExamples
from spar.errors import ConflictError
from spar.events import ErrorOccurred, ExampleForgotten, ExampleTaught
from spar.ports.services import Embedder
from spar.protocols import Host
from spar.types import Fault

#: Bound of the characters of a text to be read.
LONGEST_TRIED: Final = 10_000


class Teaching:
    """Learning of one agent. Call all methods in its event loop.

    Args: learnt: the labels that the pipeline uses; written: the examples of the configuration; embedder: embeds
    texts, where vectors are used.
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
        self._learner = Learner(learnt, settings, written, host.clock, embedder)
        self._tell = partial(host.tell_problem, is_note=True)
        self._taught = TaughtExamples(host.agent, host.store, host.clock, self._tell)

    async def open(self) -> asyncio.Task[None] | None:
        """Read the taught examples, and begin to learn; return None when there is nothing to learn.

        Raises nothing: an error of the store is published, and the examples of the configuration are learnt.
        """
        if not self._settings.enabled:
            return None
        try:
            await self._taught.open()
        except Exception as error:  # the next opening reads them again
            fault = Fault.of(error, part="learning", phase="sense")
            self._host.events.publish(ErrorOccurred(cycle_id="", phase="sense", error=fault, policy="skip"))
        return self._begin()

    def learn_at_once(self) -> None:
        """Learn from the examples of the configuration, unless something was learnt already. It blocks until the
        training has ended; it is for use without an agent."""
        self._learner.learn_at_once()

    async def teach(self, what: What, text: str, label: str, by: str) -> asyncio.Task[None] | None:
        """Store an example and begin to learn from it; it is on disk when this returns.

        Raises: ValueError for a text or label out of bounds, ConflictError where learning is turned off, NoRoomError,
        NotReadyError without a store.
        """
        if not self._settings.enabled:
            raise ConflictError("perception.learning.enabled = false: nothing is learnt")
        row = await self._taught.add(what, text, label, by)
        self._host.events.publish(ExampleTaught(example=row.id, what=row.what, label=row.label, text=row.text, by=by))
        return self._begin()

    async def forget(self, row_id: str, by: str) -> tuple[TaughtExample, asyncio.Task[None] | None]:
        """Forget an example that was taught, and begin to learn without it; return it too. Raises: LookupError."""
        row = await self._taught.drop(row_id)
        self._host.events.publish(
            ExampleForgotten(example=row.id, what=row.what, label=row.label, text=row.text, by=by)
        )
        return row, self._begin()

    def list(self) -> dict[str, Any]:
        """Return the labels with their numbers of examples, and the examples that people taught, JSON-able."""
        return self._listed(self._taught.list())

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
            if labels is None or reading is None:
                answer[what] = None
                continue
            slots = labels.slots(reading.label, text) if reading.label else {}
            answer[what] = {
                "label": reading.label,
                "confidence": round(reading.confidence, 3),
                "nearest": reading.nearest,
                "why": reading.why,
                "slots": slots,
            }
        return answer

    def snapshot(self) -> dict[str, Any]:
        """Return the numbers of examples and labels, JSON-able."""
        return self._figures(self._taught.list())

    def _figures(self, rows: Sequence[TaughtExample]) -> dict[str, Any]:
        return {
            "examples": len(self._written) + len(rows),
            "examples_taught": len(rows),
            "trained": self._learner.trained,
            "is_training": self._learner.is_busy,
            "failure": self._learner.failure,
        }

    def _begin(self) -> asyncio.Task[None] | None:
        return self._learner.begin([row.example for row in self._taught.list()])
