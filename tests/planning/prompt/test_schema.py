from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from acting import Executor
from planning import compose_schema
from spar import tool

GREET: dict[str, Any] = {
    "type": "object",
    "description": "Greets somebody.",
    "properties": {
        "_tool": {"type": "string", "const": "greet"},
        "name": {"type": "string", "maxLength": 5},
        "times": {"type": "integer", "minimum": 1},
        "_output": {"type": "object", "properties": {"said": {"type": "string"}}, "required": ["said"]},
    },
    "required": ["name"],
}
REFERENCE = {"type": "string", "pattern": "^†"}


def named(name: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"_tool": {"const": name}, **properties}}


def composed(tools: Any, **given: Any) -> dict[str, Any]:
    """The schema, which is valid itself and leads nowhere."""
    schema = compose_schema(tools, **given)
    Draft202012Validator.check_schema(schema)
    names = set(schema.get("$defs", {}))
    assert all(ref.removeprefix("#/$defs/") in names for ref in refs_in(schema))
    return schema


def refs_in(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [ref for item in value.values() for ref in refs_in(item)]
    return [ref for item in value for ref in refs_in(item)] if isinstance(value, list) else []


def calls_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {each["properties"]["_tool"]["const"]: each for each in schema["properties"]["calls"]["items"]["anyOf"]}


def fits(schema: dict[str, Any], *calls: dict[str, Any], **more: Any) -> bool:
    validator: Any = Draft202012Validator(schema)
    return bool(validator.is_valid({"calls": list(calls), "output": None, **more}))


# -- the whole


def test_the_order_is_meta_advisors_calls_output_and_all_of_them_are_owed() -> None:
    schema = composed(
        [GREET],
        output={"type": "object", "properties": {}},
        context=[{"type": "meta", "meta": {"version": "1"}}],
        advisors=[{"id": "risk", "on": "request"}],
    )

    assert list(schema["properties"]) == schema["required"] == ["meta", "advisors", "calls", "output"]
    assert schema["additionalProperties"] is False


def test_without_tools_advisors_and_meta_there_is_only_the_answer() -> None:
    assert list(composed([])["properties"]) == ["output"]


def test_the_same_input_gives_the_same_bytes_in_another_process() -> None:
    code = "import json; from planning import compose_schema; print(json.dumps(compose_schema(%r, activities=%r)))"
    tools, activities = [GREET, named("b", x={"enum": ["y", "z"]})], ["greet", "b", "c"]

    made = subprocess.run([sys.executable, "-c", code % (tools, activities)], capture_output=True, check=True).stdout

    assert made.decode() == json.dumps(compose_schema(tools, activities=activities)) + "\n"


def test_what_it_was_made_from_is_neither_changed_nor_shared() -> None:
    output = {"type": "object", "properties": {"a": {"enum": [1]}}}
    before = copy.deepcopy((GREET, output))

    schema = composed([GREET], output=output, context=[{"type": "tool", "tool": {"greet": GREET}}])
    schema["properties"]["output"]["properties"]["a"]["enum"].append(2)
    calls_of(schema)["greet"]["properties"]["name"]["anyOf"][0]["maxLength"] = 9

    assert (GREET, output) == before


# -- a call


def test_a_call_takes_the_tools_parameters_and_nothing_else() -> None:
    schema = composed([GREET])

    assert calls_of(schema)["greet"]["required"] == ["_tool", "name"]
    assert fits(schema, {"_tool": "greet", "name": "Ann", "times": 2})
    assert not fits(schema, {"_tool": "greet", "name": "Ann", "volume": 2})
    assert not fits(schema, {"_tool": "greet"})
    assert not fits(schema, {"_tool": "shout", "name": "Ann"})


def test_every_parameter_may_be_a_reference_and_keeps_its_bounds_for_values() -> None:
    schema = composed([GREET])

    assert calls_of(schema)["greet"]["properties"]["times"] == {"anyOf": [{"type": "integer", "minimum": 1}, REFERENCE]}
    assert fits(schema, {"_tool": "greet", "name": "†state.somebody.with.a.long.path", "times": "†state.n"})
    assert not fits(schema, {"_tool": "greet", "name": "Alexander"})
    assert not fits(schema, {"_tool": "greet", "name": "Ann", "times": 0})
    assert not fits(schema, {"_tool": "greet", "name": "Ann", "times": "two"})


def test_a_reference_may_stand_for_a_value_inside_a_value() -> None:
    shape = {"type": "object", "properties": {"kind": {"const": "disk"}, "n": {"type": "integer"}},
             "additionalProperties": {"type": "number"}}  # fmt: skip
    schema = composed([named("t", disks={"type": "array", "items": shape}, pair={"prefixItems": [{"type": "null"}]})])

    assert fits(schema, {"_tool": "t", "disks": [{"kind": "disk", "n": "†state.n", "x": "†state.x"}, "†state.disk"]})
    assert fits(schema, {"_tool": "t", "pair": ["†state.nothing"]})
    assert not fits(schema, {"_tool": "t", "disks": [{"kind": "†state.kind"}]})
    assert not fits(schema, {"_tool": "t", "disks": [{"n": "five"}]})
    excludes = composed([named("t", a={"type": "object", "not": {"properties": {"x": {"type": "integer"}}}})])
    assert fits(excludes, {"_tool": "t", "a": {"x": "†state.x"}}), "what is excluded is not widened"


def test_an_own_key_of_a_call_is_offered_unless_the_tool_refuses_or_prescribes_it() -> None:
    fixed = named("fixed", _outputPath={"const": "†state.here"}, _after=False, _scopes={"const": ["input"]},
                  _delegate={"type": "string"}, _detach={"type": "boolean"})  # fmt: skip
    schema = composed([GREET, fixed])
    free, bound = calls_of(schema)["greet"]["properties"], calls_of(schema)["fixed"]["properties"]

    assert {"_id", "_after", "_reasoningForCall", "_outputPath", "_outputMethod"} <= set(free)
    assert not {"_scopes", "_delegate", "_instance", "_detach"} & set(free)
    assert free["_outputPath"]["pattern"] == "^†"
    assert free["_outputMethod"]["enum"] == ["set", "merge", "assign", "push", "concat"]
    assert {"_scopes", "_delegate", "_detach", "_outputPath"} <= set(bound)
    assert "_after" not in bound
    assert calls_of(schema)["fixed"]["required"] == ["_tool", "_outputPath"]
    assert not fits(schema, {"_tool": "fixed", "_outputPath": "†state.there"})


def test_why_comes_before_the_parameters_and_where_behind_them() -> None:
    order = list(calls_of(composed([GREET]))["greet"]["properties"])

    assert order[:2] == ["_tool", "_reasoningForCall"]
    assert order[-5:] == ["name", "times", "_outputPath", "_outputMethod", "_output"]


def test_instances_are_offered_where_the_context_has_some() -> None:
    schema = composed([GREET], context=[{"type": "input", "_instance": "①"}, {"type": "state", "_instance": "②"}])

    assert calls_of(schema)["greet"]["properties"]["_instance"]["enum"] == ["①", "②"]
    assert not fits(schema, {"_tool": "greet", "name": "Ann", "_instance": "③"})


# -- who carries it out


@pytest.mark.parametrize(
    ("said", "activities", "activity"),
    [
        ({"_activity": {"const": "speak"}}, ["greet"], "speak"),
        ({"_activity": "speak"}, [], "speak"),
        ({}, ["greet"], "greet"),
        ({}, {"greet": print}, "greet"),
        ({"_activity": {"const": ""}}, ["greet"], ""),
        ({}, ["other"], ""),
    ],
    ids=["named", "named by a text", "of the same name", "in a mapping", "latent by its own word", "nobody"],
)
def test_an_activity_is_resolved(said: dict[str, Any], activities: Any, activity: str) -> None:
    greet = {**GREET, "properties": {**GREET["properties"], **said}}

    found = calls_of(composed([greet], activities=activities))["greet"]

    assert found["properties"]["_activity"] == {"const": activity}
    assert ("_output" in found["properties"]) is (activity == "")
    assert ("Returns: " in found["description"]) is (activity != "")


def test_what_is_always_delegated_is_not_thought_up_inline() -> None:
    greet = {**GREET, "properties": {**GREET["properties"], "_delegate": {"const": "anonymous"}}}

    found = calls_of(composed([greet]))["greet"]

    assert "_output" not in found["properties"]
    assert "_delegate" in found["required"]


# -- the shapes of tools


def test_tools_come_as_schemas_mappings_objects_and_names() -> None:
    plain = {"type": "object", "properties": {"x": {"type": "integer"}}}
    thing = SimpleNamespace(name="thing", schema=plain)
    context = [{"type": "tool", "tool": {"later": plain}}, {"type": "tool", "tool": "greet"},
               {"type": "tool", "tool": named("last")}]  # fmt: skip

    found = calls_of(composed([GREET, {"one": plain, "two": plain}, thing], context=context))

    assert list(found) == ["greet", "one", "two", "thing", "later", "last"]
    assert list(calls_of(composed({"one": plain}))) == ["one"]
    assert list(calls_of(composed(GREET))) == ["greet"]


def test_an_executors_tools_are_taken_as_they_are() -> None:
    @tool
    async def search(query: str, limit: int = 3) -> list[str]:
        """Look for something."""
        return []

    schema = composed(Executor([search]).tools)

    assert calls_of(schema)["search"]["required"] == ["_tool", "query"]
    assert "_activity" not in calls_of(schema)["search"]["properties"]
    assert "Look for something" in calls_of(schema)["search"]["description"]
    assert fits(schema, {"_tool": "search", "query": "x", "limit": "†state.n"})


@pytest.mark.parametrize(
    ("tools", "error", "said"),
    [
        ([print], TypeError, "'print' is no tool that has a schema: give schemas, or functions by way of an executor"),
        ([{"type": "object", "properties": {}}], ValueError, "properties._tool.const"),
        (["nobody"], ValueError, "no tool named 'nobody' was given before; known: none"),
        ([named("t", x="text")], ValueError, "tool 't': a schema is an object or a boolean, found str"),
        (7, TypeError, "found int"),
    ],
)
def test_what_is_no_tool_is_said(tools: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said.replace(".", r"\.")):
        compose_schema(tools)


# -- references between the parts of a schema


def tree(leaf: str) -> dict[str, Any]:
    node = {"type": "object", "properties": {"leaf": {"type": leaf}, "below": {"$ref": "#/$defs/Node"}}}
    return {"$defs": {"Node": node}}


def test_definitions_of_several_tools_do_not_meet() -> None:
    one = {**named("one", root={"$ref": "#/$defs/Node"}), **tree("integer")}
    two = {**named("two", root={"$ref": "#/$defs/Node"}), **tree("string")}

    schema = composed([one, two], output={"$ref": "#/$defs/Node", **tree("boolean")})

    assert len(schema["$defs"]) == 3
    assert fits(schema, {"_tool": "one", "root": {"below": {"leaf": 1}}}, {"_tool": "two", "root": {"leaf": "a"}})
    assert fits(schema, {"_tool": "one", "root": {"below": {"leaf": "†state.leaf", "below": "†state.below"}}})
    assert not fits(schema, {"_tool": "one", "root": {"below": {"leaf": "a"}}})
    assert not fits(schema, output={"leaf": 1})
    assert fits(schema, output={"leaf": True})


def test_definitions_do_not_meet_though_the_names_of_their_tools_are_alike() -> None:
    tools = [{**named(name, root={"$ref": "#/$defs/Node"}), **tree(leaf)}
             for name, leaf in (("a b", "integer"), ("a/b", "string"), ("a_b", "boolean"))]  # fmt: skip

    schema = composed(tools)

    leaves = {"a b": 1, "a/b": "x", "a_b": True}
    assert fits(schema, *({"_tool": name, "root": {"leaf": leaf}} for name, leaf in leaves.items()))
    assert not fits(schema, {"_tool": "a/b", "root": {"leaf": 1}})


@pytest.mark.parametrize(
    ("ref", "more"),
    [
        ("#/definitions/A~1b%20c", {"definitions": {"A/b c": {"type": "integer"}}}),
        ("#/properties/other", {}),
        ("#n", {"$defs": {"X": {"$anchor": "n", "type": "integer"}}}),
        ("https://example.org/t#/$defs/X", {"$id": "https://example.org/t", "$defs": {"X": {"type": "integer"}}}),
        ("#/$defs/X", {"$defs": {"X": {"$ref": "#/$defs/Y"}, "Y": {"type": "integer"}}}),
    ],
    ids=["escaped", "another parameter", "an anchor", "by its id", "a chain"],
)
def test_whatever_a_local_reference_names_comes_along(ref: str, more: dict[str, Any]) -> None:
    schema = composed([{**named("t", x={"$ref": ref}, other={"type": "integer"}), **more}])

    assert fits(schema, {"_tool": "t", "x": 1})
    assert not fits(schema, {"_tool": "t", "x": "one"})


@pytest.mark.parametrize("ref", ["https://example.org/x.json", "#/$defs/nowhere", "file:///etc/passwd", "#nobody", 3])
def test_a_reference_that_leads_out_or_nowhere_constrains_nothing(ref: Any) -> None:
    assert fits(composed([named("t", x={"$ref": ref})]), {"_tool": "t", "x": "whatever"})


def test_a_schema_that_refers_to_its_root_and_one_that_is_a_reference() -> None:
    recursive = named("t", below={"$ref": "#"}, n={"type": "integer"})
    by_ref = {"$ref": "#/$defs/Params", "$defs": {"Params": GREET}}

    schema = composed([recursive, {"by_ref": by_ref}])

    assert fits(schema, {"_tool": "t", "below": {"below": {"n": "†state.n"}}})
    assert not fits(schema, {"_tool": "t", "below": {"below": {"n": "five"}}})
    assert fits(schema, {"_tool": "by_ref", "name": "Ann"})


def test_conditions_between_parameters_are_kept_beside_the_calls_own_keys() -> None:
    either = {"to": {"oneOf": [
        {"properties": {"mail": {"type": "string"}}, "required": ["mail"], "additionalProperties": False},
        {"properties": {"phone": {"type": "integer"}}, "required": ["phone"], "additionalProperties": False},
    ], "type": "object"}}  # fmt: skip

    schema = composed(either)

    assert fits(schema, {"_tool": "to", "mail": "a", "_id": "c", "_outputPath": "†state.x"})
    assert fits(schema, {"_tool": "to", "phone": "†state.phone"})
    assert not fits(schema, {"_tool": "to", "mail": "a", "phone": 1})
    assert not fits(schema, {"_tool": "to"})


@pytest.mark.parametrize("ref", ["#", "#/$defs/A"])
def test_a_condition_that_holds_itself_has_an_end(ref: str) -> None:
    circle = {**named("t", x={"type": "integer"}), "allOf": [{"$ref": ref}, {"$ref": ref}],
              "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"required": ["x"]}]}}}  # fmt: skip

    assert fits(composed([circle]), {"_tool": "t", "x": "†state.x", "_id": "c"})


def test_a_schema_that_grows_without_measure_or_has_no_end_is_refused() -> None:
    laughs = {f"L{n}": {"allOf": [{"$ref": f"#/$defs/L{n + 1}"}] * 10} for n in range(20)}
    with pytest.raises(ValueError, match="tool 't': its schema has more than 20000 parts"):
        compose_schema([{**named("t"), "allOf": [{"$ref": "#/$defs/L0"}], "$defs": laughs}])
    deep: dict[str, Any] = {"type": "object"}
    deep["properties"] = {"x": deep}
    with pytest.raises(ValueError, match="tool 't': its schema is nested more than 100 levels deep"):
        compose_schema([named("t", x=deep)])


def test_older_dialects_and_nonsense_become_a_valid_schema() -> None:
    odd = named(
        "odd",
        pair={"type": "array", "items": [{"type": "integer"}, {"type": "string"}], "additionalItems": False},
        bound={"type": "integer", "minimum": 3, "exclusiveMinimum": True},
        nonsense={"type": "text", "required": True, "enum": "x", "minLength": -1, "pattern": 3, "properties": []},
        anything=True,
        surrogate={"description": "\ud800", "default": float("nan")},
    )

    schema = composed([{**odd, "$schema": "http://json-schema.org/draft-07/schema#"}])

    json.dumps(schema, allow_nan=False, ensure_ascii=False).encode()
    assert fits(schema, {"_tool": "odd", "pair": [1, "a"], "nonsense": 3})
    assert not fits(schema, {"_tool": "odd", "pair": ["a"]})
    assert not fits(schema, {"_tool": "odd", "pair": [1, "a", 2]})


scalars = st.sampled_from([{"type": "integer", "minimum": 0}, {"type": "string"}, {"enum": [1, "a", None]}, True, {},
                           {"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}, {"$ref": "#"}, {"const": 3}])  # fmt: skip
schemas = st.recursive(
    scalars,
    lambda below: st.one_of(
        st.builds(lambda parts: {"type": "object", "properties": parts}, st.dictionaries(st.text(), below, max_size=3)),
        st.builds(lambda key, parts: {key: parts}, st.sampled_from(["anyOf", "oneOf", "allOf", "prefixItems"]),
                  st.lists(below, min_size=1, max_size=3)),
        st.builds(lambda key, part: {key: part}, st.sampled_from(["items", "additionalProperties", "not", "if"]),
                  below),
    ),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.text(min_size=1), schemas, schemas, schemas), max_size=3), schemas)
def test_any_tools_make_a_valid_schema(parts: list[Any], output: Any) -> None:
    tools = [{**named(name, x=x), "$defs": {"a": a, "b": b}} for name, x, a, b in parts]

    composed(tools, output={"type": "object", "properties": {"x": output}})


# -- the answer


@pytest.mark.parametrize(
    ("output", "good", "bad"),
    [
        ({"type": "string"}, "a", 1),
        ({"type": ["string", "integer"]}, 1, []),
        ({"type": "object", "properties": {"a": {}}, "required": ["a"]}, {"a": 1}, {"a": 1, "b": 2}),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, {"b": 1}, {"b": "x"}),
        ({"enum": ["a", "b"]}, "a", "c"),
        ({"const": 3}, 3, 4),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, 1, []),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"type": "integer"}}}, 1, "a"),
        (None, {"anything": [1]}, ...),
    ],
)
def test_the_answer_fits_its_schema_or_is_null(output: Any, good: Any, bad: Any) -> None:
    validator: Any = Draft202012Validator(composed([], output=output))

    assert validator.is_valid({"output": None})
    assert validator.is_valid({"output": good})
    assert bad is ... or not validator.is_valid({"output": bad})


