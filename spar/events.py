"""What happened, told to whoever wants to know.

Publishing cannot fail and cannot wait. A handler that raises is logged, counted and skipped, and turned off
after ten failures in a row; an async handler has a bounded queue and a task of its own; one that is slow loses
the oldest events, which is counted and told by a `Gap`. Subscribers are receivers of blinker signals
(`events.signal(PhaseCompleted)`); the hot path reads a snapshot of them, and the loop asks
`listeners(PhaseCompleted)` first, so an event that nobody wants is not even made.

Events never decide anything: hooks do (`spar.hooks`).
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from functools import partial
from typing import Any, Literal, TypeVar, cast

import blinker
from msgspec import Struct

from spar.clock import Clock, SystemClock
from spar.types import Call, CallResult, Experience, Fault, Phase

#: Whose async handlers the current task is one of: there, `stop()` and `pause()` are requests.
HANDLING: contextvars.ContextVar[tuple[Events, ...]] = contextvars.ContextVar("handling", default=())
FAILURES_UNTIL_OFF = 10
QUEUE_LIMIT = 1024
#: What a handler raises to end the process; everything else is its own failure.
ENDS_PROCESS = (KeyboardInterrupt, SystemExit)


class Event(Struct, kw_only=True):
    """A fact. `agent`, `seq` (strictly increasing per agent) and `at` (UTC) are stamped when it is published."""

    agent: str = ""
    seq: int = 0
    at: datetime | None = None


# -- the cycle ---------------------------------------------------------------------------------------------


class LoopStarted(Event):
    cycle_id: str
    started_at: datetime
    session: str = "main"


class PhaseStarted(Event):
    cycle_id: str
    phase: Phase
    input: Any = None


class PhaseCompleted(Event):
    cycle_id: str
    phase: Phase
    output: Any = None
    duration: float = 0.0


class LoopCompleted(Event):
    cycle_id: str
    completed_at: datetime
    duration: float
    outcome: str
    session: str = "main"


class ErrorOccurred(Event):
    """`error` is the failure as data, `exception` the exception itself, `policy` what was done about it."""

    cycle_id: str
    phase: str
    error: Fault
    policy: str = ""
    exception: BaseException | None = None


LoopPhaseStarted = PhaseStarted
LoopPhaseCompleted = PhaseCompleted


# -- the agent and its health ------------------------------------------------------------------------------


class StateChanged(Event):
    old: str
    new: str


class HealthAlert(Event):
    """`kind` is `stuck slow failing stalled blocked`, `severity` `warning` or `critical`; `since` is when it began."""

    kind: str
    severity: Literal["warning", "critical"]
    message: str
    since: datetime | None = None
    cycle_id: str = ""
    alert_id: str = ""


class RecoveryStep(Event):
    """One step of the ladder: `back_off cancel abandon restart degrade pause quarantine`."""

    step: str
    part: str
    reason: str
    alert_id: str = ""


class HealthRecovered(Event):
    kind: str
    alert_id: str
    duration: float


class ConfigReloaded(Event):
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...] = ()


class SensorQuarantined(Event):
    sensor: str
    reason: str


class SensorRestored(Event):
    sensor: str


class TriggerMissed(Event):
    trigger: str
    due_at: datetime
    reason: str


class ExperienceStored(Event):
    experience: Experience


class BudgetExceeded(Event):
    budget: str
    used: float
    limit: float


# -- runs and calls ----------------------------------------------------------------------------------------


class RunAccepted(Event):
    run_id: str
    session: str


class RunStarted(Event):
    run_id: str
    session: str


class RunEnded(Event):
    run_id: str
    status: str
    error: str = ""
    output: Any = None


class MessageOutcome(Event):
    run_id: str
    outcome: str


class AssistantDelta(Event):
    run_id: str
    text: str


class CompactionStarted(Event):
    session: str


class CompactionCompleted(Event):
    session: str
    completed: bool = True


class CallEvent(Event):
    call: Call
    cycle_id: str = ""


class CallProposed(CallEvent):
    pass


class CallStarted(CallEvent):
    attempt: int = 1


class CallProgressed(CallEvent):
    progress: Any = None


class CallCompleted(CallEvent):
    result: CallResult | None = None


class CallFailed(CallEvent):
    result: CallResult | None = None


class CallSkipped(CallEvent):
    result: CallResult | None = None


class ApprovalRequested(CallEvent):
    pass


class ApprovalResolved(CallEvent):
    decision: str = ""
    reason: str = ""


class ApprovalExpired(CallEvent):
    pass


class WriteConflict(Event):
    path: str
    calls: tuple[str, ...]


class ContractViolation(Event):
    part: str
    message: str


class Gap(Event):
    """Delivered in a stream in place of the `missed` events that a slow reader lost."""

    missed: int


E = TypeVar("E", bound=Event)
Handler = Callable[[E], Any]


class Subscription:
    """One handler of one class of events; call it to unsubscribe.

    `delivered`, `failures` (in a row), `dropped` and `is_off` can be read at any time.
    """

    __slots__ = ("__weakref__", "_events", "_handler", "_queue", "_task", "_wake", "delivered", "dropped", "failures",
                 "is_off", "kind", "name", "only_keeps")  # fmt: skip

    def __init__(
        self, events: Events, kind: type[Event], handler: Handler[Any], limit: int, *, only_keeps: bool = False
    ) -> None:
        if limit < 1:
            raise ValueError(f"a buffer must hold at least one event, found {limit!r}")
        self._events, self.kind, self._handler = events, kind, handler
        self.name = _name_of(handler)
        self.delivered = self.failures = self.dropped = 0
        self.is_off = False
        is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object whose __call__ is async is an async handler
        )
        #: It puts events away and cannot publish any: such ones are told first, so that they see events in order.
        self.only_keeps = only_keeps or is_async
        self._queue: deque[Event] | None = deque(maxlen=limit) if is_async else None
        self._wake: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def __call__(self) -> None:
        """Unsubscribe. Idempotent; what is queued for an async handler is dropped."""
        self._events._forget(self)

    def deliver(self, event: Event) -> None:
        """Hand one event over without waiting for it and without raising."""
        queue = self._queue
        if queue is None:
            try:
                outcome = self._handler(event)
                if outcome is not None and inspect.iscoroutine(outcome):  # `lambda event: queue.put(event)`
                    self._events._see_through(outcome, self.name, self._failed)
            except ENDS_PROCESS:
                raise
            except BaseException as error:  # a CancelledError of its own is not the loop's cancellation
                self._failed(error)
            else:
                self.delivered += 1
                self.failures = 0
            return
        if len(queue) == queue.maxlen:
            self.dropped += 1
        queue.append(event)
        if self._wake is not None:
            if not self._wake.done():
                self._wake.set_result(None)
        elif self._task is None or self._task.done():
            self._task = self._events._spawn(self._serve(queue), f"handler {self.name}")

    async def _serve(self, queue: deque[Event]) -> None:
        loop = asyncio.get_running_loop()
        while not self.is_off:
            while queue and not self.is_off:
                try:
                    await self._handler(queue.popleft())
                except (*ENDS_PROCESS, GeneratorExit):
                    raise
                except BaseException as error:
                    if _is_cancelled():
                        raise
                    self._failed(error)
                else:
                    self.delivered += 1
                    self.failures = 0
            if self.is_off:
                return
            self._wake = loop.create_future()
            try:
                await self._wake
            finally:
                self._wake = None

    async def drain(self) -> None:
        """Return once an async handler has seen everything that was queued for it."""
        task = self._task
        if task is None or task is _current_task():
            return
        while not task.done() and (self._queue or self._wake is None):
            await self._events.clock.sleep(0.001)

    def _failed(self, error: BaseException) -> None:
        self.failures += 1
        turned_off = self.failures >= FAILURES_UNTIL_OFF
        self._events._tell_of_failure(self.name, error, turned_off)
        if turned_off:
            self()

    def _close(self) -> None:
        self.is_off = True
        self._handler = _nobody  # whoever is just being told of an event still has this subscription on the list
        if self._queue is not None:
            self._queue.clear()
            self._queue = None
        if self._task is not None and not self._task.done() and self._task is not _current_task():
            self._task.cancel()


class _Buffer:
    """What a stream has not read yet. Held by its subscriptions, so that the stream itself can go away unread."""

    __slots__ = ("_events", "kept", "missed", "wake")

    def __init__(self, events: Events, limit: int) -> None:
        self._events = events
        self.kept: deque[Event] = deque(maxlen=limit)
        self.missed = 0
        self.wake: asyncio.Future[None] | None = None

    def receive(self, event: Event) -> None:
        if len(self.kept) == self.kept.maxlen:
            self.missed += 1
            self._events.dropped += 1
        self.kept.append(event)
        if self.wake is not None and not self.wake.done():
            self.wake.set_result(None)

    def gap(self) -> Gap:
        """Stands for what was missed, stamped as the last of it: to resume after it is to miss nothing more."""
        missed, self.missed = self.missed, 0
        return Gap(missed=missed, agent=self._events.agent, seq=self.kept[0].seq - 1, at=self._events.clock.now())


class EventStream(AsyncIterator[Event]):
    """An async iterator over events, subscribed from the moment it was made; ends when the agent stops.

    When its bounded buffer overflows, the oldest events go and one `Gap` stands in their place. One that nobody
    holds any more is closed.
    """

    def __init__(self, events: Events, kinds: tuple[type[Event], ...], buffer: int) -> None:
        if buffer < 1:
            raise ValueError(f"a stream's buffer must hold at least one event, found {buffer!r}")
        self._buffer = _Buffer(events, buffer)
        self._closed = False
        for kind in kinds:
            events._channel(kind)  # says what is no class of events
        receive = self._buffer.receive
        self._subscriptions = [events._connect(kind, receive, buffer, only_keeps=True) for kind in _widest(kinds)]
        weakref.finalize(self, _unsubscribe, self._subscriptions).atexit = False

    def __aiter__(self) -> EventStream:
        return self

    async def __anext__(self) -> Event:
        buffer = self._buffer
        while True:
            if buffer.missed:
                return buffer.gap()
            if buffer.kept:
                return buffer.kept.popleft()
            if self._closed:
                raise StopAsyncIteration
            buffer.wake = asyncio.get_running_loop().create_future()
            try:
                await buffer.wake
            finally:
                buffer.wake = None

    async def aclose(self) -> None:
        self.close()

    def close(self) -> None:
        """End the stream: what is buffered can still be read."""
        self._closed = True
        _unsubscribe(self._subscriptions)
        wake = self._buffer.wake
        if wake is not None and not wake.done():
            wake.set_result(None)

    async def __aenter__(self) -> EventStream:
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()


class _Channel:
    """All receivers of one class of events: the blinker signal and a snapshot of our own subscriptions."""

    __slots__ = ("kind", "signal", "subscriptions")

    def __init__(self, kind: type[Event]) -> None:
        self.kind = kind
        self.signal = blinker.Signal(kind.__doc__)
        self.subscriptions: tuple[Subscription, ...] = ()

    @property
    def has_strangers(self) -> bool:
        return len(self.signal.receivers) > len(self.subscriptions)


class _Route(Struct, frozen=True):
    """Where an event of one class goes: a snapshot, so that publishing looks nothing up."""

    subscriptions: tuple[Subscription, ...]
    strangers: tuple[_Channel, ...]


class _Wanted(dict[type[Event], bool]):
    """Answers whether anybody listens to a class of events, and remembers the answer."""

    def __init__(self, events: Events) -> None:
        super().__init__()
        self._events = events

    def __missing__(self, kind: type[Event]) -> bool:
        route = self._events._route(kind)
        self[kind] = found = bool(route.subscriptions or route.strangers)
        return found


class Events:
    """The event bus of one agent. Publish from the event loop's thread only."""

    def __init__(self, agent: str = "", *, clock: Clock | None = None) -> None:
        self.agent = agent
        self.clock: Clock = clock or SystemClock()
        self._now = self.clock.now
        self.seq = 0
        self.handler_errors = 0
        self.dropped = 0
        self.on_handler_error: Callable[[str, Any, bool], None] = _ignore
        self._channels: dict[type[Event], _Channel] = {}
        self._routes: dict[type[Event], _Route] = {}
        #: By class of event: does anybody listen?
        self.wanted = _Wanted(self)
        self._streams: weakref.WeakSet[EventStream] = weakref.WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()
        self._strangers_failures: dict[Any, int] = {}

    # -- listening

    def subscribe(self, kind: type[E], handler: Handler[E] | None = None, *, buffer: int = QUEUE_LIMIT) -> Any:
        """Call `handler(event)` for each event of this class (or of a subclass).

        A plain function runs inline, an async one from its own queue of `buffer` events. Handlers are held
        strongly. Returns a handle that unsubscribes when called; without a handler, a decorator.
        """
        if handler is None:

            def decorate(function: Handler[E]) -> Handler[E]:
                self._connect(kind, function, buffer)
                return function

            return decorate
        return self._connect(kind, handler, buffer)

    def stream(self, *kinds: type[Event], buffer: int = QUEUE_LIMIT) -> EventStream:
        """An async iterator over events of these classes (none: all), subscribed now."""
        stream = EventStream(self, kinds, buffer)
        self._streams.add(stream)
        return stream

    def signal(self, kind: type[Event]) -> blinker.Signal:
        """The blinker signal of a class of events; receivers are called as `receiver(agent_name, event=event)`."""
        return self._channel(kind).signal

    def listeners(self, kind: type[Event]) -> bool:
        """Whether anybody would receive an event of exactly this class; `wanted[kind]` is the same, faster."""
        return self.wanted[kind]

    # -- telling

    def publish(self, event: Event) -> None:
        """Stamp the event and hand it to every receiver. Never raises, never waits."""
        route = self._routes.get(type(event)) or self._route(type(event))
        self.seq = event.seq = self.seq + 1
        event.agent = self.agent
        if event.at is None:
            event.at = self._now()
        for subscription in route.subscriptions:
            subscription.deliver(event)
        for channel in route.strangers:
            self._send_to_strangers(channel, event)

    def close(self) -> None:
        """End the streams and the tasks of async handlers; subscriptions stay for the next start."""
        for stream in list(self._streams):
            stream.close()
        self._streams.clear()
        for task in list(self._tasks):
            if task is not _current_task():
                task.cancel()

    async def drain(self) -> None:
        """Return once async handlers have seen everything published so far."""
        for channel in self._channels.values():
            for subscription in channel.subscriptions:
                await subscription.drain()

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        return tuple(item for channel in self._channels.values() for item in channel.subscriptions)

    # -- inside

    def _channel(self, kind: type[Event]) -> _Channel:
        if not (isinstance(kind, type) and issubclass(kind, Event)):
            raise TypeError(f"events are subscribed to by their class, found {kind!r}")
        channel = self._channels.get(kind)
        if channel is None:
            channel = self._channels[kind] = _Channel(kind)
            channel.signal.receiver_connected.connect(self._rerouted, weak=False)
            channel.signal.receiver_disconnected.connect(self._rerouted, weak=False)
            self._rerouted()
        return channel

    def _connect(
        self, kind: type[Event], handler: Handler[Any], buffer: int, *, only_keeps: bool = False
    ) -> Subscription:
        if not callable(handler):
            raise TypeError(f"a handler must be callable, found {handler!r}")
        channel = self._channel(kind)
        subscription = Subscription(self, kind, handler, buffer, only_keeps=only_keeps)
        channel.signal.connect(_receiver_of(subscription), weak=False)
        channel.subscriptions += (subscription,)
        self._rerouted()
        return subscription

    def _forget(self, subscription: Subscription) -> None:
        channel = self._channels[subscription.kind]
        if subscription in channel.subscriptions:
            channel.subscriptions = tuple(item for item in channel.subscriptions if item is not subscription)
            for receiver in list(channel.signal.receivers.values()):
                if getattr(receiver, "subscription", None) is subscription:
                    channel.signal.disconnect(receiver)
            self._rerouted()
        self.dropped += subscription.dropped
        subscription._close()

    def _route(self, kind: type[Event]) -> _Route:
        channels = [self._channels[base] for base in kind.__mro__ if base in self._channels]
        found = [item for channel in channels for item in channel.subscriptions]
        # A plain handler may publish: who only keeps events has to have this one before that one.
        subscriptions = tuple(sorted(found, key=lambda item: not item.only_keeps))
        # Our own subscriptions are receivers too; only signals that others connected to are asked again.
        strangers = tuple(channel for channel in channels if channel.has_strangers)
        route = self._routes[kind] = _Route(subscriptions, strangers)
        return route

    def _rerouted(self, *_: object, **__: object) -> None:
        """Receivers have changed: routes are found anew when they are next needed."""
        self._routes.clear()
        self.wanted.clear()

    def _send_to_strangers(self, channel: _Channel, event: Event) -> None:
        for receiver in channel.signal.receivers_for(self.agent):
            if getattr(receiver, "subscription", None) is not None:
                continue
            try:
                outcome = receiver(self.agent, event=event)
            except ENDS_PROCESS:
                raise
            except BaseException as error:
                self._stranger_failed(channel, receiver, error)
            else:
                if inspect.iscoroutine(outcome):
                    self._see_through(outcome, _name_of(receiver), partial(self._stranger_failed, channel, receiver))
                elif self._strangers_failures:
                    self._strangers_failures.pop(_identity(receiver), None)
        if not channel.has_strangers:  # the last one died, of which a signal says nothing
            self._rerouted()

    def _stranger_failed(self, channel: _Channel, receiver: Callable[..., Any], error: BaseException) -> None:
        key = _identity(receiver)
        failures = self._strangers_failures[key] = self._strangers_failures.get(key, 0) + 1
        turned_off = failures >= FAILURES_UNTIL_OFF
        if turned_off:
            del self._strangers_failures[key]
            channel.signal.disconnect(receiver)
        self._tell_of_failure(_name_of(receiver), error, turned_off)

    def _see_through(self, outcome: Any, name: str, failed: Callable[[BaseException], None]) -> None:
        """Run what a plain function returned to be awaited, as long as not too many such wait already."""

        async def run() -> None:
            try:
                await outcome
            except (*ENDS_PROCESS, GeneratorExit):
                raise
            except BaseException as error:
                if _is_cancelled():
                    raise
                failed(error)

        if len(self._tasks) >= QUEUE_LIMIT or self._spawn(run(), f"handler {name}") is None:
            self.dropped += 1
            outcome.close()

    def _tell_of_failure(self, name: str, error: BaseException, turned_off: bool) -> None:
        self.handler_errors += 1
        try:
            self.on_handler_error(name, error, turned_off)
        except Exception:  # whoever is told cannot say anything either; the failure is counted
            pass

    def _spawn(self, work: Any, name: str) -> asyncio.Task[None] | None:
        """A task in which `stop()` and `pause()` are requests; None without a running event loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            work.close()
            return None
        context = contextvars.copy_context()
        context.run(HANDLING.set, (*HANDLING.get(), self))
        task: asyncio.Task[None] = loop.create_task(work, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _receiver_of(subscription: Subscription) -> Callable[..., None]:
    """The blinker receiver of a subscription: `signal.send(agent, event=event)` by hand reaches it too."""

    def receive(sender: object, *, event: Event) -> None:
        subscription.deliver(event)

    cast(Any, receive).subscription = subscription
    return receive


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _is_cancelled() -> bool:
    """Whether the current task is cancelled from outside, and not only what it awaits has raised that."""
    task = _current_task()
    return task is not None and task.cancelling() > 0


def _widest(kinds: tuple[type[Event], ...]) -> list[type[Event]]:
    """The classes to subscribe to: a class whose parent is asked for too would bring its events twice."""
    asked = list(dict.fromkeys(kinds or (Event,)))
    return [kind for kind in asked if not any(base in asked for base in kind.__mro__[1:])]


def _unsubscribe(subscriptions: list[Subscription]) -> None:
    for subscription in subscriptions:
        subscription()


def _identity(receiver: Any) -> tuple[int, int]:
    """The same for every look at a bound method, of which each is another object."""
    return id(getattr(receiver, "__self__", None)), id(getattr(receiver, "__func__", receiver))


def _name_of(handler: Any) -> str:
    return getattr(handler, "__qualname__", None) or repr(handler)


def _nobody(event: Event) -> None:
    return None


def _ignore(name: str, error: BaseException, turned_off: bool) -> None:
    return None
