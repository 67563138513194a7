"""Later words change what is known of calls: of environments, of rules that look later, of people."""

from __future__ import annotations

from typing import Any

import pytest

from reflection import Reflect
from reflection.credit import MOST_OF_THREAD, MOST_STEPS, MOST_THREADS, RETURN, CreditBook, Judged, Step
from spar.clock import SystemClock
from spar.data.learning.abilities import ability_key
from spar.events import ErrorOccurred
from spar.hooks import Hooks
from spar.protocols import Context, Host
from spar.types import (
    Ability,
    Action,
    ActionResult,
    Call,
    CallResult,
    Credit,
    Experience,
    Fault,
    Feedback,
    Learnt,
    Perception,
    Reflection,
    replace,
)
from tests.doubles import KeptRows
from tests.effort import Effort


class Life:
    """A reflector, what it learnt, and the cycles that it has seen."""

    def __init__(self, rows: KeptRows | None = None, learning: Any = "on") -> None:
        self.rows, self.learning = rows or KeptRows(), learning
        self.abilities: dict[str, Ability] = {}
        self.experiences: list[Experience] = []
        self.heard: list[Any] = []
        self.number = 0
        self.session = "main"
        self.begin()

    def begin(self) -> None:
        """Begin a process."""

        class Heard:
            @staticmethod
            def publish(event: Any) -> None:
                self.heard.append(event)

        self.reflect = Reflect()
        self.reflect.attach(Host("a", SystemClock(), Heard(), Hooks(), lambda: None, rows=lambda name: self.rows))

    def context(self) -> Context:
        return Context("a", f"c{self.number}", self.session, abilities=self.abilities, learning=self.learning)

    async def cycle(
        self,
        tool: str = "",
        perception: Perception | None = None,
        *,
        status: Any = "ok",
        output: Any = None,
        run: str | None = None,
        answer: str | None = None,
        **more: Any,
    ) -> Reflection:
        self.number += 1
        meta = more.pop("meta", {})
        calls = (Call(tool, {"x": 1}, id=f"k{self.number}", meta=meta),) if tool else ()
        action = Action(
            calls=calls,
            perceptions=(perception or Perception("x", kind="k", trust="trusted"),),
            run_id=run,
            output=answer,
            **more,
        )
        fault = Fault("permanent", "no") if status == "failed" else None
        results = tuple(CallResult(call, status, output=output, fault=fault, attempts=1) for call in calls)
        return self.take(await self.reflect.reflect(ActionResult(action, "ok", results), self.context()))

    def take(self, reflection: Reflection) -> Reflection:
        for each in reflection.abilities:
            self.abilities[ability_key(each.tool, each.task)] = each
        self.experiences += reflection.experiences
        return reflection

    def trials(self, tool: str, task: str = "k") -> int:
        known = self.abilities.get(ability_key(tool, task))
        return 0 if known is None else known.trials


@pytest.fixture
def life() -> Life:
    return Life()


def seen(state: str, episode: str = "e1", trust: Any = "trusted", **more: Any) -> Perception:
    attributes = {"episode": episode, "reward": 0, "done": False, "entities": [state], **more}
    return Perception(state, kind="k", source="game", attributes=attributes, trust=trust)


# -- environments


async def test_the_calls_of_an_episode_count_when_it_has_ended_well_and_less_the_earlier_they_were(life: Life) -> None:
    first = await life.cycle("left", seen("s0"))
    await life.cycle("right", seen("s1"))

    assert (first.abilities, life.trials("left")) == ((), 0)
    assert [each.success for each in life.experiences] == [None, None]

    end = await life.cycle("", seen("s2", reward=1, done=True))

    assert [(word.about, word.success, word.by, word.score) for word in end.feedback] == [
        ("c2", True, "environment", 1.0), ("c1", True, "environment", RETURN),
    ]  # fmt: skip
    assert life.abilities["right|k[s1]"].estimate > life.abilities["left|k[s0]"].estimate > 0.5
    [sequence] = end.experiences
    assert (sequence.key, sequence.success, sequence.run_id) == ("k[s0]", True, "e1")
    assert [call.tool for call in sequence.calls] == ["left", "right"]


