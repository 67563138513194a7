from dataclasses import dataclass
from datetime import date, timedelta
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from annotated_types import Ge, Le
from pydantic import BaseModel, BeforeValidator

from acting.tooling.context import ToolContext
from acting.tooling.parameters import Parameters, ParametersError, check_finite
from spar.data.paths import ValueTooLargeError
from spar.errors import ConfigError
from tests.effort import effort, growth, hang_guard


class Colour(Enum):
    RED = "red"


def google(city: str, days: Annotated[int, Ge(1), Le(7)] = 3) -> str:
    """The weather in a city.

    Two lines of it.

    Args:
        city (str): its name,
            as on a map
        days: how many

    Returns:
        a text
    """
    return city * days


def numpy(city: str, days: int = 3) -> str:
    """The weather.

    Parameters
    ----------
    city : str
        its name
    days : int
        how many

    Returns
    -------
    str
        a text
    """
    return city * days


def rest(city: str, days: int = 3) -> str:
    """The weather.

    :param city: its name
    :param int days: how many
    :returns: a text
    """
    return city * days


def house(city: str, days: int = 3) -> str:
    """The weather.

    Args: city: its name
        days: how many
    Raises: ValueError
    """
    return city * days


def test_the_schema_says_name_description_types_bounds_defaults_and_what_is_required() -> None:
    assert Parameters.of_function("weather", google).schema == {
        "type": "object",
        "description": "The weather in a city.\n\nTwo lines of it.",
        "properties": {
            "_tool": {"const": "weather"},
            "city": {"type": "string", "description": "its name, as on a map"},
            "days": {"type": "integer", "minimum": 1, "maximum": 7, "description": "how many", "default": 3},
        },
        "required": ["_tool", "city"],
        "additionalProperties": False,
    }


@pytest.mark.parametrize("function", [numpy, rest, house])
def test_parameters_are_described_in_any_of_the_usual_styles(function: Any) -> None:
    schema = Parameters.of_function("weather", function).schema

    assert schema["description"] == "The weather."
    assert schema["properties"]["city"]["description"] == "its name"
    assert schema["properties"]["days"]["description"] == "how many"


def test_nested_types_get_definitions_and_unannotated_parameters_take_anything() -> None:
    def paint(colour: Colour, what, how: Literal["fast", "slow"] | None = None) -> None: ...  # type: ignore[no-untyped-def]

    parameters = Parameters.of_function("paint", paint)

    assert parameters.schema["$defs"]["Colour"]["enum"] == ["red"]
    assert parameters.validate({"colour": "red", "what": [1]}) == {"colour": Colour.RED, "what": [1]}


def number(n: int) -> None: ...
def numbers(n: list[int]) -> None: ...
def maybe(n: int | None = None) -> None: ...
def bounded(n: Annotated[int, Ge(3)]) -> None: ...
def text(n: str) -> None: ...
def ratio(n: float) -> None: ...
def flag(n: bool) -> None: ...
def day(n: date) -> None: ...


class Entry(BaseModel):
    n: int
    day: date | None = None


@dataclass
class Spot:
    n: int


def model(n: Entry) -> None: ...
def spot(n: Spot) -> None: ...
def named(n: int, type: float, default: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "given", "taken"),
    [
        (number, 5, 5),
        (number, 5.0, 5),
        (number, 2**70, 2**70),
        (numbers, [1, 2.0], [1, 2]),
        (maybe, None, None),
        (bounded, 3, 3),
        (text, "\ud800", "\ud800"),
        (ratio, 1, 1.0),
        (spot, {"n": 5.0}, Spot(5)),
    ],
)
def test_what_means_the_same_is_accepted(function: Any, given: Any, taken: Any) -> None:
    assert Parameters.of_function("f", function).validate({"n": given}) == {"n": taken}


def test_an_integer_is_exact_whatever_its_name() -> None:
    given = {"n": 1.0, "type": 2.5, "default": 3.0}
    assert Parameters.of_function("f", named).validate(given) == {"n": 1, "type": 2.5, "default": 3}


