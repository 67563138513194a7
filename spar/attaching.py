"""Attachments: features that an agent does not know, and that attach themselves to it.

An attachment is a function `attach(agent)`, or an object with that method; `agent` is an `Attaching`. It asks for the
events, the hooks and the times of the agent's life that it needs. `spar.agent.attachments` grants that once the
function has returned: an attachment that raises has changed nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from spar.checks import shorten
from spar.errors import ContractError, SparError
from spar.events import ErrorOccurred, Event
from spar.hooks import POINTS, Hook
from spar.loop.core import Core
from spar.loop.cycle import Cycle
from spar.loop.setup import Setup
from spar.ports.agent import AgentControl
from spar.protocols import Home, ModuleRows
from spar.records.runs import Receipt
from spar.types import Fault

if TYPE_CHECKING:
    from spar.config.tables.settings import Settings

E = TypeVar("E", bound=Event)
P = TypeVar("P")
#: Function of an attachment; what it returns is awaited if it can be.
Work = Callable[[], Awaitable[object] | object]


class Attaches(Protocol):
    """Object that attaches itself to an agent."""

    def attach(self, agent: Attaching) -> object:
        """Ask for what it needs, before the agent starts; return what other attachments and operations get of it, None
        for this object. Raises: any error; the agent is not made then."""


class Services(Struct, frozen=True, eq=False):
    """Services of an agent for its attachments.

    `rows(owner)` are small durable rows; None without a memory. `journal()` is the open journal; None without one.
    `submit` accepts a message as `Agent.submit` does. `runs` has `find(run_id)` and `wait(run_id, timeout)`.
    `cycle(id)` is a running cycle, None for another. `held(session, where)` is a context in which a session stands
    still in its cycle: others use its slot, no deadline and no limit of its run goes on. `in_background(work, name)`
    runs work in a task; its failure is logged. `control` pauses and resumes; `setup` has the modules, `health` opens
    and closes alerts, `state` is what outlives the process; `conversations()` are the parts of the messages.
    """

    core: Core
    memory: Any
    home: Home | None
    rows: Callable[[str], ModuleRows | None]
    journal: Callable[[], Any]
    submit: Callable[..., Awaitable[Receipt]]
    runs: Any
    cycle: Callable[[str], Cycle | None]
    held: Callable[[str, str], AbstractContextManager[None]]
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
