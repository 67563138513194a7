"""Supervisor of one sensor: its schedule, its timeout, its back-off and its quarantine.

Anybody may have written the sensor: it may fail, hang, block a thread or return nonsense, and none of that may reach
another sensor or the loop. So its methods are called in its own task (`perception.supervision.sensor_task`), and the
result of a late poll is not lost. `perception.supervision.unconfirmed` holds the state that outlives the process.

A timer begins the opening, and the polls of a sensor with its own rhythm, independently of the agent's work, so that
sensing never waits for planning. A sensor without a rhythm is polled when `Sense` asks. While the buffer is full, no
poll begins. A quarantined sensor is closed; a probe opens it again, and it is restored once it works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Literal

from perception.supervision.buffer import SensorBuffer, described
from perception.supervision.missed import MissedTicks
from perception.supervision.sensor_task import SensorCalls
from perception.supervision.unconfirmed import CURSOR, MISSED, Ledger
from spar.backoff import Trouble
from spar.clock import Timer
from spar.errors import ContractError, NotReadyError, PhaseTimeoutError, TransientError
from spar.events import ErrorOccurred, SensorQuarantined, SensorRestored
from spar.ports.any_part import Watchable, offers
from spar.ports.webhook import Webhook
from spar.protocols import Context, Host, SensorContext, SensorSpec
from spar.threads import Tasks, call_off, in_loop
from spar.types import Perception

NEVER = float("inf")
AGAIN_AFTER = 1.0  # seconds until a process that may not sense asks again whether it may
NO_ROOM = 1.0  # least seconds until the next poll of a sensor whose buffer was full


class SensorSupervisor:
    """One supervised sensor. No method raises an error, except `demand_open`; failures are published and appear in
    `snapshot`.

    Args: limit: how many perceptions may wait; arrived: called after a push, from any thread; changed: called in the
    loop with the supervisor at the end of each turn; report: the sensor's `report`.
    """

    def __init__(
        self,
        spec: SensorSpec,
        host: Host,
        *,
        limit: int,
        arrived: Callable[[], None],
        changed: Callable[[SensorSupervisor], None],
        report: Callable[..., None],
    ) -> None:
        self.spec, self._host, self._changed, self._report = spec, host, changed, report
        self.name, self._clock = spec.name, host.clock
        self.ledger = Ledger(f"sensor:{host.agent}:{spec.name}", host.store, host.clock, spec.timeout, self._tell)
        self.buffer = SensorBuffer(spec, limit, arrived, self._rejected, host.clock.monotonic, self.ledger,
                                   self._note_beginning)  # fmt: skip
        self.missed = MissedTicks(self.ledger)
        self.trouble = Trouble(spec.max_failures, spec.within, spec.probe_after)
        self.polls = self.restarts = 0
        self._again_at: float | None = None  # time of the next opening after a failure
        self.due = NEVER  # time of the next poll, monotonic seconds
        self.is_busy = False
        self.began = 0.0  # start of the last turn, monotonic seconds
        self.is_polled = getattr(spec.sensor, "poll", None) is not None
        self._calls = SensorCalls(spec, host.clock, self._broke)
        self._wants_context = self.is_polled and self._calls.takes_context("poll")
        self._every = spec.every if spec.every is not None else float(getattr(spec.sensor, "every", 0.0))
        self._tasks = Tasks()
        self._timer: Timer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_open = self._needs_close = self._is_shutting = self._is_closing = self._is_rejection_told = False
        self._polled_at: float | None = None
        self._cycle_id = ""

    @property
    def state(self) -> Literal["ok", "backing_off", "quarantined"]:
        """Return the state of the sensor."""
        return self.trouble.state

    @property
    def has_rhythm(self) -> bool:
        """Return whether the sensor has due times of its own; one without is polled in each cycle."""
        return self._every > 0 or self.state != "ok"

    def demand_open(self) -> None:
        """Check that the sensor is open. Raises: NotReadyError."""
        if not self._is_open:
            raise NotReadyError(f"sensor {self.name!r} is not open ({self.state}); try again later")

    def start(self) -> None:
        """Begin to open the sensor; call in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._is_closing = False
        self.begin()

    def begin(self, context: Context | None = None) -> None:
        """Begin the turn that is due: the opening, or a poll."""
        self._disarm()
        if self._is_closing or self._is_shutting or self.is_busy:
            return
        if not (self._is_open or self._host.may_sense()):  # another process has the sensors open
            self._arm(self._clock.monotonic() + AGAIN_AFTER)
            return
        if self._is_open and self.buffer.is_full:
            self._arm(self._clock.monotonic() + max(self._every, NO_ROOM))
            return
        self.is_busy, self.began = True, self._clock.monotonic()
        self._cycle_id = "" if context is None else context.cycle_id
        self._spawn(self._turn(context))

    def probe(self) -> None:
        """Try a quarantined sensor again now, without waiting for its time."""
        if self.state == "quarantined" and not self._is_closing:
            self.begin()

    async def close(self) -> None:
        """End all work of the sensor, within about its timeout."""
        self._is_closing = True
        self._disarm()
        while self._tasks:
            await call_off(self._tasks)
        await self._calls.settle()
        await self._shut()

    def snapshot(self) -> dict[str, Any]:
        """Return the state of the sensor, JSON-able; ages and `every` in seconds, counts since the beginning,
        `failures` in a row."""
        age = None if self._polled_at is None else max(self._clock.monotonic() - self._polled_at, 0.0)
        return {
            "state": self.state,
            "is_open": self._is_open,
            **self.trouble.snapshot(),
            "polls": self.polls,
            "every": self._every,
            "last_poll_age": age,
            "pushed": self.buffer.handed_over,
            "dropped": self.buffer.dropped,
            "shed": dict(self.buffer.shed),
            "waiting": self.buffer.waiting,
            "oldest_age": self.buffer.oldest_age,
            "restarts": self.restarts,
            "left_behind": self._calls.left_behind,
            "missed": self.missed.snapshot(),
            "next_try_in": None if self._again_at is None else max(self._again_at - self._clock.monotonic(), 0.0),
            **({"requests": dict(hook.requests)} if offers(hook := self.spec.sensor, Webhook) else {}),
            **(self.spec.sensor.snapshot() if offers(self.spec.sensor, Watchable) else {}),
        }

    # -- one turn

    async def _turn(self, context: Context | None) -> None:
        began, was_open = self._clock.monotonic(), self._is_open
        try:
            if self._calls.left_behind:
                raise PhaseTimeoutError(f"sensor {self.name!r}: an earlier call still runs")
            await (self._look(began, context) if was_open else self._open())
        except Exception as error:
            await self._failed(error)
        else:
            self._succeeded(began, was_open)
        finally:
            self.is_busy = False
            self._save_beginning()
            self._changed(self)

    async def _open(self) -> None:
        if self.buffer.cursor is None and self._host.store is not None:
            cursor = await self._calls.make(lambda: self.ledger.load(CURSOR), "loading the cursor")
            missed = await self._calls.make(lambda: self.ledger.load(MISSED), "loading what was missed")
            self.missed.restore(missed)
            self.buffer.cursor = cursor  # the last: after a failure both are loaded again
        home, buffer = self._host.home, self.buffer
        state_dir = None if home is None else str(Path(home.state) / "sensors" / self.name)
        context = SensorContext(self.name, self._clock, buffer, state_dir, buffer.cursor, buffer.checkpoint,
                                self._reported, self.ledger, self._accept)  # fmt: skip
        self.buffer.is_open = self._needs_close = True
        await self._calls.call("open", context)
        self._is_open = True

    async def _look(self, began: float, context: Context | None) -> None:
        self._polled_at = began
        self.polls += 1
        self.ledger.begin_poll()
        poll_context = context or Context(agent=self._host.agent, cycle_id="", clock=self._clock)
        args = (poll_context,) if self._wants_context else ()
        try:
            product = await self._calls.call("poll", *args, late=self._came_late)
        except PhaseTimeoutError as late:
            if not late.was_left_behind:
                self.buffer.accept(late.product)
            raise
        except BaseException:
            self.ledger.end_poll()
            raise
        self.buffer.accept(product)

    def _came_late(self, outcome: asyncio.Future[Any]) -> None:
        """Take the result of a poll that returned after it had been left behind."""
        self.ledger.end_poll()
        if self._is_closing or outcome.cancelled() or outcome.exception() is not None:
            return
        try:
            self.buffer.accept(outcome.result())
        except Exception as error:
            self._tell(error, "skip")
        self._changed(self)

    def _succeeded(self, began: float, was_open: bool) -> None:
        self._again_at = None
        # Opening alone does not restore a polled sensor.
        if (was_open or not self.is_polled) and self.trouble.ended():
            self._host.events.publish(SensorRestored(sensor=self.name))
        if self.is_polled:
            self._arm(began + self._every if was_open else began)

    async def _failed(self, error: Exception) -> None:
        now, former = self._clock.monotonic(), self.state
        pause = self.trouble.failed(now, getattr(error, "retry_after", None) or 0.0)
        is_quarantined = self.state == "quarantined"
        self._tell(error, "quarantine" if is_quarantined else "skip")
        if is_quarantined and former != "quarantined":
            reason = self.trouble.quarantine_reason()
            self._host.events.publish(SensorQuarantined(sensor=self.name, reason=reason))
        elif not is_quarantined and not self.is_polled and self._is_open:
            self.trouble.state = former  # it goes on pushing
        if is_quarantined or not self._is_open:
            await self._shut()
            self.restarts += 1
            self._cancel_timer()
            self._again_at = now + pause
            self._timer = self._clock.call_at(self._again_at, self.begin)
        elif self.is_polled:
            self._arm(now + max(pause, self._every))

    # -- when it is due

    def _arm(self, due: float) -> None:
        """Set the next poll: a timer begins it if the sensor has a rhythm, else the next cycle after that time."""
        self._cancel_timer()
        self.due = due
        if self.has_rhythm and not self._is_closing:
            self._timer = self._clock.call_at(due, self.begin)

    def _disarm(self) -> None:
        self.due = NEVER
        self._cancel_timer()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _shut(self) -> None:
        """Close the sensor, also after a failed opening; its exceptions are published."""
        self.buffer.is_open = self._is_open = False
        if self._needs_close:
            self._is_shutting = True
            try:
                await self._calls.call("close")
            except Exception as error:
                self._tell(error, "skip")
            finally:
                self._is_shutting = False
            self._needs_close = False
        self._calls.end()

    # -- what it reports

    async def _accept(self, perception: Perception, *, key: str | None = None) -> bool:
        """Accept a perception durably (the sensor's `accept`)."""
        if not isinstance(perception, Perception):
            raise ContractError(f"sensor {self.name!r} must accept a Perception, found {described(perception)}")
        signed = self.buffer.signed(perception)
        return await (self._host.accept(signed) if key is None else self._host.accept(signed, key=key))

    def _reported(self, event_name: str, /, **fields: Any) -> None:
        """Publish an event (the sensor's `report`); a missed tick is also counted."""
        self._report(event_name, **fields)
        if event_name == "TriggerMissed":
            self.missed.add(fields["due_at"], fields["reason"])
            self._host.wake()  # the next cycle saves it

    def _note_beginning(self) -> None:
        """Note a checkpoint before the first perception. It may be called from any thread."""
        if self._loop is not None:
            in_loop(self._loop, self._save_beginning)

    def _save_beginning(self) -> None:
        """Save what the sensor has kept before its first perception: perhaps no cycle ever comes for it, and a later
        process would begin anew."""
        if not self.buffer.handed_over and self.ledger.has_any and not self._is_closing:
            self.ledger.confirm(0)
            self._spawn(self.ledger.save())

    def _broke(self, cause: BaseException | None) -> None:
        """Count a failure of the sensor whose background work cancelled its task; the sensor is closed already."""
        if self._is_closing or not self._is_open:
            return
        self._is_open = self._needs_close = False
        error = TransientError(f"sensor {self.name!r}: its background work broke off")
        error.__cause__ = cause
        self._spawn(self._failed(cause if isinstance(cause, Exception) else error))

    def _rejected(self, value: object) -> None:
        """Count a failure of the sensor that pushed an object which is not a perception. It may be called from any
        thread; one such failure at a time."""
        if self._is_rejection_told or self._loop is None or not self.buffer.is_open:
            return
        self._is_rejection_told = True
        error = ContractError(f"sensor {self.name!r} must push a Perception, found {described(value)}")
        in_loop(self._loop, self._fail_for_rejected, error)

    def _fail_for_rejected(self, error: Exception) -> None:
        self._is_rejection_told = False
        if not self._is_closing:
            self._spawn(self._failed(error))

    def _tell(self, error: Exception, policy: str) -> None:
        event = ErrorOccurred.of(error, self.name, "sense", policy, self._cycle_id)
        self.trouble.last_error = event.error.message
        self._host.events.publish(event)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.start(work, f"supervisor of {self.name}")
