from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planning import compose_schema
from planning.llm.provider.native_tools import Calls, NativeFunction, native_functions


def tool(name: str, **properties: Any) -> dict[str, Any]:
    return {"description": f"does {name}", "type": "object", "properties": {"_tool": {"const": name}, **properties}}


def schema(*alternatives: Any, **more: Any) -> dict[str, Any]:
    return {"properties": {"calls": {"items": {"anyOf": list(alternatives)}}}, **more}


LOOK = NativeFunction("look", "look", "", {})


def read(*fragments: str, name: str = "look") -> list[dict[str, Any]]:
    calls = Calls([LOOK, NativeFunction("answer", None, "", {})])
    calls.take(0, name, None)
    for fragment in fragments:
        calls.take(0, None, fragment)
    return list(calls.ready(is_over=True))


# -- what is offered


def test_only_the_definitions_that_are_referred_to_come_along() -> None:
    defs = {"a": {"$ref": "#/$defs/b"}, "b": {"type": "string"}, "c": {}, "x/y": {}}
    (look,) = native_functions(
        schema(tool("look", at={"$ref": "#/$defs/a"}, on={"$ref": "#/$defs/x~1y"}), **{"$defs": defs}), None
    )

    assert list(look.parameters["$defs"]) == ["a", "b", "x/y"]


def test_what_no_provider_takes_at_the_top_is_left_to_the_executor() -> None:
    (look,) = native_functions(
        schema({**tool("look"), "anyOf": [{"required": ["a"]}], "if": {}, "dependentRequired": {}}), None
    )

    assert look.parameters.keys() == {"type", "properties", "required"}
    assert look.description == "does look"


def test_names_that_providers_do_not_take_are_replaced_and_no_two_are_the_same() -> None:
    tools = ["a.b", "a_b", "a b", "x" * 200, "x" * 201, "1st", "größe", "answer", "ok-1"]
    made = native_functions(schema(*map(tool, tools)), {"type": "string"})
    names = [each.name for each in made]

    assert [each.tool for each in made] == [*tools, None]
    assert len(set(names)) == len(names)
    assert all(len(name) <= 64 and name.replace("-", "_").isascii() and name.isprintable() for name in names)
    assert (names[1], names[-2], names[-1]) == ("a_b", "ok-1", "answer")
    assert made == native_functions(schema(*map(tool, tools)), {"type": "string"})


def test_the_answer_s_schema_becomes_a_function_with_its_definitions_where_its_references_find_them() -> None:
    (answer,) = native_functions({}, {"$ref": "#/$defs/n", "$defs": {"n": {"type": "number"}}})

    assert answer.parameters["properties"] == {"output": {"$ref": "#/$defs/n"}}
    assert answer.parameters["$defs"] == {"n": {"type": "number"}}


# -- what comes back


@given(
    st.dictionaries(
        st.text().filter(lambda key: key != "_tool"),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(['\\"', "}", "{", "\\"]),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
            max_leaves=8,
        ),
        max_size=4,
    ),
    st.integers(1, 7),
    st.booleans(),
)
def test_a_call_is_complete_with_its_last_character_however_it_is_cut(value: Any, size: int, ascii: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii)
    calls = Calls([LOOK])
    calls.take(7, "look", "")
    for start in range(0, len(text), size):
        assert list(calls.ready()) == []
        calls.take(7, None, text[start : start + size])

    assert list(calls.ready()) == [{"_tool": "look", **value}]
    assert list(calls.ready(is_over=True)) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"at": "the do', "Unterminated string"),
        ("[1]", "found list"),
        ('"{}"', "found str"),
        ("at the door", "Expecting value"),
        ('{"at": NaN}', "NaN is no JSON"),
        ('{"at": -Infinity}', "-Infinity is no JSON"),
        ('{"at": 1, "at": 2}', "the key 'at' is there twice"),
        ('{"at": {"x": 1, "x": 2}}', "the key 'x' is there twice"),
        ('{"at": ' + "9" * 5_000 + "}", "Exceeds the limit"),
        ('{"at": ' + "[" * 100_000 + "]" * 100_000 + "}", "nested too deeply"),
    ],
)
def test_arguments_that_are_no_object_make_a_call_that_says_so(text: str, why: str) -> None:
    (call,) = read(text)

    assert call.keys() == {"_tool", "_bad"}
    assert call["_tool"] == "look"
    assert why in call["_bad"]
    assert len(call["_bad"]) < 400


def test_no_arguments_are_no_parameters() -> None:
    assert read() == read("  ") == read("{}") == [{"_tool": "look"}]


def test_a_second_object_in_one_call_is_not_lost_in_silence() -> None:
    first = {"_tool": "look", "a": 1}

    for fragments in (['{"a":1}{"a":2}'], ['{"a":1}', " ", '{"a":2}']):
        assert read(*fragments)[0] == first
        assert "more than one" in read(*fragments)[1]["_bad"]
    assert read('{"a":1}', " \n", "") == [first]


def test_a_second_object_that_comes_after_the_call_was_handed_out_is_told_once() -> None:
    calls = Calls([LOOK])
    calls.take(0, "look", "{}")
    assert list(calls.ready()) == [{"_tool": "look"}]
    calls.take(0, None, "{")
    calls.take(0, None, "}")

    assert [call["_tool"] for call in calls.ready(is_over=True)] == ["look"]
    assert calls.count == 1


def test_an_object_that_is_handed_over_as_such_is_complete() -> None:
    calls = Calls([LOOK])
    calls.take(0, "look", {"at": "x", "_tool": "rm"})

    assert list(calls.ready()) == [{"_tool": "look", "at": "x"}]


def test_the_answer_s_function_gives_the_output() -> None:
    assert read('{"output": [1]}', name="answer") == [{"output": [1]}]
    assert read("no", name="answer")[0]["_tool"] == "answer"


def test_a_function_has_the_parameters_as_their_tool_defines_them_and_three_bare_fields() -> None:
    own = {"n": {"type": "integer", "description": "How many."}, "tags": {"type": "array", "items": {"type": "string"}},
           "kind": {"enum": ["anyOf"], "default": {"anyOf": [1, 2]}}}  # fmt: skip
    composed = compose_schema([{"properties": {"_tool": {"const": "look"}, **own}}], activities=["look"])

    (look,) = native_functions(composed, None)

    fields = {"_id": {"type": "string"}, "_after": {"type": "array", "items": {"type": "string"}}}
    assert look.parameters["properties"] == {
        "_activity": {"const": "look"}, **fields, **own, "_outputPath": {"type": "string"}
    }  # fmt: skip


def test_fields_that_a_tool_defines_itself_stay() -> None:
    fields = {"_reasoningForCall": {"type": "string", "minLength": 9}, "_outputPath": {"const": "†state.x"}}
    composed = compose_schema([{"properties": {"_tool": {"const": "look"}, **fields}}], activities=["look"])

    (look,) = native_functions(composed, None)

    assert {key: look.parameters["properties"][key] for key in fields} == fields
