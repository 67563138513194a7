"""Decision of one rule on one perception (its calls, their taint, and the calls that are left out), and of all; pure.

Memory may give a call another one of its tools, or leave the call out; a `Learnt` in the action says so. Where learning
is "observe", the calls are those without memory, and `Learnt` says what memory would have changed.

The decisions of all rules, and what went wrong, are a draft, which becomes one action.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field

from planning.dataflow import can_be_read, colliding, reads_any
from planning.rules.conditions import MESSAGE, MatchInput
from planning.rules.remembered import Remembered
from planning.rules.rule import CallRule, Rule
from planning.rules.templates import Facts, brings_untrusted, fill, render
from planning.rules.tool_choice import Decision, Question, decide, explore
from spar.clock import Clock
from spar.data.paths import Path
from spar.protocols import Context
from spar.types import Action, Answer, Call, Learnt, Perception, replace

#: Tools that are considered for a call with `any_of_tools`.
MOST_TOOLS: Final = 64
_NO_TOOL: Final = "no tool of such a name can be called with these parameters"
#: Effects of tools that may be called twice without harm, and so may be tried out.
_HARMLESS: Final = ("read", "idempotent")


class Firing(Struct, frozen=True):
    """Decision of one rule on one perception.

    `writes` are the places in the state that its calls write; `left_out` are sentences about the calls that are left
    out, and `look` is the number of seconds after which they may be tried again.
    """

    rule: Rule
    calls: tuple[Call, ...] = ()
    writes: tuple[Path, ...] = ()
    answer: Answer | None = None
    goal: str = ""
    left_out: tuple[str, ...] = ()
    learnt: tuple[Learnt, ...] = ()
    look: float | None = None


def fire(
    rule: Rule,
    facts: Facts,
    context: Context,
    task: str,
    tools: Mapping[str, Any] | None = None,
    remembered: Remembered | None = None,
) -> Firing:
    """Return the decision of a rule on one perception.

    Args: task: the name of the situation; tools: the tools that exist, by name, where a call may take any of several;
    remembered: the memory of the situation, None where it was not asked.
    Raises: AbsentError when a template cannot be filled.
    """
    decided: list[tuple[Decision, Decision]] = []
    used: list[Decision] = []
    left_out: dict[int, str] = {}
    lent: set[int] = set()
    for number, call in enumerate(rule.calls):
        without_memory, with_memory = decisions = _decided(rule, call, facts, context, task, tools or {}, remembered)
        decided.append(decisions)
        used.append(chosen := without_memory if context.learning == "observe" else with_memory)
        if chosen.tool is None:
            left_out[number] = chosen.left_out
        if chosen.is_lent:
            lent.add(number)
    if left_out:
        _leave_out_dependants(rule.calls, left_out)
    reason = f"rule {rule.name!r}"
    tainted = _tainted(rule.calls, facts, lent)
    calls: dict[int, Call] = {}
    for number, (call, decision) in enumerate(zip(rule.calls, used, strict=True)):
        if number not in left_out and decision.tool is not None:
            meta: dict[str, Any] = {"_task": task} if task else {}
            if rule.verify is not None and context.learning != "off":
                meta["_verify"] = True
            if number in tainted:
                meta["_trust"] = "untrusted"
            if decision.is_asked and decision.learnt is not None:
                meta["_ask"] = decision.learnt.why
            calls[number] = Call(decision.tool, decision.params, output_path=call.output, reason=reason, meta=meta)
    for number, planned_call in calls.items():
        if after := rule.calls[number].after:
            calls[number] = replace(planned_call, after=tuple(calls[other].id for other in after))
    says = bool(calls or not rule.calls)
    return Firing(
        rule,
        tuple(calls.values()),
        tuple(place for number in calls for place in rule.calls[number].writes),
        _answer(rule, facts, calls.values()) if says else None,
        render(rule.goal, facts) if rule.goal is not None else "",
        tuple(_left_out_sentence(rule, number, why, task) for number, why in sorted(left_out.items())),
        tuple(_learnt(decided, calls, is_used=context.learning == "on")),
        min((look for number in left_out if (look := used[number].look) is not None), default=None),
    )


def _decided(
    rule: Rule,
    call: CallRule,
    facts: Facts,
    context: Context,
    task: str,
    tools: Mapping[str, Any],
    remembered: Remembered | None,
) -> tuple[Decision, Decision]:
    """Return the decision about a call without memory, and the decision with it."""
    params = fill(call.params, facts)
    if remembered is None and len(call.tools) == 1 and call.min_ability is None:
        fixed = Decision(call.tools[0], params)
        return fixed, fixed
    names = call.tools or _any_of(call, params, tools)
    plain = Decision(names[0] if names else None, params, "" if names else _NO_TOOL)
    if not rule.learn or context.learning == "off":
        return plain, plain
    if remembered is not None and (again := _replayed(call, plain, tools, remembered)) is not None:
        return plain, again
    if not names:
        return plain, plain
    is_wanted = facts.perception.kind == MESSAGE
    question = Question(names, params, task, call.min_ability, lambda tool: _may_try(tools.get(tool)), is_wanted)
    if remembered is None:
        return plain, decide(question, context.abilities)
    if remembered.episode and len(names) > 1:
        return plain, explore(question, remembered.cases, remembered.episode)
    return plain, decide(question, context.abilities, remembered.cases, remembered.at)


def _replayed(call: CallRule, plain: Decision, tools: Mapping[str, Any], remembered: Remembered) -> Decision | None:
    """Return the next call of a sequence that worked before; None where the rule's call cannot be this one.

    The parameters of the rule stay; those that it does not set are taken from the sequence.
    """
    step, params = remembered.replay, plain.params
    if step is None:
        return None
    tool = tools.get(step.tool)
    if step.tool not in call.tools and (tool is None or not any(test(step.tool) for test in call.globs)):
        return None
    own = {name: value for name, value in step.params.items() if name not in params and _has(tool, name)}
    if not _takes(tool, {**own, **params}):
        return None
    why = f"{step.tool} was the next call of a sequence that worked from here"
    if own:
        why = f"{why}, with its {', '.join(map(repr, own))}"
    learnt = Learnt(why, cases=(remembered.replayed,), instead_of=plain.tool or "")
    return Decision(step.tool, {**params, **own}, learnt=learnt, is_lent=bool(own) and step.trust == "untrusted")


def _has(tool: Any, name: str) -> bool:
    """Return whether a tool has a parameter; True for an unknown tool."""
    schema = getattr(tool, "schema", None)
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return tool is None or (isinstance(properties, Mapping) and name in properties and not name.startswith("_"))


def _any_of(call: CallRule, params: Mapping[str, Any], tools: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the tools that match the globs of a call: those that a glob names exactly, then the others by name.

    The first one is called where there is no memory. So it has to be one that is named, or that may be tried out;
    without such a tool the result is empty.
    """
    matching_tools = [name for name in tools if any(test(name) for test in call.globs) and _takes(tools[name], params)]
    matching_tools.sort(key=lambda name: (name not in call.written, not _may_try(tools[name]), name))
    if not matching_tools or (matching_tools[0] not in call.written and not _may_try(tools[matching_tools[0]])):
        return ()
    return tuple(matching_tools[:MOST_TOOLS])


