"""What a user meets can be imported from `spar`, and is typed and shown in few words."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import spar
from spar import errors, events


def test_every_event_and_every_error_is_a_name_of_spar() -> None:
    classes = [
        value
        for module, base in ((events, events.Event), (errors, Exception))
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, base) and value.__module__.startswith(module.__name__)
    ]

    assert len(classes) > 50
    assert [each.__name__ for each in classes if getattr(spar, each.__name__, None) is not each] == []


def test_every_name_of_spar_can_be_loaded_and_is_listed() -> None:
    for name in spar.__all__:
        assert getattr(spar, name) is not None
    assert set(spar.__all__) < set(dir(spar))


def test_an_agent_lists_what_people_use_of_it() -> None:
    names = [name for name in dir(spar.Agent()) if not name.startswith("_")]

    assert {"start", "stop", "submit", "wait", "events", "state", "stats", "step_plan", "from_config"} <= set(names)
    assert not {"lanes", "lifespan", "keeping", "requests", "runner"} & set(names)
    assert len(names) < 40


LONG = "x" * 10_000
CALLS = tuple(spar.Call(LONG, {f"{n}": LONG for n in range(100)}) for n in range(100))
ACTION = spar.Action(CALLS, goal=LONG, reason=LONG, output={LONG: LONG})
RESULT = spar.ActionResult(
    ACTION, "ok", tuple(spar.CallResult(call, "ok", output=LONG) for call in CALLS), {LONG: LONG}
)


@pytest.mark.parametrize(
    "value",
    [
        spar.Perception(LONG, kind=LONG, attributes={LONG: LONG}), CALLS[0], ACTION, RESULT, RESULT.results[0],
        spar.Reflection(RESULT, 0.5, CALLS), spar.Experience(LONG, LONG, LONG), spar.Fault("error", LONG),
        spar.Message(LONG, LONG), spar.Verdict.deny(LONG), spar.Agent(name=LONG), spar.Agent(),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_value_is_shown_in_one_short_line(value: Any) -> None:
    assert len(repr(value)) < 200
    assert "\n" not in repr(value)
    assert type(value).__name__ in repr(value)


def test_a_short_value_is_shown_with_what_is_in_it() -> None:
    assert repr(spar.Fault("error", "no device", part="x")) == (
        "Fault(kind='error', message='no device', part='x', retryable=True)"
    )
