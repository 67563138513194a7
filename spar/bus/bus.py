"""Bus of events: delivers them to handlers and streams.

Publishing cannot fail and cannot wait. A handler that raises is logged, counted and skipped, and turned off for a while
after ten failures in a row. An async handler has a bounded queue, a task of its own and a few seconds for each event; a
slow one loses the oldest events, which is counted and reported by a `Gap`. Subscribers are receivers of blinker signals
(`events.signal(PhaseCompleted)`). The hot path reads a snapshot of them, and the loop asks `wanted[PhaseCompleted]`
first, so an event without receivers is never made.

`spar.events` has the classes of events; `spar.bus.subscriptions`, which the first subscriber loads, the subscribers.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import weakref
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from spar.clock import Clock, SystemClock
from spar.errors import ENDS_PROCESS
from spar.events import Event, Gap
from spar.threads import current_task

if TYPE_CHECKING:
    from spar.bus.streams import EventStream
    from spar.bus.subscriptions import Signal, Subscribers, Subscription


class Routes(dict[type[Event], tuple[Any, ...]]):
    """Receivers by class of event: computed once, so that publishing needs one lookup.

    `subscribers` are all receivers; None before the first subscription.
    """

    __slots__ = ("subscribers",)

    def __init__(self) -> None:
        super().__init__()
        self.subscribers: Subscribers | None = None

    def __missing__(self, kind: type[Event]) -> tuple[Any, ...]:
        route = self[kind] = () if self.subscribers is None else self.subscribers.route_of(kind)
        return route


#: Held while a bus makes its subscribers: the first two subscriptions may come from two threads.
_MAKING = Lock()
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
        "_streams",
        "_tasks",
        "agent",
        "clock",
        "dropped",
        "gaps",
        "handler_errors",
        "is_closed",
        "on_handler_error",
        "others",
        "process",
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
        #: Whether the bus is closed: late events are still handled, and then the tasks of async handlers end.
        self.is_closed = False
        self.on_handler_error: Callable[[str, Any, bool], None] = _ignore
        #: Receivers by class of event; a lookup tells whether there are any.
        self.wanted = Routes()
        #: Runs of the agent, which have a log of the events of each (`spar.runs.runs.Runs`); None without an agent.
        self.runs: Any = None
        #: How many processes have opened the memory: the upper bits of the numbers of events in these logs. If several
        #: processes share the runs, `others` has the numbers, and the logs of their runs (`spar.nodes.owned`).
        self.process = 0
        self.others: Any = None
        self._streams: weakref.WeakValueDictionary[int, EventStream] | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}  # an empty set takes three times as much memory

    # -- subscribing

    @property
    def subscribers(self) -> Subscribers:
        """Return the receivers of its events, which the first subscription makes."""
        if self.wanted.subscribers is None:
            from spar.bus.subscriptions import Subscribers

            with _MAKING:
                self.wanted.subscribers = self.wanted.subscribers or Subscribers(self)
        return self.wanted.subscribers

    @property
    def off(self) -> frozenset[Subscription]:
        """Return the handlers that failed too often and are turned off; the `restore()` of one turns it on again."""
        return _NONE if self.wanted.subscribers is None else self.wanted.subscribers.off

    @property
    def left_behind(self) -> frozenset[asyncio.Task[None]]:
        """Return the tasks of async handlers that ignored their cancellation and still run."""
        return _NONE if self.wanted.subscribers is None else self.wanted.subscribers.left_behind

    @property
    def subscriptions(self) -> tuple[Subscription, ...]:
        """Return the subscriptions; from any thread."""
        return () if self.wanted.subscribers is None else self.wanted.subscribers.subscriptions

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
            self.subscribers.receivers_of(kind)  # raises for an object that is not a class of events
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
        """Return the events of a run with a `seq` above `after`: an async iterator of `spar.bus.run_log.RunEvent`.

        It ends after the terminal event, or when the agent stops; reading raises LookupError for an unknown run.
        """
        if self.runs is None:
            raise LookupError(f"no run {run_id!r}: there are no runs without an agent")
        return self.runs.follow(run_id, after)

    def signal(self, kind: type[Event]) -> Signal:
        """Return the blinker signal of a class of events; receivers are called as `receiver(agent_name,
        event=event)`."""
        return self.subscribers.receivers_of(kind).signal

    def listeners(self, kind: type[Event]) -> bool:
        """Return whether an event of exactly this class has receivers; `wanted[kind]` tells the same, faster."""
        return bool(self.wanted[kind])

    # -- publishing

    def publish(self, event: Event, only: tuple[Any, ...] = ()) -> None:
        """Stamp the event and pass it to every receiver, whatever the others do with it. Never raises, never waits.

        Args: only: the receivers of an event that was sent directly through a signal; they get it unstamped.
        """
        if not only:
            only = self.wanted[type(event)]
            self.seq = event.seq = self.seq + 1
            event.agent = self.agent
            if event.at is None:
                event.at = self._now()
        for item in only:
            hand = item.hand
            try:
                outcome = hand(event)
                if outcome is not None and inspect.iscoroutine(outcome):  # `lambda event: queue.put(event)`
                    self.subscribers.await_outcome(outcome, item.name, item.failed)
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

    # -- for subscriptions

    def gap(self, missed: int, seq: int) -> Gap:
        """Count and return the `Gap` for events that a stream has lost, with the `seq` of the last of them."""
        self.gaps += 1
        return Gap(missed=missed, agent=self.agent, seq=seq, at=self.clock.now())

    def connect(
        self, kind: type[Event], handler: Handler[Any], buffer: int = QUEUE_LIMIT, *, only_keeps: bool = False,
        most_failures: int | None = None
    ) -> Subscription:  # fmt: skip
        """Subscribe a handler, which so many failures in a row turn off (None: ten). With `only_keeps` it gets each
        event before handlers that may publish events themselves."""
        return self.subscribers.connect(kind, handler, buffer, only_keeps, most_failures)

    def report_failure(self, name: str, error: BaseException, turned_off: bool) -> None:
        """Count a failure of a handler and report it."""
        self.handler_errors += 1
        try:
            self.on_handler_error(name, error, turned_off)
        except Exception:  # the report failed too; the failure is counted
            pass

    def spawn(self, work: Any, name: str, most: int | None = None) -> asyncio.Task[None] | None:
        """Run work in a task in which `stop()` and `pause()` do not wait; return None without a running event loop, and
        if `most` tasks run already."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is None or (most is not None and len(self._tasks) >= most):
            work.close()
            return None
        context = contextvars.copy_context()
        context.run(HANDLING.set, (*HANDLING.get(), self))
        task: asyncio.Task[None] = loop.create_task(work, name=name, context=context)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task


def _ignore(name: str, error: BaseException, turned_off: bool) -> None:
    return None
