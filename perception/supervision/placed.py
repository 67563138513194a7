"""Sensors that are tied to a place: of the nodes that are there one has them, whichever node has their sessions.

What they notice is accepted, as what is pushed from outside is, and the owner of its session goes on with it. A batch
is accepted under keys of its generation; then its cursors are saved, with the number of the next generation, in one
transaction. After a crash in between the sensors return the same again, which the keys recognize.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import Any, Final

from msgspec.structs import replace

from perception.supervision.buffer import most_important
from perception.supervision.sensor_group import SensorGroup
from spar import facts
from spar.clock import Wake
from spar.errors import InboxFullError, LifecycleError, NotReadyError
from spar.events import ErrorOccurred
from spar.protocols import Context, Held, Host, SensorSpec
from spar.threads import call_off, in_loop
from spar.types import Perception

BEAT: Final = 1.0  # seconds between two polls of sensors without a rhythm
AGAIN_AFTER: Final = 1.0  # seconds until they begin again after an error, and until a full inbox is tried again
LOOK_EVERY: Final = 10.0  # seconds between two looks at the places of all nodes
BATCH, BATCH_BYTES = 100, 1024 * 1024
_PLACE: Final = "place:"


class PlacedSensors:
    """Sensors with a place, as one node sees them: it has those of its own place, or waits for them.

    `group` are those that run here; None while they do not.
    """

    def __init__(self, specs: Sequence[SensorSpec], host: Host, limit: int) -> None:
        self._here = [spec for spec in specs if spec.place == host.place]
        self._elsewhere = [spec for spec in specs if spec.place != host.place]
        self._host = replace(host, may_sense=lambda: True, wake=self._wake)
        self._clock, self._limit = host.clock, limit
        self._key = f"place:{host.agent}:{host.place}"
        self._places: frozenset[str] | None = None
        self._last_error = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._news = Wake(host.clock)
        self._tasks: list[asyncio.Task[None]] = []
        self.group: SensorGroup | None = None

    # -- opening and closing

    def start(self) -> None:
        """Begin to wait for the sensors of this place, and to look at the other places."""
        self._loop = asyncio.get_running_loop()
        works = ((self._here, self._run), (self._elsewhere, self._look))
        self._tasks = [self._loop.create_task(self._supervised(work), name="placed sensors")
                       for specs, work in works if specs]  # fmt: skip

    async def close(self) -> None:
        """Close the sensors, and leave them to other nodes."""
        tasks, self._tasks = self._tasks, []
        await call_off(tasks)

    async def _supervised(self, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await work()
            except Exception as error:
                self._tell(error)
            await self._clock.sleep(AGAIN_AFTER)

    # -- the sensors of this place

    async def _run(self) -> None:
        """Have the sensors while this node has them."""
        assert self._host.acquire is not None
        held = await self._host.acquire(f"{_PLACE}{self._host.place}")
        self._last_error = ""
        group = self.group = SensorGroup(self._here, self._host, self._limit)
        try:
            generation = int(await self._host.store.load(self._key) or 0) if self._host.store is not None else 0
            group.start()
            await group.first_turns()
            while held.is_held:
                await group.poll(Context(agent=self._host.agent, cycle_id="", clock=self._clock))
                while held.is_held and (buffers := group.news()):
                    await self._accept(most_important(buffers, BATCH, BATCH_BYTES), generation, held)
                    group.release()
                    generation += 1
                    await self._save(group, generation, held)
                await self._news.sleep(BEAT)
        finally:
            self.group = None
            try:
                await group.close()
            finally:
                held()

    async def _accept(self, batch: Sequence[Perception], generation: int, held: Held) -> None:
        """Have the agent accept a batch; what it has accepted under the same key is not accepted again."""
        same = Counter[str]()
        for perception in batch:
            text = f"{perception.source}\0{perception.key}\0{perception.kind}\0{perception.text}"
            mark = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
            key = f"{self._host.place[:64]}:{generation}:{mark}:{same[mark]}"
            same[mark] += 1
            while held.is_held:
                try:
                    await self._host.accept(perception, key=key)
                except (InboxFullError, NotReadyError, LifecycleError):
                    await self._clock.sleep(AGAIN_AFTER)
                    continue
                except (ValueError, TypeError) as error:  # it can never be accepted
                    self._tell(error)
                break

    async def _save(self, group: SensorGroup, generation: int, held: Held) -> None:
        """Save what the accepted perceptions have confirmed, in one transaction. Raises: SparError."""
        journal = self._host.journal
        values = {**group.cursors(), self._key: generation}
        if journal is None or not held.is_held:
            return
        for key, value in values.items():
            journal.append(facts.ValueSaved(key=key, value=value))
        if changes := group.row_changes():
            journal.append(facts.RowsChanged(changes=tuple(changes)))
        await journal.safe()

    def _wake(self) -> None:
        """Note that there are news; may be called from any thread."""
        if self._loop is not None:
            in_loop(self._loop, self._news.set)

    # -- those of other places

    async def _look(self) -> None:
        """Look which places have a node."""
        assert self._host.resources is not None
        while True:
            names = await self._host.resources()
            self._places = frozenset(name.removeprefix(_PLACE) for name in names if name.startswith(_PLACE))
            await self._clock.sleep(LOOK_EVERY)

    def snapshot(self) -> dict[str, Any]:
        """Return the state of each sensor by name, JSON-able."""
        group = self.group
        states = {spec.name: {"state": "elsewhere", "last_error": self._last_error} for spec in self._here}
        for spec in self._elsewhere:
            is_nowhere = self._places is not None and spec.place not in self._places
            sentence = f"no node has memory.place = {spec.place!r}" if is_nowhere else ""
            states[spec.name] = {"state": "nowhere" if is_nowhere else "elsewhere", "last_error": sentence}
        return states if group is None else {**states, **group.snapshot()}

    def _tell(self, error: Exception) -> None:
        event = ErrorOccurred.of(error, f"place {self._host.place!r}", "sense", "retry")
        if event.error.message != self._last_error:  # it is tried again every second
            self._last_error = event.error.message
            self._host.events.publish(event)
