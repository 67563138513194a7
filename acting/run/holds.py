"""The holds of ready calls, composed once for each tool: a tool without terms has none.

The *rules* are the first hold. Hooks may deny or rewrite a call, or demand that people are asked. Then the policy
decides (without a policy the tool's own terms), then the budgets: when they are spent, people are asked. A plan may
demand that people are asked about a call (`_ask`); it can never prevent that they are asked.

Calls that read data from outside are untrusted, whatever the trust in their plan; the *taint* records such data. A call
that hooks or people change is judged again, and runs with the id of the original call.

People are asked by the embedding program's *approver* (`confirm`) where there is one, else by the queue. Only a clear
yes lets a call run: there is none if nobody can be asked, or if the approver raises, is late or gives an invalid
answer. It runs in a task of its own, so one that ignores cancellation can neither hold up the batch nor approve later.
An approval of the queue is used at the last moment before the start: a call that has passed that and never starts has
lost it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime
from typing import Any, Final

from msgspec import Struct, field

from acting.approvals.decisions import BoundCall
from acting.approvals.policy import Ruling, trust_in
from acting.run.attempt import Detach
from acting.run.call_state import Step, wire_of
from acting.run.checks import decode
from acting.run.order import CallJournalWriter, Order
from acting.run.parked import Approvals
from acting.run.runtime import Runtime
from acting.tooling.bound_tool import BoundTool, answer_of
from acting.tooling.context import NO_QUESTION, Question, fault
from acting.tooling.limits import Go, Hold, Slots
from spar.checks import shorten
from spar.data.blackboard import Board
from spar.data.paths import escape, marked
from spar.data.text import safe_line
from spar.errors import PhaseTimeoutError, SparError
from spar.events import ApprovalExpired, ApprovalRequested, ApprovalResolved
from spar.records.approvals import Approval
from spar.types import ASKED, Call, CallResult, Fault, Trust, Verdict, replace, without_service_keys

Confirm = Callable[[Call], Any]
Spawn = Callable[[Coroutine[Any, Any, None], str], object]


#: Keys in the meta of a call that may give it other holds than the usual calls of its tool.
RARE_KEYS: Final = frozenset({ASKED, "_detach", "_parked"})


class Terms(Struct, Hold, eq=False):
    """The holds of the calls of one batch; itself the first hold of those that are not let without asking anybody.

    Args: confirm: asks the embedding program; ended_well: returns whether the call with an id has ended well; spawn:
        runs a task of the batch; begin: begins an attempt; end: starts no further call of the batch.
    """

    _runtime: Runtime
    _board: Board
    _confirm: Confirm | None
    _order: Order
    _writer: CallJournalWriter | None
    _ended_well: Callable[[str], bool]
    _spawn: Spawn
    _begin: Callable[[Step], CallResult | None]
    _end: Callable[[str, str, Fault | None], None]
    usual: dict[BoundTool, tuple[Hold, ...]] = field(default_factory=dict)  # the holds of calls without rare keys
    heard: set[Step] = field(default_factory=set)  # calls that a hook looks at; it is heard out if the batch stops
    is_stopped: bool = False  # whether nobody is to be asked any more
    has_asked: bool = False  # whether a call was to have an approval of the queue
    parallel: Slots | None = None  # of the calls that use their approval or budget, or are written as started

    def of(self, step: Step, *, is_usual: bool) -> tuple[Hold, ...]:
        """Return the holds of a call in the order in which it takes them.

        Args: is_usual: whether all usual calls of its tool have the same ones.
        """
        runtime = self._runtime
        is_unruled = runtime.hooks is None and runtime.approvals is None and runtime.spending is None
        holds = tuple(self._after_rules(step))
        if not is_unruled or not step.entry.is_let or step.late is not None or ASKED in step.call.meta:
            holds = (self, *holds)
        if is_usual and not step.entry.has_resources:  # these may depend on the parameters
            self.usual[step.entry] = holds
        return holds

    def _after_rules(self, step: Step) -> Iterator[Hold]:
        runtime, entry = self._runtime, step.entry
        if not entry.is_free or runtime.is_sequential:
            yield self._order
        uses: list[Hold] = []
        if step.question.approval_id and runtime.approvals is not None:
            uses.append(Redeem(runtime.approvals, self._spawn))
        if runtime.spending is not None and runtime.spending.budgets.limits_calls:
            uses.append(runtime.spending)
        if self._writer is not None:
            uses.append(self._writer)
        is_detached = step.call.meta.get("_detach", entry.terms.detach)
        if is_detached:
            yield from (*uses, Detach(runtime, self._board, self._writer, self._begin))
        if entry.slots.limit:
            yield entry.slots
        if entry.has_resources:
            yield from map(runtime.resource, sorted(set(entry.resources_of(step.params, step.scope.session))))
        if entry.terms.rate:
            yield runtime.rate_of(entry)
        if (uses or runtime.approvals is not None) and not is_detached:
            # No more calls than may run at once use their approval or budget, or are written to the disk as started.
            self.parallel = self.parallel or Slots(runtime.limits.max_parallel)
            yield from (self.parallel, *uses)

    # -- the rules

    def take(self, step: Step, go: Go, /) -> bool:
        """Decide at once where nobody has to be asked, as for most calls; else in a task."""
        spent = ""
        if step.late is None and self._is_let(step):
            spent = self._spent(step)
            if not spent:
                return True
        self._spawn(self._judge(step, go, spent), step.call.tool)
        return False

    def _is_let(self, step: Step) -> bool:
        """Return whether neither hooks nor the policy nor people have to decide about a call."""
        hooks, approvals, entry = self._runtime.hooks, self._runtime.approvals, step.entry
        is_open = step.question.approval_id or step.question.is_unclear or ASKED in step.call.meta
        if is_open or (hooks is not None and "before_call" in hooks.used):
            return False
        if approvals is None:
            return entry.is_let
        trust, taint, policy = step.scope.trust, approvals.taint, self._runtime.policy
        may_be_less = taint.of or entry.terms.brings_untrusted or "_trust" in step.call.meta
        # What an untrusted call writes concerns later cycles of its run, and parked calls, whose trust is their own.
        if may_be_less or (trust == "untrusted" and (step.scope.run_id is not None or approvals.known)):
            trust = judge_trust(self._runtime, step, trust)
        is_safe = trust == "trusted" or entry.terms.safe_with_untrusted
        if entry.is_let and not policy.rules and (is_safe or policy.untrusted == "auto"):
            return True  # the same decision for all parameters, so the policy need not look at them
        return self._ruling(step, trust).decision == "auto"

    def _spent(self, step: Step) -> str:
        """Reserve a call's part of the budgets; return the sentence about one that is spent, "" if there is none."""
        spending = self._runtime.spending
        if spending is None or not spending.budgets.limits_calls:
            return ""
        if spending not in step.holds:  # the first limit has come since its holds were composed
            step.holds = (*step.holds[: step.passed + 1], *self._after_rules(step))
        return spending.reserve(step)

    async def _judge(self, step: Step, go: Go, spent: str) -> None:
        try:
            refusal = await self._refusal(step, spent)
        except BaseException:
            go(step, None if self.is_stopped else step.cut(self._runtime.clock))
            raise
        finally:
            step.asking = None
            self.heard.discard(step)
        if step.corrections or step.question.approval_id or step.entry.has_resources:
            step.holds = (*step.holds[: step.passed + 1], *self._after_rules(step))
        go(step, refusal)

    async def _refusal(self, step: Step, spent: str) -> CallResult | None:
        """Return the result of a call that may not run; None if it may."""
        runtime, scope = self._runtime, step.scope
        if step.late is not None and (wrong := await step.take_late(runtime.in_turn)) is not None:
            return step.failed(wrong)
        if step.result is not None:
            return None
        trust = judge_trust(runtime, step, step.scope.trust)
        if step.question.is_unclear and step.entry.effect_of(step.params) == "once":
            return step.in_doubt("it was on its way when the process ended")
        since = None
        is_asked, why = ASKED in step.call.meta, safe_line(step.call.meta.get(ASKED, ""))
        if runtime.hooks is not None and "before_call" in runtime.hooks.used:
            shown = step.shown()
            self.heard.add(step)
            outcome = await runtime.consult("before_call", shown, scope)
            if outcome.denied:
                denied = step.denied(outcome.reason or "a hook denied it")
                if outcome.stop_run:
                    self._end("a hook ended the run before this call had started", "dep_failed", denied.fault)
                return denied
            is_asked, why, since = is_asked or outcome.needs_approval, outcome.reason or why, outcome.since
            if outcome.value is not shown:
                if not isinstance(outcome.value, Call):
                    return step.denied(f"a hook put a {type(outcome.value).__name__} in the call's place")
                change = outcome.change
                by, reason = ("", "") if change is None else (change.by, change.reason)
                decision = "edit" if by else "rewrite"
                if refusal := await self._swap(step, outcome.value, decision, by or "hook", reason or outcome.reason):
                    return refusal
                trust = judge_trust(runtime, step, trust)
        ruling = self._ruling(step, trust)
        if ruling.decision == "deny":
            return step.denied(ruling.why)
        if (approval_id := step.question.approval_id) and runtime.approvals is not None:
            row = runtime.approvals.queue.known(approval_id)
            if row is None:
                return step.denied(f"its approval {approval_id!r} is gone")
            refusal = await self._answered(step, row, is_resumed=True)
        else:
            spent = spent or self._spent(step)
            if self.is_stopped or not (spent or is_asked or ruling.decision != "auto"):
                return None
            refusal = await self._ask(step, trust, why or ruling.why, spent, since)
        if refusal is None:  # it may be another call now
            ruling = self._ruling(step, judge_trust(runtime, step, trust))
            refusal = step.denied(ruling.why) if ruling.decision == "deny" else None
        return refusal

    def _ruling(self, step: Step, trust: Trust) -> Ruling:
        entry, policy, session = step.entry, self._runtime.policy, step.scope.session
        return policy.decide(entry.terms, entry.effect_of(step.params), step.call, step.arguments, trust, session)

    # -- people

    async def _ask(self, step: Step, trust: Trust, why: str, spent: str,
                  since: datetime | None = None) -> CallResult | None:  # fmt: skip
        """Ask about a call; return the result of a call that may not run, None if it may.

        Args: why: the reason of the question; spent: the sentence about a budget that is spent, "" for none; since: no
            grant from before this time counts.
        """
        runtime, scope = self._runtime, step.scope
        if spent and self._confirm is None and runtime.approvals is None:
            return step.denied(spent, "budget", "budget")
        if runtime.guard.is_refused(scope.run_id, step.call.tool, step.params):
            return step.denied("it was denied in this run before, twice, and that is final: do not retry")
        step.asking = asyncio.current_task()
        if self._confirm is None and runtime.approvals is not None:
            return await self._ask_people(step, trust, spent or why, since, is_spent=bool(spent))
        return await self._ask_program(step, spent or why)

    async def _swap(self, step: Step, new: Call, decision: str, by: str, reason: str) -> CallResult | None:
        """Replace a call by `new`, which gets the old id, and record who did it and why.

        Return its result if the new one cannot run; nothing is changed then.
        """
        old, runtime = step.call, self._runtime
        if texts := frozenset(marked(step.params)):
            new = replace(new, params=escape(new.params, texts))
        meta = {**new.meta, "_original": wire_of(old)}
        meta |= {key: old.meta[key] for key in ("_original", "_parked") if key in old.meta}
        if new.output_path is None:
            new = replace(new, output_path=old.output_path, output_method=old.output_method)
        new = replace(new, id=old.id, instance=old.instance if new.instance is None else new.instance, meta=meta)
        new, wrong = decode(new)
        draft = Step(old.id, call=new, params=new.params, scope=step.scope)
        reads, why = draft.prepare(runtime.catalog, self._board, wrong, ())
        if why is None and (open_calls := [id for id in new.after if not self._ended_well(id)]):
            sentence = f"the call that replaces {old.id!r} is to run after {open_calls[0]!r}, which has not ended well"
            why = fault("bad_reference", sentence, new.tool)
        if why is None and reads:
            why = draft.take_values(self._board)
        if why is None and draft.late is not None:
            why = await draft.take_late(runtime.in_turn)
        if why is not None:
            return step.failed(why)
        new, step.call, step.entry, step.params = draft.call, draft.call, draft.entry, draft.params
        step.arguments, step.target, step.is_small = draft.arguments, draft.target, draft.is_small
        calls = {"call": without_service_keys(wire_of(old)), "ran": without_service_keys(wire_of(new))}
        step.corrections = (*step.corrections, {**calls, "decision": decision, "by": by, "reason": reason})
        return None

    async def _ask_program(self, step: Step, why: str) -> CallResult | None:
        """Ask the program's approver, for at most `approval_timeout` seconds, and do as it says."""
        runtime, confirm, timeout = self._runtime, self._confirm, self._runtime.approval_timeout
        runtime.tell_of(ApprovalRequested, step)
        verdict = Verdict.deny(f"tool {step.call.tool!r} needs approval and nobody is there to ask")
        try:
            if confirm is not None:
                answer = answer_of(confirm, runtime.approver, step.shown())
                verdict = _verdict_in(await runtime.outside.make(answer, timeout))
        except PhaseTimeoutError:
            runtime.tell_of(ApprovalExpired, step)
            return step.denied(f"nobody answered within {timeout:g} s", "expired")
        except asyncio.CancelledError:
            runtime.tell_of(ApprovalResolved, step, decision="void", reason="the call is not to start any more")
            raise
        except BaseException as error:
            verdict = Verdict.deny(f"the approver failed: {type(error).__name__}: {error}")
        runtime.tell_of(ApprovalResolved, step, decision=verdict.decision, reason=verdict.reason or why)
        if verdict.decision == "approve":
            return None
        if verdict.decision == "deny":
            return step.denied(verdict.reason or "it was not approved")
        try:
            new = verdict.call if verdict.decision == "replace" else replace(step.call, params=verdict.params or {})
        except TypeError as error:
            return step.failed(fault("bad_call", str(error), step.call.tool))
        assert new is not None
        return await self._swap(step, new, verdict.decision, "confirm", verdict.reason)

    async def _ask_people(self, step: Step, trust: Trust, why: str, since: datetime | None, *,
                          is_spent: bool) -> CallResult | None:  # fmt: skip
        """Ask people through the queue, for as long as the call may wait. No grant counts when a budget is spent.

        Another cycle may have asked about the same call already (`is_own` is false): then both wait for one answer.
        Return the result of a call that may not run, or that is parked because there is no answer yet.
        """
        runtime, scope = self._runtime, step.scope
        assert runtime.approvals is not None
        queue = runtime.approvals.queue
        bound_call = BoundCall(step.shown(), step.entry, scope.session)
        try:
            digest, binds = await queue.fingerprinter.fingerprint(bound_call)
            if not is_spent and (grant := await queue.granted(scope.session, digest, since)) is not None:
                step.question = Question(binds=binds)
                until = f"{grant.expires_at:%Y-%m-%d %H:%M} UTC"
                reason = f"grant {grant.id} by {grant.granted_by} until {until}, use {grant.uses}"
                runtime.tell_of(ApprovalResolved, step, decision="approve", reason=reason)
                return None
            self.has_asked = True
            row, is_own = await queue.ask(bound_call, digest, why, trust, scope)
            step.question = Question(row.id, not is_own)
            if is_own and row.status == "pending":
                meta = {**step.call.meta, "_approval": row.id}
                runtime.tell_of(ApprovalRequested, step, call=replace(step.call, meta=meta))
            row = await queue.answer(row.id, 0.0 if row.is_parked and not is_own else runtime.approvals.hold)
        except (SparError, LookupError, ValueError, TypeError) as error:
            message = f"it could not be asked about: {error}"
            return step.denied(f"{why}, and {message}", "budget", "budget") if is_spent else step.denied(message)
        return await self._answered(step, row)

    async def _answered(self, step: Step, row: Approval, *, is_resumed: bool = False) -> CallResult | None:
        """Return the result of a call by the state of its approval; None if it may run.

        The step keeps the approval's id while the call may still run by it. Args: is_resumed: whether an earlier cycle
        parked it.
        """
        if row.status == "pending" and self._runtime.clock.now() < row.expires_at:
            return step.skipped(f"it waits for approval {row.id!r}", "parked")
        if row.status == "approved":
            if row.original is None:
                return None
            is_edit = replace(row.original, params=row.call.params) == row.call
            # People saw values, not references: a text of theirs that looks like a reference stays a text.
            literal = escape(row.call.params)
            new = replace(row.call, params=literal, after=step.call.after, instance=step.call.instance)
            return await self._swap(step, new, "edit" if is_edit else "replace", row.decided_by, row.reason)
        step.question = NO_QUESTION
        if row.status in ("pending", "expired"):
            return step.denied(f"nobody answered approval {row.id!r} in time", "expired")
        if row.status == "used":
            if is_resumed:
                return step.in_doubt(f"approval {row.id!r} was used before")
            return step.denied(f"approval {row.id!r} let the same call run already, and is used once")
        by = f" by {row.decided_by}" if row.decided_by else ""
        return step.denied(row.reason or f"it was not approved{by}")


