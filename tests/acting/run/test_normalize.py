"""Finished and verified are different."""

from typing import Any

import pytest

from acting import Executor
from acting.run.checks import objection_to_value, unmet
from spar.protocols.tools import tool
from spar.testing import VirtualClock
from spar.types import Call, Message


@tool(effect="read")
async def echo(value: Any = None) -> Any:
    return value


@tool(effect="read")
async def tell(value: Any) -> Message:
    return Message("state", value)


def expecting(expected: Any, value: Any) -> Call:
    return Call("echo", {"value": value}, meta={"_expect": expected}, output_path="†state.x")


@pytest.mark.parametrize(
    ("expected", "value", "holds"),
    [
        ({"status": 200}, {"status": 200, "body": "x"}, True),
        ({"status": 200}, {"status": 404}, False),
        ({"a": {"b": [1]}}, {"a": {"b": [1], "c": 2}}, True),
        ({"a": {"b": [1]}}, {"a": {"b": [1, 2]}}, False),
        ({"a": [True]}, {"a": [1]}, False),
        ({"a": [{"b": 1}]}, {"a": [{"b": True}]}, False),
        ({"state": "up"}, "up", False),
        (5, 5, True),
        (5, 6, False),
        (True, 1, False),
        (1, True, False),
        (None, None, True),
        ([], [], True),
        ({}, {"anything": 1}, True),
        ({}, "anything", False),
        # Words of JSON Schema are words like any others.
        ({"title": "Report"}, {"title": "Wrong", "type": "draft"}, False),
        ({"description": "final"}, {"description": "x"}, False),
        ({"format": "json"}, {"format": "pdf"}, False),
        ({"type": "invoice"}, {"type": "invoice", "n": 1}, True),
        ({"required": ["b"]}, {"b": 1}, False),
        ({"properties": {"status": {"const": 200}}}, {"status": 200}, False),
    ],
)
async def test_a_call_is_verified_if_its_result_is_what_was_expected(expected: Any, value: Any, holds: bool) -> None:
    result = (await Executor([echo]).run([expecting(expected, value)])).results[0]

    assert result.status == ("ok" if holds else "failed")
    assert result.verified is holds
    if not holds:
        assert result.fault.kind == "unverified"
        assert result.fault.detail["output"] == value


@pytest.mark.parametrize(
    ("schema", "value", "holds"),
    [
        ({"type": "object", "properties": {"status": {"const": 200}}, "required": ["status"]}, {"status": 200}, True),
        ({"properties": {"status": {"const": 200}}}, {"status": 500}, False),
        ({"minimum": 3}, 2, False),
        ({"title": "a number", "type": "integer"}, 2, True),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"type": "integer"}}}, "2", False),
    ],
)
async def test_a_call_is_verified_if_its_result_satisfies_its_schema(schema: Any, value: Any, holds: bool) -> None:
    call = Call("echo", {"value": value}, meta={"_expectSchema": schema})
    result = (await Executor([echo]).run([call])).results[0]

    assert (result.status, result.verified) == (("ok", True) if holds else ("failed", False))


async def test_a_call_may_state_a_value_and_a_schema_that_must_both_hold_or_nothing() -> None:
    meta = {"_expect": {"n": 5}, "_expectSchema": {"required": ["m"]}}
    calls = [Call("echo", {"value": value}, meta=meta) for value in ({"n": 5, "m": 1}, {"n": 5}, {"n": 4, "m": 1})]
    calls += [Call("echo"), Call("tell", {"value": {"up": True}}, meta={"_expect": {"up": True}})]
    found = (await Executor([echo, tell]).run(calls)).results
    assert [each.verified for each in found] == [True, False, False, None, True]


@pytest.mark.parametrize(
    "meta",
    [
        *(
            {"_expectSchema": schema}
            for schema in ({}, True, {"title": "Report"}, {"status": 200}, {"type": "object", "status": 200}, "paid", 5)
        ),
        {"_expectSchema": {"type": "nonsense"}},
        {"_expectSchema": {"items": 5}},
        {"_expectSchema": {"pattern": "("}},
        {"_expect": object()},
    ],
)
async def test_what_cannot_be_expected_or_holds_a_result_to_nothing_is_an_error_of_the_call(meta: Any) -> None:
    result = (await Executor([echo]).run([Call("echo", meta=meta)])).results[0]
    assert (result.fault.kind, result.attempts) == ("bad_call", 0)
    assert next(iter(meta)) in result.fault.message


async def test_what_is_not_verified_writes_nothing_and_what_depends_on_it_is_skipped() -> None:
    result = await Executor([echo]).run([expecting({"ok": True}, {"ok": False}), Call("echo", {"value": "†state.x"})])
    assert result.state == {}
    assert [each.reason for each in result.results] == ["", "dep_failed"]


async def test_what_may_be_repeated_is_looked_at_again(clock: VirtualClock) -> None:
    looks: list[int] = []

    @tool(effect="read", retries=3)
    async def look() -> dict[str, int]:
        looks.append(1)
        return {"ready": len(looks)}

    result = await Executor([look], clock=clock).run([Call("look", meta={"_expect": {"ready": 3}})])

    assert result.results[0].verified is True
    assert result.results[0].attempts == 3


def test_a_message_says_where_it_differs() -> None:
    assert unmet({"_expect": {"a": {"b": 1}}}, {"a": {"b": 2}}) == "a.b is 2, not 1"
    assert unmet({"_expect": {"a": 1}}, {}) == "'a' is not there"
    assert objection_to_value({"status": 200}) == ""
