"""What people said and were told is remembered whole, without secrets, and found by any of its words."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from memory import Memory
from planning import RulesPlanner
from planning.prompt.observations import memory_text, passage
from reflection import Reflect
from reflection.lessons import experience_of, judge, texts_of, without_secrets
from spar import Agent, Perception
from spar.protocols import Context
from spar.types import Action, ActionResult, Experience
from tests.effort import Effort

NOW = datetime(2026, 1, 1, tzinfo=UTC)
LONG = (
    "I met Anna yesterday and we talked for a long time about her new job, the long way to the office, the noise in "
    "the open plan room, the good coffee there, and then she said that she moves to Lisbon in March"
)


async def test_a_message_and_its_answer_are_found_by_any_of_their_words(tmp_path: Path) -> None:
    rule = {"name": "r", "when": {"kind": "message"}, "answer": "The key is in the blue drawer."}
    async with Memory.open(f"sqlite:///{tmp_path}/m.db") as memory:
        async with Agent(plan=RulesPlanner([rule]), memory=memory, loop_interval="off") as agent:
            receipt = await agent.submit(LONG)
            await agent.wait(receipt.run_id)
        for query in ("Anna office", "Lisbon", "blue drawer", "lisbon march"):
            [found] = await memory.recall(query)
            assert found.said == LONG
            assert found.answer == "The key is in the blue drawer."
            assert len(found.situation) < 200
            assert found.session == "main"


async def test_no_secret_of_a_long_text_is_remembered(tmp_path: Path) -> None:
    text = "\n".join(f"line {n} password=hunter{n}" for n in range(5_000))

    found = await without_secrets(text)

    assert "hunter" not in found
    assert found.count("***") == 5_000
    assert len(found.splitlines()) == 5_000


async def test_others_have_their_turn_while_a_long_text_is_looked_at() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.ensure_future(others())
    await without_secrets("token: x " * 100_000)
    task.cancel()

    assert turns >= 900_000 // 32_768


async def test_what_was_only_recalled_or_noticed_by_sensors_is_not_kept_whole() -> None:
    perceptions = (
        Perception("recalled " * 100, kind="message", source="memory"),
        Perception("a file " * 100, kind="file.added", source="inbox"),
    )
    action = Action(output={"a": 1}, perceptions=perceptions)

    reflection = await Reflect().reflect(ActionResult(action, "ok"), Context(agent="main", cycle_id="c"))

    [experience] = reflection.experiences
    assert experience.said == ""
    assert '"a"' in experience.answer or "a" in experience.answer


async def test_a_text_of_a_megabyte_is_kept_and_found(tmp_path: Path) -> None:
    text = "word " * 200_000 + "needle"
    async with Memory.open(f"sqlite:///{tmp_path}/m.db") as memory:
        await memory.store(Experience("a long message", said=text))
        [found] = await memory.recall("needle")

    assert found.said == text


# -- what is shown of it


def test_a_model_is_shown_the_passage_that_has_to_do_with_what_is_asked() -> None:
    text = LONG + " " + "and more of that " * 100
    experience = Experience("message: I met Anna", said=text, answer="The key is in the blue drawer.")

    shown, _ = memory_text([experience], "where does Anna move to, Lisbon?")

    assert "moves to Lisbon in March" in shown
    assert "blue drawer" in shown
    assert len(shown) < 1_500


def test_a_passage_of_a_text_without_any_of_the_words_is_its_beginning() -> None:
    assert passage("x" * 1_000, "nothing of this") == "x" * 300 + " …"
    assert passage("short", "query") == "short"
    assert passage("a " * 500 + "Needle here", "the needle").startswith("… ")


async def test_the_line_of_a_situation_costs_no_more_for_thousands_of_perceptions() -> None:
    async def effort(number: int) -> int:
        action = Action(output="x", perceptions=tuple(Perception(f"{n} happened", kind="k") for n in range(number)))
        result = ActionResult(action, "ok")
        with Effort() as spent:
            texts = await texts_of(action)
            found = experience_of(result, judge(result), (), texts, session="main", cycle_id="c", at=NOW)
        assert found.situation.endswith(f"{number} in all")
        return spent.steps

    assert await effort(2_100) - await effort(100) < 20 * 2_000, "a look at each, not its words"
