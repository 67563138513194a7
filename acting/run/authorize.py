"""Authorization of ready calls by hooks, policy and people.

The order: hooks may deny or rewrite a call, or demand that people are asked. Then the policy decides (without a policy
the tool's own terms). If people must be asked, the embedding program's `confirm` is asked where there is one, else the
queue of approvals; without both the call is denied. `redeem` uses an approval of the queue at the last moment before
the start, and checks that the call is still the approved one. A plan may demand that people are asked about a call
(`_ask`); it can never prevent that they are asked.

Calls that read data from outside are untrusted, whatever the trust in their plan; the *taint* records such data. A call
that people change runs with the id of the original call.
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
    """Return whether a call may run without asking anybody. This never waits, and most calls may."""
    hooks, approvals, spending = runtime.hooks, runtime.approvals, runtime.spending
    if (hooks is not None and "before_call" in hooks.used) or ASKED in step.call.meta:
        return False
    is_allowed = (
        step.entry.terms.approval == "auto" if approvals is None else _is_allowed(runtime, approvals, step, scope)
    )
    return is_allowed and (spending is None or not spending.budgets.limits_calls or spending.admits(step, scope))


def _is_allowed(runtime: Runtime, approvals: ApprovalService, step: Step, scope: Scope) -> bool:
    """Return whether the policy lets a call run without asking anybody."""
    if approvals.parked.known and approvals.parked.of(step.call) is not None:
        return False
    entry, trust = step.entry, scope.trust
    if trust == "untrusted" or approvals.taint.runs or entry.terms.brings_untrusted or "_trust" in step.call.meta:
        trust = judge_trust(runtime, step, trust, scope)
    if entry.is_let and not approvals.policy.rules and (trust == "trusted" or entry.terms.safe_with_untrusted):
        return True  # the same decision for all parameters, so the policy need not look at them
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
    """Return the result of a call that may not run (None if it may), and whether a hook ends the run.

    Args: confirm: asks the embedding program; is_done: returns whether the call with an id has ended well; may_ask:
        called before people are asked; if it returns False, nobody is asked and the caller ends the call.
    """
    resumed = runtime.approvals.parked.of(step.call) if runtime.approvals is not None else None
    trust = judge_trust(runtime, step, scope.trust if resumed is None else resumed.trust, scope)
    if resumed is not None:
        step.approval_id = resumed.approval
        # Unclear: it depends on a call whose approval was used already, so both may have run before.
        if resumed.is_unclear and step.entry.effect_of(step.params) == "once":
            return _in_doubt(step, "it was on its way when the process ended"), False
    is_asked, why = ASKED in step.call.meta, safe_line(step.call.meta.get(ASKED, ""))
    if runtime.asks("before_call"):
        shown = step.shown()
        outcome = await runtime.consult("before_call", shown, scope)
        if outcome.denied:
            return _deny(step, outcome.reason or "a hook denied it"), outcome.stop_run
        is_asked, why = is_asked or outcome.needs_approval, outcome.reason or why
        if outcome.value is not shown:
            if not isinstance(outcome.value, Call):
                return _deny(step, f"a hook put a {type(outcome.value).__name__} in the call's place"), False
            proposed = step.call
            if wrong := step.swap(runtime.catalog, board, outcome.value, is_done):
                return CallResult(step.call, "failed", fault=wrong), False
            step.note_correction(proposed, "rewrite", "hook", outcome.reason)
            trust = judge_trust(runtime, step, trust, scope)
    ruling = _ruling(runtime, step, trust, scope)
    if ruling.decision == "deny":
        return _deny(step, ruling.why), False
    if resumed is not None and resumed.approval:
        return await _resume(runtime, step, trust, scope, resumed), False
    spent = runtime.spending.against(step, scope) if runtime.spending is not None else ""
    if not spent and not is_asked and ruling.decision == "auto":
        return None, False
    why = spent or why or ruling.why
    if spent and confirm is None and runtime.approvals is None:
        return refused(step.call, spent), False
    if runtime.guard.is_refused(scope.run_id, step.call.tool, step.params):
        return _deny(step, "it was denied in this run before, twice, and that is final: do not retry"), False
    if not may_ask():
        return None, False
    if confirm is None and runtime.approvals is not None:
        return await _ask_people(runtime, step, trust, scope, why, is_spent=bool(spent)), False
    return await _ask_program(runtime, board, step, confirm, trust, scope, is_done, why), False


async def redeem(runtime: Runtime, step: Step, session: str) -> CallResult | None:
    """Use the approval of a call right before it starts; return the call's result if the approval cannot be used."""
    assert runtime.approvals is not None
    approval_id, step.approval_id, queue = step.approval_id, "", runtime.approvals.queue
    use = await queue.use(approval_id, queue.fingerprinter.of(step.call, step.entry, step.params, session))
    if not use.kind:
        step.binds = use.binds
        return None
    return _deny(step, use.why, "expired" if use.kind == "expired" else "denied", use.kind)


