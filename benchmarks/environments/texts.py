"""Texts that belong to one tool each: the agent has to find the right tool by trying.

The texts are those of CLINC150 (clinc/oos-eval): each intent belongs to one of ten domains, and each domain is a tool.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.environments.environment import Change, Observation, Offer


class TextsToTools:
    """Environment of texts, each with one right tool; any other tool fails.

    Args: texts: `(text, tool)` to draw from, in an order that the seed decides; each comes once until all have come.
    """

    name = "requests"
    seconds = 10.0

    def __init__(self, texts: Iterable[tuple[str, str]]) -> None:
        self._texts = list(texts)
        self.offers = [
            Offer(tool, f"Do what is asked about {tool}.") for tool in sorted({tool for _, tool in self._texts})
        ]
        self._waiting: list[tuple[str, str]] = []
        self._random, self._right = random.Random(0), ""

    @classmethod
    def of_clinc(cls, folder: Path) -> TextsToTools:
        """Return the texts of CLINC150 by domain. Args: folder: a clone of clinc/oos-eval."""
        domains = json.loads((folder / "data" / "domains.json").read_text())
        tools = {intent: domain for domain, intents in domains.items() for intent in intents}
        rows = json.loads((folder / "data" / "data_full.json").read_text())
        return cls((text, tools[intent]) for text, intent in [*rows["train"], *rows["test"]])

    def reset(self, seed: int | None = None) -> Observation:
        if seed is not None:
            self._random, self._waiting = random.Random(seed), []
        if not self._waiting:
            self._waiting = self._random.sample(self._texts, len(self._texts))
        text, self._right = self._waiting.pop()
        return Observation(text, kind="request")

    def step(self, tool: str, params: Mapping[str, Any]) -> Change:
        if tool == self._right:
            return Change(None, 1.0, is_done=True)
        return Change(None, 0.0, is_done=True, error=f"{tool or 'nothing'} does not do this", regret=1.0)
