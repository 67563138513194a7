"""The table of what observers get: a row for each event, and nothing in a row that its event has not."""

from __future__ import annotations

import string
from types import NoneType
from typing import Any, get_args, get_type_hints

import pytest

from spar import events
from spar.bus.run_log import _STREAMED
from spar.decoding import decode, encode
from spar.events import CallEvent, CallFailed, Event, Gap, PhaseStarted
from spar.events.table import BESIDE, ROWS, LiveEvent, _fields_of, data_of, event_of, row_of_call, sentence_of
from spar.types import Call, CallResult, Fault, replace, utcnow
from tests.docs.live_events_part import _samples

CLASSES = {member for name in events.__all__ if issubclass(member := getattr(events, name), Event)}
#: Bases, which nobody publishes.
BASES = {base for kind in CLASSES for base in kind.__mro__[1:]}


def type_at(kind: Any, path: str) -> Any:
    """Return the type of what stands at a path below a type. Raises: KeyError for a path that leads nowhere."""
    for name in path.split("."):
        hints = get_type_hints(kind)
        if name not in hints:
            raise KeyError(f"{kind.__name__} has no {name}; it has {', '.join(hints)}")
        kind = next((each for each in get_args(hints[name]) if each is not NoneType), hints[name])
    return kind


def test_every_event_has_its_row() -> None:
    assert set(ROWS) == CLASSES - BASES


@pytest.mark.parametrize("kind", ROWS, ids=lambda kind: kind.__name__)
def test_what_a_row_reads_is_there(kind: type[Event]) -> None:
    row = ROWS[kind]
    fields = {name: field.path for name, field in (row.fields or {}).items() if field.path}
    for path in (*fields.values(), *row.span.values()):
        type_at(kind, path)
    for line in row.log:
        for path in (*line.fields.values(), *filter(None, [line.fault])):
            type_at(kind, path)
    names = set(kind.__struct_fields__) - {*BESIDE} if row.fields is None else {*row.fields}
    beside = {"run_id"} & {*kind.__struct_fields__} | ({"detail"} if row.more else set())
    places = {place for _, place, _, _ in string.Formatter().parse(row.sentence) if place}
    assert places <= names | beside


def test_a_run_hears_of_every_event_of_its_stream() -> None:
    streamed = {kind for kind, row in ROWS.items() if row.stream}
    assert all(issubclass(kind, tuple(_STREAMED)) and "run_id" in kind.__struct_fields__ for kind in streamed)


def test_a_call_of_a_stream_is_found_by_its_phase() -> None:
    calls = {kind: row for kind, row in ROWS.items() if issubclass(kind, CallEvent) and row.stream}
    for kind, row in calls.items():
        fixed = {name: field.value for name, field in row.fields.items() if field.value}
        assert row_of_call(fixed) is row, kind
    assert row_of_call({"phase": "of another release"}) is None


def test_an_event_reads_as_a_sentence_without_what_it_does_not_say() -> None:
    call = Call("pay", {}, id="c1")
    late = CallResult(call, "timeout", fault=Fault("timeout", "Authorization: Bearer abcdefghijkl"))
    data = data_of(CallFailed(call=call, result=late))
    assert sentence_of(ROWS[CallFailed], data) == "pay: timeout: Authorization: Bearer ***"
    assert sentence_of(ROWS[CallFailed], {"tool": "pay", "status": "denied"}) == "pay: denied"
    assert sentence_of(ROWS[Gap], {"missed": 3}, lambda value: f"<{value}>") == "<3> events were missed"


@pytest.mark.parametrize("before", [3_990, 3_970, 200_000])
def test_no_part_of_a_secret_remains_where_a_value_is_cut(before: int) -> None:
    secret = "ghp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
    long = f"{'x' * before} {secret} {'y' * 9_000} {secret} {'z' * (before - 20)}"
    call = Call("read", {"text": long, "list": [long] * 60}, id="c1")
    failed = CallResult(
        call, "error", output={"page": long}, reason=long, fault=Fault("error", f"{'x' * 270} {secret}")
    )
    lines = [events.ErrorOccurred(cycle_id="c", phase="act", error=Fault("error", f"{'x' * n} {secret}"))
             for n in range(250, 300, 7)]  # fmt: skip

    for event in (CallFailed(call=call, result=failed), events.CallProposed(call=call), *lines):
        assert "AbCd" not in str(data_of(event)), type(event).__name__


@pytest.mark.parametrize("sample", _samples(), ids=lambda sample: type(sample).__name__)
def test_a_live_event_is_read_back_as_a_value_of_its_class(sample: Event) -> None:
    sent = LiveEvent(1, type(sample).__name__, utcnow(), "main", "talk", "c", "r", data_of(sample))
    event = event_of(decode(encode(sent), LiveEvent))
    assert type(event) is type(sample)
    fields = _fields_of(type(sample))
    assert {name: data_of(event)[name] for name in fields} == {name: sent.data[name] for name in fields}


def test_a_live_event_of_another_version_has_no_class_or_further_fields() -> None:
    sent = LiveEvent(1, "PhaseStarted", utcnow(), "main", "talk", "c", "", {"phase": "plan", "mood": "good"})
    assert event_of(sent) == PhaseStarted("c", "plan", session="talk", agent="main", seq=1, at=sent.at)
    assert event_of(replace(sent, type="Novelty")) is None
    with pytest.raises(ValueError, match="PhaseStarted without phase"):
        event_of(replace(sent, data={}))