@pytest.mark.parametrize(
    ("kind", "given", "taken"),
    [
        (date, "2026-01-02", date(2026, 1, 2)),
        (timedelta, "PT5S", timedelta(seconds=5)),
        (Path, "a/b", Path("a/b")),
        (Colour, "red", Colour.RED),
        (UUID, "12345678-1234-5678-1234-567812345678", UUID("12345678-1234-5678-1234-567812345678")),
        (tuple[int, str], [1, "a"], (1, "a")),
        (set[int], [1, 2], {1, 2}),
        (dict[int, date], {"1": "2026-01-02"}, {1: date(2026, 1, 2)}),
        (list[date] | None, ["2026-01-02"], [date(2026, 1, 2)]),
        (Entry, {"n": 5, "day": "2026-01-02"}, Entry(n=5, day=date(2026, 1, 2))),
        (int | str, "5", "5"),
        (bytes, "abc", b"abc"),
    ],
    ids=str,
)
def test_a_text_becomes_what_the_published_schema_says_it_stands_for(kind: Any, given: Any, taken: Any) -> None:
    def take(n: Any, big: int = 0) -> None: ...

    take.__annotations__["n"] = kind
    assert Parameters.of_function("f", take).validate({"n": given, "big": 2**70}) == {"n": taken, "big": 2**70}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"deep": [1, [float("-inf")]]}])
def test_what_json_has_no_number_for_is_refused_wherever_it_stands(value: Any) -> None:
    with pytest.raises(ParametersError, match=r"parameter 'n' holds \S+, which is no number of JSON"):
        check_finite("f", {"m": 1.5, "n": value})


def test_of_a_value_without_a_bottom_only_as_many_levels_are_looked_at_as_may_be_given() -> None:
    looked_at = 0

    class Level(dict[str, Any]):
        def values(self) -> Any:
            nonlocal looked_at
            looked_at += 1
            return super().values()

    value: Any = 1
    for _ in range(10_000):
        value = Level(below=value)

    with pytest.raises(ValueTooLargeError, match="nested more than 128 levels deep"):
        check_finite("f", {"n": value})
    assert looked_at <= 129


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (number, 5.5),
        (number, True),
        (number, float(2**60)),
        (number, float("nan")),
        (number, "1e3"),
        (number, "5"),
        (number, " 5 "),
        (number, "5.0"),
        (numbers, [1, "2"]),
        (flag, "yes"),
        (flag, "1"),
        (flag, 0),
        (ratio, True),
        (ratio, "1.5"),
        (day, 5),
        (model, {"n": "5"}),
        (model, {"n": 5, "day": 0}),
        (spot, {"n": True}),
        (number, None),
        (numbers, [1, True]),
        (numbers, [1.5]),
        (maybe, False),
        (bounded, 2),
        (bounded, True),
        (text, 5),
        (number, "\ud800"),
        (number, "9" * 10_000_000),
    ],
)
def test_integers_are_exact_or_refused_and_other_types_are_not_guessed(function: Any, given: Any) -> None:
    with pytest.raises(ParametersError, match="tool 'f': parameter 'n"):
        Parameters.of_function("f", function).validate({"n": given})


def test_an_error_names_tool_parameter_what_was_found_and_what_is_expected_and_a_long_list_is_cut_and_counted() -> None:
    with pytest.raises(ParametersError) as caught:
        Parameters.of_function("weather", google).validate({"days": "many", "town": "Oslo"})

    assert str(caught.value) == (
        "tool 'weather': parameter 'city' is missing; parameter 'days' is 'many', it should be a valid integer; "
        "no parameter 'town'; known: city, days"
    )
    with pytest.raises(ParametersError, match="and 9997 more"):
        Parameters.of_function("f", numbers).validate({"n": ["x"] * 10_000})


def test_what_still_holds_references_is_not_judged_but_names_and_the_rest_are() -> None:
    parameters = Parameters.of_function("weather", google)

    parameters.validate({"city": "†state.city", "days": "†state.days"}, {"city", "days"})
    with pytest.raises(ParametersError, match="'days' is 9"):
        parameters.validate({"city": "†state.city", "days": 9}, {"city"})
    with pytest.raises(ParametersError, match="no parameter 'x'"):
        parameters.validate({"city": "†state.city", "x": "†state.x"}, {"city", "x"})
    with pytest.raises(ParametersError, match="'city' is missing"):
        parameters.validate({"days": "†state.city"}, {"days"})


