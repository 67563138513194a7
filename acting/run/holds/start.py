"""The last holds before a start: its approval and its part of the budgets are used, and all of this is on disk.

They happen as late as possible: a call that has passed them and never starts has lost its approval, and the next
process does not know whether it has had its effect.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from acting.calls import Question, Scope, fault
from acting.run.call.call_state import Step
from acting.run.holds.hold import Go, Hold
from acting.run.journal import CallJournalWriter
from acting.run.shared.budget import Spending
from acting.run.shared.runtime import Runtime

Spawn = Callable[[Coroutine[Any, Any, None], str], None]


class Redeem(Hold):
    """Hold that uses the approval of a call, and checks that the call is still the approved one.

    Args: spawn: runs a task of the batch.
    """

    __slots__ = ("_runtime", "_session", "_spawn")

    def __init__(self, runtime: Runtime, session: str, spawn: Spawn) -> None:
        self._runtime, self._session, self._spawn = runtime, session, spawn

    def take(self, step: Step, go: Go, /) -> bool:
        self._spawn(self._use(step, go), step.call.tool)
        return False

    async def _use(self, step: Step, go: Go) -> None:
        assert self._runtime.approvals is not None
        queue = self._runtime.approvals.queue
        approval_id = step.question.approval_id
        step.question = Question(allowed=approval_id)
        use = await queue.use(approval_id, queue.fingerprinter.of(step.call, step.entry, step.params, self._session))
        step.question = Question(allowed=approval_id, binds=use.binds)
        reason = "expired" if use.kind == "expired" else "denied"
        go(step, step.denied(use.why, reason, use.kind) if use.kind else None)


class Charge(Hold):
    """Step that uses a call's part of the budgets; it holds nothing. What was used is on disk before the call can have
    an effect, since it stands before the start there."""

    __slots__ = ("_scope", "_spending")

    def __init__(self, spending: Spending, scope: Scope) -> None:
        self._spending, self._scope = spending, scope

    def take(self, step: Step, go: Go, /) -> bool:
        self._spending.begin(step, self._scope)
        return True


class Disk(Hold):
    """Hold that writes the start of a call; calls with an effect wait until that is on disk, together with others.

    Args: spawn: runs a task of the batch.
    """

    __slots__ = ("_spawn", "_waiting", "_writer")

    def __init__(self, writer: CallJournalWriter, spawn: Spawn) -> None:
        self._writer, self._spawn = writer, spawn
        self._waiting: list[tuple[Step, Go]] = []  # calls that the next flush makes free

    def take(self, step: Step, go: Go, /) -> bool:
        if not self._writer.start(step):
            return True
        self._waiting.append((step, go))
        if len(self._waiting) == 1:
            self._spawn(self._flush(), "starts on disk")
        return False

    async def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        try:
            why = await self._writer.safe()
        except BaseException:
            for step, _ in waiting:
                step.is_start_written = False  # nothing is known of the entry on disk
            raise
        for step, go in waiting:
            go(step, step.failed(fault("io", why, step.call.tool)) if why else None)
