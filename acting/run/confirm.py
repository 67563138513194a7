"""Question to the embedding program whether a call may run; only a clear yes counts as one.

The *approver* is the function that the embedding program gives as `confirm`. The call does not run if there is no
approver, or if the approver raises, is late or gives an invalid answer. The approver runs in a task of its own, so one
that ignores cancellation can neither hold up the batch nor approve later.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from acting.run.shared.runtime import Runtime
from acting.tooling.bound_tool import is_async
from spar.checks import shorten
from spar.types import Call, Verdict

Confirm = Callable[[Call], Any]


async def ask(runtime: Runtime, confirm: Confirm | None, call: Call) -> Verdict | None:
    """Return the approver's answer; None when there was none within `approval_timeout` seconds."""
    if confirm is None:
        return Verdict.deny(f"tool {call.tool!r} needs approval and nobody is there to ask")
    loop = asyncio.get_running_loop()
    asking = loop.create_task(_answer(runtime, confirm, call), name=f"approval of {call.tool}")
    answered: asyncio.Future[bool] = loop.create_future()

    def settle(is_answered: bool) -> None:
        if not answered.done():
            answered.set_result(is_answered)

    asking.add_done_callback(lambda _: settle(True))
    timer = None
    if runtime.approval_timeout is not None:
        timer = runtime.clock.call_at(runtime.clock.monotonic() + runtime.approval_timeout, lambda: settle(False))
    try:
        if not await answered:
            return None
    except asyncio.CancelledError:
        asking.cancel()
        await runtime.settle([asking], runtime.limits.grace)
        raise
    finally:
        if timer is not None:
            timer.cancel()
        if not asking.done():
            asking.cancel()
            runtime.leave(asking)
    if asking.cancelled():
        return Verdict.deny("the approver was cancelled")
    if error := asking.exception():
        return Verdict.deny(f"the approver failed: {type(error).__name__}: {error}")
    return _verdict(asking.result())


async def _answer(runtime: Runtime, confirm: Confirm, call: Call) -> Any:
    answer = confirm(call) if is_async(confirm) else await runtime.approver.run(confirm, call)
    return await answer if inspect.isawaitable(answer) else answer


def _verdict(answer: Any) -> Verdict:
    if isinstance(answer, Verdict):
        is_whole = {"edit": isinstance(answer.params, dict), "replace": isinstance(answer.call, Call)}
        if answer.decision in ("approve", "deny") or is_whole.get(answer.decision):
            return answer
    if answer is True:
        return Verdict.approve()
    return Verdict.deny("" if answer is False else f"the approver answered {shorten(answer)}, which is no verdict")
