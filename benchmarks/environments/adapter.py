"""Adapter of an environment: a sensor through which the agent observes it, and tools through which it acts.

Agent and environment take turns. The adapter pushes an observation, the agent has one cycle for it, the calls of this
cycle change the environment, and after the cycle the next observation is pushed. A cycle without such a call skips the
observation. An observation has its subject in `entities`. All perceptions of an episode have the attributes `episode`,
`step`, `reward` and `done`, also the last one, so that the agent perceives the end; a cut episode also has `cut`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from benchmarks.environments.environment import Change, Environment, LivedEpisode, Observation, Offer, TakenStep
from spar.errors import PermanentError, TransientError
from spar.events import LoopCompleted, PhaseCompleted
from spar.protocols import SensorContext
from spar.types import Perception

#: Seconds after which an observation that reached no cycle counts as skipped.
OVERDUE = 120.0


class EnvironmentAdapter:
    """Adapter that lets an agent and an environment take turns.

    It is the sensor itself, `tools` are the tools, and `register(agent)` subscribes it to the cycles, as for a
    plug-in. `begin` pushes the first observation; `wait` returns the outcomes of all episodes.

    Args: episodes: number of episodes; seed: seed of the environment; life: a name for these episodes that is unique
    in the memory; at_once: begin at the first opening of the sensor.
    """

    def __init__(
        self, environment: Environment, episodes: int, *, seed: int = 0, life: str = "", at_once: bool = False
    ) -> None:
        self.environment, self.episodes, self.seed = environment, episodes, seed
        self.tools = [EnvironmentTool(offer, environment.name, self._call) for offer in environment.offers]
        self.outcomes: list[LivedEpisode] = []
        self._begins_itself = at_once
        self._life = life or f"{environment.name}-{seed}"
        self._context: SensorContext | None = None
        self._observed: Observation | None = None
        self._next: Change | None = None
        self._steps: list[TakenStep] = []
        self._reward, self._is_over, self._is_cut = 0.0, False, False
        self._key, self._is_sensed = "", False  # of the last observation; whether a cycle has it
        self._ended = asyncio.Event()
        self._resting: asyncio.Task[None] | None = None
        #: Awaited between two episodes, while the agent is idle.
        self.rest: Callable[[], Awaitable[None]] | None = None

    async def open(self, context: SensorContext) -> None:
        self._context = context
        if self._begins_itself:
            self._begins_itself = False
            self.begin()

    def register(self, agent: Any) -> None:
        """Subscribe to the sensing and the end of cycles."""
        agent.on(PhaseCompleted)(self._has_sensed)
        agent.on(LoopCompleted)(self._cycle_ended)

    def begin(self) -> None:
        """Begin the first episode."""
        self._begin(self.seed)

    async def wait(self) -> list[LivedEpisode]:
        """Wait until all episodes have ended, and return their outcomes."""
        await self._ended.wait()
        return self.outcomes

    def _begin(self, seed: int | None = None) -> None:
        self._steps, self._reward, self._is_over, self._is_cut = [], 0.0, False, False
        self._show(self.environment.reset(seed))

    async def _begin_rested(self, rest: Callable[[], Awaitable[None]]) -> None:
        await rest()
        self._begin()

    def _show(self, observation: Observation) -> None:
        """Push an observation, after the seconds between two observations."""
        self._observed, self._next = observation, None
        context = self._context
        assert context is not None, "an environment begins once its sensor is open"
        episode = f"{self._life}-{len(self.outcomes)}"
        attributes = {
            **({"entities": [observation.subject]} if observation.subject else {}),
            **observation.attributes,
            "episode": episode,
            "step": len(self._steps),
            "reward": self._reward,
            "done": self._is_over,
            **({"cut": True} if self._is_cut else {}),
        }
        clock, key = context.clock, f"{episode} {attributes['step']}"

        def push() -> None:
            self._key = key
            clock.call_at(clock.monotonic() + OVERDUE, lambda: self._let_pass(key))
            context.push(
                Perception(
                    observation.content,
                    source=self.environment.name,
                    kind=observation.kind,
                    subject=observation.subject or None,
                    key=key,
                    at=clock.now(),
                    attributes=attributes,
                    trust=observation.trust,
                )
            )

        clock.call_at(clock.monotonic() + self.environment.seconds, push)

    def _call(self, tool: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out a call. Raises: TransientError, PermanentError where the environment reports a failure."""
        if self._is_over or self._observed is None:
            raise PermanentError(f"the episode is over: {tool!r} cannot be done any more")
        step = self._take(tool, params)
        if step.error:
            raise (TransientError if step.may_pass else PermanentError)(step.error)
        return {"reward": step.reward, "done": step.is_done, **({"cut": True} if step.is_cut else {})}

    def _take(self, tool: str, params: Mapping[str, Any]) -> Change:
        observed = self._observed
        assert observed is not None
        step = self._next = self.environment.step(tool, params)
        situation = f"{observed.kind} {observed.subject}".strip()
        self._steps.append(TakenStep(situation, tool, dict(params), step.reward, step.error, step.regret))
        self._reward, self._is_over, self._is_cut = step.reward, step.is_done, step.is_cut
        if step.observation is not None:
            self._observed = step.observation
        return step

    def _has_sensed(self, event: PhaseCompleted) -> None:
        if event.phase == "sense" and self._key:
            self._is_sensed = self._is_sensed or any(
                self._key in _keys(perception) for perception in event.output or ()
            )

    def _cycle_ended(self, _: LoopCompleted) -> None:
        if self._is_sensed:
            self._go_on()

    def _let_pass(self, key: str) -> None:
        """Go on after an observation that reached no cycle because the pipeline dropped it."""
        if self._key == key and not self._is_sensed:
            self._go_on()

    def _go_on(self) -> None:
        """Push the next observation, or end the episode."""
        self._key, self._is_sensed = "", False
        if self._observed is None:
            return
        if self._is_over and self._next is None:  # the agent has perceived the end
            self._end()
            return
        step = self._next or self._take("", {})
        if step.observation is not None:
            self._show(step.observation)
        elif step.is_done:
            self._end()
        else:
            self._show(self._observed)

    def _end(self) -> None:
        self.outcomes.append(LivedEpisode(len(self.outcomes), tuple(self._steps)))
        if len(self.outcomes) < self.episodes:
            if self.rest is None:
                self._begin()
            else:
                self._observed = None
                self._resting = asyncio.get_running_loop().create_task(self._begin_rested(self.rest))
        else:
            self._observed = None
            self._ended.set()


def _keys(perception: Perception) -> set[str | None]:
    """Return the keys of a perception and of the parts that it was fused from."""
    return {perception.key, *(part.key for part in perception.evidence)}


class EnvironmentTool:
    """Tool of an environment. Calls of one environment never overlap."""

    timeout = 60.0
    safe_with_untrusted = True

    def __init__(
        self, offer: Offer, environment: str, carry_out: Callable[[str, Mapping[str, Any]], dict[str, Any]]
    ) -> None:
        self.name, self.effect, self.resources = offer.name, offer.effect, (environment,)
        self.schema = {
            "type": "object",
            "description": offer.description,
            "properties": {
                "_tool": {"const": offer.name},
                **{key: dict(schema) for key, schema in offer.parameters.items()},
            },
            "required": ["_tool", *offer.parameters],
        }
        self._carry_out = carry_out

    async def __call__(self, **params: Any) -> dict[str, Any]:
        return self._carry_out(self.name, params)
