"""Before a ready call runs: what hooks and people say to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acting.approvals import Confirm, ask
from acting.board import Board
from acting.proposal import Proposal
from acting.stage import Scope, Stage, fault
from spar.events import ApprovalExpired, ApprovalRequested, ApprovalResolved
from spar.types import Call, CallResult, replace


def passes(stage: Stage, proposal: Proposal, scope: Scope) -> bool:
    """Whether nobody has to be asked."""
    return proposal.entry.terms.approval == "auto" and not stage.asks("before_call")


async def pass_gate(
    stage: Stage,
    board: Board,
    proposal: Proposal,
    confirm: Confirm | None,
    scope: Scope,
    is_done: Callable[[str], bool],
) -> tuple[CallResult | None, bool]:
    """What stands against running it (None: nothing), and whether a hook ends the run."""

    def denied(reason: str, message: str) -> CallResult:
        return CallResult(proposal.call, "denied", reason, fault=fault("denied", message, proposal.call.tool))

    def forbidden() -> bool:
        return proposal.entry.terms.approval == "deny"

    asks, why = False, ""
    if stage.asks("before_call"):
        shown = proposal.shown()
        outcome = await stage.consult("before_call", shown, scope)
        if outcome.denied:
            return denied("denied", outcome.reason or "a hook denied it"), outcome.stop_run
        asks, why = outcome.needs_approval, outcome.reason
        if outcome.value is not shown:
            if not isinstance(outcome.value, Call):
                return denied("denied", f"a hook put a {type(outcome.value).__name__} in the call's place"), False
            if wrong := proposal.swap(stage, board, outcome.value, is_done):
                return CallResult(proposal.call, "failed", fault=wrong), False
    if forbidden():
        return denied("denied", f"tool {proposal.entry.name!r} may not be called: its approval is 'deny'"), False
    if not asks and proposal.entry.terms.approval == "auto":
        return None, False

    def tell(kind: Callable[..., Any], **fields: Any) -> None:
        if stage.events is not None:
            stage.tell(kind, call=proposal.call, cycle_id=scope.cycle_id, **fields)

    tell(ApprovalRequested)
    verdict = await ask(stage, confirm, proposal.shown())
    if verdict is None:
        tell(ApprovalExpired)
        return denied("expired", f"nobody answered within {stage.approval_timeout:g} s"), False
    tell(ApprovalResolved, decision=verdict.decision, reason=verdict.reason or why)
    if verdict.decision == "approve":
        return None, False
    if verdict.decision == "deny":
        return denied("denied", verdict.reason or "it was not approved"), False
    new = verdict.call if verdict.decision == "replace" else replace(proposal.call, params=verdict.params or {})
    assert new is not None
    if wrong := proposal.swap(stage, board, new, is_done):
        return CallResult(proposal.call, "failed", fault=wrong), False
    if forbidden():
        return denied("denied", f"tool {proposal.entry.name!r} may not be called: its approval is 'deny'"), False
    return None, False
