from __future__ import annotations

import pytest

from planning.resilience.breaker import RESTS, Breaker, begun, failed, state, succeeded, wait
from planning.resilience.provider_errors import TREATMENTS, FaultKind


def test_it_is_closed_until_as_many_faults_in_a_row_as_their_kind_tolerates() -> None:
    once = failed(Breaker(), "garbage", 0.0)
    twice = failed(once, "server", 1.0)
    thrice = failed(twice, "garbage", 2.0)

    assert [state(each, 2.0) for each in (once, twice, thrice)] == ["closed", "closed", "open"]
    assert wait(thrice, 2.0) == RESTS[0]


@pytest.mark.parametrize("kind", ["auth", "billing", "not_found"])
def test_it_rests_long_where_people_have_to_do_something(kind: FaultKind) -> None:
    assert wait(failed(Breaker(), kind, 0.0), 0.0) == 1_800.0


def test_who_had_begun_before_it_opened_neither_closes_it_nor_climbs_its_steps() -> None:
    breaker = failed(Breaker(), "overloaded", 0.0)

    assert succeeded(breaker, is_probe=False) == breaker
    assert wait(failed(breaker, "overloaded", 1.0), 1.0) == 29.0
    assert wait(failed(breaker, "rate_limited", 1.0, retry_after=100.0), 1.0) == 100.0
    assert failed(breaker, "overloaded", 1.0).openings == 1


@pytest.mark.parametrize("kind", [kind for kind, treatment in TREATMENTS.items() if not treatment.opens])
def test_a_fault_of_the_request_is_an_answer_of_the_provider(kind: FaultKind) -> None:
    probed, _ = begun(failed(Breaker(), "overloaded", 0.0), 30.0)

    assert failed(probed, kind, 31.0, is_probe=True) == Breaker()
    assert failed(Breaker(faults=2), kind, 0.0) == Breaker()
