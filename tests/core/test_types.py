"""The values that flow: immutable, easily made, the same on the wire and back; any exception is a fault."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spar.errors import ContractError, PermanentError, PhaseTimeoutError, SparError, TransientError, leaves, unwrap
from spar.types import (
    Ability,
    Action,
    ActionResult,
    Call,
    CallResult,
    CycleRecord,
    Experience,
    Fault,
    Message,
    Perception,
    Reflection,
    Verdict,
    replace,
    utcnow,
)
from tests.effort import effort, growth

KNOWN = {"_tool", "_id", "_outputPath", "_outputMethod", "_instance", "_after", "_reasoningForCall"}
TEXT = st.text(st.characters(exclude_categories=()), max_size=20)  # lone surrogates and control characters included
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
CALLS = st.builds(
    Call,
    tool=TEXT.filter(bool),
    params=st.dictionaries(TEXT.filter(lambda key: not key.startswith("_")), VALUES, max_size=4),
    id=TEXT,
    output_path=st.none() | TEXT,
    output_method=st.sampled_from(["set", "merge", "assign", "push", "concat"]),
    instance=st.none() | TEXT,
    after=st.lists(TEXT, max_size=3).map(tuple),
    reason=TEXT,
    meta=st.dictionaries(TEXT.map(lambda key: f"_{key}").filter(lambda key: key not in KNOWN), VALUES, max_size=3),
)


# -- calls on the wire ------------------------------------------------------------------------------------


@given(CALLS)
def test_a_call_is_the_same_after_being_json_on_the_wire(call: Call) -> None:
    assert Call.from_wire(json.loads(json.dumps(call.to_wire()))) == call


def test_each_key_of_the_wire_has_its_place() -> None:
    call = Call.from_wire(
        {
            "_tool": "note",
            "_id": "c1",
            "_outputPath": "†state.a",
            "_outputMethod": "push",
            "_instance": "i",
            "_after": ["c0"],
            "_reasoningForCall": "because",
            "_scopes": ["x"],
            "_detach": True,
            "text": "hello",
            "n": None,
        }
    )

    assert call == Call(
        "note",
        {"text": "hello", "n": None},
        id="c1",
        output_path="†state.a",
        output_method="push",
        instance="i",
        after=("c0",),
        reason="because",
        meta={"_scopes": ["x"], "_detach": True},
    )


def test_only_the_tool_is_needed_on_the_wire_which_stays_as_it_is() -> None:
    wire = {"_tool": "note", "_id": None, "_outputPath": None}
    call = Call.from_wire(wire)

    assert (call.tool, call.params, call.output_path, call.output_method, call.after) == ("note", {}, None, "set", ())
    assert call.id
    call.params["b"] = 2
    assert wire == {"_tool": "note", "_id": None, "_outputPath": None}


@pytest.mark.parametrize(
    ("wire", "message"),
    [
        ({}, "_tool' is missing"),
        ({"_tool": ""}, "_tool' is missing"),
        ({"_tool": 7}, "'tool' of a call must be text, found 7"),
        ({"_tool": "x", "_id": 7}, "'id' of a call must be text"),
        ({"_tool": "x", "_outputMethod": "replace"}, "must be set, merge, assign, push or concat, found 'replace'"),
        ({"_tool": "x", "_after": "c1"}, "'_after' must be a list of call ids, found 'c1'"),
        ({"_tool": "x", "_after": [1]}, "'_after' must be a list of call ids"),
        ({"_tool": "x", "_after": None}, "'_after' must be a list of call ids"),
        ({"_tool": "x", 1: 2}, "keys must be text, found 1"),
        (["x"], "must be an object, found list"),
        (None, "must be an object, found NoneType"),
    ],
)
def test_a_wire_object_that_cannot_be_read_says_why(wire: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Call.from_wire(wire)


def test_ids_of_calls_are_unique() -> None:
    assert len({Call("x").id for _ in range(10_000)}) == 10_000


# -- defaults ---------------------------------------------------------------------------------------------


def test_little_is_enough_to_make_a_value() -> None:
    before = utcnow()
    perception = Perception("disk is full")

    assert (perception.content, perception.text, perception.trust, perception.priority) == (
        "disk is full",
        "disk is full",
        "untrusted",
        None,
    )
    assert perception.importance == 0.5
    assert (perception.session, perception.key, perception.evidence, perception.attributes) == ("main", None, (), {})
    assert before <= perception.at <= utcnow()
    assert Call("note").params == {}
    assert Action().calls == ()
    assert ActionResult().status == "ok"
    assert Reflection().score == 0.0
    assert Experience("s").success is None
    assert Message("note", 7).instance is None


def test_defaults_are_not_shared() -> None:
    Perception().attributes["x"] = 1
    Call("a").params["x"] = 1
    ActionResult().state["x"] = 1

    assert (Perception().attributes, Call("a").params, ActionResult().state) == ({}, {}, {})
    assert Perception().id != Perception().id


@pytest.mark.parametrize(
    "value",
    [
        Perception("x"),
        Call("x"),
        Action(),
        CallResult(Call("x"), "ok"),
        ActionResult(),
        Reflection(),
        Experience("x"),
        Fault("io", "x"),
        Ability("a", "b", 0.5, 0.1, 3),
        Message("note", 7),
        Verdict.approve(),
        CycleRecord("id", "main", "main", datetime(2026, 1, 1, tzinfo=UTC), 1.0, "idle"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_cannot_be_changed_only_replaced(value: Any) -> None:
    name = value.__struct_fields__[0]
    with pytest.raises(AttributeError):
        setattr(value, name, getattr(value, name))
    assert replace(value) == value
    assert replace(value) is not value


def test_a_perception_of_anything_can_be_read_as_text() -> None:
    assert Perception({"load": 0.5, "ä": [1]}).text == '{"load": 0.5, "ä": [1]}'
    assert Perception(datetime(2026, 1, 1, tzinfo=UTC)).text == '"2026-01-01 00:00:00+00:00"'
    assert Perception("\udcff{}").text == "\udcff{}"


def test_the_result_of_a_call_is_found_by_its_id() -> None:
    result = ActionResult(results=(CallResult(Call("a", id="1"), "ok"), CallResult(Call("b", id="2"), "failed")))

    assert result.result("2").status == "failed"
    with pytest.raises(KeyError, match="no call '3' in this action; known: 1, 2"):
        result.result("3")
    with pytest.raises(KeyError, match="known: none"):
        ActionResult().result("1")


def test_a_verdict_says_what_to_do_instead() -> None:
    call = Call("other")

    assert Verdict.approve().decision == "approve"
    assert (Verdict.deny("no").decision, Verdict.deny("no").reason) == ("deny", "no")
    assert Verdict.edit({"a": 1}).params == {"a": 1}
    assert Verdict.replace(call).call is call


# -- faults -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind", "retryable"),
    [
        (TransientError("x"), "transient", True),
        (PermanentError("x"), "permanent", False),
        (TimeoutError("x"), "timeout", True),
        (PhaseTimeoutError("x"), "timeout", True),
        (ConnectionResetError("x"), "transient", True),
        (PermissionError("x"), "permission", True),
        (FileNotFoundError("x"), "not_found", True),
        (OSError("x"), "io", True),
        (ContractError("x"), "contract", True),
        (TypeError("x"), "contract", True),
        (ValueError("x"), "bad_input", True),
        (UnicodeError("x"), "bad_input", True),
        (MemoryError("x"), "resources", True),
        (SparError("x"), "error", True),
        (KeyError("x"), "error", True),
        (BaseException("x"), "error", True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else str(value),
)
def test_a_fault_says_of_what_kind_an_exception_is(error: BaseException, kind: str, retryable: bool) -> None:
    fault = Fault.of(error, part="sensor", phase="sense")

    assert (fault.kind, fault.retryable, fault.part, fault.phase) == (kind, retryable, "sensor", "sense")
    assert fault.message == ("KeyError: 'x'" if isinstance(error, KeyError) else str(error))
    assert fault.detail == {"type": type(error).__name__}


def test_a_fault_carries_what_the_exception_knows() -> None:
    class ToolError(TransientError):
        output = ("half",)

    fault = Fault.of(ToolError("busy", retry_after=3))

    assert fault.detail == {"type": "ToolError", "retry_after": 3, "output": ("half",)}


def looks_up(key: str) -> Any:
    return {}[key]


def caught(work: Callable[[], object]) -> BaseException:
    try:
        work()
    except BaseException as error:
        return error
    raise AssertionError("it did not raise")


def test_a_mistake_in_code_is_told_with_its_type_its_place_and_its_stack() -> None:
    fault = Fault.of(caught(lambda: looks_up("nope")))

    assert fault.message == "KeyError: 'nope'"
    assert fault.detail["where"] == f"test_types.py:{looks_up.__code__.co_firstlineno + 1} in looks_up"
    assert "return {}[key]" in fault.detail["traceback"]
    assert fault.detail["traceback"].endswith("KeyError: 'nope'")


def test_the_place_is_not_in_a_library_the_stack_bounded_and_what_is_raised_on_purpose_one_sentence() -> None:
    def refuses() -> None:
        raise PermanentError("no such account")

    def deeper(text: str) -> None:
        deeper(text + "x")

    fault = Fault.of(caught(lambda: json.loads("{")))
    assert "test_types.py" in fault.detail["where"]
    assert "json/decoder.py" in fault.detail["traceback"]
    assert Fault.of(caught(refuses)).detail == {"type": "PermanentError"}
    assert len(Fault.of(caught(lambda: deeper(""))).detail["traceback"]) <= 4_000


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class Treacherous(TransientError):
    def __init__(self) -> None:
        pass

    @property
    def output(self) -> Any:
        raise RuntimeError("not this either")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (Mute(), "Mute"),
        (Treacherous(), "Treacherous"),
        (ValueError(), "ValueError"),
        (Exception("\udcff{x}"), "\udcff{x}"),
        (ExceptionGroup("g", [Mute(), ValueError("page")]), "Mute; page"),
        (asyncio.CancelledError(), "CancelledError"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_whatever_an_exception_is_like_there_is_a_fault_of_it(error: BaseException, message: str) -> None:
    assert Fault.of(error).message == message


def _nested(depth: int, leaf: BaseException) -> BaseException:
    return leaf if depth == 0 else BaseExceptionGroup(f"level {depth}", [_nested(depth - 1, leaf)])


def test_a_group_is_looked_through() -> None:
    leaf = TransientError("busy", retry_after=2.0)
    fault = Fault.of(_nested(50, leaf))

    assert (fault.kind, fault.message) == ("transient", "busy")
    assert fault.detail == {"type": "TransientError", "leaves": ["busy"], "retry_after": 2.0}


def test_a_group_of_several_stays_a_group_that_one_permanent_error_makes_permanent() -> None:
    transient = ExceptionGroup("g", [OSError("a"), OSError("b")])
    group = ExceptionGroup(
        "g", [TransientError("busy"), ExceptionGroup("h", [OSError("disk"), PermanentError("bad key")])]
    )

    assert unwrap(transient) is transient
    assert Fault.of(transient).kind == "error"
    assert isinstance(unwrap(group), PermanentError)
    assert [str(leaf) for leaf in leaves(group)] == ["busy", "disk", "bad key"]
    assert Fault.of(group).message == "busy; disk; bad key"
    assert not Fault.of(group).retryable


# -- made by hand -------------------------------------------------------------------------------------------


def made(kind: type, **fields: Any) -> Any:
    """A value of a kind with fields that a type checker would refuse."""
    return kind(**fields)


@pytest.mark.parametrize(
    ("kind", "fields", "error", "sentence"),
    [
        (
            Perception,
            {"priority": 5},
            ValueError,
            "Perception.priority must be a number from 0 to 1 or None, found int (5)",
        ),
        (Perception, {"priority": float("nan")}, ValueError, "must be a number from 0 to 1 or None, found float (nan)"),
        (Perception, {"priority": "high"}, TypeError, "must be a number from 0 to 1 or None, found str"),
        (Perception, {"confidence": True}, TypeError, "must be a number from 0 to 1, found bool (True)"),
        (Perception, {"trust": "maybe"}, ValueError, "trust must be 'trusted' or 'untrusted', found str ('maybe')"),
        (Perception, {"trust": ["trusted"]}, ValueError, "trust must be 'trusted' or 'untrusted', found list"),
        (Perception, {"at": "now"}, TypeError, "Perception.at must be a datetime, found str ('now')"),
        (Perception, {"key": 7}, TypeError, "Perception.key must be text or None, found int (7)"),
        (Perception, {"evidence": ["x"]}, TypeError, "must be a list of Perception, found str ('x') in it"),
        (Perception, {"attributes": None}, TypeError, "must be an object (a dict with text as keys), found NoneType"),
        (Perception, {"attributes": {1: 2}}, TypeError, "(a dict with text as keys), found the key 1"),
        (Call, {"tool": "x", "params": [1]}, TypeError, "Call.params must be an object (a dict with text as keys)"),
        (
            Call,
            {"tool": "x", "params": {1: "y"}},
            TypeError,
            "Call.params must be an object (a dict with text as keys)",
        ),
        (Call, {"tool": 5}, TypeError, "Call.tool must be text, found int (5)"),
        (Call, {"tool": "x", "after": "c1"}, TypeError, "Call.after must be a list, found str"),
        (Call, {"tool": "x", "after": [1]}, TypeError, "Call.after must be a list of texts, found int (1) in it"),
        (Call, {"tool": "x", "output_method": "append"}, ValueError, "output_method must be 'set' or 'merge' or"),
        *[
            (Action, {"calls": calls}, TypeError, "Action.calls must be a list, found")
            for calls in ("note", b"note", {"_tool": "note"}, 7, None)
        ],
        (Action, {"calls": ["x"]}, TypeError, "Action.calls must be a list of Call, found str ('x') in it"),
        (Action, {"perceptions": ["x"]}, TypeError, "Action.perceptions must be a list of Perception, found str"),
        (Action, {"next_look": "soon"}, TypeError, "Action.next_look must be a number or None, found str ('soon')"),
        (Action, {"next_look": float("nan")}, ValueError, "Action.next_look must be a number or None, found float"),
        (Action, {"trust": "maybe"}, ValueError, "Action.trust must be 'trusted' or 'untrusted' or None, found str"),
        (Action, {"degraded": 1}, TypeError, "Action.degraded must be True or False, found int (1)"),
    ],
)
def test_a_value_made_with_a_wrong_field_is_refused_in_one_clear_sentence(
    kind: type, fields: dict[str, Any], error: type[Exception], sentence: str
) -> None:
    with pytest.raises(error) as raised:
        made(kind, **fields)

    assert sentence in str(raised.value)
    assert str(raised.value).startswith(f"{kind.__name__}.")
    if kind is Perception:
        with pytest.raises(error):
            replace(Perception("x"), **fields)


def test_whole_numbers_lists_and_subclasses_are_right_where_their_kind_is() -> None:
    class Name(str):
        pass

    parts = [Perception("a")]
    perception = Perception("x", priority=1, confidence=0, source=Name("s"), evidence=parts)
    call = Call(Name("t"), {Name("a"): 1}, after=[Name("c")], meta={"_task": "t"})

    assert (perception.priority, perception.evidence) == (1, tuple(parts))
    assert (call.tool, call.params, call.after) == ("t", {"a": 1}, ("c",))
    assert Action(calls=[call], next_look=3).next_look == 3


def test_lists_are_kept_as_tuples_in_every_value_that_takes_them() -> None:
    call = Call("x")
    result = ActionResult(results=[CallResult(call, "ok")], messages=[{}], errors=[])
    reflection = Reflection(successes=[call], failures=[], abilities=[], experiences=[Experience("s")])

    assert (result.results, result.messages, result.errors) == ((CallResult(call, "ok"),), ({},), ())
    assert (reflection.successes, reflection.failures, reflection.abilities) == ((call,), (), ())
    assert type(reflection.experiences) is tuple
    action = Action([call], perceptions=[Perception("y")])  # type: ignore[arg-type]
    assert (type(action.calls), type(action.perceptions)) == (tuple, tuple)
    assert replace(action, calls=[call, call]).calls == (call, call)


def test_what_is_right_is_seen_without_looking_at_every_field() -> None:
    perceptions = [Perception("a")]
    call = Call("x", {"a": 1}, meta={"_task": "t"}, after=["c"])
    plain = [
        lambda: Perception("x", key="k", attributes={"a": 1}, evidence=tuple(perceptions)),
        lambda: Call("x", {"a": 1}, output_path="†state.a", meta={"_task": "t"}, after=("c",)),
        lambda: Action([call], perceptions=tuple(perceptions), trust="trusted", next_look=1.0, run_id="r"),
        lambda: replace(call, reason="because"),
    ]

    # Looking at every field takes more than a hundred steps; what a value costs grows with what is in it alone.
    assert [effort(make) < 60 for make in plain] == [True] * len(plain)
    assert growth(lambda size: Action(calls=tuple([call] * size)), 100) <= 2.2