# -- asking


async def _ask_program(
    runtime: Runtime,
    board: Board,
    step: Step,
    confirm: Confirm | None,
    trust: Trust,
    scope: Scope,
    is_done: Callable[[str], bool],
    why: str,
) -> CallResult | None:
    """Ask the embedding program's approver; return the result of a call that may not run, None if it may."""
    runtime.tell_of(ApprovalRequested, step.call, scope)
    try:
        verdict = await ask(runtime, confirm, step.shown())
    except asyncio.CancelledError:
        runtime.tell_of(ApprovalResolved, step.call, scope, decision="void", reason="the call is not to start any more")
        raise
    if verdict is None:
        runtime.tell_of(ApprovalExpired, step.call, scope)
        return _deny(step, f"nobody answered within {runtime.approval_timeout:g} s", "expired")
    runtime.tell_of(ApprovalResolved, step.call, scope, decision=verdict.decision, reason=verdict.reason or why)
    if verdict.decision == "approve":
        return None
    if verdict.decision == "deny":
        return _deny(step, verdict.reason or "it was not approved")
    try:
        new = verdict.call if verdict.decision == "replace" else replace(step.call, params=verdict.params or {})
    except TypeError as error:
        return CallResult(step.call, "failed", fault=fault("bad_call", str(error), step.call.tool))
    assert new is not None
    proposed = step.call
    if wrong := step.swap(runtime.catalog, board, new, is_done):
        return CallResult(step.call, "failed", fault=wrong)
    step.note_correction(proposed, verdict.decision, "confirm", verdict.reason)
    trust = judge_trust(runtime, step, trust, scope)
    ruling = _ruling(runtime, step, trust, scope)
    return _deny(step, ruling.why) if ruling.decision == "deny" else None


async def _ask_people(runtime: Runtime, step: Step, trust: Trust, scope: Scope, why: str, *,
                 is_spent: bool) -> CallResult | None:  # fmt: skip
    """Ask people through the queue, for as long as the call may wait. A grant does not count when a budget is spent.

    Another cycle may have asked about the same call already (`is_own` is false): then both wait for one answer.
    Return the result of a call that may not run, or that is parked because there is no answer yet; None if it may run.
    """
    assert runtime.approvals is not None
    queue = runtime.approvals.queue
    bound_call = queue.fingerprinter.of(step.call, step.entry, step.params, scope.session)
    try:
        if not is_spent and (grant_and_binds := await queue.granted(bound_call, scope.session)):
            grant, step.binds = grant_and_binds
            reason = (
                f"grant {grant.id} by {grant.granted_by} until {grant.expires_at:%Y-%m-%d %H:%M} UTC, use {grant.uses}"
            )
            runtime.tell_of(ApprovalResolved, step.call, scope, decision="approve", reason=reason)
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
        return refused(step.call, f"{why}, and {message}") if is_spent else _deny(step, message)
    return _apply_answer(runtime, step, trust, scope, row)


async def _resume(runtime: Runtime, step: Step, trust: Trust, scope: Scope, resumed: Resumed) -> CallResult | None:
    """Apply the decision of people about a call that an earlier cycle parked."""
    assert runtime.approvals is not None
    row = runtime.approvals.queue.known(resumed.approval)
    if row is None:
        return _deny(step, f"its approval {resumed.approval!r} is gone")
    step.approval_id = row.id
    if row.status == "used":
        step.approval_id = ""
        return _in_doubt(step, f"approval {row.id!r} was used before")
    return _apply_answer(runtime, step, trust, scope, row)


