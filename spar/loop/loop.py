"""Sequence of the phases sense – plan – act – reflect in one cycle.

`Loop.cycle` runs the phases in order. `Loop.phase` does what all four phases need: a deadline, two events, a duration,
and the consequence of a failure, which the policy of the phase decides (`Step`). The session (`spar.session.session`)
decides when the next cycle begins and what happens after a cycle, and supplies the functions that call the modules.

A cycle costs a few microseconds: phases are awaited inline, events without a subscriber are not built, durations are
only appended to a list, and the deadline of a phase that ends in time costs one assignment (`spar.loop.phase_runner`).
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
from spar.loop.cycle import Cycle, Skip, Step, replace_product
from spar.loop.phase_runner import PhaseRunner
from spar.loop.plan_stream import OpenPlan
from spar.types import Action, ActionResult, Fault, Phase

#: Exceptions that end a phase without being errors of the phase.
NO_ERRORS = (asyncio.CancelledError, *ENDS_PROCESS)
#: Names of the cycle's attributes that hold the product of a phase. They are set before the hook `after_<phase>` runs:
#: a hook that denies cannot undo these phases. The plan is not among them, since a denied plan is not carried out.
DONE: dict[Phase, str] = {"sense": "perceptions", "act": "result", "reflect": "reflection"}
#: Function that returns the coroutine of one attempt at a phase. Arguments: the session, the cycle, and the product of
#: the phase before.
PhaseCall = Callable[[Any, Cycle, Any], Coroutine[Any, Any, Any]]


class CycleOwner(Protocol):
    """Session of a loop, reduced to the members that the loop uses."""

    @property
    def calls(self) -> Mapping[Phase, PhaseCall]:
        """Return the function that starts each phase; it gets the session as first argument."""

    def open_cycle(self) -> Cycle:
        """Begin a cycle and return it."""

    async def ask(self, point: str, cycle: Cycle, value: Any) -> Any:
        """Return the value after the hooks at `point` have changed it. Raises: Skip when a hook denies."""

    def report_failure(self, cycle: Cycle, fault: Fault, error: BaseException, policy: str) -> None:
        """Report a failed attempt at a phase, and the policy that applies to it."""

    def salvage(self, action: Action) -> ActionResult | None:
        """Return the results that the actor has for an action that was cut off; None when it has none."""

    def close_cycle(self, cycle: Cycle) -> None:
        """End a cycle: report its outcome and record it."""


class Loop:
    """Runner of the cycles of one session of an agent. It handles a failure of a module; `cycle` does not raise it.

    Attributes: calls: see `CycleOwner`; wanted: by class of event, whether anybody listens; plan_when_idle: whether a
        cycle without perceptions calls the planner too.
    """

    __slots__ = ("calls", "clock", "events", "hooks", "monotonic", "owner", "plan_when_idle", "runner",
                 "steps", "wanted")  # fmt: skip

    def __init__(self, owner: CycleOwner, runner: PhaseRunner, steps: Mapping[Phase, Step], events: Events,
                 hooks: Hooks, clock: Clock, *, plan_when_idle: bool) -> None:  # fmt: skip
        self.owner, self.runner, self.steps, self.events, self.hooks = owner, runner, steps, events, hooks
        self.clock, self.plan_when_idle = clock, plan_when_idle
        self.calls, self.wanted = owner.calls, events.wanted
        self.monotonic = clock.monotonic

    async def cycle(self) -> Cycle:
        """Run one cycle and return it.

        Raises: only exceptions that end the task itself: a cancellation from outside, the end of the process.
        """
        cycle = self.owner.open_cycle()
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
            pass  # the failure or the denial by a hook is reported already, and the next cycle senses again
        except BaseException as end:
            cycle.is_cut = True
            if not isinstance(end, asyncio.CancelledError) or self.runner.is_cancelled:
                raise  # from outside; a module that cancels its own task only ends its own cycle
        finally:
            self.owner.close_cycle(cycle)
        return cycle

    async def phase(self, phase: Phase, cycle: Cycle, value: Any) -> Any:
        """Run one phase with its deadline, events, timing and attempts. Return its product, or a replacement of the
        product after a failure.

        Args: value: the product of the phase before; None for the phase sense.
        Raises: Skip when the remaining phases of the cycle are left out.
        """
        step, monotonic = self.steps[phase], self.monotonic  # a local name is faster than an attribute
        check_product = step.check_product
        cycle.phase = phase
        if self.hooks.used:
            value = await self.owner.ask(f"before_{phase}", cycle, value)
        if self.wanted[PhaseStarted]:
            # Reading `known_id` first avoids a call: `id` is a property that makes the id at its first use.
            self.events.publish(
                PhaseStarted(cycle_id=cycle.known_id or cycle.id, phase=phase, input=value, session=cycle.session)
            )
        begun = cycle.phase_began = monotonic()
        attempt = 0
        while True:
            try:
                work = self.calls[phase](self.owner, cycle, value)
                try:
                    waiting = work.send(None)
                except StopIteration as ended:  # most phases end without waiting
                    product = ended.value
                else:
                    product = await self.runner.finish_phase(work, waiting, begun, step.timeout, step.grace)
                product = check_product(product, step.name, value)
                break
            except BaseException as error:
                if isinstance(end := unwrap(error), NO_ERRORS) or is_closing(end, self.runner.task):
                    raise end from None
                attempt += 1
                fault = Fault.of(error, part=step.name, phase=phase)
                wait = step.wait_before_retry(attempt, fault)
                self.owner.report_failure(cycle, fault, error, step.final_policy if wait is None else "retry")
                if wait is None:
                    cycle.faults = (*cycle.faults, fault)
                    return replace_product(step, value, fault, error, self.owner.salvage)
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
        """Record the end of a streamed plan, which the act phase has read while it was written.

        The calls that the plan contains so far still run, and the phase reflect sees them, even if an error ended the
        plan. Args: started: when the phase plan began (monotonic seconds); error: what ended the plan early.
        """
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
            self.owner.report_failure(cycle, fault, error, step.final_policy)
