"""Finished and verified are different."""

from typing import Any

import pytest

from acting import Executor
from acting.expectations import objection, unmet
from spar.terms import tool
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
        ({"type": "object", "properties": {"status": {"const": 200}}, "required": ["status"]}, {"status": 200}, True),
        ({"properties": {"status": {"const": 200}}}, {"status": 500}, False),
        ({"minimum": 3}, 2, False),
        ({"status": 200}, {"status": 200, "body": "x"}, True),
        ({"status": 200}, {"status": 404}, False),
        ({"a": {"b": [1]}}, {"a": {"b": [1], "c": 2}}, True),
        ({"a": {"b": [1]}}, {"a": {"b": [1, 2]}}, False),
        ({"state": "up"}, "up", False),
        (5, 5, True),
        (5, 6, False),
        (True, 1, False),
        (1, True, False),
        (None, None, True),
        ([], [], True),
        ({}, {"anything": 1}, True),
    ],
)
async def test_a_call_is_verified_if_its_result_is_what_was_expected(expected: Any, value: Any, holds: bool) -> None:
    result = (await Executor([echo]).run([expecting(expected, value)])).results[0]

    assert result.status == ("ok" if holds else "failed")
    assert result.verified is holds
    if not holds:
        assert result.fault is not None
        assert result.fault.kind == "unverified"
        assert result.fault.detail["output"] == value


async def test_what_is_not_verified_writes_nothing_and_what_depends_on_it_is_skipped() -> None:
    result = await Executor([echo]).run([expecting({"ok": True}, {"ok": False}), Call("echo", {"value": "†state.x"})])
    assert result.state == {}
    assert [each.reason for each in result.results] == ["", "dep_failed"]


async def test_a_call_that_expects_nothing_is_neither_verified_nor_not() -> None:
    assert (await Executor([echo]).run([Call("echo")])).results[0].verified is None


async def test_what_a_message_holds_is_held_against_it() -> None:
    call = Call("tell", {"value": {"up": True}}, meta={"_expect": {"up": True}})
    assert (await Executor([tell]).run([call])).results[0].verified is True


async def test_what_may_be_repeated_is_looked_at_again() -> None:
    async with VirtualClock() as clock:
        looks: list[int] = []

        @tool(effect="read", retries=3)
        async def look() -> dict[str, int]:
            looks.append(1)
            return {"ready": len(looks)}

        result = await Executor([look], clock=clock).run([Call("look", meta={"_expect": {"ready": 3}})])

    assert result.results[0].verified is True
    assert result.results[0].attempts == 3


@pytest.mark.parametrize("expected", [{"type": "nonsense"}, {"items": 5}, {"pattern": "("}, object()])
async def test_what_cannot_be_expected_is_an_error_of_the_call(expected: Any) -> None:
    result = (await Executor([echo]).run([Call("echo", meta={"_expect": expected})])).results[0]
    assert result.fault is not None
    assert result.fault.kind == "bad_call"
    assert result.attempts == 0


def test_a_message_says_where_it_differs() -> None:
    assert unmet({"a": {"b": 1}}, {"a": {"b": 2}}) == "a.b is 2, not 1"
    assert unmet({"a": 1}, {}) == "'a' is not there"
    assert objection({"status": 200}) == ""
