from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from planning.ports import Request, Turn
from planning.prompt.render import render
from planning.prompt.request import compose, texts_and_history
from planning.prompt.token_budget import STEPS, TokenEstimator, fit, head_of, shown_at, size

TOOL = {"description": "Keep a note.", "properties": {"_tool": {"const": "note"}, "text": {"type": "string"}}}
QUESTION = {"type": "text", "role": "user", "text": "what is in the page?"}
NOTICED = {"type": "data", "kind": "noticed", "data": [{"content": "n" * 30_000, "trust": "untrusted"}]}
LEARNT = {"type": "data", "kind": "experience", "data": [{"lesson": "l" * 3_000}]}
STATE = {"type": "state", "state": {"page": "head " + "s" * 30_000 + " tail"}}
RESULT = {"type": "data", "kind": "result", "data": {"output": "r" * 3_000}}
ERROR = {"type": "data", "kind": "error", "data": {"error": {"message": "it broke"}}}
ALL = (QUESTION, NOTICED, LEARNT, STATE, RESULT, ERROR)


def request(*messages: dict[str, Any], turns: int = 0) -> Request:
    said = tuple(Turn("user" if n % 2 == 0 else "assistant", f"turn {n} " + "t" * 400) for n in range(turns))
    return compose(messages, tools=[TOOL], turns=said, instructions="be brief")


def read(made: Request) -> str:
    return "\n".join([*(turn.text for turn in made.turns), *made.texts])


def test_a_token_is_four_bytes_until_a_provider_says_otherwise() -> None:
    estimator = TokenEstimator()
    asked = request(*ALL)

    assert estimator.tokens("x" * 400) == 100
    assert estimator.tokens("漢" * 100) == 75
    learnt = estimator.learn(asked, size(asked) // 2)
    assert learnt.bytes_per_token == pytest.approx(3.0, abs=0.01)
    assert learnt.of(asked) > estimator.of(asked)


@pytest.mark.parametrize("tokens", [0, 3, 10**9])
def test_a_figure_that_cannot_be_is_not_learnt_from(tokens: int) -> None:
    assert TokenEstimator().learn(request(*ALL), tokens) == TokenEstimator()


def test_what_fits_is_left_as_it_is() -> None:
    asked = request(*ALL, turns=20)

    assert fit(asked, None) is asked
    assert fit(asked, 10**6) is asked


def test_untouched_it_reads_as_it_was_composed() -> None:
    context = [*ALL, {"type": "data", "kind": "plan", "data": {"calls": []}}, {"type": "input", "input": {"n": 1}}]

    texts, history = texts_and_history(shown_at(context, STEPS[0]), (), STEPS[0].limit_of)

    assert (list(texts), history) == (render(context), None)


@pytest.mark.parametrize(
    ("tokens", "kept", "gone"),
    [
        (13_000, ("turn 0 ", "lll", "n" * 1_000, "s" * 2_000), ()),
        (12_500, ("turn 0 ", "lll", "n" * 1_000), ("s" * 2_000,)),
        (4_000, ("turn 79 ", "lll", "n" * 1_000), ("s" * 2_000, "turn 0 ")),
        (2_500, ("turn 79 ", "n" * 1_000), ("turn 0 ", "lll")),
        (1_500, ("turn 79 ", "nnn"), ("lll", "n" * 1_000)),
        (500, ("nnn", "sss", "rrr"), ("turn 79 ",)),
    ],
)
def test_results_give_way_first_then_turns_then_experiences_then_data(
    tokens: int, kept: tuple[str, ...], gone: tuple[str, ...]
) -> None:
    asked = request(*ALL, turns=80)

    text = read(fit(asked, tokens))

    assert [part for part in kept if part not in text] == []
    assert [part for part in gone if part in text] == []


@pytest.mark.parametrize("tokens", [1, 500, 2_000, 8_000])
def test_question_errors_instructions_and_schema_are_never_lost(tokens: int) -> None:
    asked = request(*ALL, turns=40)

    made = fit(asked, tokens)

    assert (made.instructions, made.schema, made.context) == (asked.instructions, asked.schema, asked.context)
    assert "what is in the page?" in read(made)
    assert "it broke" in read(made)


def test_what_is_cut_keeps_head_tail_and_the_reference_to_the_whole() -> None:
    made = read(fit(request(*ALL), 3_000))

    assert "head s" in made
    assert "s tail" in made
    assert "†state.page" in made


def test_each_step_is_smaller_than_the_one_before() -> None:
    asked = request(*ALL, {"type": "text", "text": "q" * 30_000}, turns=40)
    sizes = [size(fit(asked, tokens)) for tokens in (30_000, 15_000, 8_000, 4_000, 1)]

    assert sizes == sorted(sizes, reverse=True)
    assert TokenEstimator().of(fit(asked, 2_000)) <= 2_000


def test_a_text_without_its_middle_has_at_most_so_many_tokens_in_any_script() -> None:
    for sign in ("a", "漢", "🙂"):
        cut = head_of(sign * 9_000, 100, TokenEstimator())
        assert cut.startswith(sign)
        assert cut.endswith(sign)
        assert TokenEstimator().tokens(cut) <= 110
    assert head_of("short", 100, TokenEstimator()) == "short"


def test_a_summary_stays_when_the_turns_behind_it_are_left_out() -> None:
    summary = '(what was said before, summed up) "They met."\n(of it, to the letter) "Never on Fridays."'
    asked = request(QUESTION, turns=40)
    asked = replace(asked, turns=(Turn("user", f"{summary}\n\n{asked.turns[0].text}"), *asked.turns[1:]))

    made = fit(asked, 1_500)

    assert made.turns[0].text == f"{summary}\n\n(32 earlier turns of the conversation are left out here)"
    assert len(made.turns) == 9
    assert summary not in read(fit(asked, 10)), "before nothing fits at all it goes, too"
