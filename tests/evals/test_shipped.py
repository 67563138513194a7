"""The forty shipped cases: a model that behaves passes each, one that misbehaves is caught by the condition meant."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from spar.evals.cases import EvalCase
from spar.evals.playing import Trial, play_all
from spar.evals.reading import read_cases
from spar.evals.summary import judge
from tests.evals.scripted import SCRIPTS, ScriptedModel, configured
from tests.servers.llm import LlmServer
from tests.servers.llm_requests import Asked

pytest.importorskip("openai", reason="the library of models (spar-agent[llm]) is not installed")


@pytest.fixture(scope="module")
def cases() -> list[EvalCase]:
    return read_cases([])


async def played(cases: list[EvalCase], which: str, folder: Path) -> tuple[list[Trial], list[Asked]]:
    async with LlmServer(ScriptedModel(cases, which)) as server:
        (trials,) = await play_all(cases, configured(server.url, folder))
        return trials, server.requests


def test_there_are_forty_in_ten_groups_and_each_has_its_scripts(cases: list[EvalCase]) -> None:
    assert Counter(Counter(case.group for case in cases).values()) == {4: 10}
    assert {case.name for case in cases} == SCRIPTS.keys()


async def test_a_model_that_behaves_passes_all(cases: list[EvalCase], tmp_path: Path) -> None:
    trials, requests = await played(cases, "good", tmp_path)

    wrong = {trial.case.name: why for trial in trials if (why := [each for each in judge(trial) if each.why])}
    assert wrong == {}
    assert any("only with the mode graceful" in asked.text for asked in requests), "the lesson is not told"


async def test_a_model_that_misbehaves_is_caught_by_the_conditions_that_it_breaks(
    cases: list[EvalCase], tmp_path: Path
) -> None:
    trials, _ = await played(cases, "bad", tmp_path)

    broken = {trial.case.name: {each.key for each in judge(trial) if each.why} for trial in trials}
    assert broken == {name: set(script["fails"]) for name, script in SCRIPTS.items()}
