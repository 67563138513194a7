from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Ge, Le

from acting.catalog import ToolContext
from acting.schema import Parameters, ParametersError
from spar.errors import ConfigError


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


@pytest.mark.parametrize(
    ("function", "given", "taken"),
    [
        (number, 5, 5),
        (number, "5", 5),
        (number, 5.0, 5),
        (number, 2**70, 2**70),
        (numbers, [1, "2"], [1, 2]),
        (maybe, None, None),
        (bounded, 3, 3),
        (text, "\ud800", "\ud800"),
        (ratio, 1, 1.0),
    ],
)
def test_what_means_the_same_is_accepted(function: Any, given: Any, taken: Any) -> None:
    assert Parameters.of_function("f", function).validate({"n": given}) == {"n": taken}


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (number, 5.5),
        (number, True),
        (number, float(2**60)),
        (number, float("nan")),
        (number, "1e3"),
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


def test_an_error_names_tool_parameter_what_was_found_and_what_is_expected() -> None:
    with pytest.raises(ParametersError) as caught:
        Parameters.of_function("weather", google).validate({"days": "many", "town": "Oslo"})

    assert str(caught.value) == (
        "tool 'weather': parameter 'city' is missing; parameter 'days' is 'many', it should be a valid integer, "
        "unable to parse string as an integer; no parameter 'town'; known: city, days"
    )


def test_a_long_list_of_errors_is_cut_and_counted() -> None:
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


def test_the_context_is_no_parameter() -> None:
    def send(text: str, context: ToolContext | None = None) -> None: ...

    parameters = Parameters.of_function("send", send, context_type=ToolContext)

    assert parameters.context == "context"
    assert list(parameters.schema["properties"]) == ["_tool", "text"]
    with pytest.raises(ParametersError, match="no parameter 'context'"):
        parameters.validate({"text": "x", "context": 1})


def test_names_that_would_shadow_a_models_attributes_are_fine() -> None:
    def f(json: str, schema: str, copy: int, model_config: str = "") -> None: ...

    given = {"json": "a", "schema": "b", "copy": 1}
    assert Parameters.of_function("f", f).validate(given) == given


def test_keyword_arguments_make_a_tool_open() -> None:
    def f(a: int, **more: Any) -> None: ...

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
}


@pytest.mark.parametrize(
    "params",
    [{"n": 1}, {"n": 2, "mode": "b", "tags": ["abc"], "to": {"x": 1.5}, "any": None, "either": True, "odd": [{}]}],
)
def test_a_given_schema_lets_pass_what_it_allows(params: dict[str, Any]) -> None:
    assert Parameters.of_schema("t", GIVEN).validate(params) == params


@pytest.mark.parametrize(
    "params",
    [{}, {"n": 0}, {"n": True}, {"n": 1, "mode": "c"}, {"n": 1, "tags": ["abcd"]}, {"n": 1, "tags": ["a", "b", "c"]},
     {"n": 1, "to": {}}, {"n": 1, "to": {"x": 1, "y": 1}}, {"n": 1, "any": "x"}, {"n": 1, "more": 1}],
)  # fmt: skip
def test_a_given_schema_holds_back_what_it_does_not_allow(params: dict[str, Any]) -> None:
    with pytest.raises(ParametersError):
        Parameters.of_schema("t", GIVEN).validate(params)


def test_a_given_schema_may_allow_more_than_it_names() -> None:
    assert Parameters.of_schema("t", {**GIVEN, "additionalProperties": True}).validate({"n": 1, "z": 2}) == {
        "n": 1,
        "z": 2,
    }


def test_a_given_schema_that_cannot_be_used_is_refused() -> None:
    with pytest.raises(ConfigError, match="tool 't': its schema cannot be used"):
        Parameters.of_schema("t", {"properties": {"a": {"type": "string", "pattern": "("}}})
