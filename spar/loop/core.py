"""Values that the parts of one agent share, so that no part gets the agent itself; and the tasks of its own work.

The agent's own work serves a request to the agent, such as its start, stop, pause, or a single phase. Such requests
come from other threads, from inside the agent's own cycles and event handlers, and several at a time. `Requests` runs
their work in the agent's event loop, and *exclusive* work one piece after another. It does not know which requests
exist, nor which of them are allowed. `StopDeadline` waits for the steps of a stop.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

from spar.bus.bus import HANDLING, Events
from spar.clock import Clock, Signal
from spar.events import ErrorOccurred
from spar.hooks import Hooks
from spar.observe.logs import Logger, get_logger
from spar.ports.any_part import has
from spar.state.apply import Ledger
from spar.threads import is_cancelled
from spar.types import Fault

if TYPE_CHECKING:
    from spar.config.load import Settings
    from spar.records.runs import RunStatus
    from spar.types import QueueMode

State = Literal["created", "running", "pausing", "paused", "stopping", "stopped", "failed"]


class Traces(Protocol):
    """Names of traces and spans. A tracing backend receives the spans of sampled cycles only.

    `counts` are the numbers of spans that were `sent` and `lost`.
    """

    counts: Any

    def linked(self, run_id: str, header: str) -> None:
        """Remember the caller of a run by the `traceparent` of its request."""

    def names(self, fields: Mapping[str, Any]) -> Mapping[str, str]:
        """Return trace and span of a log line by its fields."""

    def trace(self, cycle_id: str) -> str:
        """Return the id of a cycle's trace; "" when its spans are not sent."""

    def traceparent(self, to: str, cycle_id: str, *names: str) -> str:
        """Return the header that tells the receiver `to` which span a request belongs to.

        It is "" when the span is not sent, or when `to` must not learn its id. `names` are the names of the spans
        inside the cycle's span, from the outermost one to the span that the request belongs to.
        """


class PartOfOneNode(Protocol):
    """Part of an agent that runs in one of its processes. A second call of a method changes nothing; `begin` and `end`
    are called one after the other."""

    async def begin(self) -> None:
        """Go on with what another process has left. Raises: SparError; it is called again then."""

    async def end(self) -> None:
        """Finish what is in hand, and leave the rest to another process; all that was stored may be written later."""

    def lose(self) -> None:
        """Stop at once, and store nothing more: another process may have begun. `end` is called next."""


class SharedSessions(Protocol):
    """Sessions of an agent that several processes run, each some of them."""

    async def hold(self, session: str, part: PartOfOneNode) -> None:
        """Have a part run where a session is, now if that is here. Raises: as `PartOfOneNode.begin`."""

    def on_request(self, kind: str, do: Callable[..., Awaitable[Any]]) -> None:
        """Have a function called with what other processes ask the owner of a session for, under this kind."""

    def owns(self, session: str) -> bool:
        """Return whether this process may begin a cycle of a session."""

    def has(self, session: str) -> bool:
        """Return whether this process has a session, also one that it is to hand over."""

    def has_read(self, session: str) -> bool:
        """Return whether this process has read what others have left of a session, which goes first."""

    def since_now(self) -> Callable[[str], bool]:
        """Return a function that returns whether this process has had a session without a break since this call."""

    def is_suspect(self, session: str) -> bool:
        """Return whether work of a session may have ended several processes."""

    async def wait(self, run_id: str, timeout: float | None) -> RunStatus:
        """Return the status of a run of another process as `Agent.wait` does. Raises: LookupError."""

    async def abort(self, run_id: str) -> None:
        """Have the owner of a run abort it. Raises: LookupError."""

    async def session_of(self, id: str) -> str | None:
        """Return the session of a run or of a recorded cycle; None for another id."""

    async def ask(self, session: str, kind: str, **given: Any) -> Any:
        """Have the owner of a session do something, and return its result. Raises: as if it was done here."""

    async def answered(self, session: str) -> None:
        """Have the owner of a session read the answer to an approval."""

    async def placed(self, session: str, run_id: str, mode: QueueMode) -> None:
        """Have the owner of a session place a message that was accepted here."""


