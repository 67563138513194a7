"""Before a ready call runs: what the policy, hooks and people say to it.

In this order: hooks may deny, rewrite or ask; the policy (or, without one, the tool's own terms) decides; who is
asked is the program's own `confirm` where there is one, else the queue, else nobody, which is a denial. An approval of
the queue is used, and what would run is bound anew, by `redeem` at the last moment before the start. A plan may have
people asked about a call that nothing else asks about (`_ask`), and never the other way round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from acting.approvals.deferred import Resumed
from acting.approvals.parking import parked
from acting.approvals.policy import Ruling, trust_in
from acting.approvals.service import ApprovalService
from acting.calls import Scope, fault
from acting.run.call.call_state import Step, objection_to, wire_of
from acting.run.confirm import Confirm, ask
from acting.run.shared.budget import refused
from acting.run.shared.runtime import Runtime
from acting.tooling.parameters import check_finite
from spar.data.blackboard import Board
from spar.data.paths import copied, escape, marked, parse_write
from spar.data.text import safe_line
from spar.errors import SparError
from spar.events import ApprovalExpired, ApprovalRequested, ApprovalResolved
from spar.records.approvals import Approval
from spar.types import ASKED, Call, CallResult, Fault, Trust, replace


def is_authorized(runtime: Runtime, step: Step, scope: Scope) -> bool:
    """Return whether a call may run with nobody asked, found out without waiting: most may."""
    hooks, approvals, spending = runtime.hooks, runtime.approvals, runtime.spending
    if (hooks is not None and "before_call" in hooks.used) or ASKED in step.call.meta:
        return False
    is_let = step.entry.terms.approval == "auto" if approvals is None else _is_let(runtime, approvals, step, scope)
    return is_let and (spending is None or not spending.budgets.limits_calls or spending.admits(step, scope))


def _is_let(runtime: Runtime, approvals: ApprovalService, step: Step, scope: Scope) -> bool:
    """Return whether the policy lets it run without anybody being asked."""
    if approvals.parked.known and approvals.parked.of(step.call) is not None:
        return False
    taint, entry, trust = approvals.taint, step.entry, scope.trust
    if trust == "untrusted" or taint.runs or entry.terms.brings_untrusted or "_trust" in step.call.meta:
        trust = taint.judge(step.call, entry, trust_in(step.call, trust), scope)
    if entry.is_let and not approvals.policy.rules and (trust == "trusted" or entry.terms.safe_with_untrusted):
        return True  # as the policy would decide, whatever the parameters are
    return _ruling(runtime, step, trust, scope).decision == "auto"


async def authorize(
    runtime: Runtime,
    board: Board,
    step: Step,
    confirm: Confirm | None,
    scope: Scope,
    is_done: Callable[[str], bool],
    may_ask: Callable[[], bool],
) -> tuple[CallResult | None, bool]:
    """Return the result of a call that may not run (None: it may), and whether a hook ends the run.

    `may_ask` is called before people are asked; if they need not be any more, nothing is said against it.
    """
    resumed = runtime.approvals.parked.of(step.call) if runtime.approvals is not None else None
    trust = judge_trust(runtime, step, scope.trust if resumed is None else resumed.trust, scope)
    if resumed is not None:
        step.approval_id = resumed.approval
        if resumed.is_unclear and step.entry.effect_of(step.params) == "once":
            return _unclear(step, "it was on its way when the process ended"), False
    is_asked, why = ASKED in step.call.meta, safe_line(step.call.meta.get(ASKED, ""))
    if runtime.asks("before_call"):
        shown = step.shown()
        outcome = await runtime.consult("before_call", shown, scope)
        if outcome.denied:
            return _denied(step, outcome.reason or "a hook denied it"), outcome.stop_run
        is_asked, why = is_asked or outcome.needs_approval, outcome.reason or why
        if outcome.value is not shown:
            if not isinstance(outcome.value, Call):
                return _denied(step, f"a hook put a {type(outcome.value).__name__} in the call's place"), False
            proposed = step.call
            if wrong := step.swap(runtime.catalog, board, outcome.value, is_done):
                return CallResult(step.call, "failed", fault=wrong), False
            step.corrected(proposed, "rewrite", "hook", outcome.reason)
            trust = judge_trust(runtime, step, trust, scope)
    ruling = _ruling(runtime, step, trust, scope)
    if ruling.decision == "deny":
        return _denied(step, ruling.why), False
    if resumed is not None and resumed.approval:
        return await _resumed(runtime, step, trust, scope, resumed), False
    spent = runtime.spending.against(step, scope) if runtime.spending is not None else ""
    if not spent and not is_asked and ruling.decision == "auto":
        return None, False
    why = spent or why or ruling.why
    if spent and confirm is None and runtime.approvals is None:
        return refused(step.call, spent), False
    if runtime.guard.is_refused(scope.run_id, step.call.tool, step.params):
        return _denied(step, "it was denied in this run before, twice, and that is final: do not retry"), False
    if not may_ask():
        return None, False
    if confirm is None and runtime.approvals is not None:
        return await _asked(runtime, step, trust, scope, why, is_spent=bool(spent)), False
    return await _confirmed(runtime, board, step, confirm, trust, scope, is_done, why), False


async def redeem(runtime: Runtime, step: Step) -> CallResult | None:
    """Use the approval that let a call pass, right before it starts; return what stands against it."""
    assert runtime.approvals is not None
    approval_id, step.approval_id, queue = step.approval_id, "", runtime.approvals.queue
    use = await queue.use(approval_id, queue.fingerprinter.of(step.call, step.entry, step.params))
    if not use.kind:
        step.binds = use.binds
        return None
    return _denied(step, use.why, "expired" if use.kind == "expired" else "denied", use.kind)


# -- who is asked


async def _confirmed(
    runtime: Runtime,
    board: Board,
    step: Step,
    confirm: Confirm | None,
    trust: Trust,
    scope: Scope,
    is_done: Callable[[str], bool],
    why: str,
) -> CallResult | None:
    """Ask the program's own approver; return the result of a call that may not run."""
    runtime.tell_of(ApprovalRequested, step.call, scope)
    try:
        verdict = await ask(runtime, confirm, step.shown())
    except asyncio.CancelledError:
        runtime.tell_of(ApprovalResolved, step.call, scope, decision="void", reason="the call is not to start any more")
        raise
    if verdict is None:
        runtime.tell_of(ApprovalExpired, step.call, scope)
        return _denied(step, f"nobody answered within {runtime.approval_timeout:g} s", "expired")
    runtime.tell_of(ApprovalResolved, step.call, scope, decision=verdict.decision, reason=verdict.reason or why)
    if verdict.decision == "approve":
        return None
    if verdict.decision == "deny":
        return _denied(step, verdict.reason or "it was not approved")
    try:
        new = verdict.call if verdict.decision == "replace" else replace(step.call, params=verdict.params or {})
    except TypeError as error:
        return CallResult(step.call, "failed", fault=fault("bad_call", str(error), step.call.tool))
    assert new is not None
    proposed = step.call
    if wrong := step.swap(runtime.catalog, board, new, is_done):
        return CallResult(step.call, "failed", fault=wrong)
    step.corrected(proposed, verdict.decision, "confirm", verdict.reason)
    ruling = _ruling(runtime, step, trust, scope)
    return _denied(step, ruling.why) if ruling.decision == "deny" else None


