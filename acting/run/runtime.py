"""The shared state of one executor's batches: clock, events, hooks, limits, and the tasks that outlive a batch.

A task outlives its batch in two cases: its call is detached, or it ignores cancellation and was left behind at its
deadline. Both kinds are counted and held here, so that none is lost; closing waits only for the detached ones.
`LateMessages` keeps messages and errors of ended detached calls until the next batch of their session takes them.
`Deadlines` has one timer for all calls with the same timeout: these fall due in the order in which they began, so only
the first of them needs it, and a call costs only an entry of a dictionary.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Meta, Struct, field

from acting.approvals.policy import BY_TERMS, Policy
from acting.repetition import LoopGuard
from acting.tooling.context import Scope
from acting.tooling.limits import Rate, SharedSlots, Slots, acquire
from acting.tooling.registry import Catalog
from spar.clock import Clock, Timer
from spar.events import ErrorOccurred, Event
from spar.hooks import HookContext, Outcome
from spar.protocols import CallJournal
from spar.protocols.tools import OF_NODE, Order
from spar.threads import OTHERS_TURN, BoundedCalls, Tasks, Threads
from spar.types import Fault

if TYPE_CHECKING:
    from acting.run.order import Spending
    from acting.run.parked import Approvals
    from acting.tooling.bound_tool import BoundTool


class Deadlines(Struct, eq=False):
    """The open deadlines of each timeout in seconds by call, the next one first: when, and what to do then."""

    _clock: Clock
    _rows: dict[float, OrderedDict[Any, tuple[float, Callable[[], object]]]] = field(default_factory=dict)
    _timers: dict[float, Timer] = field(default_factory=dict)

    def add(self, call: Any, timeout: float, at: float, due: Callable[[], object]) -> None:
        """Call `due` at `at` (monotonic seconds), `timeout` seconds after a call began, unless it is dropped before."""
        self._rows.setdefault(timeout, OrderedDict())[call] = at, due
        if timeout not in self._timers:
            self._timers[timeout] = self._clock.call_at(at, partial(self._ring, timeout))

    def drop(self, call: Any, timeout: float) -> None:
        """Drop the deadline of a call that has ended."""
        row = self._rows.get(timeout)
        if row is not None and row.pop(call, None) is not None and not row:
            del self._rows[timeout]
            if (timer := self._timers.pop(timeout, None)) is not None:
                timer.cancel()

    def _ring(self, timeout: float) -> None:
        del self._timers[timeout]
        now = self._clock.monotonic()
        while row := self._rows.get(timeout):
            call, (at, due) = next(iter(row.items()))
            if at > now:
                self.add(call, timeout, at, due)  # sets the timer, if `due` has not
                return
            self.drop(call, timeout)
            due()


MOST_BYTES: Final = 64 << 20  # of all sessions together; four of the largest results


class LateMessages(Struct):
    """Store of messages and errors by session, of at most `limit` bytes together.

    Beyond that the oldest are dropped and counted: `tell` is called with the session and a fault, and the session's
    next batch gets an error with the count.
    """

    tell: Callable[[str, Fault], object]
    limit: int = MOST_BYTES
    #: By session the numbers of its entries until they are taken, also of those that were dropped.
    sessions: dict[str, list[int]] = field(default_factory=dict)
    #: By number, in order: session, bytes, whether it is an error, content.
    _entries: dict[int, tuple[str, int, bool, dict[str, Any]]] = field(default_factory=dict)
    _count: int = 0
    _size: int = 0

    def add(self, session: str, data: dict[str, Any], *, is_error: bool = False) -> None:
        """Store a message or an error until the session's next batch; drop the oldest ones beyond the limit."""
        size = len(msgspec.json.encode(data))
        self._count += 1
        self._entries[self._count] = session, size, is_error, data
        self.sessions.setdefault(session, []).append(self._count)
        self._size += size
        while self._size > self.limit:
            session, size, *_ = self._entries.pop(next(iter(self._entries)))
            self._size -= size
            self.tell(session, Fault("dropped", _sentence(1, self.limit), "act", "act", retryable=False))

    def take(self, session: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Remove and return the errors and the messages for a session, oldest first."""
        numbers = self.sessions.pop(session, ())
        entries = [self._entries.pop(number) for number in numbers if number in self._entries]
        self._size -= sum(size for _, size, *_ in entries)
        errors = [data for *_, is_error, data in entries if is_error]
        if dropped := len(numbers) - len(entries):
            errors.insert(0, {"call": None, "error": {"kind": "dropped", "message": _sentence(dropped, self.limit)}})
        return errors, [data for *_, is_error, data in entries if not is_error]


def _sentence(number: int, limit: int) -> str:
    waited = f"more than {limit} bytes waited for a next cycle"
    return f"{number} messages or errors of detached calls were dropped: {waited}"


T = TypeVar("T")


class Limits(Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of an executor: `max_parallel` calls at once in a batch, bytes of the `largest_result` as JSON, seconds of
    `grace` between cancelling a task and leaving it behind, seconds of `drain` for detached calls at the close, how
    many of those may run (`max_detached`), and the `order` of calls that change something ("parallel" or "plan")."""

    max_parallel: Annotated[int, Meta(ge=1)] = 64
    largest_result: Annotated[int, Meta(ge=1)] = 16 << 20
    grace: Annotated[float, Meta(ge=0)] = 0.5
    drain: Annotated[float, Meta(ge=0)] = 5.0
    max_detached: Annotated[int, Meta(ge=1)] = 64
    order: Order = "parallel"


class Runtime:
    """The shared parts of one executor's batches."""

    def __init__(
        self, catalog: Catalog, clock: Clock, events: Any, hooks: Any, limits: Limits, expiry: float | None
    ) -> None:
        self.catalog, self.hooks, self.limits = catalog, hooks, limits
        self.keep_time(clock)
        self.tell_to(events)
        self.is_sequential = limits.order == "plan"
        self.approval_timeout = expiry
        self.fallback: Literal["wait", "race"] = "wait"  # whether `a || b` waits for the calls that write `a`
        self.is_strict = False  # whether a message of a tool may only hold values at the output path of its call
        self.spending: Spending | None = None  # the budgets of calls
        self.policy: Policy = BY_TERMS  # decides about calls
        self.approvals: Approvals | None = None  # the questions to people
        self.guard = LoopGuard()  # ends runs that repeat the same calls without progress
        self.agent = ""
        #: Acquires a resource among all processes that run the agent; None if this one runs it alone.
        self.acquire: Callable[[str], Awaitable[Callable[[], object]]] | None = None
        #: Where calls are written. Fences come from it, too: there they grow over restarts.
        self.journal: CallJournal | None = None
        self.detached = Tasks()  # of calls that outlive their batch
        self.outside = BoundedCalls()  # of the embedding program's approver; tasks of tools that were left behind
        self.late = LateMessages(
            lambda session, fault: self.tell(ErrorOccurred, phase="act", error=fault, policy="dropped")
        )
        self.copying = Slots(1)  # of the copies of large results, which go on slice by slice
        #: The slot of each resource, for as long as a call holds it or waits for it.
        self.drivers: list[Any] = []  # the `send` of those that have no call (`run/call_state`)
        self._resources: WeakValueDictionary[str, Slots] = WeakValueDictionary()
        self._rates: dict[tuple[str, str], Rate] = {}
        # Each attempt gets a higher fence, so that a receiver can refuse a late request of an earlier attempt.
        self._fence = int(clock.now().timestamp() * 1e6)

    def keep_time(self, clock: Clock) -> None:
        """Use this clock from now on. `date` is its wall time, which batches read at most once a millisecond."""
        self.clock, self.date, self.date_until = clock, clock.now(), -inf
        self.deadlines = Deadlines(clock)

    async def in_turn(self, copy: Callable[[], T]) -> T:
        """Make one slice of a copy and let others have their turn, other copies as well: each would add a slice to a
        turn of the event loop."""
        await acquire(self.copying)
        try:
            progress = copy()
            await OTHERS_TURN
        finally:
            self.copying.release()
        return progress

    # -- limits that all batches share

    def rate_of(self, entry: BoundTool) -> Rate:
        """Return the rate of a tool that has one, from which each attempt takes a permit."""
        key = entry.name, entry.terms.rate  # a tool of a source may come back with another one
        return self._rates.get(key) or self._rates.setdefault(key, Rate(entry.terms.rate, self.clock))

    def resource(self, name: str) -> Slots:
        """Return the single slot of a resource: one call at a time holds it."""
        slots = self._resources.get(name)
        if slots is None:
            if self.acquire is None or name.startswith(OF_NODE):
                slots = Slots(1)
            else:
                slots = SharedSlots(acquire=partial(self.acquire, name))
            self._resources[name] = slots
        return slots

    # -- the journal

    def next_fence(self) -> int:
        """Return a number that is higher than every one before it."""
        journal = self.journal
        self._fence = self._fence + 1 if journal is None else journal.next_fence(self._fence)
        return self._fence

    def take_late(self, scope: Scope) -> tuple[Sequence[dict[str, Any]], Sequence[dict[str, Any]]]:
        """Remove and return the errors and messages of detached calls that ended since the session's last batch."""
        errors, messages = self.late.take(scope.session)
        if self.approvals is not None and scope.run_id is not None:  # nobody knows any more what these calls had read
            self.approvals.taint.add(scope, [("error",), *[(str(message.get("kind")),) for message in messages]])
        return errors, messages

    # -- events and hooks

    def tell_to(self, events: Any) -> None:
        """Publish events on this bus from now on; None for no bus."""
        self.events = events
        #: By class of event: whether anybody listens. Of a bus that does not say so, anybody may.
        self.wanted: Any = getattr(events, "wanted", None)
        #: Publishes an event. Never raises: a fault of a listener must not change what happens.
        self.publish: Callable[[Event], object] = getattr(events, "publish", self._publish_safely)
        if not isinstance(self.wanted, dict):
            is_anybody = events is not None
            self.wanted, self.publish = defaultdict(lambda: is_anybody), self._publish_safely

    def _publish_safely(self, event: Event) -> None:
        with suppress(Exception):
            self.events.publish(event)

    def tell(self, kind: Any, **fields: Any) -> None:
        """Publish an event of this class if anybody listens."""
        if self.wanted[kind]:
            self.publish(kind(**fields))

    def tell_of(self, kind: Any, step: Any, **fields: Any) -> None:
        """Publish an event about a call if anybody listens. Never raises."""
        if self.wanted[kind]:
            about = {"call": step.call, "cycle_id": step.scope.cycle_id, "run_id": step.run_id}
            self.publish(kind(**about | fields))

    async def consult(self, point: str, value: Any, scope: Scope) -> Outcome:
        """Run the hooks at a point and return their outcome. Their own faults are published."""
        context = HookContext(point, self.agent, value, scope.session, scope.run_id, scope.cycle_id or None)
        outcome: Outcome = await self.hooks.run(context)
        for fault in outcome.faults:
            self.tell(ErrorOccurred, cycle_id=scope.cycle_id, phase="act", error=fault, policy=point)
        return outcome

    @cached_property
    def approver(self) -> Threads:
        """Return the threads for approvers that block."""
        return Threads("approver", self.clock)

    # -- tasks that outlive a batch

    async def close(self, deadline: float | None) -> None:
        """Wait `deadline` seconds for detached calls, cancel the others, then leave behind those that do not end."""
        if self.detached:
            await asyncio.wait(set(self.detached), timeout=self.limits.drain if deadline is None else deadline)
        await self.end(self.detached)

    async def end(self, tasks: Iterable[asyncio.Task[Any]]) -> None:
        """Cancel tasks, wait `grace` seconds for them to end, and leave behind those that do not."""
        tasks = list(tasks)
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                await asyncio.wait(tasks, timeout=self.limits.grace)
        finally:
            for task in tasks:
                self.outside.leave(task)
