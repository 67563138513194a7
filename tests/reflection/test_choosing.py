"""What reflection learns is what planning chooses by: the same names, evidence that fades, a second chance."""

from __future__ import annotations

import random

import pytest

from perception import Pipeline
from planning import RulesPlanner
from planning.prompt.observations import observe
from planning.rules.tool_choice import choose
from reflection import Reflect
from reflection.ability import Trial, faded, learn
from spar.protocols import Context
from spar.records.abilities import ability_key, known_of, names_of, task_name
from spar.types import Ability, ActionResult, CallResult, Perception
from tests.effort import Effort


def live(known: dict[str, Ability], rng: random.Random, episodes: int, chance: dict[str, float]) -> dict[str, int]:
    """How often each tool was tried in so many episodes, when it works with this chance."""
    tried = dict.fromkeys(chance, 0)
    for _ in range(episodes):
        tool = choose(list(chance), "x", known)
        assert tool is not None
        tried[tool] += 1
        for each in learn([Trial(tool, "x", rng.random() < chance[tool])], known):
            known[ability_key(each.tool, each.task)] = each
    return tried


def test_a_tool_that_was_repaired_is_tried_again_and_then_taken() -> None:
    known, rng = dict[str, Ability](), random.Random(1)

    before = live(known, rng, 200, {"a": 0.0, "b": 0.6})
    after = live(known, rng, 1_000, {"a": 1.0, "b": 0.6})

    assert before["b"] > 190
    assert after["a"] > 700


def test_a_tool_that_stays_broken_is_tried_only_now_and_then() -> None:
    known, rng = dict[str, Ability](), random.Random(1)

    tried = live(known, rng, 2_000, {"a": 0.0, "b": 0.8})

    assert 2 <= tried["a"] <= 40


def test_evidence_that_is_gone_does_not_fade_any_further() -> None:
    ability = Ability("a", "x", 0.3, 0.1, 40)
    steps = 0
    while (less := faded(ability)) is not ability:
        ability, steps = less, steps + 1
        assert steps < 2_000

    assert ability.trials == 40
    assert ability.estimate == pytest.approx(0.5, abs=0.01)


def test_a_trial_costs_what_there_are_tools_and_not_what_is_known() -> None:
    def effort(tasks: int) -> int:
        known = {
            ability_key(tool, str(task)): Ability(tool, str(task), 0.5, 0.1, 5)
            for tool in ("a", "b", "c") for task in range(tasks)
        }  # fmt: skip
        with Effort() as spent:
            learn([Trial("a", "0", True)], known, tools={"a", "b", "c"})
        return spent.steps

    assert effort(10_000) <= 1.1 * effort(10)


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
        assert action is not None
        [call] = action.calls
        right += call.tool == remedy
        result = ActionResult(action, "ok", (CallResult(call, "ok" if call.tool == remedy else "failed"),))
        for each in (await reflect.reflect(result, context)).abilities:
            known[ability_key(each.tool, each.task)] = each

    assert right > 180


def test_a_model_is_told_what_was_learnt_under_the_names_by_which_it_is_learnt() -> None:
    perception = Perception("db-1 is full", kind="alert.disk", intent="report_problem")
    known = {ability_key("clean", "alert.disk"): Ability("clean", "alert.disk", 0.9, 0.05, 30)}
    context = Context(agent="main", cycle_id="c", abilities=known)

    briefing = observe([perception], context, tools=["clean", "other"])

    assert briefing.task == "alert.disk/report_problem"
    [told] = [message for message in briefing.messages if "known_well" in str(message)]
    assert "'clean'" in str(told)
    assert "'other'" not in str(told)
