"""Authorization of calls that may have to wait for an answer, each in a task of its own.

`authorize` decides; this module passes the decision to the batch. If the batch was stopped meanwhile, a call that
may run is skipped instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from acting.calls import Scope
from acting.run.authorize import authorize, redeem
from acting.run.call.call_state import Step
from acting.run.confirm import Confirm
from acting.run.shared.runtime import Runtime
from acting.run.stopping import Stopping
from spar.data.blackboard import Board
from spar.types import CallResult


class Asking(Struct, eq=False):
    """Authorizer of the calls of one batch.

    Args: ended_well: returns whether the call with an id has ended well; go: called with a call that may run; end:
        called with a call that may not run and its result; broke: called with an error that is not the fault of a call.
    """

    _runtime: Runtime
    _board: Board
    _confirm: Confirm | None
    _scope: Scope
    _stopping: Stopping
    _ended_well: Callable[[str], bool]
    _go: Callable[[Step], None]
    _end: Callable[[Step, CallResult], None]
    _broke: Callable[[BaseException], None]

    async def ask(self, step: Step) -> None:
        """Find out whether a call may run, and start it or end it."""
        try:
            refusal = await self._refusal(step)
            if refusal is None:
                self._go(step)
            else:
                self._end(step, refusal)
        except asyncio.CancelledError:
            if step.result is None and not step.attempt and not self._stopping.is_cut_off:
                self._end(step, self._stopping.held_back(step) or step.cut(self._runtime))
            raise
        except BaseException as error:
            self._broke(error)
            raise

    async def _refusal(self, step: Step) -> CallResult | None:
        """Return the result of a call that may not run; None if it may."""
        runtime, stopping = self._runtime, self._stopping
        if step.late is not None:
            why = await step.take_late(runtime)
            if (ended := stopping.held_back(step) if why is None else step.failed(why)) is not None:
                return ended
        refusal, ends_run = await authorize(
            runtime, self._board, step, self._confirm, self._scope, self._ended_well, partial(stopping.may_ask, step)
        )
        step.asking = None
        if refusal is not None:
            if ends_run:
                stopping.fault = stopping.fault or refusal.fault
                stopping.stop("a hook ended the run before this call had started")
            return refusal
        refusal = stopping.held_back(step)
        if refusal is None and step.approval_id and step.entry.detaches(step.call):
            step.allowed = step.approval_id
            refusal = await redeem(runtime, step, self._scope.session) or stopping.held_back(step)
        return refusal
