"""Tools that are schemas: who carries them out, what they prescribe, what their handlers are told."""

import asyncio
from typing import Any

import pytest

from acting import Executor
from spar.errors import ConfigError
from spar.types import ActionResult, Call


def schema(name: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"_tool": {"const": name}, **properties}, "required": ["_tool"]}


CITY = {"type": "string"}


class Handler:
    """An activity that remembers what it was told."""

    def __init__(self, answer: Any = "done") -> None:
        self.answer = answer
        self.told: list[tuple[Call, Any, Any]] = []

    async def __call__(self, call: Call, tool: Any, context: Any) -> Any:
        self.told.append((call, tool, context))
        return self.answer


def kinds(result: ActionResult) -> list[str]:
    return [each.fault.kind if each.fault else each.status for each in result.results]


async def test_the_activity_that_the_schema_names_is_called_else_the_one_of_its_own_name() -> None:
    named, own = Handler("named"), Handler("own")
    tools = [schema("weather", city=CITY, _activity={"const": "lookup"}), schema("time", zone=CITY)]
    executor = Executor(tools, activities={"lookup": named, "time": own, "weather": Handler("never")})
    result = await executor.run([Call("weather", {"city": "†state.city"}), Call("time", {"zone": "UTC"})],
                                state={"city": "Oslo"})  # fmt: skip

    assert [each.output for each in result.results] == ["named", "own"]
    call, tool, context = named.told[0]
    assert call.params == {"city": "Oslo"}
    assert tool["properties"]["_tool"]["const"] == "weather"
    assert list(context) == []


async def test_a_handler_may_be_a_plain_function_and_may_fail_like_any_tool() -> None:
    def blocking(call: Call, tool: Any, context: Any) -> Any:
        return call.params["city"].upper()

    def broken(call: Call, tool: Any, context: Any) -> Any:
        raise ValueError("no such city")

    tools = [schema("up", city=CITY), schema("bad", city=CITY)]
    result = await Executor(tools, activities={"up": blocking, "bad": broken}).run(
        [Call("up", {"city": "oslo"}), Call("bad", {"city": "x"})]
    )
    assert result.results[0].output == "OSLO"
    assert kinds(result) == ["ok", "bad_input"]


async def test_parameters_are_held_against_the_schema_before_and_after_they_are_resolved() -> None:
    executor = Executor([schema("weather", city=CITY)], activities={"weather": Handler()})
    result = await executor.run(
        [Call("weather", {"city": 5}), Call("weather", {"town": "x"}), Call("weather", {"city": "†state.n"})],
        state={"n": 7},
    )
    assert kinds(result) == ["bad_parameters"] * 3
    assert [each.attempts for each in result.results] == [0, 0, 0]


async def test_a_handler_sees_the_messages_of_the_scopes_and_nothing_else() -> None:
    handler = Handler()
    executor = Executor([schema("look", _scopes={})], activities={"look": handler})
    context = [
        {"type": "state", "state": {"a": 1}},
        {"type": "state", "state": {"mine": 2}, "_instance": "ann"},
        {"type": "input", "input": {"q": "?"}},
        {"type": "data", "kind": "secret", "data": {"key": "k"}},
    ]
    calls = [
        Call("look", meta={"_scopes": ["state", "input", "nothing"]}),
        Call("look", meta={"_scopes": ["†state"]}, instance="ann"),
        Call("look"),
    ]
    result = await executor.run(calls, context=context)

    assert result.status == "ok"
    seen = [list(told[2]) for told in handler.told]
    assert seen[0] == [{"type": "state", "state": {"a": 1}}, {"type": "input", "input": {"q": "?"}}]
    assert seen[1] == [{"type": "state", "state": {"a": 1, "mine": 2}}]
    assert seen[2] == []


@pytest.mark.parametrize("scopes", ["state", [5], [""], ["†"], {"a": 1}])
async def test_scopes_that_make_no_sense_are_structural(scopes: Any) -> None:
    executor = Executor([schema("look", _scopes={})], activities={"look": Handler()})
    assert kinds(await executor.run([Call("look", meta={"_scopes": scopes})])) == ["bad_call"]


async def test_what_a_schema_prescribes_is_filled_in_and_cannot_be_said_otherwise() -> None:
    handler = Handler({"n": 1})
    tool = schema("store", _outputPath={"const": "†state.kept"}, _outputMethod={"const": "merge"},
                  _scopes={"items": {"enum": ["state"]}})  # fmt: skip
    executor = Executor([tool], activities={"store": handler})
    result = await executor.run([
        Call("store"),
        Call("store", output_path="†state.elsewhere"),
        Call("store", output_path="†state.kept", output_method="push"),
        Call("store", meta={"_scopes": ["secret"]}),
    ])  # fmt: skip

    assert kinds(result) == ["ok", "bad_call", "bad_call", "bad_call"]
    assert result.state == {"kept": {"n": 1}}
    assert len(handler.told) == 1


async def test_a_result_that_does_not_match_its_schema_is_a_failure_of_the_call() -> None:
    tool = schema("count", _output={"type": "integer", "minimum": 1})
    for answer, kind in ((3, "ok"), (0, "bad_output"), ("three", "bad_output"), (None, "bad_output")):
        result = await Executor([tool], activities={"count": Handler(answer)}).run(
            [Call("count", output_path="†state.n")]
        )
        assert kinds(result) == [kind]
        assert (result.state == {"n": 3}) == (kind == "ok")


# -- latent


LATENT = schema("think", about=CITY, _output={"type": "string"})


