"""Rules of the call protocol in which several parts go together; those of one part stand beside its tests."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from acting import Executor
from planning.prompt.request import compose
from spar.protocols.tools import tool
from spar.types import Call, Message
from tests.acting.run.test_activities import CITY, Handler, kinds, schema


async def test_what_a_call_says_of_itself_goes_together() -> None:
    delegate = Handler({"name": "Ann"})
    executor = Executor([schema("ask", city=CITY)], activities={"ask": Handler("never"), "_delegate": delegate})
    call = Call("ask", {"city": "†state.town"}, instance="i", output_path="†state.guide", output_method="merge",
                meta={"_delegate": "anonymous", "_scopes": ["data"]})  # fmt: skip
    context: list[dict[str, Any]] = [
        {"type": "state", "state": {"town": "Oslo", "guide": {"age": 40}}, "_instance": "i"},
        {"type": "data", "data": {"for": "i"}, "_instance": "i"},
        {"type": "data", "data": {"for": "j"}, "_instance": "j"},
        {"type": "data", "kind": "secret", "data": {"no": "scope"}},
    ]
    result = await executor.run(
        [call, Call("ask", {"city": "†state.guide.name"}, id="next", instance="i")], context=context
    )

    told, _, seen = delegate.told[0]
    assert told.params == {"city": "Oslo"}
    assert [(each["kind"], each["data"]) for each in seen] == [("data", {"for": "i"})]
    assert kinds(result) == ["ok", "ok"]
    assert result.messages[0]["state"] == {"guide": {"name": "Ann"}}
    assert result.messages[0]["_instance"] == "i"


def test_what_the_caller_says_of_one_kind_is_merged_in_the_order_in_which_it_stands() -> None:
    (text,) = compose([
        {"type": "data", "kind": "user", "data": {"name": {"first": "A", "last": "B"}, "tags": [1]}, "_date": "2030"},
        {"type": "data", "kind": "user", "data": {"name": {"first": "C"}, "tags": [3]}, "_date": "2020"},
    ]).texts  # fmt: skip

    assert '{"name": {"first": "C", "last": "B"}, "tags": [3]}' in text


async def test_what_was_written_says_by_which_call_and_when_and_keeps_its_references() -> None:
    executor = Executor([schema("ask", city=CITY)], activities={"ask": Handler("fine")})
    result = await executor.run(
        [Call("ask", {"city": "†state.town"}, id="a", output_path="†state.weather")], state={"town": "Oslo"}
    )

    (message,) = result.messages
    assert message["_call"]["_id"] == "a"
    assert message["_call"]["city"] == "†state.town"
    assert re.match(r"\d{4}-\d\d-\d\dT", message["_date"])
    assert "_call" not in str(compose(result.messages).texts)


async def test_a_state_may_be_a_schema_only() -> None:
    wanted = {"type": "state", "schema": {"type": "object", "properties": {"town": CITY}}}
    executor = Executor([schema("ask", city=CITY)], activities={"ask": Handler("Oslo")})
    result = await executor.run([Call("ask", {"city": "x"}, output_path="†state.town")], context=[wanted])

    (before,) = compose([wanted]).texts
    (after,) = compose([wanted, *result.messages]).texts
    assert "Schema for ¶state:" in before
    assert '"town": "Oslo"' in after
    assert "Schema for ¶state:" in after


@pytest.mark.parametrize(
    ("scopes", "seen"),
    [
        (["user"], [("user", {"name": "Ann", "age": 40})]),
        (["†user.name"], [("user", {"name": "Ann"})]),
        (["†user.none"], []),
        ([], []),
    ],
)
async def test_scopes_are_kinds_or_paths(scopes: list[str], seen: list[Any]) -> None:
    handler = Handler()
    context = [{"type": "data", "kind": "user", "data": {"name": "Ann", "age": 40}}]
    await Executor([schema("ask")], activities={"ask": handler}).run(
        [Call("ask", meta={"_scopes": scopes})], context=context
    )

    assert [(each["kind"], each["data"]) for each in handler.told[0][2]] == seen


async def test_of_a_detached_call_a_message_is_appended_and_a_value_dropped() -> None:
    @tool(detach=True)
    async def tell() -> Message:
        return Message(kind="news", data={"is": "good"})

    @tool(detach=True)
    async def value() -> str:
        return "nobody hears it"

    @tool
    async def look() -> None: ...

    executor = Executor([tell, value, look])
    async with executor:
        await executor.run([Call("tell"), Call("value")])
        while executor.snapshot()["detached"]:
            await asyncio.sleep(0)
        result = await executor.run([Call("look")])

    assert [(each["kind"], each["data"]) for each in result.messages if each["type"] == "data"
            and each["kind"] != "result"] == [("news", {"is": "good"})]  # fmt: skip
    assert "nobody hears it" not in str(result.messages)


async def test_an_instance_that_nobody_knows_is_made_by_nothing_but_a_write() -> None:
    executor = Executor([schema("ask", city=CITY)], activities={"ask": Handler("fine")})
    calls = [Call("ask", {"city": "†state.town"}, id="read", instance="ghost"),
             Call("ask", {"city": "†state.own"}, id="lost", instance="ghost")]  # fmt: skip
    result = await executor.run(calls, state={"town": "Oslo"})

    assert kinds(result) == ["ok", "bad_reference"]
    assert not any(each.get("_instance") == "ghost" and each.get("type") == "state" for each in result.messages)
    assert result.state == {"town": "Oslo"}


async def test_a_returned_message_is_merged_into_what_stands_and_says_by_which_call() -> None:
    handler = Handler(Message(kind="state", data={"user": {"age": 41}}))
    result = await Executor([schema("ask", city=CITY)], activities={"ask": handler}).run(
        [Call("ask", {"city": "x"}, id="a", output_path="†state.user.age")], state={"user": {"name": "Ann", "age": 40}}
    )

    assert result.state == {"user": {"name": "Ann", "age": 41}}
    assert result.messages[0]["_call"]["_id"] == "a"
