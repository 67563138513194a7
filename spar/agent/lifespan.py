"""Life of the modules of an agent: taken in, opened and closed; their settings.

A context manager may hold cancel scopes and task groups, which belong to the task that entered them, while `start()`
and `stop()` come from any task. Therefore one task enters the context manager, waits, and leaves it. An object that is
no context manager needs no task. `spar.agent.exchange` replaces and restarts modules while the agent works.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

from spar.backoff import Backoff
from spar.errors import SparError
from spar.loop.core import StopDeadline
from spar.loop.cycle import RETRIES, Step
from spar.loop.setup import PRODUCT_OF, Module, Pace
from spar.parts.defaults import MadeOnUse
from spar.ports.any_part import Attachable, has, offers
from spar.ports.phases import OptionalActor, OptionalSense
from spar.session.parts import SessionParts
from spar.types import PHASES, Phase

if TYPE_CHECKING:
    from spar.config.load import Settings
    from spar.protocols import Host

#: Time limit (seconds) for closing one module.
CLOSE_WITHIN = 10.0
#: Equal values are one shared object: they never change, and there may be many agents.
shared = functools.lru_cache(maxsize=64, typed=True)
_backoff, _pace = shared(Backoff), shared(Pace)
#: Seconds for a part to close after its opening was cancelled, and further seconds after it was cancelled itself.
LET_GO, GRACE = 1.0, 0.5


class Opening:
    """One part that may be an async context manager.

    Args: lost: called with this opening and the error when the part ends by itself, for example after its background
    task failed.
    """

    __slots__ = ("_close", "_lost", "_opened", "_task", "name", "part")

    def __init__(self, part: Any, name: str, lost: Callable[[Opening, BaseException], object] | None = None) -> None:
        self.part, self.name, self._lost = part, name, lost
        self._task: asyncio.Task[None] | None = None
        self._opened: asyncio.Future[None] | None = None
        self._close: asyncio.Future[None] | None = None

    @property
    def is_needed(self) -> bool:
        """Return whether the part is a context manager."""
        return isinstance(self.part, AbstractAsyncContextManager)

    @property
    def is_open(self) -> bool:
        """Return whether the part is held open; False once it failed or its event loop is closed."""
        return self._task is not None and not self._task.done() and not self._task.get_loop().is_closed()

    async def open(self) -> None:
        """Enter the part. Raises: its errors; a cancelled call leaves it closed. Idempotent."""
        if self.is_open or not self.is_needed:
            return
        loop = asyncio.get_running_loop()
        self._opened, self._close = loop.create_future(), loop.create_future()
        self._task = loop.create_task(self._hold(self._opened, self._close), name=f"opening of {self.name}")
        try:
            await asyncio.shield(self._opened)
        except BaseException:
            await self.close(LET_GO)
            raise

    async def close(self, timeout: float = 10.0) -> BaseException | None:
        """Leave the part; return its error, or a TimeoutError after `timeout` seconds, or None. Idempotent, never
        raises."""
        task = self.leave()
        if task is None:
            return None
        if not task.done():
            await asyncio.wait([task], timeout=timeout)
        if not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=GRACE)
            return self.late(task, timeout)
        return outcome_of(task)

    def leave(self) -> asyncio.Task[None] | None:
        """Ask the part to close, without waiting. Returns: the task that holds it; None when it is not open."""
        task, is_open = self._task, self.is_open
        self._task = None
        if task is None or not (is_open or task.done()):
            return None
        assert self._close is not None
        assert self._opened is not None
        if is_open and not self._close.done():
            self._close.set_result(None)
        if not self._opened.done():
            task.cancel()
        return task

    def late(self, task: asyncio.Task[None], seconds: float) -> BaseException:
        """Return the error of a part that did not close in so many seconds. An error that it raises later is
        retrieved."""
        task.add_done_callback(_retrieve)
        return TimeoutError(f"{self.name} did not close within {seconds:.3g} s")

    async def _hold(self, opened: asyncio.Future[None], close: asyncio.Future[None]) -> None:
        """Hold the part open until it is asked to close. An error after the opening is reported by `lost`."""
        try:
            async with self.part:
                if not opened.done():
                    opened.set_result(None)
                await close
        except BaseException as error:
            if not opened.done():
                opened.set_exception(_for_the_opener(error))
                opened.exception()  # retrieved here in case no caller waits any more
            elif self._is_lost(close) and self._lost is not None and isinstance(error, Exception):
                self._lost(self, error)
            else:
                raise
        else:
            if self._is_lost(close) and self._lost is not None:
                self._lost(self, RuntimeError("it ended without having been asked to"))

    @staticmethod
    def _is_lost(close: asyncio.Future[None]) -> bool:
        """Return whether it ended without being asked to close. A part that cancels its own task cancels this wait,
        too."""
        return close.cancelled() or not close.done()


def outcome_of(task: asyncio.Task[None]) -> BaseException | None:
    """Return the error of closing a part; None if it closed well or was cancelled."""
    return None if task.cancelled() else task.exception()


def _for_the_opener(error: BaseException) -> BaseException:
    """Return an error for the caller: a part that cancels itself did not open, and the caller was not cancelled."""
    return RuntimeError("it was cancelled while it opened") if isinstance(error, asyncio.CancelledError) else error


def _retrieve(task: asyncio.Task[None]) -> None:
    """Retrieve an error that no caller waits for; that the part did not close in time was reported already."""
    if not task.cancelled():
        task.exception()


class Lifespan:
    """Modules of one agent, and the tasks that hold them open.

    `make` makes a new module of a phase; None where that is not possible.

    Args: memory: the store that the modules write to, opened first and closed last; host: returns a part's services.
    """

    __slots__ = ("_core", "_deadline", "_holding", "_host", "_memory", "_requests", "_setup", "_stats", "former",
                 "make", "openings")  # fmt: skip

    def __init__(self, parts: SessionParts, deadline: StopDeadline, memory: Any, host: Callable[[Any], Host]) -> None:
        self._core, self._setup, self._stats, self._requests = parts.core, parts.setup, parts.account, parts.requests
        self._holding, self._deadline = parts.holding, deadline
        self._memory, self._host = memory, host
        self.openings: tuple[Opening, ...] = ()
        self.make: Callable[[Phase], Any] | None = None
        #: The tasks that close replaced modules.
        self.former: tuple[asyncio.Task[None], ...] = ()

    def take(self, parts: Mapping[Phase, Any]) -> None:
        """Use these modules from now on, without opening them. Raises: ContractError."""
        modules = self.modules_of(parts)
        self.use(modules, self.openings_of(modules))

    def modules_of(self, parts: Mapping[Phase, Any]) -> dict[Phase, Module]:
        """Return the parts as modules; a part in use keeps its module. Raises: ContractError."""
        known: Mapping[Phase, Module] = self._setup.modules
        return {phase: module if (module := known.get(phase)) is not None and module.part is part
                else Module(phase, part, self._core.clock) for phase, part in parts.items()}  # fmt: skip

    def openings_of(self, modules: Mapping[Phase, Module]) -> tuple[Opening, ...]:
        """Return the openings of the memory and these modules, in order. Open ones are reused."""
        known = {id(opening.part): opening for opening in self.openings}
        parts = {id(part): part for part in (self._memory, *(module.part for module in modules.values()))
                 if isinstance(part, (AbstractAsyncContextManager, MadeOnUse)) or offers(part, Attachable)}  # fmt: skip
        openings = [known.get(key) or Opening(part, type(part).__qualname__, self._lost) for key, part in parts.items()]
        return tuple(openings)

    def use(self, modules: dict[Phase, Module], openings: tuple[Opening, ...]) -> None:
        """Use these modules in every cycle that begins from now on."""
        setup = self._setup
        setup.modules, self.openings = modules, openings
        sense = modules["sense"].part
        setup.perceive = sense.perceive if has(sense, OptionalSense.perceive) else None
        setup.settled = sense.settled if has(sense, OptionalSense.settled) else None

    def apply(self, settings: Settings) -> None:
        """Apply the settings of the pace and of the phases, which may change while the agent runs."""
        table = settings.agent
        self._core.settings = settings
        self._setup.pace = _pace(table.loop_interval, table.min_interval, table.max_interval, table.busy_count)
        self._setup.plan_when_idle = table.plan_when_idle
        self._setup.steps = {phase: self.step_of(phase) for phase in PHASES}

    def step_of(self, phase: Phase) -> Step:
        """Return the values that a phase runs with: its module, its contract and its settings."""
        table = getattr(self._core.settings.agent.phases, phase)
        policy = getattr(self._core.settings.agent.errors, phase)
        retries = table.retries or (RETRIES if policy == "retry" else 0)
        return Step(phase, PHASES.index(phase), self._setup.modules[phase].name, PRODUCT_OF[phase],
                    self._stats.phases[phase].pending, table.timeout or float("inf"), retries + 1,
                    _backoff(table.backoff, 60.0), table.grace, policy)  # fmt: skip

    async def open(self, then: Callable[[], Awaitable[object]]) -> None:
        """Open the modules, in order, then call `then`. If one fails, close those opened before it. Idempotent.

        Args: then: called while the modules are open; they are closed again if it fails.
        Raises: errors of a module or of `then`.
        """
        opened: list[Opening] = []
        try:
            await self.open_parts(self.openings, self._setup.modules, opened)
            await then()
        except BaseException:
            await self.close_parts(opened)
            raise

    async def open_parts(
        self, openings: Iterable[Opening], modules: Mapping[Phase, Module], opened: list[Opening]
    ) -> None:
        """Open what is not open yet, in order; `opened` gets each opening before it is tried. Raises: errors of
        opening."""
        planner = modules["plan"].part
        for borrower in (modules["act"].part, modules["reflect"].part):
            if has(borrower, OptionalActor.borrow):
                from spar.ports.planners import OptionalPlanner  # most agents have a function here

                if has(planner, OptionalPlanner.lends):
                    borrower.borrow(planner.lends())
        for opening in openings:
            if opening.is_open:
                continue
            if isinstance(opening.part, MadeOnUse):
                opening.part.attach_later(functools.partial(self._host, opening.part))
            elif offers(opening.part, Attachable):
                opening.part.attach(self._host(opening.part))
            opened.append(opening)
            await self.open_in_time(opening, modules)

    async def open_in_time(self, opening: Opening, modules: Mapping[Phase, Module]) -> None:
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
        former = [task for task in self.former if not task.done() and not task.get_loop().is_closed()]
        await self._deadline.wait_for(former, CLOSE_WITHIN)
        self.former = ()
        # Rows that channels and others have changed in a store without a journal.
        await self._deadline.wait_for(self._requests.in_progress("saving of"), CLOSE_WITHIN)
        await self.close_parts(self.openings)

    async def close_parts(self, openings: Sequence[Opening]) -> None:
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
                    self._core.report(self._core.log.warning, "closing failed", error, opening.name, "close",
                                      is_left_behind=not task.done())  # fmt: skip

    def _lost(self, opening: Opening, error: BaseException) -> None:
        """Report a module that closed by itself, for example after its background task failed."""
        self._core.report(self._core.log.error, "module ended by itself", error, opening.name, "open")
