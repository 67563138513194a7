"""Life of the modules of an agent: taken in, opened, replaced, restarted and closed; their settings; and the time limit
of a stop.

A new module is opened beside the old one, each session changes to it at the start of its next cycle, and the old one is
closed when no session uses it any more. The sense module is replaced while the standing session is held between two
cycles, since two sense modules would report the same things twice. An object that cannot be created a second time is
closed and opened again while no session uses it.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol

from spar.agent.opening import Opening, outcome_of
from spar.backoff import Backoff
from spar.config.on_use import MadeOnUse
from spar.errors import SparError
from spar.events import ErrorOccurred
from spar.loop.core import Core
from spar.loop.cycle import RETRIES, Step
from spar.loop.module_adapter import PRODUCT_OF, Module
from spar.loop.setup import Pace, Setup
from spar.loop.tasks import Requests
from spar.ports.optional import Attachable, Degradable, Perceives, Settles, StatesDegradation, TakesOver, offers
from spar.protocols import Borrower, Host, Lender
from spar.session.parts import SessionParts
from spar.types import PHASES, Fault, Phase

if TYPE_CHECKING:
    from spar.config.load import Settings
    from spar.session.session import Session

#: Time limit (seconds) for closing one module.
CLOSE_WITHIN = 10.0
#: Time limit (seconds) for a restart to wait until no session uses the module.
FREE_WITHIN = 15.0
#: The assumed duration (seconds) of a phase without a deadline, in the estimate of the longest cycle.
UNBOUNDED_PHASE = 600.0

#: Equal values are one shared object: they never change, and there may be many agents.
shared = functools.lru_cache(maxsize=64, typed=True)
_backoff, _pace = shared(Backoff), shared(Pace)


class StopDeadline:
    """Deadline of the present stop (`at`, monotonic seconds). Another stop may make it earlier."""

    __slots__ = ("_core", "_requests", "_setup", "at")

    def __init__(self, core: Core, setup: Setup, requests: Requests) -> None:
        self._core, self._setup, self._requests = core, setup, requests
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
        await self._wait(pending, lambda: min(began + within, max(self.at, began) + self.grace / 2))
        late = {task for task in pending if not task.done()}
        for task in late:
            task.cancel()
        if late:
            end = clock.monotonic() + self.grace / 2
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

    @property
    def grace(self) -> float:
        """Return the seconds from the deadline of a stop until unfinished work is left behind."""
        return max(step.grace for step in self._setup.steps.values())


class Lends(Protocol):
    """Agent that gives its parts access to some of its services."""

    def host(self, part: Any) -> Host:
        """Return the services for a part."""


class Lifespan:
    """Modules of one agent, and the tasks that hold them open.

    `make` makes a new module of a phase; None where that is not possible.

    Args: memory: the store that the modules write to, opened first and closed last; agent: gives services to parts.
    """

    __slots__ = ("_agent", "_core", "_deadline", "_former", "_health", "_holding", "_is_busy", "_memory", "_openings",
                 "_requests", "_setup", "_stats", "make")  # fmt: skip

    def __init__(self, parts: SessionParts, deadline: StopDeadline, memory: Any, agent: Lends) -> None:
        self._core, self._setup, self._stats, self._requests = parts.core, parts.setup, parts.account, parts.requests
        self._holding, self._health, self._deadline = parts.holding, parts.health, deadline
        self._memory, self._agent = memory, agent
        self._openings: tuple[Opening, ...] = ()
        self.make: Callable[[Phase], Any] | None = None
        self._is_busy = False
        #: The tasks that close replaced modules.
        self._former: tuple[asyncio.Task[None], ...] = ()

    def take(self, parts: Mapping[Phase, Any]) -> None:
        """Use these modules from now on, without opening them. Raises: ContractError."""
        modules = self._modules(parts)
        self._enforce(modules, self._opening_of(modules))

    def _modules(self, parts: Mapping[Phase, Any]) -> dict[Phase, Module]:
        """Return the parts as modules; a part in use keeps its module. Raises: ContractError."""
        known: Mapping[Phase, Module] = self._setup.modules
        return {
            phase: known[phase]
            if phase in known and known[phase].part is part
            else Module(phase, part, self._core.clock)
            for phase, part in parts.items()
        }

    def _opening_of(self, modules: Mapping[Phase, Module]) -> tuple[Opening, ...]:
        """Return the openings of the memory and these modules, in order. Open ones are reused."""
        known = {id(opening.part): opening for opening in self._openings}
        parts = {id(part): part for part in (self._memory, *(module.part for module in modules.values()))
                 if isinstance(part, (AbstractAsyncContextManager, MadeOnUse)) or offers(part, Attachable)}  # fmt: skip
        return tuple(
            [known.get(key) or Opening(part, type(part).__qualname__, self._lost) for key, part in parts.items()]
        )

    def _enforce(self, modules: dict[Phase, Module], openings: tuple[Opening, ...]) -> None:
        """Use these modules in every cycle that begins from now on."""
        setup = self._setup
        setup.modules, self._openings = modules, openings
        sense = modules["sense"].part
        setup.perceive = sense.perceive if offers(sense, Perceives) else None
        setup.settled = sense.settled if offers(sense, Settles) else None

    def apply(self, settings: Settings) -> None:
        """Apply the settings of the pace and of the phases, which may change while the agent runs."""
        table = settings.agent
        self._core.settings = settings
        self._setup.pace = _pace(table.loop_interval, table.min_interval, table.max_interval, table.busy_count)
        self._setup.plan_when_idle = table.plan_when_idle
        self._setup.steps = {phase: self._step(phase) for phase in PHASES}

    def _step(self, phase: Phase) -> Step:
        """Return the values that a phase runs with: its module, its contract and its settings."""
        table = getattr(self._core.settings.agent.phases, phase)
        policy = getattr(self._core.settings.agent.errors, phase)
        retries = table.retries or (RETRIES if policy == "retry" else 0)
        return Step(
            phase,
            PHASES.index(phase),
            self._setup.modules[phase].name,
            PRODUCT_OF[phase],
            self._stats.phases[phase].pending,
            table.timeout or float("inf"),
            retries + 1,
            _backoff(table.backoff, 60.0),
            table.grace,
            policy,
        )

    async def open(self, then: Callable[[], Awaitable[object]]) -> None:
        """Open the modules, in order, then call `then`. If one fails, close those opened before it. Idempotent.

        Args: then: called while the modules are open; they are closed again if it fails.
        Raises: errors of a module or of `then`.
        """
        opened: list[Opening] = []
        try:
            await self._open(self._openings, self._setup.modules, opened)
            await then()
        except BaseException:
            await self._close(opened)
            raise

    async def _open(self, openings: Iterable[Opening], modules: Mapping[Phase, Module], opened: list[Opening]) -> None:
        """Open what is not open yet, in order; `opened` gets each opening before it is tried. Raises: errors of
        opening."""
        planner = modules["plan"].part
        if isinstance(planner, Lender):
            for borrower in (modules["act"].part, modules["reflect"].part):
                if isinstance(borrower, Borrower):
                    borrower.borrow(planner.lends())
        for opening in openings:
            if opening.is_open:
                continue
            if isinstance(opening.part, MadeOnUse):
                opening.part.attach_later(functools.partial(self._agent.host, opening.part))
            elif offers(opening.part, Attachable):
                opening.part.attach(self._agent.host(opening.part))
            opened.append(opening)
            await self._open_in_time(opening, modules)

    async def _open_in_time(self, opening: Opening, modules: Mapping[Phase, Module]) -> None:
        """Open a module within its time limit; the memory has none. Raises: SparError after the limit."""
        phases = [phase for phase, module in modules.items() if module.part is opening.part]
        limits = [getattr(self._core.settings.agent.phases, phase).opening or None for phase in phases]
        within = None if None in limits else max(filter(None, limits), default=None)
        try:
            async with asyncio.timeout(within) as bound:
                await opening.open()
        except TimeoutError as error:
            if not bound.expired():
                raise
            where = f"agent.phases.{phases[0]}.opening"
            raise SparError(f"{opening.name} did not open within {within:g} s ({where})") from error

    async def close(self) -> None:
        """Close the modules in reverse order, also replaced ones. Errors are reported."""
        self._holding.wake_waiters()
        former = [task for task in self._former if not task.done() and not task.get_loop().is_closed()]
        await self._deadline.wait_for(former, CLOSE_WITHIN)
        self._former = ()
        # Rows that channels and others have changed in a store without a journal.
        await self._deadline.wait_for(self._requests.in_progress("saving of"), CLOSE_WITHIN)
        await self._close(self._openings)

    async def _close(self, openings: Sequence[Opening]) -> None:
        """Close these in reverse order: all modules at once, after them the memory that they write to."""
        memory = self._memory
        modules = [opening for opening in reversed(openings) if opening.part is not memory]
        for rank in (modules, [opening for opening in openings if opening.part is memory]):
            began = self._core.clock.monotonic()
            tasks = {opening: task for opening in rank if (task := opening.leave()) is not None}
            late = await self._deadline.wait_for(tasks.values(), CLOSE_WITHIN)
            for opening, task in tasks.items():
                seconds = self._core.clock.monotonic() - began
                error = opening.late(task, min(seconds, CLOSE_WITHIN)) if task in late else outcome_of(task)
                if error is not None:
                    self._not_closed(opening, error, is_left_behind=not task.done())

    def _not_closed(self, opening: Opening, error: BaseException, *, is_left_behind: bool) -> None:
        fault = Fault.of(error, part=opening.name, phase="close")
        self._core.log.warning("closing failed", agent=self._core.name, part=opening.name, reason=fault.message,
                    is_left_behind=is_left_behind)  # fmt: skip
        self._core.events.publish(
            ErrorOccurred(cycle_id="", phase="close", error=fault, policy="continue", exception=error)
        )

    def _lost(self, opening: Opening, error: BaseException) -> None:
        """Report a module that closed by itself, for example after its background task failed."""
        fault = Fault.of(error, part=opening.name, phase="open")
        self._core.log.error("module ended by itself", agent=self._core.name, part=opening.name, reason=fault.message)
        self._core.events.publish(
            ErrorOccurred(cycle_id="", phase="open", error=fault, policy="continue", exception=error)
        )

    # -- exchanging

    async def restart(self, phase: Phase, *, is_anew: bool = False) -> None:
        """Replace a failing module by a new one; if none can be created, close it and open it again.

        Args: is_anew: it forgets what it has in hand: another process has gone on with that.

        An error is reported, and the module stays as it is. During another exchange nothing is done, since its modules
        are new.
        """
        if self._is_busy:
            return
        name = self._setup.modules[phase].name
        self._is_busy = True
        try:
            if self.make is not None and phase != "sense":  # only the old sense module knows what it reported lately
                await self._replace({phase: self.make(phase)})
            else:
                await self._reopen(phase, is_anew=is_anew)
        except Exception as error:
            fault = Fault.of(error, part=name, phase=phase)
            self._core.log.error("restart failed", agent=self._core.name, part=name, reason=fault.message)
            self._core.events.publish(
                ErrorOccurred(cycle_id="", phase=phase, error=fault, policy="restart", exception=error)
            )
        finally:
            self._is_busy = False
            self._requests.notify()

    async def _reopen(self, phase: Phase, *, is_anew: bool) -> None:
        """Close a module and open it again while no session uses it. Raises: SparError; errors of opening."""
        module = self._setup.modules[phase]
        opening = next((opening for opening in self._openings if opening.part is module.part), None)
        if opening is None or not opening.is_needed:
            return
        until = self._core.clock.monotonic() + FREE_WITHIN
        while at_work := self._holding.at_work(is_sensing=phase == "sense"):
            if not await self._holding.wait_until_unused(at_work, until):
                raise SparError(f"{module.name} is at work for other sessions and was not restarted")
        self._holding.stop_cycles(is_sensing=phase == "sense")
        try:
            await opening.close(CLOSE_WITHIN)
            if is_anew and offers(opening.part, Attachable):
                opening.part.attach(self._agent.host(opening.part))
            await self._open_in_time(opening, self._setup.modules)
        finally:
            self._holding.resume_cycles()

    async def exchange(self, parts: Mapping[Phase, Any]) -> None:
        """Replace modules. Raises: errors of opening; the old modules then stay."""
        while self._is_busy:
            await self._requests.change()
        self._is_busy = True
        try:
            await self._replace(parts)
        finally:
            self._is_busy = False

    async def _replace(self, parts: Mapping[Phase, Any]) -> None:
        """Open new modules beside the old ones and use them. Sessions finish their current cycle with the old ones."""
        old, before = self._setup.modules, self._openings
        new = self._modules({phase: parts.get(phase, module.part) for phase, module in old.items()})
        if all(new[phase] is old[phase] for phase in old):
            return
        openings = self._opening_of(new)
        async with self._holding.between_cycles(is_needed=new["sense"] is not old["sense"]):
            opened: list[Opening] = []
            try:
                if self._core.state in ("running", "pausing", "paused"):
                    await self._open([opening for opening in openings if opening not in before], new, opened)
            except BaseException:
                await self._close(opened)
                raise
            _pass_on_degradation(old["plan"].part, new["plan"].part)
            self._enforce(new, openings)
            self._health.models.forget({id(opening.part) for opening in openings})
            self._setup.steps = {phase: self._step(phase) for phase in PHASES}
        if left := [opening for opening in before if opening not in openings]:
            users = self._holding.at_work()
            if new["act"] is not old["act"]:
                self._holding.require_change(users)
            closing = self._requests.in_background(self._close_replaced(left, users), "closing of former modules of")
            self._former = (*(task for task in self._former if not task.done()), closing)
            if not users:
                await asyncio.wait([closing])

    async def _close_replaced(self, openings: Sequence[Opening], users: set[Session]) -> None:
        """Close replaced modules once no session uses them, and report sessions that take too long."""
        within = self._longest_cycle()
        if not await self._holding.wait_until_unused(users, self._core.clock.monotonic() + within):
            names = ", ".join(opening.name for opening in openings)
            sessions = ", ".join(sorted(session.key for session in users)[:5])
            reason = f"replaced {within:g} s ago and still at work for {sessions}: left behind until that ends"
            self._health.ladder.step("abandon", names, reason)
            await self._holding.wait_until_unused(users, float("inf"))
        await self._close(openings)
        if self._core.state in ("running", "pausing", "paused"):  # otherwise the next start reads the open calls
            await self.take_over()

    async def take_over(self) -> None:
        """Have the present actor take over the open calls of the one before it."""
        module = self._setup.modules["act"]
        try:
            if offers(module.part, TakesOver):
                await module.part.take_over()
        except Exception as error:
            self._core.log.error(
                "former actor's work not taken over", agent=self._core.name, part=module.name, reason=repr(error)
            )

    def _longest_cycle(self) -> float:
        """Return the seconds that a cycle may take by the deadlines of its phases."""
        return sum(
            step.attempts * (step.timeout if step.timeout < float("inf") else UNBOUNDED_PHASE) + step.grace
            for step in self._setup.steps.values()
        )


def _pass_on_degradation(old: Any, new: Any) -> None:
    """Degrade a new planner for the same reason as the old one."""
    reason = old.degraded_reason if offers(old, StatesDegradation) else None
    if old is not new and reason and offers(new, Degradable):
        new.degrade(reason)
