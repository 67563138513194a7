"""Conversion of events of the bus to JSON values: bounded, without secrets. Pure functions.

The inputs and outputs of phases, the requests to models and experiences are only counted or named, to keep events
cheap: the recorded cycle (`GET /v1/cycles/{cycle_id}`) and the memory have them in full.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from msgspec import Struct, structs

from spar import events
from spar.data.json_safe import plain
from spar.data.scrub import scrub
from spar.data.text import safe_line
from spar.events import Event
from spar.runs.run_events import ANSWER, TRANSLATIONS, payload
from spar.types import Action, ActionResult, Reflection

#: Characters of a goal, of an error message, of a lesson.
LINE = 300
#: Fields of an event that `LiveEvent` has beside `data`.
BESIDE = ("agent", "seq", "at", "session", "cycle_id", "run_id")


class LiveEvent(Struct, frozen=True):
    """Event as it is sent to clients.

    `session`, `cycle_id` and `run_id` are "" if the event belongs to none; `data` has its other fields.
    """

    seq: int
    type: str
    at: datetime
    agent: str
    session: str
    cycle_id: str
    run_id: str
    data: dict[str, Any]


def data_of(event: Event) -> dict[str, Any]:
    """Return the fields of an event that are not in `BESIDE`, as JSON values of at most some thousand characters."""
    kind = type(event)
    if (convert := _CONVERTERS.get(kind)) is not None:
        return convert(event)
    if (entry := TRANSLATIONS.get(kind)) is not None:  # the same data as in the event stream of a run
        return entry[1](event)
    return {name: _value(getattr(event, name)) for name in kind.__struct_fields__ if name not in BESIDE}


def kinds_of(names: frozenset[str]) -> frozenset[type[Event]]:
    """Return the event classes of these names and all their subclasses. Raises: ValueError for an unknown name."""
    classes = [member for member in vars(events).values() if isinstance(member, type) and issubclass(member, Event)]
    known = {kind.__name__: kind for kind in classes if kind is not Event}
    for name in sorted(names):
        if name not in known:
            raise ValueError(
                f"type = {safe_line(name, 40)!r}: no event has this name; known: {', '.join(sorted(known))}"
            )
    bases = tuple(known[name] for name in names)
    return frozenset(kind for kind in known.values() if issubclass(kind, bases))


def _value(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float):
        return value
    return value.isoformat() if isinstance(value, datetime) else payload(value)


def _line(text: str) -> str:
    return scrub(safe_line(text, LINE))


def _phase_completed(event: events.PhaseCompleted) -> dict[str, Any]:
    return {"phase": event.phase, "duration": event.duration, **_product(event.output)}


def _product(output: Any) -> dict[str, Any]:
    """Return a summary of the output of a phase."""
    if isinstance(output, Action):
        return {"goal": _line(output.goal), "calls": len(output.calls)}
    if isinstance(output, ActionResult):
        return {"status": output.status, "results": len(output.results)}
    if isinstance(output, Reflection):
        return {"score": output.score}
    return {"perceptions": len(output)} if isinstance(output, (list, tuple)) else {}


def _error(event: events.ErrorOccurred) -> dict[str, Any]:
    fault = event.error
    return {"phase": event.phase, "policy": event.policy, "kind": fault.kind, "message": _line(fault.message)}


def _run_ended(event: events.RunEnded) -> dict[str, Any]:
    reply = None if event.reply is None else plain(event.reply, ANSWER)
    return {"status": event.status, "error": _line(event.error), "reply": reply, "silent": event.silent,
            "output": payload(event.output), "usage": structs.asdict(event.usage)}  # fmt: skip


def _experience(event: events.ExperienceStored) -> dict[str, Any]:
    experience = event.experience
    return {
        "id": experience.id,
        "success": experience.success,
        "situation": _line(experience.situation),
        "lesson": _line(experience.lesson),
    }


def _piece(event: events.AssistantDelta) -> dict[str, Any]:
    return {"text": plain(event.text, ANSWER), "reset": event.reset, "ends": event.ends}


def _thought(event: events.ReasoningDelta) -> dict[str, Any]:
    return {"text": plain(event.text, ANSWER), "reset": event.reset, "request": event.request}


#: The function that returns the data of an event, by the class of the event.
_CONVERTERS: dict[type[Event], Callable[[Any], dict[str, Any]]] = {
    events.LoopStarted: lambda event: {},
    events.PhaseStarted: lambda event: {"phase": event.phase},
    events.PhaseCompleted: _phase_completed,
    events.LoopCompleted: lambda event: {
        "outcome": event.outcome, "duration": event.duration, "calls": dict(event.calls), "deferred": event.deferred
    },
    events.ErrorOccurred: _error,
    events.RunEnded: _run_ended,
    events.ExperienceStored: _experience,
    events.ModelRequested: lambda event: {"digest": event.digest, "tokens": event.tokens, "attempt": event.attempt},
    events.AssistantDelta: _piece,
    events.ReasoningDelta: _thought,
}  # fmt: skip
