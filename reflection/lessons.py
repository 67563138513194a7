"""Memory of one action: its outcome, its calls, and one experience with a lesson; pure.

A finished call is not always a verified one. A call that ended well and stated a postcondition (`_expect`) is
verified; for any other call the tool's own result is the only evidence. A call that was not meant to run (another
branch, a newer message) or was not allowed to run says nothing about success. Calls are stored with bounded parameters
without secrets.

The situation holds the beginning of each perceived text, without anything that looks like a secret. The messages of
people and the answers to them are stored whole beside it, so that a search for any of their words finds them. The
lesson consists of names and of the sentences of the table (kinds, intents, tools, names of parameters). It holds no
value of a parameter and no recalled text, so a remembered text is never learnt a second time. Only `cause` quotes a
tool's error message.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Container, Iterable, Sequence
from datetime import datetime
from typing import Any

from msgspec import Struct

from reflection.causes import STRUCTURAL, cause_of, fault_cause, kind_of
from spar.data.json_safe import plain
from spar.data.learning.abilities import ToolTrial
from spar.data.learning.situations import kind_of_task, of_strangers, situation_of, whoever
from spar.data.scrub import scrub, scrubbed
from spar.data.text import safe_line
from spar.types import Action, ActionResult, Call, CallFailure, CallResult, Experience, Perception, TriedCall, Trust

#: Source of the perceptions that carry recalled text.
RECALLED = "memory"
#: Kind of the perceptions that carry a person's message.
MESSAGE = "message"
#: Characters that are searched for secrets without a pause.
_AT_ONCE = 32_768
_NAMED = 5
#: Perceptions whose texts go into the line of a situation.
_LOOKED_AT = 50
_NAME_LIMIT = 80
_TASK_LIMIT = 600  # of the name of a task, whose parts are short
_WORDS_LIMIT = 160
_SCRUBBED = 2_000  # characters that are searched for secrets: more than are stored
#: Values of `CallResult.reason` for a call that still goes on elsewhere or waits for its turn.
OPEN = frozenset({"parked", "detached", "steered"})
#: Calls of one experience (the first ones), and bytes of the parameters of one call.
MOST_CALLS = 20
LARGEST_PARAMS = 2_000


class Outcome(Struct, frozen=True):
    """Judgement of one action, and the names of what it was about.

    `score` is 0..1; `success` is None while it is unknown; `worked` and `failed` are calls. `tasks` are the tasks of
    the result's calls, `task` is that of the whole by kind and intent, `key` the most exact name of its situation.
    """

    score: float
    success: bool | None
    text: str
    worked: tuple[CallResult, ...] = ()
    failed: tuple[CallResult, ...] = ()
    tasks: Sequence[str] = ()
    task: str = ""
    key: str = ""


class Texts(Struct, frozen=True):
    """Texts of an action without secrets.

    `words` are the beginnings of its perceptions, of recalled ones "". `messages` are those of people and `answer`
    is the answer to them, whole.
    """

    words: Sequence[str]
    messages: str
    answer: str


def judge(result: ActionResult) -> Outcome:
    """Judge an action. Never raises.

    The score is the share of calls that ended well among those that should have; a call in doubt counts half. An
    action succeeded when no call failed, none is open or in doubt, and a call ended well or an answer was given.
    """
    worked: list[CallResult] = []
    failed: list[CallResult] = []
    counts = {"verified": 0, "failed": 0, "open or in doubt": 0, "denied": 0}
    doubted = 0
    for item in result.results:
        status, reason = item.status, item.reason
        if status == "ok" and reason != "detached":
            worked.append(item)
            counts["verified"] += item.verified is True
        elif has_failed(item):
            failed.append(item)
        if status in ("in_doubt", "cancelled") or reason in OPEN:
            counts["open or in doubt"] += 1
            doubted += status == "in_doubt"
        counts["denied"] += status == "denied"
    counts["failed"] = len(failed)
    action, calls = result.action, [item.call for item in result.results]
    has_answer = action is not None and action.output is not None
    broken = result.fault is not None or (result.status == "failed" and not worked)
    expected = len(worked) + len(failed) + doubted
    score = 0.0 if broken else (len(worked) + 0.5 * doubted) / expected if expected else 1.0
    is_unknown = counts["open or in doubt"] > 0 or result.status == "interrupted" or not (worked or has_answer)
    success = False if failed or broken else None if is_unknown else True
    text = _outcome_text(result, len(worked), counts)
    planned = action.calls[:1] if action is not None and not calls else ()
    tasks = tasks_of(calls or [None, *planned], action)
    task = kind_of_task(whoever(tasks[len(planned)]))
    return Outcome(score, success, text, tuple(worked), tuple(failed), tasks if calls else (), task, whoever(tasks[0]))


def has_failed(item: CallResult) -> bool:
    """Return whether a call should have ended well and did not.

    An exception that a branch of the plan handles was foreseen. A refusal is a decision, not a failure of the tool.
    """
    if item.status in ("failed", "timeout"):
        return item.reason != "handled"
    return item.status == "skipped" and item.reason == "dep_failed"


def _outcome_text(result: ActionResult, finished: int, counts: dict[str, int]) -> str:
    is_answered = result.action is not None and result.action.output is not None
    whole = f"{finished} of {len(result.results)} calls finished" if result.results else (
        "answered" if is_answered else "nothing was called")  # fmt: skip
    parts = [f"{number} {word}" for word, number in counts.items() if number]
    return f"{result.status}: {', '.join([whole, *parts])}"


def trials_of(result: ActionResult, tasks: Iterable[str], unsure: Container[str]) -> list[ToolTrial]:
    """Return the evidence that results give about their tools. Args: unsure: the ids of calls that give none yet."""
    trials = [trial_of(item, task) for item, task in zip(result.results, tasks, strict=True)
              if item.call.id not in unsure]  # fmt: skip
    return [trial for trial in trials if trial is not None]


def trial_of(item: CallResult, task: str) -> ToolTrial | None:
    """Return the evidence that a result gives about its tool; None when the tool was not tried or its success is
    unknown.

    An exception that the plan handles is still a failed trial. A call is no evidence when its parameters came from
    untrusted text and the tool rejected them.
    """
    if item.status == "ok" and item.reason != "detached":
        success = True
    elif item.status in ("failed", "timeout") and not (item.fault is not None and item.fault.kind in STRUCTURAL):
        success = False
        if item.call.meta.get("_trust") == "untrusted" and cause_of(item).action == "other_parameter":
            return None
    else:
        return None
    cost = float(item.attempts) if item.attempts > 0 else None
    return ToolTrial(item.call.tool, task, success, _seconds(item), cost=cost)


def tried_of(
    result: ActionResult, failures: Iterable[CallFailure] = (), unsure: Container[str] = ()
) -> tuple[TriedCall, ...]:
    """Return the calls that were tried, in order; parameters that follow from recalled text are not learnt again.

    Args: unsure: the ids of calls that ended well and whose effect is not known yet.
    """
    by_id = {failure.call.id: failure for failure in failures}
    has_params = not _is_recalled(result.action)
    tried = []
    for item in result.results[:MOST_CALLS]:
        failure, has_ended_well = by_id.get(item.call.id), item.status == "ok" and item.reason != "detached"
        success = True if has_ended_well else False if has_failed(item) else None
        tried.append(
            TriedCall(
                tool=_line(item.call.tool, 2 * _NAME_LIMIT),
                status=item.status,
                success=None if success and item.call.id in unsure else success,
                verified=item.verified,
                cause="" if has_ended_well else kind_of(item),
                remedy=None if failure is None else failure.advice,
                trust="untrusted" if item.call.meta.get("_trust") == "untrusted" else "trusted",
                latency=_seconds(item),
                params=bounded_params(item.call.params) if has_params else {},
            )
        )
    return tuple(tried)


def _seconds(item: CallResult) -> float:
    return item.duration if 0 <= item.duration < math.inf else 0.0


def bounded_params(params: dict[str, Any]) -> dict[str, Any]:
    """Return parameters in the form that may be stored: secrets are masked, long values are shortened."""
    shortened = scrubbed(plain(params, LARGEST_PARAMS), named=str)
    return shortened if isinstance(shortened, dict) else {}


def leading(perceptions: Iterable[Perception]) -> Perception | None:
    """Return the most urgent perception, the first of equally urgent ones."""
    every = tuple(perceptions)  # most actions follow from one perception
    return every[0] if len(every) == 1 else max(every, key=lambda perception: perception.importance, default=None)


def tasks_of(calls: Iterable[Call | None], action: Action | None) -> list[str]:
    """Return the task of each call: the one in the call's `_task`, which the planner set, else the situation of the
    leading perception (of None: always). The name of a task says so when untrusted text led to the call or to its
    parameters."""
    perceptions = action.perceptions if action is not None else ()
    is_all_untrusted = bool(perceptions) and "trusted" not in [perception.trust for perception in perceptions]
    lead: Perception | None = None
    situation: str | None = None
    tasks = []
    for call in calls:
        named_task = call.meta.get("_task") if call is not None else None
        is_untrusted = call is not None and call.meta.get("_trust") == "untrusted"
        if isinstance(named_task, str):
            task, is_untrusted = _line(named_task, _TASK_LIMIT), is_untrusted or is_all_untrusted
        else:
            if situation is None:  # the same for all calls without a task of their own
                lead = leading(perceptions)
                situation = situation_of(lead) if lead is not None else ""
            task, is_untrusted = situation, is_untrusted or (lead is not None and lead.trust == "untrusted")
        tasks.append(of_strangers(task) if is_untrusted else task)
    return tasks


def experience_of(
    result: ActionResult,
    outcome: Outcome,
    failures: tuple[CallFailure, ...],
    texts: Texts,
    *,
    session: str,
    cycle_id: str,
    at: datetime,
    run_id: str = "",
    unsure: Collection[str] | None = None,
) -> Experience | None:
    """Return the experience of a result; None when there was no call, no answer and no fault.

    Args: run_id: the id of the run or episode; unsure: the ids of calls whose effect is judged later, None where
    nothing is learnt.
    """
    action = result.action
    if not result.results and result.fault is None and (action is None or (not action.calls and action.output is None)):
        return None
    perceptions = action.perceptions if action is not None else ()
    calls = [item.call for item in result.results] or list(action.calls if action is not None else ())
    lines = (_situation(perceptions, texts.words), _calls_line(calls, action), outcome.text, _cause(result, failures),
             _lesson(result, outcome, outcome.task))  # fmt: skip
    situation, did, came_of, cause, lesson = map(_line, lines)
    trust, origin = _weakest(perceptions), f"{RECALLED}:{cycle_id}" if _is_recalled(action) else cycle_id
    learnt: dict[str, Any] = {}
    if unsure is not None:
        calls_tried = tried_of(result, failures, unsure)
        learnt = {"key": outcome.key, "run_id": run_id, "calls": calls_tried, "score": outcome.score}
    success = None if unsure and outcome.success else outcome.success
    return Experience(situation=situation, action=did, outcome=came_of, success=success, task=outcome.task, cause=cause,
                      lesson=lesson, at=at, session=session, trust=trust, origin=origin, said=texts.messages,
                      answer=texts.answer, **learnt)  # fmt: skip


async def texts_of(action: Action | None) -> Texts:
    """Return the texts of an action, each searched for secrets once."""
    texts, messages = [answer_of(action)], list[int]()
    for number, item in enumerate(action.perceptions if action is not None else (), 1):
        if item.source == RECALLED:
            texts.append("")
        elif item.kind == MESSAGE:
            texts.append(item.text)
            messages.append(number)
        else:
            texts.append(item.text[:_SCRUBBED] if number <= _LOOKED_AT else "")
    for number, text in enumerate(texts):
        if text:
            texts[number] = scrub(text) if len(text) <= _AT_ONCE else await without_secrets(text)
    return Texts(texts[1:], "\n".join(map(texts.__getitem__, messages)), texts[0])


def answer_of(action: Action | None) -> str:
    """Return the answer of an action as text."""
    output = action.output if action is not None else None
    if output is None or isinstance(output, str):
        return output or ""
    return Perception(output).text


async def without_secrets(text: str) -> str:
    """Return a text of any length without anything that looks like a secret.

    A long text is searched in pieces that end at the end of a line or a word; other tasks run between the pieces.
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