async def test_a_latent_call_brings_its_result_itself() -> None:
    result = await Executor([LATENT]).run([
        Call("think", {"about": "tea"}, output_path="†state.thought", meta={"_output": "warm"}),
        Call("think", {"about": "tea"}, meta={"_output": "a passing thought"}, id="passing"),
        Call("think", {"about": "tea"}, id="empty"),
        Call("think", {"about": "tea"}, meta={"_output": 5}, id="wrong"),
    ])  # fmt: skip

    assert kinds(result) == ["ok", "ok", "bad_call", "bad_output"]
    assert result.state == {"thought": "warm"}
    assert result.result("passing").output == "a passing thought"
    assert [each.get("kind") for each in result.messages] == [None, "error", "error"]


async def test_a_latent_call_written_before_what_it_refers_to_is_not_believed() -> None:
    asked = Handler("considered")
    calls = [
        Call("fetch", output_path="†state.page"),
        Call("think", {"about": "†state.page"}, id="t", meta={"_output": "made up"}),
        Call("think", {"about": "†state.old"}, id="old", meta={"_output": "known"}),
    ]
    tools, activities = [LATENT, schema("fetch")], {"fetch": Handler("the page")}
    alone = await Executor(tools, activities=activities).run(calls, state={"old": "text"})
    assert kinds(alone) == ["ok", "bad_call", "ok"]

    result = await Executor(tools, activities={**activities, "_latent": asked}).run(calls, state={"old": "text"})
    assert result.result("t").output == "considered"
    assert result.result("old").output == "known"
    assert [told[0].params for told in asked.told] == [{"about": "the page"}]


# -- delegates


async def test_a_delegate_goes_to_whatever_carries_out_delegates_before_any_activity() -> None:
    delegate, own = Handler("elsewhere"), Handler("here")
    executor = Executor([schema("ask", city=CITY)], activities={"ask": own, "_delegate": delegate})
    result = await executor.run(
        [Call("ask", {"city": "x"}, meta={"_delegate": "anonymous"}), Call("ask", {"city": "x"})]
    )

    assert [each.output for each in result.results] == ["elsewhere", "here"]
    assert delegate.told[0][0].meta["_delegate"] == "anonymous"
    nobody = await Executor([schema("ask")], activities={"ask": own}).run([Call("ask", meta={"_delegate": "x"})])
    assert kinds(nobody) == ["bad_call"]


async def test_a_call_may_name_the_activity_of_its_tool_and_no_other() -> None:
    a, b = Handler("a"), Handler("b")
    tools = [schema("a"), schema("shut", _activity={"const": "a"}), schema("thought", _activity={"const": ""})]
    executor = Executor(tools, activities={"a": a, "b": b})
    result = await executor.run([
        Call("a", meta={"_activity": "a"}),
        Call("shut", meta={"_activity": "a"}),
        *(Call(name, meta={"_activity": "b"}) for name in ("a", "shut", "thought")),
        Call("a", meta={"_activity": ""}),
        Call("a", meta={"_activity": "unheard-of"}),
        Call("a", meta={"_activity": "_latent"}),
    ])  # fmt: skip
    assert kinds(result) == ["ok", "ok", *["bad_call"] * 6]
    assert [each.output for each in result.results[:2]] == ["a", "a"]
    assert b.told == []


async def test_a_call_cannot_get_past_a_tools_denial_by_naming_its_activity_under_another_tool() -> None:
    remove = Handler("removed")
    tools = [schema("look", _effect={"const": "read"}), schema("rm", _approval={"const": "deny"})]
    executor = Executor(tools, activities={"look": Handler("seen"), "rm": remove})
    result = await executor.run([Call("rm"), Call("look", meta={"_activity": "rm"})])
    assert kinds(result) == ["denied", "bad_call"]
    fault = result.results[1].fault
    assert fault.message == "tool 'look' is carried out by 'look', not by 'rm'"
    assert remove.told == []


# -- terms and shapes


async def test_the_terms_of_a_schema_hold() -> None:
    async def slow(call: Call, tool: Any, context: Any) -> None:
        await asyncio.sleep(30)

    tools = [schema("slow", _timeout={"const": 0.02}), schema("shut", _approval={"const": "deny"})]
    executor = Executor(tools, activities={"slow": slow, "shut": Handler()}, settings={"grace": 0.02})
    result = await executor.run([Call("slow"), Call("shut")])
    assert [each.status for each in result.results] == ["timeout", "denied"]
    with pytest.raises(ConfigError, match="timeout is -1"):
        Executor([schema("slow", _timeout={"const": -1})])
    with pytest.raises(ConfigError, match="no activity named 'lookup'; known: other"):
        Executor([schema("weather", _activity={"const": "lookup"})], activities={"other": Handler()})


async def test_a_blocking_activity_carries_out_what_is_delegated_in_threads_that_its_calls_share() -> None:
    async def search(query: str) -> str:
        return "not asked"

    def delegate(call: Call, tool: Any, context: Any) -> str:
        return f"{call.params['query']} by {call.meta['_delegate']}"

    calls = [Call("search", {"query": str(n)}, meta={"_delegate": "helper"}) for n in range(20)]
    executor = Executor([search], activities={"_delegate": delegate})
    result = await executor.run(calls)

    assert [each.output for each in result.results] == [f"{n} by helper" for n in range(20)]
    entry = executor.tools["search"]
    assert executor.tools.carried_out_by(entry, "_delegate") is executor.tools.carried_out_by(entry, "_delegate")
