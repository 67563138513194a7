"""A scripted model for the shipped cases: it behaves, or it misbehaves as `scripts.yaml` says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from planning.llm.compaction import INSTRUCTIONS
from spar.config.load import Loaded, load
from spar.evals.cases import EvalCase
from tests.servers.llm_replies import Reply, ToolCall, says
from tests.servers.llm_requests import Asked, content_of

SCRIPTS: Final[Mapping[str, Any]] = yaml.safe_load(Path(__file__).with_name("scripts.yaml").read_text())


class ScriptedModel:
    """Model that knows by the last message which case it plays, and gives the next answer of its script."""

    def __init__(self, cases: Sequence[EvalCase], which: str) -> None:
        self._answers = {case.name: deque(SCRIPTS[case.name][which]) for case in cases}
        self._by_text = {message.text: case.name for case in cases for message in case.messages}
        self._by_past = {case.history[0].user: case.name for case in cases if "summary" in SCRIPTS[case.name]}

    def __call__(self, asked: Asked) -> Reply:
        texts = list(map(content_of, asked.messages))
        usage = (len(asked.raw) // 4, 0, 0)  # as a real model counts, or the conversation would not be summed up
        if INSTRUCTIONS[:60] in asked.text:
            (name,) = [name for begin, name in self._by_past.items() if begin in asked.text]
            return says(SCRIPTS[name]["summary"], usage=usage)
        (name,) = {self._by_text[said] for said in self._by_text if any(text.startswith(said) for text in texts)}
        answer = self._answers[name].popleft()
        if isinstance(answer, str):
            return says(answer, usage=usage)
        calls = [ToolCall(tool, params) for call in answer for tool, params in call.items()]
        return says("", *calls, usage=usage)


def configured(url: str, folder: Path, **options: Any) -> Callable[[Mapping[str, Any]], Loaded]:
    """Return the configuration of a model at this address, to which cases add settings."""
    config = folder / "config.toml"
    config.write_text(f'[plan]\nuse = "llm"\n[plan.options]\nmodel = "local"\nbase_url = "{url}"\n')

    def configure(settings: Mapping[str, Any]) -> Loaded:
        return load(config, overrides={key: str(value) for key, value in {**options, **settings}.items()}, environ={})

    return configure
