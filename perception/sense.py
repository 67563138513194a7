"""Standard SENSE module: runs the sensors, collects their perceptions, and runs the pipeline over them.

Sensing never waits for planning: `supervision/sensor_group` polls the sensors independently. The perceptions go
through the pipeline with the next cycle, the most important first. When nothing is due and nothing has come, sensing
costs microseconds. A cursor is saved when the cycle that took its perceptions has ended, so that a crash repeats
perceptions and does not lose them. The pipeline interprets and rates the perceptions; a thread processes large
batches.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import anyio
from annotated_types import Ge

from perception.incidents.keeping import Incidents
from perception.learning.examples import Example, written
from perception.learning.teaching import Teaching
from perception.pipeline import Pipeline
from perception.pipeline_rows import PipelineRows
from perception.processing import INLINE, Batch, Processing, finished
from perception.supervision.buffer import most_important
from perception.supervision.placed import PlacedSensors
from perception.supervision.sensor_group import CLOSING, PATIENCE, SensorGroup
from spar.clock import SystemClock, ended
from spar.errors import ConfigError
from spar.events import ErrorOccurred
from spar.hooks import Hooks
from spar.ports.services import Embedder
from spar.ports.webhook import Webhook
from spar.protocols import Context, Home, Host, SensorSpec
from spar.records.journal import RowChange
from spar.records.perceived import Examined
from spar.threads import Users
from spar.types import Perception

BUFFER = 10_000  # default bound of the waiting perceptions of one sensor
BATCH = 1_000  # perceptions taken in one cycle; the pipeline's usual limit would cut more
BATCH_BYTES = 8 * 1024 * 1024  # bytes of their content


class _NoEvents:
    """Event bus of a sense module without an agent: it drops all events."""

    def publish(self, event: Any) -> None:
        return None


class _Parts:
    """Parts of a sense module that use an agent."""

    def __init__(self, host: Host, sense: Sense, specs: Sequence[SensorSpec], buffer: int,
                 examples: Sequence[Example], embedder: Embedder | None) -> None:  # fmt: skip
        placed = [spec for spec in specs if spec.place] if host.acquire is not None else []
        self.host, pipeline = host, sense.pipeline
        self.incidents = Incidents(pipeline.incidents, lambda batch: sense.pipeline.process(batch), host)
        self.teaching = Teaching(pipeline.learnt, pipeline.settings.learning, examples, host, embedder)
        self.processing = Processing(self.incidents.process, host.clock, inline=0 if embedder else INLINE)
        self.rows = PipelineRows(pipeline, host)
        self.sensors = SensorGroup([spec for spec in specs if spec not in placed], host, buffer)
        self.placed = PlacedSensors(placed, host, buffer)


class Sense:
    """Sense module with any number of supervised sensors.

    Args: sensors: the sensors with their terms; pipeline: settings as in the table `[perception]`; buffer: how many
    perceptions of one sensor may wait, the next one is refused; home: the folders of files of examples; embedder:
    embeds texts, so that learning uses vectors too.

    Raises: ConfigError for two sensors of one name or settings that cannot be used.
    """

    def __init__(
        self,
        sensors: Sequence[SensorSpec] = (),
        *,
        pipeline: Mapping[str, Any] | None = None,
        buffer: Annotated[int, Ge(1)] = BUFFER,
        home: Home | None = None,
        embedder: Embedder | None = None,
    ) -> None:
        names = Counter(spec.name for spec in sensors)
        if twice := [name for name, count in names.items() if count > 1]:
            raise ConfigError(f"two sensors are named {twice[0]!r}; each needs a name of its own", path=("sensors",))
        self.pipeline = Pipeline(pipeline)
        self._register, self._errors = self.pipeline.incidents, self.pipeline.errors
        tables = self.pipeline.settings
        examples = written({"intent": tables.intents, "kind": tables.kinds}, tables.learning.files, home)
        self._specs = tuple(sensors)
        self._make = partial(_Parts, sense=self, specs=self._specs, buffer=buffer, examples=examples,
                             embedder=embedder)  # fmt: skip
        self._users = Users()
        self._attached: _Parts | None = None
        self._opened: _Parts | None = None
        self._taken_batch: Batch | None = None  # the batch that was taken and not returned yet
        self._taken: Sequence[Perception] = ()  # perceptions that were taken from the sensors and not processed yet
        self._late_notices: list[Perception] = []  # notices from batches whose caller was cancelled

    def attach(self, host: Host) -> None:
        """Attach the module to an agent; call it before opening."""
        self._attached = self._make(host)

    @property
    def _parts(self) -> _Parts:
        """Return the parts that use an agent; those of a module without one are made when they are first used."""
        if self._attached is None:
            parts = self._make(Host("", SystemClock(), _NoEvents(), Hooks(), lambda: None))
            self._attached = self._attached or parts  # another thread may attach the module meanwhile
        return self._attached

    @property
    def incidents(self) -> Incidents:
        """Return the incidents."""
        return self._parts.incidents

    async def __aenter__(self) -> Sense:
        """Begin to open every sensor; wait a moment, and never for a hanging one. Raises nothing."""
        await self._users.enter(self._open, self._open_again)
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close every sensor at the exit of the last user; see `_close`."""
        await self._users.leave(self._close)

    async def _open_again(self) -> None:
        """Open the parts that `attach` has made since the opening, and close those before them."""
        if self._opened is not None and self._opened is not self._parts:
            await self._close()
            await self._open()

    async def _open(self) -> None:
        parts = self._opened = self._parts
        await parts.incidents.load()
        if self._taken_batch is not None and self._taken_batch.get_loop() is not asyncio.get_running_loop():
            self._taken_batch, self._taken = None, ()  # its loop is closed, so it never ends; cursors repeat it
            parts.incidents.rescue()
        await parts.rows.load()
        parts.sensors.start()
        parts.placed.start()
        try:
            if (training := await parts.teaching.open()) is not None:
                await ended(training, PATIENCE, parts.host.clock)
            await parts.sensors.first_turns()
        except BaseException:  # `__aexit__` is not called when `__aenter__` raises
            with anyio.CancelScope(shield=True):
                await self._close()
            raise

    async def _close(self) -> None:
        """Close every sensor in reverse order, each within its timeout; a slow one does not delay the next.

        When cancelled, it closes the remaining ones at once: no sensor stays open, and no task remains.
        """
        parts, self._opened = self._opened or self._parts, None
        parts.incidents.close()
        await parts.sensors.close()
        await parts.placed.close()
        is_at_rest = await parts.processing.rest(CLOSING)
        if not self._parts.host.may_sense():  # another process goes on from the cursors, which do not cover this
            self._taken_batch, self._taken, self._late_notices = None, (), []
        if not self._is_ahead:
            await parts.rows.close(is_at_rest=is_at_rest)

    async def sense(self, context: Context) -> list[Perception]:
        """Return the new perceptions after the pipeline, the most important first.

        When it is cancelled while a thread processes the batch, the next call returns that batch. When the pipeline
        fails, the next call processes the same perceptions again; their cursors wait.
        """
        await self._parts.sensors.poll(context)
        if self._taken_batch is None:
            news = self._parts.sensors.news()
            if not news and not self._taken and not self._late_notices and not self.incidents.is_due:
                return []
            self._taken = self._taken or most_important(news, BATCH, BATCH_BYTES)
            self._taken_batch = self._parts.processing.begin(self._taken)
        try:
            perceptions = await finished(self._taken_batch)
        except Exception:
            self._taken_batch = None
            raise
        self._taken_batch, self._taken = None, ()
        self._parts.sensors.release()
        self._pass(perceptions, context.cycle_id)
        if self._late_notices:
            perceptions, self._late_notices = [*self._late_notices, *perceptions], []
        if not perceptions:  # no cycle follows, so save without waiting for its end
            self.incidents.write(context.cycle_id)
            await self.settled()
        return perceptions

    async def perceive(self, pushed: Sequence[Perception], context: Context) -> list[Perception]:
        """Process perceptions that came through the agent itself.

        When it is cancelled while a thread processes them, their changes of incidents are still stored and reported.
        """
        batch = self._parts.processing.begin(pushed)
        try:
            perceptions = await finished(batch)
        except asyncio.CancelledError:
            batch.add_done_callback(self._pass_late)
            raise
        self._pass(perceptions, context.cycle_id)
        return perceptions

    def _pass(self, perceptions: list[Perception], cycle_id: str) -> None:
        """Store and report the changes of incidents of a batch, and report the stages that raised."""
        self.incidents.passed(perceptions, cycle_id)
        while self._errors:
            stage, error = self._errors.popleft()
            self._parts.host.events.publish(ErrorOccurred.of(error, f"pipeline.{stage}", "sense", "continue", cycle_id))

    def _pass_late(self, batch: Batch) -> None:
        """Store the changes of incidents of a batch whose caller was cancelled; its notices come with the next
        batch."""
        if batch.cancelled() or batch.exception() is not None:
            return
        perceptions = batch.result()
        self._pass(perceptions, "")
        self.incidents.write("")
        if notices := [notice for notice in perceptions if notice.kind.startswith("incident.")]:
            self._late_notices += notices
            self._parts.host.wake()

    def hear(self, text: str, session: str) -> Perception:
        """Return the perception of a message, by the terms of the messages sensor, if one is configured.

        Raises: ValueError when those terms refuse it.
        """
        for spec in self._specs:
            if (hear := getattr(spec.sensor, "hear", None)) is not None:
                perception: Perception = hear(text, session)
                return perception
        return Perception(text, source="message", kind="message", session=session, trust="trusted")

    def webhook(self, name: str) -> Webhook | None:
        """Return the webhook sensor of this name; None if there is none. It may be called from any thread.

        Raises: NotReadyError while it is not open.
        """
        of_place = self._parts.placed.group
        return self._parts.sensors.webhook(name) or (None if of_place is None else of_place.webhook(name))

    def examine(self, batch: Sequence[Perception]) -> list[Examined]:
        """Return the result of the pipeline for each perception, in order; the time is that of the perceptions."""
        self._register.now, self._register.is_heard = None, False
        self._parts.teaching.learn_at_once()
        return self.pipeline.examined(batch)

    async def teach(self, what: str, text: str, label: str, /, *, by: str = "") -> dict[str, Any]:
        """Store an example of an intent or a kind, and wait a moment until similar texts are recognised too.

        Raises: ValueError for a text, label or `what` out of bounds, ConflictError where learning is turned off,
        NoRoomError, NotReadyError without a memory.
        """
        return await self._parts.teaching.teach(what, text, label, by)

    async def unteach(self, example: str, /, *, by: str = "") -> dict[str, Any]:
        """Forget an example that was taught, and wait a moment until similar texts are recognised without it.

        Raises: LookupError for an unknown one.
        """
        return await self._parts.teaching.forget(example, by)

    def taught(self) -> dict[str, Any]:
        """Return the known labels, and the examples that people taught."""
        return self._parts.teaching.list()

    async def stored_examples(self, agent: str, store: Any, /) -> dict[str, Any]:
        """Return the known labels and the taught examples in the store of an agent that does not run."""
        return await self._parts.teaching.stored(agent, store)

    def read(self, text: str, /) -> dict[str, Any]:
        """Return the readings of a text by what was learnt."""
        return self._parts.teaching.read(text)

    def stage_counts(self) -> dict[str, dict[str, int]]:
        """Return the counts of the pipeline, by stage."""
        return self.pipeline.counts

    def cursors(self) -> dict[str, Any]:
        """Return the cursors behind the perceptions that cycles have taken, by key; the caller saves them."""
        return self._parts.sensors.cursors()

    def row_changes(self) -> list[RowChange]:
        """Return the changes of the rows of sensors and pipeline behind the perceptions that cycles have taken; the
        caller writes them."""
        return [*self._parts.sensors.row_changes(), *(() if self._is_ahead else self._parts.rows.ledger.row_changes())]

    def cycle_rows(self, cycle_id: str) -> list[RowChange]:
        """Return the changes of rows that a cycle's perceptions have made, once; the caller writes them with the
        cycle."""
        return self.incidents.rows_of(cycle_id)

    async def settled(self) -> None:
        """Save the cursors behind the perceptions of a cycle that has ended. Raises no error."""
        await self._parts.sensors.save()
        if not self._is_ahead:
            await self._parts.rows.ledger.save()

    @property
    def _is_ahead(self) -> bool:
        """Return whether the state of the pipeline may include a batch that no cycle has yet. Its rows must not be
        written then: after a crash the repeated batch would count as known already."""
        return self._taken_batch is not None or bool(self._taken) or self._parts.processing.is_busy

    def shed(self) -> int:
        """Forget state that is not essential, to free memory; return the number of its entries."""
        return self._parts.processing.between(self.pipeline.shed)

    def restore(self, sensor: str) -> None:
        """Try a quarantined sensor again now. Raises: LookupError for an unknown one."""
        of_place = self._parts.placed.group
        (of_place if of_place is not None and of_place.has(sensor) else self._parts.sensors).restore(sensor)

    def snapshot(self) -> dict[str, Any]:
        """Return the state of each sensor and the counts of the pipeline, JSON-able."""
        return {
            "sensors": {**self._parts.sensors.snapshot(), **self._parts.placed.snapshot()},
            "pipeline": dict(self.pipeline.counts),
            "incidents": self.incidents.figures(),
            "learning": self._parts.teaching.snapshot(),
        }
