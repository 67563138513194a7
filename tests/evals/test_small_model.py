"""Two shipped cases, played by the small language model of this machine. Which of them it passes is kept, not demanded.

All forty take it a quarter of an hour, of which it passes one (docs/how-to/evaluate.md).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from spar.evals.playing import play_all
from spar.evals.reading import read_cases
from spar.evals.summary import Summary
from tests.evals.scripted import configured
from tests.servers.tiny_llm import MODEL, tiny_llm

#: One that needs a call, and one that needs silence.
PLAYED = ("the weather in one town", "thanks that need no answer")


@pytest.mark.process
async def test_a_real_model_plays_cases_to_their_end(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    pytest.importorskip("openai", reason="the library of models (spar-agent[llm]) is not installed")
    cases = [replace(case, timeout=900.0) for case in read_cases([]) if case.name in PLAYED]
    with tiny_llm() as url:
        options = {"plan.options.model": MODEL, "plan.options.max_tokens": 300, "plan.options.context_tokens": 8_000}
        (trials,) = await play_all(cases, configured(url, tmp_path, **options), at_once=2)

    summary = Summary.of(MODEL, trials)
    record_property("passed", summary.groups())
    assert sorted(trial.case.name for trial in trials) == sorted(PLAYED)
    for trial in trials:
        assert trial.error == ""
        assert trial.steps >= 1
        assert trial.tokens > 0
    assert 0 <= summary.estimate("passed").value <= 1
