"""Before a ready call runs: what the policy, hooks and people say to it.

In this order: hooks may deny, rewrite or ask; the policy (or, without one, the tool's own terms) decides; who is
asked is the program's own `confirm` where there is one, else the desk, else nobody, which is a denial. An approval of
the desk is used, and what would run is bound anew, by `redeem` at the last moment before the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from acting.approvals.deferred import Resumed
from acting.approvals.parking import parked
from acting.approvals.policy import Ruling, trust_in
from acting.approvals.service import Office
from acting.calls import Scope, fault, wire_of
from acting.run.budget import refused
from acting.run.call.call_state import Proposal, objection_to
from acting.run.confirm import Confirm, ask
from acting.run.runtime import Stage
from acting.tooling.parameters import check_finite
from spar.data.blackboard import Board
from spar.data.paths import copied, escape, marked, parse_write
from spar.errors import SparError
from spar.events import ApprovalExpired, ApprovalRequested, ApprovalResolved
from spar.records.approvals import Approval
from spar.types import Call, CallResult, Fault, Trust, replace


def passes(stage: Stage, proposal: Proposal, scope: Scope) -> bool:
    """Whether a call may run with nobody asked, found out without waiting: most may."""
    hooks, office, spending = stage.hooks, stage.office, stage.spending
    if hooks is not None and hooks.at("before_call"):
        return False
    is_let = proposal.entry.terms.approval == "auto" if office is None else _is_let(stage, office, proposal, scope)
    return is_let and (spending is None or spending.admits(proposal, scope))


def _is_let(stage: Stage, office: Office, proposal: Proposal, scope: Scope) -> bool:
    """Whether the policy lets it run without anybody being asked."""
    if office.parked.known and office.parked.of(proposal.call) is not None:
        return False
    trust = office.taint.judge(proposal.call, proposal.entry, trust_in(proposal.call, scope.trust), scope)
    return office.policy.lets(proposal.entry.terms, trust) or _ruling(stage, proposal, trust, scope).decision == "auto"


async def pass_gate(
    stage: Stage,
    board: Board,
    proposal: Proposal,
    confirm: Confirm | None,
    scope: Scope,
    is_done: Callable[[str], bool],
    may_ask: Callable[[], bool],
) -> tuple[CallResult | None, bool]:
    """What stands against running it (None: nothing), and whether a hook ends the run.

    `may_ask` is called before people are asked; if they need not be any more, nothing is said against it.
    """
    resumed = stage.office.parked.of(proposal.call) if stage.office is not None else None
    trust = judged(stage, proposal, scope.trust if resumed is None else resumed.trust, scope)
    if resumed is not None:
        proposal.ticket = resumed.approval
        if resumed.is_unclear and proposal.entry.effect_of(proposal.params) == "once":
            return _unclear(proposal, "it was on its way when the process ended"), False
    is_asked, why = False, ""
    if stage.asks("before_call"):
        shown = proposal.shown()
        outcome = await stage.consult("before_call", shown, scope)
        if outcome.denied:
            return _denied(proposal, outcome.reason or "a hook denied it"), outcome.stop_run
        is_asked, why = outcome.needs_approval, outcome.reason
        if outcome.value is not shown:
            if not isinstance(outcome.value, Call):
                return _denied(proposal, f"a hook put a {type(outcome.value).__name__} in the call's place"), False
            proposed = proposal.call
            if wrong := proposal.swap(stage.catalog, board, outcome.value, is_done):
                return CallResult(proposal.call, "failed", fault=wrong), False
            proposal.corrected(proposed, "rewrite", "hook", outcome.reason)
            trust = judged(stage, proposal, trust, scope)
    ruling = _ruling(stage, proposal, trust, scope)
    if ruling.decision == "deny":
        return _denied(proposal, ruling.why), False
    if resumed is not None and resumed.approval:
        return await _resumed(stage, proposal, trust, scope, resumed), False
    spent = stage.spending.against(proposal, scope) if stage.spending is not None else ""
    if not spent and not is_asked and ruling.decision == "auto":
        return None, False
    why = spent or why or ruling.why
    if spent and confirm is None and stage.office is None:
        return refused(proposal.call, spent), False
    if stage.guard.is_refused(scope.run_id, proposal.call.tool, proposal.params):
        return _denied(proposal, "it was denied in this run before, twice, and that is final: do not retry"), False
    if not may_ask():
        return None, False
    if confirm is None and stage.office is not None:
        return await _asked(stage, proposal, trust, scope, why, is_spent=bool(spent)), False
    return await _confirmed(stage, board, proposal, confirm, trust, scope, is_done, why), False


async def redeem(stage: Stage, proposal: Proposal) -> CallResult | None:
    """Use the approval that a call passed the gate with, right before it starts; what stands against that."""
    assert stage.office is not None
    ticket, proposal.ticket, desk = proposal.ticket, "", stage.office.desk
    use = await desk.use(ticket, desk.binder.of(proposal.call, proposal.entry, proposal.params))
    if not use.kind:
        proposal.binds = use.binds
        return None
    return _denied(proposal, use.why, "expired" if use.kind == "expired" else "denied", use.kind)


# -- who is asked


async def _confirmed(
    stage: Stage,
    board: Board,
    proposal: Proposal,
    confirm: Confirm | None,
    trust: Trust,
    scope: Scope,
    is_done: Callable[[str], bool],
    why: str,
) -> CallResult | None:
    """What the program's own approver says."""
    _tell(stage, scope, ApprovalRequested, proposal.call)
    try:
        verdict = await ask(stage, confirm, proposal.shown())
    except asyncio.CancelledError:
        _tell(
            stage, scope, ApprovalResolved, proposal.call, decision="void", reason="the call is not to start any more"
        )
        raise
    if verdict is None:
        _tell(stage, scope, ApprovalExpired, proposal.call)
        return _denied(proposal, f"nobody answered within {stage.approval_timeout:g} s", "expired")
    _tell(stage, scope, ApprovalResolved, proposal.call, decision=verdict.decision, reason=verdict.reason or why)
    if verdict.decision == "approve":
        return None
    if verdict.decision == "deny":
        return _denied(proposal, verdict.reason or "it was not approved")
    try:
        new = verdict.call if verdict.decision == "replace" else replace(proposal.call, params=verdict.params or {})
    except TypeError as error:
        return CallResult(proposal.call, "failed", fault=fault("bad_call", str(error), proposal.call.tool))
    assert new is not None
    proposed = proposal.call
    if wrong := proposal.swap(stage.catalog, board, new, is_done):
        return CallResult(proposal.call, "failed", fault=wrong)
    proposal.corrected(proposed, verdict.decision, "confirm", verdict.reason)
    ruling = _ruling(stage, proposal, trust, scope)
    return _denied(proposal, ruling.why) if ruling.decision == "deny" else None


