from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planning.llm.streaming_json import PartialSolution
from planning.ports import TextDelta
from tests.effort import growth


def read(*pieces: str, longest: int = 1_000_000) -> tuple[PartialSolution, list[Any], str]:
    """The reader, the calls it told and the text it told."""
    reader = PartialSolution(longest)
    found = [item for piece in pieces for item in reader.feed(piece)]
    reader.close()
    calls = [item for item in found if not isinstance(item, TextDelta)]
    return reader, calls, "".join(item.text for item in found if isinstance(item, TextDelta))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
SOLUTIONS = st.fixed_dictionaries(
    {},
    optional={
        "meta": VALUES,
        "calls": st.lists(VALUES, max_size=4) | VALUES,
        "output": st.text() | VALUES,
        "{other]": VALUES,
    },
)


@given(st.data(), SOLUTIONS, st.booleans(), st.sampled_from([None, 0, 2]))
def test_however_it_is_cut_it_tells_what_the_whole_text_says(
    data: st.DataObject, solution: dict[str, Any], ascii_only: bool, indent: int | None
) -> None:
    text = json.dumps(solution, ensure_ascii=ascii_only, indent=indent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    reader, calls, told = read(*pieces)

    assert reader.problem == ""
    assert reader.solution == json.loads(text)
    assert calls == (solution["calls"] if isinstance(solution.get("calls"), list) else [])
    assert told == (solution["output"] if isinstance(solution.get("output"), str) else "")


@given(st.text(alphabet='{}[]",:\\u0dc8 acls<>thinkoup\n9eE-.', max_size=60), st.integers(1, 5))
def test_garbage_ends_in_a_value_or_in_words_and_never_in_an_exception(text: str, size: int) -> None:
    in_pieces, calls, _ = read(*(text[at : at + size] for at in range(0, len(text), size)))
    at_once, same, _ = read(text)

    assert (in_pieces.problem, in_pieces.solution, calls) == (at_once.problem, at_once.solution, same)


@pytest.mark.parametrize(
    ("text", "output"),
    [
        ('Sure {it} is:\n```json\n{"output": "x"}\n```\nAnything else? {"output": "y"}', "x"),
        ('<think>maybe {"calls": []}</think>\n{"output": "x"}', "x"),
        ('\n<thinking is hard> {"output": "x"}', "x"),
        ('{"output": "x",}', "x"),
        ('{"output": "two\nlines"}', "two\nlines"),
        ('{"output": 1e999}', None),
        ('{"output": NaN}', None),
        ('{"output": "\\ud83d!"}', "\ufffd!"),
        ('{"output": "x", "output": "y"}', "y"),
        ('{"out\\u0070ut": "x"}', "x"),
    ],
)
def test_what_models_write_around_and_inside_is_taken_as_it_was_meant(text: str, output: Any) -> None:
    for pieces in ([text], list(text)):
        reader, _, _ = read(*pieces)
        assert (reader.problem, reader.solution["output"]) == ("", output)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("I cannot do that.", "it holds no JSON object, found 'I cannot do that.'"),
        ('{"calls": [{"_tool": "a"', "it breaks off inside 'calls' after 24 characters"),
        ('{"calls": [{}{}]}', "two calls have no comma between them, found '{}'"),
        ('{"calls": [{"a": 1]}', "']' closes a '{' after about"),
        ('{"output": tru}', "'output' is no JSON: expecting value"),
        ('{"calls": [{"a": \'b\'}]}', "calls.0 is no JSON: expecting value"),
        ('{"x" "y"}', 'it expects a name and a value, found \'"x" "y"\''),
        ('{"output": ' + "9" * 5000 + "}", "'output' is no JSON: exceeds the limit"),
        ('{"output": ' + "[" * 100_000, "it is nested more than 128 levels deep"),
        ('{"output": "' + "x" * 1_000_000, "it is longer than 1000000 characters"),
    ],
)
def test_what_is_wrong_is_said(text: str, problem: str) -> None:
    reader, _, _ = read(text)

    assert reader.problem.startswith(problem)


@pytest.mark.parametrize(
    "unit",
    ['{"_tool": "a", "x": [1, {"y": "}"}]},', '"text \\" with \\\\ signs",', '[[[["deep"]]]],', " \n", '{"never": '],
    ids=["calls", "strings", "lists", "blanks", "nesting"],
)
def test_the_work_grows_with_the_text_also_when_it_comes_sign_by_sign(unit: str) -> None:
    for head in ('{"calls": [', '{"output": [', '{"output": "', '{"output": "\\u', "{ prose ", "<think>"):
        assert growth(lambda times, head=head: read(*(head + unit * times)), 80) < 2.5  # type: ignore[misc]


def test_nothing_at_all_is_no_problem_but_blank() -> None:
    for text in ("", " \n", "<think>nothing comes to mind</think>"):
        reader, _, _ = read(text)
        assert (reader.problem, reader.is_blank) == ("", True)
