"""The sensors of one module, polled all at once: none waits for another.

A sensor with a rhythm is polled at its times whatever the agent does, one without is polled with each cycle, and once a
second while a cycle goes on. What comes between two cycles wakes the agent.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from typing import Any

import spar.events
from perception.supervision.buffer import SensorBuffer
from perception.supervision.sensor_supervisor import NEVER, SensorSupervisor
from perception.supervision.sensor_task import ended
from spar.clock import Timer
from spar.events import Event
from spar.ports.optional import offers
from spar.ports.webhook import Webhook
from spar.protocols import Context, Host, SensorSpec
from spar.records.journal import RowChange

STRAGGLERS = 0.05  # seconds that perceptions wait for polls that are still running
PATIENCE = 1.0  # seconds that a cycle, or a start, waits for polls when it has nothing else
CLOSING = 1.0  # seconds until the next sensor is closed while one is slow to
BEAT = 1.0  # seconds between polls of sensors without a rhythm while a cycle goes on


class SensorGroup:
    """Any number of supervised sensors. `limit`: how many perceptions of one of them may wait to be taken."""

    def __init__(self, specs: Sequence[SensorSpec], host: Host, limit: int) -> None:
        self._host, self._clock = host, host.clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._awaited: set[SensorSupervisor] = set()
        self._stirred: asyncio.Future[None] | None = None
        self._beat: Timer | None = None
        self._closing: set[asyncio.Task[None]] = set()  # kept here also when nobody waits for them any more
        self._supervisors = tuple(
            SensorSupervisor(spec, host, limit=limit, arrived=self._arrived, changed=self._turned, report=self._report)
            for spec in specs
        )
        self._without_rhythm = tuple(each for each in self._supervisors if each.is_polled and not each.has_rhythm)

    # -- opening and closing

    def start(self) -> None:
        """Begin to open every sensor, in this event loop."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        for supervisor in self._supervisors:
            supervisor.start()

    async def first_turns(self) -> None:
        """Wait a moment until the sensors are open and polled, and never for one that hangs."""
        await self._gather(set(self._supervisors))

    async def close(self) -> None:
        """Close every sensor in reverse order, each within its timeout; a slow one does not keep the next.

        Cancelled, it closes the rest at once: none is left open, and none keeps a task.
        """
        loop = asyncio.get_running_loop()
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
        except asyncio.CancelledError:
            while waiting:
                begin()
            await asyncio.wait(closing)
            raise

    # -- polling

    async def poll(self, context: Context) -> None:
        """Poll the sensors that are due, and wait a moment for them; poll on for as long as this cycle takes."""
        self._watch_over(context.cycle_id)
        now = self._clock.monotonic()
        if active := [supervisor for supervisor in self._supervisors if supervisor.due <= now or supervisor.is_busy]:
            for supervisor in active:
                if supervisor.due <= now:
                    supervisor.begin(context)
            # A poll that takes longer is waited for once.
            await self._gather({each for each in active if each.is_busy and now - each.began < PATIENCE})

    def next_due(self) -> float | None:
        """Return when the earliest sensor with a rhythm of its own is to be polled, monotonic seconds; None: no time
        known."""
        earliest = min((supervisor.due for supervisor in self._supervisors if supervisor.has_rhythm), default=NEVER)
        return None if earliest == NEVER else earliest

    def restore(self, sensor: str) -> None:
        """Try a sensor that is in quarantine again now. Raises: LookupError for one that is not known."""
        for supervisor in self._supervisors:
            if supervisor.name == sensor:
                supervisor.probe()
                return
        raise LookupError(
            f"no sensor {sensor!r}; known: {', '.join(supervisor.name for supervisor in self._supervisors) or 'none'}"
        )

    def webhook(self, name: str) -> Webhook | None:
        """Return the sensor of this name that is posted to; None if there is none. From any thread.

        Raises: NotReadyError while it is not open.
        """
        for supervisor in self._supervisors:
            if supervisor.name == name and offers(hook := supervisor.spec.sensor, Webhook):
                supervisor.demand_open()
                return hook
        return None

    # -- what they noticed

    def news(self) -> list[SensorBuffer]:
        """Return the buffers that hold what no cycle has taken."""
        return [supervisor.buffer for supervisor in self._supervisors if supervisor.buffer.has_news]

    def release(self) -> None:
        """Let go of what was taken, now that a cycle has it; wake the agent if more waits."""
        for supervisor in self._supervisors:
            supervisor.buffer.release()
        if self._is_waiting:
            self._host.wake()

    def cursors(self) -> dict[str, Any]:
        """Return the cursors behind what cycles have taken, by key; the caller saves them."""
        return {key: value for supervisor in self._supervisors for key, value in supervisor.kept.unsaved().items()}

    def row_changes(self) -> list[RowChange]:
        """Return the changes of the sensors' rows behind what cycles have taken; the caller writes them."""
        return [change for supervisor in self._supervisors for change in supervisor.rows.unsaved()]

    async def save(self) -> None:
        """Save the cursors of what cycles have taken. Raises no error."""
        for supervisor in self._supervisors:
            await supervisor.kept.save()

    def snapshot(self) -> dict[str, Any]:
        """Return the state of each sensor by name, JSON-able."""
        return {supervisor.name: supervisor.snapshot() for supervisor in self._supervisors}

    @property
    def _is_waiting(self) -> bool:
        return any(supervisor.buffer.waiting for supervisor in self._supervisors)

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

    async def _gather(self, begun: set[SensorSupervisor]) -> None:
        """Wait until the turns have ended; not for long, and still less once there is something to pass on."""
        self._awaited = begun
        deadline = self._clock.monotonic() + PATIENCE
        has_news = False
        try:
            while self._awaited:
                if not has_news and self._is_waiting:
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

    def _in_loop(self, act: Callable[[], object]) -> None:
        if threading.get_ident() == self._thread:
            act()
        elif self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(act)
            except RuntimeError:  # the loop is closed: nobody is left to be told
                return
