"""What reflection learns is what planning chooses by: the same names, evidence that fades, a second chance."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perception import Pipeline
from planning import RulesPlanner
from planning.prompt.observations import ability_text, observe
from planning.rules.tool_choice import choose
from reflection import Reflect
from reflection.reflect import best_at
from spar.clock import SystemClock
from spar.data.learning.abilities import (
    AgedAbilities,
    Fading,
    KnownAbilities,
    ReadAbilities,
    ToolTrial,
    ability_key,
    evidence_of,
    known_of,
    learn,
    share_left,
)
from spar.data.learning.situations import names_of, of_strangers, situation_of, task_name
from spar.protocols import Context
from spar.types import Ability, Action, ActionResult, Call, CallResult, Fault, Perception, Trust, replace
from tests.effort import Effort


class ClockOf(SystemClock):
    def __init__(self, at: float) -> None:
        self._at = at

    def now(self) -> datetime:
        return datetime.fromtimestamp(self._at, UTC)


def live(known: KnownAbilities, rng: random.Random, episodes: int, chance: dict[str, float]) -> dict[str, int]:
    """How often each tool was tried in so many episodes, when it works with this chance."""
    tried = dict.fromkeys(chance, 0)
    for _ in range(episodes):
        tool = choose(list(chance), "x", known)
        assert tool is not None
        tried[tool] += 1
        known.put(learn([ToolTrial(tool, "x", rng.random() < chance[tool])], known))
    return tried


def test_a_tool_that_stays_broken_is_tried_only_now_and_then() -> None:
    known, rng = KnownAbilities(), random.Random(1)

    tried = live(known, rng, 2_000, {"a": 0.0, "b": 0.8})

    assert 2 <= tried["a"] <= 40


def test_evidence_that_is_gone_leaves_the_prior_and_the_number_of_trials() -> None:
    known = KnownAbilities([Ability("a", "x", 0.3, 0.1, 40)])
    known.put(learn([ToolTrial("b", "x", True)] * 2_000, known))

    assert known["a|x"].trials == 40
    assert known["a|x"].estimate == pytest.approx(0.5)


@pytest.mark.parametrize("is_failing", [False, True], ids=["a trial", "a failure that another tool may avoid"])
async def test_reflecting_costs_the_same_however_many_tools_and_tasks_are_known(is_failing: bool) -> None:
    fault = Fault("permission", "no") if is_failing else None
    call, seen = Call("a"), Perception("x", kind="k", trust="trusted")
    result = ActionResult(Action([call], perceptions=(seen,)), "ok", (CallResult(call, "failed", fault=fault),))

    async def effort(tools: int, tasks: int) -> int:
        known = KnownAbilities(Ability(f"t{tool}", "k", 0.4, 0.1, 5) for tool in range(tools))
        known.put(Ability("a", f"other{task}", 0.5, 0.1, 5) for task in range(tasks))
        reflect, context = Reflect(), Context("a", "c", abilities=AgedAbilities(known, ClockOf(1.0).now))
        for _ in range(2):
            with Effort() as spent:
                assert len((await reflect.reflect(result, context)).abilities) == 1
        return spent.steps

    assert await effort(800, 10_000) <= 1.1 * await effort(100, 10)


def test_the_two_best_tools_of_a_situation_are_those_with_the_highest_estimates_under_its_own_names() -> None:
    known = KnownAbilities(Ability(tool, "k/i#r", estimate, 0.05, 30) for tool, estimate in
                           [("d", 0.9), ("a", 0.7), ("b", 0.9), ("c", 0.8), ("bad", 0.3)])  # fmt: skip
    known.put([Ability("elsewhere", "k", 0.99, 0.01, 30), Ability("exact", "k/i[web1]#r", 0.95, 0.01, 30)])

    assert best_at("k/i[web1]#r", known) == ["exact", "b"]
    assert best_at("k/i[web1]#r", dict(known)) == ["exact", "b"]
    assert best_at("k/i#r", known) == ["b", "d"]
    assert best_at(of_strangers("k/i#r"), known) == ["b", "d"]
    assert best_at("other", known) == []


class Posterior:
    """Reference: evidence of one tool at one task, to which every trial at the task comes at once."""

    def __init__(self) -> None:
        self.good = self.bad = 0.0
        self.at = 0.0

    def fade(self, share: float, half_life: float, now: float) -> None:
        share *= 0.5 ** ((now - self.at) / half_life) if self.at else 1.0
        self.good, self.bad, self.at = share * self.good, share * self.bad, now


TRIALS = st.lists(
    st.tuples(
        st.sampled_from("abc"),
        st.sampled_from(["k/i", "k"]),
        st.floats(0, 1),
        st.sampled_from([1.0, 0.9, 0.45]),
        st.floats(0, 40 * 86_400.0),
    ),
    max_size=40,
)


@given(TRIALS, st.integers(1, 4), st.floats(0.1, 0.9), st.sampled_from([0.5, 0.9, 0.975, 0.999]))
def test_evidence_fades_as_if_each_trial_were_written_to_all_tools_of_its_task(
    trials: list[tuple[str, str, float, float, float]], at_once: int, prior: float, discount: float
) -> None:
    known, reference = KnownAbilities(), dict[tuple[str, str], Posterior]()
    now, half_life = 1.0, 30 * 86_400.0
    fading = Fading(prior, discount, half_life)
    for start in range(0, len(trials), at_once):
        group = trials[start : start + at_once]
        now += group[0][4]
        read = ReadAbilities(known, ClockOf(now).now)
        new = [ToolTrial(tool, task, success, weight=weight) for tool, task, success, weight, *_ in group]
        learnt = learn(new, read, fading=fading, now=now)
        known.put([read.taken(ability) for ability in learnt])
        for tool, task, success, weight, *_ in group:
            for name in names_of(task):
                mine = reference.setdefault((tool, name), Posterior())
                for (_, other), posterior in reference.items():
                    if other == name:
                        posterior.fade(fading.discount**weight, half_life, now)
                mine.good, mine.bad = mine.good + weight * success, mine.bad + weight * (1 - success)
        known = KnownAbilities(  # as the next process reads them
            msgspec.convert(msgspec.to_builtins(ability), Ability) for ability in known.stored.values()
        )

    for (tool, task), posterior in reference.items():
        posterior.fade(1.0, half_life, now)
        ability = known[ability_key(tool, task)]
        found = [share_left(ability, now) * evidence for evidence in evidence_of(ability, prior)]
        assert found == pytest.approx([posterior.good, posterior.bad], rel=1e-6, abs=1e-6)


def test_two_tools_that_are_tried_side_by_side_fade_one_another() -> None:
    known = KnownAbilities(learn([ToolTrial("a", "x", True), ToolTrial("b", "x", False)] * 9, {}, now=1.0))
    reads = [ReadAbilities(known, ClockOf(1.0).now) for _ in range(2)]
    learnt = [learn([ToolTrial(tool, "x", True)], read, now=1.0) for tool, read in zip("ab", reads, strict=True)]

    for [ability], read in zip(learnt, reads, strict=True):
        known.put([read.taken(ability)])

    trials = [ToolTrial("a", "x", True)]
    one_after_the_other = KnownAbilities(
        learn([*[*trials, ToolTrial("b", "x", False)] * 9, *trials, ToolTrial("b", "x", True)], {}, now=1.0)
    )
    for key in ("a|x", "b|x"):
        assert known[key].estimate == pytest.approx(one_after_the_other[key].estimate, abs=0.01)
        assert known[key].halvings == pytest.approx(one_after_the_other[key].halvings)


def test_what_is_known_of_a_task_goes_with_its_last_tool() -> None:
    known = KnownAbilities(learn([ToolTrial("a", "x", True), ToolTrial("b", "x", False)], {}))
    del known["a|x"]
    assert known.halvings_of("x") > 0
    assert list(known.tools_of("x")) == ["b"]

    del known["b|x"]

    assert (known.halvings_of("x"), list(known.tools_of("x")), len(known)) == (0.0, [], 0)


# -- names of tasks


def test_a_task_has_names_from_the_exact_to_the_general() -> None:
    assert list(names_of(task_name("alert.disk", "report", "clean"))) == [
        "alert.disk/report#clean", "alert.disk/report", "alert.disk",
    ]  # fmt: skip
    assert list(names_of(task_name("message"))) == ["message"]
    assert list(names_of(task_name("", "report"))) == ["report"]
    assert list(names_of(task_name("", "", "r"))) == ["#r", ""]
    assert len({task_name("k" * 500 + end) for end in "ab"}) == 2
    assert len(task_name("k" * 500, "i" * 500, "r" * 500)) < 300


@pytest.mark.parametrize("strange", ["a[b]#c,d/e", "#", "]", "[", "x#y", "[a]", "é…\n\t", "k" * 500])
def test_a_strange_name_of_a_thing_backs_off_to_the_same_kind(strange: str) -> None:
    task = task_name("alert.disk", "report", strange, [strange, strange])

    assert names_of(task)[-2:] == ("alert.disk/report", "alert.disk")
    assert len(names_of(task)) in (3, 4)
    assert names_of(task_name(strange, "", "r", ["web1"]))[-1] == names_of(task_name(strange))[-1]


def test_a_situation_names_few_things_however_many_there_are() -> None:
    many = Perception("x", kind="k", attributes={"entities": [f"host{number}" + "x" * 500 for number in range(1_000)]})

    task = situation_of(many)

    assert task.count(",") == 3
    assert len(task) < 300


def test_the_subject_says_what_it_is_about_where_it_is_a_name() -> None:
    def key(subject: str, kind: str = "k") -> str:
        return situation_of(Perception("x", kind=kind, subject=subject))

    assert key("nginx") == "k[nginx]"
    assert key("/srv/in/4711.pdf") == key("https://example.org/4711") == key("the disk of web1") == key("n" * 61) == "k"
    assert key("nginx", "message") == "message"


async def test_experience_with_one_thing_counts_for_it_and_until_then_that_of_all_of_the_kind() -> None:
    rules = RulesPlanner([{"name": "mend", "calls": [{"tool": ["clean", "renew"]}]}])
    known, right, rng, reflect = dict[str, Ability](), 0, random.Random(1), Reflect()
    pipeline = Pipeline({"incidents": {"enabled": False}})
    for number in range(200):
        host = rng.choice(["web1", "db1"])
        alert = Perception(f"disk {number}", kind="alert.disk", source="s", attributes={"labels": {"host": host}})
        context = Context(agent="main", cycle_id="c", abilities=known)
        action = await rules.plan(pipeline.process([alert]), context)
        [call] = action.calls
        worked = call.tool == {"web1": "clean", "db1": "renew"}[host]
        right += worked
        result = ActionResult(action, "ok", (CallResult(call, "ok" if worked else "failed"),))
        for each in (await reflect.reflect(result, context)).abilities:
            known[ability_key(each.tool, each.task)] = each

    assert right > 170
    assert known_of("nothing", "alert.disk", known) is None


def test_experience_of_its_own_counts_as_soon_as_there_is_enough_until_then_that_of_tasks_like_it() -> None:
    own, like = Ability("t", "k/i#r", 0.9, 0.1, 4), Ability("t", "k/i", 0.2, 0.1, 50)
    known = {ability_key(each.tool, each.task): each for each in (own, like)}

    assert known_of("t", "k/i#r", known) is like
    known[ability_key("t", "k/i#r")] = enough = Ability("t", "k/i#r", 0.9, 0.1, 5)
    assert known_of("t", "k/i#r", known) is enough
    assert known_of("t", "k/other", known) is None
    assert known_of("other", "k/i#r", known) is None


def test_a_tool_is_not_left_out_for_what_it_did_under_another_intent() -> None:
    known = {ability_key("t", "message"): Ability("t", "message", 0.05, 0.05, 50)}

    assert choose(["t"], "message/ask#r", known, 0.3) == "t"
    assert choose(["t"], "message#r", known, 0.3) is None


@pytest.mark.parametrize("settings", [{}, {"intent": {"enabled": False}}], ids=["as shipped", "without intents"])
async def test_different_troubles_have_different_remedies_whatever_their_intent(settings: dict[str, object]) -> None:
    kinds = {
        "alert.disk": ("disk nearly full on db-1", "clean"),
        "alert.cert": ("certificate of web-1 failed to renew", "renew"),
        "alert.queue": ("queue overloaded on mq-1", "drain"),
    }
    rules = RulesPlanner([{"name": "mend", "calls": [{"tool": ["clean", "renew", "drain"]}]}])
    known, right, rng, reflect = dict[str, Ability](), 0, random.Random(1), Reflect()
    for _ in range(200):
        kind = rng.choice(list(kinds))
        text, remedy = kinds[kind]
        context = Context(agent="main", cycle_id="c", abilities=known)
        action = await rules.plan(Pipeline(settings).process([Perception(text, kind=kind, source="s")]), context)
        [call] = action.calls
        right += call.tool == remedy
        result = ActionResult(action, "ok", (CallResult(call, "ok" if call.tool == remedy else "failed"),))
        for each in (await reflect.reflect(result, context)).abilities:
            known[ability_key(each.tool, each.task)] = each

    assert right > 180


def test_a_model_is_told_what_was_learnt_under_the_names_by_which_it_is_learnt() -> None:
    perception = Perception("db-1 is full", kind="alert.disk", intent="report_problem", trust="trusted")
    known = {ability_key("clean", "alert.disk"): Ability("clean", "alert.disk", 0.2, 0.05, 30)}
    context = Context(agent="main", cycle_id="c", abilities=known)

    observed = observe([perception], context)

    assert observed.task == "alert.disk/report_problem"
    text = ability_text(["clean", "other"], observed.task, known)
    assert "- clean: works in about 2 of 10 cases" in text
    assert "other" not in text


# -- how much choosing by what was learnt loses


def regret(seed: int, length: int, regimes: int) -> float:
    """What choosing loses to the best tool of three whose reliabilities are drawn anew in each regime."""
    rng = random.Random(seed)
    drawn = [{tool: rng.random() for tool in "abc"} for _ in range(regimes)]
    known, lost = KnownAbilities(), 0.0
    for number in range(length):
        chance = drawn[number * regimes // length]
        tool = choose(list(chance), "x", known)
        assert tool is not None
        lost += max(chance.values()) - chance[tool]
        known.put(learn([ToolTrial(tool, "x", rng.random() < chance[tool])], known))
    return lost


@pytest.mark.parametrize(
    ("length", "regimes", "owed", "seeds"), [(200, 1, 6.0, 30), (200, 3, 14.0, 30), (1_000, 3, 32.0, 20)]
)
def test_choosing_by_what_was_learnt_loses_little_also_where_tools_change(
    length: int, regimes: int, owed: float, seeds: int
) -> None:
    assert sum(regret(seed, length, regimes) for seed in range(seeds)) / seeds <= owed


@pytest.mark.parametrize("other", [0.4, 0.6, 0.7])
def test_a_repaired_tool_is_in_use_again_within_fifty_trials(other: float) -> None:
    again = []
    for seed in range(20):
        known, rng = KnownAbilities(), random.Random(seed)
        live(known, rng, 200, {"a": 0.0, "b": other})
        before = known[ability_key("a", "x")].trials
        live(known, rng, 50, {"a": 1.0, "b": other})
        again.append(known[ability_key("a", "x")].trials - before)

    assert sorted(again)[4] >= 1  # at least four of five times
    assert sum(again) / len(again) > 15


def test_what_was_learnt_fades_with_time_too() -> None:
    day = 86_400.0
    known = KnownAbilities(learn([ToolTrial("a", "x", False)] * 20, {}, now=day))

    bad, after_a_month, after_a_year = (
        known_of("a", "x", AgedAbilities(known, ClockOf(day * days).now)) for days in (1, 31, 366)
    )

    assert after_a_year is not None
    assert bad.estimate < after_a_month.estimate < after_a_year.estimate == pytest.approx(0.5, abs=0.01)
    assert bad == known[ability_key("a", "x")]
    [once_more] = learn([ToolTrial("a", "x", False)], known, now=366 * day)
    assert once_more.estimate == pytest.approx(1 / 3, abs=0.01)


def test_what_has_faded_leaves_no_tool_out_and_hides_nothing_that_is_known_of_tasks_like_it() -> None:
    day = 86_400.0
    known = KnownAbilities(learn([ToolTrial("a", "k/i[web1]#r", False)] * 20, {}, now=day))
    of_all = replace(known["a|k/i#r"], estimate=0.8, uncertainty=0.05, trials=60, at=366 * day)
    known["a|k/i#r"] = of_all
    soon, later = (AgedAbilities(known, ClockOf(day * days).now) for days in (2, 366))

    assert choose(["a"], "k/i[web1]#r", soon, 0.6) is None
    assert choose(["a"], "k/i[web1]#r", later, 0.6) == "a"
    assert known_of("a", "k/i[web1]#r", later) == of_all
    del known[ability_key("a", "k/i#r")]
    assert choose(["a"], "k/i[web1]#r", later, 0.6) == "a"


@pytest.mark.parametrize("known", [0, 1, 30])
def test_what_two_learn_side_by_side_is_what_they_would_learn_one_after_the_other(known: int) -> None:
    kept = KnownAbilities(learn([ToolTrial("a", "x", True)] * known, {}, now=1.0))
    read = ReadAbilities(kept, ClockOf(1.0).now)
    [told] = learn([ToolTrial("a", "x", False, 3.0)], read, now=1.0)
    [first] = learn([ToolTrial("a", "x", False)], kept, now=1.0)
    kept[ability_key("a", "x")] = first

    taken = read.taken(told)

    [one_after_the_other] = learn([ToolTrial("a", "x", False, 3.0)], kept, now=1.0)
    assert taken.trials == one_after_the_other.trials == known + 2
    assert taken.estimate == pytest.approx(one_after_the_other.estimate, abs=0.01)
    assert taken.uncertainty == pytest.approx(one_after_the_other.uncertainty, abs=0.01)
    assert read.taken(replace(told, task="y")) == replace(told, task="y")


@pytest.mark.parametrize(("trust", "tool"), [("trusted", "a"), ("untrusted", "b")])
async def test_trials_of_strangers_count_for_strangers_only(trust: Trust, tool: str) -> None:
    reflect, known = Reflect(), dict[str, Ability]()
    rules = RulesPlanner([{"name": "r", "calls": [{"tool": ["a", "b"]}]}])
    strange, seen = (Perception("x", kind="k", source="s", trust=each) for each in ("untrusted", trust))
    context = Context("a", "c", abilities=known)

    for _ in range(10):
        action = await rules.plan([strange], context)
        [call] = action.calls
        result = ActionResult(action, "ok", (CallResult(call, "failed" if call.tool == "a" else "ok"),))
        for each in (await reflect.reflect(result, context)).abilities:
            known[ability_key(each.tool, each.task)] = each
    action = await rules.plan([seen], context)

    assert [call.tool for call in action.calls] == [tool]
    assert {each.task for each in known.values()} == {"untrusted:k#r", "untrusted:k"}
