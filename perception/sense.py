"""The standard SENSE module: keeps the sensors, gathers what they noticed, runs the pipeline over it.

Noticing never waits for thinking: `supervision/sensor_group` polls the sensors. What has come goes through the pipeline
with the next cycle, the most important first. When nothing is due and nothing was handed over, sensing costs
microseconds. A cursor is saved when the cycle that took its perceptions has ended, so that a crash repeats rather than
loses. What the perceptions mean and which of them matter is the pipeline's business; much of it at once is a thread's.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import anyio
from annotated_types import Ge

from perception.examining import examined
from perception.incidents.keeping import Incidents
from perception.learning.examples import written
from perception.learning.teachable import Teachable
from perception.learning.teaching import Teaching
from perception.pipeline import Pipeline
from perception.pipeline_rows import PipelineRows
from perception.processing import INLINE, Batch, Processing, finished
from perception.supervision.sensor_group import CLOSING, PATIENCE, SensorGroup
from perception.supervision.sensor_task import ended
from perception.supervision.sharing import most_important
from spar.clock import SystemClock
from spar.errors import ConfigError
from spar.hooks import Hooks
from spar.ports.embedder import Embedder
from spar.ports.webhook import Webhook
from spar.protocols import Context, Home, Host, SensorSpec
from spar.records.journal import RowChange
from spar.records.perceived.examined import Examined
from spar.types import Perception

BUFFER = 10_000  # perceptions of one sensor that may wait, unless it is said otherwise
BATCH = 1_000  # perceptions taken in one cycle; more would be cut by the pipeline's usual limit
BATCH_BYTES = 8 * 1024 * 1024  # of their content


class _Unheard:
    """Takes the events of a sense without an agent: there is nobody to tell."""

    def publish(self, event: Any) -> None:
        return None


class Sense(Teachable):
    """Senses through any number of supervised sensors.

    Args: sensors: each with how it is kept; pipeline: settings as in the table `[perception]`; buffer: how many
    perceptions of one sensor may wait to be sensed, the next one is refused; home: where files of examples are;
    embedder: has it learn by vectors, too.
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
        self._register = self.pipeline.incidents
        of = self.pipeline.settings
        self._embedder, self._examples = (
            embedder,
            written({"intent": of.intents, "kind": of.kinds}, of.learning.files, home),
        )
        self._specs, self._buffer = tuple(sensors), buffer
        self._sensed: Batch | None = None  # what was taken and no cycle has got yet
        self._untold: list[Perception] = []  # notices of incidents of batches that nobody waited for to the end
        self.attach(Host("", SystemClock(), _Unheard(), Hooks(), lambda: None))

    def attach(self, host: Host) -> None:
        """Join an agent; before it is opened."""
        self._host, self._clock = host, host.clock
        self._teaching = Teaching(
            self.pipeline.learnt, self.pipeline.settings.learning, self._examples, host, self._embedder
        )
        self.incidents = Incidents(self._register, lambda batch: self.pipeline.process(batch), host)
        self._processing = Processing(self.incidents.process, host.clock, inline=0 if self._embedder else INLINE)
        self._rows = PipelineRows(self.pipeline, host)
        self._sensors = SensorGroup(self._specs, host, self._buffer)

    async def __aenter__(self) -> Sense:
        """Begin to open every sensor; waits a moment, and never for one that hangs. Raises nothing."""
        await self.incidents.load()
        if self._sensed is not None and self._sensed.get_loop() is not asyncio.get_running_loop():
            self._sensed = None  # nothing comes of it any more; what sensors keep a cursor of comes again
            self.incidents.rescue()
        await self._rows.load()
        self._sensors.start()
        try:
            if (training := await self._teaching.open()) is not None:
                await ended(training, PATIENCE, self._clock)
            await self._sensors.first_turns()
        except BaseException:  # who is not entered is not left either
            with anyio.CancelScope(shield=True):
                await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close every sensor in reverse order, each within its timeout; a slow one does not keep the next.

        Cancelled, it closes the rest at once: none is left open, and none keeps a task.
        """
        self.incidents.close()
        await self._sensors.close()
        is_at_rest = await self._processing.rest(CLOSING)
        if not self._is_ahead:
            await self._rows.close(is_at_rest=is_at_rest)

    async def sense(self, context: Context) -> list[Perception]:
        """Return the new perceptions, through the pipeline; the most important first.

        Cancelled while a thread works on it, it keeps what was taken for the next time.
        """
        await self._sensors.poll(context)
        if self._sensed is None:
            news = self._sensors.news()
            if not news and not self._untold and not self.incidents.is_due:
                return []
            self._sensed = self._processing.begin(most_important(news, BATCH, BATCH_BYTES))
        try:
            perceptions = await finished(self._sensed)
        except Exception:
            self._sensed = None
            raise
        self._sensed = None
        self._sensors.release()
        self.incidents.passed(perceptions, context.cycle_id)
        if self._untold:
            perceptions, self._untold = [*self._untold, *perceptions], []
        if not perceptions:  # no cycle will come of it, so there is no end of one to wait for
            self.incidents.write(context.cycle_id)
            await self.settled()
        return perceptions

    async def perceive(self, pushed: Sequence[Perception], context: Context) -> list[Perception]:
        """Process perceptions that came in through the agent itself.

        Cancelled while a thread works on them, what they have changed in incidents is kept and told all the same.
        """
        batch = self._processing.begin(pushed)
        try:
            perceptions = await finished(batch)
        except asyncio.CancelledError:
            batch.add_done_callback(self._left)
            raise
        self.incidents.passed(perceptions, context.cycle_id)
        return perceptions

    def _left(self, batch: Batch) -> None:
        """See to the incidents of a batch that nobody waits for any more; their notices come with the next one."""
        if batch.cancelled() or batch.exception() is not None:
            return
        perceptions = batch.result()
        self.incidents.passed(perceptions, "")
        self.incidents.write("")
        if untold := [each for each in perceptions if each.kind.startswith("incident.")]:
            self._untold += untold
            self._host.wake()

    def hear(self, text: str, session: str) -> Perception:
        """Return the perception that a message is, on the terms of the sensor that hears messages, if one is
        configured.

        Raises: ValueError when those terms refuse it.
        """
        for spec in self._specs:
            if (hear := getattr(spec.sensor, "hear", None)) is not None:
                heard: Perception = hear(text, session)
                return heard
        return Perception(text, source="message", kind="message", session=session, trust="trusted")

    def webhook(self, name: str) -> Webhook | None:
        """Return the sensor of this name that is posted to; None if there is none. From any thread.

        Raises: NotReadyError while it is not open.
        """
        return self._sensors.webhook(name)

    def examine(self, batch: Sequence[Perception]) -> list[Examined]:
        """Return what the pipeline makes of each perception, in order; times are what they say."""
        self._register.now, self._register.is_heard = None, False
        self._teaching.learn_at_once()
        return examined(self.pipeline, batch)

    def stage_counts(self) -> dict[str, dict[str, int]]:
        """Return the counts of the pipeline, by stage."""
        return self.pipeline.counts

    def cursors(self) -> dict[str, Any]:
        """Return the cursors behind what cycles have taken, by key; the caller saves them."""
        return self._sensors.cursors()

    def row_changes(self) -> list[RowChange]:
        """Return the changes of the rows of sensors and pipeline behind what cycles have taken; the caller writes
        them."""
        return [*self._sensors.row_changes(), *(() if self._is_ahead else self._rows.changes())]

    def cycle_rows(self, cycle_id: str) -> list[RowChange]:
        """Return the changes of rows that a cycle's perceptions have made, once; the caller writes them with it."""
        return self.incidents.rows_of(cycle_id)

    async def settled(self) -> None:
        """A cycle that had perceptions has ended: save the cursors of what it took. Raises no error."""
        await self._sensors.save()
        if not self._is_ahead:
            await self._rows.save()

    @property
    def _is_ahead(self) -> bool:
        """Return whether the pipeline may know of a batch already that no cycle has got: written now, its rows would
        stand without it after a crash, and the batch that comes again would be taken for told."""
        return self._sensed is not None or self._processing.is_busy

    def next_due(self) -> float | None:
        """Return when the earliest sensor with a rhythm of its own is to be polled, monotonic seconds; None: no time
        known."""
        return self._sensors.next_due()

    def shed(self) -> int:
        """Give up what is remembered for convenience, for want of memory; how many entries that were."""
        return self._processing.between(self.pipeline.shed)

    def restore(self, sensor: str) -> None:
        """Try a sensor that is in quarantine again now. Raises: LookupError for one that is not known."""
        self._sensors.restore(sensor)

    def snapshot(self) -> dict[str, Any]:
        """Return the state of each sensor and the counts of the pipeline, JSON-able."""
        return {
            "sensors": self._sensors.snapshot(),
            "pipeline": dict(self.pipeline.counts),
            "incidents": self.incidents.figures(),
            "learning": self._teaching.snapshot(),
        }
