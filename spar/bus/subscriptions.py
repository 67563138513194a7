"""Subscriptions of handlers: plain ones, and async ones with a queue and a task.

Each is bounded and counts lost events; none can slow down or stop the publisher. An async handler that hangs over one
event is cancelled, which counts as a failure. A handler that keeps failing is turned off, and tried again after a
while, as a sensor is. The first subscription of a bus (`spar.bus.bus`) loads this module, the only one that knows
blinker.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, cast

from blinker import Signal as Signal

from spar.checks import shorten
from spar.clock import Clock, Timer
from spar.errors import ENDS_PROCESS, is_closing
from spar.events import Event, Gap
from spar.threads import current_task, is_cancelled

#: Failures in a row until a handler is turned off, and seconds until it is tried again; one more failure turns it off
#: again.
FAILURES_UNTIL_OFF, PROBE_AFTER = 10, 600.0
#: Seconds that an async handler may take for one event, and from its cancellation until it is left behind.
HANDLER_WITHIN, HANDLER_GRACE = 5.0, 0.5
#: Tasks of a bus beyond which what a plain handler returned is not awaited.
MOST_AWAITED = 1024


class Bus(Protocol):
    """Bus as its subscribers and streams use it. `dropped` counts the events that they have lost."""

    agent: str
    clock: Clock
    dropped: int
    is_closed: bool

    @property
    def wanted(self) -> dict[type[Event], tuple[Any, ...]]: ...
    def gap(self, missed: int, seq: int) -> Gap: ...
    def publish(self, event: Event, only: tuple[Any, ...] = ()) -> None: ...
    def report_failure(self, name: str, error: BaseException, turned_off: bool) -> None: ...
    def spawn(self, work: Any, name: str, most: int | None = None) -> asyncio.Task[None] | None: ...


class Subscription:
    """Subscription of one handler to one class of events; call it to unsubscribe.

    `delivered` (passed on without an error; for an async handler, to its queue), `failures` (in a row), `errors` (in
    all), `dropped` and `is_off` can be read at any time.

    Args: most_failures: failures in a row that turn it off.
    """

    __slots__ = ("__weakref__", "_began", "_bus", "_deadline", "_handler", "_is_awake", "_is_cut", "_left", "_limit",
                 "_most_failures", "_probe", "_queue", "_subscribers", "_task", "_wake", "delivered", "dropped",
                 "errors", "failures", "hand", "is_inline", "is_off", "kind", "name", "only_keeps")  # fmt: skip

    def __init__(
        self,
        subscribers: Subscribers,
        kind: type[Event],
        handler: Callable[[Any], Any],
        limit: int,
        *,
        only_keeps: bool = False,
        most_failures: int = FAILURES_UNTIL_OFF,
    ) -> None:
        if limit < 1:
            raise ValueError(f"a buffer must hold at least one event, found {limit!r}")
        self._subscribers, self._bus = subscribers, subscribers.bus
        self.kind, self._handler = kind, handler
        self.name = name_of(handler)
        self.delivered = self.failures = self.errors = self.dropped = 0
        self._most_failures = most_failures
        self.is_off = False
        is_async = inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
            getattr(handler, "__call__", None)  # noqa: B004 - an object whose __call__ is async is an async handler
        )
        #: Whether the handler runs inside `publish`, so that its failure is known when this returns.
        self.is_inline = not is_async
        #: Whether the handler only stores events and cannot publish any: such handlers come first, so that they get
        #: events in order.
        self.only_keeps = only_keeps or is_async
        #: Function that the bus calls with each event.
        self.hand: Callable[[Any], Any] = self._put if is_async else handler
        self._limit = limit if is_async else 0
        self._queue: deque[Event] = deque(maxlen=self._limit)
        self._wake: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None
        #: When the handler began its present event (monotonic seconds), and the timer of its deadline.
        self._began: float | None = None
        self._deadline: Timer | None = None
        self._is_cut = False
        #: Whether the task is running or about to run, so that no event needs to wake it.
        self._is_awake = False
        self._left = 0  # number of its calls that ignored their cancellation and still run
        self._probe: Timer | None = None

    def __call__(self) -> None:
        """Unsubscribe. Idempotent; events queued for an async handler are dropped."""
        self._subscribers.forget(self)
        self.hand = self._handler = _ignore_event

    @property
    def waiting(self) -> int:
        """Return the number of events queued for an async handler."""
        return len(self._queue)

    def failed(self, error: BaseException) -> None:
        """Count a failure of the handler; too many in a row turn it off."""
        self.failures += 1
        self.errors += 1
        turned_off = self.failures >= self._most_failures and not self.is_off
        if turned_off:
            self._subscribers.forget(self, is_to_return=True)
            self._call_at(PROBE_AFTER, self._try_again)
        elif self.is_inline and not self.is_off:
            self.hand = self._hand_again
        self._bus.report_failure(self.name, error, turned_off)

    def restore(self) -> None:
        """Turn a handler on again that was turned off; its next failure turns it off again."""
        if self.is_off and self._subscribers.readmit(self):
            self._disarm()
            self.failures, self.is_off = self._most_failures - 1, False
            self.hand = self._hand_again if self.is_inline else self._put

    def _hand_again(self, event: Event) -> Any:
        """Pass an event to a plain handler that has failed; a success resets its count of failures."""
        outcome = self._handler(event)
        if not self.is_off:
            self.failures, self.hand = 0, self._handler
        return outcome

    async def drain(self) -> None:
        """Return once an async handler has handled all events queued for it."""
        task = self._task
        if task is None or task is current_task():
            return
        while not task.done() and task is self._task and (self._queue or self._wake is None):
            await self._bus.clock.sleep(0.001)

    def close(self) -> None:
        """Stop handling events; the bus has already removed this subscription."""
        self.is_off = True
        # A publication in progress may still have this subscription in its list of receivers.
        self.hand = _ignore_event
        self._queue.clear()
        self._disarm()
        if self._task is not None and not self._task.done() and self._task is not current_task():
            self._task.cancel()

    # -- an async handler

    def _put(self, event: Event) -> None:
        queue = self._queue
        if len(queue) == self._limit:
            self.dropped += 1
        queue.append(event)
        if not self._is_awake:
            self._wake_task()

    def _wake_task(self) -> None:
        if self._wake is None:
            self._begin()
        else:
            self._is_awake = True
            if not self._wake.done():
                self._wake.set_result(None)

    def _begin(self) -> None:
        self._began, self._is_cut = None, False
        if self._deadline is not None:  # the timer may belong to an event loop that has ended
            self._deadline.cancel()
            self._deadline = None
        self._task = self._bus.spawn(self._serve(self._queue), f"handler {self.name}")
        self._is_awake = self._task is not None
        if self._task is not None:
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task is self._task:
            self._is_awake = False

    async def _serve(self, queue: deque[Event]) -> None:
        loop, clock = asyncio.get_running_loop(), self._bus.clock
        task = cast(asyncio.Task[None], asyncio.current_task())
        # The values needed for each event have local names, which are faster than attributes.
        handler, next_event, monotonic, is_cancelled = self._handler, queue.popleft, clock.monotonic, task.cancelling
        while not (self.is_off or is_cancelled()):  # a handler may suppress the cancellation of this task
            while queue and not (self.is_off or is_cancelled()):
                self._began = monotonic()
                if self._deadline is None:
                    self._deadline = clock.call_at(self._began + HANDLER_WITHIN, self._check_deadline)
                failure: BaseException | None = None
                try:
                    await handler(next_event())
                except ENDS_PROCESS:
                    raise
                except BaseException as error:
                    if is_closing(error, task):
                        raise
                    failure = error
                    if task is self._task and self._is_cut:
                        failure = self._take_back_cancellation()
                    if is_cancelled():
                        raise
                if task is not self._task:  # this task was left behind meanwhile, and another one serves
                    return
                if self._is_cut:  # the handler suppressed the cancellation and ended
                    failure = self._take_back_cancellation()
                if failure is not None:
                    self.failed(failure)
                elif self.failures:
                    self.failures = 0
            self._began = None
            if self.is_off or is_cancelled():
                return
            if self._bus.is_closed:  # all late events, also those of a call that was left behind, are handled
                self._is_awake = False
                return
            self._wake, self._is_awake = loop.create_future(), False
            try:
                await self._wake
            finally:
                self._wake = None

    def _take_back_cancellation(self) -> BaseException:
        """Take back the cancellation of the task, which was meant for the handler only; return the error to report."""
        self._is_cut = False
        if (task := current_task()) is not None:
            task.uncancel()
        return self._timeout_error("was cancelled")

    def _check_deadline(self) -> None:
        """Cancel a handler that takes too long over one event, and leave it behind after its grace.

        One timer serves many events: when it fires too early for the present event, it is set to this event's deadline.
        """
        self._deadline = None
        if self._began is None or self.is_off or self._task is None or self._task.done():
            return
        clock = self._bus.clock
        due = self._began + HANDLER_WITHIN
        if (now := clock.monotonic()) < due:
            self._deadline = clock.call_at(due, self._check_deadline)
        elif not self._is_cut:
            self._is_cut = True
            self._task.cancel()
            self._deadline = clock.call_at(now + HANDLER_GRACE, self._check_deadline)
        else:
            self._leave_behind(self._task)

    def _leave_behind(self, task: asyncio.Task[None]) -> None:
        """Leave a handler behind that ignores its cancellation; the next events do not wait for it."""
        self._left += 1
        self._subscribers.left_behind |= {task}
        task.add_done_callback(self._left_task_ended)
        self._task, self._began, self._is_awake = None, None, False
        self.failed(self._timeout_error("was left behind"))
        if self._queue and not self.is_off:
            self._begin()

    def _left_task_ended(self, task: asyncio.Task[None]) -> None:
        self._left -= 1
        self._subscribers.left_behind -= {task}

    @staticmethod
    def _timeout_error(end: str) -> TimeoutError:
        return TimeoutError(f"took longer than {HANDLER_WITHIN:g} s over one event and {end}")

    # -- off and on again

    def _try_again(self) -> None:
        self._probe = None
        if self._left:  # a call that was left behind has not ended: another one would hang too
            self._call_at(PROBE_AFTER, self._try_again)
        else:
            self.restore()

    def _call_at(self, seconds: float, callback: Callable[[], None]) -> None:
        clock = self._bus.clock
        try:
            self._probe = clock.call_at(clock.monotonic() + seconds, callback)
        except RuntimeError:  # no event loop runs: the handler stays off until somebody restores it
            self._probe = None

    def _disarm(self) -> None:
        for timer in (self._probe, self._deadline):
            if timer is not None:
                timer.cancel()
        self._probe = self._deadline = None


# -- receivers of one bus


class Subscribers:
    """Receivers of the events of one bus: subscriptions, and receivers of its signals.

    `off` are the subscriptions whose handlers failed too often, `left_behind` tasks of handlers that ignored their
    cancellation and still run.
    """

    __slots__ = ("_by_kind", "bus", "left_behind", "off")

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.off: frozenset[Subscription] = frozenset()
        self.left_behind: frozenset[asyncio.Task[None]] = frozenset()
        self._by_kind: dict[type[Event], Receivers] = {}

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """Return the subscriptions; from any thread."""
        return tuple(item for receivers in list(self._by_kind.values()) for item in receivers.subscriptions)

    def route_of(self, kind: type[Event]) -> tuple[Subscription | Strangers, ...]:
        """Return the receivers of events of a class, in the order in which they get one."""
        bases = [self._by_kind[base] for base in kind.__mro__ if base in self._by_kind]
        subscriptions = [item for receivers in bases for item in receivers.subscriptions]
        # A plain handler may publish: a subscription that only keeps events must get this event before the next one.
        subscriptions.sort(key=lambda item: not item.only_keeps)
        # Our own subscriptions are blinker receivers too; only signals with other receivers are asked for these.
        return (*subscriptions, *[receivers.strangers for receivers in bases if receivers.has_strangers])

    def connect(self, kind: type[Event], handler: Callable[[Any], Any], buffer: int, only_keeps: bool,
                most_failures: int | None) -> Subscription:  # fmt: skip
        """Subscribe a handler; see `Events.connect`."""
        if not callable(handler):
            raise TypeError(f"a handler must be callable, found {shorten(handler)}")
        self.receivers_of(kind)  # raises for an object that is not a class of events
        most_failures = FAILURES_UNTIL_OFF if most_failures is None else most_failures
        subscription = Subscription(self, kind, handler, buffer, only_keeps=only_keeps, most_failures=most_failures)
        self._admit(subscription)
        return subscription

    def forget(self, subscription: Subscription, *, is_to_return: bool = False) -> None:
        """Stop delivering to this subscription, finally or until it returns (`is_to_return`). Idempotent."""
        receivers = self._by_kind[subscription.kind]
        self.off -= {subscription}
        if is_to_return:
            self.off |= {subscription}
        if subscription in receivers.subscriptions:
            receivers.subscriptions = tuple(item for item in receivers.subscriptions if item is not subscription)
            for receiver in list(receivers.signal.receivers.values()):
                if getattr(receiver, "subscription", None) is subscription:
                    receivers.signal.disconnect(receiver)
            self.reset_routes()
            self.bus.dropped += subscription.dropped
        subscription.close()

    def readmit(self, subscription: Subscription) -> bool:
        """Deliver again to a subscription that was turned off; return False if it was not, or was unsubscribed
        since."""
        if subscription not in self.off:
            return False
        self.off -= {subscription}
        self.bus.dropped -= subscription.dropped  # the subscription counts these itself again
        self._admit(subscription)
        return True

    def reset_routes(self, *_: object, **__: object) -> None:
        """Forget the routes after a change of receivers; they are computed again when they are next needed."""
        self.bus.wanted.clear()

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

        if self.bus.spawn(run(), f"handler {name}", MOST_AWAITED) is None:
            self.bus.dropped += 1
            outcome.close()

    def _admit(self, subscription: Subscription) -> None:
        receivers = self.receivers_of(subscription.kind)
        receivers.signal.connect(self._receiver_of(subscription), weak=False)
        receivers.subscriptions += (subscription,)
        self.reset_routes()

    def receivers_of(self, kind: type[Event]) -> Receivers:
        """Return the receivers of a class of events. Raises: TypeError for another object."""
        if not (isinstance(kind, type) and issubclass(kind, Event)):
            raise TypeError(f"events are subscribed to by their class, found {shorten(kind)}")
        receivers = self._by_kind.get(kind)
        if receivers is None:
            receivers = self._by_kind[kind] = Receivers(self, kind)
            receivers.signal.receiver_connected.connect(self.reset_routes, weak=False)
            receivers.signal.receiver_disconnected.connect(self.reset_routes, weak=False)
            self.reset_routes()
        return receivers

    def _receiver_of(self, subscription: Subscription) -> Callable[..., None]:
        """Return the blinker receiver of a subscription, so that `signal.send(agent, event=event)` reaches it too."""

        def receive(sender: object, *, event: Event) -> None:
            self.bus.publish(event, (subscription,))

        cast(Any, receive).subscription = subscription
        return receive


class Receivers:
    """Receivers of one class of events: the blinker signal, our own subscriptions to it, and the other receivers
    (`strangers`)."""

    __slots__ = ("signal", "strangers", "subscriptions")

    def __init__(self, subscribers: Subscribers, kind: type[Event]) -> None:
        self.signal = Signal(kind.__doc__)
        self.subscriptions: tuple[Subscription, ...] = ()
        self.strangers = Strangers(subscribers, self)

    @property
    def has_strangers(self) -> bool:
        return len(self.signal.receivers) > len(self.subscriptions)


class Strangers:
    """Receivers that others connected to a signal directly: called one by one, each isolated from the rest."""

    __slots__ = ("_failures", "_receivers", "_subscribers", "delivered")
    name = "receivers of a signal"

    def __init__(self, subscribers: Subscribers, receivers: Receivers) -> None:
        self._subscribers, self._receivers = subscribers, receivers
        self._failures: dict[tuple[int, int], int] = {}
        self.delivered = 0

    def hand(self, event: Event) -> None:
        subscribers, receivers = self._subscribers, self._receivers
        agent = subscribers.bus.agent
        for receiver in receivers.signal.receivers_for(agent):
            if getattr(receiver, "subscription", None) is not None:
                continue
            try:
                outcome = receiver(agent, event=event)
            except ENDS_PROCESS:
                raise
            except BaseException as error:
                self._failed(receiver, error)
            else:
                if inspect.iscoroutine(outcome):
                    subscribers.await_outcome(outcome, name_of(receiver), partial(self._failed, receiver))
                elif self._failures:
                    self._failures.pop(_identity(receiver), None)
        if not receivers.has_strangers:  # the last one was collected, which a signal does not report
            subscribers.reset_routes()

    def failed(self, error: BaseException) -> None:
        """Report an error of the delivery itself (a stack too deep), as opposed to an error of one receiver."""
        self._subscribers.bus.report_failure(self.name, error, False)

    def _failed(self, receiver: Callable[..., Any], error: BaseException) -> None:
        key = _identity(receiver)
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        turned_off = failures >= FAILURES_UNTIL_OFF
        if turned_off:
            del self._failures[key]
            self._receivers.signal.disconnect(receiver)
        self._subscribers.bus.report_failure(name_of(receiver), error, turned_off)


def name_of(handler: Any) -> str:
    return getattr(handler, "__qualname__", None) or repr(handler)


def _ignore_event(event: Event) -> None:
    return None


def _identity(receiver: Any) -> tuple[int, int]:
    """Return an identity that is the same for each access to a bound method, which makes a new object each time."""
    return id(getattr(receiver, "__self__", None)), id(getattr(receiver, "__func__", receiver))
