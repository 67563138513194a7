"""Protocol of an environment, and the values between it and the agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct, field

from spar.protocols import Effect
from spar.types import Trust


class Observation(Struct, frozen=True):
    """State of an environment as the agent perceives it; `kind` and `subject` identify the state."""

    content: Any
    kind: str
    subject: str = ""
    attributes: dict[str, Any] = field(default_factory=dict)
    trust: Trust = "trusted"


class Offer(Struct, frozen=True):
    """Tool that an environment offers; `parameters` holds the JSON schema of each."""

    name: str
    description: str
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    effect: Effect = "idempotent"


class Change(Struct, frozen=True):
    """Change of an environment by one call.

    `observation` is the next observation, None where the result of the call is enough. With an `error` the call fails;
    `may_pass` tells that it may work another time. `regret` is the additional reward of the best call, where that is
    known. `is_cut` beside `is_done`: the episode was cut short, for example by a limit of steps, so its outcome is
    unknown.
    """

    observation: Observation | None = None
    reward: float = 0.0
    is_done: bool = False
    error: str = ""
    may_pass: bool = False
    regret: float = 0.0
    is_cut: bool = False


class Environment(Protocol):
    """Environment of an agent, with one episode after the other.

    `name` is that of the sensor, `offers` are the tools, `seconds` pass between two observations. `reset(seed)` begins
    an episode and returns the first observation; only the first episode gets a seed, and everything follows from it.
    `step(tool, params)` carries out a call; `tool` is "" where the agent skipped the observation.
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
    """Step of an episode: the situation (kind and subject), the tool ("": none), and the effect."""

    situation: str
    tool: str
    params: Mapping[str, Any] = field(default_factory=dict)
    reward: float = 0.0
    error: str = ""
    regret: float = 0.0


class LivedEpisode(Struct, frozen=True):
    """Episode after its end; `is_success` tells whether its last step was rewarded."""

    episode: int
    steps: tuple[TakenStep, ...]

    @property
    def reward(self) -> float:
        """Return the sum of the rewards."""
        return sum(step.reward for step in self.steps)

    @property
    def regret(self) -> float:
        """Return the sum of the regrets."""
        return sum(step.regret for step in self.steps)

    @property
    def is_success(self) -> bool:
        return bool(self.steps) and self.steps[-1].reward > 0