class Core:
    """Name, clock, events, hooks, log, settings, state, ledger and tracing of one agent.

    `ledger` is told the facts of its work, and has the states that they add up to. `configuration` is the digest of
    the configuration in force (`spar.config.in_force`), "" without one. `shared` are its sessions if several processes
    run the agent; None if this one has all.
    """

    __slots__ = ("clock", "configuration", "events", "hooks", "ledger", "name", "settings", "shared", "state",
                 "traces")  # fmt: skip

    settings: Settings
    state: State
    log: Final[Logger] = get_logger("spar.agent")

    def __init__(self, name: str, clock: Clock, settings: Settings, ledger: Ledger | None = None) -> None:
        self.name, self.clock, self.settings = name, clock, settings
        self.ledger = Ledger(name) if ledger is None else ledger
        self.events, self.hooks = Events(name, clock=clock), Hooks()
        self.state, self.configuration = "created", ""
        #: None when tracing is off.
        self.traces: Traces | None = None
        self.shared: SharedSessions | None = None

    def owns(self, session: str) -> bool:
        """Return whether this process may begin a cycle of a session."""
        return self.shared is None or self.shared.owns(session)

    def has(self, session: str) -> bool:
        """Return whether this process has a session, also one that it is to hand over."""
        return self.shared is None or self.shared.has(session)

    def is_ready(self, session: str) -> bool:
        """Return whether a session may begin to work: this process owns it, and has read what others left of it."""
        return self.shared is None or (self.shared.owns(session) and self.shared.has_read(session))

    def owner_of(self, session: str) -> SharedSessions | None:
        """Return what reaches the process that has a session, after it has read what others left of it; None if this
        one has."""
        return None if self.is_ready(session) else self.shared

    def is_suspect(self, session: str) -> bool:
        """Return whether work of a session may have ended several processes that ran this agent."""
        return self.shared is not None and self.shared.is_suspect(session)

    def report(self, write: Callable[..., None], message: str, error: BaseException, part: str, phase: str,
               policy: str = "continue", **fields: Any) -> None:  # fmt: skip
        """Log an error that belongs to no cycle, and publish it. Args: write: the method of the log."""
        fault = Fault.of(error, part=part, phase=phase)
        write(message, agent=self.name, part=part, reason=fault.message, **fields)
        self.events.publish(ErrorOccurred(cycle_id="", phase=phase, error=fault, policy=policy, exception=error))

    def ask(self, module: Any, question: Any, *given: Any, read: Callable[[Any], Any] = lambda answer: answer,
            **named: Any) -> Any:  # fmt: skip
        """Return what a module answers to an optional question; None if it does not know it, or raises: that is logged.

        Args: question: a method of an optional port (`OptionalActor.steer`); read: checks the answer.
        """
        part, name = module.part, question.__name__
        try:
            return read(getattr(part, name)(*given, **named)) if has(part, question) else None
        except Exception as error:
            self.log.warning("no answer", agent=self.name, part=module.name, to=name, reason=repr(error))
            return None

    async def request(self, module: Any, what: Any, *given: Any) -> None:
        """Await what a module does for an optional request; see `ask`."""
        try:
            if (work := self.ask(module, what, *given)) is not None:
                await work
        except Exception as error:
            self.log.error("request failed", agent=self.name, part=module.name, to=what.__name__, reason=repr(error))

    def traceparent(self, to: str, cycle_id: str, *names: str) -> str:
        """Return the header that tells the receiver `to` which span a request belongs to; "" when tracing is off."""
        return "" if self.traces is None else self.traces.traceparent(to, cycle_id, *names)


R = TypeVar("R")

#: The agents (as their `Requests`) whose cycles and hooks the current task is part of. Work that waits for such an
#: agent would wait for itself, so there it becomes a background task.
_INSIDE: contextvars.ContextVar[tuple[Requests, ...]] = contextvars.ContextVar("inside", default=())


