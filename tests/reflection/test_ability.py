from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reflection.ability import Fading, Trial, learn, trial_of, updated
from spar.records.abilities import ability_key
from spar.types import Ability, Call, CallResult, Fault


def after(outcomes: list[bool], *, prior: float = 0.5, discount: float = 0.99) -> Ability:
    ability: Ability | None = None
    for success in outcomes:
        ability = updated(ability, Trial("t", "k", success), fading=Fading(prior, discount))
    assert ability is not None
    return ability


def test_the_first_trial_moves_the_flat_prior_as_laplace_has_it() -> None:
    ability = after([True])

    assert ability.estimate == pytest.approx(2 / 3)
    assert ability.uncertainty == pytest.approx(math.sqrt(1 / 18))
    assert (ability.tool, ability.task, ability.trials) == ("t", "k", 1)


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


def test_old_failures_fade_so_a_repaired_tool_is_believed_again() -> None:
    broken = after([False] * 1000)
    repaired = after([False] * 1000 + [True] * 300)

    assert broken.estimate < 0.05
    assert repaired.estimate > 0.9
    assert repaired.trials == 1300


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


def test_the_latency_is_a_mean_of_the_latest_trials() -> None:
    ability: Ability | None = None
    for seconds in [1.0, 2.0, 3.0]:
        ability = updated(ability, Trial("t", "k", True, seconds))
    assert ability is not None
    assert ability.latency == pytest.approx(2.0)
    for _ in range(1000):
        ability = updated(ability, Trial("t", "k", True, 10.0))
    assert ability.latency == pytest.approx(10.0, abs=0.01)


def test_several_trials_of_one_tool_make_one_ability() -> None:
    known = {ability_key("a", "k"): after([True] * 10)}
    trials = [Trial("t", "k", True), Trial("u", "k", False), Trial("t", "k", False), Trial("t", "other", True)]

    learnt = learn(trials, known)

    assert [(item.tool, item.task, item.trials) for item in learnt] == [("t", "k", 2), ("u", "k", 1), ("t", "other", 1)]


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
