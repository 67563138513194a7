"""Single phases, run by hand. Consecutive steps form a chain that shares one cycle, which ends with its reflection.

A step runs on the standing session, whose loop does not run meanwhile, with the deadlines, hooks and events of any
phase.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

from spar.attaching import Attaching
from spar.checks import shorten
from spar.errors import LifecycleError, SparError
from spar.loop.cycle import PRODUCTS, STANDING, Cycle, Skip, failed_result
from spar.session.sessions import Session
from spar.threads import is_cancelled
from spar.types import Action, ActionResult, Perception, Phase

#: The attribute of a cycle with the default input of each phase: the product of the step before.
INPUT: dict[Phase, str] = {"plan": "perceptions", "act": "action", "reflect": "result"}


class Stepper:
    """Single steps of one agent. Args: parts: its parts."""

    __slots__ = ("_chain", "_is_recorded", "_parts", "_requests", "_sessions", "_setup")

    def __init__(self, parts: Any) -> None:
        self._setup, self._requests, self._sessions = parts.setup, parts.requests, parts.sessions
        self._parts = parts
        self._chain: Cycle | None = None
        self._is_recorded = False  # the chain ended with its reflection; its phases can be repeated

    async def step(self, phase: Phase, phase_input: Any) -> Any:
        """Run one phase and return its product.

        Raises: LifecycleError, ValueError and TypeError for the wrong time or input; errors of the phase, except act,
        whose failure is in its result.
        """
        parts, name = self._parts, f"step_{phase}"
        parts.demand("step", name)
        if self._requests.is_inside:
            raise LifecycleError(name, "in the middle of a cycle or a handler")
        parts.bind()
        return await parts.exclusively(partial(self._alone, phase, phase_input), name)

    def close_chain(self) -> None:
        """Forget the chain. Its cycle ends now if it has not ended yet."""
        cycle, self._chain = self._chain, None
        if cycle is not None and not self._is_recorded:
            self._sessions.of(STANDING).close_cycle(cycle)

    def _record_chain(self, cycle: Cycle) -> None:
        """End the chain's cycle and keep its products, so that each phase can be repeated until the next
        `step_sense`."""
        self._sessions.of(STANDING).close_cycle(cycle)
        self._is_recorded = True

    async def _alone(self, phase: Phase, phase_input: Any) -> Any:
        """Run one phase while no other exclusive operation runs."""
        self._parts.demand("step", f"step_{phase}")
        phase_input = self._input(phase, phase_input)
        self._parts.has_stepped = True
        await self._parts.open()
        session = self._sessions.of(STANDING)
        if phase == "sense" or self._chain is None:
            self.close_chain()
            self._chain = session.open_cycle(is_stepped=True)
            self._chain.is_stepped = True
        session.use_present_modules()
        cycle = self._chain
        if self._is_recorded:  # a repetition: the cycle is recorded again with the new products
            cycle.durations, cycle.faults = [None, None, None, None], ()
        self._is_recorded = False
        if phase in INPUT:
            setattr(cycle, INPUT[phase], phase_input)
        session.cycle, cycle.error, cycle.is_cut = cycle, None, True
        try:
            product = await self._on_runner(session, _stepped(session, cycle, phase, phase_input))
            cycle.is_cut = False
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            name = self._setup.modules[phase].name
            raise SparError(f"step_{phase} was interrupted: {name} cancelled itself") from error
        finally:
            if phase == "act" and (cycle.is_cut or _leaves_doubt(cycle)):  # people hear of it now, not with the chain
                self._record_chain(cycle)
            session.cycle, session.stop_reason = None, ""
        if cycle.error is not None and (phase != "act" or product is None):
            raise cycle.error
        if phase == "reflect":
            self._record_chain(cycle)
        return product

    def _input(self, phase: Phase, phase_input: Any) -> Any:
        """Return the input of the phase: `given`, or the product of the last step. Raises: ValueError, TypeError."""
        if phase not in INPUT:
            return None
        if phase_input is None:
            phase_input = () if self._chain is None else getattr(self._chain, INPUT[phase])
        if phase == "plan":
            if isinstance(phase_input, str) or not all(isinstance(item, Perception) for item in phase_input):
                raise TypeError(f"step_plan takes a Perception or a list of them, found {shorten(phase_input, 60)}")
            return tuple(phase_input)
        kind: type = Action if phase == "act" else ActionResult
        if phase_input is None or phase_input == ():
            before = {"act": "step_plan() brought no action", "reflect": "step_act() brought no result"}[phase]
            raise ValueError(f"nothing to {phase} on: {before}, and none was given")
        if not isinstance(phase_input, kind):
            wanted = f"step_{phase} takes the {kind.__name__} of the step before"
            raise TypeError(f"{wanted}, found {shorten(phase_input, 60)}")
        return phase_input

    async def _on_runner(self, session: Session, work: Coroutine[Any, Any, Any]) -> Any:
        """Run work in the task of an idle session. If cancelled, cancel the phase, and leave it behind after a
        grace."""
        outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        async def main() -> None:
            product = await work
            if not outcome.done():
                outcome.set_result(product)

        def ended(error: BaseException | None) -> None:
            if not outcome.done():
                outcome.set_exception(error or asyncio.CancelledError())
                outcome.exception()  # retrieved here in case no caller waits any more

        session.runner.start(main(), ended, self._requests.own_context)
        try:
            return await asyncio.shield(outcome)
        except asyncio.CancelledError:
            if not outcome.done():
                assert session.cycle is not None
                grace = self._setup.steps[session.cycle.phase].grace
                session.cancel_phase("step called off")
                for give_up in (session.runner.abandon, session.runner.abandon):
                    await asyncio.wait([outcome], timeout=grace)
                    if not outcome.done():
                        give_up()
            raise


def _leaves_doubt(cycle: Cycle) -> bool:
    """Return whether a call of the cycle may have had its effect."""
    return cycle.result is not None and any(result.is_in_doubt for result in cycle.result.results)


async def _stepped(session: Session, cycle: Cycle, phase: Phase, phase_input: Any) -> Any:
    """Run one phase and keep its product in the cycle; None if the phase was skipped."""
    try:
        product = await session.run_phase(phase, cycle, phase_input)
        setattr(cycle, PRODUCTS[phase], product)
        return product
    except Skip:
        if cycle.error is None:
            cycle.error = PermissionError(f"a hook refused step_{phase}")
        elif phase == "act":  # a caller of a step gets the failed result
            cycle.result = failed_result(phase_input, cycle.faults[-1], cycle.error, session.salvage)
            return cycle.result
        return None


def attach(agent: Attaching) -> Stepper:
    """Attach the single steps of the agent, and return them."""
    return Stepper(agent.services.control)
