"""Lessons of an action: one experience to remember; pure.

The situation is told in the words of what was perceived, their beginning only and without what looks
like a secret. What people said and what they were told is kept whole beside it, so that it is found again by any of its
words. The
lesson is made of names and the table's own sentences (kinds, intents, tools, parameters' names): no value of a
parameter and no recalled text, so nothing that was only remembered is learnt. A tool's error message is quoted in
`cause`, nowhere else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime

from reflection.causes import cause_of, fault_cause
from reflection.outcome import Outcome
from spar.data.scrub import scrub
from spar.data.text import safe_line
from spar.records.abilities import kind_of_task, of_strangers, situation_of, whoever
from spar.types import Action, ActionResult, Call, CallFailure, CallResult, Experience, Perception, Trust

#: Perceptions of this source bring recalled text.
RECALLED = "memory"
#: The kind of what people say.
MESSAGE = "message"
#: Characters that are looked at for secrets in one go.
_AT_ONCE = 32_768
_NAMED = 5
#: Perceptions whose words are looked at for the line of a situation.
_LOOKED_AT = 50
_NAME_LIMIT = 80
_TASK_LIMIT = 600  # of the name of a task, whose parts are short
_WORDS_LIMIT = 160
_SCRUBBED = 2_000  # characters that are searched for secrets: more than are kept


def leading(perceptions: Iterable[Perception]) -> Perception | None:
    """Return the most urgent perception, the first of equals."""
    every = tuple(perceptions)  # most follow from one
    return every[0] if len(every) == 1 else max(every, key=lambda each: each.importance, default=None)


def task_of(call: Call | None, action: Action | None) -> str:
    """Return the task: the one that the planner noted in the call's `_task`, else the situation of the leading
    perception. Where strangers had a say, in what was noticed or in the call's parameters, its name says so."""
    return _tasks((call,), action)[0]


def tasks_of(result: ActionResult) -> list[str]:
    """Return the task of each call of a result."""
    return _tasks([item.call for item in result.results], result.action)


def _tasks(calls: Iterable[Call | None], action: Action | None) -> list[str]:
    perceptions = action.perceptions if action is not None else ()
    is_all_strange = bool(perceptions) and all(each.trust == "untrusted" for each in perceptions)
    found: Perception | None = None
    noticed: str | None = None
    tasks = []
    for call in calls:
        noted = call.meta.get("_task") if call is not None else None
        is_strange = call is not None and call.meta.get("_trust") == "untrusted"
        if isinstance(noted, str):
            task, is_strange = safe_line(noted, _TASK_LIMIT), is_strange or is_all_strange
        else:
            if noticed is None:  # the same for all calls that nothing is noted of
                found = leading(perceptions)
                noticed = situation_of(found) if found is not None else ""
            task, is_strange = noticed, is_strange or (found is not None and found.trust == "untrusted")
        tasks.append(of_strangers(task) if is_strange else task)
    return tasks


def experience_of(
    result: ActionResult,
    outcome: Outcome,
    failures: tuple[CallFailure, ...],
    tasks: Sequence[str] = (),
    *,
    session: str,
    cycle_id: str,
    at: datetime,
    said: str = "",
    answer: str = "",
) -> Experience | None:
    """Return the experience of a result; None when nothing was called, said or broken.

    Args: tasks: of the calls of the result; said, answer: what people said and were told, whole and without secrets.
    """
    action = result.action
    if not result.results and result.fault is None and (action is None or (not action.calls and action.output is None)):
        return None
    perceptions = action.perceptions if action is not None else ()
    calls = [item.call for item in result.results] or list(action.calls if action is not None else ())
    task = kind_of_task(whoever(tasks[0] if tasks else task_of(calls[0] if calls else None, action)))
    is_recalled = any(perception.source == RECALLED for perception in perceptions)
    return Experience(
        situation=_situation(perceptions),
        action=_calls_line(calls, action),
        outcome=safe_line(outcome.text),
        success=outcome.success,
        task=task,
        cause=_cause(result, failures),
        lesson=_lesson(result, outcome, task),
        at=at,
        session=session,
        trust=_weakest(perceptions),
        origin=f"{RECALLED}:{cycle_id}" if is_recalled else cycle_id,
        said=said,
        answer=answer,
    )