async def test_of_an_episode_that_ended_badly_the_last_call_is_guilty(life: Life) -> None:
    await life.cycle("left", seen("s0"))
    await life.cycle("right", seen("s1"))

    end = await life.cycle("", seen("s2", done=True))

    assert [(word.about, word.success) for word in end.feedback] == [("c2", False)]
    assert life.abilities["right|k[s1]"].estimate < life.abilities["left|k[s0]"].estimate < 0.5
    assert end.experiences[0].success is False


@pytest.mark.parametrize("told", ["seen", "called"])
async def test_of_an_episode_that_was_cut_short_nobody_is_guilty(life: Life, told: str) -> None:
    await life.cycle("left", seen("s0"))
    over = {"reward": 0.0, "done": True, "cut": True}

    if told == "seen":
        await life.cycle("right", seen("s1"))
        end = await life.cycle("", seen("s2", **over))
    else:
        end = await life.cycle("right", seen("s1"), output=over)

    assert (end.feedback, life.trials("left"), life.trials("right")) == ((), 0, 0)
    assert [(each.success, len(each.calls)) for each in life.experiences] == [(None, 1), (None, 1)]
    again = await life.cycle("left", seen("s0", "e2"))
    assert again.feedback == ()
    end = await life.cycle("", seen("s1", "e2", reward=1, done=True, cut=True))
    assert [(word.about, word.success) for word in end.feedback][:1] == [(f"c{life.number - 1}", True)], "it brought 1"


async def test_a_step_after_which_the_exact_situation_is_the_same_has_changed_nothing(life: Life) -> None:
    await life.cycle("push", seen("s0"))

    again = await life.cycle("left", seen("s0"))

    assert [(word.about, word.success, word.why) for word in again.feedback] == [("c1", False, "nothing changed by it")]
    assert life.abilities["push|k[s0]"].estimate < 0.5
    not_told_apart = Life()
    await not_told_apart.cycle("push", seen("s0", entities=[]))
    assert (await not_told_apart.cycle("left", seen("s0", entities=[]))).feedback == ()


async def test_a_tool_of_the_environment_may_say_at_once_how_it_went_and_is_counted_once(life: Life) -> None:

    good = await life.cycle("a", seen("s0", "e1"), output={"reward": 1.0, "done": True})
    bad = await life.cycle("b", seen("s0", "e2"), output={"reward": 0, "done": True})
    await life.cycle("", seen("s1", "e2", reward=0, done=True))

    assert [each.success for each in life.experiences] == [True, False]
    assert (good.feedback, bad.feedback) == ((), ())
    assert (life.trials("a"), life.trials("b")) == (1, 1)
    assert life.abilities["a|k"].estimate > 0.5 > life.abilities["b|k"].estimate


async def test_a_reward_that_the_call_has_told_is_not_added_again_when_it_is_seen(life: Life) -> None:
    await life.cycle("a", seen("s0"), output={"reward": -1.0, "done": False})
    await life.cycle("b", seen("s1", reward=-1.0), output={"reward": 1.5, "done": False})

    end = await life.cycle("", seen("s2", reward=1.5, done=True))

    assert end.experiences[0].success is True  # 0.5 in all, not -0.5


async def test_an_episode_without_a_word_is_over_with_the_next_one_and_its_calls_have_told_all(life: Life) -> None:
    await life.cycle("a", seen("s0", "e1"))

    following = await life.cycle("b", seen("s0", "e2"))

    assert [(word.about, word.success) for word in following.feedback] == [("c1", True)]
    assert life.trials("a") == 1


async def test_what_a_stranger_says_of_rewards_is_not_heard() -> None:
    life, benign = Life(), Life()
    for each, trust in ((life, "untrusted"), (benign, "trusted")):
        await each.cycle("a", seen("s0", trust=trust))
        await each.cycle("", seen("s1", reward=-5, done=True, trust=trust))

    assert life.abilities["a|untrusted:k"].estimate > 0.5 > benign.abilities["a|k"].estimate


