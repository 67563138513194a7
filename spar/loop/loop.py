"""Sense – plan – act – reflect, and nothing else.

`Loop.cycle` is the specification read aloud; `Loop.phase` is what the four phases have in common: a deadline, two
events, a duration, and what a failure leads to, which is looked up in a table. When to begin the next cycle, what
becomes of a finished one and how modules are called is the session's business (`spar.session.session`).

A cycle costs a few microseconds: phases are awaited inline, what nobody listens to is not made, durations are only
appended, and a deadline that is kept is a single attribute (`spar.loop.phase_runner`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Protocol

from spar.bus.bus import Events
from spar.clock import Clock
from spar.errors import ENDS_PROCESS, is_closing, unwrap
from spar.events import PhaseCompleted, PhaseStarted
from spar.hooks import Hooks
from spar.loop.cycle import Cycle, Skip, Step, instead
from spar.loop.phase_runner import PhaseRunner
from spar.loop.plan_stream import OpenPlan
from spar.types import Action, ActionResult, Fault, Phase

#: What a phase may end with that is no error of it.
NO_ERRORS = (asyncio.CancelledError, *ENDS_PROCESS)
#: Under which name a cycle keeps what a phase brought, where a hook that is against it cannot undo that.
DONE: dict[Phase, str] = {"sense": "perceptions", "act": "result", "reflect": "reflection"}
#: Makes the coroutine of one attempt at a phase, of the phases of a session, from what the phase before it brought.
PhaseCall = Callable[[Any, Cycle, Any], Coroutine[Any, Any, Any]]


class CycleOwner(Protocol):
    """The session that a loop belongs to, as far as the loop asks it."""

    @property
    def phases(self) -> Any: ...
    @property
    def calls(self) -> Mapping[Phase, PhaseCall]: ...

    def opened(self) -> Cycle: ...
    async def ask(self, point: str, cycle: Cycle, value: Any) -> Any: ...
    def failed(self, cycle: Cycle, fault: Fault, error: BaseException, policy: str) -> None: ...
    def salvage(self, action: Action) -> ActionResult | None: ...
    def closed(self, cycle: Cycle) -> None: ...


class Loop:
    """The cycle of one session of an agent. No module's failure leaves `cycle`."""

    __slots__ = ("calls", "clock", "events", "hooks", "monotonic", "owner", "phases", "plan_when_idle", "runner",
                 "steps", "wanted")  # fmt: skip

    def __init__(self, owner: CycleOwner, runner: PhaseRunner, steps: Mapping[Phase, Step], events: Events,
                 hooks: Hooks, clock: Clock, *, plan_when_idle: bool) -> None:  # fmt: skip
        self.owner, self.runner, self.steps, self.events, self.hooks = owner, runner, steps, events, hooks
        self.clock, self.plan_when_idle = clock, plan_when_idle
        self.phases, self.calls, self.wanted = owner.phases, owner.calls, events.wanted
        self.monotonic = clock.monotonic

    async def cycle(self) -> Cycle:
        """One turn. Raises only what ends the task it runs in: cancellation from outside, the end of the process."""
        cycle = self.owner.opened()
        try:
            if self.hooks.used:
                await self.owner.ask("before_cycle", cycle, cycle.id)
            perceptions = cycle.perceptions = await self.phase("sense", cycle, None)
            if perceptions or cycle.run is not None or cycle.resumed is not None or self.plan_when_idle:
                action = cycle.action = await self.phase("plan", cycle, perceptions)
                if action is not None:
                    result = cycle.result = await self.phase("act", cycle, action)
                    cycle.reflection = await self.phase("reflect", cycle, result)
        except Skip:
            pass  # what failed is said already, and the next cycle senses again
        except BaseException as end:
            cycle.is_cut = True
            if not isinstance(end, asyncio.CancelledError) or self.runner.is_cancelled:
                raise  # from outside; a module that cancels itself only ends its own cycle
        finally:
            self.owner.closed(cycle)
        return cycle

    async def phase(self, phase: Phase, cycle: Cycle, value: Any) -> Any:
        """One phase with its deadline, events, timing and attempts; its product, or what stands in its place.

        Raises: Skip when the rest of the cycle is left out.
        """
        step, monotonic = self.steps[phase], self.monotonic  # what an attribute holds is faster called by a name
        held = step.held
        cycle.phase = phase
        if self.hooks.used:
            value = await self.owner.ask(f"before_{phase}", cycle, value)
        if self.wanted[PhaseStarted]:
            self.events.publish(
                PhaseStarted(cycle_id=cycle.known_id or cycle.id, phase=phase, input=value, session=cycle.session)
            )
        begun = cycle.phase_began = monotonic()
        attempt = 0
        while True:
            try:
                work = self.calls[phase](self.phases, cycle, value)
                try:
                    waiting = work.send(None)
                except StopIteration as ended:  # most phases end without waiting
                    product = ended.value
                else:
                    product = await self.runner.rest(work, waiting, begun, step.timeout, step.grace)
                product = held(product, step.name, value)
                break
            except BaseException as error:
                if isinstance(end := unwrap(error), NO_ERRORS) or is_closing(end, self.runner.task):
                    raise end from None
                attempt += 1
                fault = Fault.of(error, part=step.name, phase=phase)
                wait = step.wait_before_retry(attempt, fault)
                self.owner.failed(cycle, fault, error, step.answer if wait is None else "retry")
                if wait is None:
                    cycle.faults = (*cycle.faults, fault)
                    return instead(step, value, fault, error, self.owner.salvage)
                await self.clock.sleep(wait)
                begun = monotonic()
        if type(product) is OpenPlan:
            product.when_written(partial(self.written, cycle, cycle.phase_began))
            return product
        duration = cycle.durations[step.number] = monotonic() - cycle.phase_began
        step.durations.append(duration)
        if self.wanted[PhaseCompleted]:
            self.events.publish(PhaseCompleted(cycle_id=cycle.known_id or cycle.id, phase=phase, output=product,
                                               duration=duration, session=cycle.session))  # fmt: skip
        if not self.hooks.used:
            return product
        if phase in DONE:
            setattr(cycle, DONE[phase], product)
        return await self.owner.ask(f"after_{phase}", cycle, product)

    def written(self, cycle: Cycle, started: float, action: Action, error: BaseException | None) -> None:
        """A streamed plan has come to its end; its calls run on, and Reflect sees them whatever broke it off."""
        cycle.action = action
        if isinstance(error, asyncio.CancelledError):
            cycle.is_cut = True
        step, duration = self.steps["plan"], self.monotonic() - started
        if error is None and not cycle.is_cut:
            cycle.durations[step.number] = duration
            step.durations.append(duration)
            self.events.publish(PhaseCompleted(cycle_id=cycle.id, phase="plan", output=action, duration=duration,
                                               session=cycle.session))  # fmt: skip
        elif not cycle.is_cut:
            assert error is not None
            fault = Fault.of(error, part=step.name, phase="plan")
            cycle.faults = (*cycle.faults, fault)
            self.owner.failed(cycle, fault, error, step.answer)