def _takes(tool: Any, params: Mapping[str, Any]) -> bool:
    """Return whether the given parameters are all that a tool requires."""
    needed = tool.schema.get("required", ()) if isinstance(getattr(tool, "schema", None), Mapping) else ()
    return all(name in params or str(name).startswith("_") for name in needed)


def _may_try(tool: Any) -> bool:
    """Return whether a tool may be called as a trial: repetition does no harm, or a person is asked before."""
    terms = getattr(tool, "terms", None)
    return terms is None or terms.effect in _HARMLESS or terms.approval == "ask"


def _learnt(
    decided: Sequence[tuple[Decision, Decision]], calls: Mapping[int, Call], *, is_used: bool
) -> Iterator[Learnt]:
    """Yield the decisions that memory changed, or would have changed."""
    for number, (_, decision) in enumerate(decided):
        if decision.learnt is not None:
            call = calls.get(number)
            yield replace(decision.learnt, call_id=call.id if call is not None else "", is_used=is_used)


def _answer(rule: Rule, facts: Facts, calls: Iterable[Call]) -> Answer | None:
    """Return a rule's texts for success and for failure; None for a rule that has neither."""
    if rule.answer is None and rule.on_failure is None:
        return None
    on_failure = render(rule.on_failure, facts) if rule.on_failure is not None else None
    text = render(rule.answer, facts) if rule.answer is not None else None
    return Answer(text, tuple(call.id for call in calls), on_failure)