async def _asked(stage: Stage, proposal: Proposal, trust: Trust, scope: Scope, why: str, *,
                 is_spent: bool) -> CallResult | None:  # fmt: skip
    """What people say at the desk, as long as the call may wait for them. No grant speaks for a spent budget."""
    assert stage.office is not None
    desk = stage.office.desk
    binding = desk.binder.of(proposal.call, proposal.entry, proposal.params)
    try:
        if not is_spent and (found := await desk.granted(binding, scope.session)):
            grant, proposal.binds = found
            said = (
                f"grant {grant.id} by {grant.granted_by} until {grant.expires_at:%Y-%m-%d %H:%M} UTC, use {grant.uses}"
            )
            _tell(stage, scope, ApprovalResolved, proposal.call, decision="approve", reason=said)
            return None
        row, is_own = await desk.ask(
            binding, why=why, trust=trust, session=scope.session, cycle_id=scope.cycle_id, run_id=scope.run_id
        )
        proposal.ticket, proposal.is_guest = row.id, not is_own
        if is_own and row.status == "pending":
            meta = {**proposal.call.meta, "_approval": row.id}
            _tell(stage, scope, ApprovalRequested, replace(proposal.call, meta=meta))
        row = await desk.answer(row.id, 0.0 if row.is_parked and not is_own else stage.office.hold)
    except (SparError, LookupError, ValueError, TypeError) as error:
        message = f"it could not be asked about: {error}"
        return refused(proposal.call, f"{why}, and {message}") if is_spent else _denied(proposal, message)
    return _answered(stage, proposal, trust, scope, row)


