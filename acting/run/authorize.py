"""Before a ready call runs: what the policy, hooks and people say to it.

In this order: hooks may deny, rewrite or ask; the policy (or, without one, the tool's own terms) decides; who is
asked is the program's own `confirm` where there is one, else the queue, else nobody, which is a denial. An approval of
the queue is used, and what would run is bound anew, by `redeem` at the last moment before the start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from acting.approvals.deferred import Resumed
from acting.approvals.parking import parked
from acting.approvals.policy import Ruling, trust_in
from acting.approvals.service import ApprovalService
from acting.calls import Scope, fault, wire_of
from acting.run.budget import refused
from acting.run.call.call_state import PreparedCall, objection_to
from acting.run.confirm import Confirm, ask
from acting.run.runtime import Runtime
from acting.tooling.parameters import check_finite
from spar.data.blackboard import Board
from spar.data.paths import copied, escape, marked, parse_write
from spar.errors import SparError
from spar.events import ApprovalExpired, ApprovalRequested, ApprovalResolved
from spar.records.approvals import Approval
from spar.types import Call, CallResult, Fault, Trust, replace


def is_authorized(runtime: Runtime, prepared: PreparedCall, scope: Scope) -> bool:
    """Return whether a call may run with nobody asked, found out without waiting: most may."""
    hooks, approvals, spending = runtime.hooks, runtime.approvals, runtime.spending
    if hooks is not None and hooks.at("before_call"):
        return False
    is_let = (
        prepared.entry.terms.approval == "auto" if approvals is None else _is_let(runtime, approvals, prepared, scope)
    )
    return is_let and (spending is None or spending.admits(prepared, scope))


def _is_let(runtime: Runtime, approvals: ApprovalService, prepared: PreparedCall, scope: Scope) -> bool:
    """Return whether the policy lets it run without anybody being asked."""
    if approvals.parked.known and approvals.parked.of(prepared.call) is not None:
        return False
    trust = approvals.taint.judge(prepared.call, prepared.entry, trust_in(prepared.call, scope.trust), scope)
    return (
        approvals.policy.lets(prepared.entry.terms, trust)
        or _ruling(runtime, prepared, trust, scope).decision == "auto"
    )


async def authorize(
    runtime: Runtime,
    board: Board,
    prepared: PreparedCall,
    confirm: Confirm | None,
    scope: Scope,
    is_done: Callable[[str], bool],
    may_ask: Callable[[], bool],
) -> tuple[CallResult | None, bool]:
    """Return the result of a call that may not run (None: it may), and whether a hook ends the run.

    `may_ask` is called before people are asked; if they need not be any more, nothing is said against it.
    """
    resumed = runtime.approvals.parked.of(prepared.call) if runtime.approvals is not None else None
    trust = judge_trust(runtime, prepared, scope.trust if resumed is None else resumed.trust, scope)
    if resumed is not None:
        prepared.approval_id = resumed.approval
        if resumed.is_unclear and prepared.entry.effect_of(prepared.params) == "once":
            return _unclear(prepared, "it was on its way when the process ended"), False
    is_asked, why = False, ""
    if runtime.asks("before_call"):
        shown = prepared.shown()
        outcome = await runtime.consult("before_call", shown, scope)
        if outcome.denied:
            return _denied(prepared, outcome.reason or "a hook denied it"), outcome.stop_run
        is_asked, why = outcome.needs_approval, outcome.reason
        if outcome.value is not shown:
            if not isinstance(outcome.value, Call):
                return _denied(prepared, f"a hook put a {type(outcome.value).__name__} in the call's place"), False
            proposed = prepared.call
            if wrong := prepared.swap(runtime.catalog, board, outcome.value, is_done):
                return CallResult(prepared.call, "failed", fault=wrong), False
            prepared.corrected(proposed, "rewrite", "hook", outcome.reason)
            trust = judge_trust(runtime, prepared, trust, scope)
    ruling = _ruling(runtime, prepared, trust, scope)
    if ruling.decision == "deny":
        return _denied(prepared, ruling.why), False
    if resumed is not None and resumed.approval:
        return await _resumed(runtime, prepared, trust, scope, resumed), False
    spent = runtime.spending.against(prepared, scope) if runtime.spending is not None else ""
    if not spent and not is_asked and ruling.decision == "auto":
        return None, False
    why = spent or why or ruling.why
    if spent and confirm is None and runtime.approvals is None:
        return refused(prepared.call, spent), False
    if runtime.guard.is_refused(scope.run_id, prepared.call.tool, prepared.params):
        return _denied(prepared, "it was denied in this run before, twice, and that is final: do not retry"), False
    if not may_ask():
        return None, False
    if confirm is None and runtime.approvals is not None:
        return await _asked(runtime, prepared, trust, scope, why, is_spent=bool(spent)), False
    return await _confirmed(runtime, board, prepared, confirm, trust, scope, is_done, why), False


async def redeem(runtime: Runtime, prepared: PreparedCall) -> CallResult | None:
    """Use the approval that let a call pass, right before it starts; return what stands against it."""
    assert runtime.approvals is not None
    approval_id, prepared.approval_id, queue = prepared.approval_id, "", runtime.approvals.queue
    use = await queue.use(approval_id, queue.fingerprinter.of(prepared.call, prepared.entry, prepared.params))
    if not use.kind:
        prepared.binds = use.binds
        return None
    return _denied(prepared, use.why, "expired" if use.kind == "expired" else "denied", use.kind)


# -- who is asked


async def _confirmed(
    runtime: Runtime,
    board: Board,
    prepared: PreparedCall,
    confirm: Confirm | None,
    trust: Trust,
    scope: Scope,
    is_done: Callable[[str], bool],
    why: str,
) -> CallResult | None:
    """Ask the program's own approver; return the result of a call that may not run."""
    _tell(runtime, scope, ApprovalRequested, prepared.call)
    try:
        verdict = await ask(runtime, confirm, prepared.shown())
    except asyncio.CancelledError:
        _tell(
            runtime, scope, ApprovalResolved, prepared.call, decision="void", reason="the call is not to start any more"
        )
        raise
    if verdict is None:
        _tell(runtime, scope, ApprovalExpired, prepared.call)
        return _denied(prepared, f"nobody answered within {runtime.approval_timeout:g} s", "expired")
    _tell(runtime, scope, ApprovalResolved, prepared.call, decision=verdict.decision, reason=verdict.reason or why)
    if verdict.decision == "approve":
        return None
    if verdict.decision == "deny":
        return _denied(prepared, verdict.reason or "it was not approved")
    try:
        new = verdict.call if verdict.decision == "replace" else replace(prepared.call, params=verdict.params or {})
    except TypeError as error:
        return CallResult(prepared.call, "failed", fault=fault("bad_call", str(error), prepared.call.tool))
    assert new is not None
    proposed = prepared.call
    if wrong := prepared.swap(runtime.catalog, board, new, is_done):
        return CallResult(prepared.call, "failed", fault=wrong)
    prepared.corrected(proposed, verdict.decision, "confirm", verdict.reason)
    ruling = _ruling(runtime, prepared, trust, scope)
    return _denied(prepared, ruling.why) if ruling.decision == "deny" else None


