"""Tells events of the bus as JSON: bounded, without secrets. Pure functions.

What a phase was given and has returned, a model's request and an experience are only counted or named: all of it is on
the tape (`GET /v1/cycles/{cycle_id}`) and in memory, and an event is to be cheap.
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
from spar.runs.run_events import ANSWER, TOLD, payload
from spar.types import Action, ActionResult, Reflection

#: Characters of a goal, of a message of an error, of a lesson.
LINE = 300
#: What stands beside `data`.
BESIDE = ("agent", "seq", "at", "session", "cycle_id", "run_id")


class LiveEvent(Struct, frozen=True):
    """An event as it is sent: `session`, `cycle_id`, `run_id` are "" where it belongs to none, `data` is the rest."""

    seq: int
    type: str
    at: datetime
    agent: str
    session: str
    cycle_id: str
    run_id: str
    data: dict[str, Any]


def told(event: Event) -> dict[str, Any]:
    """Return what an event says beside whom it concerns, as JSON of at most some thousand characters a value."""
    kind = type(event)
    if (tell := _TOLD.get(kind)) is not None:
        return tell(event)
    if (known := TOLD.get(kind)) is not None:  # as a run's own stream tells it
        return known[1](event)
    return {name: _value(getattr(event, name)) for name in kind.__struct_fields__ if name not in BESIDE}


def kinds_of(names: frozenset[str]) -> frozenset[type[Event]]:
    """Return the classes of these names, with all below each. Raises: ValueError for a name that no event has."""
    classes = [each for each in vars(events).values() if isinstance(each, type) and issubclass(each, Event)]
    known = {each.__name__: each for each in classes if each is not Event}
    for name in sorted(names):
        if name not in known:
            raise ValueError(
                f"type = {safe_line(name, 40)!r}: no event has this name; known: {', '.join(sorted(known))}"
            )
    bases = tuple(known[name] for name in names)
    return frozenset(each for each in known.values() if issubclass(each, bases))


def _value(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float):
        return value
    return value.isoformat() if isinstance(value, datetime) else payload(value)


def _line(text: str) -> str:
    return scrub(safe_line(text, LINE))


def _phase_completed(event: events.PhaseCompleted) -> dict[str, Any]:
    return {"phase": event.phase, "duration": event.duration, **_product(event.output)}


def _product(output: Any) -> dict[str, Any]:
    """Return what is told of what a phase has returned."""
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
    kept = event.experience
    return {"id": kept.id, "success": kept.success, "situation": _line(kept.situation), "lesson": _line(kept.lesson)}


def _piece(event: events.AssistantDelta) -> dict[str, Any]:
    return {"text": plain(event.text, ANSWER), "reset": event.reset, "ends": event.ends}


def _thought(event: events.ReasoningDelta) -> dict[str, Any]:
    return {"text": plain(event.text, ANSWER), "reset": event.reset, "request": event.request}


_TOLD: dict[type[Event], Callable[[Any], dict[str, Any]]] = {
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
