from __future__ import annotations

import pytest
from msgspec.structs import replace

from planning.llm.record import digest
from planning.ports import FRAME, MadeCall, Request, Turn
from planning.prompt.prompts import SUMMED_UP
from planning.prompt.request import compose
from planning.prompt.token_budget import TokenEstimator, fit, head_of, size
from tests.effort import Effort
from tests.planning.desk import read_of

TOOL = {"description": "Keep a note.", "properties": {"_tool": {"const": "note"}, "text": {"type": "string"}}}
QUESTION = Turn("user", "what is in the page?")
NOTICED = Turn("context", "noticed " + "n" * 15_000, trust="untrusted")
PAGE = MadeCall("1", "", "note", {"text": "a", "_outputPath": "†state.page"}, "head " + "s" * 19_000 + " tail")
OTHER = MadeCall("2", "", "note", {"text": "b"}, "r" * 3_000)
STEPS = (Turn("assistant", "", (PAGE, OTHER)), Turn("context", "it broke"))


def request(turns: int = 0, *, own: tuple[Turn, ...] = (QUESTION, NOTICED, *STEPS)) -> Request:
    said = tuple(Turn("user" if n % 2 == 0 else "assistant", f"turn {n} " + "t" * 400) for n in range(turns))
    return compose([], tools=[TOOL], turns=(*said, *own), own=len(own), instructions="be brief")


def test_a_token_is_four_bytes_until_a_provider_says_otherwise() -> None:
    estimator = TokenEstimator()
    asked = request()

    assert estimator.tokens("x" * 400) == 100
    assert estimator.tokens("漢" * 100) == 75
    learnt = estimator.learn(asked, size(asked) // 2)
    assert learnt.bytes_per_token == pytest.approx(3.0, abs=0.01)
    assert learnt.of(asked) > estimator.of(asked)


@pytest.mark.parametrize("tokens", [0, 3, 10**9])
def test_a_figure_that_cannot_be_is_not_learnt_from(tokens: int) -> None:
    assert TokenEstimator().learn(request(), tokens) == TokenEstimator()


def test_what_fits_is_left_as_it_is() -> None:
    asked = request(20)

    assert fit(asked, None) is asked
    assert fit(asked, 10**6) is asked


@pytest.mark.parametrize(
    ("tokens", "kept", "gone"),
    [
        (16_000, ("turn 0 ", "n" * 15_000, "s" * 2_900), ("s" * 3_100,)),
        (14_000, ("turn 0 ", "n" * 15_000, "s" * 900), ("s" * 1_100,)),
        (9_000, ("turn 79 ", "turn 56 ", "n" * 15_000, "s" * 900), ("turn 55 ",)),
        (2_500, ("turn 79 ", "turn 72 ", "n" * 900), ("turn 71 ", "n" * 3_000)),
        (500, ("nnn", "sss", "rrr"), ("turn 79 ",)),
    ],
)
def test_results_give_way_first_then_older_turns_then_what_was_noticed(
    tokens: int, kept: tuple[str, ...], gone: tuple[str, ...]
) -> None:
    text = read_of(fit(request(80), tokens))

    assert [part for part in kept if part not in text] == []
    assert [part for part in gone if part in text] == []


@pytest.mark.parametrize("tokens", [1, 500, 2_000, 8_000])
def test_question_errors_instructions_and_schema_are_never_lost(tokens: int) -> None:
    asked = request(40)

    made = fit(asked, tokens)

    assert (made.instructions, made.schema, made.context) == (asked.instructions, asked.schema, asked.context)
    assert "what is in the page?" in read_of(made)
    assert "it broke" in read_of(made)


def test_what_is_cut_keeps_head_tail_and_the_reference_to_the_whole() -> None:
    made = read_of(fit(request(), 3_000))

    assert "head s" in made
    assert "s tail" in made
    assert "whole at †state.page" in made


def test_each_step_is_smaller_than_the_one_before() -> None:
    asked = request(40, own=(Turn("user", "q" * 30_000), NOTICED, *STEPS))
    sizes = [size(fit(asked, tokens)) for tokens in (30_000, 15_000, 12_000, 4_000, 1)]

    assert sizes == sorted(sizes, reverse=True)
    assert TokenEstimator().of(fit(asked, 2_000)) <= 2_000


def test_the_oldest_answers_of_a_long_run_are_left_out_last() -> None:
    calls = tuple(Turn("assistant", f"step {n}", (OTHER,)) for n in range(100))

    made = fit(request(own=(QUESTION, *calls)), 2_000)

    assert TokenEstimator().of(made) <= 2_000
    assert made.turns[0] == QUESTION
    assert made.turns[-1].text == "step 99"


def test_a_text_without_its_middle_has_at_most_so_many_tokens_in_any_script() -> None:
    for sign in ("a", "漢", "🙂"):
        cut = head_of(sign * 9_000, 100, TokenEstimator())
        assert cut.startswith(sign)
        assert cut.endswith(sign)
        assert TokenEstimator().tokens(cut) <= 110
    assert head_of("short", 100, TokenEstimator()) == "short"


def test_a_summary_stays_when_the_turns_behind_it_are_left_out() -> None:
    summary = f'{SUMMED_UP}\nThey met.\n(of it, to the letter) "Never on Fridays."'
    asked = request(40, own=(QUESTION,))
    asked = replace(asked, turns=(Turn("context", summary), *asked.turns[1:]))

    made = fit(asked, 1_300)

    assert made.turns[0].text == f"{summary}\n\n(32 earlier turns of the conversation are left out here)"
    assert len(made.turns) == 10
    assert summary not in read_of(fit(asked, 10)), "before nothing fits at all it goes, too"


def test_the_turns_of_a_long_conversation_are_counted_and_hashed_when_they_are_new() -> None:
    def turns() -> tuple[Turn, ...]:
        call = MadeCall("1", "call_1", "look", {"at": "the döor"}, "shut " * 20)
        return tuple(Turn("assistant", f"turn {number}", (call,)) for number in range(200))

    asked = Request(instructions="Be kind.", turns=turns())
    with Effort() as anew:
        before = size(asked), digest(asked)
    grown = replace(asked, turns=(*asked.turns, Turn("user", "and now?")))
    with Effort() as again:
        after = size(grown), digest(grown)

    assert again.steps < anew.steps / 4
    assert after[0] == before[0] + len("and now?") + FRAME
    assert after[1] != before[1]
    assert before[1] == digest(replace(asked, turns=turns()))
    other = replace(asked.turns[0], calls=(replace(asked.turns[0].calls[0], result="open"),))
    assert digest(replace(asked, turns=(other, *asked.turns[1:]))) != before[1]