async def _asked(runtime: Runtime, prepared: PreparedCall, trust: Trust, scope: Scope, why: str, *,
                 is_spent: bool) -> CallResult | None:  # fmt: skip
    """Ask people through the queue, as long as the call may wait for them. No grant speaks for a spent budget."""
    assert runtime.approvals is not None
    queue = runtime.approvals.queue
    bound_call = queue.fingerprinter.of(prepared.call, prepared.entry, prepared.params)
    try:
        if not is_spent and (found := await queue.granted(bound_call, scope.session)):
            grant, prepared.binds = found
            said = (
                f"grant {grant.id} by {grant.granted_by} until {grant.expires_at:%Y-%m-%d %H:%M} UTC, use {grant.uses}"
            )
            _tell(runtime, scope, ApprovalResolved, prepared.call, decision="approve", reason=said)
            return None
        row, is_own = await queue.ask(
            bound_call, why=why, trust=trust, session=scope.session, cycle_id=scope.cycle_id, run_id=scope.run_id
        )
        prepared.approval_id, prepared.is_guest = row.id, not is_own
        if is_own and row.status == "pending":
            meta = {**prepared.call.meta, "_approval": row.id}
            _tell(runtime, scope, ApprovalRequested, replace(prepared.call, meta=meta))
        row = await queue.answer(row.id, 0.0 if row.is_parked and not is_own else runtime.approvals.hold)
    except (SparError, LookupError, ValueError, TypeError) as error:
        message = f"it could not be asked about: {error}"
        return refused(prepared.call, f"{why}, and {message}") if is_spent else _denied(prepared, message)
    return _answered(runtime, prepared, trust, scope, row)