async def _asked(runtime: Runtime, step: Step, trust: Trust, scope: Scope, why: str, *,
                 is_spent: bool) -> CallResult | None:  # fmt: skip
    """Ask people through the queue, as long as the call may wait for them. No grant speaks for a spent budget."""
    assert runtime.approvals is not None
    queue = runtime.approvals.queue
    bound_call = queue.fingerprinter.of(step.call, step.entry, step.params)
    try:
        if not is_spent and (found := await queue.granted(bound_call, scope.session)):
            grant, step.binds = found
            said = (
                f"grant {grant.id} by {grant.granted_by} until {grant.expires_at:%Y-%m-%d %H:%M} UTC, use {grant.uses}"
            )
            runtime.tell_of(ApprovalResolved, step.call, scope, decision="approve", reason=said)
            return None
        row, is_own = await queue.ask(
            bound_call, why=why, trust=trust, session=scope.session, cycle_id=scope.cycle_id, run_id=scope.run_id
        )
        step.approval_id, step.is_guest = row.id, not is_own
        if is_own and row.status == "pending":
            meta = {**step.call.meta, "_approval": row.id}
            runtime.tell_of(ApprovalRequested, replace(step.call, meta=meta), scope)
        row = await queue.answer(row.id, 0.0 if row.is_parked and not is_own else runtime.approvals.hold)
    except (SparError, LookupError, ValueError, TypeError) as error:
        message = f"it could not be asked about: {error}"
        return refused(step.call, f"{why}, and {message}") if is_spent else _denied(step, message)
    return _answered(runtime, step, trust, scope, row)


