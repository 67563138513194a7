"""Facts of runs: their beginning, their end, and what they used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from spar.facts.fact import Fact


class RunBegan(Fact, frozen=True, kw_only=True):
    """A run began, or began again in a new process."""

    run: str


class Spent(Fact, frozen=True, kw_only=True):
    """A run used these amounts, by quantity."""

    run: str
    amounts: Mapping[str, int]


class RunFinished(Fact, frozen=True, kw_only=True):
    """A run ended, with its answer or an error. `cycle` is the cycle with whose end it did, "" for none."""

    run: str
    status: Literal["ok", "error"]
    error: str = ""
    output: Any = None
    cycle: str = ""


class RunAnswered(Fact, frozen=True, kw_only=True):
    """The answer of a run that ended, as people can ask for it. `cycle` is as in `RunFinished`."""

    run: str
    answer: Any
    cycle: str = ""


class AnswerChanged(Fact, frozen=True, kw_only=True):
    """Hooks changed the answer of a run after its end."""

    run: str
    answer: Any
