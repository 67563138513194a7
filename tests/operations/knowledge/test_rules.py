"""Rules: why each of them matched or did not match what a past cycle noticed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memory import Memory
from planning import RulesPlanner
from spar import Agent
from spar.config.load import load
from spar.operations.knowledge.rules import ExplainChoice, RuleAnswers, explain
from spar.operations.operation import Caller
from spar.service.app import Service

CONFIG = """
[[rules]]
name = "greet"
when = { pattern = "hello" }
answer = "hi"
[[rules]]
name = "leave"
when = { pattern = "goodbye" }
answer = "bye"
"""


async def explained(folder: Path, text: str, **given: Any) -> RuleAnswers:
    """Return the answers of the rules about the cycle in which an agent heard a text."""
    (folder / "config.toml").write_text(CONFIG)
    loaded = load(folder / "config.toml", environ={})
    memory = Memory(f"sqlite:///{folder / 'm.db'}", ballast=0)
    async with Agent(plan=RulesPlanner(list(loaded.settings.rules)), memory=memory, loop_interval="off") as agent:
        await agent.wait((await agent.submit(text)).run_id, 60)
        return await explain.run(Service(loaded, agent), ExplainChoice("last", **given), Caller("ann"))


async def test_each_rule_says_whether_it_matches_and_which_condition_is_not_met(tmp_path: Path) -> None:
    answers = await explained(tmp_path, "hello <b>there</b>")

    greet, leave = answers.answers
    assert answers.rules == ["greet", "leave"]
    assert (greet.rule, greet.matches, greet.has_fired) == ("greet", True, True)
    assert (leave.rule, leave.matches, leave.has_fired) == ("leave", False, False)
    assert "goodbye" in leave.why
    assert greet.about.endswith("hello <b>there</b>")
    assert "greet" in answers.decided


async def test_one_rule_alone_is_asked_and_one_that_is_not_there_is_named_with_those_that_are(tmp_path: Path) -> None:
    assert [answer.rule for answer in (await explained(tmp_path, "goodbye", rule="leave")).answers] == ["leave"]
    assert len((await explained(tmp_path, "hello", limit=1)).answers) == 1
    with pytest.raises(LookupError, match="no rule named 'nothing'; known: greet, leave"):
        await explained(tmp_path, "hello", rule="nothing")
