"""Bus of events: delivers them to handlers and streams.

Publishing cannot fail and cannot wait. A handler that raises is logged, counted and skipped, and turned off for a while
after ten failures in a row. An async handler has a bounded queue, a task of its own and a few seconds for each event; a
slow one loses the oldest events, which is counted and reported by a `Gap`. Subscribers are receivers of blinker signals
(`events.signal(PhaseCompleted)`). The hot path reads a snapshot of them, and the loop asks `wanted[PhaseCompleted]`
first, so an event without receivers is never made.

Only this file knows blinker. `spar.events` has the classes of events, `spar.bus.subscriptions` the subscribers.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import weakref
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import blinker

from spar.bus.subscriptions import FAILURES_UNTIL_OFF, HANDLER_WITHIN, Subscription, current_task, is_cancelled, name_of
from spar.checks import shorten
from spar.clock import Clock, SystemClock
from spar.errors import ENDS_PROCESS, is_closing
from spar.events import Event, Gap

if TYPE_CHECKING:
    from spar.bus.streams import EventStream


class Receivers:
    """Receivers of one class of events: the blinker signal, our own subscriptions to it, and the other receivers
    (`strangers`)."""

    __slots__ = ("signal", "strangers", "subscriptions")

    def __init__(self, events: Events, kind: type[Event]) -> None:
        self.signal = blinker.Signal(kind.__doc__)
        self.subscriptions: tuple[Subscription, ...] = ()
        self.strangers = Strangers(events, self)

    @property
    def has_strangers(self) -> bool:
        return len(self.signal.receivers) > len(self.subscriptions)


class Strangers:
    """Receivers that others connected to a signal directly: called one by one, each isolated from the rest."""

    __slots__ = ("_events", "_failures", "_receivers", "delivered")
    name = "receivers of a signal"

    def __init__(self, events: Events, receivers: Receivers) -> None:
        self._events, self._receivers = events, receivers
        self._failures: dict[tuple[int, int], int] = {}
        self.delivered = 0

    def hand(self, event: Event) -> None:
        events, receivers = self._events, self._receivers
        for receiver in receivers.signal.receivers_for(events.agent):
            if getattr(receiver, "subscription", None) is not None:
                continue
            try:
                outcome = receiver(events.agent, event=event)
            except ENDS_PROCESS:
                raise
            except BaseException as error:
                self._failed(receiver, error)
            else:
                if inspect.iscoroutine(outcome):
                    events.await_outcome(outcome, name_of(receiver), partial(self._failed, receiver))
                elif self._failures:
                    self._failures.pop(_identity(receiver), None)
        if not receivers.has_strangers:  # the last one was collected, which a signal does not report
            events.reset_routes()

    def failed(self, error: BaseException) -> None:
        """Report an error of the delivery itself (a stack too deep), as opposed to an error of one receiver."""
        self._events.report_failure(self.name, error, False)

    def _failed(self, receiver: Callable[..., Any], error: BaseException) -> None:
        key = _identity(receiver)
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        turned_off = failures >= FAILURES_UNTIL_OFF
        if turned_off:
            del self._failures[key]
            self._receivers.signal.disconnect(receiver)
        self._events.report_failure(name_of(receiver), error, turned_off)


Route = tuple[Subscription | Strangers, ...]


class Routes(dict[type[Event], Route]):
    """Receivers by class of event: computed once, so that publishing needs one lookup."""

    __slots__ = ("_receivers",)

    def __init__(self, receivers: dict[type[Event], Receivers]) -> None:
        super().__init__()
        self._receivers = receivers

    def __missing__(self, kind: type[Event]) -> Route:
        bases = [self._receivers[base] for base in kind.__mro__ if base in self._receivers]
        subscriptions = [item for receivers in bases for item in receivers.subscriptions]
        # A plain handler may publish: a subscription that only keeps events must get this event before the next one.
        subscriptions.sort(key=lambda item: not item.only_keeps)
        # Our own subscriptions are blinker receivers too; only signals with other receivers are asked for these.
        strangers = [receivers.strangers for receivers in bases if receivers.has_strangers]
        route = self[kind] = (*subscriptions, *strangers)
        return route


def _identity(receiver: Any) -> tuple[int, int]:
    """Return an identity that is the same for each access to a bound method, which makes a new object each time."""
    return id(getattr(receiver, "__self__", None)), id(getattr(receiver, "__func__", receiver))


#: Buses whose async handlers the current task belongs to. There, `stop()` and `pause()` only request the change and do
#: not wait, because waiting would never end.
HANDLING: contextvars.ContextVar[tuple[Events, ...]] = contextvars.ContextVar("handling", default=())
QUEUE_LIMIT = 1024
#: Shared by all agents, since an empty set takes 216 bytes.
_NONE: frozenset[Any] = frozenset()

E = TypeVar("E", bound=Event)
Handler = Callable[[E], Any]


class Events:
    """Event bus of one agent. Publish from the event loop's thread only."""

    __slots__ = (
        "__weakref__",
        "_now",
        "_receivers",
        "_streams",
        "_tasks",
        "agent",
        "clock",
        "dropped",
        "gaps",
        "handler_errors",
        "is_closed",
        "left_behind",
        "off",
        "on_handler_error",
        "runs",
        "seq",
        "wanted",
    )  # fmt: skip

    def __init__(self, agent: str = "", *, clock: Clock | None = None) -> None:
        self.agent = agent
        self.clock: Clock = clock or SystemClock()
        self._now = self.clock.now
        self.seq = 0
        self.handler_errors = 0
        self.dropped = self.gaps = 0
        #: Handlers that failed too often and are turned off; the `restore()` of a subscription turns it on again.
        self.off: frozenset[Subscription] = _NONE
        #: Tasks of async handlers that ignored their cancellation and still run.
        self.left_behind: frozenset[asyncio.Task[None]] = _NONE
        #: Whether the bus is closed: late events are still handled, and then the tasks of async handlers end.
        self.is_closed = False
        self.on_handler_error: Callable[[str, Any, bool], None] = _ignore
        self._receivers: dict[type[Event], Receivers] = {}
        #: Receivers by class of event; a lookup tells whether there are any.
        self.wanted = Routes(self._receivers)
        #: Runs of the agent, which have a log of the events of each (`spar.runs.runs.Runs`); None without an agent.
        self.runs: Any = None
        self._streams: weakref.WeakValueDictionary[int, EventStream] | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}  # an empty set takes three times as much memory

    # -- subscribing

    def subscribe(self, kind: type[E], handler: Handler[E] | None = None, *, buffer: int = QUEUE_LIMIT) -> Any:
        """Call `handler(event)` for each event of this class or of a subclass.

        A plain function runs inline, an async one from its own queue of `buffer` events. Handlers are held strongly.
        Returns a handle that unsubscribes when called; without a handler, a decorator.
        """
        if handler is None:

            def decorate(function: Handler[E]) -> Handler[E]:
                self.connect(kind, function, buffer)
                return function

            return decorate
        return self.connect(kind, handler, buffer)

    def stream(self, *kinds: type[Event], buffer: int = QUEUE_LIMIT) -> EventStream:
        """Return an async iterator over events of these classes (none: all), subscribed from now on."""
        from spar.bus.streams import EventStream

        for kind in kinds:
            self._receivers_of(kind)  # raises for an object that is not a class of events
        stream = EventStream(self.connect, self, kinds, buffer)
        if self._streams is None:
            self._streams = weakref.WeakValueDictionary()
        self._streams[id(stream)] = stream
        return stream

    def _open_streams(self) -> list[EventStream]:
        """Return the streams that are still in use; the references are copied in one step, as others may be added."""
        references = [] if self._streams is None else self._streams.valuerefs()
        return [stream for reference in references if (stream := reference()) is not None]

    def run(self, run_id: str, *, after: int = 0) -> Any:
        """Return the events of a run with a `seq` above `after`: an async iterator of `spar.runs.run_log.RunEvent`.

        It ends after the terminal event, or when the agent stops; reading raises LookupError for an unknown run.
        """
        if self.runs is None:
            raise LookupError(f"no run {run_id!r}: there are no runs without an agent")
        return self.runs.follow(run_id, after)

    def signal(self, kind: type[Event]) -> blinker.Signal:
        """Return the blinker signal of a class of events; receivers are called as `receiver(agent_name,
        event=event)`."""
        return self._receivers_of(kind).signal

    def listeners(self, kind: type[Event]) -> bool:
        """Return whether an event of exactly this class has receivers; `wanted[kind]` tells the same, faster."""
        return bool(self.wanted[kind])

    # -- publishing

    def publish(self, event: Event, only: Route = ()) -> None:
        """Stamp the event and pass it to every receiver, whatever the others do with it. Never raises, never waits.

        Args: only: the receivers of an event that was sent directly through a signal; they get it unstamped.
        """
        if not only:
            only, now = self.wanted[type(event)], self._now  # a local name is faster than an attribute
            self.seq = event.seq = self.seq + 1
            event.agent = self.agent
            if event.at is None:
                event.at = now()
        for item in only:
            hand = item.hand
            try:
                outcome = hand(event)
                if outcome is not None and inspect.iscoroutine(outcome):  # `lambda event: queue.put(event)`
                    self.await_outcome(outcome, item.name, item.failed)
            except ENDS_PROCESS:
                raise
            except BaseException as error:  # a CancelledError of its own is not the loop's cancellation
                item.failed(error)
            else:
                item.delivered += 1

    def open(self) -> None:
        """Let async handlers wait for events again."""
        self.is_closed = False

    def close(self) -> None:
        """End the streams and the tasks of async handlers; subscriptions stay for the next start."""
        self.is_closed = True
        for stream in self._open_streams():
            stream.close()
        self._streams = None
        if self.runs is not None:
            self.runs.close()
        for task in list(self._tasks):
            if task is not current_task():
                task.cancel()

    async def drain(self) -> None:
        """Return once async handlers have handled all events published so far."""
        for subscription in self.subscriptions:
            await subscription.drain()

    @property
    def waiting(self) -> int:
        """Return the number of events that wait for async handlers and readers of streams; from any thread."""
        streams = self._open_streams()
        return sum(item.waiting for item in self.subscriptions) + sum(stream.waiting for stream in streams)

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """Return the subscriptions; from any thread."""
        return tuple(item for receivers in list(self._receivers.values()) for item in receivers.subscriptions)

    # -- for subscriptions

    def gap(self, missed: int, seq: int) -> Gap:
        """Count and return the `Gap` for events that a stream has lost, with the `seq` of the last of them."""
        self.gaps += 1
        return Gap(missed=missed, agent=self.agent, seq=seq, at=self.clock.now())

    def connect(
        self, kind: type[Event], handler: Handler[Any], buffer: int = QUEUE_LIMIT, *, only_keeps: bool = False,
        most_failures: int = FAILURES_UNTIL_OFF
    ) -> Subscription:  # fmt: skip
        """Subscribe a handler, which so many failures in a row turn off. With `only_keeps` it gets each event before
        handlers that may publish events themselves."""
        if not callable(handler):
            raise TypeError(f"a handler must be callable, found {shorten(handler)}")
        self._receivers_of(kind)  # raises for an object that is not a class of events
        subscription = Subscription(self, kind, handler, buffer, only_keeps=only_keeps, most_failures=most_failures)
        self._admit(subscription)
        return subscription

    def forget(self, subscription: Subscription, *, is_to_return: bool = False) -> None:
        """Stop delivering to this subscription, finally or until it returns (`is_to_return`). Idempotent."""
        receivers = self._receivers[subscription.kind]
        self.off -= {subscription}
        if is_to_return:
            self.off |= {subscription}
        if subscription in receivers.subscriptions:
            receivers.subscriptions = tuple(item for item in receivers.subscriptions if item is not subscription)
            for receiver in list(receivers.signal.receivers.values()):
                if getattr(receiver, "subscription", None) is subscription:
                    receivers.signal.disconnect(receiver)
            self.reset_routes()
            self.dropped += subscription.dropped
        subscription.close()

    def readmit(self, subscription: Subscription) -> bool:
        """Deliver again to a subscription that was turned off; return False if it was not, or was unsubscribed
        since."""
        if subscription not in self.off:
            return False
        self.off -= {subscription}
        self.dropped -= subscription.dropped  # the subscription counts these itself again
        self._admit(subscription)
        return True

    def reset_routes(self, *_: object, **__: object) -> None:
        """Forget the routes after a change of receivers; they are computed again when they are next needed."""
        self.wanted.clear()

    def await_outcome(self, outcome: Any, name: str, failed: Callable[[BaseException], None]) -> None:
        """Await the awaitable that a plain handler returned, in a task, unless too many such tasks run already."""

        async def run() -> None:
            task = asyncio.current_task()
            try:
                async with asyncio.timeout(HANDLER_WITHIN) as limit:
                    await outcome
            except TimeoutError as error:
                failed(
                    TimeoutError(f"took longer than {HANDLER_WITHIN:g} s over one event") if limit.expired() else error
                )
            except ENDS_PROCESS:
                raise
            except BaseException as error:
                if is_closing(error, task) or is_cancelled():
                    raise
                failed(error)

        if len(self._tasks) >= QUEUE_LIMIT or self.spawn(run(), f"handler {name}") is None:
            self.dropped += 1
            outcome.close()

    def report_failure(self, name: str, error: BaseException, turned_off: bool) -> None:
        """Count a failure of a handler and report it."""
        self.handler_errors += 1
        try:
            self.on_handler_error(name, error, turned_off)
        except Exception:  # the report failed too; the failure is counted
            pass

    def spawn(self, work: Any, name: str) -> asyncio.Task[None] | None:
        """Run work in a task in which `stop()` and `pause()` do not wait; return None without a running event loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            work.close()
            return None
        context = contextvars.copy_context()
        context.run(HANDLING.set, (*HANDLING.get(), self))
        task: asyncio.Task[None] = loop.create_task(work, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    # -- inside

    def _admit(self, subscription: Subscription) -> None:
        receivers = self._receivers_of(subscription.kind)
        receivers.signal.connect(self._receiver_of(subscription), weak=False)
        receivers.subscriptions += (subscription,)
        self.reset_routes()

    def _receivers_of(self, kind: type[Event]) -> Receivers:
        if not (isinstance(kind, type) and issubclass(kind, Event)):
            raise TypeError(f"events are subscribed to by their class, found {shorten(kind)}")
        receivers = self._receivers.get(kind)
        if receivers is None:
            receivers = self._receivers[kind] = Receivers(self, kind)
            receivers.signal.receiver_connected.connect(self.reset_routes, weak=False)
            receivers.signal.receiver_disconnected.connect(self.reset_routes, weak=False)
            self.reset_routes()
        return receivers

    def _receiver_of(self, subscription: Subscription) -> Callable[..., None]:
        """Return the blinker receiver of a subscription, so that `signal.send(agent, event=event)` reaches it too."""

        def receive(sender: object, *, event: Event) -> None:
            self.publish(event, (subscription,))

        cast(Any, receive).subscription = subscription
        return receive


def _ignore(name: str, error: BaseException, turned_off: bool) -> None:
    return None
