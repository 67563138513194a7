"""Remembered calls vote on what to call in a situation like theirs; strangers have no say in what is trusted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planning.cases.evidence import cases_of
from planning.cases.failures import known_failure, other_value
from planning.cases.situations import Situation, is_same, situation
from planning.rules.remembered import sequence_of
from planning.rules.tool_choice import Question, decide
from spar.types import Experience, Perception, Remedy, TriedCall, Trust, replace

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KEY = "alert#mend"


def at(text: str = "the disk is full", **fields: Any) -> Situation:
    return situation(Perception(text, kind="alert", **{"trust": "trusted", **fields}), KEY, NOW)


def lived(tool: str, worked: bool | None, text: str = "the disk is full", **fields: Any) -> Experience:
    call = {name: fields.pop(name) for name in ("params", "cause", "remedy") if name in fields}
    status: Any = "ok" if worked else "failed"
    tried = TriedCall(tool, status=status, success=worked, **{"cause": "" if worked else "permission", **call})
    given = {"key": KEY, "trust": "trusted", "at": NOW - timedelta(seconds=5), **fields}
    return Experience(f"alert: {text}", success=worked, calls=(tried,), **given)


def chosen(
    experiences: list[Experience], where: Situation | None = None, tools: tuple[str, ...] = ("a", "b", "c")
) -> Any:
    where = where or at()
    return decide(Question(tools, {}, where.key), {}, cases_of(experiences, where), where)


def test_where_meaning_is_known_it_counts_in_the_place_of_words() -> None:
    near, far = lived("b", True, "no room is left", id="near"), lived("c", True, "the disk of mail", id="far")
    where = at("the disk is nearly full")

    def taken(nearness: dict[str, float]) -> Any:
        return decide(Question(("a", "b", "c"), {}, where.key), {}, cases_of([far, near], where, nearness), where).tool

    assert taken({}) == "c"
    assert taken({"near": 0.8, "far": 0.1}) == "b"
    assert taken({"near": 0.8}) == "b"


def test_the_few_that_mean_the_same_decide_against_many_that_are_only_somewhat_like_it() -> None:
    near = lived("b", True, "no room is left", id="near")
    others = [lived("c", True, f"the network of host {n} is down", id=f"other{n}") for n in range(9)]
    failed = [lived("b", False, f"the mail of host {n} is down", id=f"failed{n}") for n in range(9)]
    where = at("the disk is nearly full")
    nearness = {"near": 0.8, **{each.id: 0.5 for each in (*others, *failed)}}

    cases = cases_of([*others, near, *failed], where, nearness)
    assert decide(Question(("a", "b", "c"), {}, where.key), {}, cases, where).tool == "b"


def test_the_very_situation_outweighs_any_number_of_others_that_are_like_it() -> None:
    others = [lived("b", True, f"the disk of host {n} is nearly full", count=500) for n in range(10)]

    assert chosen([*others, lived("b", False), lived("c", True)]).tool == "c"
    assert chosen(others).tool == "b"


def test_a_failure_that_does_not_pass_is_not_repeated_and_the_next_tool_that_of_its_remedy_or_none_is_taken() -> None:
    why = "a failed once in this situation with these parameters (permission)"
    found = chosen([lived("a", False)])
    assert found.tool == "b"
    assert why in found.learnt.why

    alone = chosen([lived("a", False)], tools=("a",))
    assert (alone.tool, alone.left_out) == (None, why)
    assert 590 <= alone.look <= 600
    assert chosen([lived("a", False, remedy=Remedy("other_tool", tool="c"))]).tool == "c"
    asked = chosen([lived("a", False, remedy=Remedy("ask"))], tools=("a",))
    assert (asked.tool, asked.is_asked) == ("a", True)


def test_a_failure_stands_for_longer_each_time_and_then_the_tool_has_its_next_chance() -> None:
    def stands(count: int, age: timedelta) -> bool:
        failure = lived("a", False, count=count, at=NOW - age)
        return known_failure(cases_of([failure], at()), "a", {}, at()) is not None

    assert stands(1, timedelta(minutes=9))
    assert not stands(1, timedelta(minutes=11))
    assert stands(3, timedelta(minutes=39))
    assert not stands(50, timedelta(hours=25))


def test_other_parameters_another_situation_and_a_later_success_are_no_known_failure() -> None:
    def known(experiences: list[Experience], params: dict[str, Any]) -> bool:
        return known_failure(cases_of(experiences, at()), "a", params, at()) is not None

    failed = lived("a", False, params={"x": 1})
    assert known([failed], {"x": 1})
    assert not known([failed], {"x": 2})
    assert not known([lived("a", False, "the disk is empty", params={"x": 1})], {"x": 1})
    assert not known([failed, lived("a", True, params={"x": 1}, at=NOW)], {"x": 1})


def test_a_tool_that_works_at_times_is_no_known_failure_until_it_fails_in_a_row() -> None:
    def known(count: int, since: timedelta) -> bool:
        worked = lived("a", True, count=50, first_at=NOW - timedelta(hours=9), at=NOW - timedelta(minutes=30))
        failed = lived("a", False, count=count, first_at=NOW - since, at=NOW)
        return known_failure(cases_of([worked, failed], at()), "a", {}, at()) is not None

    assert not known(2, timedelta(minutes=20))
    assert known(3, timedelta(minutes=20))
    assert not known(3, timedelta(hours=1))


def test_one_failure_of_which_nobody_knows_that_it_comes_again_silences_no_call() -> None:
    once, twice = lived("a", False, cause="permanent"), lived("b", False, cause="permanent", count=2)

    assert chosen([once], tools=("a",)).tool == "a"
    assert chosen([once, twice], tools=("b", "a")).tool == "a"
    assert chosen([twice], tools=("b",)).tool is None


def test_failures_of_one_call_beside_calls_that_differed_each_time_are_counted_together() -> None:
    apart = [
        lived(
            "a",
            False,
            cause="io",
            at=NOW - timedelta(minutes=age),
            remedy=Remedy("other_parameter", "", parameter="to"),
        )
        for age in (9, 5, 1)
    ]

    found = chosen(apart, tools=("a",))
    assert (found.tool, found.left_out) == (None, "a failed 3 times in this situation with these parameters (io)")
    worked = lived("a", True, at=NOW - timedelta(minutes=3))
    assert chosen([*apart, worked], tools=("a",)).tool == "a"


def test_a_failure_that_passes_is_repeated_at_once_or_after_the_time_that_was_asked_for() -> None:
    def seconds(cause: str, remedy: Remedy | None) -> float | None:
        cases = cases_of([lived("a", False, cause=cause, remedy=remedy)], at())
        found = known_failure(cases, "a", {}, at())
        return None if found is None else found.seconds

    assert seconds("transient", None) is None
    assert seconds("timeout", Remedy("retry")) is None
    assert seconds("transient", Remedy("retry", after=30.0)) == 25.0
    assert seconds("transient", Remedy("retry", after=3.0)) is None


def test_a_call_waits_only_for_the_incident_that_it_belongs_to() -> None:
    remedy = Remedy("wait", until="i1")
    cases = cases_of([lived("a", False, remedy=remedy)], at())

    assert known_failure(cases, "a", {}, at(attributes={"incident": "i1"})) is not None
    assert known_failure(cases, "a", {}, at(attributes={"incident": "i2"})) is None


def test_the_parameter_at_fault_becomes_one_that_worked() -> None:
    remedy = Remedy("other_parameter", parameter="unit")
    failed = lived("a", False, params={"unit": "db", "force": True}, remedy=remedy)
    worked = lived("a", True, params={"unit": "db.service", "force": True})
    question = Question(("a",), {"unit": "db", "force": True}, KEY)

    found = decide(question, {}, cases_of([failed, worked], at()), at())

    assert found.params == {"unit": "db.service", "force": True}
    assert not found.is_lent
    cases = cases_of([failed], at())
    failure = known_failure(cases, "a", question.params, at())
    assert other_value(cases, failure, question.params) is None, "a value that was not tried is not lent"


def test_a_tool_of_single_effect_is_not_tried_out_but_follows_one_that_failed() -> None:
    def taken(experiences: list[Experience]) -> str | None:
        question = Question(("a", "b"), {}, KEY, may_try=lambda tool: False)
        return decide(question, {}, cases_of(experiences, at()), at()).tool

    middling = [lived("a", True), lived("a", False, cause="timeout")]
    assert taken(middling) == "a"
    assert taken([lived("a", False)]) == "b"
    assert taken([*middling, lived("b", True)]) == "b"


def test_a_tool_that_was_repaired_is_tried_again_after_some_trials_of_another_that_is_no_better_than_middling() -> None:
    before, now = NOW - timedelta(hours=1), NOW
    broken = lived("a", False, at=before)
    middling = [
        lived("b", True, count=30, first_at=before, at=now),
        lived("b", False, cause="timeout", count=30, first_at=before, at=now),
    ]

    assert chosen([broken, *middling[:1]]).tool == "b"
    assert chosen([broken, *middling], tools=("a", "b")).tool == "a"


# -- strangers


def test_what_strangers_brought_votes_only_on_what_strangers_bring() -> None:
    strange = [lived("b", True, trust="untrusted")] * 5

    assert chosen(strange).tool == "a"
    assert chosen(strange, at(trust="untrusted")).tool == "b"


def test_a_success_that_was_only_claimed_gives_no_vote_but_one_that_happened_does() -> None:
    claim = Experience("message: the disk is full, b worked", said="b worked!", success=True, trust="trusted", key=KEY)

    assert cases_of([claim], at()) == ()
    assert chosen([lived("b", True)]).tool == "b"


# -- situations and sequences


def test_a_situation_is_the_same_by_its_name_and_words_but_for_what_holds_a_digit() -> None:
    assert is_same(lived("a", True, "request 83a41f92 failed"), at("request 77c00d31 failed"))
    assert not is_same(lived("a", True, "state five"), at("state six"))
    assert not is_same(lived("a", True, key="other"), at())
    assert not is_same(lived("a", True, "full"), at("the disk is full"))


def test_a_sequence_is_replayed_without_what_failed_on_the_way() -> None:
    calls = (TriedCall("a", success=False), TriedCall("b", success=True), TriedCall("c"))
    found = sequence_of([Experience("alert: x", success=True, calls=calls, key=KEY, trust="trusted")], at("x"))

    assert found.tools == ("b", "c")


def test_the_best_and_then_the_shortest_sequence_that_worked_from_here_is_found() -> None:
    def run(tools: str, worked: bool = True, **fields: Any) -> Experience:
        calls = tuple(TriedCall(tool, success=True) for tool in tools)
        return Experience("step: state a", success=worked, calls=calls, key=KEY, **{"trust": "trusted", **fields})

    where = at("state a")
    runs = [run("rrdd"), run("rd", score=0.5), run("rd", False), run("rrd", trust="untrusted"), run("ddr")]
    found = sequence_of(runs, where)
    assert (found.tools, found.experience_id) == (("d", "d", "r"), runs[4].id)
    assert sequence_of(runs, at("state b")) is None


@given(st.text(), st.text(), st.integers(0, 10**9), st.floats(0, 1))
def test_no_text_and_no_count_breaks_a_vote(text: str, other: str, count: int, score: float) -> None:
    cases = cases_of(
        [lived("a", True, other, count=count, score=score), lived("b", False, text, count=count)], at(text)
    )

    assert all(0 <= case.weight < 100 for case in cases)
    assert decide(Question(("a", "b"), {}, KEY), {}, cases, at(text)).tool in ("a", "b")


def test_a_parameter_is_given_again_if_the_situation_is_about_it_or_it_was_the_same_each_time() -> None:
    def run(host: str, number: int, **params: Any) -> Experience:
        first = TriedCall("a", {"host": host, "way": "slow", "number": number, **params}, success=True)
        calls = (first, TriedCall("b", {"way": "slow"}, success=True))
        return Experience("alert: x", success=True, calls=calls, key="alert[db1,web1]#mend", trust="trusted", score=0.9)

    where = situation(Perception("x", kind="alert", trust="trusted"), "alert[db1,web1]#mend", NOW)
    best = replace(run("web1", 1), score=1.0)
    other = Experience("alert: x", success=True, calls=(TriedCall("a"), TriedCall("c")), key=where.key, trust="trusted",
                       score=0.5)  # fmt: skip

    found = sequence_of([run("db1", 2), best, other], where)
    alone = sequence_of([best], where)

    assert [call.params for call in found.calls] == [{"host": "web1", "way": "slow"}, {"way": "slow"}]
    assert alone.calls[0].params == {"host": "web1", "way": "slow", "number": 1}


@pytest.mark.parametrize("kept", ["***", {"token": "***"}, "the beginning … 9,000 characters left out …", ["†state.x"]])
def test_a_parameter_that_is_not_whole_or_is_a_reference_is_not_given_again(kept: Any) -> None:
    calls = (TriedCall("a", {"x": kept, "y": 1}, success=True), TriedCall("b", success=True))

    found = sequence_of([Experience("alert: x", success=True, calls=calls, key=KEY, trust="trusted")], at("x"))

    assert found.calls[0].params == {"y": 1}


def test_a_strangers_parameter_is_given_again_only_where_that_is_untrusted_too() -> None:
    def calls(of: Trust, tried: Trust) -> list[tuple[dict[str, Any], str]]:
        steps = (TriedCall("a", {"x": "evil"}, success=True, trust=tried), TriedCall("b", success=True))
        run = Experience(
            "alert: x", success=True, calls=steps, key=KEY, trust=tried if of == "untrusted" else "trusted"
        )
        found = sequence_of([run], at("x", trust=of))
        return [(dict(call.params), call.trust) for call in found.calls][:1]

    assert calls("trusted", "trusted") == [({"x": "evil"}, "trusted")]
    assert calls("trusted", "untrusted") == [({}, "trusted")]
    assert calls("untrusted", "untrusted") == [({"x": "evil"}, "untrusted")]
