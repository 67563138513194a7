"""What to remember of an action: one experience; pure.

The situation is told in the words of what was perceived, their beginning only and without what looks
like a secret, so that it is found again by them. The
lesson is made of names and the table's own sentences (kinds, intents, tools, parameters' names): no value of a
parameter and no recalled text, so nothing that was only remembered is learnt. A tool's error message is quoted in
`cause`, nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from reflection.causes import cause_of, fault_cause, one_line
from reflection.outcome import Outcome
from spar.scrub import scrub
from spar.types import Action, ActionResult, Call, CallFailure, CallResult, Experience, Perception, Trust

#: Perceptions of this source bring recalled text.
RECALLED = "memory"
_NAMED = 5
_NAME_LIMIT = 80
_WORDS_LIMIT = 160
_SCRUBBED = 2_000  # characters that are searched for secrets: more than are kept


def leading(perceptions: Iterable[Perception]) -> Perception | None:
    """The most urgent perception, the first of equals."""
    return max(perceptions, key=lambda p: p.importance if p.importance == p.importance else 0.0, default=None)


def task_of(call: Call | None, action: Action | None) -> str:
    """The kind of task: what the planner noted in the call's `_task`, else the leading perception's intent or kind."""
    noted = call.meta.get("_task") if call is not None else None
    if isinstance(noted, str):
        return one_line(noted, _NAME_LIMIT)
    found = leading(action.perceptions) if action is not None else None
    return one_line((found.intent or found.kind) if found is not None else "", _NAME_LIMIT)


def experience_of(
    result: ActionResult,
    outcome: Outcome,
    failures: tuple[CallFailure, ...],
    *,
    session: str,
    cycle_id: str,
    at: datetime,
) -> Experience | None:
    """What is worth remembering of a result; None when nothing was called, said or broken."""
    action = result.action
    if not result.results and result.fault is None and (action is None or (not action.calls and action.output is None)):
        return None
    perceptions = action.perceptions if action is not None else ()
    calls = [item.call for item in result.results] or list(action.calls if action is not None else ())
    task = task_of(calls[0] if calls else None, action)
    is_recalled = any(perception.source == RECALLED for perception in perceptions)
    return Experience(
        situation=_situation(perceptions),
        action=_calls_line(calls, action),
        outcome=one_line(outcome.text),
        success=outcome.success,
        task=task,
        cause=_cause(result, failures),
        lesson=_lesson(result, outcome, task),
        at=at,
        session=session,
        trust=_weakest(perceptions),
        origin=f"{RECALLED}:{cycle_id}" if is_recalled else cycle_id,
    )


def _weakest(perceptions: Sequence[Perception]) -> Trust:
    return "trusted" if perceptions and all(item.trust == "trusted" for item in perceptions) else "untrusted"


def _situation(perceptions: Sequence[Perception]) -> str:
    if not perceptions:
        return "nothing was perceived"
    lines = list(dict.fromkeys(_about(item) for item in perceptions))
    return one_line(_few(lines, "; "))


def _about(perception: Perception) -> str:
    """`alert (restart_service) about nginx: nginx is down on web1`; of recalled text only what it was."""
    name = one_line(perception.kind or perception.source, _NAME_LIMIT)
    intent = f" ({one_line(perception.intent, _NAME_LIMIT)})" if perception.intent else ""
    subject = f" about {one_line(perception.subject, _NAME_LIMIT)}" if perception.subject else ""
    words = "" if perception.source == RECALLED else one_line(scrub(perception.text[:_SCRUBBED]), _WORDS_LIMIT)
    return f"{name}{intent}{subject}{': ' if words else ''}{words}"


def _calls_line(calls: list[Call], action: Action | None) -> str:
    if not calls:
        return "answered" if action is not None and action.output is not None else "nothing was called"
    return one_line(_few([_signature(call) for call in calls], " → "))


def _signature(call: Call) -> str:
    """`note(text, tags)`: the names of the parameters, not their values, which may be secret."""
    return one_line(f"{call.tool}({', '.join(map(str, list(call.params)[:10]))})", 2 * _NAME_LIMIT)


def _few(texts: list[str], between: str) -> str:
    more = f"{between}and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return between.join(texts[:_NAMED]) + more


def _cause(result: ActionResult, failures: tuple[CallFailure, ...]) -> str:
    if result.fault is not None:
        return one_line(f"{fault_cause(result.fault).cause}: {result.fault.message}")
    return one_line(_few([f"{failure.call.tool}: {failure.cause}" for failure in failures], "; "))


def _lesson(result: ActionResult, outcome: Outcome, task: str) -> str:
    """What worked, or why it failed and what could help, in the table's words."""
    of_task = f"for {task}: " if task else ""
    told = []
    if outcome.worked:
        told.append(f"{_few(_tools(outcome.worked), ', ')} worked")
    told += [
        f"{item.call.tool} did not: {cause_of(item).cause}; {cause_of(item).remedy}" for item in outcome.failed[:3]
    ]
    if result.fault is not None:
        cause = fault_cause(result.fault)
        told.append(f"acting broke off: {cause.cause}; {cause.remedy}")
    return one_line(of_task + "; ".join(told)) if told else ""


def _tools(items: tuple[CallResult, ...]) -> list[str]:
    return list(dict.fromkeys(item.call.tool for item in items))