def _is_recalled(action: Action | None) -> bool:
    """Return whether recalled text was perceived."""
    return action is not None and RECALLED in [perception.source for perception in action.perceptions]


def _line(text: str, limit: int = 500) -> str:
    """Return a text as `safe_line` does; most are one short line already."""
    is_line = len(text) <= limit and text.isprintable() and "  " not in text and text == text.strip()
    return text if is_line else safe_line(text, limit)


def _weakest(perceptions: Sequence[Perception]) -> Trust:
    return "trusted" if perceptions and "untrusted" not in [item.trust for item in perceptions] else "untrusted"


def _situation(perceptions: Sequence[Perception], words: Sequence[str]) -> str:
    if not perceptions:
        return "nothing was perceived"
    lines = list(dict.fromkeys(map(_about, perceptions[:_LOOKED_AT], words)))
    if len(perceptions) > _LOOKED_AT:
        return f"{'; '.join(lines[:_NAMED])}; and more, {len(perceptions)} in all"
    return _few(lines, "; ")


def _about(perception: Perception, words: str) -> str:
    """Return one line about a perception, `alert (restart_service) about nginx: nginx is down on web1`; recalled text
    is left out."""
    name = _line(perception.kind or perception.source, _NAME_LIMIT)
    intent = f" ({_line(perception.intent, _NAME_LIMIT)})" if perception.intent else ""
    subject = f" about {_line(perception.subject, _NAME_LIMIT)}" if perception.subject else ""
    words = _line(words[:_SCRUBBED], _WORDS_LIMIT)
    return f"{name}{intent}{subject}{': ' if words else ''}{words}"


