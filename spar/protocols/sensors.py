"""Ports of sensors: their context and their settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from spar.clock import Clock
from spar.errors import ContractError
from spar.protocols.modules import SenseFunction
from spar.types import Fault, Perception, Trust


class Push(Protocol):
    """Function with which a sensor hands over a perception at once; callable from any thread.

    Returns False when the perception was refused because the bounded buffer is full. True promises nothing: the
    perception waits in memory until a cycle takes it, and a process that dies before that loses it. A sensor that can
    read its source again loses nothing (its cursor advances with the cycle); a sensor whose sender forgets a message
    once it was answered uses `SensorContext.accept`.
    """

    def __call__(self, perception: Perception) -> bool: ...


class Accept(Protocol):
    """Function with which a sensor hands over a perception before it confirms the arrival to its sender, such as a
    webhook.

    Awaited in the event loop; with a memory that has a journal, the perception is on disk when it returns. The
    perception goes directly to its session, ahead of pushed ones. Returns False for a perception whose id, or whose
    `key` if one is given, was accepted before.

    Raises: InboxFullError or NoRoomError when it cannot be stored, NotReadyError while the agent starts, LifecycleError
        when it does not run: the sender gets an error and may try again.
    """

    async def __call__(self, perception: Perception, *, key: str | None = None) -> bool: ...


async def accept_nothing(perception: Perception, *, key: str | None = None) -> bool:
    raise RuntimeError("this sensor has no agent that could keep what it accepts")


class SensorRows(Protocol):
    """Small durable rows of one sensor: one for each item that it must know again after a restart.

    A change becomes durable as a cursor does: with the cycle that takes the perceptions handed over before it, and all
    changes of that time in one transaction. Until then the old rows stay on disk, so that a crash repeats work and does
    not lose any. `keep` and `drop` return at once and may be called from any thread; values are JSON-able and small.
    """

    def keep(self, key: str, value: Any) -> None:
        """Write a row; it replaces an earlier one of this key.

        Raises: TooLargeError for one of more than 64 KiB; TypeError, ValueError for a value that is not JSON-able.
        """

    def drop(self, key: str) -> None:
        """Delete a row; nothing happens if there is none."""

    async def list(self) -> Mapping[str, Any]:
        """Return all rows by key, with the changes that are not durable yet."""


class PassingRows:
    """Rows that are not stored: those of a sensor without an agent. Implements `SensorRows`."""

    def __init__(self) -> None:
        self._rows: dict[str, Any] = {}

    def keep(self, key: str, value: Any) -> None:
        """Write a row."""
        self._rows[key] = value

    def drop(self, key: str) -> None:
        """Delete a row."""
        self._rows.pop(key, None)

    async def list(self) -> Mapping[str, Any]:
        """Return all rows by key."""
        return dict(self._rows)


class SensorContext(Struct, frozen=True):
    """Context that a sensor gets when it is opened.

    `push(perception)` hands over and promises nothing; `await accept(perception)` returns when it is in the journal.
    `rows` are the sensor's own, for state that grows with what it watches; `cursor` is for state that stays small.
    `cursor` is the value of its last `checkpoint` (None the first time); `checkpoint(cursor)` hands over a JSON-able
    value that is saved once the perceptions handed over before it have been through a cycle. A cursor that is set
    inside `poll` counts as set after the perceptions that this poll returns.
    `report(event_name, **fields)` publishes a fact (for example a missed tick) about the sensor itself.
    """

    name: str
    clock: Clock
    push: Push
    state_dir: str | None = None
    cursor: Any = None
    checkpoint: Callable[[Any], None] = lambda cursor: None
    report: Callable[..., None] = lambda *args, **fields: None
    rows: SensorRows = field(default_factory=PassingRows)
    accept: Accept = accept_nothing

    def perception(self, content: Any, kind: str, *, key: str | None = None, subject: str | None = None,
                   trust: Trust = "untrusted", attributes: Mapping[str, Any] | None = None) -> Perception:  # fmt: skip
        """Return a perception of this sensor, as of now."""
        return Perception(content, source=self.name, kind=kind, at=self.clock.now(), key=key, subject=subject,
                          trust=trust, attributes=dict(attributes or {}))  # fmt: skip

    def report_error(self, error: Exception, policy: str = "retry") -> None:
        """Publish an error that does not end the sensor's work."""
        fault = Fault.of(error, part=self.name, phase="sense")
        self.report("ErrorOccurred", cycle_id="", phase="sense", error=fault, policy=policy, exception=error)


class PolledSensor(Protocol):
    """Sensor that is polled: `poll()`, or `poll(context)`, returns what is new since the last poll."""

    @property
    def poll(self) -> SenseFunction: ...


class PushingSensor(Protocol):
    """Sensor that is started, and hands over perceptions through its context."""

    def open(self, context: SensorContext, /) -> Awaitable[None] | None: ...


class HearingSensor(Protocol):
    """Sensor that makes a perception of a message: `hear(text, session)`."""

    @property
    def hear(self) -> Callable[..., Perception]: ...


#: Part that notices things: it is polled, or it pushes, or both; or it hears messages.
#: `open(context)` starts it and may raise; `poll()` returns what is new since the last poll, `close()` ends it and
#: releases everything, also after a failed open. `every` is the least time between two polls in seconds (0: each
#: cycle). All may be plain functions, and a sensor may leave out what it does not need.
Sensor = PolledSensor | PushingSensor | HearingSensor


class Missed(Struct, frozen=True):
    """Tick of a trigger that did not run when it was due."""

    trigger: str
    due_at: datetime
    reason: str
    attributes: dict[str, Any] = field(default_factory=dict)


#: Methods of which a sensor has at least one.
SENSES = ("open", "poll", "hear")


class SensorSpec(Struct, frozen=True):
    """Configured sensor and its settings; all but the count are in seconds.

    `timeout` is for opening, polling and closing, `every` is the time between polls (None: the sensor's own). After
    `max_failures` failures `within` so many seconds it is quarantined, and tried again after `probe_after`. `when_full`
    says what happens to a perception when the sensor's buffer is full: a push is refused (the result of a poll is not),
    or the perception replaces an older one, or only a sample of the perceptions is kept. With a `place` one of the
    nodes there has it, without one the node that has the session `main`.

    Raises: ContractError when the name is not text or the sensor is not a sensor.
    """

    name: str
    sensor: Sensor
    every: float | None = None
    timeout: float = 30.0
    max_failures: int = 5
    within: float = 60.0
    probe_after: float = 600.0
    session: str = "main"
    when_full: Literal["refuse", "latest", "sample"] = "refuse"
    place: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ContractError(f"SensorSpec(name, sensor): the name must be text, found {self.name!r:.60}")
        # A sensor may lack any of its methods, but not all of them.
        if isinstance(self.sensor, type) or not any(callable(getattr(self.sensor, word, None)) for word in SENSES):
            raise ContractError(
                f"SensorSpec({self.name!r}, sensor): a sensor is an object with open, poll or hear, "
                f"found {self.sensor!r:.60}"
            )
