"""The standard SENSE module: keeps the sensors, gathers what they noticed, runs the pipeline over it.

Noticing never waits for thinking: a sensor with a rhythm is polled at its times whatever the agent does, one without is
polled with each cycle, and once a second while a cycle goes on. Sensors are polled all at once and none waits for
another: what has come goes through the pipeline with the next cycle, the most important first; what comes between two
cycles wakes the agent. When nothing is due and nothing was handed over, sensing costs microseconds. A cursor is saved
when the cycle that took its perceptions has ended, so that a crash repeats rather than loses. What the perceptions mean
and which of them matter is the pipeline's business; much of it at once is a thread's.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import anyio
from annotated_types import Ge

import spar.events
from perception.examining import examined
from perception.incidents.keeping import Incidents
from perception.learning.examples import written
from perception.learning.teachable import Teachable
from perception.learning.teaching import Teaching
from perception.pipeline import Pipeline
from perception.pipeline_rows import PipelineRows
from perception.processing import INLINE, Batch, Processing, finished
from perception.supervision.sensor_supervisor import NEVER, SensorSupervisor
from perception.supervision.sensor_task import ended
from perception.supervision.sharing import most_important
from spar.clock import SystemClock, Timer
from spar.errors import ConfigError
from spar.events import Event
from spar.hooks import Hooks
from spar.ports.embedder import Embedder
from spar.ports.optional import offers
from spar.ports.webhook import Webhook
from spar.protocols import Context, Home, Host, SensorSpec
from spar.records.journal import RowChange
from spar.records.perceived.examined import Examined
from spar.types import Perception

STRAGGLERS = 0.05  # seconds that perceptions wait for polls that are still running
PATIENCE = 1.0  # seconds that a cycle, or a start, waits for polls when it has nothing else
CLOSING = 1.0  # seconds until the next sensor is closed while one is slow to
BUFFER = 10_000  # perceptions of one sensor that may wait, unless it is said otherwise
BATCH = 1_000  # perceptions taken in one cycle; more would be cut by the pipeline's usual limit
BATCH_BYTES = 8 * 1024 * 1024  # of their content
BEAT = 1.0  # seconds between polls of sensors without a rhythm while a cycle goes on


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
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._awaited: set[SensorSupervisor] = set()
        self._stirred: asyncio.Future[None] | None = None
        self._supervisors: tuple[SensorSupervisor, ...] = ()
        self._sensed: Batch | None = None  # what was taken and no cycle has got yet
        self._untold: list[Perception] = []  # notices of incidents of batches that nobody waited for to the end
        self._beat: Timer | None = None
        self._closing: set[asyncio.Task[None]] = set()  # kept here also when nobody waits for them any more
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
        self._supervisors = tuple(
            SensorSupervisor(
                spec, host, limit=self._buffer, arrived=self._arrived, changed=self._turned, report=self._report
            )
            for spec in self._specs
        )
        self._without_rhythm = tuple(each for each in self._supervisors if each.is_polled and not each.has_rhythm)

    async def __aenter__(self) -> Sense:
        """Begin to open every sensor; waits a moment, and never for one that hangs. Raises nothing."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        await self.incidents.load()
        if self._sensed is not None and self._sensed.get_loop() is not self._loop:
            self._sensed = None  # nothing comes of it any more; what sensors keep a cursor of comes again
            self.incidents.rescue()
        await self._rows.load()
        for supervisor in self._supervisors:
            supervisor.start()
        try:
            if (training := await self._teaching.open()) is not None:
                await ended(training, PATIENCE, self._clock)
            await self._gather(set(self._supervisors), PATIENCE)
        except BaseException:  # who is not entered is not left either
            with anyio.CancelScope(shield=True):
                await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close every sensor in reverse order, each within its timeout; a slow one does not keep the next.

        Cancelled, it closes the rest at once: none is left open, and none keeps a task.
        """
        loop = asyncio.get_running_loop()
        self.incidents.close()
        if self._beat is not None:
            self._beat.cancel()
        waiting = list(self._supervisors)
        closing: list[asyncio.Task[None]] = []

        def begin() -> None:
            supervisor = waiting.pop()
            task = loop.create_task(supervisor.close(), name=f"closing of {supervisor.name}")
            closing.append(task)
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

        try:
            while waiting:
                begin()
                await ended(closing[-1], CLOSING, self._clock)
            if closing:
                await asyncio.wait(closing)
            is_at_rest = await self._processing.rest(CLOSING)
            if not self._is_ahead:
                await self._rows.close(is_at_rest=is_at_rest)
        except asyncio.CancelledError:
            while waiting:
                begin()
            await asyncio.wait(closing)
            raise

    async def sense(self, context: Context) -> list[Perception]:
        """Return the new perceptions, through the pipeline; the most important first.

        Cancelled while a thread works on it, it keeps what was taken for the next time.
        """
        self._watch_over(context.cycle_id)
        now = self._clock.monotonic()
        if active := [supervisor for supervisor in self._supervisors if supervisor.due <= now or supervisor.is_busy]:
            for supervisor in active:
                if supervisor.due <= now:
                    supervisor.begin(context)
            # A poll that takes longer is waited for once.
            await self._gather({each for each in active if each.is_busy and now - each.began < PATIENCE}, PATIENCE)
        if self._sensed is None:
            news = [supervisor for supervisor in self._supervisors if supervisor.buffer.has_news]
            if not news and not self._untold and not self.incidents.is_due:
                return []
            batch = most_important([supervisor.buffer for supervisor in news], BATCH, BATCH_BYTES)
            self._sensed = self._processing.begin(batch)
        try:
            perceptions = await finished(self._sensed)
        except Exception:
            self._sensed = None
            raise
        self._sensed = None
        for supervisor in self._supervisors:
            supervisor.buffer.release()
        if any(supervisor.buffer.waiting for supervisor in self._supervisors):
            self._host.wake()
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
        for supervisor in self._supervisors:
            if supervisor.name == name and offers(hook := supervisor.spec.sensor, Webhook):
                supervisor.demand_open()
                return hook
        return None

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
        return {key: value for supervisor in self._supervisors for key, value in supervisor.kept.unsaved().items()}

    def row_changes(self) -> list[RowChange]:
        """Return the changes of the rows of sensors and pipeline behind what cycles have taken; the caller writes
        them."""
        of_sensors = [change for supervisor in self._supervisors for change in supervisor.rows.unsaved()]
        return [*of_sensors, *(() if self._is_ahead else self._rows.changes())]

    def cycle_rows(self, cycle_id: str) -> list[RowChange]:
        """Return the changes of rows that a cycle's perceptions have made, once; the caller writes them with it."""
        return self.incidents.rows_of(cycle_id)

    async def settled(self) -> None:
        """A cycle that had perceptions has ended: save the cursors of what it took. Raises no error."""
        for supervisor in self._supervisors:
            await supervisor.kept.save()
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
        earliest = min((supervisor.due for supervisor in self._supervisors if supervisor.has_rhythm), default=NEVER)
        return None if earliest == NEVER else earliest

    def shed(self) -> int:
        """Give up what is remembered for convenience, for want of memory; how many entries that were."""
        return self._processing.between(self.pipeline.shed)

    def restore(self, sensor: str) -> None:
        """Try a sensor that is in quarantine again now. Raises: LookupError for one that is not known."""
        for supervisor in self._supervisors:
            if supervisor.name == sensor:
                supervisor.probe()
                return
        raise LookupError(
            f"no sensor {sensor!r}; known: {', '.join(supervisor.name for supervisor in self._supervisors) or 'none'}"
        )

    def snapshot(self) -> dict[str, Any]:
        """Return the state of each sensor and the counts of the pipeline, JSON-able."""
        return {
            "sensors": {supervisor.name: supervisor.snapshot() for supervisor in self._supervisors},
            "pipeline": dict(self.pipeline.counts),
            "incidents": self.incidents.figures(),
            "learning": self._teaching.snapshot(),
        }

    # -- while a cycle goes on

    def _watch_over(self, cycle_id: str) -> None:
        """Poll sensors without a rhythm for as long as this cycle takes."""
        if self._beat is not None:
            self._beat.cancel()
        if not self._without_rhythm:
            return
        self._beat = self._clock.call_at(self._clock.monotonic() + BEAT, lambda: self._poll_amid(cycle_id))

    def _poll_amid(self, cycle_id: str) -> None:
        if self._host.is_in_hand(cycle_id):
            now = self._clock.monotonic()
            for supervisor in self._without_rhythm:
                if supervisor.due <= now:
                    supervisor.begin()
            self._watch_over(cycle_id)

    # -- waiting

    async def _gather(self, begun: set[SensorSupervisor], patience: float) -> None:
        """Wait until the turns have ended; not for long, and still less once there is something to pass on."""
        self._awaited = begun
        deadline = self._clock.monotonic() + patience
        has_news = False
        try:
            while self._awaited:
                if not has_news and any(supervisor.buffer.waiting for supervisor in self._supervisors):
                    has_news = True
                    deadline = min(deadline, self._clock.monotonic() + STRAGGLERS)
                left = deadline - self._clock.monotonic()
                if left <= 0:
                    return
                self._stirred = asyncio.get_running_loop().create_future()
                await ended(self._stirred, left, self._clock)
        finally:
            self._awaited, self._stirred = set(), None

    def _stir(self) -> None:
        if self._stirred is not None and not self._stirred.done():
            self._stirred.set_result(None)

    def _turned(self, supervisor: SensorSupervisor) -> None:
        if supervisor in self._awaited:
            self._awaited.discard(supervisor)
            self._stir()
        elif supervisor.buffer.waiting:
            self._host.wake()

    def _arrived(self) -> None:
        """Note that something was pushed, from any thread."""
        self._host.wake()
        if self._stirred is not None:
            self._in_loop(self._stir)

    # -- telling

    def _report(self, event_name: str, /, **fields: Any) -> None:
        """Publish an event for a sensor (its `report`), from any thread. Raises: ValueError for an unknown event."""
        kind = getattr(spar.events, event_name, None)
        if not (isinstance(kind, type) and issubclass(kind, Event)):
            raise ValueError(
                f"no event named {event_name!r}; known are the classes of spar.events, such as 'TriggerMissed'"
            )
        event = kind(**fields)
        self._in_loop(lambda: self._host.events.publish(event))

    def _in_loop(self, act: Any) -> None:
        if threading.get_ident() == self._thread:
            act()
        elif self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(act)
            except RuntimeError:  # the loop is closed: nobody is left to be told
                return