async def _resumed(stage: Stage, proposal: Proposal, trust: Trust, scope: Scope, resumed: Resumed) -> CallResult | None:
    """What people have said since an earlier cycle went on without this call."""
    assert stage.office is not None
    row = stage.office.desk.known(resumed.approval)
    if row is None:
        return _denied(proposal, f"its approval {resumed.approval!r} is gone")
    proposal.ticket = row.id
    if row.status == "used":
        proposal.ticket = ""
        return _unclear(proposal, f"approval {row.id!r} was used before")
    return _answered(stage, proposal, trust, scope, row)


def _answered(stage: Stage, proposal: Proposal, trust: Trust, scope: Scope, row: Approval) -> CallResult | None:
    """What an approval means for its call now; its ticket is kept where something may still come of it."""
    if row.status == "pending" and stage.clock.now() < row.expires_at:
        return parked(proposal.call, f"it waits for approval {row.id!r}")
    if row.status == "approved":
        wrong = _adopt(stage, proposal, row) if row.original is not None else None
        if wrong is not None:
            return CallResult(proposal.call, "failed", fault=wrong)
        ruling = _ruling(stage, proposal, trust, scope)
        return _denied(proposal, ruling.why) if ruling.decision == "deny" else None
    proposal.ticket = ""
    if row.status in ("pending", "expired"):
        return _denied(proposal, f"nobody answered approval {row.id!r} in time", "expired")
    if row.status == "used":
        return _denied(proposal, f"approval {row.id!r} let the same call run already, and is used once")
    by = f" by {row.decided_by}" if row.decided_by else ""
    return _denied(proposal, row.reason or f"it was not approved{by}")


def _adopt(stage: Stage, proposal: Proposal, row: Approval) -> Fault | None:
    """Put the call that people made of it in its place, under its id; what is wrong with it now, if anything."""
    assert stage.office is not None
    assert row.original is not None
    call = row.call
    try:
        binding = stage.office.desk.binder.again(call)
        check_finite(call.tool, call.params)
        arguments = binding.entry.parameters.validate(call.params)
    except ValueError as error:
        return fault("bad_parameters", str(error), call.tool)
    old = proposal.call
    meta = {**call.meta, "_original": old.meta.get("_original", wire_of(old))}
    if "_parked" in old.meta:
        meta["_parked"] = old.meta["_parked"]
    literal = escape(call.params, frozenset(marked(call.params)))
    proposal.call = replace(call, params=literal, id=old.id, after=old.after, instance=old.instance, meta=meta)
    proposal.entry, proposal.arguments, proposal.params = binding.entry, arguments, copied(call.params)
    proposal.target = None if call.output_path is None else parse_write(call.output_path)
    is_edit = replace(row.original, params=call.params) == call
    proposal.corrected(old, "edit" if is_edit else "replace", row.decided_by, row.reason)
    return objection_to(proposal.call, proposal.entry, proposal.target)


# -- what is said


def _ruling(stage: Stage, proposal: Proposal, trust: Trust, scope: Scope) -> Ruling:
    entry, call = proposal.entry, proposal.call
    if stage.office is None:
        if entry.terms.approval == "deny":
            return Ruling("deny", f"tool {entry.name!r} may not be called: its approval is 'deny'")
        return Ruling(entry.terms.approval)
    effect = entry.effect_of(proposal.params)
    return stage.office.policy.decide(entry.terms, effect, call, proposal.arguments, trust, scope.session)


def judged(stage: Stage, proposal: Proposal, trust: Trust, scope: Scope) -> Trust:
    """How far a call may be trusted that is trusted so far apart from itself and what it reads; notes its writes."""
    trust = trust_in(proposal.call, trust)
    return trust if stage.office is None else stage.office.taint.judge(proposal.call, proposal.entry, trust, scope)


def _unclear(proposal: Proposal, why: str) -> CallResult:
    message = f"{why} and nobody knows what became of the call: find out"
    return CallResult(proposal.call, "in_doubt", fault=fault("in_doubt", message, proposal.call.tool))


def _denied(proposal: Proposal, message: str, reason: str = "denied", kind: str = "denied") -> CallResult:
    return CallResult(proposal.call, "denied", reason, fault=fault(kind, message, proposal.call.tool))


def _tell(stage: Stage, scope: Scope, kind: Callable[..., Any], call: Call, **fields: Any) -> None:
    if stage.events is not None:
        stage.tell(kind, call=call, cycle_id=scope.cycle_id, run_id=stage.run_of(call, scope), **fields)
