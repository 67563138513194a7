from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reflection.lessons import trial_of
from spar.data.learning.abilities import Fading, ToolTrial, updated
from spar.types import Ability, Call, CallResult, Fault


def after(outcomes: list[bool], *, prior: float = 0.5, discount: float = 0.99) -> Ability:
    ability: Ability | None = None
    for success in outcomes:
        ability = updated(ability, ToolTrial("t", "k", success), fading=Fading(prior, discount))
    assert ability is not None
    return ability


@given(st.lists(st.booleans(), min_size=1, max_size=60), st.floats(0.05, 0.95), st.floats(0.5, 0.999))
def test_what_an_ability_keeps_is_the_whole_discounted_posterior(
    outcomes: list[bool], prior: float, discount: float
) -> None:
    good = bad = 0.0
    for success in outcomes:
        good, bad = discount * good + success, discount * bad + (not success)
    alpha, beta = 2 * prior + good, 2 * (1 - prior) + bad

    ability = after(outcomes, prior=prior, discount=discount)

    assert ability.estimate == pytest.approx(alpha / (alpha + beta), rel=1e-6)
    deviation = math.sqrt(alpha * beta / (alpha + beta) ** 2 / (alpha + beta + 1))
    assert ability.uncertainty == pytest.approx(deviation, rel=1e-6)


@given(st.floats(), st.floats(), st.integers(-5, 10**9), st.floats(), st.booleans(), st.floats())
def test_an_ability_from_anywhere_gives_a_posterior(
    estimate: float, uncertainty: float, trials: int, latency: float, success: bool, took: float
) -> None:
    before = Ability("t", "k", estimate, uncertainty, trials, latency=latency)
    trial = trial_of(CallResult(Call("t"), "ok" if success else "failed", duration=took), "k")

    assert trial is not None
    ability = updated(before, trial)

    assert 0 < ability.estimate < 1
    assert 0 < ability.uncertainty < 0.5
    assert ability.trials >= 1
    assert 0 <= ability.latency < math.inf


@pytest.mark.parametrize(
    ("result", "success"),
    [
        (CallResult(Call("t"), "ok"), True),
        (CallResult(Call("t"), "failed", fault=Fault("error", "boom")), False),
        (CallResult(Call("t"), "failed", reason="handled"), False),
        (CallResult(Call("t"), "timeout"), False),
        (CallResult(Call("t"), "ok", reason="detached"), None),
        (CallResult(Call("t"), "failed", fault=Fault("bad_parameters", "x is missing")), None),
        (CallResult(Call("t"), "skipped", reason="dep_failed"), None),
        (CallResult(Call("t"), "denied"), None),
        (CallResult(Call("t"), "in_doubt"), None),
        (CallResult(Call("t"), "cancelled"), None),
    ],
)
def test_only_a_tool_that_was_tried_and_is_known_to_have_ended_is_judged(
    result: CallResult, success: bool | None
) -> None:
    trial = trial_of(result, "k")

    assert (None if trial is None else trial.success) is success


@pytest.mark.parametrize(("trust", "kind", "counts"), [
    ("untrusted", "bad_input", False), ("untrusted", "not_found", False), ("untrusted", "permanent", True),
    ("trusted", "bad_input", True),
])  # fmt: skip
def test_a_stranger_cannot_talk_a_tool_down_by_what_it_cannot_take(trust: str, kind: str, counts: bool) -> None:
    call = Call("t", {"x": "nonsense"}, meta={"_trust": trust} if trust == "untrusted" else {})

    trial = trial_of(CallResult(call, "failed", fault=Fault(kind, "no")), "k")

    assert (trial is not None) is counts