def test_the_context_is_no_parameter_and_keyword_arguments_make_a_tool_open() -> None:
    def send(text: str, context: ToolContext | None = None) -> None: ...

    def f(a: int, **more: Any) -> None: ...

    parameters = Parameters.of_function("send", send, context_type=ToolContext)
    assert parameters.context == "context"
    assert list(parameters.schema["properties"]) == ["_tool", "text"]
    with pytest.raises(ParametersError, match="no parameter 'context'"):
        parameters.validate({"text": "x", "context": 1})
    assert Parameters.of_function("f", f).validate({"a": 1, "b": 2}) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "source", ["def f(a, /): ...", "def f(a: 'Unknown'): ...", "def f(a: Any.__class__.mro): ...", "def f(_a): ..."]
)
def test_a_signature_that_cannot_be_called_from_json_is_refused_with_its_name(source: str) -> None:
    scope: dict[str, Any] = {"Any": Any}
    exec(source, scope)

    with pytest.raises(ConfigError, match="tool 'f'"):
        Parameters.of_function("f", scope["f"])


GIVEN: dict[str, Any] = {
    "type": "object",
    "properties": {
        "_tool": {"const": "t"},
        "n": {"type": "integer", "minimum": 1},
        "mode": {"enum": ["a", "b"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 3}, "maxItems": 2},
        "to": {
            "type": "object",
            "properties": {"x": {"type": "number"}},
            "required": ["x"],
            "additionalProperties": False,
        },
        "any": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"type": ["string", "boolean"]},
        "odd": {"$ref": "#/$defs/Odd"},
    },
    "required": ["_tool", "n"],
    "$defs": {"Odd": {"type": "array"}},
}


def given(properties: dict[str, Any], **more: Any) -> Parameters:
    return Parameters.of_schema("t", {"properties": properties, **more})


@pytest.mark.parametrize(
    ("schema", "fits", "does_not"),
    [
        ({"$ref": "#/$defs/Name"}, "ada", 5),
        ({"allOf": [{"type": "integer"}, {"minimum": 3}]}, 3, 2),
        ({"not": {"type": "string"}}, 1, "x"),
        ({"if": {"type": "integer"}, "then": {"minimum": 3}}, "x", 2),
        ({"type": "string", "format": "date-time"}, "2024-01-01T00:00:00Z", "yesterday"),
        ({"type": "string", "format": "of their own"}, "anything", 5),
        (
            {"type": "object", "properties": {"x": {}}, "additionalProperties": {"type": "integer"}},
            {"y": 1},
            {"y": "z"},
        ),
        ({"type": "array", "uniqueItems": True, "prefixItems": [{"type": "string"}]}, ["a", 1], [1, 1]),
        ({"oneOf": [{"type": "integer"}, {"minimum": 3}]}, 1, 4),
        ({"type": "array", "items": {"type": "integer"}}, [1, 2**70], [True]),
        ({"type": "integer"}, 10**300, 0.5),
        ({"type": "number"}, 1e300, float("nan")),
        ({"type": "string", "maxLength": 2}, "\ud800\udfff", "\ud800xx"),
        ({"const": {"a": [1]}}, {"a": [1]}, {"a": [2]}),
    ],
)
def test_the_whole_of_json_schema_is_understood(schema: dict[str, Any], fits: Any, does_not: Any) -> None:
    parameters = given({"p": schema}, **{"$defs": {"Name": {"type": "string"}}})

    assert parameters.validate({"p": fits}) == {"p": fits}
    with pytest.raises(ParametersError, match="tool 't': parameter 'p"):
        parameters.validate({"p": does_not})


def test_a_problem_of_a_given_schema_is_told_with_place_value_and_rule() -> None:
    given: list[dict[str, Any]] = [{}, {"n": True}, {"n": 1, "mode": "c"}, {"n": 1, "tags": ["abcd"]}]
    given += [{"n": 1, "tags": ["a", "b", "c"]}, {"n": 1, "to": {"x": 1, "y": 1}}]
    for params in given:
        with pytest.raises(ParametersError):
            Parameters.of_schema("t", GIVEN).validate(params)
    with pytest.raises(ParametersError) as caught:
        Parameters.of_schema("t", GIVEN).validate({"n": 0, "to": {}, "any": "x", "more": 1})

    assert str(caught.value) == (
        "tool 't': parameter 'n' is 0: it is less than the minimum of 1; parameter 'to.x' is missing; "
        "parameter 'any' is 'x': it is not of type \"integer\", and it is not of type \"null\"; and 1 more"
    )


def test_unknown_parameters_of_a_given_schema_are_named_with_the_known_ones() -> None:
    for schema in ({}, {"allOf": [{"properties": {"b": {}}}]}):
        with pytest.raises(ParametersError, match=r"^tool 't': no parameter 'x'; known: a$"):
            given({"a": {}, "_activity": {"const": "x"}}, **schema).validate({"a": 1, "x": 2})

    assert given({"a": {}}, allOf=[{"properties": {"b": {}}}]).validate({"b": 1}) == {"b": 1}
    assert given({"a": {}}, patternProperties={"^x-": {}}).validate({"x-1": 1}) == {"x-1": 1}


