"""Tools that are schemas: their names, what they prescribe, and their results judged."""

from __future__ import annotations

from typing import Any

import pytest

from acting.tooling.signatures import read_docstring
from acting.tooling.tool_schema import ToolSchema, named_schemas
from spar.data.json_schema import Output
from spar.errors import ConfigError

MAIL: dict[str, Any] = {
    "type": "object",
    "properties": {
        "_tool": {"type": "string", "const": "mail"},
        "to": {"type": "string"},
        "_activity": {"const": "send"},
        "_output": {"type": "object", "properties": {"id": {"$ref": "#/$defs/Id"}}, "required": ["id"]},
        "_outputPath": {"const": "†state.mail"},
        "_outputMethod": {"enum": ["merge"]},
        "_scopes": {"const": ["input", "state"]},
        "_effect": {"const": "idempotent"},
        "_approval": {"const": "ask"},
        "_timeout": {"const": 5},
        "_resources": {"const": ["smtp"]},
        "_reasoningForCall": {"type": "string"},
    },
    "required": ["_tool", "to", "_reasoningForCall"],
    "$defs": {"Id": {"type": "integer"}},
}


def test_everything_that_a_schema_prescribes_is_read() -> None:
    found = ToolSchema.of("mail", MAIL)

    assert (found.activity, found.output_path, found.output_method) == ("send", "†state.mail", "merge")
    assert (found.scopes, found.may_scope, found.delegate, found.instance) == (("input", "state"), None, None, None)
    assert (found.terms.effect, found.terms.approval, found.terms.timeout) == ("idempotent", "ask", 5)
    assert found.terms.resources == ("smtp",)
    assert found.parameters.validate({"to": "a"}) == {"to": "a"}
    assert found.parameters.schema["properties"].keys() == MAIL["properties"].keys()


def test_what_is_not_prescribed_is_none_and_an_empty_activity_is_latent() -> None:
    properties = {
        "_tool": {"const": "t"},
        "_activity": {"const": ""},
        "_outputPath": {"pattern": "^†"},
        "_scopes": {"type": "array", "items": {"enum": ["a", "b"]}},
    }

    found = ToolSchema.of("t", {"properties": properties})

    assert (found.activity, found.output, found.output_path) == ("", None, None)
    assert found.output_path_pattern.text == "^†"
    assert (found.scopes, found.may_scope) == (None, ("a", "b"))
    assert ToolSchema.of("t", {"properties": {}}).activity is None


@pytest.mark.parametrize(
    ("properties", "place"),
    [
        ({"_activity": {"const": 5}}, "_activity"),
        ({"_scopes": {"const": "state"}}, "_scopes"),
        ({"_output": {"type": "junk"}}, "_output"),
        ({"_output": 5}, "_output"),
        ({"_outputPath": {"pattern": "^(?!a)"}}, "no look-around"),
        ({"_outputPath": {"pattern": 5}}, "as text, found 5"),
    ],
)
def test_a_prescription_that_is_none_is_an_error(properties: dict[str, Any], place: str) -> None:
    with pytest.raises(ConfigError, match=f"tool 't'.*{place}"):
        ToolSchema.of("t", {"properties": properties})


def test_a_result_is_judged_by_the_output_schema() -> None:
    output = ToolSchema.of("mail", MAIL).output

    assert output.check({"id": 5}) is None
    assert output.check({"id": "x"}) == "output 'id' is 'x': it is not of type \"integer\""
    assert output.check({}) == "output 'id' is missing"
    assert Output("t", True).check([1]) is None
    assert Output("t", False).check([1]) is not None
    assert output.check(None) == 'output: it is not of type "object"'
    assert output.check(object()) == 'output: it is not of type "object"' or "judged" in str(output.check(object()))


@pytest.mark.parametrize(
    ("item", "names"),
    [
        (MAIL, ["mail"]),
        ({"mail": {"properties": {"to": {}}}, "key": {"properties": {"_tool": {"const": "own"}}}}, ["mail", "own"]),
        ("known", ["known"]),
        ({"type": "tool", "tool": MAIL}, ["mail"]),
        ({"type": "tool", "tool": {"a": {}, "b": {}}}, ["a", "b"]),
        ({"type": "tool", "tool": "known"}, ["known"]),
    ],
)
def test_a_tool_may_come_in_any_of_three_shapes(item: Any, names: list[str]) -> None:
    found = named_schemas(item)

    assert [name for name, _ in found] == names
    for name, schema in found:
        assert schema is None or schema["properties"]["_tool"]["const"] == name


@pytest.mark.parametrize(
    "item",
    ["", None, 5, [], {}, {"type": "object", "properties": {"a": {}}}, {"properties": {"_tool": {"const": ""}}},
     {"": {}}, {"a": 5}, {"properties": {"a": {}}}, {"properties": 5}],
)  # fmt: skip
def test_what_is_no_tool_is_refused(item: Any) -> None:
    with pytest.raises(ConfigError, match="a tool"):
        named_schemas(item)


# -- descriptions of functions and parameters, out of docstrings of any style


def documented(text: Any) -> Any:
    def function() -> None: ...

    function.__doc__ = text
    return function


class Hostile:
    @property
    def __doc__(self) -> str:  # type: ignore[override]
        raise RuntimeError("no")


def test_what_cannot_be_read_describes_nothing_and_does_no_harm() -> None:
    texts: list[Any] = [
        None,
        "",
        5,
        b"bytes",
        "\ud800\0",
        ":param",
        ":param :",
        "Args:",
        "Args:\n\n\n  :",
        "-" * 10_000,
    ]
    for text in texts:
        assert read_docstring(documented(text), ["a"])[1] == {}, text
    assert read_docstring(Hostile(), ["a"]) == ("", {})
