"""The parts that all batches of one executor share: clock, events, hooks, limits, and the tasks that outlive a run.

A task outlives its run in two cases: it was asked for (`detach`), or it ignores cancellation and was left behind
at its deadline. Both are counted, both are held here so that neither vanishes, and only the first is waited for.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from datetime import datetime
from functools import partial
from math import inf, isnan
from typing import TYPE_CHECKING, Any, Literal, get_args
from weakref import WeakValueDictionary

from msgspec import Struct

from acting.calls import Scope
from acting.repetition import LoopGuard
from acting.run.shared.deadlines import Deadlines
from acting.run.shared.late import LateMessages
from acting.run.start_order import sequence
from acting.tooling.limits import Permit, Rate, Slots
from acting.tooling.registry import Catalog
from spar.clock import Clock
from spar.errors import ConfigError
from spar.events import ErrorOccurred, Event
from spar.hooks import HookContext, Outcome
from spar.protocols.tools import Order
from spar.records.journal import CallJournal
from spar.threads import Threads
from spar.types import Call

if TYPE_CHECKING:
    from acting.approvals.service import ApprovalService
    from acting.run.shared.budget import Spending
    from acting.tooling.bound_tool import BoundTool


class Limits(Struct, frozen=True):
    """Bounds of an executor: calls at once in a run, bytes of a result as JSON, seconds between cancelling and leaving
    behind, seconds that closing waits for detached calls, how many of those there may be; in which
    order calls that change something run."""

    max_parallel: int = 64
    largest_result: int = 16 << 20
    grace: float = 0.5
    drain: float = 5.0
    max_detached: int = 64
    order: Order = "parallel"

    @classmethod
    def of(cls, settings: Mapping[str, Any] | None) -> Limits:
        """Read and check them. Raises: ConfigError naming the key, what was found and what is allowed."""
        given = dict(settings or {})
        for key, value in given.items():
            if key not in cls.__struct_fields__:
                raise ConfigError(
                    f"no setting {key!r} for acting; known: {', '.join(cls.__struct_fields__)}", path=(key,)
                )
            if key == "order":
                if value not in get_args(Order):
                    raise ConfigError(f"order is {value!r}, expected 'parallel' or 'plan'", path=(key,))
                continue
            is_count = key.startswith(("max_", "largest_"))
            if isinstance(value, bool) or not isinstance(value, int if is_count else (int, float)) or isnan(value):
                raise ConfigError(f"{key} is {value!r}, expected a {'whole ' if is_count else ''}number", path=(key,))
            if value < (1 if is_count else 0):
                raise ConfigError(f"{key} is {value!r}, expected {'1' if is_count else '0'} or more", path=(key,))
        return cls(**given)


def check_given(journal: Any, fallback: str, approval_timeout: float | None) -> None:
    """Check the arguments of an executor that its batches go by. Raises: ConfigError for one that cannot be used."""
    if journal is not None and not isinstance(journal, CallJournal):
        sentence = (
            f"journal is {journal!r:.100}, expected one such as an open memory's: Executor(journal=memory.journal)"
        )
        raise ConfigError(sentence, path=("journal",))
    if fallback not in ("wait", "race"):
        raise ConfigError(f"fallback is {fallback!r}, expected 'wait' or 'race'", path=("fallback",))
    if approval_timeout is not None and (isnan(approval_timeout) or approval_timeout <= 0):
        raise ConfigError(
            f"approval_timeout is {approval_timeout!r}, expected seconds above 0", path=("approval_timeout",)
        )


class Wall:
    """The wall clock, looked at anew once a millisecond: what happens within one has one time."""

    __slots__ = ("_clock", "_now", "_until")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until = -inf
        self._now = clock.now()

    def at(self, moment: float) -> datetime:
        """The wall time of a moment (monotonic seconds) that is not long past."""
        if moment > self._until:
            self._now, self._until = self._clock.now(), moment + 0.001
        return self._now

    def look(self) -> None:
        """Look at the clock the next time, whatever it was last."""
        self._until = -inf


class _Wanted:
    """Tells which events are worth making, as `spar.bus.bus.Events.wanted` does, for others that know who listens."""

    __slots__ = ("_listeners",)

    def __init__(self, listeners: Callable[[type[Event]], Any]) -> None:
        self._listeners = listeners

    def __getitem__(self, kind: type[Event]) -> bool:
        try:
            return bool(self._listeners(kind))
        except Exception:
            return False


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
        self.fallback: Literal["wait", "race"] = "wait"  # whether `||` waits for earlier writers of what stands left
        self.is_strict = False  # whether a message may only hold what its call says that it writes
        self.spending: Spending | None = None  # the budgets that calls take from
        self.approvals: ApprovalService | None = None  # who is asked for approvals, beside the program itself
        self.guard = LoopGuard()
        self.agent = ""
        self.journal: CallJournal | None = None
        self.detached: set[asyncio.Task[None]] = set()
        self.left_behind: set[asyncio.Task[Any]] = set()
        self.late = LateMessages(
            lambda session, fault: self.tell(ErrorOccurred, phase="act", error=fault, policy="dropped")
        )
        self._approver: Threads | None = None
        #: Each stays as long as a call holds it, waits for it or is going to.
        self._resources: WeakValueDictionary[str, Slots] = WeakValueDictionary()
        self._rates: dict[str, Rate] = {}
        self._fence = int(clock.now().timestamp() * 1e6)

    def keep_time(self, clock: Clock) -> None:
        """Go by this clock from now on."""
        self.clock = clock
        self.deadlines = Deadlines(clock)
        self.wall = Wall(clock)

    # -- the permits and waits of a call before it starts

    def permits_of(self, entry: BoundTool, params: Mapping[str, Any]) -> tuple[Permit, ...]:
        """The permits of a ready call, in the order in which they are to be taken; none where its tool is free."""
        permits: list[Permit] = [entry.slots] if entry.slots.limit else []
        permits += [self._resource(name) for name in sorted(set(entry.resources_of(params)))]
        if rate := self.rate_of(entry):
            permits.append(rate)
        return tuple(permits)

    def rate_of(self, entry: BoundTool) -> Rate | None:
        """Return the rate that each attempt at a call of this tool takes from; None where it has none."""
        if not entry.terms.rate:
            return None
        return self._rates.get(entry.name) or self._rates.setdefault(entry.name, Rate(entry.terms.rate, self.clock))

    def lines_of(
        self, entry: BoundTool, params: Mapping[str, Any], unresolved: Collection[str]
    ) -> tuple[str, ...] | None:
        """Return the names at which a call keeps the order of the plan; None if they depend on values to come.

        There are none where its tool is free and calls run in parallel.
        """
        is_sequence = self.is_sequential and entry.terms.effect != "read"
        resources = entry.resources_before(params, unresolved)
        if resources is None:
            return None
        own = (sequence(entry.name),) if entry.terms.order == "plan" else ()
        if is_sequence and entry.effect_before(params, unresolved) != "read":
            own = (*own, sequence())
        return (*own, *resources)

    def _resource(self, name: str) -> Slots:
        """The one slot of what calls exclude each other from."""
        slots = self._resources.get(name)
        if slots is None:
            slots = self._resources[name] = Slots(1)
        return slots

    def keep_journal(self, journal: CallJournal | None) -> None:
        """Have calls written down here from now on; fences are then the journal's, which grow over restarts."""
        self.journal = journal

    def next_fence(self) -> int:
        """A number that is higher than every one before."""
        journal = self.journal
        self._fence = self._fence + 1 if journal is None else journal.next_fence(self._fence)
        return self._fence

    # -- telling and asking

    def run_of(self, call: Call, scope: Scope) -> str | None:
        """The run that a call belongs to: one that goes on, to that which it was left behind by."""
        if self.approvals is None:
            return scope.run_id
        resumed = self.approvals.parked.known.get(call.id)
        return scope.run_id if resumed is None or resumed.run_id is None else resumed.run_id

    def tell_to(self, events: Any) -> None:
        """Publish here from now on."""
        self.events = events
        wanted, listeners = getattr(events, "wanted", None), getattr(events, "listeners", None)
        publish: Any = getattr(events, "publish", None)
        if not isinstance(wanted, dict):
            is_anybody = events is not None
            wanted = defaultdict(lambda: is_anybody) if listeners is None else _Wanted(listeners)
            publish = self._publish_safely
        #: By class of event: whether one is worth making.
        self.wanted: Any = wanted
        #: Publishes an event. Never raises, whoever publishes: events decide nothing.
        self.publish: Callable[[Event], object] = publish

    def _publish_safely(self, event: Event) -> None:
        try:
            self.events.publish(event)
        except Exception:
            pass

    def tell(self, kind: Any, **fields: Any) -> None:
        """Make and publish an event of this class if anybody listens."""
        if self.wanted[kind]:
            self.publish(kind(**fields))

    def tell_of(self, kind: Any, call: Call, scope: Scope, **fields: Any) -> None:
        """Make and publish an event about a call if anybody listens. Never raises."""
        if self.wanted[kind]:
            self.publish(kind(call=call, cycle_id=scope.cycle_id, run_id=self.run_of(call, scope), **fields))

    @property
    def reviews(self) -> bool:
        """Return whether hooks look at results."""
        hooks = self.hooks
        return hooks is not None and not hooks.used.isdisjoint(("after_call", "result_persist"))

    def asks(self, point: str) -> bool:
        return self.hooks is not None and point in self.hooks.used

    async def consult(self, point: str, value: Any, scope: Scope) -> Outcome:
        """Return what the hooks at a point decide; their own faults are published."""
        context = HookContext(point, self.agent, value, scope.session, scope.run_id, scope.cycle_id or None)
        outcome: Outcome = await self.hooks.run(context)
        if self.events is not None:
            for fault in outcome.faults:
                self.tell(ErrorOccurred, cycle_id=scope.cycle_id, phase="act", error=fault, policy=point)
        return outcome

    @property
    def approver(self) -> Threads:
        """Threads for approvers that block."""
        if self._approver is None:
            self._approver = Threads("approver", self.clock)
        return self._approver

    # -- tasks that outlive a run

    def detach(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self.detached.add(task)
        task.add_done_callback(self.detached.discard)

    def leave(self, task: asyncio.Task[Any]) -> None:
        """Hold a task that was told to end and does not; what it comes to is of no interest any more."""
        if not task.done():
            self.left_behind.add(task)
            task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self.left_behind.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that nobody complains of it

    async def settle(self, tasks: Iterable[asyncio.Task[Any]], seconds: float) -> list[asyncio.Task[Any]]:
        """Wait until these tasks have ended, at most `seconds`; returns those that have not."""
        waiting = {task for task in tasks if not task.done()}
        if not waiting:
            return []
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ended(task: asyncio.Task[Any] | None) -> None:
            waiting.discard(task)
            if (task is None or not waiting) and not settled.done():
                settled.set_result(None)

        for task in tuple(waiting):
            task.add_done_callback(ended)
        timer = self.clock.call_at(self.clock.monotonic() + seconds, partial(ended, None))
        try:
            await settled
        finally:
            timer.cancel()
            for task in waiting:
                task.remove_done_callback(ended)
        return [task for task in waiting if not task.done()]

    async def close(self, deadline: float | None) -> None:
        """Let detached calls end within `deadline` seconds, then cancel them, then leave them behind."""
        await self.settle(self.detached, self.limits.drain if deadline is None else deadline)
        rest = list(self.detached)
        for task in rest:
            task.cancel()
        for task in await self.settle(rest, self.limits.grace):
            self.leave(task)