def test_integers_of_a_given_schema_are_exact_or_refused() -> None:
    parameters = given({"n": {"type": "integer"}, "ns": {"type": "array", "items": {"type": ["integer", "null"]}},
                        "x": {"type": "number"}})  # fmt: skip

    taken = parameters.validate({"n": 5.0, "x": 5.0})
    assert (type(taken["n"]), type(taken["x"])) == (int, float)
    assert parameters.validate({"x": 1e300, "ns": [1, None]}) == {"x": 1e300, "ns": [1, None]}
    for params in ({"n": 2.0**60}, {"ns": [1, 2.0**60]}, {"n": True}, {"n": "5"}):
        with pytest.raises(ParametersError):
            parameters.validate(params)


def test_what_hangs_on_an_unresolved_parameter_of_a_given_schema_is_not_judged() -> None:
    parameters = given(
        {"kind": {"enum": ["a", "b"]}, "size": {"type": "integer"}, "url": {"type": "string"}},
        required=["kind"],
        allOf=[{"if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["url"]}}],
        anyOf=[{"properties": {"size": {"minimum": 3}}}, {"required": ["url"]}],
    )

    parameters.validate({"kind": "†state.k", "size": 1}, {"kind"})
    parameters.validate({"kind": "a", "size": "†state.s", "url": "†state.u"}, {"size", "url"})
    with pytest.raises(ParametersError, match="'size' is 'x'"):
        parameters.validate({"kind": "†state.k", "size": "x"}, {"kind"})
    with pytest.raises(ParametersError, match="'kind' is missing"):
        parameters.validate({"size": "†state.s", "url": "u"}, {"size"})


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"properties": {"a": {"type": "strin"}}}, "properties.a.type is 'strin'"),
        ({"properties": {"a": {"$ref": "#/$defs/None"}}}, r"Pointer '/\$defs/None' does not exist"),
        ({"properties": {"a": {"$ref": "http://127.0.0.1:9/s.json"}}}, "Retrieval is disabled"),
        ({"properties": {"a": {"$ref": "file:///etc/passwd"}}}, "Retrieval is disabled"),
        ({"properties": {"a": {"minimum": float("nan")}}}, "properties.a.minimum is None"),
        ({"properties": {"a": {"type": "string", "pattern": "("}}}, "cannot be used"),
        ({"properties": []}, "properties is \\[\\]: it is not an object"),
        ({"properties": {"a": {}}, "required": "a"}, "required is 'a'"),
        ({"properties": {"a": 5}}, "properties.a is 5"),
        ([], "must be an object, found \\[\\]"),
        ({"allOf": [{"$ref": "#"}]}, "leads back to itself"),
        (
            {"$ref": "#/$defs/0", "$defs": {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(40)}
             | {"40": {}}},
            "multiply",
        ),
        ({"$ref": "#/$defs/0", "$defs": {str(n): {"$ref": f"#/$defs/{n + 1}"} for n in range(50_000)}}, "multiply"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_used_is_refused_with_its_place(schema: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"tool 't': its schema .*{reason}"):
        Parameters.of_schema("t", schema)


def test_a_schema_nested_without_end_and_a_value_that_holds_itself_many_times_are_refused_in_time() -> None:
    schema: dict[str, Any] = {}
    for _ in range(100_000):
        schema = {"items": schema}
    many: list[Any] = []
    for _ in range(40):
        many = [many, many]

    with pytest.raises(ConfigError, match="nested more than"):
        given({"a": schema})
    with pytest.raises(ParametersError, match="holds more than"):
        given({"a": {}}).validate({"a": many})


def test_values_too_deep_for_the_stack_are_refused_before_they_are_judged() -> None:
    chain = {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}, {"minItems": 0}]} for n in range(200)}
    defs = {**chain, "200": {"items": {"$ref": "#/$defs/0"}}}
    parameters = given({"a": {"$ref": "#/$defs/0"}}, **{"$defs": defs})
    deep: list[Any] = []
    for _ in range(127):
        deep = [deep]

    assert parameters.validate({"a": [[[[]]]]}) == {"a": [[[[]]]]}
    with pytest.raises(ParametersError, match="nested more than"):
        parameters.validate({"a": deep})