class Redeem(Struct, Hold, eq=False):
    """Hold that uses the approval of a call, and checks that the call is still the approved one."""

    _approvals: Approvals
    _spawn: Spawn

    def take(self, step: Step, go: Go, /) -> bool:
        self._spawn(self._use(step, go), step.call.tool)
        return False

    async def _use(self, step: Step, go: Go) -> None:
        queue, approval_id = self._approvals.queue, step.question.approval_id
        step.question = Question(allowed=approval_id)
        kind, why, binds = await queue.use(approval_id, BoundCall(step.shown(), step.entry, step.scope.session))
        step.question = Question(allowed=approval_id, binds=binds)
        go(step, step.denied(why, "expired" if kind == "expired" else "denied", kind) if kind else None)


def release(step: Step, spared: Hold | None = None) -> None:
    """Release the holds that a call has taken, but the one that it is to keep."""
    holds = step.holds[: step.passed]
    step.holds = (spared,) if spared in holds else ()
    step.passed = len(step.holds)
    for hold in holds:
        if hold is not spared:
            hold.release(step)


def judge_trust(runtime: Runtime, step: Step, trust: Trust) -> Trust:
    """Return the trust in a call by the trust in its plan and in the values that it reads.

    The taint records the paths that an untrusted call writes, for the calls that read them. A call that is untrusted
    only by what it reads is marked: models and memory, which get its result, do not know the taint.
    """
    trust = trust_in(step.call, trust)
    if runtime.approvals is None:
        return trust
    judged = runtime.approvals.taint.judge(step.call, step.entry, trust, step.scope)
    if judged != trust:
        step.call = replace(step.call, meta={**step.call.meta, "_trust": judged})
    return judged


def _verdict_in(answer: Any) -> Verdict:
    if isinstance(answer, Verdict):
        is_whole = {"edit": isinstance(answer.params, dict), "replace": isinstance(answer.call, Call)}
        if answer.decision in ("approve", "deny") or is_whole.get(answer.decision):
            return answer
    if answer is True:
        return Verdict.approve()
    return Verdict.deny("" if answer is False else f"the approver answered {shorten(answer)}, which is no verdict")
