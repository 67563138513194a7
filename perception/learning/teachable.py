"""Part of a sense module that its owner teaches. Implements `spar.ports.phases.OptionalSense.teach`."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from perception.learning.examples import What
from perception.learning.learner import WHATS
from perception.learning.teaching import Teaching
from spar.clock import Clock

#: Seconds that a person who teaches waits for the training.
PATIENCE: Final = 5.0


class Teachable:
    """Mixin that passes the owner's requests to `_teaching`. Call all methods in the agent's event loop."""

    _teaching: Teaching
    _clock: Clock

    async def teach(self, what: str, text: str, label: str, /, *, by: str = "") -> dict[str, Any]:
        """Store an example of an intent or a kind, and wait up to `PATIENCE` seconds until similar texts are
        recognised too.

        Raises: ValueError for a text, label or `what` out of bounds, ConflictError where learning is turned off,
        NoRoomError, NotReadyError without a memory.
        """
        sort: What | None = next((known for known in WHATS if known == what), None)
        if sort is None:
            raise ValueError(f"{what!r:.40} cannot be taught; known: {', '.join(WHATS)}")
        await self._ended(await self._teaching.teach(sort, text, label, by))
        return {**self._teaching.snapshot(), "what": sort, "label": label, "reading": self._teaching.read(text)[sort]}

    async def unteach(self, example: str, /, *, by: str = "") -> dict[str, Any]:
        """Forget an example that was taught, and wait up to `PATIENCE` seconds until similar texts are recognised
        without it. Raises: LookupError for an unknown one."""
        row, training = await self._teaching.forget(example, by)
        await self._ended(training)
        return {**self._teaching.snapshot(), "what": row.what, "label": row.label, "text": row.text, "id": row.id}

    async def _ended(self, training: asyncio.Task[None] | None) -> None:
        """Wait until a training has ended, for `PATIENCE` seconds at most."""
        if training is not None:
            timeout = self._clock.call_at(self._clock.monotonic() + PATIENCE, (over := asyncio.Event()).set)
            training.add_done_callback(lambda _: over.set())
            await over.wait()
            timeout.cancel()

    def taught(self) -> dict[str, Any]:
        """Return the known labels, and the examples that people taught."""
        return self._teaching.list()

    async def stored_examples(self, agent: str, store: Any, /) -> dict[str, Any]:
        """Return the known labels and the taught examples in the store of an agent that does not run."""
        return await self._teaching.stored(agent, store)

    def read(self, text: str, /) -> dict[str, Any]:
        """Return the readings of a text by what was learnt."""
        return self._teaching.read(text)