class CalledOff(Exception):
    """Error of a waiting caller: another task cancelled the work that it awaits."""


class Requests:
    """Event loop of one agent, the tasks of its own work there, and the coroutines that wait for a change of the agent.

    A change is any change of the agent's state after which a waiting coroutine checks its condition again.
    """

    __slots__ = ("_changed", "_clock", "_events", "_name", "_tasks", "_thread_id", "exclusive", "loop")

    def __init__(self, name: str, clock: Clock, events: Events) -> None:
        self._name, self._clock, self._events = name, clock, events
        self.loop: asyncio.AbstractEventLoop | None = None
        #: The task of the exclusive work (see `exclusively`); None while there is none.
        self.exclusive: asyncio.Task[Any] | None = None
        self._thread_id = 0
        #: The background tasks, each with whether a caller awaits its outcome.
        self._tasks: dict[asyncio.Task[Any], bool] = {}
        self._changed = Signal()

    # -- event loop and thread

    def bind(self, *, is_at_rest: bool) -> bool:
        """Bind the agent to the running event loop; return whether this is another loop than before.

        Args: is_at_rest: no work runs in the old loop.
        Raises: RuntimeError when the old loop still runs in another thread, with work in it.
        """
        loop, old = asyncio.get_running_loop(), self.loop
        if old is loop:
            return False
        if old is not None and old.is_running() and not is_at_rest:
            raise RuntimeError(
                f"agent {self._name!r} belongs to another event loop, which still runs: call it from there"
            )
        self.loop, self._thread_id = loop, threading.get_ident()
        self.exclusive, self._changed = None, Signal()
        return True

    @property
    def is_foreign_thread(self) -> bool:
        return self.loop is not None and threading.get_ident() != self._thread_id

    def in_loop(self, function: Callable[[], object]) -> bool:
        """Call `function` in the event loop's thread, at once if this is that thread; return False when the loop is
        closed."""
        if not self.is_foreign_thread:
            function()
            return True
        assert self.loop is not None
        try:
            self.loop.call_soon_threadsafe(function)
        except RuntimeError:
            return False
        return True

    # -- inside a cycle or handler

    @property
    def is_inside(self) -> bool:
        """Return whether the current task belongs to a cycle, hook or event handler of the agent, so that waiting would
        deadlock."""
        # `HANDLING` holds the event buses whose handlers the current task is part of.
        return self in _INSIDE.get() or self._events in HANDLING.get()

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """Mark all that is called or started inside this `with` as the agent's own work, which cannot wait for the
        agent."""
        token = _INSIDE.set((*_INSIDE.get(), self))
        try:
            yield
        finally:
            _INSIDE.reset(token)

    @property
    def own_context(self) -> contextvars.Context:
        """Return a context in which a task is the agent's own work."""
        context = contextvars.copy_context()
        context.run(_INSIDE.set, (*_INSIDE.get(), self))
        return context

    async def unless_inside(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Await work that may have to wait for the current cycle; inside that cycle, start it in the background
        instead."""
        if self.is_inside:
            self.in_background(work, name)
        else:
            await work

    # -- tasks

    def in_background(self, work: Coroutine[Any, Any, R], name: str) -> asyncio.Task[R]:
        """Run work in a background task, which may wait for the agent; log its failure.

        A failure is logged at level `debug` instead of `warning` when a caller awaits the work (`exclusively`) and gets
        the error too.
        """
        context = contextvars.copy_context()
        context.run(_INSIDE.set, ())
        context.run(HANDLING.set, ())
        task = asyncio.get_running_loop().create_task(work, name=f"{name} {self._name}", context=context)
        self._tasks[task] = False
        task.add_done_callback(self._done)
        return task

    def in_progress(self, name: str) -> list[asyncio.Task[Any]]:
        """Return the tasks of background work whose name begins so."""
        return [task for task in self._tasks if task.get_name().startswith(name)]

    def _done(self, task: asyncio.Task[Any]) -> None:
        is_awaited = self._tasks.pop(task)
        if not self._tasks:
            self._tasks = {}  # an emptied dict keeps its memory
        if not task.cancelled() and (error := task.exception()) is not None:
            # A caller that awaits the task gets the error too; other errors are visible only here.
            write = Core.log.debug if isinstance(error, CalledOff) or is_awaited else Core.log.warning
            write("background work failed", agent=self._name, work=task.get_name(), reason=repr(error))

    async def exclusively(self, work: Callable[[], Coroutine[Any, Any, R]], name: str) -> R:
        """Run work that must not overlap with other exclusive work (a start, a step, a resume), in a task of its own.

        Cancelling the caller cancels the work and waits until the work has cleaned up.
        Raises: what the work raises; CalledOff when another task cancelled the work.
        """

        async def alone() -> R:
            while self.exclusive is not None:
                await self.change()
            self.exclusive = asyncio.current_task()
            try:
                return await work()
            finally:
                self.exclusive = None
                self.notify()

        task = self.in_background(alone(), name)
        self._tasks[task] = True
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.done() and not is_cancelled():
                raise CalledOff(name) from None
            task.cancel()
            from anyio import CancelScope  # few requests are cancelled

            with CancelScope(shield=True):
                await asyncio.wait([task])
            raise

    # -- waiting

    async def change(self, timeout: float | None = None) -> None:
        """Wait until something about the agent changes, at most `timeout` seconds."""
        await self._changed.wait(self._clock, timeout)

    def notify(self) -> None:
        """Wake all coroutines that wait for a change of the agent."""
        self._changed.set()


class StopDeadline:
    """Deadline of the present stop (`at`, monotonic seconds). Another stop may make it earlier.

    Args: grace: returns the seconds from the deadline until unfinished work is left behind.
    """

    __slots__ = ("_core", "_requests", "at", "grace")

    def __init__(self, core: Core, requests: Requests, grace: Callable[[], float]) -> None:
        self._core, self._requests, self.grace = core, requests, grace
        self.at = float("inf")

    async def in_time(self, work: Coroutine[Any, Any, object], what: str, within: float = float("inf")) -> None:
        """Run one step of a stop, no longer than the stop itself may take.

        A late step is cancelled, and left behind if it ignores that; both are logged.
        Args: within: its own limit in seconds.
        """
        task = self._requests.in_background(work, f"{what} of")
        late = await self.wait_for([task], within)
        if late:
            self._core.log.warning("not done in time for the stop", agent=self._core.name, part=what,
                        is_left_behind=not task.done())  # fmt: skip

    async def wait_for(self, tasks: Iterable[asyncio.Task[Any]], within: float) -> set[asyncio.Task[Any]]:
        """Wait for tasks as long as the stop allows, at most `within` seconds, and cancel late ones.

        A task has a grace after the deadline of the stop, or after its own start if that is later: one half to finish,
        the other half to be cancelled.
        Returns: the cancelled tasks; those of them that are not done are left behind.
        """
        clock, pending = self._core.clock, [task for task in tasks if not task.done()]
        began = clock.monotonic()
        await self._wait(pending, lambda: min(began + within, max(self.at, began) + self.grace() / 2))
        late = {task for task in pending if not task.done()}
        for task in late:
            task.cancel()
        if late:
            end = clock.monotonic() + self.grace() / 2
            await self._wait(list(late), lambda: end)
        return late

    async def _wait(self, tasks: Sequence[asyncio.Task[Any]], until: Callable[[], float]) -> None:
        """Wait until tasks are done, at most until a time (monotonic seconds), which may become earlier meanwhile."""
        requests = self._requests
        for task in tasks:
            task.add_done_callback(lambda _: requests.notify())
        while any(not task.done() for task in tasks):
            left = until() - self._core.clock.monotonic()
            if left <= 0:
                break
            await requests.change(left)