def _tainted(calls: Sequence[CallRule], facts: Facts, lent: set[int]) -> set[int]:
    """Return the numbers of the calls that get untrusted text: by a template, from memory, or from such a call."""
    tainted = {
        number
        for number, call in enumerate(calls)
        if any(brings_untrusted(placeholder, facts) for placeholder in call.foreign)
    }
    tainted |= lent
    fresh = set(tainted)
    while fresh:
        written = {place for number in fresh for place in calls[number].writes}
        fresh = {
            number
            for number, call in enumerate(calls)
            if number not in tainted and any(reads_any(reference, written) for reference in call.reads)
        }
        tainted |= fresh
    return tainted


def _leave_out_dependants(calls: Sequence[CallRule], left_out: dict[int, str]) -> None:
    """Add every call that needs the end or the output of a call that is left out."""
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
    name = call.name or " or ".join(call.tools or call.written)
    return f"call {name!r} of rule {rule.name!r} is left out for task {task!r}: {why}"


def facts_of(match_input: MatchInput, slots: Mapping[str, str], context: Context, clock: Clock) -> Facts:
    """Return the values that the templates of a rule may name; `slots` are those of its pattern."""
    perception = match_input.perception
    given = perception.attributes.get("slots")
    known = {**given, **slots} if isinstance(given, Mapping) else slots
    return Facts(perception, known, context.run.goal if context.run else None, clock.now())


#: Characters of the reason of an action, and of an error in it.
REASON_LIMIT = 2_000
_ERROR_LIMIT = 200


class Draft(Struct):
    """Draft of one plan.

    `firings` are the decisions of the rules, in order; `troubles` are sentences for the reason; `request` counts the
    requests of a run from 1.
    """

    request: int = 1
    firings: list[Firing] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    def tell(self, trouble: str) -> None:
        """Add a sentence about something that went wrong, once."""
        if trouble not in self.troubles:
            self.troubles.append(trouble)

    def action(self, perceptions: Sequence[Perception]) -> Action | None:
        """Return one action, or None when no rule asks for anything and nothing went wrong."""
        answers = [firing.answer for firing in self.firings if firing.answer is not None]
        texts = [answer.text for answer in answers if answer.text is not None]
        looks = [look for firing in self.firings for look in (firing.rule.next_look, firing.look) if look is not None]
        learnt = tuple(change for firing in self.firings for change in firing.learnt)
        calls = tuple(self._calls())
        reason = self._reason()
        goal = next((firing.goal for firing in self.firings if firing.goal), "")
        left_out = any(firing.left_out for firing in self.firings)
        if not (calls or answers or looks or goal or left_out or self.troubles):
            return None
        return Action(
            calls=calls,
            goal=goal,
            perceptions=tuple(perceptions),
            reason=reason,
            output="\n".join(texts) if texts else None,
            next_look=min(looks, default=None),
            trust="trusted",
            answers=tuple(answers) if calls else (),
            learnt=learnt,
        )

    def _calls(self) -> Iterator[Call]:
        """Yield the calls in order. Firings that write the same places get an instance each: none reads another's
        results.

        All calls of a firing are of its instance, so what one reads there is what the other one wrote. The data of a
        run lasts: its later requests name their instances differently, or they would find what the earlier ones left.
        """
        apart = colliding([firing.writes for firing in self.firings])
        request = "" if self.request == 1 else f"{self.request}."
        for number, firing in enumerate(self.firings):
            if number in apart:
                instance = f"{firing.rule.name}#{request}{number}"
                yield from (replace(call, instance=instance) for call in firing.calls)
            else:
                yield from firing.calls

    def _reason(self) -> str:
        used = Counter(firing.rule.name for firing in self.firings)
        sentences = [f"rule {name!r} matched" + (f" {n} times" if n > 1 else "") for name, n in used.items()]
        wrong = [*(text for firing in self.firings for text in firing.left_out), *self.troubles]
        learnt = [_learnt_sentence(change) for firing in self.firings for change in firing.learnt]
        # The sentences about what went wrong come first: they must not be what is cut off.
        reason = "; ".join([*wrong, *sentences, *learnt])
        return reason if len(reason) <= REASON_LIMIT else f"{reason[: REASON_LIMIT - 1]}…"


def _learnt_sentence(learnt: Learnt) -> str:
    """Return a decision that memory changed as a sentence."""
    instead = f" instead of {learnt.instead_of}" if learnt.instead_of else ""
    return f"{'by memory' if learnt.is_used else 'memory would have decided'}{instead}: {learnt.why}"


def sentence_of(error: Exception) -> str:
    """Return the message of an error, cut to a length that a reason can hold."""
    text = str(error.args[0] if error.args else type(error).__name__)
    return text if len(text) <= _ERROR_LIMIT else f"{text[:_ERROR_LIMIT]}…"