@pytest.mark.parametrize("strange", [None, "much", float("nan"), float("inf"), True, [], {}])
async def test_a_strange_reward_is_none(life: Life, strange: Any) -> None:
    await life.cycle("a", seen("s0"))

    end = await life.cycle("", seen("s1", reward=strange, done=True, episode="e1"))

    assert [word.success for word in end.feedback] == [False]


# -- rules that look later, and people


async def test_a_call_that_a_rule_looks_at_later_counts_when_the_rule_has_looked(life: Life) -> None:
    await life.cycle("restart", meta={"_verify": True})
    assert (life.trials("restart"), life.experiences[0].success) == (0, None)

    later = await life.cycle(feedback=(Feedback("c1", False, "verify", "it came again"),))

    assert later.feedback == (Feedback("c1", False, "verify", "it came again"),)
    assert (life.trials("restart"), life.abilities["restart|k"].estimate < 0.5) == (1, True)


async def test_the_word_of_a_person_on_a_run_counts_for_all_its_calls_and_once(life: Life) -> None:
    await life.cycle("find", run="r1")
    await life.cycle("tell", run="r1")
    await life.cycle("", run="r1", answer="done")
    before = dict(life.abilities)
    word = Feedback("r1", False, "person", "wrong")

    for _ in range(3):
        life.take(await life.reflect.hear_feedback([word], life.context()))

    assert (life.trials("find"), life.trials("tell")) == (2, 2)
    assert all(life.abilities[f"{tool}|k"].estimate < before[f"{tool}|k"].estimate for tool in ("find", "tell"))
    assert life.abilities["tell|k"].estimate < life.abilities["find|k"].estimate


async def test_a_run_of_several_steps_is_remembered_as_a_sequence_once(life: Life) -> None:
    await life.cycle("find", run="r1")
    await life.cycle("tell", run="r1")

    end = await life.cycle("", run="r1", answer="done")
    more = await life.cycle("", run="r1", answer="done")

    assert [[call.tool for call in each.calls] for each in end.experiences] == [[], ["find", "tell"]]
    assert len(more.experiences) == 1


async def test_a_decision_that_memory_made_is_credited_by_how_its_call_went(life: Life) -> None:
    for status, helped in (("ok", True), ("failed", False)):
        number = life.number + 1
        learnt = (
            Learnt("it worked", f"k{number}", ("x1", "x2"), "other"),
            Learnt("seen only", f"k{number}", ("x3",), "other", is_used=False),
            Learnt("left out", "", ("x4",), "other"),
        )
        reflection = await life.cycle("a", status=status, learnt=learnt)
        assert reflection.credits == (Credit("x1", helped), Credit("x2", helped))


async def test_credit_waits_for_the_word_on_the_call(life: Life) -> None:
    learnt = (Learnt("it worked", "k1", ("x1",), "other"),)
    assert (await life.cycle("a", meta={"_verify": True}, learnt=learnt)).credits == ()

    later = await life.cycle(feedback=(Feedback("c1", False, "verify"),))

    assert later.credits == (Credit("x1", False),)


# -- what is kept


async def test_the_next_process_understands_a_word_on_what_the_former_one_did(life: Life) -> None:
    await life.cycle("a", seen("s0"))
    await life.cycle("b", run="r1")
    life.begin()

    life.take(await life.reflect.hear_feedback([Feedback("r1", False, "person")], life.context()))
    end = await life.cycle("", seen("s1", reward=1, done=True))

    assert life.trials("b") == 2
    assert [word.about for word in end.feedback] == ["c1"]
    life.begin()
    assert (await life.cycle("", seen("s1", reward=1, done=True))).feedback == ()


