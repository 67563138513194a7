"""Decision of one rule on one perception: its calls, their taint, and the calls that are left out; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from planning.dataflow import can_be_read, reads_any
from planning.rules.conditions import MatchInput
from planning.rules.parse import CallRule, Rule
from planning.rules.templates import Facts, brings_untrusted, fill, render
from planning.rules.tool_choice import choose
from spar.clock import Clock
from spar.data.paths import Path
from spar.protocols import Context
from spar.records.abilities import task_name
from spar.types import Answer, Call, replace


class Firing(Struct, frozen=True):
    """Decision of one rule on one perception."""

    rule: Rule
    calls: tuple[Call, ...] = ()
    writes: tuple[Path, ...] = ()
    answer: Answer | None = None
    goal: str = ""
    left_out: tuple[str, ...] = ()


def fire(rule: Rule, facts: Facts, context: Context) -> Firing:
    """Return the decision of a rule on one perception. Raises: AbsentError when a template cannot be filled."""
    task = task_name(facts.perception.kind, facts.perception.intent, rule.name)
    tools = [choose(call.tools, task, context.abilities, call.min_ability) for call in rule.calls]
    left_out = {number: "its tools do too badly at this" for number, tool in enumerate(tools) if tool is None}
    if left_out:
        _leave_out_dependants(rule.calls, left_out)
    reason = f"rule {rule.name!r}"
    tainted = _tainted(rule.calls, facts)
    made: dict[int, Call] = {}
    for number, (call, tool) in enumerate(zip(rule.calls, tools, strict=True)):
        if number not in left_out and tool is not None:
            params = fill(call.params, facts)
            meta = {"_task": task} if task else {}
            if number in tainted:
                meta["_trust"] = "untrusted"
            made[number] = Call(tool, params, output_path=call.output, reason=reason, meta=meta)
    for number, made_call in made.items():
        if after := rule.calls[number].after:
            made[number] = replace(made_call, after=tuple(made[other].id for other in after))
    says = bool(made or not rule.calls)
    return Firing(
        rule,
        tuple(made.values()),
        tuple(place for number in made for place in rule.calls[number].writes),
        _answer(rule, facts, made.values()) if says else None,
        render(rule.goal, facts) if rule.goal is not None else "",
        tuple(_left_out_sentence(rule, number, why, task) for number, why in sorted(left_out.items())),
    )


def _answer(rule: Rule, facts: Facts, calls: Iterable[Call]) -> Answer | None:
    """Return a rule's texts for success and for failure. A rule with a text for failure alone says nothing else."""
    if rule.answer is None and rule.on_failure is None:
        return None
    on_failure = render(rule.on_failure, facts) if rule.on_failure is not None else None
    text = render(rule.answer, facts) if rule.answer is not None else None
    return Answer(text, tuple(call.id for call in calls), on_failure)


def _tainted(calls: Sequence[CallRule], facts: Facts) -> set[int]:
    """Which calls are given untrusted text: by a template, or by reading what another one of them writes."""
    found = {number for number, call in enumerate(calls) if any(brings_untrusted(each, facts) for each in call.foreign)}
    fresh = set(found)
    while fresh:
        written = {place for number in fresh for place in calls[number].writes}
        fresh = {
            number
            for number, call in enumerate(calls)
            if number not in found and any(reads_any(reference, written) for reference in call.reads)
        }
        found |= fresh
    return found


def _leave_out_dependants(calls: Sequence[CallRule], left_out: dict[int, str]) -> None:
    """Add every call that cannot end well without one that is left out."""
    grew = True
    while grew:
        grew = False
        written = {place for number, call in enumerate(calls) if number not in left_out for place in call.writes}
        for number, call in enumerate(calls):
            if number in left_out:
                continue
            if any(other in left_out for other in call.after) or not all(
                can_be_read(ref, written) for ref in call.reads
            ):
                left_out[number] = "it needs a call that is left out"
                grew = True


def _left_out_sentence(rule: Rule, number: int, why: str, task: str) -> str:
    call = rule.calls[number]
    name = call.name or " or ".join(call.tools)
    return f"call {name!r} of rule {rule.name!r} is left out for task {task!r}: {why}"


def facts_of(match_input: MatchInput, slots: Mapping[str, str], context: Context, clock: Clock) -> Facts:
    perception = match_input.perception
    given = perception.attributes.get("slots")
    known = {**given, **slots} if isinstance(given, Mapping) else slots
    return Facts(perception, known, context.run.goal if context.run else None, clock.now())