async def _resumed(
    runtime: Runtime, prepared: PreparedCall, trust: Trust, scope: Scope, resumed: Resumed
) -> CallResult | None:
    """Apply the decision that people made since an earlier cycle went on without this call."""
    assert runtime.approvals is not None
    row = runtime.approvals.queue.known(resumed.approval)
    if row is None:
        return _denied(prepared, f"its approval {resumed.approval!r} is gone")
    prepared.approval_id = row.id
    if row.status == "used":
        prepared.approval_id = ""
        return _unclear(prepared, f"approval {row.id!r} was used before")
    return _answered(runtime, prepared, trust, scope, row)


def _answered(runtime: Runtime, prepared: PreparedCall, trust: Trust, scope: Scope, row: Approval) -> CallResult | None:
    """Return what an approval means for its call now; its id is kept where something may still come of it."""
    if row.status == "pending" and runtime.clock.now() < row.expires_at:
        return parked(prepared.call, f"it waits for approval {row.id!r}")
    if row.status == "approved":
        wrong = _adopt(runtime, prepared, row) if row.original is not None else None
        if wrong is not None:
            return CallResult(prepared.call, "failed", fault=wrong)
        ruling = _ruling(runtime, prepared, trust, scope)
        return _denied(prepared, ruling.why) if ruling.decision == "deny" else None
    prepared.approval_id = ""
    if row.status in ("pending", "expired"):
        return _denied(prepared, f"nobody answered approval {row.id!r} in time", "expired")
    if row.status == "used":
        return _denied(prepared, f"approval {row.id!r} let the same call run already, and is used once")
    by = f" by {row.decided_by}" if row.decided_by else ""
    return _denied(prepared, row.reason or f"it was not approved{by}")


def _adopt(runtime: Runtime, prepared: PreparedCall, row: Approval) -> Fault | None:
    """Put the call that people made of it in its place, under its id; what is wrong with it now, if anything."""
    assert runtime.approvals is not None
    assert row.original is not None
    call = row.call
    try:
        bound_call = runtime.approvals.queue.fingerprinter.again(call)
        check_finite(call.tool, call.params)
        arguments = bound_call.entry.parameters.validate(call.params)
    except ValueError as error:
        return fault("bad_parameters", str(error), call.tool)
    old = prepared.call
    meta = {**call.meta, "_original": old.meta.get("_original", wire_of(old))}
    if "_parked" in old.meta:
        meta["_parked"] = old.meta["_parked"]
    literal = escape(call.params, frozenset(marked(call.params)))
    prepared.call = replace(call, params=literal, id=old.id, after=old.after, instance=old.instance, meta=meta)
    prepared.entry, prepared.arguments, prepared.params = bound_call.entry, arguments, copied(call.params)
    prepared.target = None if call.output_path is None else parse_write(call.output_path)
    is_edit = replace(row.original, params=call.params) == call
    prepared.corrected(old, "edit" if is_edit else "replace", row.decided_by, row.reason)
    return objection_to(prepared.call, prepared.entry, prepared.target)


# -- what is said


def _ruling(runtime: Runtime, prepared: PreparedCall, trust: Trust, scope: Scope) -> Ruling:
    entry, call = prepared.entry, prepared.call
    if runtime.approvals is None:
        if entry.terms.approval == "deny":
            return Ruling("deny", f"tool {entry.name!r} may not be called: its approval is 'deny'")
        return Ruling(entry.terms.approval)
    effect = entry.effect_of(prepared.params)
    return runtime.approvals.policy.decide(entry.terms, effect, call, prepared.arguments, trust, scope.session)


def judge_trust(runtime: Runtime, prepared: PreparedCall, trust: Trust, scope: Scope) -> Trust:
    """Return the trust in a call, given that of its plan and what it reads; note what it writes."""
    trust = trust_in(prepared.call, trust)
    return (
        trust
        if runtime.approvals is None
        else runtime.approvals.taint.judge(prepared.call, prepared.entry, trust, scope)
    )


def _unclear(prepared: PreparedCall, why: str) -> CallResult:
    message = f"{why} and nobody knows what became of the call: find out"
    return CallResult(prepared.call, "in_doubt", fault=fault("in_doubt", message, prepared.call.tool))


def _denied(prepared: PreparedCall, message: str, reason: str = "denied", kind: str = "denied") -> CallResult:
    return CallResult(prepared.call, "denied", reason, fault=fault(kind, message, prepared.call.tool))


def _tell(runtime: Runtime, scope: Scope, kind: Callable[..., Any], call: Call, **fields: Any) -> None:
    if runtime.events is not None:
        runtime.tell(kind, call=call, cycle_id=scope.cycle_id, run_id=runtime.run_of(call, scope), **fields)
