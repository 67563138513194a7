"""The part of the page on HTTP about live events: the fields of one, and what each class says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec

from spar import events
from spar.decoding import encode
from spar.events.table import BESIDE, LiveEvent, data_of
from spar.types import Action, ActionResult, Call, CallResult, Experience, Fault, Reflection
from tests.docs.page_parts import code

INTRO = """`GET /v1/events` sends each event as `id` (its `seq`, which grows strictly, also over restarts), `event` (its
class, see [the events](events.md)) and `data`. A client that comes back with `Last-Event-ID` goes on where it was.
`data` is an object of
"""
GAP = """A client that was too slow, away for more than a minute, or connected to an earlier process first gets a `Gap`:
`data.missed` is the number of lost events, or null where nobody counted them. It should then ask for `/v1/status`
again. After 15 seconds without an event comes a comment with the `id` up to which the client has seen everything.

`data` holds the other fields of the event, each bounded and without secrets. These classes say something else:
"""
NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
#: What a name does not say.
MEANINGS = {
    "seq": "",
    "type": " (the class)",
    "at": "",
    "agent": "",
    "session": "",
    "cycle_id": "",
    "run_id": ' (each "" for none)',
    "data": "",
}


def live_events_part() -> Iterator[str]:
    """Yield the lines of the part."""
    yield from ("## Live events", "", *INTRO.splitlines(), "")
    yield f"{', '.join(code(name) + MEANINGS[name] for name in LiveEvent.__struct_fields__)}."
    last = data_of(_samples()[-1])
    example = LiveEvent(3729173521203201, "CallCompleted", NOW, "main", "talk", "18ea256e7753", "18ea256e0001", last)
    wire = json.loads(encode(example))
    yield from ("", "```json", json.dumps(wire), "```", "", *GAP.splitlines(), "")
    alike: dict[str, list[str]] = {}
    for event in _samples():
        keys = data_of(event)
        if set(keys) != {name for name in type(event).__struct_fields__ if name not in BESIDE}:
            alike.setdefault(", ".join(map(code, keys)) or "nothing", []).append(code(type(event).__name__))
    yield from (f"- {', '.join(names)}: {keys}" for keys, names in alike.items())


def _samples() -> list[events.Event]:
    call = Call("http", {"url": "http://127.0.0.1/"}, id="c1")
    ok = CallResult(call, "ok", output="200")
    failed = CallResult(call, "failed", reason="why", fault=Fault("error", "no"))
    plain: list[Any] = [
        events.LoopStarted(cycle_id="", started_at=NOW), events.PhaseStarted(cycle_id="", phase="sense"),
        *(events.PhaseCompleted(cycle_id="", phase=phase, output=output) for phase, output in (  # one for each phase
            ("sense", []), ("plan", Action()), ("act", ActionResult(Action())), ("reflect", Reflection())
        )),
        events.LoopCompleted(cycle_id="", completed_at=NOW, duration=0.1, outcome="acted"),
        events.ErrorOccurred(cycle_id="", phase="plan", error=Fault("error", "no")),
        events.ExperienceStored(experience=Experience("")), events.ModelRequested(cycle_id=""),
        events.RunEnded(run_id="", status="ok"),
        *(kind(call=call) for kind in (events.CallProposed, events.CallStarted, events.CallProgressed,
                                       events.CallInDoubt, events.ApprovalRequested, events.ApprovalResolved,
                                       events.ApprovalExpired)),
        events.CallFailed(call=call, result=failed), events.CallSkipped(call=call, result=failed),
        events.CallCompleted(call=call, result=ok),
    ]  # fmt: skip
    return [msgspec.structs.replace(each, at=NOW) for each in plain]
