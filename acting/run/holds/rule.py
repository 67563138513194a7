"""The rules of ready calls: hooks, policy and budgets decide whether a call runs, is asked about, or is denied.

The order: hooks may deny or rewrite a call, or demand that people are asked. Then the policy decides (without a policy
the tool's own terms), then the budgets: when they are spent, people are asked. A plan may demand that people are asked
about a call (`_ask`); it can never prevent that they are asked.

Calls that read data from outside are untrusted, whatever the trust in their plan; the *taint* records such data. A call
that hooks or people change is judged again, and runs with the id of the original call.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable
from typing import Any

from acting.approvals.policy import Ruling, trust_in
from acting.calls import Question, Scope
from acting.run.approvals import ApprovalService
from acting.run.call.call_state import Step
from acting.run.holds.answer import Answers
from acting.run.runtime import Runtime
from acting.tooling.limits import Go, Hold
from spar.data.text import safe_line
from spar.types import ASKED, Call, CallResult, Fault, Trust, replace


class Rules(Hold):
    """Hold of one batch for all calls that are not let without asking anybody.

    Args: spawn: runs a task of the batch; cut: returns the result of a call that was cancelled; compose: returns the
        further holds of a call that was changed or approved; end: ends the run, with a fault.
    """

    __slots__ = ("_answers", "_compose", "_cut", "_end", "_heard", "_is_stopped", "_runtime", "_scope", "_spawn")

    def __init__(self, runtime: Runtime, scope: Scope, answers: Answers,
                 spawn: Callable[[Coroutine[Any, Any, None], str], None], cut: Callable[[Step], CallResult],
                 compose: Callable[[Step], Iterable[Any]], end: Callable[[Fault | None], None]) -> None:  # fmt: skip
        self._runtime, self._scope, self._answers = runtime, scope, answers
        self._spawn, self._cut, self._compose, self._end = spawn, cut, compose, end
        self._heard: set[Step] = set()  # calls that a hook looks at; it is heard out even if the batch stops
        self._is_stopped = False  # whether nobody is to be asked any more

    def take(self, step: Step, go: Go, /) -> bool:
        """Decide at once where nobody has to be asked, as for most calls; else in a task."""
        spent = ""
        if step.late is None and self._is_let(step):
            spent = self._spent(step)
            if not spent:
                return True
        self._spawn(self._judge(step, go, spent), step.call.tool)
        return False

    def stop(self) -> Collection[Step]:
        """Ask nobody any more. Return the calls that a hook looks at."""
        self._is_stopped = True
        return self._heard

    def _is_let(self, step: Step) -> bool:
        """Return whether neither hooks nor the policy nor people have to decide about a call."""
        hooks, approvals = self._runtime.hooks, self._runtime.approvals
        if (hooks is not None and "before_call" in hooks.used) or ASKED in step.call.meta:
            return False
        return step.entry.is_let if approvals is None else self._is_allowed(approvals, step)

    def _spent(self, step: Step) -> str:
        """Reserve a call's part of the budgets; return the sentence about one that is spent, "" if there is none."""
        spending = self._runtime.spending
        return "" if spending is None else spending.reserve(step)

    def _is_allowed(self, approvals: ApprovalService, step: Step) -> bool:
        """Return whether the policy lets a call run without asking anybody."""
        if approvals.parked.known and approvals.parked.of(step.call) is not None:
            return False
        entry, trust = step.entry, self._scope.trust
        if trust == "untrusted" or approvals.taint.runs or entry.terms.brings_untrusted or "_trust" in step.call.meta:
            trust = judge_trust(self._runtime, step, trust, self._scope)
        if entry.is_let and not approvals.policy.rules and (trust == "trusted" or entry.terms.safe_with_untrusted):
            return True  # the same decision for all parameters, so the policy need not look at them
        return self._ruling(step, trust).decision == "auto"

    async def _judge(self, step: Step, go: Go, spent: str) -> None:
        try:
            refusal, ends_run = await self._refusal(step, spent)
        except BaseException:
            go(step, None if self._is_stopped else self._cut(step))
            raise
        finally:
            step.asking = None
            self._heard.discard(step)
        if step.corrections or step.question.approval_id:
            step.holds = (*step.holds[: step.passed + 1], *self._compose(step))
        go(step, refusal)
        if ends_run and refusal is not None:
            self._end(refusal.fault)

    async def _refusal(self, step: Step, spent: str) -> tuple[CallResult | None, bool]:
        """Return the result of a call that may not run (None if it may), and whether a hook ends the run."""
        runtime, scope = self._runtime, self._scope
        if step.late is not None and (wrong := await step.take_late(runtime.in_turn)) is not None:
            return step.failed(wrong), False
        if step.result is not None:
            return None, False
        resumed = runtime.approvals.parked.of(step.call) if runtime.approvals is not None else None
        trust = judge_trust(runtime, step, scope.trust if resumed is None else resumed.trust, scope)
        if resumed is not None:
            step.question = Question(resumed.approval)
            # Unclear: it depends on a call whose approval was used already, so both may have run before.
            if resumed.is_unclear and step.entry.effect_of(step.params) == "once":
                return step.in_doubt("it was on its way when the process ended"), False
        since = None
        is_asked, why = ASKED in step.call.meta, safe_line(step.call.meta.get(ASKED, ""))
        if runtime.asks("before_call"):
            shown = step.shown()
            self._heard.add(step)
            outcome = await runtime.consult("before_call", shown, scope)
            if outcome.denied:
                return step.denied(outcome.reason or "a hook denied it"), outcome.stop_run
            is_asked, why, since = is_asked or outcome.needs_approval, outcome.reason or why, outcome.since
            if outcome.value is not shown:
                if not isinstance(outcome.value, Call):
                    return step.denied(f"a hook put a {type(outcome.value).__name__} in the call's place"), False
                change = outcome.change
                by, reason = ("", "") if change is None else (change.by, change.reason)
                decision = "edit" if by else "rewrite"
                if refusal := self._answers.swap(step, outcome.value, decision, by or "hook", reason or outcome.reason):
                    return refusal, False
                trust = judge_trust(runtime, step, trust, scope)
        ruling = self._ruling(step, trust)
        if ruling.decision == "deny":
            return step.denied(ruling.why), False
        if resumed is not None and resumed.approval:
            refusal = self._answers.resume(step, resumed.approval)
        else:
            spent = spent or self._spent(step)
            if self._is_stopped or not (spent or is_asked or ruling.decision != "auto"):
                return None, False
            refusal = await self._answers.ask(step, trust, why or ruling.why, spent, since)
        if refusal is None:  # it may be another call now
            ruling = self._ruling(step, judge_trust(runtime, step, trust, scope))
            refusal = step.denied(ruling.why) if ruling.decision == "deny" else None
        return refusal, False

    def _ruling(self, step: Step, trust: Trust) -> Ruling:
        entry, call, approvals = step.entry, step.call, self._runtime.approvals
        if approvals is None:
            return Ruling(entry.terms.approval, f"tool {entry.name!r} may not be called: its approval is 'deny'"
                          if entry.terms.approval == "deny" else "")  # fmt: skip
        effect = entry.effect_of(step.params)
        return approvals.policy.decide(entry.terms, effect, call, step.arguments, trust, self._scope.session)


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
