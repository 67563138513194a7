from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from planning.rules.tool_choice import choose, optimistic
from spar.records.abilities import ability_key
from spar.types import Ability


def ability(tool: str, estimate: float, uncertainty: float = 0.05, trials: int = 50) -> Ability:
    return Ability(tool, "t", estimate, uncertainty, trials)


def known(*abilities: Ability) -> dict[str, Ability]:
    return {ability_key(item.tool, item.task): item for item in abilities}


def test_the_better_tool_is_taken() -> None:
    assert choose(["a", "b"], "t", known(ability("a", 0.3), ability("b", 0.9))) == "b"


def test_equal_tools_go_in_the_order_in_which_they_are_written() -> None:
    assert choose(["b", "a"], "t", {}) == "b"
    assert choose(["a", "b"], "t", known(ability("a", 0.5), ability("b", 0.5))) == "a"


def test_an_untried_tool_gets_its_chance_against_a_middling_one_but_not_against_a_proven_one() -> None:
    assert choose(["a", "new"], "t", known(ability("a", 0.6))) == "new"
    assert choose(["a", "new"], "t", known(ability("a", 0.95))) == "a"


def test_what_was_learnt_of_another_task_does_not_count() -> None:
    assert choose(["a", "b"], "other", known(ability("a", 0.0), ability("b", 1.0))) == "a"


def test_a_tool_is_left_out_only_when_enough_trials_say_so() -> None:
    assert choose(["a"], "t", known(ability("a", 0.1, trials=4)), 0.3) == "a"
    assert choose(["a"], "t", known(ability("a", 0.1, trials=5)), 0.3) is None
    assert choose(["a", "b"], "t", known(ability("a", 0.1)), 0.3) == "b"


@given(st.floats(), st.floats())
def test_numbers_from_anywhere_never_break_the_choice(estimate: float, uncertainty: float) -> None:
    assert math.isfinite(optimistic(ability("a", estimate, uncertainty)))
    assert choose(["a", "b"], "t", known(ability("a", estimate, uncertainty))) in ("a", "b")