def _apply_answer(runtime: Runtime, step: Step, trust: Trust, scope: Scope, row: Approval) -> CallResult | None:
    """Return the result of a call by the state of its approval; None if it may run.

    The step keeps the approval's id while the call may still run by it.
    """
    if row.status == "pending" and runtime.clock.now() < row.expires_at:
        return parked(step.call, f"it waits for approval {row.id!r}")
    if row.status == "approved":
        wrong = _adopt(runtime, step, row) if row.original is not None else None
        if wrong is not None:
            return CallResult(step.call, "failed", fault=wrong)
        ruling = _ruling(runtime, step, judge_trust(runtime, step, trust, scope), scope)
        return _deny(step, ruling.why) if ruling.decision == "deny" else None
    step.approval_id = ""
    if row.status in ("pending", "expired"):
        return _deny(step, f"nobody answered approval {row.id!r} in time", "expired")
    if row.status == "used":
        return _deny(step, f"approval {row.id!r} let the same call run already, and is used once")
    by = f" by {row.decided_by}" if row.decided_by else ""
    return _deny(step, row.reason or f"it was not approved{by}")


def _adopt(runtime: Runtime, step: Step, row: Approval) -> Fault | None:
    """Replace a call by the one that people made of it, with the old id. Return the fault if it cannot run now."""
    assert runtime.approvals is not None
    assert row.original is not None
    call = row.call
    try:
        bound_call = runtime.approvals.queue.fingerprinter.again(call, row.session)
        check_finite(call.tool, call.params)
        arguments = bound_call.entry.parameters.validate(call.params)
    except ValueError as error:
        return fault("bad_parameters", str(error), call.tool)
    old = step.call
    meta = {**call.meta, "_original": old.meta.get("_original", wire_of(old))}
    if "_parked" in old.meta:
        meta["_parked"] = old.meta["_parked"]
    # People saw values, not references: a text of theirs that looks like a reference stays a text.
    literal = escape(call.params, frozenset(marked(call.params)))
    step.call = replace(call, params=literal, id=old.id, after=old.after, instance=old.instance, meta=meta)
    step.entry, step.arguments, step.params = bound_call.entry, arguments, copied(call.params)
    step.target = None if call.output_path is None else parse_write(call.output_path)
    is_edit = replace(row.original, params=call.params) == call
    step.note_correction(old, "edit" if is_edit else "replace", row.decided_by, row.reason)
    return objection_to(step.call, step.entry, step.target)


# -- rulings and results


def _ruling(runtime: Runtime, step: Step, trust: Trust, scope: Scope) -> Ruling:
    entry, call = step.entry, step.call
    if runtime.approvals is None:
        if entry.terms.approval == "deny":
            return Ruling("deny", f"tool {entry.name!r} may not be called: its approval is 'deny'")
        return Ruling(entry.terms.approval)
    effect = entry.effect_of(step.params)
    return runtime.approvals.policy.decide(entry.terms, effect, call, step.arguments, trust, scope.session)


def judge_trust(runtime: Runtime, step: Step, trust: Trust, scope: Scope) -> Trust:
    """Return the trust in a call by the trust in its plan and in the values that it reads.

    The taint records the paths that an untrusted call writes, for the calls that read them. A call that is untrusted
    only by what it reads is marked: models and memory, which get its result, do not know the taint.
    """
    trust = trust_in(step.call, trust)
    if runtime.approvals is None:
        return trust
    judged = runtime.approvals.taint.judge(step.call, step.entry, trust, scope)
    if judged != trust:
        step.call = replace(step.call, meta={**step.call.meta, "_trust": judged})
    return judged


def _in_doubt(step: Step, why: str) -> CallResult:
    message = f"{why} and nobody knows what became of the call: find out"
    return CallResult(step.call, "in_doubt", fault=fault("in_doubt", message, step.call.tool))


def _deny(step: Step, message: str, reason: str = "denied", kind: str = "denied") -> CallResult:
    return CallResult(step.call, "denied", reason, fault=fault(kind, message, step.call.tool))