async def test_without_its_rows_it_goes_on_and_says_so(life: Life) -> None:
    life.rows.is_broken = True

    await life.cycle("a")

    assert life.trials("a") == 1
    assert [type(event) for event in life.heard] == [ErrorOccurred]


async def test_off_nothing_is_learnt_and_experiences_are_kept() -> None:
    life = Life(learning="off")
    learnt = (Learnt("it worked", "k1", ("x1",), "other"),)

    reflection = await life.cycle("a", learnt=learnt, feedback=(Feedback("c0", True, "verify"),))
    heard = await life.reflect.hear_feedback([Feedback("c1", False, "person")], life.context())

    assert (reflection.abilities, reflection.credits, reflection.feedback) == ((), (), ())
    assert (heard.abilities, heard.feedback, life.rows.rows) == ((), (), {})
    assert [each.action for each in reflection.experiences] == ["a(x)"]


def step(number: int, run: str = "") -> Step:
    return Step(f"c{number}", "k", "s", "main", "trusted", [], [], run)


def test_steps_and_threads_are_bounded_in_memory_and_on_disk() -> None:
    book, rows = CreditBook(), dict[str, Any]()
    for number in range(3 * MOST_STEPS):
        run = f"r{number // 100 if number < MOST_STEPS else number}"
        book.add(run, None, step(number, run), Judged())
        for key, row in book.changes().items():
            rows.pop(key, None) if row is None else rows.update({key: row})
        assert max(len(thread.steps) for thread in book.threads.values()) <= MOST_OF_THREAD

    assert len(book.threads) == MOST_THREADS
    assert len(rows) <= MOST_STEPS + MOST_THREADS
    other = CreditBook()
    other.restore(rows)
    assert list(other.threads) == list(book.threads)
    assert not other.changes()


@pytest.mark.parametrize("steps_of_run", [1, MOST_OF_THREAD])
def test_a_flood_in_one_session_leaves_the_threads_of_another(steps_of_run: int) -> None:
    book, rows = CreditBook(), dict[str, Any]()

    def done(session: str, number: int, run: str) -> None:
        book.add(run, None, replace(step(number, run), session=session), Judged())
        for key, row in book.changes().items():
            rows.pop(key, None) if row is None else rows.update({key: row})

    for number in range(100):
        done("quiet", number, f"q{number // 2}")
    for number in range(100, 5_000):
        done("loud", number, f"l{number // steps_of_run}")

    other = CreditBook()
    other.restore(rows)
    for known in (book, other):
        assert {f"q{number}" for number in range(50)} <= known.threads.keys()
        assert known.judge(Feedback("c7", False, "person"), Judged())
        assert not known.judge(Feedback("c150", False, "person"), Judged())
        assert sum(len(each.steps) for each in known.threads.values()) <= MOST_STEPS
    assert len(rows) <= MOST_STEPS + MOST_THREADS


async def test_episodes_of_one_name_in_two_sessions_are_two(life: Life) -> None:
    await life.cycle("left", seen("s0"))
    life.session = "other"
    await life.cycle("right", seen("s0"))

    end = await life.cycle("", seen("s1", done=True, reward=-1))

    assert [(word.about, word.success) for word in end.feedback] == [("c2", False)]
    life.session = "main"
    end = await life.cycle("", seen("s1", done=True, reward=1))
    assert [(word.about, word.success) for word in end.feedback] == [("c1", True)]


def test_rows_that_cannot_be_read_are_dropped() -> None:
    book = CreditBook()
    book.restore({"a": 1, "b": {"step": {}, "of": "x"}, "c": {"id": 3}})

    assert book.changes() == {"a": None, "b": None, "c": None}


def test_a_step_costs_the_same_however_many_there_are() -> None:
    def effort(number: int) -> int:
        book = CreditBook()
        for each in range(number):
            book.add(f"r{each}", None, step(each, f"r{each}"), Judged())
        book.changes()
        with Effort() as spent:
            book.add("r", None, step(number, "r"), Judged())
            book.changes()
        return spent.steps

    assert effort(400) <= 1.2 * effort(4)
