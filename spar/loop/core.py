"""Values that the parts of one agent share, so that no part gets the agent itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from spar.bus.bus import Events
from spar.clock import Clock
from spar.hooks import Hooks
from spar.observe.logs import Logger, get_logger
from spar.state.apply import Ledger

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
        ...

    def has(self, session: str) -> bool:
        """Return whether this process has a session, also one that it is to hand over."""
        ...

    def has_read(self, session: str) -> bool:
        """Return whether this process has read what others have left of a session, which goes first."""
        ...

    def since_now(self) -> Callable[[str], bool]:
        """Return a function that returns whether this process has had a session without a break since this call."""
        ...

    def is_suspect(self, session: str) -> bool:
        """Return whether work of a session may have ended several processes."""
        ...

    def number_of(self, session: str) -> int:
        """Return the upper bits of the numbers of events; they grow when a session goes to another process."""
        ...

    async def follow(self, run_id: str, after: int) -> list[Any] | None:
        """Return the next events (`RunEvent`) of a run of another process after a number, none if there are none for
        some seconds. None for a run of this process, or an unknown one."""
        ...

    async def wait(self, run_id: str, timeout: float | None) -> RunStatus:
        """Return the status of a run of another process as `Agent.wait` does. Raises: LookupError."""
        ...

    async def abort(self, run_id: str) -> None:
        """Have the owner of a run abort it. Raises: LookupError."""

    async def session_of(self, id: str) -> str | None:
        """Return the session of a run or of a recorded cycle; None for another id."""
        ...

    async def ask(self, session: str, kind: str, **given: Any) -> Any:
        """Have the owner of a session do something, and return its result. Raises: as if it was done here."""
        ...

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

    __slots__ = ("clock", "configuration", "events", "hooks", "ledger", "name", "settings", "shared", "state", "traces")

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
        """Return what reaches the process that has a session; None if this one has it."""
        return None if self.owns(session) else self.shared

    def is_suspect(self, session: str) -> bool:
        """Return whether work of a session may have ended several processes that ran this agent."""
        return self.shared is not None and self.shared.is_suspect(session)

    def traceparent(self, to: str, cycle_id: str, *names: str) -> str:
        """Return the header that tells the receiver `to` which span a request belongs to; "" when tracing is off."""
        return "" if self.traces is None else self.traces.traceparent(to, cycle_id, *names)