def test_a_pattern_that_backtracks_without_end_counts_as_not_matched() -> None:
    parameters = given({"a": {"pattern": r"^(?:(a|aa)+)\1$"}, "b": {"pattern": "^(a+)+$"}})

    for name in ("a", "b"):
        with hang_guard(), pytest.raises(ParametersError):
            parameters.validate({name: "a" * 4000 + "!"})


def test_many_wrong_items_are_refused_at_no_more_than_what_it_takes_to_look_at_each() -> None:
    parameters = given({"a": {"items": {"type": "integer"}}})

    def refuse(size: int) -> None:
        with pytest.raises(ParametersError, match=r"'a\.0' is 'x'"):
            parameters.validate({"a": ["x"] * size})

    assert growth(refuse, 1_000) < 2.3
    with hang_guard():
        refuse(200_000)


def test_the_draft_that_a_schema_names_is_the_one_it_is_read_by() -> None:
    old = {
        "$schema": "http://json-schema.org/draft-04/schema#",
        "properties": {"a": {"minimum": 3, "exclusiveMinimum": True}},
    }

    with pytest.raises(ParametersError):
        Parameters.of_schema("t", old).validate({"a": 3})
    with pytest.raises(ConfigError):
        Parameters.of_schema("t", {"properties": old["properties"]})
    assert Parameters.of_schema("t", {**GIVEN, "$schema": "urn:theirs"}).validate({"n": 1}) == {"n": 1}


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"n": 10**5000}, "an integer of more than 4000 digits"),
        ({"any": [10**5000]}, "an integer of more than 4000 digits"),
        *(({"text": value}, "cannot be judged") for value in (b"x", object(), {"x"})),
    ],
)
def test_an_integer_that_python_does_not_print_and_what_json_does_not_know_are_refused_by_a_schema(
    params: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ParametersError, match=reason):
        given({"n": {"maximum": 5}, "any": {}, "text": {"type": "string"}}).validate(params)


def test_a_types_own_validator_may_break_without_breaking_more() -> None:
    def explode(value: Any) -> Any:
        raise KeyError("mine")

    def f(a: Annotated[str, BeforeValidator(explode)]) -> None: ...

    with pytest.raises(ParametersError, match=r"tool 'f': the parameters .* cannot be validated: KeyError"):
        Parameters.of_function("f", f).validate({"a": "x"})


def test_defaults_are_told_but_not_filled_in() -> None:
    parameters = given({"a": {"type": "integer", "default": 3}})

    assert parameters.validate({}) == {}
    assert parameters.schema["properties"]["a"]["default"] == 3


def test_making_a_tool_makes_neither_its_schema_nor_its_validator_before_somebody_needs_them() -> None:
    def make(*parts: str) -> None:
        parameters = Parameters.of_function("weather", google_plain)
        if "schema" in parts:
            assert parameters.schema["required"] == ["_tool", "city"]
        if "validator" in parts:
            assert parameters.validate({"city": "Oslo"}) == {"city": "Oslo"}

    bare = effort(make)

    assert effort(lambda: make("schema")) > 3 * bare
    assert effort(lambda: make("validator")) > 3 * bare


def google_plain(city: str, days: int = 3, how: Literal["fast", "slow"] | None = None) -> str:
    """Say the weather."""
    return city * days


KINDS = [str, int, bool, float, None, int | None, str | int, bool | int, float | int, Any, Colour, date, list[int]]


@pytest.mark.parametrize("kind", [*KINDS, Annotated[int, Ge(1)], Literal["a"], Colour | str])
def test_parameters_that_need_no_validation_are_those_that_it_leaves_as_they_are(kind: Any) -> None:
    def work(value: Any, other: int = 0) -> None: ...

    work.__annotations__["value"] = kind
    parameters = Parameters.of_function("work", work, context_type=ToolContext)
    fitting = 0
    values = ["", "a", "red", "†a.b", "é", "\ud800", "x" * 300, 0, 5, -(1 << 62), 1 << 70, True, 1.0, 1.5, None, [], {}]
    for value in values:
        for params in ({"value": value}, {"value": value, "other": 1}, {"other": 1}, {"value": value, "extra": 1}):
            _, referring, fits = parameters.inspect(params)
            if fits and not referring:
                taken = parameters.validate(params)
                assert taken == params
                assert list(map(type, taken.values())) == list(map(type, params.values()))
                fitting += 1
    assert fitting or kind not in (str, int, bool, None, int | None)
