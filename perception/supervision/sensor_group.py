"""Group of the sensors of one module, which are polled independently: no sensor waits for another.

A sensor with a rhythm is polled at its times, whatever the agent does. A sensor without one is polled with each cycle,
and once a second while a cycle goes on. Perceptions that come between two cycles wake the agent.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import spar.events
from perception.supervision.buffer import SensorBuffer
from perception.supervision.sensor_supervisor import SensorSupervisor
from spar.clock import Timer, ended
from spar.events import Event
from spar.ports.any_part import offers
from spar.ports.webhook import Webhook
from spar.protocols import Context, Host, SensorSpec
from spar.records.journal import RowChange
from spar.threads import Tasks, in_loop

STRAGGLERS = 0.05  # seconds that perceptions wait for polls that are still running
PATIENCE = 1.0  # seconds that a cycle, or a start, waits for polls when it has nothing else
CLOSING = 1.0  # seconds until the next sensor is closed while one is slow
BEAT = 1.0  # seconds between polls of sensors without a rhythm while a cycle goes on


class SensorGroup:
    """Any number of supervised sensors. `limit` bounds the waiting perceptions of each."""

    def __init__(self, specs: Sequence[SensorSpec], host: Host, limit: int) -> None:
        self._host, self._clock = host, host.clock
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._awaited: set[SensorSupervisor] = set()
        self._change: asyncio.Future[None] | None = None
        self._beat: Timer | None = None
        self._closing = Tasks()  # references, so that the tasks go on when nobody waits for them
        make = partial(SensorSupervisor, host=host, limit=limit, arrived=self._note_arrival, changed=self._note_turn,
                       report=self._report)  # fmt: skip
        self._supervisors = tuple(map(make, specs))
        self._without_rhythm = [sensor for sensor in self._supervisors if sensor.is_polled and not sensor.has_rhythm]

    # -- opening and closing

    def start(self) -> None:
        """Begin to open every sensor, in this event loop."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        for supervisor in self._supervisors:
            supervisor.start()

    async def first_turns(self) -> None:
        """Wait a moment until the sensors are open and polled, and never for a hanging one."""
        await self._gather(set(self._supervisors))

    async def close(self) -> None:
        """Close every sensor in reverse order, each within its timeout; a slow one does not delay the next.

        When cancelled, it closes the remaining ones at once: no sensor stays open, and no task remains.
        """
        if self._beat is not None:
            self._beat.cancel()
        waiting = list(self._supervisors)
        closing: list[asyncio.Task[None]] = []

        def begin() -> None:
            supervisor = waiting.pop()
            closing.append(self._closing.start(supervisor.close(), f"closing of {supervisor.name}"))

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
        """Poll the sensors that are due, and wait a moment for them; poll again for as long as this cycle takes."""
        self._watch_over(context.cycle_id)
        now = self._clock.monotonic()
        if active := [sensor for sensor in self._supervisors if sensor.due <= now or sensor.is_busy]:
            self._begin_due(active, context)
            # Only one cycle waits for a poll that takes longer.
            await self._gather({sensor for sensor in active if sensor.is_busy and now - sensor.began < PATIENCE})

    def has(self, sensor: str) -> bool:
        """Return whether it has a sensor of this name."""
        return any(supervisor.name == sensor for supervisor in self._supervisors)

    def restore(self, sensor: str) -> None:
        """Try a quarantined sensor again now. Raises: LookupError for an unknown one."""
        by_name = {supervisor.name: supervisor for supervisor in self._supervisors}
        if sensor not in by_name:
            raise LookupError(f"no sensor {sensor!r}; known: {', '.join(by_name) or 'none'}")
        by_name[sensor].probe()

    def webhook(self, name: str) -> Webhook | None:
        """Return the webhook sensor of this name; None if there is none. It may be called from any thread.

        Raises: NotReadyError while it is not open.
        """
        for supervisor in self._supervisors:
            if supervisor.name == name and offers(hook := supervisor.spec.sensor, Webhook):
                supervisor.demand_open()
                return hook
        return None

    # -- perceptions and state

    def news(self) -> list[SensorBuffer]:
        """Return the buffers with perceptions, cursors or rows that no cycle has taken."""
        return [supervisor.buffer for supervisor in self._supervisors if supervisor.buffer.has_news]

    def release(self) -> None:
        """Note that a cycle holds the taken perceptions; wake the agent if more wait."""
        for supervisor in self._supervisors:
            supervisor.buffer.release()
        if self._is_waiting:
            self._host.wake()

    def cursors(self) -> dict[str, Any]:
        """Return the cursors behind the perceptions that cycles have taken, by key; the caller saves them."""
        return {key: value for sensor in self._supervisors for key, value in sensor.ledger.values().items()}

    def row_changes(self) -> list[RowChange]:
        """Return the changes of the sensors' rows behind the perceptions that cycles have taken; the caller writes
        them."""
        return [change for supervisor in self._supervisors for change in supervisor.ledger.row_changes()]

    async def save(self) -> None:
        """Save the cursors behind the perceptions that cycles have taken. Raises no error."""
        for supervisor in self._supervisors:
            await supervisor.ledger.save()

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
        if self._without_rhythm:
            self._beat = self._clock.call_at(self._clock.monotonic() + BEAT, lambda: self._poll_amid(cycle_id))

    def _poll_amid(self, cycle_id: str) -> None:
        if self._host.is_in_hand(cycle_id):
            self._begin_due(self._without_rhythm)
            self._watch_over(cycle_id)

    def _begin_due(self, supervisors: Iterable[SensorSupervisor], context: Context | None = None) -> None:
        now = self._clock.monotonic()
        for supervisor in supervisors:
            if supervisor.due <= now:
                supervisor.begin(context)

    # -- waiting

    async def _gather(self, begun: set[SensorSupervisor]) -> None:
        """Wait until the turns have ended: for `PATIENCE` seconds at most, and for `STRAGGLERS` seconds once a
        perception waits."""
        self._awaited = begun
        deadline = self._clock.monotonic() + PATIENCE
        try:
            while self._awaited and (now := self._clock.monotonic()) < deadline:
                if self._is_waiting:
                    deadline = min(deadline, now + STRAGGLERS)
                self._change = asyncio.get_running_loop().create_future()
                await ended(self._change, deadline - now, self._clock)
        finally:
            self._awaited, self._change = set(), None

    def _note_change(self) -> None:
        if self._change is not None and not self._change.done():
            self._change.set_result(None)

    def _note_turn(self, supervisor: SensorSupervisor) -> None:
        if supervisor in self._awaited:
            self._awaited.discard(supervisor)
            self._note_change()
        elif supervisor.buffer.waiting:
            self._host.wake()

    def _note_arrival(self) -> None:
        """Note that a perception was pushed. It may be called from any thread."""
        self._host.wake()
        if self._change is not None:
            self._in_loop(self._note_change)

    # -- events

    def _report(self, event_name: str, /, **fields: Any) -> None:
        """Publish an event for a sensor (its `report`). It may be called from any thread. Raises: ValueError for an
        unknown event."""
        kind = getattr(spar.events, event_name, None)
        if not (isinstance(kind, type) and issubclass(kind, Event)):
            sentence = f"no event named {event_name!r}; known are the classes of spar.events, such as 'TriggerMissed'"
            raise ValueError(sentence)
        event = kind(**fields)
        self._in_loop(lambda: self._host.events.publish(event))

    def _in_loop(self, act: Callable[[], object]) -> None:
        if threading.get_ident() == self._thread:
            act()
        elif self._loop is not None:
            in_loop(self._loop, act)
