"""Answers of people about one call: by the embedding program's approver where there is one, else by the queue.

The *approver* is the function that the embedding program gives as `confirm`. Only a clear yes lets a call run: there is
none if nobody can be asked, or if the approver raises, is late or gives an invalid answer. It runs in a task of its
own, so one that ignores cancellation can neither hold up the batch nor approve later. An approval of the queue is used
at the last moment before the start: a call that has passed that and never starts has lost it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

from acting.calls import NO_QUESTION, Question, Scope, fault
from acting.run.call.call_state import Step
from acting.run.runtime import Runtime
from acting.tooling.bound_tool import is_async
from acting.tooling.limits import Go, Hold
from spar.checks import shorten
from spar.data.blackboard import Board
from spar.data.paths import escape, marked
from spar.errors import SparError
from spar.events import ApprovalExpired, ApprovalRequested, ApprovalResolved
from spar.records.approvals import Approval
from spar.types import Call, CallResult, Trust, Verdict, replace

Confirm = Callable[[Call], Any]


class Answers(Hold):
    """Questions about the calls of one batch, and the answers to them. The hold that uses the approval of a call.

    Args: confirm: asks the embedding program; ended_well: returns whether the call with an id has ended well; spawn:
        runs a task of the batch.
    """

    __slots__ = ("_board", "_confirm", "_ended_well", "_runtime", "_scope", "_spawn")

    def __init__(self, runtime: Runtime, scope: Scope, board: Board, confirm: Confirm | None,
                 ended_well: Callable[[str], bool], spawn: Callable[[Coroutine[Any, Any, None], str], None],
                 ) -> None:  # fmt: skip
        self._runtime, self._scope, self._board = runtime, scope, board
        self._confirm, self._ended_well, self._spawn = confirm, ended_well, spawn

    def take(self, step: Step, go: Go, /) -> bool:
        """Use the approval of a call in a task, which also checks that the call is still the approved one."""
        self._spawn(self._use(step, go), step.call.tool)
        return False

    async def _use(self, step: Step, go: Go) -> None:
        assert self._runtime.approvals is not None
        queue = self._runtime.approvals.queue
        approval_id = step.question.approval_id
        step.question = Question(allowed=approval_id)
        bound_call = queue.fingerprinter.of(step.call, step.entry, step.params, self._scope.session)
        use = await queue.use(approval_id, bound_call)
        step.question = Question(allowed=approval_id, binds=use.binds)
        reason = "expired" if use.kind == "expired" else "denied"
        go(step, step.denied(use.why, reason, use.kind) if use.kind else None)

    async def ask(self, step: Step, trust: Trust, why: str, spent: str,
                  since: datetime | None = None) -> CallResult | None:  # fmt: skip
        """Ask about a call; return the result of a call that may not run, None if it may.

        Args: why: the reason of the question; spent: the sentence about a budget that is spent, "" for none; since: no
            grant from before this time counts.
        """
        runtime, scope = self._runtime, self._scope
        if spent and self._confirm is None and runtime.approvals is None:
            return step.denied(spent, "budget", "budget")
        if runtime.guard.is_refused(scope.run_id, step.call.tool, step.params):
            return step.denied("it was denied in this run before, twice, and that is final: do not retry")
        step.asking = asyncio.current_task()
        if self._confirm is None and runtime.approvals is not None:
            return await self._ask_people(step, trust, spent or why, since, is_spent=bool(spent))
        return await self._ask_program(step, spent or why)

    def swap(self, step: Step, new: Call, decision: str, by: str, reason: str) -> CallResult | None:
        """Replace a call; return its result if the new one cannot run."""
        proposed = step.call
        if wrong := step.swap(self._runtime.catalog, self._board, new, self._ended_well):
            return step.failed(wrong)
        step.note_correction(proposed, decision, by, reason)
        return None

    # -- the embedding program

    async def _ask_program(self, step: Step, why: str) -> CallResult | None:
        runtime, scope = self._runtime, self._scope
        runtime.tell_of(ApprovalRequested, step.call, scope)
        try:
            verdict = await self._verdict(step.shown())
        except asyncio.CancelledError:
            why = "the call is not to start any more"
            runtime.tell_of(ApprovalResolved, step.call, scope, decision="void", reason=why)
            raise
        if verdict is None:
            runtime.tell_of(ApprovalExpired, step.call, scope)
            return step.denied(f"nobody answered within {runtime.approval_timeout:g} s", "expired")
        runtime.tell_of(ApprovalResolved, step.call, scope, decision=verdict.decision, reason=verdict.reason or why)
        if verdict.decision == "approve":
            return None
        if verdict.decision == "deny":
            return step.denied(verdict.reason or "it was not approved")
        try:
            new = verdict.call if verdict.decision == "replace" else replace(step.call, params=verdict.params or {})
        except TypeError as error:
            return step.failed(fault("bad_call", str(error), step.call.tool))
        assert new is not None
        return self.swap(step, new, verdict.decision, "confirm", verdict.reason)

    async def _verdict(self, call: Call) -> Verdict | None:
        """Return the approver's answer; None when there was none within `approval_timeout` seconds."""
        runtime, confirm = self._runtime, self._confirm
        if confirm is None:
            return Verdict.deny(f"tool {call.tool!r} needs approval and nobody is there to ask")
        loop = asyncio.get_running_loop()
        asking = loop.create_task(_answer(runtime, confirm, call), name=f"approval of {call.tool}")
        try:
            late = await runtime.settle([asking], runtime.approval_timeout)
        except asyncio.CancelledError:
            asking.cancel()
            await runtime.settle([asking], runtime.limits.grace)
            raise
        finally:
            if not asking.done():
                asking.cancel()
                runtime.leave(asking)
        if late:
            return None
        if asking.cancelled():
            return Verdict.deny("the approver was cancelled")
        if error := asking.exception():
            return Verdict.deny(f"the approver failed: {type(error).__name__}: {error}")
        return _verdict_in(asking.result())

    # -- the queue

    async def _ask_people(self, step: Step, trust: Trust, why: str, since: datetime | None, *,
                          is_spent: bool) -> CallResult | None:  # fmt: skip
        """Ask people through the queue, for as long as the call may wait. No grant counts when a budget is spent.

        Another cycle may have asked about the same call already (`is_own` is false): then both wait for one answer.
        Return the result of a call that may not run, or that is parked because there is no answer yet.
        """
        runtime, scope = self._runtime, self._scope
        assert runtime.approvals is not None
        queue = runtime.approvals.queue
        bound_call = queue.fingerprinter.of(step.call, step.entry, step.params, scope.session)
        try:
            if not is_spent and (grant_and_binds := await queue.granted(bound_call, scope.session, since)):
                grant, binds = grant_and_binds
                step.question = Question(binds=binds)
                until = f"{grant.expires_at:%Y-%m-%d %H:%M} UTC"
                reason = f"grant {grant.id} by {grant.granted_by} until {until}, use {grant.uses}"
                runtime.tell_of(ApprovalResolved, step.call, scope, decision="approve", reason=reason)
                return None
            row, is_own = await queue.ask(
                bound_call, why=why, trust=trust, session=scope.session, cycle_id=scope.cycle_id, run_id=scope.run_id
            )
            step.question = Question(row.id, not is_own)
            if is_own and row.status == "pending":
                meta = {**step.call.meta, "_approval": row.id}
                runtime.tell_of(ApprovalRequested, replace(step.call, meta=meta), scope)
            row = await queue.answer(row.id, 0.0 if row.is_parked and not is_own else runtime.approvals.hold)
        except (SparError, LookupError, ValueError, TypeError) as error:
            message = f"it could not be asked about: {error}"
            return step.denied(f"{why}, and {message}", "budget", "budget") if is_spent else step.denied(message)
        return self._answered(step, row)

    def resume(self, step: Step, approval_id: str) -> CallResult | None:
        """Return the result of a call that an earlier cycle parked, if it may not run by the answer of people."""
        assert self._runtime.approvals is not None
        row = self._runtime.approvals.queue.known(approval_id)
        if row is None:
            return step.denied(f"its approval {approval_id!r} is gone")
        if row.status == "used":
            step.question = NO_QUESTION
            return step.in_doubt(f"approval {row.id!r} was used before")
        return self._answered(step, row)

    def _answered(self, step: Step, row: Approval) -> CallResult | None:
        """Return the result of a call by the state of its approval; None if it may run.

        The step keeps the approval's id while the call may still run by it.
        """
        if row.status == "pending" and self._runtime.clock.now() < row.expires_at:
            return step.skipped(f"it waits for approval {row.id!r}", "parked")
        if row.status == "approved":
            return self._adopt(step, row) if row.original is not None else None
        step.question = NO_QUESTION
        if row.status in ("pending", "expired"):
            return step.denied(f"nobody answered approval {row.id!r} in time", "expired")
        if row.status == "used":
            return step.denied(f"approval {row.id!r} let the same call run already, and is used once")
        by = f" by {row.decided_by}" if row.decided_by else ""
        return step.denied(row.reason or f"it was not approved{by}")

    def _adopt(self, step: Step, row: Approval) -> CallResult | None:
        """Replace a call by the one that people made of it. Return its result if it cannot run now."""
        assert row.original is not None
        old, call = step.call, row.call
        # People saw values, not references: a text of theirs that looks like a reference stays a text.
        literal = escape(call.params, frozenset(marked(call.params)))
        meta = {**call.meta, "_parked": old.meta["_parked"]} if "_parked" in old.meta else call.meta
        new = replace(call, params=literal, after=old.after, instance=old.instance, meta=meta)
        is_edit = replace(row.original, params=call.params) == call
        return self.swap(step, new, "edit" if is_edit else "replace", row.decided_by, row.reason)


async def _answer(runtime: Runtime, confirm: Confirm, call: Call) -> Any:
    answer = confirm(call) if is_async(confirm) else await runtime.approver.run(confirm, call)
    return await answer if inspect.isawaitable(answer) else answer


def _verdict_in(answer: Any) -> Verdict:
    if isinstance(answer, Verdict):
        is_whole = {"edit": isinstance(answer.params, dict), "replace": isinstance(answer.call, Call)}
        if answer.decision in ("approve", "deny") or is_whole.get(answer.decision):
            return answer
    if answer is True:
        return Verdict.approve()
    return Verdict.deny("" if answer is False else f"the approver answered {shorten(answer)}, which is no verdict")
