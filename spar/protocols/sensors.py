"""Ports of sensors: what one is given, and how it is kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Literal, Protocol

from msgspec import Struct, field

from spar.clock import Clock
from spar.errors import ContractError
from spar.protocols.modules import SenseFunction
from spar.types import Perception


class Push(Protocol):
    """Callable with which a sensor hands over what it notices at once; callable from any thread.

    Returns False when the perception was refused because the bounded buffer is full. True promises nothing: the
    perception waits in memory until a cycle takes it, and a process that dies before that has lost it. A sensor that
    can be asked again loses nothing by it (its cursor goes on with the cycle); one whose sender forgets once it was
    answered uses `SensorContext.accept`.
    """

    def __call__(self, perception: Perception) -> bool: ...


class Accept(Protocol):
    """Callable with which a sensor hands over what its sender is told has arrived, such as a webhook.

    Awaited in the event loop; with a memory that keeps a journal the perception is on disk when it returns. It goes
    straight to its session, ahead of what was pushed. Returns False for a perception whose id was accepted before.

    Raises: InboxFullError or NoRoomError when it cannot be kept, NotReadyError while the agent starts, LifecycleError
    when it does not run: the sender is told so, and may try again.
    """

    async def __call__(self, perception: Perception) -> bool: ...


async def accept_nothing(perception: Perception) -> bool:
    raise RuntimeError("this sensor has no agent that could keep what it accepts")


class SensorRows(Protocol):
    """The small durable rows of one sensor: one for each thing that it must know again after a restart.

    A change becomes durable as a cursor does, with the cycle that takes what was handed over before it; all changes of
    that time in one transaction. Until then the rows on disk are the former ones, so that a crash repeats rather than
    loses. `keep` and `drop` return at once and may be called from any thread; values are JSON-able and small.
    """

    def keep(self, key: str, value: Any) -> None:
        """Write a row, in the place of an earlier one of this key.

        Raises: TooLargeError for one of more than 64 KiB; TypeError, ValueError for a value that is not JSON-able.
        """
        ...

    def drop(self, key: str) -> None:
        """Delete a row; nothing happens if there is none."""
        ...

    async def list(self) -> Mapping[str, Any]:
        """All rows by key, with the changes that are not durable yet."""
        ...


class PassingRows:
    """Rows that nobody keeps: those of a sensor without an agent. Implements `SensorRows`."""

    def __init__(self) -> None:
        self._rows: dict[str, Any] = {}

    def keep(self, key: str, value: Any) -> None:
        """Write a row."""
        self._rows[key] = value

    def drop(self, key: str) -> None:
        """Delete a row."""
        self._rows.pop(key, None)

    async def list(self) -> Mapping[str, Any]:
        """All rows by key."""
        return dict(self._rows)


class SensorContext(Struct, frozen=True):
    """Context that a sensor is given when it is opened.

    `push(perception)` hands over and promises nothing; `await accept(perception)` returns when the journal has it.
    `rows` are the sensor's own, for state that grows with what it watches; `cursor` is for what stays small.
    `cursor` is what its last `checkpoint` saved (None the first time); `checkpoint(cursor)` hands over a JSON-able
    value that is saved once the perceptions handed over before it have been through a cycle.
    `report(event_name, **fields)` publishes a fact (e.g. a missed tick) about the sensor itself.
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


class PolledSensor(Protocol):
    """A sensor that is asked: `poll()`, or `poll(context)`, returns what is new since the last poll."""

    @property
    def poll(self) -> SenseFunction: ...


class PushingSensor(Protocol):
    """A sensor that is started, and hands over what it notices through its context."""

    def open(self, context: SensorContext, /) -> Awaitable[None] | None: ...


class HearingSensor(Protocol):
    """A sensor that makes a perception of a message: `hear(text, session)`."""

    @property
    def hear(self) -> Callable[..., Perception]: ...


#: Notices things. Either it is polled, or it pushes, or both; or it hears messages.
#:
#: `open(context)` starts it and may raise; `poll()` returns what is new since the last poll, `close()` ends it and
#: releases everything, also after a failed open. `every` is the least time between two polls in seconds (0: each
#: cycle). All may be plain functions, and a sensor may leave out what it does not need.
Sensor = PolledSensor | PushingSensor | HearingSensor


class Missed(Struct, frozen=True):
    """A trigger's tick that did not run when it was due."""

    trigger: str
    due_at: datetime
    reason: str
    attributes: dict[str, Any] = field(default_factory=dict)


#: What an object notices things by.
SENSES = ("open", "poll", "hear")


class SensorSpec(Struct, frozen=True):
    """One configured sensor and how it is kept; all but the count in seconds.

    `timeout` is for opening, polling and closing, `every` between polls (None: the sensor's own); after `max_failures`
    `within` so long it is quarantined and tried again `probe_after`. `when_full` says what becomes of a perception that
    finds the sensor's buffer full: it is refused, takes the place of an older one, or the flood is thinned out.

    Raises: ContractError when the name is no text or the sensor is none.
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

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ContractError(f"SensorSpec(name, sensor): the name must be text, found {self.name!r:.60}")
        # Each of its methods may be missing, but not all; `hear` is what hears messages.
        if isinstance(self.sensor, type) or not any(callable(getattr(self.sensor, word, None)) for word in SENSES):
            raise ContractError(
                f"SensorSpec({self.name!r}, sensor): a sensor is an object with open, poll or hear, "
                f"found {self.sensor!r:.60}"
            )
