"""The protocol of an environment, and the values that pass between it and the agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, field

from spar.protocols import Effect
from spar.types import Trust


class Observation(Struct, frozen=True):
    """State of an environment as the agent perceives it: `kind` and `subject` say which state it is."""

    content: Any
    kind: str
    subject: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    trust: Trust = "trusted"


class Offer(Struct, frozen=True):
    """A tool that an environment offers; `parameters` holds the JSON schema of each."""

    name: str
    description: str
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    effect: Effect = "idempotent"


class Change(Struct, frozen=True):
    """Change of an environment by one call.

    `observation` is what is to be noticed next, None where the call itself has told all. `error` is what the tool
    complains of: the call then fails, and may work another time with `may_pass`. `regret` is what the best call would
    have brought more, where that is known. `is_cut` beside `is_done`: the episode was cut short, as by a limit of
    steps, and nobody knows how it would have ended.
    """

    observation: Observation | None = None
    reward: float = 0.0
    is_done: bool = False
    error: str = ""
    may_pass: bool = False
    regret: float = 0.0
    is_cut: bool = False


class Environment(Protocol):
    """Something to live in, episode after episode.

    `name` is that of the sensor, `offers` are the tools, `seconds` pass between two observations. `reset(seed)` begins
    an episode and returns what is noticed first; a seed is given with the first one only, and everything follows from
    it. `step(tool, params)` carries out a call; `tool` is "" where the agent let the observation pass.
    """

    @property
    def name(self) -> str: ...
    @property
    def offers(self) -> Sequence[Offer]: ...
    @property
    def seconds(self) -> float: ...
    def reset(self, seed: int | None = None) -> Observation: ...
    def step(self, tool: str, params: Mapping[str, Any]) -> Change: ...


class TakenStep(Struct, frozen=True):
    """A step of an episode: in which situation (kind and subject), by which tool ("": none), and its effect."""

    situation: str
    tool: str
    params: Mapping[str, Any] = field(default_factory=dict)
    reward: float = 0.0
    error: str = ""
    regret: float = 0.0


class LivedEpisode(Struct, frozen=True):
    """An episode as it went; `is_success` says whether its last step was rewarded."""

    episode: int
    steps: tuple[TakenStep, ...]

    @property
    def reward(self) -> float:
        """The sum of the rewards."""
        return sum(step.reward for step in self.steps)

    @property
    def regret(self) -> float:
        """The sum of the regrets."""
        return sum(step.regret for step in self.steps)

    @property
    def is_success(self) -> bool:
        return bool(self.steps) and self.steps[-1].reward > 0