async def _resumed(runtime: Runtime, step: Step, trust: Trust, scope: Scope, resumed: Resumed) -> CallResult | None:
    """Apply the decision that people made since an earlier cycle went on without this call."""
    assert runtime.approvals is not None
    row = runtime.approvals.queue.known(resumed.approval)
    if row is None:
        return _denied(step, f"its approval {resumed.approval!r} is gone")
    step.approval_id = row.id
    if row.status == "used":
        step.approval_id = ""
        return _unclear(step, f"approval {row.id!r} was used before")
    return _answered(runtime, step, trust, scope, row)


def _answered(runtime: Runtime, step: Step, trust: Trust, scope: Scope, row: Approval) -> CallResult | None:
    """Return what an approval means for its call now; its id is kept where something may still come of it."""
    if row.status == "pending" and runtime.clock.now() < row.expires_at:
        return parked(step.call, f"it waits for approval {row.id!r}")
    if row.status == "approved":
        wrong = _adopt(runtime, step, row) if row.original is not None else None
        if wrong is not None:
            return CallResult(step.call, "failed", fault=wrong)
        ruling = _ruling(runtime, step, trust, scope)
        return _denied(step, ruling.why) if ruling.decision == "deny" else None
    step.approval_id = ""
    if row.status in ("pending", "expired"):
        return _denied(step, f"nobody answered approval {row.id!r} in time", "expired")
    if row.status == "used":
        return _denied(step, f"approval {row.id!r} let the same call run already, and is used once")
    by = f" by {row.decided_by}" if row.decided_by else ""
    return _denied(step, row.reason or f"it was not approved{by}")


def _adopt(runtime: Runtime, step: Step, row: Approval) -> Fault | None:
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
    old = step.call
    meta = {**call.meta, "_original": old.meta.get("_original", wire_of(old))}
    if "_parked" in old.meta:
        meta["_parked"] = old.meta["_parked"]
    literal = escape(call.params, frozenset(marked(call.params)))
    step.call = replace(call, params=literal, id=old.id, after=old.after, instance=old.instance, meta=meta)
    step.entry, step.arguments, step.params = bound_call.entry, arguments, copied(call.params)
    step.target = None if call.output_path is None else parse_write(call.output_path)
    is_edit = replace(row.original, params=call.params) == call
    step.corrected(old, "edit" if is_edit else "replace", row.decided_by, row.reason)
    return objection_to(step.call, step.entry, step.target)


# -- what is said


def _ruling(runtime: Runtime, step: Step, trust: Trust, scope: Scope) -> Ruling:
    entry, call = step.entry, step.call
    if runtime.approvals is None:
        if entry.terms.approval == "deny":
            return Ruling("deny", f"tool {entry.name!r} may not be called: its approval is 'deny'")
        return Ruling(entry.terms.approval)
    effect = entry.effect_of(step.params)
    return runtime.approvals.policy.decide(entry.terms, effect, call, step.arguments, trust, scope.session)


def judge_trust(runtime: Runtime, step: Step, trust: Trust, scope: Scope) -> Trust:
    """Return the trust in a call, given that of its plan and what it reads; note what it writes."""
    trust = trust_in(step.call, trust)
    return trust if runtime.approvals is None else runtime.approvals.taint.judge(step.call, step.entry, trust, scope)


def _unclear(step: Step, why: str) -> CallResult:
    message = f"{why} and nobody knows what became of the call: find out"
    return CallResult(step.call, "in_doubt", fault=fault("in_doubt", message, step.call.tool))


def _denied(step: Step, message: str, reason: str = "denied", kind: str = "denied") -> CallResult:
    return CallResult(step.call, "denied", reason, fault=fault(kind, message, step.call.tool))
