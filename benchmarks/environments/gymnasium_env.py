"""Environments of Gymnasium with discrete actions: each action is a tool.

outcomes = await live(GymnasiumEnvironment.make("FrozenLake-v1", is_slippery=False), 200)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.environments.environment import Change, Observation, Offer


class GymnasiumEnvironment:
    """Environment of Gymnasium as an `Environment`. An episode that ends without a reward has failed.

    Args:
        environment: the result of `gymnasium.make`; its action space is `Discrete`.
        name: that of the sensor.
        actions: names of the tools, in the order of the actions; None: `action_0`, `action_1`, …
        state: returns an observation as the words for its state; None: as text.
        seconds: between two observations.
    """

    def __init__(
        self,
        environment: Any,
        *,
        name: str = "gymnasium",
        actions: Sequence[str] | None = None,
        state: Callable[[Any], str] = str,
        seconds: float = 1.0,
    ) -> None:
        number = int(environment.action_space.n)
        names = list(actions) if actions is not None else [f"action_{index}" for index in range(number)]
        if len(names) != number:
            raise ValueError(f"actions must name each of the {number} actions, found {len(names)} names")
        self.name, self.seconds = name, seconds
        self.offers = [Offer(action, f"Take the action {index}.") for index, action in enumerate(names)]
        self._environment, self._state = environment, state
        self._actions = {action: index for index, action in enumerate(names)}
        self._latest: Any = None

    @classmethod
    def make(cls, id: str, *, name: str = "gymnasium", actions: Sequence[str] | None = None,
             **options: Any) -> GymnasiumEnvironment:  # fmt: skip
        """Make an environment by its id. Raises: ImportError without Gymnasium; the errors of `gymnasium.make`."""
        import gymnasium

        return cls(gymnasium.make(id, **options), name=name, actions=actions)

    def reset(self, seed: int | None = None) -> Observation:
        self._latest, _ = self._environment.reset(seed=seed)
        return self._observation()

    def step(self, tool: str, params: Mapping[str, Any]) -> Change:
        if tool not in self._actions:  # no action: the state is unchanged
            return Change(self._observation())
        self._latest, reward, is_over, is_cut, _ = self._environment.step(self._actions[tool])
        error = "it ended without a reward" if is_over and float(reward) <= 0 else ""
        cut = bool(is_cut) and not is_over
        return Change(self._observation(), float(reward), bool(is_over) or cut, error, is_cut=cut)

    def _observation(self) -> Observation:
        state = self._state(self._latest)
        return Observation(f"state {state}", kind=self.name, subject=state)