def _calls_line(calls: list[Call], action: Action | None) -> str:
    if not calls:
        return "answered" if action is not None and action.output is not None else "nothing was called"
    return _few([_signature(call) for call in calls[:_NAMED]], " → ", len(calls))


def _signature(call: Call) -> str:
    """Return `note(text, tags)`: the names of the parameters without their values, which may be secret."""
    return _line(f"{call.tool}({', '.join(map(str, list(call.params)[:10]))})", 2 * _NAME_LIMIT)


def _few(texts: list[str], between: str, number: int | None = None) -> str:
    """Return the first texts of `number`; None: of all that are given."""
    number = len(texts) if number is None else number
    more = f"{between}and {number - _NAMED} more" if number > _NAMED else ""
    return between.join(texts[:_NAMED]) + more


def _cause(result: ActionResult, failures: tuple[CallFailure, ...]) -> str:
    if result.fault is not None:
        return f"{fault_cause(result.fault).cause}: {result.fault.message}"
    return _few([f"{failure.call.tool}: {failure.cause}" for failure in failures], "; ")


def _lesson(result: ActionResult, outcome: Outcome, task: str) -> str:
    """Return why the action worked or failed and what could help, in the table's words."""
    prefix = f"for {task}: " if task else ""
    sentences = []
    if outcome.worked:
        sentences.append(f"{_few(list(dict.fromkeys([item.call.tool for item in outcome.worked])), ', ')} worked")
    sentences += [
        f"{item.call.tool} did not: {cause_of(item).cause}; {cause_of(item).remedy}" for item in outcome.failed[:3]
    ]
    if result.fault is not None:
        cause = fault_cause(result.fault)
        sentences.append(f"acting broke off: {cause.cause}; {cause.remedy}")
    return prefix + "; ".join(sentences) if sentences else ""