def said_in(action: Action | None) -> str:
    """Return the words of people that an action is about, whole; nothing that was only recalled."""
    perceptions = action.perceptions if action is not None else ()
    return "\n".join(item.text for item in perceptions if item.kind == MESSAGE and item.source != RECALLED)


def answer_of(action: Action | None) -> str:
    """Return the answer of an action as text."""
    output = action.output if action is not None else None
    if output is None or isinstance(output, str):
        return output or ""
    return Perception(output).text


async def without_secrets(text: str) -> str:
    """A text of any length without what looks like a secret.

    A long one is looked at in pieces, divided where a line or a word ends; others have their turn in between.
    """
    pieces: list[str] = []
    while text:
        end = len(text) if len(text) <= _AT_ONCE else text.rfind("\n", _AT_ONCE // 2, _AT_ONCE) + 1
        end = end or text.rfind(" ", 0, _AT_ONCE) + 1 or _AT_ONCE
        pieces.append(scrub(text[:end]))
        text = text[end:]
        if text:
            await asyncio.sleep(0)
    return "".join(pieces)


def _weakest(perceptions: Sequence[Perception]) -> Trust:
    return "trusted" if perceptions and all(item.trust == "trusted" for item in perceptions) else "untrusted"


def _situation(perceptions: Sequence[Perception]) -> str:
    if not perceptions:
        return "nothing was perceived"
    lines = list(dict.fromkeys(_about(item) for item in perceptions[:_LOOKED_AT]))
    if len(perceptions) > _LOOKED_AT:
        return safe_line(f"{'; '.join(lines[:_NAMED])}; and more, {len(perceptions)} in all")
    return safe_line(_few(lines, "; "))


def _about(perception: Perception) -> str:
    """`alert (restart_service) about nginx: nginx is down on web1`; of recalled text only what it was."""
    name = safe_line(perception.kind or perception.source, _NAME_LIMIT)
    intent = f" ({safe_line(perception.intent, _NAME_LIMIT)})" if perception.intent else ""
    subject = f" about {safe_line(perception.subject, _NAME_LIMIT)}" if perception.subject else ""
    words = "" if perception.source == RECALLED else safe_line(scrub(perception.text[:_SCRUBBED]), _WORDS_LIMIT)
    return f"{name}{intent}{subject}{': ' if words else ''}{words}"


def _calls_line(calls: list[Call], action: Action | None) -> str:
    if not calls:
        return "answered" if action is not None and action.output is not None else "nothing was called"
    return safe_line(_few([_signature(call) for call in calls], " → "))


def _signature(call: Call) -> str:
    """`note(text, tags)`: the names of the parameters, not their values, which may be secret."""
    return safe_line(f"{call.tool}({', '.join(map(str, list(call.params)[:10]))})", 2 * _NAME_LIMIT)


def _few(texts: list[str], between: str) -> str:
    more = f"{between}and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return between.join(texts[:_NAMED]) + more


def _cause(result: ActionResult, failures: tuple[CallFailure, ...]) -> str:
    if result.fault is not None:
        return safe_line(f"{fault_cause(result.fault).cause}: {result.fault.message}")
    return safe_line(_few([f"{failure.call.tool}: {failure.cause}" for failure in failures], "; "))


def _lesson(result: ActionResult, outcome: Outcome, task: str) -> str:
    """Say why it worked or failed and what could help, in the table's words."""
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
    return safe_line(of_task + "; ".join(told)) if told else ""


def _tools(items: tuple[CallResult, ...]) -> list[str]:
    return list(dict.fromkeys(item.call.tool for item in items))