def test_an_objects_answer_has_the_users_schema_with_null() -> None:
    schema = composed([], output={"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})

    assert schema["properties"]["output"] == {
        "type": ["object", "null"],
        "properties": {"a": {"type": "string"}},
        "required": ["a"],
        "additionalProperties": False,
    }


# -- meta and advisors


def test_meta_is_asked_for_where_there_is_one_and_stays_what_it_is() -> None:
    meta = {"domain": "d", "path": "/games/1", "version": "1.2.3", "branches": ["main"], "createdAt": "x"}
    schema = composed([], context=[{"type": "meta", "meta": meta}])
    validator: Any = Draft202012Validator(schema)

    assert validator.is_valid({"meta": {**meta, "version": "1.2.4"}, "output": 1})
    assert not validator.is_valid({"meta": {**meta, "path": "/other"}, "output": 1})
    assert not validator.is_valid({"output": 1})


RISK = {"type": "advisor", "id": "risk", "role": "Weigh the risks.", "on": "request",
        "schema": {"type": "object", "properties": {"thought": {"type": "string"}},
                   "required": ["thought"]}}  # fmt: skip


def advisors_of(schema: dict[str, Any]) -> list[str]:
    found = schema["properties"].get("advisors", {"items": {"anyOf": []}})
    return [entry["properties"]["id"]["const"] for entry in found["items"]["anyOf"]]


def test_an_advisor_thinks_as_its_schema_says_and_votes_for_tools() -> None:
    schema = composed([GREET], context=[RISK])
    vote = {"id": "risk", "thought": "low", "calls": '{"greet": 90}'}

    assert fits(schema, advisors=[vote])
    assert not fits(schema, advisors=[])
    assert not fits(schema, advisors=[{"id": "risk", "calls": "{}"}])
    assert not fits(schema, advisors=[{**vote, "id": "nobody"}])


def test_advisors_speak_when_it_is_their_turn() -> None:
    advisors = [{**RISK, "id": on, "on": on} for on in ("start", "finish", "request")] + [{"id": "asked"}]
    later = [{"type": "state", "state": {}, "_call": {"_tool": "greet"}}]

    assert advisors_of(composed([], advisors=advisors)) == ["start", "finish", "request"]
    assert advisors_of(composed([], advisors=advisors, context=later)) == ["finish", "request"]
    assert composed([], advisors=advisors)["properties"]["advisors"]["minItems"] == 2


def test_who_speaks_only_when_asked_is_consulted_by_a_call() -> None:
    schema = composed([], advisors=[{**RISK, "on": None}, {"id": "other"}])

    assert "advisors" not in schema["properties"]
    assert fits(
        schema, {"_tool": "ConsultAdvisor", "advisor": "risk", "question": "well?", "_output": {"thought": "x"}}
    )
    assert not fits(schema, {"_tool": "ConsultAdvisor", "advisor": "nobody", "question": "well?"})


@pytest.mark.parametrize("advisor", [{"role": "no id"}, {"id": 3}, {"id": "x", "on": "tuesday"}, "risk"])
def test_an_advisor_that_cannot_be_read_is_refused(advisor: Any) -> None:
    with pytest.raises(ValueError, match="advisor"):
        compose_schema([], advisors=[advisor])


def test_without_references_a_call_has_the_tool_s_own_parameters_alone() -> None:
    own = {"n": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}}
    tool = {"properties": {"_tool": {"const": "look"}, **own}, "required": ["n"]}

    (call,) = compose_schema([tool], activities=["look"], references=False)["properties"]["calls"]["items"]["anyOf"]

    assert call["properties"] == {"_tool": {"const": "look"}, "_activity": {"const": "look"}, **own}
