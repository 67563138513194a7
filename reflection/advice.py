"""Advice of a model on a cycle that taught something; pure.

An answer is accepted as a whole or rejected as a whole. Each cause must be one of the taxonomy, each remedy one that a
planner can carry out with a tool that exists and may be called, and the lesson one short line. Advice never replaces a
person's decision: a call that was refused or is in doubt keeps the remedy of the table in `reflection.causes`.
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
from spar.decoding import convert
from spar.types import CallFailure, CallResult, Experience, Remedy, RemedyAction, TriedCall, replace

#: Seconds that a remedy may ask to wait.
_LONGEST_WAIT: Final = 3600.0


class AdviceError(ValueError):
    """Error for an answer that cannot be used; the message says why."""


class CallAdvice(Struct, frozen=True, forbid_unknown_fields=True):
    """Advice on one call; `call` is its number, from 1."""

    call: int
    cause: str
    action: RemedyAction
    tool: str = ""
    parameter: str = ""
    after: float | None = None


class Advice(Struct, frozen=True, forbid_unknown_fields=True):
    """Answer that passed all checks."""

    calls: tuple[CallAdvice, ...]
    lesson: str

    @property
    def is_empty(self) -> bool:
        """Return whether the answer has neither advice on a call nor a lesson."""
        return not (self.calls or self.lesson)


def read(answer: Any, matter: Matter, tools: Mapping[str, Any]) -> Advice:
    """Return the answer as advice. Raises: AdviceError when any part of it cannot be used."""
    try:
        advice = convert(answer, Advice)
    except (msgspec.ValidationError, TypeError, RecursionError) as error:
        raise AdviceError(f"the answer has another form: {error!s:.200}") from None
    lesson = " ".join(advice.lesson.split())
    if len(lesson) > LONGEST_LESSON:
        raise AdviceError(f"the lesson has {len(lesson)} characters, allowed are {LONGEST_LESSON}")
    if not lesson.isprintable():
        raise AdviceError("the lesson holds signs that cannot be printed")
    known, able = open_calls(matter), callable_tools(tools)
    if len({call_advice.call for call_advice in advice.calls}) < len(advice.calls):
        raise AdviceError("a call is advised on twice")
    for call_advice in advice.calls:
        if call_advice.call not in known:
            raise AdviceError(f"there is no call {call_advice.call} to be advised on")
        _check(call_advice, known[call_advice.call][0], able, matter)
    return Advice(advice.calls, scrub(lesson))


def _check(advice: CallAdvice, item: CallResult, tools: Mapping[str, Any], matter: Matter) -> None:
    """Check that a remedy can be carried out. Raises: AdviceError."""
    action = advice.action
    if advice.cause not in CAUSES:
        raise AdviceError(f"{_shown(advice.cause)} is no cause of the taxonomy")
    values = {"tool": advice.tool, "parameter": advice.parameter, "after": advice.after}
    needed = {"other_tool": "tool", "other_parameter": "parameter", "retry": "after"}.get(action, "")
    for name, value in values.items():
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
    """Return the failures with the causes and remedies of the advice."""
    advised = {open_calls(matter)[call_advice.call][1].call.id: call_advice for call_advice in advice.calls}

    def mend(failure: CallFailure) -> CallFailure:
        if (call_advice := advised.get(failure.call.id)) is None:
            return failure
        remedy = _remedy(call_advice, matter)
        return replace(failure, remedy=remedy.text, kind=call_advice.cause, advice=remedy)

    return tuple(map(mend, failures))


def added(experience: Experience, advice: Advice, matter: Matter) -> Experience:
    """Return the experience of the cycle with the causes, remedies and lesson of the advice."""
    calls: list[TriedCall] = list(experience.calls)
    for call_advice in advice.calls:
        if (place := call_advice.call - 1) < len(calls):
            calls[place] = replace(calls[place], cause=call_advice.cause, remedy=_remedy(call_advice, matter))
    lesson = "; ".join(filter(None, (experience.lesson, advice.lesson)))
    return replace(experience, calls=tuple(calls), lesson=lesson)


def apart(experience: Experience, advice: Advice, id: str) -> Experience | None:
    """Return the lesson of an advice as a separate experience; None when the advice has no lesson.

    It is used when untrusted text led to the advice and the experience of the cycle is trusted. The new experience has
    no calls, so it has no vote, and it is untrusted.
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


def _parameters(item: CallResult, tools: Mapping[str, Any]) -> set[str]:
    """Return the names of the parameters that a call has or could have."""
    properties = schema_of(tools.get(item.call.tool)).get("properties")
    named = {name for name in properties if not name.startswith("_")} if isinstance(properties, Mapping) else set()
    return {*item.call.params, *named}


def _shown(text: str) -> str:
    return repr(safe_line(text, 80))
