"""Attachments: features that an agent does not know, and that attach themselves to it.

An attachment is a function `attach(agent)`, or an object with that method; `agent` is an `Attaching`. It asks for the
events, the hooks and the times of the agent's life that it needs. That is granted once the function has returned: an
attachment that raises has changed nothing.

A handler, a hook or a task of an attachment that fails five times in a row is turned off and said; handlers are tried
again later, as those of programs are. Opening and closing are bounded.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar, runtime_checkable

from msgspec import Struct

from spar.backoff import Backoff
from spar.bus.subscriptions import Subscription
from spar.checks import shorten
from spar.errors import ENDS_PROCESS, ConfigError, ContractError, PhaseTimeoutError, SparError, is_closing
from spar.events import ErrorOccurred, Event
from spar.hooks import POINTS, Hook, Registered
from spar.loop.core import Core, Requests, StopDeadline
from spar.loop.setup import Setup
from spar.ports.any_part import AgentControl, Named, offers
from spar.ports.rows import OwnRows
from spar.protocols import Home
from spar.records.runs import Receipt
from spar.threads import BoundedCalls, is_cancelled
from spar.types import Fault

if TYPE_CHECKING:
    from spar.config.tables.settings import Settings

E = TypeVar("E", bound=Event)
P = TypeVar("P")
#: Function of an attachment; what it returns is awaited if it can be.
Work = Callable[[], Awaitable[object] | object]
Status = Literal["attached", "open", "closed", "quarantined"]

#: Seconds for an attachment to open, and to close.
OPEN_WITHIN = CLOSE_WITHIN = 10.0
#: Failures in a row that turn a handler, a hook or a task off.
MOST_FAILURES = 5
_BACKOFF = Backoff(1.0, 60.0)


@runtime_checkable
class Attaches(Protocol):
    """Object that attaches itself to an agent."""

    def attach(self, agent: Attaching) -> object:
        """Ask for what it needs, before the agent starts; return what other attachments and operations get of it, None
        for this object. Raises: any error; the agent is not made then."""


class Services(Struct, frozen=True, eq=False):
    """Services of an agent for its attachments.

    `rows(owner)` are small durable rows; None without a memory.
    `submit` accepts a message as `Agent.submit` does. `runs` has `find(run_id)` and `wait(run_id, timeout)`.
    `sessions` has `of(key)` and `cycle(id)`, which is None unless that cycle runs. `in_background(work, name)`
    runs work in a task; its failure is logged. `control` pauses and resumes; `setup` has the modules, `health` opens
    and closes alerts, `state` is what outlives the process; `conversations()` are the parts of the messages.
    """

    core: Core
    memory: Any
    home: Home | None
    rows: Callable[[str], OwnRows | None]
    submit: Callable[..., Awaitable[Receipt]]
    runs: Any
    sessions: Any
    in_background: Callable[[Coroutine[Any, Any, None], str], object]
    control: AgentControl
    setup: Setup
    health: Any
    state: Any
    conversations: Callable[[], Any]


class Wishes:
    """Functions that an attachment asks the agent to call; see `Attaching`."""

    __slots__ = ("applies", "closes", "forgets", "grows", "handlers", "hooks", "loads", "opens", "tasks")

    def __init__(self) -> None:
        self.handlers: list[tuple[type[Event], Callable[[Any], Any]]] = []
        self.hooks: list[tuple[str, Hook, int, float | None]] = []
        self.loads: list[Work] = []
        self.opens: list[Work] = []
        self.closes: list[Work] = []
        self.tasks: dict[str, Callable[[], Awaitable[object]]] = {}
        self.forgets: list[Callable[[str], Awaitable[object]]] = []
        self.grows: list[Callable[[str], bool]] = []
        self.applies: list[Callable[[Settings], object]] = []


class Attaching:
    """Agent as one attachment sees it.

    Attributes: name: that of the attachment; core: name, clock, events, hooks, log, settings and state of the agent;
    services: its other services.
    """

    __slots__ = ("_others", "core", "name", "services", "wishes")

    def __init__(self, name: str, services: Services, others: Mapping[str, Any]) -> None:
        self.name, self.services, self.core, self._others = name, services, services.core, others
        self.wishes = Wishes()

    def on(self, kind: type[E], handler: Callable[[E], Any]) -> None:
        """Have a function called with each event of this class or of a subclass; it may be async.

        Five failures in a row turn it off for ten minutes. Raises: ContractError for another class.
        """
        if not (isinstance(kind, type) and issubclass(kind, Event)):
            raise ContractError(f"on() wants a class of events (docs/reference/events.md), found {shorten(kind)}")
        self.wishes.handlers.append((kind, _function(handler, "on()")))

    def hook(self, point: str, function: Hook, *, priority: int = 0, timeout: float | None = None) -> None:
        """Have a hook called at a point (`spar.hooks.POINTS`), that of the highest priority first.

        Args: timeout: seconds that it may take; None: 15. Raises: ContractError for an unknown point.
        """
        if point not in POINTS:
            raise ContractError(f"hook() wants a point of hooks, found {shorten(point)}; known: {', '.join(POINTS)}")
        self.wishes.hooks.append((point, _function(function, "hook()"), priority, timeout))

    def load(self, work: Work) -> None:
        """Have a function called, and awaited if it is async, once the memory is open: before work of an earlier
        process goes on, and before single steps. It has 10 s, and its errors are those of the start."""
        self.wishes.loads.append(_function(work, "load()"))

    def open(self, work: Work) -> None:
        """Have a function called, and awaited if it is async, at the end of each start, within 10 s.

        If it fails, the agent does not start.
        """
        self.wishes.opens.append(_function(work, "open()"))

    def close(self, work: Work) -> None:
        """Have a function called, and awaited if it is async, when the agent stops, before its modules and its memory
        close, and after an `open` that failed. It has 10 s."""
        self.wishes.closes.append(_function(work, "close()"))

    def task(self, name: str, work: Callable[[], Awaitable[object]]) -> None:
        """Have a coroutine function run while the agent is started; it is cancelled when the agent stops.

        One that fails is called again after a back-off, and no more after five failures in a row.
        """
        if name in self.wishes.tasks:
            raise ContractError(f"task() wants names that differ, found {name!r} twice")
        self.wishes.tasks[name] = _function(work, "task()")

    def forgets(self, work: Callable[[str], Awaitable[object]]) -> None:
        """Have an async function called with the key of each session that is forgotten; its errors are those of the
        request to forget."""
        self.wishes.forgets.append(_function(work, "forgets()"))

    def grows(self, shows: Callable[[str], bool]) -> None:
        """Have a function asked with the id of a run whether people see its answer grow: it is not sent in blocks
        then."""
        self.wishes.grows.append(_function(shows, "grows()"))

    def applies(self, work: Callable[[Settings], object]) -> None:
        """Have a function called with the settings whenever others are in force."""
        self.wishes.applies.append(_function(work, "applies()"))

    def needs(self, kind: type[P]) -> P:
        """Return the attachment of this class. Raises: ContractError if none was attached before this one."""
        for part in self._others.values():
            if isinstance(part, kind):
                return part
        attached = ", ".join(self._others) or "nothing"
        raise ContractError(f"it needs an attachment {kind.__name__}, and attached before it is: {attached}")

    def report(self, problem: str | Exception) -> None:
        """Log a problem and publish it as an `ErrorOccurred`."""
        fault = Fault.of(problem if isinstance(problem, Exception) else SparError(problem), part=self.name)
        self.core.log.warning("attachment failed", agent=self.core.name, attachment=self.name, reason=fault.message)
        self.core.events.publish(ErrorOccurred(cycle_id="", phase="attachment", error=fault, policy="continue"))


def _function(work: Any, method: str) -> Any:
    if not callable(work):
        raise ContractError(f"{method} wants a function, found {shorten(work)}")
    return work


class Attached(Struct, eq=False):
    """Attachment of an agent. `origin` is where it comes from, `part` what others get of it.

    `failures` are those of its tasks and of its opening and closing; `tasks_off` names tasks that are turned off.
    """

    name: str
    origin: str
    part: Any
    wanted: Attaching
    registered: tuple[Subscription | Registered, ...] = ()
    tasks: tuple[asyncio.Task[None], ...] = ()
    tasks_off: tuple[str, ...] = ()
    status: Status = "attached"
    failures: int = 0
    is_loaded: bool = False

    @property
    def state(self) -> Status:
        """Return its state: `quarantined` while something of it is turned off."""
        is_off = self.tasks_off or any(item.is_off for item in self.registered)
        return "quarantined" if is_off else self.status

    @property
    def all_failures(self) -> int:
        """Return how often something of it has failed."""
        return self.failures + sum(item.errors for item in self.registered)


class Attachments:
    """Attachments of one agent, in the order in which they were attached."""

    __slots__ = ("_calls", "_deadline", "_requests", "_services", "by_name")

    def __init__(self, services: Services, requests: Requests, deadline: StopDeadline) -> None:
        self._services, self._requests, self._deadline = services, requests, deadline
        self._calls = BoundedCalls()
        self.by_name: dict[str, Attached] = {}

    @property
    def left_behind(self) -> int:
        """Return how many openings and closings ignored their cancellation and still run."""
        return len(self._calls.left_behind)

    def find(self, name: str) -> Any:
        """Return what others get of the attachment of this name; None if there is none."""
        item = self.by_name.get(name)
        return None if item is None else item.part

    def get(self, name: str) -> Any:
        """Return what others get of the attachment of this name. Raises: LookupError if there is none."""
        if (part := self.find(name)) is None:
            raise LookupError(f"this agent has no {name}: spar parts")
        return part

    # -- attaching

    def add(self, attachment: Any, origin: str, name: str = "") -> None:
        """Attach a function `attach(agent)` or an object with that method; others get what it returns, or itself.

        If it raises, nothing of it stays.

        Args: origin: where it comes from; name: its name; "": its own. Raises: ContractError that names it.
        """
        name = name or name_of(attachment)
        if (other := self.by_name.get(name)) is not None:
            raise ContractError(f"attachment {name!r} is named twice: from {other.origin} and from {origin}")
        attach = attachment.attach if isinstance(attachment, Attaches) else attachment
        if not callable(attach) or isinstance(attach, type):
            sentence = "is no function and has no method 'attach'"
            raise ContractError(f"attachment {name!r} (from {origin}): {shorten(attachment)} {sentence}")
        wanted = Attaching(name, self._services, {key: item.part for key, item in self.by_name.items()})
        try:
            part = attach(wanted)
            if inspect.iscoroutine(part):
                part.close()
                raise ContractError("attach() must be a plain function; give agent.open() an async one")
        except ConfigError:
            raise
        except Exception as error:
            problem = Fault.of(error).message
            raise ContractError(f"attachment {name!r} (from {origin}) cannot be attached: {problem}") from error
        self.by_name[name] = Attached(name, origin, part or attachment, wanted, self._register(wanted))

    def _register(self, wanted: Attaching) -> tuple[Subscription | Registered, ...]:
        core, wishes = self._services.core, wanted.wishes
        return (
            *[core.hooks.add(point, hook, priority=priority, timeout=timeout, most_failures=MOST_FAILURES)
              for point, hook, priority, timeout in wishes.hooks],
            *[core.events.connect(kind, handler, most_failures=MOST_FAILURES) for kind, handler in wishes.handlers],
        )  # fmt: skip

    # -- life

    def apply(self, settings: Settings) -> None:
        """Have each attachment apply settings."""
        for item in self.by_name.values():
            for apply in item.wanted.wishes.applies:
                apply(settings)

    async def load(self) -> None:
        """Have each attachment load what the memory has for it, once until it is closed.

        Raises: errors of the store; SparError that names one that fails or takes too long.
        """
        for item in self.by_name.values():
            if not item.is_loaded:
                item.is_loaded = True
                for work in item.wanted.wishes.loads:
                    try:
                        await self._calls.make(_done(work), OPEN_WITHIN)
                    except Exception as error:
                        if isinstance(error, SparError) and not isinstance(error, PhaseTimeoutError):
                            raise  # of the store, which says itself what is wrong
                        problem = Fault.of(error).message
                        sentence = f"attachment {item.name!r} (from {item.origin}) cannot load: {problem}"
                        raise SparError(sentence) from error

    async def open(self) -> None:
        """Open all attachments in order and start their tasks. Raises: SparError that names the one that failed."""
        for item in self.by_name.values():
            if item.status == "open":
                continue
            item.status, item.tasks_off = "open", ()  # also if it fails, so that it is closed
            for work in item.wanted.wishes.opens:
                try:
                    await self._calls.make(_done(work), OPEN_WITHIN)
                except ConfigError:
                    raise
                except Exception as error:
                    item.failures += 1
                    problem = Fault.of(error).message
                    raise SparError(f"attachment {item.name!r} (from {item.origin}) cannot open: {problem}") from error
            item.tasks = tuple(
                self._requests.in_background(self._serve(item, name, task), f"task {name} of")
                for name, task in item.wanted.wishes.tasks.items()
            )

    async def close(self) -> None:
        """End the tasks and close the attachments in reverse order. Errors are reported."""
        for item in reversed(self.by_name.values()):
            if item.status != "open" and not item.is_loaded:
                continue
            item.status, item.is_loaded = "closed", False
            for task in item.tasks:
                task.cancel()
            await self._deadline.wait_for(item.tasks, CLOSE_WITHIN)
            item.tasks = ()
            for work in reversed(item.wanted.wishes.closes):
                await self._deadline.in_time(self._close(item, work), f"closing {item.name}", CLOSE_WITHIN)

    async def _close(self, item: Attached, work: Work) -> None:
        try:
            await _done(work)
        except Exception as error:
            item.failures += 1
            item.wanted.report(error)

    async def _serve(self, item: Attached, name: str, work: Callable[[], Awaitable[object]]) -> None:
        """Run a task of an attachment until it returns or has failed too often in a row."""
        clock, failures = self._services.core.clock, 0
        while failures < MOST_FAILURES:
            began = clock.monotonic()
            try:
                await work()
                return
            except ENDS_PROCESS:
                raise
            except BaseException as error:
                if is_closing(error, asyncio.current_task()) or is_cancelled():
                    raise
                is_new = clock.monotonic() - began > _BACKOFF.cap
                failures, item.failures = 1 if is_new else failures + 1, item.failures + 1
                is_off = failures >= MOST_FAILURES
                item.tasks_off += (name,) * is_off
                self._services.core.events.report_failure(f"{item.name}: task {name}", error, is_off)
            if not is_off:
                await clock.sleep(_BACKOFF.delay(failures))

    # -- what the agent asks them

    async def forget(self, session: str) -> None:
        """Have each attachment forget a session. Raises: their errors."""
        for item in self.by_name.values():
            for forget in item.wanted.wishes.forgets:
                await forget(session)

    def has_growing(self, run_id: str) -> bool:
        """Return whether people see the answer of a run grow."""
        return any(grows(run_id) for item in self.by_name.values() for grows in item.wanted.wishes.grows)


def name_of(attachment: Any) -> str:
    """Return the name of an attachment: its own, else that of its function or class."""
    if offers(attachment, Named):
        return str(attachment.name)
    function = attachment if inspect.isroutine(attachment) or isinstance(attachment, type) else type(attachment)
    return f"{function.__module__}:{function.__qualname__}"


async def _done(work: Work) -> None:
    """Call a function, and await what it returns if it is awaitable."""
    answer = work()
    if inspect.isawaitable(answer):
        await answer
