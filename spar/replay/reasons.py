"""Reasons of a recorded cycle: sentences from what was noticed to what it led to; pure.

What the stages, the rules, the memory, the policy and the tools said is in the record and in the parts of the present
configuration; here it is put in order. Where the rules of today would not have decided as recorded, the sentence says
so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from msgspec import Struct

from spar.data.learning.abilities import Case, MemoryDecision
from spar.data.text import one_line
from spar.ports.planners import RuleLook
from spar.records.approvals import Approval
from spar.replay.difference import matched_rules, rule_of
from spar.replay.tape import by_hand
from spar.types import Action, Call, CallResult, CycleRecord, Perception

#: Characters of a value in a sentence.
_ROOM: Final = 120
#: Parts of a perception that are shown.
_MOST_PARTS: Final = 5
#: The stage of the pipeline that writes an attribute, and what it says by it.
_STAGES: Final = {
    "template": "templates: like the lines {}", "anomaly": "anomaly: {}", "kind_why": "classify: {}",
    "intent_why": "intent: {}", "slots": "intent: it named {}", "incident": "incidents: it belongs to {}",
    "superseded": "fuse: replaced by the newer state {}", "told": "incidents: told before",
    "changed": "it was changed {}",
}  # fmt: skip
#: The verbs of the policy.
_POLICY: Final = {"auto": "lets it run", "ask": "asks people", "deny": "forbids it"}
#: Function that returns what the policy says about a call of an action in a session, and why.
Rule = Callable[[Call, Action, str], tuple[str, str]]


class Reason(Struct, frozen=True):
    """Sentence with the sentences below it."""

    text: str
    because: tuple[Reason, ...] = ()


class Reasons(Struct, frozen=True):
    """The chain of one cycle, a part for each step. `configuration` says how that of then differs from the present;
    `is_past` says whether rules and policy are those of then."""

    cycle: str
    at: datetime
    session: str
    run_id: str
    is_past: bool
    noticed: list[Reason]
    configuration: list[Reason]
    rules: list[Reason]
    memory: list[Reason]
    calls: list[Reason]
    hand: list[Reason]
    outcome: list[Reason]


def reasons_of(cycle: CycleRecord, looks: Iterable[RuleLook], used: Sequence[MemoryDecision],
               approvals: Sequence[Approval], ruling: Rule, configuration: Sequence[str] = (), *,
               is_past: bool = False) -> Reasons:  # fmt: skip
    """Return the chain of a cycle.

    Args: looks: of each rule at each perception; used: what experiences changed; approvals: those of this cycle's
    calls; ruling: says what the policy says; configuration: sentences about that of then; is_past: whether rules and
    policy are those of then.
    """
    run_id = (cycle.action.run_id if cycle.action is not None else None) or ""
    return Reasons(
        cycle.cycle_id, cycle.started_at, cycle.session, run_id, is_past,
        [_noticed(perception) for perception in cycle.perceptions],
        list(map(Reason, configuration)),
        rule_reasons(cycle, looks),
        [_remembered(decision) for decision in used],
        list(_calls(cycle, approvals, ruling, "was then" if is_past else "is now")),
        list(map(_by_hand, by_hand(cycle))),
        list(_outcome(cycle)),
    )  # fmt: skip


def about(perception: Perception) -> str:
    """Return a perception as a line: its source, kind and intent, and its content."""
    head = "/".join(filter(None, (perception.source, perception.kind, perception.intent)))
    return f"{head}: {_shown(perception.content)}"


def rule_reasons(cycle: CycleRecord, looks: Iterable[RuleLook]) -> list[Reason]:
    """Return what each rule says of each perception."""
    decided = "" if cycle.action is None else cycle.action.reason
    by_perception: dict[str, list[Reason]] = {perception.id: [] for perception in cycle.perceptions}
    for look in looks:
        by_perception[look.perception].append(Reason(rule_line(look.rule, why_of(look, decided), matches=look.matches)))
    known = {perception.id: perception for perception in cycle.perceptions}
    return [Reason(about(known[id]), tuple(lines)) for id, lines in by_perception.items()]


def rule_line(rule: str, why: str, *, matches: bool) -> str:
    """Return what a rule says of a perception: `+` it fired or would, `–` and the first condition that fails."""
    return f"{'+' if matches else '–'} {rule}: {why}"


def why_of(look: RuleLook, decided: str) -> str:
    """Return why a rule matches or does not, and of one that matches and did not fire also that, by what decided."""
    fired = matched_rules(decided)
    if not look.matches or look.rule in fired:
        return look.why
    # Without any rule a planner before them decided, such as a model of which the rules are the fallback.
    return f"{look.why}; it did not fire" + (f", since this decided: {decided}" if decided and not fired else
                                             " then: the rules were others, or it was in its cooldown")  # fmt: skip


def _noticed(perception: Perception) -> Reason:
    attributes, lines = perception.attributes, list[str]()
    for name, words in _STAGES.items():
        if (value := attributes.get(name)) not in (None, "", {}):
            lines.append(words.format(_shown(value)))
    if perception.intent and "intent_why" not in attributes:
        lines.append(f"intent: {perception.intent}")
    if (count := attributes.get("count", 1)) != 1:
        lines.append(f"dedup and fuse: noticed {_shown(count)} times")
    if perception.evidence:
        lines.append(f"made of: {'; '.join(about(part) for part in perception.evidence[:_MOST_PARTS])}")
    if perception.priority is not None:
        given = attributes.get("why")
        why = f": {'; '.join(map(str, given))}" if isinstance(given, list) and given else ""
        lines.append(f"priority: {perception.priority:.2f}{why}")
    if perception.trust == "untrusted":
        lines.append("trust: it is untrusted, so its text steers nothing")
    return Reason(about(perception), tuple(map(Reason, lines)))


def _remembered(decision: MemoryDecision) -> Reason:
    instead = f"instead of {decision.instead_of}: " if decision.instead_of else ""
    note = "" if decision.is_used else " (only observed)"
    return Reason(f"{instead}{decision.why}{note}", tuple(map(_case, decision.cases)))


def _case(case: Case) -> Reason:
    if (experience := case.experience) is None:
        return Reason(f"experience {case.id}: it is not kept any more")
    ended = {True: "worked", False: "failed", None: "nobody knows how it went"}[experience.success]
    weight = f"made {experience.count} times, helped {experience.helped}, harmed {experience.harmed}"
    return Reason(f"experience {case.id}: {ended}; {weight}: {_shown(experience.situation)}")


def _calls(cycle: CycleRecord, approvals: Sequence[Approval], ruling: Rule, when: str) -> Iterator[Reason]:
    """Yield each planned call: who planned it, what the policy says, whom it asked, how it ended."""
    action = cycle.action or Action()
    results = {result.call.id: result for result in (cycle.result.results if cycle.result is not None else ())}
    answers = {approval.call.id: approval for approval in approvals}
    for call in action.calls:
        rule = rule_of(call)
        lines = [f"planned by rule {rule!r}" if rule else f"planned: {call.reason or action.reason or 'for no reason'}"]
        decision, why = ruling(call, action, cycle.session)
        policy = _POLICY.get(decision, "is not known")
        lines.append(f"policy (as it {when}): {policy}{f', because {why}' if why else ''}")
        if (approval := answers.get(call.id)) is not None:
            by = f" by {approval.decided_by}" if approval.decided_by else ""
            lines.append(f"approval: {approval.status}{by}; asked because {approval.why or 'the policy asks'}")
        lines.append(_ended(results.get(call.id)))
        yield Reason(f"{call.tool}({', '.join(f'{name}={_shown(value)}' for name, value in call.params.items())})",
                     tuple(map(Reason, lines)))  # fmt: skip


def _ended(result: CallResult | None) -> str:
    if result is None:
        return "it ended: not known, the cycle was cut off"
    message = (result.fault.message if result.fault is not None else "") or result.reason
    consequence = message or ("" if result.output is None else _shown(result.output))
    return f"it ended: {result.status}{f', {consequence}' if consequence else ''}"


def _by_hand(change: Mapping[str, Any]) -> Reason:
    """Return a change by hand: which part, by whom, why, and what it was before and after."""
    id, reason = change.get("id"), change.get("reason")
    whose = f"{change.get('part')}{f' {id}' if id else ''}, by {change.get('by')}, at the point {change.get('point')!r}"
    values = {"–": _content(change.get("before")), "+": _content(change.get("after"))}
    lines = tuple([Reason(f"{sign} {one_line(value, _ROOM)}") for sign, value in values.items()])
    return Reason(f"{whose}{f': {reason}' if reason else ''}", lines)


def _content(value: Any) -> str:
    """Return what people look at in perceptions, a plan, a call or a result, as its record has it."""
    if isinstance(value, list):
        return "; ".join(map(_content, value)) or "nothing"
    if not isinstance(value, Mapping):
        return "nothing" if value is None else _shown(value)
    if "tool" in value:
        params = [f"{name}={_shown(param)}" for name, param in value.get("params", {}).items()]
        return f"{value['tool']}({', '.join(params)})"
    if "call" in value:
        return f"{value.get('status')}: {_shown(value.get('output'))}"
    if "id" in value and "content" not in value:
        answer = value.get("output")
        return "; ".join([*map(_content, value.get("calls", ())), *([] if answer is None else [_shown(answer)])])
    return _shown(value.get("content", value))


def _outcome(cycle: CycleRecord) -> Iterator[Reason]:
    action, reflection = cycle.action or Action(), cycle.reflection
    if action.deferred:
        yield Reason(f"it was put off: {action.deferred}")
    if action.output is not None:
        yield Reason(f"answer: {_shown(action.output)}", (Reason(f"decided: {action.reason}"),) * bool(action.reason))
    for fault in cycle.faults:
        yield Reason(f"failed: {': '.join(filter(None, (fault.phase, fault.message)))}")
    if reflection is not None:
        for failure in reflection.failures:
            yield Reason(f"{failure.call.tool} failed: {failure.cause}{f'; {failure.remedy}' * bool(failure.remedy)}")
        for experience in reflection.experiences:
            yield Reason(f"remembered: {_shown(experience.lesson or experience.outcome or experience.situation)}")
        for credit in reflection.credits:
            yield Reason(f"experience {credit.experience_id} {'helped' if credit.has_helped else 'did harm'}")
    yield Reason(f"outcome: {cycle.outcome}")


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return one_line(", ".join(f"{key} {_shown(item)}" for key, item in value.items()), _ROOM)
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return one_line(text, _ROOM)
