"""Advice of a model on a cycle that taught something, as far as it can be used; pure.

An answer is taken as a whole or not at all: each cause is one of the taxonomy, each remedy one that a planner can carry
out, with a tool that exists and may be called, and the lesson is one short line. No advice takes the place of a
person's word: what was refused, or is in doubt, keeps the remedy that the table gives it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Struct

from reflection.question import CAUSES, LONGEST_LESSON, NAME, Matter, callable_tools, open_calls, schema_of
from spar.data.scrub import scrub
from spar.data.text import safe_line
from spar.types import CallFailure, CallResult, Experience, Remedy, RemedyAction, TriedCall, replace

#: Seconds that a remedy may ask to wait.
_LONGEST_WAIT: Final = 3600.0


class AdviceError(ValueError):
    """Raised where an answer cannot be used; the message says why."""


class CallAdvice(Struct, frozen=True, forbid_unknown_fields=True):
    """Advice on the call of this `number`, from 1."""

    call: int
    cause: str
    action: RemedyAction
    tool: str = ""
    parameter: str = ""
    after: float | None = None


class Advice(Struct, frozen=True, forbid_unknown_fields=True):
    """An answer that can be used."""

    calls: tuple[CallAdvice, ...]
    lesson: str

    @property
    def is_empty(self) -> bool:
        """Return whether it says nothing."""
        return not (self.calls or self.lesson)


def read(answer: Any, matter: Matter, tools: Mapping[str, Any]) -> Advice:
    """Return an answer that can be used in all its parts. Raises: AdviceError."""
    try:
        advice = msgspec.convert(answer, Advice)
    except (msgspec.ValidationError, TypeError, RecursionError) as error:
        raise AdviceError(f"the answer has another form: {error!s:.200}") from None
    lesson = " ".join(advice.lesson.split())
    if len(lesson) > LONGEST_LESSON:
        raise AdviceError(f"the lesson has {len(lesson)} characters, allowed are {LONGEST_LESSON}")
    if not lesson.isprintable():
        raise AdviceError("the lesson holds signs that cannot be printed")
    known, able = open_calls(matter), callable_tools(tools)
    if len({each.call for each in advice.calls}) < len(advice.calls):
        raise AdviceError("a call is advised on twice")
    for each in advice.calls:
        if each.call not in known:
            raise AdviceError(f"there is no call {each.call} to be advised on")
        _check(each, known[each.call][0], able, matter)
    return Advice(advice.calls, scrub(lesson))


def _check(advice: CallAdvice, item: CallResult, tools: Mapping[str, Any], matter: Matter) -> None:
    """Raises: AdviceError where nobody could carry the remedy out."""
    action = advice.action
    if advice.cause not in CAUSES:
        raise AdviceError(f"{_shown(advice.cause)} is no cause of the taxonomy")
    given = {"tool": advice.tool, "parameter": advice.parameter, "after": advice.after}
    needed = {"other_tool": "tool", "other_parameter": "parameter", "retry": "after"}.get(action, "")
    for name, value in given.items():
        if name == needed and (value is None or value == ""):
            raise AdviceError(f"the remedy {action} needs {name}")
        if name != needed and value not in ("", None):
            raise AdviceError(f"the remedy {action} has no {name}")
    if action == "other_tool" and (advice.tool not in tools or advice.tool == item.call.tool):
        raise AdviceError(f"there is no other tool {_shown(advice.tool)} that may be called")
    if action == "other_parameter" and advice.parameter not in _parameters(item, tools):
        raise AdviceError(f"{item.call.tool} has no parameter {_shown(advice.parameter)}")
    if advice.after is not None and not (math.isfinite(advice.after) and 0 < advice.after <= _LONGEST_WAIT):
        raise AdviceError(f"after is {advice.after!r}, allowed are up to {_LONGEST_WAIT:g} seconds")
    if action == "wait" and not matter.incident:
        raise AdviceError("there is no open incident to wait for")


def mended(failures: Sequence[CallFailure], advice: Advice, matter: Matter) -> tuple[CallFailure, ...]:
    """Return the failures with the causes and remedies of an advice."""
    advised = {open_calls(matter)[each.call][1].call.id: each for each in advice.calls}
    found = []
    for failure in failures:
        each = advised.get(failure.call.id)
        if each is not None:
            remedy = _remedy(each, matter)
            failure = replace(failure, remedy=remedy.text, kind=each.cause, advice=remedy)
        found.append(failure)
    return tuple(found)


def added(experience: Experience, advice: Advice, matter: Matter) -> Experience:
    """Return the experience of the cycle with what an advice adds to it."""
    calls: list[TriedCall] = list(experience.calls)
    for each in advice.calls:
        if each.call <= len(calls):
            calls[each.call - 1] = replace(calls[each.call - 1], cause=each.cause, remedy=_remedy(each, matter))
    return replace(experience, calls=tuple(calls), lesson=_joined(experience.lesson, advice.lesson))


def apart(experience: Experience, advice: Advice, id: str) -> Experience | None:
    """Return an advice as an experience of its own, None where it says nothing for people.

    It follows from text of strangers about something trusted: it has no calls, and so no vote, and is untrusted itself.
    """
    if not advice.lesson:
        return None
    return replace(experience, id=id, lesson=advice.lesson, trust="untrusted", calls=(), said="", answer="", cause="")


def _remedy(advice: CallAdvice, matter: Matter) -> Remedy:
    texts: dict[RemedyAction, str] = {
        "retry": f"try again after {advice.after or 0:g} s",
        "other_tool": f"use {safe_line(advice.tool, NAME)}",
        "other_parameter": f"give {safe_line(advice.parameter, NAME)!r} another value",
        "ask": "ask a person",
        "wait": "wait until the incident is over",
    }
    until = matter.incident if advice.action == "wait" else ""
    text = texts.get(advice.action, "nothing that is known helps")
    return Remedy(advice.action, text, after=advice.after, tool=advice.tool, parameter=advice.parameter, until=until)


def _joined(lesson: str, more: str) -> str:
    return "; ".join(filter(None, (lesson, more)))


def _parameters(item: CallResult, tools: Mapping[str, Any]) -> set[str]:
    """Return the names of the parameters that a call has, or could have."""
    properties = schema_of(tools.get(item.call.tool)).get("properties")
    named = {name for name in properties if not name.startswith("_")} if isinstance(properties, Mapping) else set()
    return {*item.call.params, *named}


def _shown(text: str) -> str:
    return repr(safe_line(text, 80))
